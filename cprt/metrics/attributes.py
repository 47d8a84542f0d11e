"""How well a judge sees the attributes that it names: precision, recall and F1 of each, what its errors cost, and how
good its probabilities are, with intervals.

Shapes: N images, A attributes, B resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cprt.metrics.bootstrap import ClusteredShare, Floats, Weights, defined, divide, interval, resample, wilson_interval
from cprt.scoring import severities
from cprt.taxonomy import Taxonomy

FIGURES = ("precision", "recall", "f1")
_BESIDE = {"precision": 1, "recall": 2}  # what is counted beside TP: the row of the counts below
BINS = 10  # of the reliability of probabilities


def evaluate_attributes(
    truth: Mapping[str, Collection[str]],
    named: Mapping[str, Collection[str]],
    taxonomy: Taxonomy | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Attributes that the judge has ``named`` against those present, id -> keys, over the images that are in both.

    Returns a dict: ``n`` images in ``truth``, ``coverage``, ``per_attribute`` (key -> ``support``, precision, recall,
    F1 and their ``ci``), ``micro`` (over all attributes' counts) and ``macro`` (the mean where defined), ``levels``
    (over the counts of a level's attributes), and ``costs``: key -> how much the composed severity would rise, on the
    mean over all images, were it not ``missed``, and fall, were it not ``invented``, with ``costliest`` as the one
    error that costs most. What is undefined (the precision of what is never named) is None.

    Intervals of precision and recall are Wilson's, of counts over several attributes at the number of independent ones
    that they are worth (attributes of one image are not independent): with the bootstrap's, 3 of 3 would be certain.
    Those of F1, macro means and costs are bootstraps, None where all resamples say the same.
    """
    taxonomy = taxonomy or Taxonomy.default()
    ids = [id for id in truth if id in named]
    present = _table(ids, lambda id, key: key in truth[id], taxonomy)
    said = _table(ids, lambda id, key: key in named[id], taxonomy)
    cells = np.stack([present * said, (1 - present) * said, present * (1 - said)])  # (3, N, A): TP, FP, FN
    members = _members(taxonomy)
    point = _figures(cells.sum(axis=1)[:, :, None], members)
    weights = resample(len(ids), resamples, seed)
    resampled = None
    if weights:
        resampled = _figures(weights.each(lambda weight: np.einsum("cna,nb->cab", cells, weight)), members)

    every = list(range(len(taxonomy.keys)))
    pooled = [*([column] for column in every), *members.values(), every]

    def bounds(name: str, row: int) -> list[float] | None:
        if name not in _BESIDE or row == len(pooled):  # F1 is no share, macro no share of counts
            return interval(resampled[name][row]) if resampled else None
        right, wrong = (cells[cell][:, pooled[row]].sum(axis=1) for cell in (0, _BESIDE[name]))
        if row < len(every):
            return wilson_interval(right.sum(), (right + wrong).sum())
        return ClusteredShare.of(right, right + wrong).interval

    def entry(row: int) -> dict[str, Any]:
        figures = {name: defined(point[name][row, 0]) for name in FIGURES}
        known = {name: None if figure is None else bounds(name, row) for name, figure in figures.items()}
        return {**figures, "ci": known if resampled else {}}

    support = present.sum(axis=0)
    return {
        "n": len(truth),
        "coverage": len(ids) / len(truth) if truth else None,
        "per_attribute": {key: {"support": int(support[row]), **entry(row)} for row, key in enumerate(taxonomy.keys)},
        "micro": entry(len(taxonomy.keys) + len(members)),
        "macro": entry(len(taxonomy.keys) + len(members) + 1),
        "levels": {str(level): entry(len(taxonomy.keys) + row) for row, level in enumerate(members)},
        **_costs(present, said, weights, taxonomy),
    }


def _table(ids: Sequence[str], of: Callable[[str, str], float], taxonomy: Taxonomy) -> Floats:
    """(N, A): what ``of`` says of each image's id and each attribute's key."""
    rows = [[of(id, key) for key in taxonomy.keys] for id in ids]
    return np.asarray(rows, dtype=np.float64).reshape(len(ids), len(taxonomy.keys))


def _members(taxonomy: Taxonomy) -> dict[int, list[int]]:
    """Level -> columns of its attributes, for levels that have any."""
    found: dict[int, list[int]] = {}
    for column, attribute in enumerate(taxonomy.attributes):
        found.setdefault(attribute.level, []).append(column)
    return dict(sorted(found.items()))


def _figures(counts: Floats, members: Mapping[int, list[int]]) -> dict[str, Floats]:
    """(3, A, B) counts of TP, FP and FN -> name -> (A + levels + 2, B): each attribute, each level's counts, micro,
    macro; NaN where undefined.
    """
    attributes = counts.shape[1]
    of_levels = [counts[:, columns].sum(axis=1, keepdims=True) for columns in members.values()]
    right, wrong, missed = np.concatenate([counts, *of_levels, counts.sum(axis=1, keepdims=True)], axis=1)
    found = {}
    f1 = divide(2 * right, 2 * right + wrong + missed)
    rows = (divide(right, right + wrong), divide(right, right + missed), f1)
    for name, row in zip(FIGURES, rows, strict=True):
        known = ~np.isnan(row[:attributes])
        macro = divide(np.where(known, row[:attributes], 0.0).sum(axis=0), known.sum(axis=0))
        found[name] = np.concatenate([row, macro[None]])
    return found


def _costs(present: Floats, said: Floats, weights: Weights, taxonomy: Taxonomy) -> dict[str, Any]:
    """``costs`` and ``costliest``; nothing where there is no image."""
    if not len(said):
        return {}
    now = severities(said, taxonomy)[1]
    costs: dict[str, dict[str, Any]] = {}
    for column, key in enumerate(taxonomy.keys):
        other = said.copy()
        other[:, column] = present[:, column]
        change = severities(other, taxonomy)[1] - now  # 0 where this attribute is right
        costs[key] = {"ci": {}}
        for error, of_image in (("missed", np.maximum(change, 0.0)), ("invented", np.maximum(-change, 0.0))):
            costs[key][error] = float(of_image.mean())
            if weights:
                drawn = weights.each(partial(np.matmul, of_image)) / len(of_image)
                costs[key]["ci"][error] = interval(drawn)
    key, error = max(
        ((key, error) for key in costs for error in ("missed", "invented")), key=lambda one: costs[one[0]][one[1]]
    )
    return {"costs": costs, "costliest": {"attribute": key, "error": error, "cost": costs[key][error]}}


# --- Probabilities -----------------------------------------------------------------------------------------------


def evaluate_probabilities(
    truth: Mapping[str, Collection[str]],
    probabilities: Mapping[str, Mapping[str, float]],
    taxonomy: Taxonomy | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """How well probabilities (id -> key -> probability) tell present from absent, over the images that are in both.

    Returns a dict: ``n``, ``coverage``, then under ``per_attribute``, ``levels`` and ``all`` (the pairs of image and
    attribute together) ``auc`` (the area under the ROC curve), ``average_precision`` (the mean precision over the
    recalls reached), ``brier`` (the mean squared error of the probability) and their ``ci``; None where undefined, an
    interval also where all resamples say the same.
    ``reliability``: for each tenth of [0, 1] its pairs ``n``, their ``mean_probability`` and the share ``present``.
    """
    taxonomy = taxonomy or Taxonomy.default()
    ids = [id for id in truth if id in probabilities]
    present = _table(ids, lambda id, key: key in truth[id], taxonomy)
    said = _table(ids, lambda id, key: probabilities[id].get(key, 0.0), taxonomy)
    weights = resample(len(ids), resamples, seed)

    def entry(columns: list[int]) -> dict[str, Any]:
        rows = np.repeat(np.arange(len(ids)), len(columns))
        values, is_there = said[:, columns].ravel(), present[:, columns].ravel()
        point = _ranking(values, is_there, np.ones((len(values), 1)))
        figures: dict[str, Any] = {name: defined(value[0]) for name, value in point.items()}
        if weights:
            parts = [_ranking(values, is_there, weight[rows]) for weight in weights]
            drawn = {name: np.concatenate([part[name] for part in parts]) for name in point}
            figures["ci"] = {name: None if figures[name] is None else interval(drawn[name]) for name in point}
        return figures

    places = np.minimum((said * BINS).astype(int), BINS - 1)

    def reliable(place: int) -> dict[str, Any]:
        inside = places == place
        means = [float(values[inside].mean()) if inside.any() else None for values in (said, present)]
        bounds = [place / BINS, (place + 1) / BINS]
        return {"bin": bounds, "n": int(inside.sum()), "mean_probability": means[0], "present": means[1]}

    return {
        "n": len(truth),
        "coverage": len(ids) / len(truth) if truth else None,
        "per_attribute": {key: entry([column]) for column, key in enumerate(taxonomy.keys)},
        "levels": {str(level): entry(columns) for level, columns in _members(taxonomy).items()},
        "all": entry(list(range(len(taxonomy.keys)))),
        "reliability": [reliable(place) for place in range(BINS)],
    }


def _ranking(values: Floats, is_there: Floats, weights: Floats) -> dict[str, Floats]:
    """(M,) probabilities and 0 or 1, (M, B) weights -> (B,) figures, NaN where undefined."""
    if not len(values):
        return dict.fromkeys(("auc", "average_precision", "brier"), np.full(weights.shape[1], np.nan))
    order = np.argsort(-values, kind="stable")  # the most probable first
    starts = np.flatnonzero(np.concatenate([[True], np.diff(values[order]) != 0]))  # of ties
    there, absent = (
        np.add.reduceat((weights * part[:, None])[order], starts, axis=0) for part in (is_there, 1 - is_there)
    )
    true, false = np.cumsum(there, axis=0), np.cumsum(absent, axis=0)
    auc = divide((there * (false[-1] - false + absent / 2)).sum(axis=0), true[-1] * false[-1])
    precision = np.nan_to_num(divide(true, true + false))
    average = divide((there * precision).sum(axis=0), true[-1])
    average = np.where(false[-1] > 0, average, np.nan)
    brier = (weights * ((values - is_there) ** 2)[:, None]).sum(axis=0) / weights.sum(axis=0)
    return {"auc": auc, "average_precision": average, "brier": brier}
