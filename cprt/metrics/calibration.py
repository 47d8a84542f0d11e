"""Calibration of scores, learnt on hold-out images only: a straight line, and the best rising step function.

A judge may rank images well and still say numbers that are too low for all. Neither map changes the order of two
scores (an affine slope below 0 apart), so ranking figures stay nearly the same; error and level accuracy change.
"""

from __future__ import annotations

from collections.abc import Callable
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


CALIBRATIONS: dict[str, Callable[[ArrayLike, ArrayLike], Affine | Isotonic]] = {
    "affine": Affine.fit,
    "isotonic": Isotonic.fit,
}


def _columns(scores: ArrayLike, truth: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise ValueError(f"need two arrays of one shape (N,) with N > 0, not {x.shape} and {y.shape}")
    return x, y
