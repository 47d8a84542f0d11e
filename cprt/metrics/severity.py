"""Agreement of predicted severity with the truth (paper 4.2): ranking, magnitude, levels, coverage, intervals.

The functions on arrays come first; ``evaluate`` joins label rows with prediction rows and gives their ``Figures``,
``paired_differences`` tells whether two judges differ. A figure that is not defined (a correlation of a constant, an
accuracy over no pair) is None, never 0 or NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cprt.answers import STATUSES
from cprt.errors import InputError
from cprt.metrics.bootstrap import (
    CONFIDENCE,
    Floats,
    Ints,
    Weights,
    defined,
    interval,
    p_value,
    resample,
    wilson_interval,
)
from cprt.metrics.pairs import Groups, as_columns, pair_shares, pairwise_accuracy, sample_pairs, sampled_shares
from cprt.metrics.results import Figures
from cprt.scoring import levels_of
from cprt.taxonomy import Taxonomy

SAMPLED_PAIRS = 10_000


# --- Figures of two arrays, (N,) true and (N,) predicted scores --------------------------------------------------


def pearson(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Pearson's r; None if either is constant or N < 2. Raises ValueError unless both are (N,) and finite."""
    t, p = as_columns(truth, prediction)
    return defined(correlations(Groups(t), Groups(p), np.ones((len(t), 1)))["pearson"][0])


def spearman(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Spearman's rho, ties at their mean rank; None if either is constant or N < 2."""
    t, p = as_columns(truth, prediction)
    return defined(correlations(Groups(t), Groups(p), np.ones((len(t), 1)))["spearman"][0])


def mae(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Mean absolute error; None if N = 0."""
    t, p = as_columns(truth, prediction)
    return float(np.abs(p - t).mean()) if len(t) else None


def bias(truth: ArrayLike, prediction: ArrayLike) -> float | None:
    """Mean of prediction minus truth: positive where severity is overestimated; None if N = 0."""
    t, p = as_columns(truth, prediction)
    return float((p - t).mean()) if len(t) else None


def level_accuracy(true_levels: ArrayLike, predicted_levels: ArrayLike) -> float | None:
    """Share of equal levels; None if N = 0."""
    t, p = as_columns(true_levels, predicted_levels)
    return float((t == p).mean()) if len(t) else None


def confusion(true_levels: ArrayLike, predicted_levels: ArrayLike) -> Ints:
    """(4, 4) counts: rows are true levels 1 to 4, columns predicted ones."""
    t, p = as_columns(true_levels, predicted_levels)
    cells = (t.astype(np.int64) - 1) * 4 + p.astype(np.int64) - 1
    return np.bincount(cells, minlength=16).astype(np.int64).reshape(4, 4)


def correlations(x: Groups, y: Groups, weights: Floats) -> dict[str, Floats]:
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


def bootstrap(
    truth: ArrayLike, prediction: ArrayLike, true_levels: ArrayLike, level_is_right: ArrayLike, weights: Weights
) -> dict[str, Floats]:
    """Every figure in every resample of the rows: name -> (B,), NaN where it is undefined in that resample.

    All columns are (N,); ``level_is_right`` says whether the predicted level is the true one. Sorting and the structure
    of the pairs are worked out once: all pairs of 6,736 rows in 1,000 resamples take a few seconds.
    """
    t, p = as_columns(truth, prediction)
    levels, right = as_columns(true_levels, level_is_right)
    truth_groups, prediction_groups = Groups(t), Groups(p)
    means = np.stack([np.abs(p - t), p - t, right])
    parts = []
    for weight in weights:
        part = correlations(truth_groups, prediction_groups, weight)
        part |= zip(("mae", "bias", "level_accuracy"), np.einsum("kn,nb->kb", means, weight) / len(t), strict=True)
        parts.append(part)
    figures = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return figures | pair_shares(truth_groups, prediction_groups, Groups(levels), weights)


def paired_differences(
    truth: ArrayLike,
    judges: Mapping[str, ArrayLike],
    true_levels: ArrayLike,
    pairs: Sequence[tuple[str, str]],
    taxonomy: Taxonomy | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
    done: Callable[[], object] = lambda: None,
) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Whether judges of the same images differ: pair -> figure -> ``difference``, ``ci`` and ``p``.

    ``difference`` is the figure of a pair's first judge minus that of its second. All are computed on the same
    resampled images, so what makes an image hard for both cancels. ``ci`` is the 95% percentile interval, ``p``
    two-sided. None where a figure is undefined; no interval where all resamples say the same.

    Args:
        truth, true_levels: (N,), only images that all judges have scored.
        judges: name -> (N,) scores; those in none of the ``pairs`` are left alone.
        done: called after each judge, for a progress bar.
    """
    t, levels = as_columns(truth, true_levels)
    weights = resample(len(t), resamples, seed)
    figures, resampled = {}, {}
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        _, prediction = as_columns(truth, judges[name])
        predicted_levels = levels_of(prediction, taxonomy)
        figures[name] = _figures(t, prediction, levels, predicted_levels)
        if weights:
            resampled[name] = bootstrap(t, prediction, levels, levels == predicted_levels, weights)
        done()
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for first, second in pairs:
        found[first, second] = rows = {}
        for figure, value in figures[first].items():
            other = figures[second][figure]
            rows[figure] = dict.fromkeys(("difference", "ci", "p"))
            if value is not None and other is not None:
                rows[figure]["difference"] = value - other
                if weights:
                    differences = resampled[first][figure] - resampled[second][figure]
                    rows[figure] |= {"ci": interval(differences), "p": p_value(differences)}
    return found


def _figures(
    truth: Floats, prediction: Floats, true_levels: ArrayLike, predicted_levels: ArrayLike
) -> dict[str, float | None]:
    return {
        "pearson": pearson(truth, prediction),
        "spearman": spearman(truth, prediction),
        "mae": mae(truth, prediction),
        "bias": bias(truth, prediction),
        "level_accuracy": level_accuracy(true_levels, predicted_levels),
        **pairwise_accuracy(truth, prediction, true_levels),
    }


# --- From rows to metrics.json -----------------------------------------------------------------------------------


def evaluate(
    labels: Iterable[tuple[str, int, float]],
    predictions: Iterable[tuple[str, str, float | None]],
    taxonomy: Taxonomy | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Figures:
    """The figures of predictions against labels.

    Args:
        labels: (id, level, score) a row, as read (``cprt.records``); the level comes from counts, not from the score.
        predictions: (id, status, score) a row, likewise; the score is None unless the status is "ok".
        resamples: bootstrap resamples; 0 leaves ``ci`` empty of all but coverage. Cost grows as n log n each.

    Intervals are 95% percentile bootstraps over the rows with a score; resamples in which a figure is undefined are
    left out and counted in ``ci_method``, and beyond 5% of them there is no interval. Those of coverage and level
    accuracy, which are shares of rows, are Wilson's.

    Raises InputError on an id that has no label.
    """
    truth_by_id = {key: (level, score) for key, level, score in labels}
    rows = list(predictions)
    unknown = next((key for key, _, _ in rows if key not in truth_by_id), None)
    if unknown is not None:
        raise InputError(f"prediction id {unknown!r} has no label")
    statuses = Counter(status for _, status, _ in rows)
    scores = {key: score for key, _, score in rows if score is not None}
    n, covered = len(truth_by_id), [key for key in truth_by_id if key in scores]
    true_levels = np.asarray([truth_by_id[key][0] for key in covered], dtype=np.int64)
    truth = np.asarray([truth_by_id[key][1] for key in covered], dtype=np.float64)
    prediction = np.asarray([scores[key] for key in covered], dtype=np.float64)
    predicted_levels = levels_of(prediction, taxonomy)

    figures: dict[str, Any] = _figures(truth, prediction, true_levels, predicted_levels)
    pairs = sample_pairs(truth, SAMPLED_PAIRS, seed)
    once = sampled_shares(truth, prediction, true_levels, pairs, [np.ones((len(covered), 1))])
    sampled: dict[str, Any] = {name: defined(share[0]) for name, share in once.items()}
    cells = confusion(true_levels, predicted_levels)
    intervals: dict[str, list[float] | None] = {"coverage": wilson_interval(len(covered), n)}
    sampled_intervals: dict[str, list[float] | None] = {}
    cell_intervals: list[list[list[float] | None]] | None = None
    undefined: dict[str, int] = {}
    # A judge that does not see differences within a level puts half of the pairs that it tells apart in their order.
    chance: dict[str, Any] = {"figure": "intra_level_accuracy_no_ties", "accuracy": 0.5, "p": None}
    if resamples and covered:
        weights = resample(len(covered), resamples, seed)
        level_is_right = true_levels == predicted_levels
        for name, values in bootstrap(truth, prediction, true_levels, level_is_right, weights).items():
            intervals[name] = None if figures[name] is None else interval(values)
            undefined[name] = int(np.isnan(values).sum())
            if name == "intra_level_accuracy_no_ties" and figures[name] is not None:
                chance["p"] = p_value(values - chance["accuracy"])
        for name, values in sampled_shares(truth, prediction, true_levels, pairs, weights).items():
            sampled_intervals[name] = None if sampled[name] is None else interval(values)
        share = figures["level_accuracy"]
        intervals["level_accuracy"] = None if share is None else wilson_interval(share * len(covered), len(covered))
        one_hot = np.eye(16)[(true_levels - 1) * 4 + predicted_levels - 1].T  # (16, N)
        counts = weights.each(lambda weight: one_hot @ weight)
        cell_intervals = [[interval(row) for row in level] for level in counts.reshape(4, 4, -1)]
    return Figures(
        n=n,
        coverage=len(covered) / n if n else None,
        **figures,
        status_counts={status: statuses[status] for status in STATUSES} | {"missing": n - sum(statuses.values())},
        confusion=cells.tolist(),
        confusion_ci=cell_intervals,
        sampled_pairs={"pairs": len(pairs), "seed": seed, **sampled, "ci": sampled_intervals},
        intra_level_against_chance=chance,
        ci=intervals,
        ci_method={
            "confidence": CONFIDENCE,
            "bootstrap": "percentile, over rows with a score",
            "coverage, level_accuracy": "Wilson",
            "resamples": resamples,
            "seed": seed,
            "undefined_resamples": {name: count for name, count in undefined.items() if count},
        },
    )
