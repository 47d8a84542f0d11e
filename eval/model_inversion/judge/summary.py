"""Rates of one judge on one set-up, over its reconstructions and over the control pairs of either kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cprt.answers.yes_no import LABELS, NOT_SHOWN
from cprt.metrics.bootstrap import ClusteredShare

_CONTROLS = {
    "positive": "hit_rate",
    "negative": "false_alarm_rate",
    "positive_degraded": "hit_rate",
    "negative_degraded": "false_alarm_rate",
}

Labels = Sequence[tuple[str, str]]  # (class of B, label) of every query


def summarise(labels: Mapping[str, Labels], controls: int) -> dict[str, Any]:
    """Counts and rates by kind of query, each rate with its 95% interval over classes (``ClusteredShare``).

    Every rate is over all queries of its kind that were shown, whatever became of them; null where there are none.
    ``answered_accuracy`` is over yes and no alone.
    """
    summary = _tally(labels["reconstruction"])
    summary |= _rates(labels["reconstruction"], LABELS, attack_accuracy="yes", refusal_rate="refused")
    answered = _rates(labels["reconstruction"], ("yes", "no"), answered_accuracy="yes")
    summary["ci"] |= answered.pop("ci")
    return {
        **summary,
        "answered": summary["counts"]["yes"] + summary["counts"]["no"],
        **answered,
        "controls": {
            "asked_for": controls,
            **{
                kind: _tally(labels[kind]) | _rates(labels[kind], LABELS, **{rate: "yes"}, refusal_rate="refused")
                for kind, rate in _CONTROLS.items()
                if kind in labels
            },
        },
    }


def _tally(labels: Labels) -> dict[str, Any]:
    count = Counter(label for _, label in labels)
    counts = {label: count[label] for label in LABELS}
    return {"n": sum(counts.values()), "counts": counts, "not_shown": count[NOT_SHOWN]}


def _rates(labels: Labels, among: Sequence[str], **names: str) -> dict[str, Any]:
    """The share of each label in ``names``, by its name there, of the queries with one of the labels ``among``."""
    classes: dict[str, Counter[str]] = {}
    for claims, label in labels:
        classes.setdefault(claims, Counter())[label] += 1
    shares = {name: ClusteredShare.of_counts(classes.values(), (label,), among) for name, label in names.items()}
    found: dict[str, Any] = {name: share.share for name, share in shares.items()}
    return found | {"ci": {name: share.interval for name, share in shares.items()}}
