"""Calibration of scores, learnt on hold-out images only: a line, the best rising map, and a strictly rising one.

A judge may rank images well and still say numbers that are too low for all. A straight line with a positive slope keeps
the order of all scores but those that it pushes out of [0, 1]. Isotonic regression is level over stretches where the
hold-out shows no rise: scores there become ties, and pairwise accuracy counts ties as wrong: a few
hundredths on a noisy judge. The strictly rising map keeps a hundredth of the score itself, and so every order.

A judge's own bands promise nothing; widened by what the hold-out shows, they hold the truth as often as they say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cprt.metrics.bootstrap import Floats


@dataclass(frozen=True)
class Affine:
    """score -> slope * score + intercept, kept in [0, 1]. A constant hold-out prediction gives slope 0."""

    slope: float
    intercept: float

    def __call__(self, scores: ArrayLike) -> Floats:
        return np.asarray(np.clip(self.slope * np.asarray(scores, dtype=np.float64) + self.intercept, 0.0, 1.0))

    @staticmethod
    def fit(scores: ArrayLike, truth: ArrayLike) -> Affine:
        """Least squares over (N,) hold-out scores and true scores. Raises ValueError if N = 0."""
        x, y = _columns(scores, truth)
        spread = x - x.mean()
        slope = float(spread @ (y - y.mean()) / (spread @ spread)) if np.ptp(x) > 0 else 0.0
        return Affine(slope, float(y.mean() - slope * x.mean()))

    def record(self) -> dict[str, Any]:
        return {"slope": self.slope, "intercept": self.intercept}


@dataclass(frozen=True)
class Isotonic:
    """Rising through the points (x, y), straight between them, level beyond the first and last."""

    x: Floats
    y: Floats

    def __call__(self, scores: ArrayLike) -> Floats:
        return np.asarray(np.clip(np.interp(np.asarray(scores, dtype=np.float64), self.x, self.y), 0.0, 1.0))

    @staticmethod
    def fit(scores: ArrayLike, truth: ArrayLike) -> Isotonic:
        """Isotonic regression (pool adjacent violators), equal scores taken together. Raises ValueError if N = 0."""
        from scipy.optimize import isotonic_regression

        x, y = _columns(scores, truth)
        points, place, counts = np.unique(x, return_inverse=True, return_counts=True)
        means = np.bincount(place, weights=y) / counts
        return Isotonic(points, np.asarray(isotonic_regression(means, weights=counts).x))

    def record(self) -> dict[str, Any]:
        return {"points": len(self.x), "steps": len(np.unique(self.y))}


@dataclass(frozen=True)
class Rising:
    """``KEPT`` of the score itself and the rest of its isotonic map: no two scores become one."""

    isotonic: Isotonic

    KEPT = 0.01

    def __call__(self, scores: ArrayLike) -> Floats:
        x = np.clip(np.asarray(scores, dtype=np.float64), 0.0, 1.0)
        return np.asarray((1 - self.KEPT) * self.isotonic(x) + self.KEPT * x)

    @staticmethod
    def fit(scores: ArrayLike, truth: ArrayLike) -> Rising:
        return Rising(Isotonic.fit(scores, truth))

    def record(self) -> dict[str, Any]:
        return self.isotonic.record() | {"of_the_score_itself": self.KEPT}


Calibration = Affine | Isotonic | Rising
Fit = Callable[[ArrayLike, ArrayLike], Calibration]
CALIBRATIONS: dict[str, Fit] = {"affine": Affine.fit, "isotonic": Isotonic.fit, "rising": Rising.fit}


def refits(
    fit: Fit, held_scores: ArrayLike, held_truth: ArrayLike, scores: ArrayLike, resamples: int, seed: int
) -> Iterator[Floats]:
    """(N,) calibrated scores under each of ``resamples`` fits to hold-out rows drawn with replacement.

    An interval that takes the fit as given is too narrow: a hold-out is small.
    """
    x, y = _columns(held_scores, held_truth)
    rng = np.random.default_rng([seed, len(x)])
    for _ in range(resamples):
        drawn = rng.integers(len(x), size=len(x))
        yield fit(x[drawn], y[drawn])(scores)


def band_margin(bands: ArrayLike, truth: ArrayLike, share: float) -> float | None:
    """By how much to move both ends of the hold-out's (N, 2) bands outwards to hold a ``share`` of the truth.

    Conformalised quantile regression (Romano, Patterson and Candès, 2019, theorem 1): on average over photos drawn as
    the hold-out's were, not for each level or photo. Below 0 where bands are wider than they need be; None where the
    hold-out is too small to promise anything.
    """
    b, y = np.asarray(bands, dtype=np.float64).reshape(-1, 2), np.asarray(truth, dtype=np.float64)
    outside = np.sort(np.maximum(b[:, 0] - y, y - b[:, 1]))
    rank = math.ceil(round((len(y) + 1) * share, 9))
    return float(outside[rank - 1]) if rank <= len(y) else None


def widened(bands: ArrayLike, margin: float) -> Floats:
    """(N, 2) bands with both ends moved outwards by ``margin``, within [0, 1]; what vanishes is its own middle."""
    b = np.asarray(bands, dtype=np.float64).reshape(-1, 2)
    moved = b + np.array([-margin, margin])
    gone = moved[:, 0] > moved[:, 1]
    moved[gone] = b[gone].mean(axis=1, keepdims=True)
    return np.asarray(np.clip(moved, 0.0, 1.0))


def _columns(scores: ArrayLike, truth: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise ValueError(f"need two arrays of one shape (N,) with N > 0, not {x.shape} and {y.shape}")
    return x, y
