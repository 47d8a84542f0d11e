"""The exact severity score: attribute counts per level -> a level and a score in [0, 1] (paper 3.3, A.3-A.4).

Two things that the paper leaves open are settled here:

* Its bands are half-open, but Eq. 3 reaches their upper end: all of levels 2-4 scores 0.711, which is also a lone
  level-1 attribute. The top of bands 2 to 4 is therefore the last float below the bound, which makes the scores
  strictly ordered over all non-empty combinations. Level 1 is closed at 1.0.
* No attribute at all has score 0 and level 4: the file formats know levels 1 to 4 only, and 0 lies in band 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cprt.taxonomy import Taxonomy

_DECIMALS = 3  # what an answer prints; the published bounds have as many
SCORE_TOLERANCE = 6e-4 + 1e-9  # of a file's score, which may have three decimals, rounded or truncated


@dataclass(frozen=True)
class Severity:
    """``level`` in 1..4 (1 is the most severe), ``score`` in [0, 1]."""

    level: int
    score: float


def severity(counts: Sequence[int], taxonomy: Taxonomy | None = None) -> Severity:
    """Severity of an image with ``counts`` = (c_1, c_2, c_3, c_4) attributes of levels 1 to 4 (Eq. 3).

    Raises ValueError unless 0 <= c_i <= |A_i| for every level.
    """
    taxonomy = taxonomy or Taxonomy.default()
    if len(counts) != len(taxonomy.sizes):
        raise ValueError(f"counts need {len(taxonomy.sizes)} entries, one a level, not {len(counts)}")
    for level, (count, size) in enumerate(zip(counts, taxonomy.sizes, strict=True), start=1):
        if count != int(count) or not 0 <= count <= size:
            raise ValueError(f"count {count} of level {level} is not a whole number from 0 to {size}")
    levels, scores = _severity_of_counts(np.asarray([counts], dtype=np.int64), taxonomy)
    return Severity(int(levels[0]), float(scores[0]))


def severities(labels: ArrayLike, taxonomy: Taxonomy | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(N,) levels and (N,) scores of many images at once.

    ``labels``: (N, A) of 0, 0.5 (ambiguous, counts as absent, paper 4.1) and 1, columns as taxonomy.attributes. Raises
    ValueError on another shape or another value.
    """
    taxonomy = taxonomy or Taxonomy.default()
    matrix = np.asarray(labels)
    if matrix.ndim != 2 or matrix.shape[1] != len(taxonomy.attributes):
        raise ValueError(f"labels must have shape (N, {len(taxonomy.attributes)}), not {matrix.shape}")
    present = matrix == 1
    if not (present | (matrix == 0) | (matrix == 0.5)).all():
        raise ValueError("labels must be 0, 0.5 or 1")
    level_of_column = np.asarray([attribute.level for attribute in taxonomy.attributes])
    one_hot = (level_of_column[:, None] == np.arange(1, 5)).astype(np.float32)  # (A, 4)
    counts = (present.astype(np.float32) @ one_hot).astype(np.int64)
    return _severity_of_counts(counts, taxonomy)


def _severity_of_counts(counts: NDArray[np.int64], taxonomy: Taxonomy) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(N, 4) counts -> (N,) levels, (N,) scores."""
    weights = np.asarray(taxonomy.weights, dtype=np.float64)
    heaviest = np.cumsum((np.asarray(taxonomy.sizes) * weights)[::-1])[::-1]  # S_max(L), Eq. 16
    low = np.asarray(taxonomy.lower_bounds)
    high = np.concatenate([[1.0], low[:-1]])
    highest = np.concatenate([[1.0], np.nextafter(low[:-1], 0.0)])

    empty = ~counts.any(axis=1)
    index = np.where(empty, 3, (counts > 0).argmax(axis=1))  # level - 1, Eq. 10
    lexicographic = counts @ weights  # Eq. 11: counts above the level are 0
    # Eq. 17-19 with S_max cancelled. A level whose only possible image has one attribute stays at its lower bound.
    span = np.maximum(heaviest - weights, 1.0)
    stretched = np.maximum(lexicographic - weights[index], 0.0) / span[index]
    scores = low[index] + (high - low)[index] * np.sqrt(stretched)  # Eq. 20
    return index + 1, np.where(empty, 0.0, np.minimum(scores, highest[index]))


def level_of(score: float, taxonomy: Taxonomy | None = None) -> int:
    """The level in whose band a score lies. Raises ValueError outside [0, 1]."""
    return int(levels_of([score], taxonomy)[0])


def levels_of(scores: ArrayLike, taxonomy: Taxonomy | None = None) -> NDArray[np.int64]:
    """(N,) scores -> (N,) levels in whose bands they lie. Raises ValueError outside [0, 1]."""
    values = np.asarray(scores, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():  # NaN fails both
        raise ValueError("a score must lie in [0, 1]")
    bounds = (taxonomy or Taxonomy.default()).lower_bounds
    return 4 - np.searchsorted(bounds[::-1][1:], values, side="right")


def format_score(score: float, taxonomy: Taxonomy | None = None) -> str:
    """A score as answers print it: three decimals, truncated where rounding would leave its band.

    0.7109 (level 2) prints 0.710, since 0.711 would read as level 1.
    """
    text = f"{score:.{_DECIMALS}f}"
    if level_of(float(text), taxonomy) != level_of(score, taxonomy):
        text = f"{float(text) - 10**-_DECIMALS:.{_DECIMALS}f}"
    return text
