"""Agreement of predicted severity with the truth (paper 4.2): ranking, magnitude, levels, coverage, intervals.

The functions on arrays come first; ``evaluate`` joins label rows with prediction rows and gives what ``metrics.json``
holds. A figure that is not defined (a correlation of a constant, an accuracy over no pair) is None, never 0 or NaN.

The paper scores "curated" pairs. Here every pair of images with different true scores counts, exactly and in
O(n log n), so its inter- and intra-level figures are of another protocol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cprt.answers import STATUSES
from cprt.errors import InputError
from cprt.scoring import levels_of
from cprt.taxonomy import LEVELS, Taxonomy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CONFIDENCE, _Z = 0.95, 1.959963984540054  # and its two-sided normal quantile
_MOST_UNDEFINED = 0.05


# --- Figures of two arrays, (N,) true and (N,) predicted scores --------------------------------------------------


def pearson(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Pearson's r; None if either is constant or N < 2. Raises ValueError unless both are (N,) and finite."""
    t, p = _columns(truth, prediction)
    return _defined(_correlations(_Groups(t), _Groups(p), np.ones((len(t), 1)))["pearson"])


def spearman(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Spearman's rho, ties at their mean rank; None if either is constant or N < 2."""
    t, p = _columns(truth, prediction)
    return _defined(_correlations(_Groups(t), _Groups(p), np.ones((len(t), 1)))["spearman"])


def mae(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Mean absolute error; None if N = 0."""
    t, p = _columns(truth, prediction)
    return float(np.abs(p - t).mean()) if len(t) else None


def bias(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Mean of prediction minus truth: positive where severity is overestimated; None if N = 0."""
    t, p = _columns(truth, prediction)
    return float((p - t).mean()) if len(t) else None


def level_accuracy(true_levels: ArrayLike, predicted_levels: ArrayLike) -> float | None:
    """Share of equal levels; None if N = 0."""
    t, p = _columns(true_levels, predicted_levels)
    return float((t == p).mean()) if len(t) else None


def confusion(true_levels: ArrayLike, predicted_levels: ArrayLike) -> Ints:
    """(4, 4) counts: rows are true levels 1 to 4, columns predicted ones."""
    t, p = _columns(true_levels, predicted_levels)
    cells = (t.astype(np.int64) - 1) * 4 + p.astype(np.int64) - 1
    return np.bincount(cells, minlength=16).astype(np.int64).reshape(4, 4)


@dataclass(frozen=True)
class PairwiseAccuracy:
    """Shares of image pairs that the prediction puts in the true order; None where there is no such pair.

    Over all pairs with different true scores, and over those between and within true levels. A tie in prediction is
    wrong; ``*_no_ties`` leave tied pairs out.
    """

    pairwise_accuracy: float | None
    inter_level_accuracy: float | None
    intra_level_accuracy: float | None
    pairwise_accuracy_no_ties: float | None
    inter_level_accuracy_no_ties: float | None
    intra_level_accuracy_no_ties: float | None


def pairwise_accuracy(truth: ArrayLike, prediction: ArrayLike, true_levels: ArrayLike) -> PairwiseAccuracy:
    """Pairwise accuracy over all pairs, exact, O(n log n): a million rows take two to four seconds on one core.

    ``true_levels`` are (N,), from the labels (never from scores). Raises ValueError unless all are (N,) and finite.
    """
    t, p = _columns(truth, prediction)
    levels, _ = _columns(true_levels, truth)
    shares = _pair_shares(_Groups(t), _Groups(p), _Groups(levels), [np.ones((len(t), 1))])
    return PairwiseAccuracy(**{name: _defined(share) for name, share in shares.items()})


def wilson_interval(successes: int, n: int) -> list[float] | None:
    """95% interval of a share (Wilson, 1927); None if n = 0."""
    if n == 0:
        return None
    share, z2 = successes / n, _Z**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return [max(0.0, centre - half), min(1.0, centre + half)]


# --- Bootstrap ---------------------------------------------------------------------------------------------------


def bootstrap(
    truth: ArrayLike, prediction: ArrayLike, true_levels: ArrayLike, level_is_right: ArrayLike, rows: Ints
) -> dict[str, Floats]:
    """Every figure in every resample of the rows: name -> (B,), NaN where it is undefined in that resample.

    Args:
        truth, prediction, true_levels: (N,).
        level_is_right: (N,) booleans, whether the predicted level is the true one.
        rows: (B, N) indices drawn with replacement.

    A resample is how often each row was drawn. Sorting and the structure of the pairs are worked out once, then only
    these weights change: all pairs of 6,736 rows in 1,000 resamples take a few seconds.
    """
    t, p = _columns(truth, prediction)
    levels, right = _columns(true_levels, level_is_right)
    truth_groups, prediction_groups = _Groups(t), _Groups(p)
    means = np.stack([np.abs(p - t), p - t, right])
    parts = []
    chunks = np.array_split(rows, max(1, rows.size // 400_000))  # 64 resamples of 6,736 rows at a time: fits the cache
    weights = [_draws(chunk) for chunk in chunks]
    for weight in weights:
        part = _correlations(truth_groups, prediction_groups, weight)
        part |= zip(("mae", "bias", "level_accuracy"), np.einsum("kn,nb->kb", means, weight) / len(t), strict=True)
        parts.append(part)
    figures = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return figures | _pair_shares(truth_groups, prediction_groups, _Groups(levels), weights)


def _draws(rows: Ints) -> Floats:
    """(B, N) indices -> (N, B): how often each row is among them."""
    resamples, n = rows.shape
    cells = rows * resamples + np.arange(resamples)[:, None]
    return np.bincount(cells.ravel(), minlength=n * resamples).reshape(n, resamples).astype(np.float64)


def _interval(figures: Floats) -> list[float] | None:
    known = figures[~np.isnan(figures)]
    if len(known) < (1 - _MOST_UNDEFINED) * len(figures):
        return None
    tail = 50 * (1 - _CONFIDENCE)
    return [float(bound) for bound in np.percentile(known, [tail, 100 - tail])]


# --- From rows to metrics.json -----------------------------------------------------------------------------------


def evaluate(
    labels: Iterable[tuple[str, int, float]],
    predictions: Iterable[tuple[str, str, float | None]],
    taxonomy: Taxonomy | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Metrics of predictions against labels, ready for JSON.

    Args:
        labels: (id, level, score) a row. The level is taken as it is: it comes from counts, not from the score.
        predictions: (id, status, score) a row; the score is None unless the status is "ok".
        resamples: bootstrap resamples; 0 leaves ``ci`` empty of all but coverage. Cost grows as n log n each.

    Returns a dict: ``n`` label rows, ``coverage`` (rows with a score / n), ``status_counts`` (a label without a
    prediction counts as "missing"), the figures over rows with a score, ``confusion`` (rows true level, columns
    predicted), ``ci`` (name -> [low, high] or None) and ``ci_method``. Intervals are 95% percentile bootstraps over
    the rows with a score; resamples in which a figure is undefined are left out and counted in ``ci_method``, and
    beyond 5% of them there is no interval. That of coverage is Wilson's.

    Raises InputError on an id that is doubled or has no label, and on values outside their range.
    """
    truth_by_id = _labels_by_id(labels)
    statuses, scores = _predictions_by_id(predictions, truth_by_id)
    n, covered = len(truth_by_id), [key for key in truth_by_id if key in scores]
    true_levels = np.asarray([truth_by_id[key][0] for key in covered], dtype=np.int64)
    truth = np.asarray([truth_by_id[key][1] for key in covered], dtype=np.float64)
    prediction = np.asarray([scores[key] for key in covered], dtype=np.float64)
    predicted_levels = levels_of(prediction, taxonomy)

    figures: dict[str, float | None] = {
        "pearson": pearson(truth, prediction),
        "spearman": spearman(truth, prediction),
        "mae": mae(truth, prediction),
        "bias": bias(truth, prediction),
        "level_accuracy": level_accuracy(true_levels, predicted_levels),
        **asdict(pairwise_accuracy(truth, prediction, true_levels)),
    }
    intervals: dict[str, list[float] | None] = {"coverage": wilson_interval(len(covered), n)}
    undefined: dict[str, int] = {}
    if resamples and covered:
        rows = np.random.default_rng(seed).integers(len(covered), size=(resamples, len(covered)))
        for name, values in bootstrap(truth, prediction, true_levels, true_levels == predicted_levels, rows).items():
            intervals[name] = None if figures[name] is None else _interval(values)
            undefined[name] = int(np.isnan(values).sum())
    return {
        "n": n,
        "coverage": len(covered) / n if n else None,
        **figures,
        "status_counts": {status: statuses[status] for status in STATUSES} | {"missing": n - sum(statuses.values())},
        "confusion": confusion(true_levels, predicted_levels).tolist(),
        "ci": intervals,
        "ci_method": {
            "confidence": _CONFIDENCE,
            "bootstrap": "percentile, over rows with a score",
            "coverage": "Wilson",
            "resamples": resamples,
            "seed": seed,
            "undefined_resamples": {name: count for name, count in undefined.items() if count},
        },
    }


def _labels_by_id(labels: Iterable[tuple[str, int, float]]) -> dict[str, tuple[int, float]]:
    by_id: dict[str, tuple[int, float]] = {}
    for key, level, score in labels:
        if key in by_id:
            raise InputError(f"label id {key!r} is there twice")
        if level not in LEVELS:
            raise InputError(f"label {key!r}: level {level!r} is not one of 1, 2, 3, 4")
        by_id[key] = (level, _in_range(score, f"label {key!r}"))
    return by_id


def _predictions_by_id(
    predictions: Iterable[tuple[str, str, float | None]], labels: dict[str, tuple[int, float]]
) -> tuple[Counter[str], dict[str, float]]:
    """How often each status occurs, and the scores there are."""
    statuses: dict[str, str] = {}
    scores: dict[str, float] = {}
    for key, status, score in predictions:
        if key not in labels:
            raise InputError(f"prediction id {key!r} has no label")
        if key in statuses:
            raise InputError(f"prediction id {key!r} is there twice")
        if status not in STATUSES:
            raise InputError(f"prediction {key!r}: status {status!r} is not one of {', '.join(STATUSES)}")
        if (status == "ok") != (score is not None):
            raise InputError(f"prediction {key!r}: status {status!r} {'without' if score is None else 'with'} a score")
        statuses[key] = status
        if score is not None:
            scores[key] = _in_range(score, f"prediction {key!r}")
    return Counter(statuses.values()), scores


def _in_range(score: float, what: str) -> float:
    if not 0 <= score <= 1:  # NaN too
        raise InputError(f"{what}: score {score!r} is not in [0, 1]")
    return float(score)


# --- Weighted building blocks: (N, B) weights say how often each row is there in B resamples ------------------------


def _columns(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"need two arrays of one shape (N,), not {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("need finite numbers")
    return a, b


def _defined(values: Floats) -> float | None:
    """The one value of a (1,) array."""
    return None if np.isnan(values[0]) else float(values[0])


def _running_sum(values: Floats) -> Floats:
    """(N, B) -> (N + 1, B): the sums of the first 0, 1, ... N rows."""
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:])
    return sums


def _bounds(*columns: NDArray[Any]) -> Ints:
    """Where runs of equal rows begin and end in sorted columns: (runs + 1,)."""
    changes = np.zeros(max(0, len(columns[0]) - 1), dtype=bool)
    for column in columns:
        changes |= np.diff(column) != 0
    ends = [len(columns[0])] if len(columns[0]) else []
    return np.concatenate([[0], np.flatnonzero(changes) + 1, ends]).astype(np.int64)


class _Groups:
    """Rows grouped by equal value, groups in rising order."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        self.order = np.argsort(values)
        self.bounds = _bounds(values[self.order])
        self.size = len(self.bounds) - 1
        self.group = np.empty(len(values), dtype=np.int64)  # of each row
        self.group[self.order] = np.repeat(np.arange(self.size), np.diff(self.bounds))

    def sums(self, weights: Floats) -> Floats:
        """(N, B) weights -> (groups, B)."""
        return _run_sums(_running_sum(weights.take(self.order, axis=0)), self.bounds)


def _run_sums(running: Floats, bounds: Ints) -> Floats:
    sums: Floats = np.diff(running.take(bounds, axis=0), axis=0)
    return sums


def _square(values: Floats) -> Floats:
    squares: Floats = np.einsum("nb,nb->b", values, values)
    return squares


def _correlations(x: _Groups, y: _Groups, weights: Floats) -> dict[str, Floats]:
    """(B,) Pearson and Spearman; NaN where either side is constant."""
    constant = np.full(weights.shape[1], len(weights) < 2)
    columns, ranks = [], []
    for groups in (x, y):
        sums = groups.sums(weights)
        constant |= np.count_nonzero(sums, axis=0) < 2  # exact, where a variance would be rounding noise
        if groups.size > 1:
            values = groups.values - groups.values.min()  # stretched to [0, 1], so that no square underflows
            columns.append((values / values.max())[:, None])
            ranks.append((np.cumsum(sums, axis=0) - (sums - 1) / 2).take(groups.group, axis=0))  # ties: mean rank
    if len(columns) < 2:
        return dict.fromkeys(("pearson", "spearman"), np.full(weights.shape[1], np.nan))
    found = {}
    for name, pair in (("pearson", columns), ("spearman", ranks)):
        a, b = (column - (weights * column).sum(axis=0) / weights.sum(axis=0) for column in pair)
        weighted = weights * a
        ab, aa = np.einsum("nb,nb->b", weighted, b), np.einsum("nb,nb->b", weighted, a)
        bb = np.einsum("nb,nb,nb->b", weights, b, b)
        with np.errstate(invalid="ignore", divide="ignore"):
            found[name] = np.where(constant, np.nan, np.clip(ab / np.sqrt(aa) / np.sqrt(bb), -1.0, 1.0))
    return found


def _pair_shares(truth: _Groups, prediction: _Groups, levels: _Groups, chunks: list[Floats]) -> dict[str, Floats]:
    """The fields of PairwiseAccuracy as (B,) shares over all chunks' resamples, NaN where there is no pair."""
    # Each (3, B): pairs with different true scores; of these, in the true order; tied in prediction.
    everyone = np.zeros(len(truth.group), dtype=np.int64)
    overall, within = (_count_pairs(truth, prediction, strata, chunks) for strata in (everyone, levels.group))
    shares = {}
    for name, counts in (
        ("pairwise", overall),
        ("inter_level", overall - within),
        ("intra_level", within),
    ):
        pairs, right, tied = counts
        with np.errstate(invalid="ignore"):
            shares[f"{name}_accuracy"] = right / pairs
            shares[f"{name}_accuracy_no_ties"] = right / (pairs - tied)
    return shares


def _count_pairs(truth: _Groups, prediction: _Groups, stratum: Ints, chunks: list[Floats]) -> Floats:
    """(3, B) counts of pairs within strata (see _pair_shares). Exact: whole numbers below 2**53."""
    # Sorted by stratum, truth and falling prediction (one whole number for the three), a pair is in the true order
    # exactly if its later row has the greater prediction.
    falling = prediction.size - 1 - prediction.group
    order = np.argsort((stratum * truth.size + truth.group) * prediction.size + falling)
    sorted_columns = stratum[order], truth.group[order], prediction.group[order]
    strata, same_truth, same_both = (_bounds(*sorted_columns[:columns]) for columns in (1, 2, 3))
    same_prediction = _Groups(stratum * prediction.size + prediction.group)
    ordered = [weights.take(order, axis=0) for weights in chunks]
    right = [np.zeros(weights.shape[1]) for weights in chunks]
    for low, high, first, before in _splits(sorted_columns[0], sorted_columns[2]):
        for count, weights in zip(right, ordered, strict=True):
            below = _running_sum(weights.take(low, axis=0))
            earlier = below.take(before, axis=0) - below.take(first, axis=0)
            count += np.einsum("nb,nb->b", weights.take(high, axis=0), earlier)
    # The square of a run's weight is twice its pairs, and its rows paired with themselves. The latter cancel: a row
    # drawn twice has one true score, so it makes no pair.
    squares = [
        [_square(_run_sums(running, bounds)) for bounds in (strata, same_truth, same_both)]
        for running in map(_running_sum, ordered)
    ]
    everything, truth_ties, both_ties = np.concatenate(squares, axis=1)
    ties = np.concatenate([_square(same_prediction.sums(weights)) for weights in chunks])
    return np.stack([(everything - truth_ties) / 2, np.concatenate(right), (ties - both_ties) / 2])


def _splits(stratum: Ints, rank: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Finds all pairs within a stratum whose later row has the greater rank: each differs in one highest bit.

    (N,) strata, rising, and ranks. For every bit, rows lie partitioned by the bits above (stably, each part in one
    piece). Yields the rows with the bit unset, the rows with it set, and for each of the latter the range
    [first, before) of the former that belong to its part and come earlier.
    """
    bits = int(rank.max(initial=0)).bit_length()
    key = stratum << bits | rank
    key = key.astype(np.int32 if key.max(initial=0) < 2**31 else np.int64)  # half the memory traffic
    rows = np.arange(len(key))
    for bit in reversed(range(bits)):
        is_high = (key >> bit & 1).astype(bool)
        low, high = np.flatnonzero(~is_high), np.flatnonzero(is_high)
        lows_before = np.cumsum(~is_high, dtype=np.int64) - ~is_high
        bounds = _bounds(key >> (bit + 1))
        first = np.repeat(lows_before[bounds[:-1]], np.diff(bounds))
        yield rows[low], rows[high], first[high], lows_before[high]
        rows, key = (np.concatenate([values[low], values[high]]) for values in (rows, key))
