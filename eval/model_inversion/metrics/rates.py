"""The arithmetic of model-inversion evaluation: what a judge and an evaluation model E say of the same images.

Everything follows from ``counts`` (..., 5, 2): how many reconstructions got each label of the judge (in the order of
``LABELS``) and E's no or yes. Leading dimensions are resamples. The judge is the truth: a false positive is a
reconstruction that E accepts and the judge rejects. In arrays what is undefined is NaN, in results None; never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.metrics.agreement import kappa_of_tables
from cprt.metrics.bootstrap import interval, wilson_interval
from eval.model_inversion.metrics.join import LABELS

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Interval = list[float] | None

YES, NO, REFUSED = (LABELS.index(label) for label in ("yes", "no", "refused"))
_Z = 1.959963984540054  # the two-sided normal quantile of 95%


def table(counts: Counts, refused_as_no: bool = False) -> Counts:
    """(..., 5, 2) -> (..., 2, 2) over what the judge answered: rows judge no, yes; columns E no, yes.

    Labels other than yes and no are left out, but a refusal is a no if ``refused_as_no``.
    """
    no = counts[..., NO, :] + (counts[..., REFUSED, :] if refused_as_no else 0)
    return np.stack([no, counts[..., YES, :]], axis=-2)


def fractions(counts: Counts, refused_as_no: bool = False) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Every share as (how many, of how many), each (...,). Accuracies are over all n, the rates over the table."""
    (tn, fp), (fn, tp) = (np.moveaxis(row, -1, 0) for row in np.moveaxis(table(counts, refused_as_no), -2, 0))
    n = counts.sum(axis=(-2, -1))
    return {
        "accuracy_judge": (counts[..., YES, :].sum(axis=-1), n),
        "accuracy_standard": (counts[..., 1].sum(axis=-1), n),
        "fpr": (fp, fp + tn),
        "fnr": (fn, fn + tp),
        "tpr": (tp, fn + tp),
        "tnr": (tn, fp + tn),
    }


def measure(
    counts: Counts, *, refused_as_no: bool = False, resamples: int = 2000, seed: int = 0
) -> tuple[dict[str, Any], dict[str, Interval]]:
    """All figures of (5, 2) counts, and their 95% intervals by name: Wilson's of shares, else bootstrap percentiles."""
    (tn, fp), (fn, tp) = table(counts, refused_as_no).tolist()
    shares = {name: (int(part), int(whole)) for name, (part, whole) in fractions(counts, refused_as_no).items()}
    drawn = resample(counts, resamples, seed)
    others = {
        "accuracy_gap": accuracy_gap,
        "kappa": lambda counts: kappa(counts, refused_as_no),
    }
    points = {name: defined(figure(counts)) for name, figure in others.items()}
    figures = {
        "n": int(counts.sum()),
        **{"tp": tp, "tn": tn, "fp": fp, "fn": fn},
        **{name: part / whole if whole else None for name, (part, whole) in shares.items()},
        **points,
    }
    intervals = {name: wilson_interval(*share) for name, share in shares.items()}
    for name, figure in others.items():
        intervals[name] = None if points[name] is None else percentiles(figure(drawn))
    return figures, intervals


def accuracy_gap(counts: Counts) -> Floats:
    """(..., 5, 2) -> (...,): accuracy under E minus accuracy under the judge."""
    of = fractions(counts)
    return divide(of["accuracy_standard"][0] - of["accuracy_judge"][0], of["accuracy_judge"][1])


def kappa(counts: Counts, refused_as_no: bool = False) -> Floats:
    """(..., 5, 2) -> (...,): Cohen's kappa of judge and E over the table."""
    tables = table(counts, refused_as_no)
    return kappa_of_tables(tables.reshape(*tables.shape[:-2], 4).astype(np.float64))


# --- A judge's own errors ----------------------------------------------------------------------------------------


def corrected(
    yes: int, n: int, positive: Mapping[str, int], negative: Mapping[str, int]
) -> tuple[float | None, Interval]:
    """The share of true yes behind ``yes`` of ``n``, given a judge's answers to controls, and its 95% interval.

    (p - f) / (h - f) with p the share of yes, h among positive and f among negative controls (Rogan and Gladen, 1978);
    not clipped. The interval is by the delta method on shares moved towards a half (by z^2/2 successes and failures for
    p, by one each for h and f), in the manner of Lang and Reiczigel (2014): else flawless controls would count as known
    to be flawless. None where h <= f: then the judge's yes says nothing. None for the interval where only the moved
    shares say so.
    """
    hits, positives = positive["yes"], sum(positive.values())
    alarms, negatives = negative["yes"], sum(negative.values())
    if not n or not positives or not negatives or hits * negatives <= alarms * positives:
        return None, None
    h, f = hits / positives, alarms / negatives
    value = (yes / n - f) / (h - f)
    p_, n_ = (yes + _Z**2 / 2) / (n + _Z**2), n + _Z**2
    h_, f_ = (hits + 1) / (positives + 2), (alarms + 1) / (negatives + 2)
    if h_ <= f_:
        return value, None
    centre = (p_ - f_) / (h_ - f_)
    variance = p_ * (1 - p_) / n_
    variance += centre**2 * h_ * (1 - h_) / (positives + 2) + (1 - centre) ** 2 * f_ * (1 - f_) / (negatives + 2)
    half = _Z * math.sqrt(variance) / (h_ - f_)
    return value, [min(value, centre - half), max(value, centre + half)]


def difference(first: tuple[int, int], second: tuple[int, int]) -> tuple[float | None, Interval]:
    """Difference of two independent shares (how many, of how many) with Newcombe's 95% interval (1998, method 10)."""
    one, two = wilson_interval(*first), wilson_interval(*second)
    if one is None or two is None:
        return None, None
    (low1, high1), (low2, high2) = one, two
    p1, p2 = first[0] / first[1], second[0] / second[1]
    return p1 - p2, [p1 - p2 - math.hypot(p1 - low1, high2 - p2), p1 - p2 + math.hypot(high1 - p1, p2 - low2)]


# --- Resampling --------------------------------------------------------------------------------------------------


def resample(counts: Counts, resamples: int, seed: int) -> Counts:
    """(...) counts -> (resamples, ...): as many rows drawn with replacement. Only the counts matter, not the rows."""
    n = int(counts.sum())
    if not n:
        return np.zeros((resamples, *counts.shape), dtype=np.int64)
    drawn = np.random.default_rng(seed).multinomial(n, counts.ravel() / n, size=resamples)
    return drawn.reshape(resamples, *counts.shape)


def percentiles(values: Floats) -> Interval:
    """95% interval of (resamples,) values; None without any, or where more than 5% of them are undefined."""
    return interval(values) if len(values) else None


def divide(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """NaN where the denominator is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.asarray(whole) != 0, np.asarray(part, dtype=np.float64) / whole, np.nan)


def defined(value: Any) -> float | None:
    """A float, or None for NaN."""
    return None if np.isnan(value) else float(value)
