"""What a judge's own uncertainty is worth: whether its bands hold the truth, how it errs where it is most certain."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cprt.metrics.bootstrap import Floats, divide, interval, resample, wilson_interval

COVERAGES = tuple(tenths / 10 for tenths in range(1, 11))
_ROUNDING = 1e-9  # of a band's ends


def evaluate_certainty(
    truth: ArrayLike,
    scores: ArrayLike,
    uncertainty: ArrayLike,
    bands: ArrayLike,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Bands (N, 2) and the risk-coverage curve of (N,) scores, from (N,) ``uncertainty``.

    Returns a dict: ``n``; ``band`` with the share that ``holds`` the truth, its ``ci`` and the mean ``width``;
    ``risk_coverage``: for each coverage the mean absolute error (``mae``, with ``ci``) over that share of the photos,
    the most certain ones, the others being left to a person; ``area`` under this curve over all N coverages (AURC),
    beside that ``at_random`` and the ``least`` of an order by the errors themselves (Geifman and El-Yaniv, 2017). Of
    photos equally uncertain, as many as a coverage needs count in equal parts.
    """
    t, p, u, b = (np.asarray(values, dtype=np.float64) for values in (truth, scores, uncertainty, bands))
    n, errors = len(t), np.abs(p - t)
    _, group, sizes = np.unique(u, return_inverse=True, return_counts=True)  # the most certain first
    before = np.cumsum(sizes) - sizes
    weights = resample(n, resamples, seed)
    curve = []
    for coverage in COVERAGES:
        count = max(1, round(coverage * n))
        share = np.clip((count - before) / sizes, 0, 1)[group]
        ci = interval(weights.each(partial(_mean, errors, share))) if weights else None
        curve.append({"coverage": coverage, "mae": float(share @ errors / count), "ci": ci})
    return {
        "n": n,
        "band": evaluate_bands(t, b),
        "risk_coverage": curve,
        "area": _area(np.repeat(np.bincount(group, weights=errors) / sizes, sizes)),
        "at_random": float(errors.mean()),
        "least": _area(np.sort(errors)),
    }


def evaluate_bands(truth: ArrayLike, bands: ArrayLike) -> dict[str, Any]:
    """The share of (N, 2) bands that ``holds`` the truth, its ``ci``, and the mean ``width``."""
    t, b = np.asarray(truth, dtype=np.float64), np.asarray(bands, dtype=np.float64)
    holds = (b[:, 0] - _ROUNDING <= t) & (t <= b[:, 1] + _ROUNDING)
    ci = wilson_interval(int(holds.sum()), len(t))
    return {"holds": float(holds.mean()), "ci": ci, "width": float((b[:, 1] - b[:, 0]).mean())}


def _mean(errors: Floats, share: Floats, weights: Floats) -> Floats:
    """(N,) errors, of which (N,) shares count, and (N, B) weights -> (B,) means, NaN where nothing was drawn."""
    return divide((share * errors) @ weights, share @ weights)


def _area(errors: Floats) -> float:
    """The mean, over all k, of the mean of the first k errors."""
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())
