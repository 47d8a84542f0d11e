"""Intervals and paired tests by drawing rows with replacement.

A resample is how often each row was drawn, so that sorting and counting need be worked out once: all figures are
computed from (N, B) weights, a column for each of B resamples.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CONFIDENCE, _Z = 0.95, 1.959963984540054  # and its two-sided normal quantile
_MOST_UNDEFINED = 0.05
_FEWEST_BEYOND = 10
_CELLS = 400_000  # 59 resamples of 6,736 rows at a time: fits the cache


def resample(n: int, resamples: int, seed: int) -> list[Floats]:
    """Weights of ``resamples`` seeded draws of n rows from n, in chunks of (N, b)."""
    rows = np.random.default_rng(seed).integers(n, size=(resamples, n))
    return weights_of(rows)


def weights_of(rows: Ints) -> list[Floats]:
    """(B, N) drawn indices -> chunks of (N, b) weights."""
    return [draws(chunk) for chunk in np.array_split(rows, max(1, rows.size // _CELLS))]


def draws(rows: Ints) -> Floats:
    """(B, N) indices -> (N, B): how often each row is among them."""
    resamples, n = rows.shape
    cells = rows * resamples + np.arange(resamples)[:, None]
    return np.bincount(cells.ravel(), minlength=n * resamples).reshape(n, resamples).astype(np.float64)


def interval(figures: Floats) -> list[float] | None:
    """95% percentile interval of (B,) figures; None if more than 5% of them are undefined (NaN)."""
    known = figures[~np.isnan(figures)]
    if len(known) < (1 - _MOST_UNDEFINED) * len(figures):
        return None
    tail = 50 * (1 - CONFIDENCE)
    return [float(bound) for bound in np.percentile(known, [tail, 100 - tail])]


def p_value(differences: Floats) -> float | None:
    """Two-sided p of no difference, from (B,) resampled differences; None where ``interval`` is None.

    Twice the smaller share of resamples on one side of 0, ties counted on both, and one resample added so that it is
    never 0 (Davison and Hinkley, 1997, ch. 4). With fewer than ten resamples on that side the share is too coarse for a
    correction over many tests (to resolve p = 1e-5 it would take a million): there p is that of the normal
    approximation, mean over standard deviation of the resamples (ibid., 2.2), where it is the smaller one.
    """
    known = differences[~np.isnan(differences)]
    if len(known) == 0 or len(known) < (1 - _MOST_UNDEFINED) * len(differences):
        return None
    smaller = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    share = float(min(1.0, 2 * (smaller + 1) / (len(known) + 1)))
    spread = float(known.std())
    if smaller >= _FEWEST_BEYOND or spread == 0:
        return share
    normal = math.erfc(abs(float(known.mean())) / spread / math.sqrt(2))
    return max(min(share, normal), sys.float_info.min)


def wilson_interval(successes: int, n: int) -> list[float] | None:
    """95% interval of a share (Wilson, 1927); None if n = 0."""
    if n == 0:
        return None
    share, z2 = successes / n, _Z**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return [max(0.0, centre - half), min(1.0, centre + half)]
