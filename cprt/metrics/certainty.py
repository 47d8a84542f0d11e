"""What a judge's own uncertainty is worth: whether its bands hold the truth, how it errs where it is most certain."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cprt.metrics.bootstrap import Floats, Ints, interval, resample, wilson_interval

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
    the most certain ones, the others being left to a person; ``area`` under this curve over all N coverages, beside
    that ``at_random`` and the ``least`` of an order by the errors themselves (Geifman and El-Yaniv, 2017).
    """
    t, p, u, b = (np.asarray(values, dtype=np.float64) for values in (truth, scores, uncertainty, bands))
    n, errors = len(t), np.abs(p - t)
    order = np.argsort(u, kind="stable")
    weights = resample(n, resamples, seed)
    curve = []
    for coverage in COVERAGES:
        chosen = order[: max(1, round(coverage * n))]
        drawn = weights.each(partial(_mean, errors, chosen)) if weights else None
        ci = None if drawn is None else interval(drawn)
        curve.append({"coverage": coverage, "mae": float(errors[chosen].mean()), "ci": ci})
    return {
        "n": n,
        "band": evaluate_bands(t, b),
        "risk_coverage": curve,
        "area": _area(errors[order]),
        "at_random": float(errors.mean()),
        "least": _area(np.sort(errors)),
    }


def evaluate_bands(truth: ArrayLike, bands: ArrayLike) -> dict[str, Any]:
    """The share of (N, 2) bands that ``holds`` the truth, its ``ci``, and the mean ``width``."""
    t, b = np.asarray(truth, dtype=np.float64), np.asarray(bands, dtype=np.float64)
    holds = (b[:, 0] - _ROUNDING <= t) & (t <= b[:, 1] + _ROUNDING)
    ci = wilson_interval(int(holds.sum()), len(t))
    return {"holds": float(holds.mean()), "ci": ci, "width": float((b[:, 1] - b[:, 0]).mean())}


def _mean(errors: Floats, chosen: Ints, weights: Floats) -> Floats:
    """(N,) errors and (N, B) weights, of which some rows are chosen -> (B,) means, NaN where nothing was drawn."""
    total = weights[chosen].sum(axis=0)
    return np.divide(errors[chosen] @ weights[chosen], total, out=np.full(len(total), np.nan), where=total > 0)


def _area(errors: Floats) -> float:
    """The mean, over all k, of the mean of the first k errors."""
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())
