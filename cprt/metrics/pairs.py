"""Pairwise accuracy: how often a prediction puts two images in their true order, counted exactly in O(n log n).

The paper scores "curated" pairs (4.2), about which it says no more. Here every pair of images with different true
scores counts, and beside it a seeded sample of such pairs, as a curated set is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cprt.metrics.bootstrap import Floats, Ints, defined, divide


def pairwise_accuracy(truth: ArrayLike, prediction: ArrayLike, true_levels: ArrayLike) -> dict[str, float | None]:
    """Shares of image pairs that the prediction puts in the true order; None where there is no such pair.

    ``pairwise_accuracy`` is over all pairs with different true scores, ``inter_level_accuracy`` and
    ``intra_level_accuracy`` over those between and within true levels. A tie in prediction is wrong; ``*_no_ties``
    leave tied pairs out. Exact, O(n log n): a million rows take two to four seconds on one core.

    ``true_levels`` are (N,), from the labels (never from scores). Raises ValueError unless all are (N,) and finite.
    """
    t, p = as_columns(truth, prediction)
    levels, _ = as_columns(true_levels, truth)
    shares = pair_shares(Groups(t), Groups(p), Groups(levels), [np.ones((len(t), 1))])
    return {name: defined(share[0]) for name, share in shares.items()}


def sample_pairs(truth: ArrayLike, pairs: int, seed: int) -> Ints:
    """(pairs, 2) rows drawn with replacement, each pair with different true scores; (0, 2) where there is none.

    The first is drawn in proportion to how many rows differ from it, the second evenly among those.
    """
    groups = Groups(np.asarray(truth, dtype=np.float64))
    n, sizes = len(groups.values), np.diff(groups.bounds)
    if groups.size < 2:
        return np.zeros((0, 2), dtype=np.int64)
    rng = np.random.default_rng(seed)
    partners = np.repeat(n - sizes, sizes).astype(np.float64)  # of each row in sorted order
    first = rng.choice(n, size=pairs, p=partners / partners.sum())
    group = groups.group[groups.order[first]]
    second = np.floor(rng.random(pairs) * (n - sizes[group])).astype(np.int64)
    second += np.where(second >= groups.bounds[group], sizes[group], 0)  # step over the rows with the same score
    return np.stack([groups.order[first], groups.order[second]], axis=1).astype(np.int64)


def sampled_shares(
    truth: ArrayLike, prediction: ArrayLike, true_levels: ArrayLike, pairs: Ints, chunks: Iterable[Floats]
) -> dict[str, Floats]:
    """The figures of ``pairwise_accuracy`` over ``pairs`` (P, 2): (B,), NaN where there is none.

    A pair counts as often as both of its rows were drawn.
    """
    t, p = as_columns(truth, prediction)
    levels, _ = as_columns(true_levels, truth)
    first, second = pairs.T
    right = (t[first] - t[second]) * (p[first] - p[second]) > 0
    tied, within = p[first] == p[second], levels[first] == levels[second]
    kinds = {"pairwise": np.ones(len(pairs), dtype=bool), "inter_level": ~within, "intra_level": within}
    masks = np.stack([part for kind in kinds.values() for part in (kind, kind & right, kind & tied)]).astype(np.float64)
    counts = np.concatenate(
        [masks @ (weights.take(first, axis=0) * weights.take(second, axis=0)) for weights in chunks], axis=1
    )
    return _shares(dict(zip(kinds, counts.reshape(3, 3, -1), strict=True)))


def as_columns(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"need two arrays of one shape (N,), not {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("need finite numbers")
    return a, b


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


class Groups:
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
    return np.asarray(np.diff(running.take(bounds, axis=0), axis=0))


def _square(values: Floats) -> Floats:
    return np.asarray(np.einsum("nb,nb->b", values, values))


def pair_shares(truth: Groups, prediction: Groups, levels: Groups, chunks: Iterable[Floats]) -> dict[str, Floats]:
    """The figures of ``pairwise_accuracy`` as (B,) over all chunks' resamples, NaN where there is no pair."""
    # Each (3, B): pairs with different true scores; of these, in the true order; tied in prediction.
    everyone = np.zeros(len(truth.group), dtype=np.int64)
    overall, within = (_count_pairs(truth, prediction, strata, chunks) for strata in (everyone, levels.group))
    return _shares({"pairwise": overall, "inter_level": overall - within, "intra_level": within})


def _shares(counts: dict[str, Floats]) -> dict[str, Floats]:
    """Kind -> (3, B) numbers of pairs, of those in the true order, of those tied -> the figures by name."""
    shares = {}
    for name, (pairs, right, tied) in counts.items():
        shares[f"{name}_accuracy"] = divide(right, pairs)
        shares[f"{name}_accuracy_no_ties"] = divide(right, pairs - tied)
    return shares


def _count_pairs(truth: Groups, prediction: Groups, stratum: Ints, chunks: Iterable[Floats]) -> Floats:
    """(3, B) counts of pairs within strata (see pair_shares). Exact: whole numbers below 2**53."""
    # Sorted by stratum, truth and falling prediction (one whole number for the three), a pair is in the true order
    # exactly if its later row has the greater prediction.
    falling = prediction.size - 1 - prediction.group
    order = np.argsort((stratum * truth.size + truth.group) * prediction.size + falling)
    sorted_columns = stratum[order], truth.group[order], prediction.group[order]
    strata, same_truth, same_both = (_bounds(*sorted_columns[:columns]) for columns in (1, 2, 3))
    same_prediction = Groups(stratum * prediction.size + prediction.group)
    splits = list(_splits(sorted_columns[0], sorted_columns[2]))
    counts = []
    for weights in chunks:
        ordered, right = weights.take(order, axis=0), np.zeros(weights.shape[1])
        for low, high, first, before in splits:
            below = _running_sum(ordered.take(low, axis=0))
            earlier = below.take(before, axis=0) - below.take(first, axis=0)
            right += np.einsum("nb,nb->b", ordered.take(high, axis=0), earlier)
        # The square of a run's weight is twice its pairs, and its rows paired with themselves. The latter cancel: a row
        # drawn twice has one true score, so it makes no pair.
        running = _running_sum(ordered)
        everything, truth_ties, both_ties = (
            _square(_run_sums(running, bounds)) for bounds in (strata, same_truth, same_both)
        )
        ties = _square(same_prediction.sums(weights))
        counts.append(np.stack([(everything - truth_ties) / 2, right, (ties - both_ties) / 2]))
    return np.concatenate(counts, axis=1)


def _splits(stratum: Ints, rank: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Finds all pairs within a stratum whose later row has the greater rank: each differs in one highest bit.

    (N,) strata, rising, and ranks. For every bit, rows lie stably partitioned by the bits above. Yields the rows with
    the bit unset, those with it set, and for each of these the range [first, before) of the former in its part.
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
