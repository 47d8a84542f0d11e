"""Intervals and paired tests by drawing rows, or clusters of rows, with replacement.

A resample is how often each row was drawn, so that sorting and counting need be worked out once: all figures are
computed from (N, B) weights, a column for each of B resamples. Paired figures share their weights.

Rows of one cluster (reconstructions of one class) resemble one another: the clusters are what is drawn. With few of
them, or few that matter to a figure, their spread is itself uncertain; such intervals take Student's quantile instead
of the normal one, at the degrees of freedom that the fourth moment of the clusters' influences gives (Satterthwaite).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CONFIDENCE, _Z = 0.95, 1.959963984540054  # and its two-sided normal quantile
_MOST_UNDEFINED = 0.05
_FEWEST_BEYOND = 10
_ROUNDING = 1e-12  # values no further apart, by their size, are one
_CELLS = 400_000  # 59 resamples of 6,736 rows at a time: fits the cache


class Figure(NamedTuple):
    """A figure with its 95% interval; None for what is undefined."""

    value: float | None
    interval: list[float] | None


class Weights:
    """(N, B) weights as chunks of (N, b), over which one can go any number of times; in memory as small integers."""

    def __init__(self, rows: Iterable[Ints]):
        """From (b, N) drawn indices."""
        chunks = (draws(chunk) for chunk in rows)
        self._chunks = [chunk.astype(np.min_scalar_type(int(chunk.max(initial=0)))) for chunk in chunks]

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Floats]:
        return (chunk.astype(np.float64) for chunk in self._chunks)

    def each(self, figure: Callable[[Floats], Floats]) -> Floats:
        """(..., B) of what ``figure`` makes of (N, b) weights; of at least one resample."""
        return np.concatenate([figure(chunk) for chunk in self], axis=-1)


def resample(n: int, resamples: int, seed: int) -> Weights:
    """Weights of ``resamples`` seeded draws of n rows from n; none where there is nothing to draw."""
    rng, chunks = np.random.default_rng(seed), _chunks(n * resamples)
    sizes = map(len, np.array_split(np.arange(resamples), chunks)) if n * resamples else ()
    return Weights(rng.integers(n, size=(size, n)) for size in sizes)  # as if all were drawn at once


def weights_of(rows: Ints) -> Weights:
    """(B, N) drawn indices -> their weights."""
    return Weights(np.array_split(rows, _chunks(rows.size)))


def _chunks(cells: int) -> int:
    return max(1, cells // _CELLS)


def draws(rows: Ints) -> Floats:
    """(B, N) indices -> (N, B): how often each row is among them."""
    resamples, n = rows.shape
    cells = rows * resamples + np.arange(resamples)[:, None]
    return np.bincount(cells.ravel(), minlength=n * resamples).reshape(n, resamples).astype(np.float64)


def defined(figure: ArrayLike) -> float | None:
    """A figure, None for NaN."""
    return None if np.isnan(figure) else float(np.asarray(figure))


def divide(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    """NaN where the denominator is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.asarray(below) != 0, np.asarray(above, dtype=np.float64) / below, np.nan)


def interval(figures: Floats) -> list[float] | None:
    """95% percentile interval of (B,) figures; None if over 5% are undefined, or if they are not ``apart``."""
    return apart(_percentiles(figures, (1 - CONFIDENCE) / 2))


def mean_interval(values: ArrayLike, resamples: int = 1000, seed: int = 0) -> list[float] | None:
    """``interval`` of the mean of (N,) values over resamples of them; None where there are none."""
    v = np.asarray(values, dtype=np.float64)
    weights = resample(len(v), resamples, seed)
    return interval(weights.each(partial(np.matmul, v)) / len(v)) if weights else None


def _percentiles(figures: Floats, tail: float) -> list[float] | None:
    """The percentiles of (B,) figures with the share ``tail`` beyond each; None if over 5% are undefined."""
    known = _known(figures)
    return None if known is None else np.percentile(known, [100 * tail, 100 - 100 * tail]).tolist()


def _known(figures: Floats) -> Floats | None:
    """Those that are defined; None where more than 5% are not."""
    known = figures[~np.isnan(figures)]
    return known if len(known) and len(known) >= (1 - _MOST_UNDEFINED) * len(figures) else None


def p_value(differences: Floats) -> float | None:
    """Two-sided p of no difference, from (B,) resampled differences; None where ``interval`` is None.

    Twice the smaller share of resamples on one side of 0, ties counted on both, and one resample added so that it is
    never 0 (Davison and Hinkley, 1997, ch. 4). With fewer than ten resamples on that side the share is too coarse for a
    correction over many tests: there p is that of the normal approximation, mean over standard deviation of the
    resamples (ibid., 2.2), where it is the smaller one.
    """
    known = _known(differences)
    if known is None:
        return None
    smaller = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    share = float(min(1.0, 2 * (smaller + 1) / (len(known) + 1)))
    spread = float(known.std())
    if smaller >= _FEWEST_BEYOND or spread == 0:
        return share
    normal = math.erfc(abs(float(known.mean())) / spread / math.sqrt(2))
    return max(min(share, normal), sys.float_info.min)


def wilson_interval(successes: float, n: float, quantile: float = _Z) -> list[float] | None:
    """95% interval of a share (Wilson, 1927); None if n = 0. ``quantile`` takes the place of the normal one."""
    if n == 0:
        return None
    share, z2 = successes / n, quantile**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = quantile / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def paired_interval(both: int, first: int, second: int, n: int) -> list[float]:
    """95% interval of the difference of two shares of the same n > 0 rows (Newcombe, 1998, method 10).

    ``both``, ``first``, ``second``: rows that count in both shares, in the first alone, and in the second alone. It
    joins Wilson's of both, so that it is no point even where all rows agree.
    """
    neither = n - both - first - second
    shares = [(both + only) / n for only in (first, second)]
    (low, high), (other_low, other_high) = (wilson_interval(both + only, n) or [0.0, 1.0] for only in (first, second))
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    together = both * neither - first * second
    phi = (max(together - n / 2, 0.0) if together > 0 else together) / math.sqrt(margins) if margins else 0.0

    def off(up: float, down: float) -> float:
        return math.sqrt(max(0.0, up**2 - 2 * phi * up * down + down**2))

    difference = shares[0] - shares[1]
    return [
        difference - off(shares[0] - low, other_high - shares[1]),
        difference + off(high - shares[0], shares[1] - other_low),
    ]


# --- Clusters ----------------------------------------------------------------------------------------------------


def resample_clusters(clusters: int, resamples: int, seed: int | list[int]) -> Floats:
    """(B, K): how often each of K clusters is among K drawn."""
    drawn = np.random.default_rng(seed).integers(clusters, size=(resamples, clusters))
    return np.ascontiguousarray(draws(drawn).T)


def totals(sums: ArrayLike, weights_BK: Floats) -> Floats:
    """(K, ...) sums over each cluster -> (B, ...) sums over each resample, in whole numbers where these are."""
    return np.tensordot(weights_BK, np.asarray(sums, dtype=np.float64), axes=1)


def leave_one_out(sums: ArrayLike) -> Floats:
    """(K, ...) sums over each cluster -> (K, ...) sums over all but each."""
    values = np.asarray(sums, dtype=np.float64)
    return values.sum(axis=0) - values


def jackknife(without_K: Floats) -> tuple[float, float]:
    """(variance, degrees of freedom) of a figure from its values without each of K clusters.

    The jackknife's variance, NaN where the figure is undefined without one of them and for K = 1, and
    2K / (kurtosis - 1) degrees of freedom, at most K - 1: where a few clusters decide, there are few.
    """
    clusters = len(without_K)
    squares = (without_K.mean() - without_K) ** 2 if clusters > 1 else np.full(1, np.nan)
    total = float(squares.sum())
    if not total > clusters * (_ROUNDING * float(np.abs(without_K).max())) ** 2:
        return 0.0 if total >= 0 else total, max(clusters - 1.0, 1.0)
    kurtosis = clusters * float(((squares / total) ** 2).sum())
    freedom = 2 * clusters / (kurtosis - 1) if kurtosis > 1 else math.inf
    return (clusters - 1) / clusters * total, min(max(freedom, 1.0), clusters - 1.0)


def student(freedom: float) -> float:
    """The two-sided 95% quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def cluster_interval(sums: ArrayLike, figure: Callable[[Floats], Floats], weights_BK: Floats) -> list[float] | None:
    """95% interval of ``figure`` of the total of (K, ...) ``sums``, over resamples of the clusters.

    None where the resamples are not ``apart``. ``figure``: (..., any) totals -> (...), NaN where undefined.
    """
    freedom = jackknife(figure(leave_one_out(sums)))[1]
    return apart(widened_interval(figure(totals(sums, weights_BK)), weights_BK.shape[1], freedom))


def cluster_figure(sums: ArrayLike, figure: Callable[[Any], Floats], weights_BK: Floats) -> Figure:
    """``figure`` of the total of (K, ...) ``sums`` with its ``cluster_interval``; neither where it is undefined."""
    value = defined(figure(np.asarray(sums).sum(axis=0)))
    return Figure(value, None if value is None else cluster_interval(sums, figure, weights_BK))


def apart(bounds: list[float] | None) -> list[float] | None:
    """An interval; None for a single point: resamples that all say the same tell nothing of how far off it may be.

    So does one that rounding alone has made wider.
    """
    return None if bounds is None or math.isclose(*bounds, rel_tol=1e-9, abs_tol=1e-12) else bounds


def widened_interval(figures_B: Floats, clusters: int, freedom: float) -> list[float] | None:
    """The percentile interval of figures over resamples of so many clusters, its percentiles moved outwards.

    They go from the normal quantile to Student's times the root of K / (K - 1), which the bootstrap lacks (Hesterberg,
    2015, 3.2). None without resamples, for a single cluster, and where over 5% are undefined.
    """
    if clusters < 2:
        return None
    from scipy.special import ndtr

    return _percentiles(figures_B, float(ndtr(-student(freedom) * math.sqrt(clusters / (clusters - 1)))))


@dataclass(frozen=True)
class ClusteredShare:
    """``part`` of ``whole`` rows in clusters, worth ``effective_n`` independent ones, with so much ``freedom``."""

    part: int
    whole: int
    effective_n: float
    freedom: float

    @staticmethod
    def of(parts_K: ArrayLike, wholes_K: ArrayLike) -> ClusteredShare:
        """From how many, and of how many, in each of K clusters; one with none in it says nothing."""
        parts, wholes = (np.asarray(values, dtype=np.float64) for values in (parts_K, wholes_K))
        parts, wholes = parts[wholes > 0], wholes[wholes > 0]
        part, whole = float(parts.sum()), float(wholes.sum())
        if not whole:
            return ClusteredShare(0, 0, 0.0, 1.0)
        with np.errstate(invalid="ignore"):  # one cluster alone
            variance, freedom = jackknife((part - parts) / (whole - wholes))
        share = part / whole
        # Where all clusters have one share, or one is alone, each counts as one row (Kish).
        effective_n = share * (1 - share) / variance if variance > 0 else whole**2 / float((wholes**2).sum())
        return ClusteredShare(int(part), int(whole), effective_n, freedom)

    @staticmethod
    def of_counts(
        clusters: Iterable[Mapping[Any, int]], part: Collection[Any], whole: Collection[Any]
    ) -> ClusteredShare:
        """Of the rows that have one of the labels ``whole``, those with one of ``part``; label -> rows of a cluster."""
        counts = [[sum(of.get(label, 0) for label in labels) for labels in (part, whole)] for of in clusters]
        return ClusteredShare.of(*np.asarray(counts, dtype=np.int64).reshape(-1, 2).T)

    @staticmethod
    def of_rows(rows: Iterable[tuple[Hashable, Any]], part: Collection[Any], whole: Collection[Any]) -> ClusteredShare:
        """As ``of_counts``, from the cluster and the label of every row."""
        clusters: dict[Hashable, Counter[Any]] = {}
        for cluster, label in rows:
            clusters.setdefault(cluster, Counter())[label] += 1
        return ClusteredShare.of_counts(clusters.values(), part, whole)

    @property
    def share(self) -> float | None:
        return self.part / self.whole if self.whole else None

    @property
    def figure(self) -> Figure:
        """The share with its interval."""
        return Figure(self.share, self.interval)

    @property
    def design_effect(self) -> float | None:
        """How many times as large the variance is as that of independent rows."""
        return self.whole / self.effective_n if self.whole else None

    @property
    def interval(self) -> list[float] | None:
        """Wilson's 95% interval of ``effective_n`` rows, with Student's quantile."""
        if not self.whole:
            return None
        return wilson_interval(self.part / self.whole * self.effective_n, self.effective_n, student(self.freedom))
