"""The queries of one set-up on their way to a judge and back: requests, their keys, and the files and rates of what was
said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.answers.yes_no import LABELS, NOT_SHOWN, read_verdict, yes_probability
from cprt.metrics.bootstrap import ClusteredShare, Figure
from cprt.models.outcome import Outcome, Status
from cprt.models.response_cache import cache_key
from cprt.models.spec import ModelSpec, Request
from cprt.records import write_json
from cprt.tables import write_csv
from eval.model_inversion.collection.setups import Setup
from eval.model_inversion.judge.panels import Shown
from eval.model_inversion.judge.prompts import Prompt
from eval.model_inversion.judge.queries import Options
from eval.model_inversion.metrics.join import CONTROLS, Row, write_verdicts
from eval.model_inversion.metrics.rates import with_intervals

Labels = Sequence[tuple[str, str]]  # (class of B, label) of every query


def read(text: str) -> tuple[Status, str | None]:
    """Status of a judge's words, and its verdict: yes or no."""
    verdict = read_verdict(text)
    if verdict == "yes" or verdict == "no":
        return "ok", verdict
    return verdict, None


class Asked:
    """All queries of one set-up as they are shown, and what kept responses to them mean."""

    def __init__(self, setup: Setup, shown: Sequence[Shown], options: Options, prompt: Prompt):
        self.setup, self.shown, self.options, self.prompt = setup, shown, options, prompt

    def requests(self, spec: ModelSpec) -> list[tuple[str, Request] | None]:
        """What this judge is asked about each query, and the key of it; None for one that cannot be shown.

        Keyed by what is shown and by what is asked about: equal names, or images, in other classes never mix.
        """
        return [None if shown.problem is not None else self._request(spec, shown) for shown in self.shown]

    def _request(self, spec: ModelSpec, shown: Shown) -> tuple[str, Request]:
        query, options, n = shown.query, self.options, len(shown.references)
        messages = self.prompt.messages(self.setup.subject, query.is_control, options.layout, n, shown.a_first)
        request = Request(messages, shown.images)
        about = {name: getattr(query, name) for name in ("kind", "source", "claims", "file")}
        return cache_key(judge=spec.name, **about, content=spec.key(request)), request

    def record(self, out: Path) -> list[dict[str, Any]]:
        """Rows of queries.jsonl."""
        return [
            {
                "setup": self.setup.id,
                "kind": shown.query.kind,
                "class": shown.query.claims,
                "file": shown.query.file,
                "path": shown.query.path,
                "references": list(shown.references),
                "n": self.options.n,
                "pad": self.options.pad,
                "blur": shown.blur,
                "layout": self.options.layout,
                "prompt": self.prompt.name,
                "a_first": shown.a_first,
                "seed": self.options.seed,
                "order_seed": self.options.order_seed,
                "images": [path.relative_to(out).as_posix() for path in shown.images],
                "skipped": list(shown.skipped),
                "problem": shown.problem,
            }
            for shown in self.shown
        ]

    def write(self, out: Path, spec: ModelSpec, outcomes: Sequence[Outcome[str]], controls: int) -> dict[str, Any]:
        """The files of one judge and this set-up; returns the summary."""
        folder = out / spec.name / self.setup.id
        kinds = [kind for kind in CONTROLS if self.options.degraded or not kind.endswith("_degraded")]
        rows: dict[str, list[Row]] = {kind: [] for kind in ("reconstruction", *kinds)}
        sure: list[tuple[Any, ...]] = []
        problems = []
        for shown, outcome in zip(self.shown, outcomes, strict=True):
            kind, file, claims = shown.query.kind, shown.query.file, shown.query.claims
            label = NOT_SHOWN if shown.problem is not None else outcome.value or outcome.status
            rows[kind].append((file, claims, outcome.text or "", label))
            reason = (outcome.error if outcome.status == "error" else None) or "; ".join(shown.skipped)
            if reason:
                problems.append({"kind": kind, "filename": file, "class": claims, "label": label, "reason": reason})
            probability = None if outcome.response is None else yes_probability(outcome.response.logprobs)
            if probability is not None:
                sure.append((kind, file, claims, *probability.values()))
        of_controls = [(kind, *row) for kind in kinds for row in rows[kind]]
        write_verdicts(folder, rows["reconstruction"], of_controls)
        (folder / "probabilities.csv").unlink(missing_ok=True)  # of an earlier run
        if sure:
            header = ("kind", "filename", "class", "p_yes", "yes_mass", "no_mass", "missing_mass")
            write_csv(folder / "probabilities.csv", header, sure)
        labels = {kind: [(claims, label) for _, claims, _, label in of_kind] for kind, of_kind in rows.items()}
        summary: dict[str, Any] = {"judge": spec.name, "setup": self.setup.id, "name": self.setup.name}
        summary |= {**summarise(labels, controls), "problems": problems}
        write_json(folder / "summary.json", summary)
        return summary


# --- Rates -------------------------------------------------------------------------------------------------------


def summarise(labels: Mapping[str, Labels], controls: int) -> dict[str, Any]:
    """Counts and rates by kind of query, each rate with its 95% interval over classes (``ClusteredShare``).

    Every rate is over all queries of its kind that were shown, whatever became of them; null where there are none.
    ``answered_accuracy`` is over yes and no alone.
    """
    images = labels["reconstruction"]
    tally = _tally(images)
    figures = {
        "attack_accuracy": _share(images, "yes"),
        "refusal_rate": _share(images, "refused"),
        "answered": tally["counts"]["yes"] + tally["counts"]["no"],
        "answered_accuracy": _share(images, "yes", among=("yes", "no")),
    }
    of_controls = {
        kind: _tally(labels[kind])
        | with_intervals({rate: _share(labels[kind], "yes"), "refusal_rate": _share(labels[kind], "refused")})
        for kind, rate in CONTROLS.items()
        if kind in labels
    }
    return {**tally, **with_intervals(figures), "controls": {"asked_for": controls, **of_controls}}


def _tally(labels: Labels) -> dict[str, Any]:
    count = Counter(label for _, label in labels)
    counts = {label: count[label] for label in LABELS}
    return {"n": sum(counts.values()), "counts": counts, "not_shown": count[NOT_SHOWN]}


def _share(labels: Labels, label: str, among: Sequence[str] = LABELS) -> Figure:
    """The share of ``label``, of the queries with one of the labels ``among``."""
    return ClusteredShare.of_rows(labels, (label,), among).figure
