"""The rows that bands are learnt from, as distinct attribute vectors.

Rows with the same attributes have the same embedding and the same score, so everything is computed once for each
distinct vector and weighted by how often it is there, which is exact; distances are taken in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cprt.errors import InputError
from cprt.records import read_labels
from cprt.scoring import severities
from cprt.taxonomy import LEVELS, Taxonomy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Vectors:
    """The distinct attribute vectors among the rows: (U, A) ``x`` of 0 and 1, (U,) ``levels``, (U,) ``counts``."""

    x: Floats
    levels: Ints
    counts: Ints

    @property
    def severity(self) -> Floats:
        """(U,) from 1 (level 1) to 0 (level 4)."""
        return (4 - self.levels) / 3


def read_vectors(path: str | Path, taxonomy: Taxonomy, empty: str = "drop") -> tuple[Vectors, dict[str, int]]:
    """The distinct attribute vectors of a labels file and counts of rows.

    Raises InputError where rows have no labels, or where no triplet can be formed: fewer than two levels.
    """
    rows = read_labels(path, taxonomy, needed=("labels",))
    present = np.asarray([[(label.labels or {})[key] == 1 for key in taxonomy.keys] for label in rows])
    kept = present if empty == "zero" else present[present.any(axis=1)]
    report = {"rows": len(rows), "used": len(kept), "without_attribute": int((~present.any(axis=1)).sum())}
    if not len(kept):
        raise InputError.at(path, f"none of its {len(rows)} rows has an attribute")
    x, counts = np.unique(kept, axis=0, return_counts=True)
    levels, _ = severities(x.astype(np.float64), taxonomy)
    if len(x) == 1:
        raise InputError.at(path, f"all {len(kept)} rows used have the same attributes: there is nothing to tell apart")
    if len(set(levels.tolist())) == 1:
        raise InputError.at(path, f"all {len(kept)} rows used are of level {levels[0]}: triplets need a second level")
    if all(counts[levels == level].sum() < 2 for level in LEVELS):
        raise InputError.at(path, "no level has two rows: triplets need an anchor and a positive of one level")
    return Vectors(x.astype(np.float64), levels, counts.astype(np.int64)), report | {"distinct": len(x)}
