"""What a judge's figures would be without its own errors, as far as control pairs of known answer tell them.

Everything here assumes that the judge errs on reconstructions as it does on the controls. Reconstructions are blurred
and off in colour, and a judge misses more of such pictures: with clean controls the corrected figures can be further
from the truth than the plain ones. Degraded controls come nearer to the assumption; the range shows what hangs on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cprt.metrics.bootstrap import ClusteredShare, Figure, Floats, apart, defined, divide, totals, widened_interval
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.join import LABELS
from eval.model_inversion.metrics.rates import Counting, Counts

Controls = Mapping[str, Mapping[str, Counter[str]]]  # kind -> class -> label -> how many

ASSUMES = (
    "that the judge errs on reconstructions as often as on its control pairs; where it misses more of them (they are "
    "blurred, the photos of controls are not), too few are counted as true"
)
ASSUMES_OF_RATES = "the same, and that its errors do not depend on whether E accepts the reconstruction"
_NOTHING = Figure(None, None)


@dataclass(frozen=True)
class Errors:
    """A judge's hit and false-alarm rates on one kind of controls."""

    hits: ClusteredShare
    alarms: ClusteredShare

    @staticmethod
    def of(controls: Controls, suffix: str = "", labels: Collection[str] = LABELS) -> Errors:
        """Over the pairs with one of ``labels``."""
        classes = (controls.get(kind + suffix, {}).values() for kind in ("positive", "negative"))
        return Errors(*(ClusteredShare.of_counts(of_kind, ("yes",), labels) for of_kind in classes))


def correct(
    counts_K52: Counts,
    shares: Mapping[str, ClusteredShare],
    controls: Controls | None,
    counting: Counting,
    weights_BK: Floats,
) -> dict[str, Any]:
    """Corrected figures; undefined without ``controls``.

    ``accuracy_judge_corrected`` is clipped to [0, 1], ``..._raw`` as it came, ``..._degraded`` by degraded controls,
    ``..._range`` its least and greatest value if the judge's hit rate on reconstructions is lower, and its false-alarm
    rate higher, by up to ``counting.error_margin`` than on the controls.
    """
    asked = controls or {}
    yes, clean, degraded = shares["accuracy_judge"], Errors.of(asked), Errors.of(asked, "_degraded")
    raw, of_degraded = (rates.corrected(yes, errors.hits, errors.alarms) for errors in (clean, degraded))
    fpr, fnr = _rates(counts_K52, shares, Errors.of(asked, "", counting.in_table), counting, weights_BK)
    return {
        "accuracy_judge_corrected": _clipped(raw),
        "accuracy_judge_corrected_raw": raw,
        "control_hit_rate": clean.hits.figure,
        "control_false_alarm_rate": clean.alarms.figure,
        "accuracy_judge_corrected_degraded": _clipped(of_degraded),
        "degraded_hit_rate": degraded.hits.figure,
        "degraded_false_alarm_rate": degraded.alarms.figure,
        "fpr_corrected": fpr,
        "fnr_corrected": fnr,
        "accuracy_judge_corrected_range": _range(yes.share, clean, counting.error_margin),
        "correction_assumes": None if controls is None else {"accuracy": ASSUMES, "fpr, fnr": ASSUMES_OF_RATES},
    }


def _range(p: float | None, errors: Errors, error_margin: float) -> list[float] | None:
    h, f = errors.hits.share, errors.alarms.share
    if p is None or h is None or f is None:
        return None
    corners = [
        (p - false_alarms) / (hits - false_alarms)
        for hits in (h, max(0.0, h - error_margin))
        for false_alarms in (f, min(1.0, f + error_margin))
        if hits > false_alarms
    ]
    return [_clip(min(corners)), _clip(max(corners))] if len(corners) == 4 else None


def _rates(
    counts_K52: Counts,
    shares: Mapping[str, ClusteredShare],
    errors: Errors,
    counting: Counting,
    weights_BK: Floats,
) -> list[Figure]:
    """FPR and FNR of E with the corrected judge as the truth: each side of E is corrected on its own.

    Intervals: classes are resampled, and the judge's rates drawn from their posterior under Jeffreys' prior.
    """
    h, f = errors.hits.share, errors.alarms.share
    if h is None or f is None or h <= f:
        return [_NOTHING] * 2
    generator = np.random.default_rng([counting.seed, 1])
    drawn = [
        generator.beta(rate * share.effective_n + 0.5, (1 - rate) * share.effective_n + 0.5, len(weights_BK))
        for rate, share in ((h, errors.hits), (f, errors.alarms))
    ]
    resampled = _corrected_rates(totals(counts_K52, weights_BK), drawn[0], drawn[1], counting.refused_as_no)
    found = []
    for place, name in enumerate(("fpr", "fnr")):
        value = defined(_corrected_rates(counts_K52.sum(axis=0), h, f, counting.refused_as_no)[place])
        interval = apart(widened_interval(resampled[place], len(counts_K52), shares[name].freedom))
        found.append(Figure(value, None if value is None else interval))
    return found


def _corrected_rates(counts: Counts, hits: Any, alarms: Any, refused_as_no: bool) -> tuple[Floats, Floats]:
    """(..., 5, 2) counts -> FPR and FNR, (...); NaN where the judge's yes says nothing or the rate is undefined."""
    table = rates.table(counts, refused_as_no)  # (..., judge, E)
    of_e = table.sum(axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        judged = divide(table[..., 1, :], of_e)
        true = np.clip((judged - np.expand_dims(alarms, -1)) / np.expand_dims(hits - alarms, -1), 0, 1)
    true = np.where(np.expand_dims(np.asarray(hits > alarms), -1), true, np.nan)
    true = np.where(of_e > 0, true, 0)  # of nothing nothing is true
    accepted, rejected = of_e[..., 1], of_e[..., 0]
    false = accepted * (1 - true[..., 1]) + rejected * (1 - true[..., 0])
    leaked = accepted * true[..., 1] + rejected * true[..., 0]
    return divide(accepted * (1 - true[..., 1]), false), divide(rejected * true[..., 0], leaked)


def _clipped(figure: Figure) -> Figure:
    value, interval = figure
    return Figure(None if value is None else _clip(value), interval and [*map(_clip, interval)])


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
