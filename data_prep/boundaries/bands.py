"""Bands from an embedding by inverse distance weighting (paper A.2), and how far they depend on what was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm import tqdm

from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.boundaries.embedding import embed, train
from data_prep.boundaries.options import NEIGHBOURS, BoundariesArguments
from data_prep.boundaries.vectors import Floats, Vectors

_BLOCK = 256  # rows of the distance matrix held at once: 14 MB of 6,736 columns


def interpolate(embeddings: Floats, vectors: Vectors, args: BoundariesArguments) -> Floats:
    """(U,) interpolated severities, as the options say."""
    return idw(embeddings, vectors, args.epsilon, args.power, args.neighbours)


def idw(
    embeddings: Floats, vectors: Vectors, epsilon: float, power: float = 2.0, neighbours: str = "distinct"
) -> Floats:
    """(U,) interpolated severity of a row with each vector (Eq. 5), over all rows that count as its neighbours.

    See ``options.py`` for ``neighbours``. Takes O(U * block) memory.
    """
    from scipy.spatial.distance import cdist

    own = {"distinct": 0 * vectors.counts, "others": vectors.counts - 1, "all": vectors.counts}[neighbours]
    scores = np.empty(len(embeddings))
    for low in tqdm(range(0, len(embeddings), _BLOCK), desc="interpolate", unit="block", leave=False, delay=1):
        block = np.arange(low, min(low + _BLOCK, len(embeddings)))
        squared = cdist(embeddings[block], embeddings, "sqeuclidean")
        rows = np.broadcast_to(vectors.counts, squared.shape).copy()
        rows[np.arange(len(block)), block] = own[block]
        weights = rows / (squared ** (power / 2) + epsilon)
        scores[block] = weights @ vectors.severity / weights.sum(axis=1)
    return scores


def bands(scores: Floats, vectors: Vectors, percentile: float, taxonomy: Taxonomy) -> dict[str, dict[str, Any]]:
    """Level -> its band, the published one, and how many rows and distinct vectors it rests on.

    A level without rows has no entry; the band below then reaches up to the next one there is.
    """
    found: dict[str, dict[str, Any]] = {}
    upper = 1.0
    for level, published in zip(LEVELS, taxonomy.lower_bounds, strict=True):
        of_level = vectors.levels == level
        if not of_level.any():
            continue
        of_rows = np.repeat(scores[of_level], vectors.counts[of_level])
        low = float(np.percentile(of_rows, percentile))
        lower = 0.0 if level == LEVELS[-1] else low
        found[str(level)] = {
            "lower": lower,
            "upper": upper,
            "published_lower": published,
            "difference": lower - published,
            "percentile": low,
            "median": float(np.median(of_rows)),
            "rows": len(of_rows),
            "distinct": int(of_level.sum()),
        }
        upper = lower
    return found


# --- How far they depend on choices ------------------------------------------------------------------------------


def spread_of(
    found: Mapping[str, Any], embeddings: Floats, vectors: Vectors, args: BoundariesArguments, taxonomy: Taxonomy
) -> dict[str, Any]:
    """How far the lower ends depend on the seed, and on each choice of ours, changed alone.

    ``seeds`` and ``settings``: level -> ``lowest``, ``highest``, and ``lower``, the end for each seed, or for each
    setting. ``neighbours``: kind -> level -> lower end.
    """

    def lower(one: BoundariesArguments, embedded: Floats | None = None) -> dict[str, float]:
        embedded = embed(vectors.x, train(vectors, one)[0]) if embedded is None else embedded
        learnt = bands(interpolate(embedded, vectors, one), vectors, one.percentile, taxonomy)
        progress.update()
        return {level: band["lower"] for level, band in learnt.items()}

    choices = sum(map(len, _SETTINGS.values())) * args.settings
    progress = tqdm(total=args.seeds - 1 + choices + len(NEIGHBOURS), desc="spread", unit="choice", leave=False)
    first = {level: band["lower"] for level, band in found.items()}
    seeds = [first, *(lower(replace(args, seed=args.seed + number)) for number in range(1, args.seeds))]
    settings = {"as chosen": first}
    for name, factors in _SETTINGS.items() if args.settings else ():
        for factor in factors:
            chosen = getattr(args, name)
            value: Any = max(1, int(chosen * factor)) if isinstance(chosen, int) else chosen * factor
            if value == chosen:
                continue
            changed = replace(args, **{name: value})
            settings[f"{name} {value:g}"] = lower(changed, embeddings if name in _AFTER_TRAINING else None)

    by_kind = {kind: lower(replace(args, neighbours=kind), embeddings) for kind in NEIGHBOURS}
    progress.close()

    def ends(learnt: Iterable[Mapping[str, float]], level: str) -> dict[str, float]:
        values = [one[level] for one in learnt]
        return {"lowest": min(values), "highest": max(values)}

    return {
        "seeds": {level: {**ends(seeds, level), "lower": [one[level] for one in seeds]} for level in found},
        "settings": {
            level: {**ends(settings.values(), level), "lower": {name: one[level] for name, one in settings.items()}}
            for level in found
        },
        "neighbours": by_kind,
    }


# What the paper leaves open, and by what each is multiplied in turn.
_SETTINGS = {"learning_rate": (1 / 3, 3), "weight_decay": (0, 10), "batch_size": (1 / 2, 2), "epsilon": (0.01, 100)}
_AFTER_TRAINING = ("epsilon",)
