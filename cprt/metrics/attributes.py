"""How well a judge sees the attributes that it names: precision, recall and F1 of each, with intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from cprt.metrics.bootstrap import Floats, interval, resample
from cprt.taxonomy import Taxonomy

FIGURES = ("precision", "recall", "f1")


def evaluate_attributes(
    truth: Mapping[str, Collection[str]],
    named: Mapping[str, Collection[str]],
    taxonomy: Taxonomy | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Attributes named against attributes present, over the images that are in both.

    Args:
        truth, named: id -> keys of the attributes that are present, or that the judge names.

    Returns a dict: ``n`` images in ``truth``, ``coverage``, ``per_attribute`` (key -> ``support``, precision, recall,
    F1 and their ``ci``), ``micro`` (over all attributes' counts) and ``macro`` (the mean over the attributes where the
    figure is defined). What is undefined (the precision of what is never named) is None, and left out of the means.
    """
    taxonomy = taxonomy or Taxonomy.default()
    ids = [id for id in truth if id in named]
    present, said = (
        np.asarray([[key in table[id] for key in taxonomy.keys] for id in ids], dtype=np.float64).reshape(
            len(ids), len(taxonomy.keys)
        )
        for table in (truth, named)
    )
    cells = np.stack([present * said, (1 - present) * said, present * (1 - said)])  # (3, N, A): TP, FP, FN
    point = _figures(cells.sum(axis=1)[:, :, None])
    weights = resample(len(ids), resamples, seed) if ids and resamples else []
    resampled = None
    if weights:
        resampled = _figures(np.concatenate([np.einsum("cna,nb->cab", cells, weight) for weight in weights], axis=2))

    def entry(row: int) -> dict[str, Any]:
        figures = {name: _plain(point[name][row, 0]) for name in FIGURES}
        intervals = {
            name: interval(resampled[name][row]) for name in FIGURES if resampled and figures[name] is not None
        }
        return {**figures, "ci": {name: intervals.get(name) for name in FIGURES} if resampled else {}}

    support = present.sum(axis=0)
    return {
        "n": len(truth),
        "coverage": len(ids) / len(truth) if truth else None,
        "per_attribute": {key: {"support": int(support[row]), **entry(row)} for row, key in enumerate(taxonomy.keys)},
        "micro": entry(len(taxonomy.keys)),
        "macro": entry(len(taxonomy.keys) + 1),
    }


def _figures(counts: Floats) -> dict[str, Floats]:
    """(3, A, B) counts of TP, FP and FN -> name -> (A + 2, B): each attribute, micro, macro; NaN where undefined."""
    counts = np.concatenate([counts, counts.sum(axis=1, keepdims=True)], axis=1)
    right, wrong, missed = counts
    found = {}
    with np.errstate(invalid="ignore"):
        rows = (right / (right + wrong), right / (right + missed), 2 * right / (2 * right + wrong + missed))
    for name, row in zip(FIGURES, rows, strict=True):
        known = ~np.isnan(row[:-1])
        with np.errstate(invalid="ignore"):
            macro = np.where(known, row[:-1], 0.0).sum(axis=0) / known.sum(axis=0)
        found[name] = np.concatenate([row, macro[None]])
    return found


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
