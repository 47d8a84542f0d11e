"""Where a judge errs: error and bias by true level, by number of attributes, and by attribute present (paper 5.3).

The paper finds that risk which comes of composition is underestimated, and that single telling attributes are
overestimated; these are the figures that show it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cprt.metrics.bootstrap import Floats, defined, divide, interval, resample
from cprt.metrics.pairs import as_columns
from cprt.taxonomy import LEVELS, Taxonomy

MOST = 8  # photos with so many attributes or more are one group


@dataclass(frozen=True)
class GroupError:
    """Errors over those of the ``n`` photos of one group that have a score: ``scored``.

    ``mae`` is the mean absolute error, ``bias`` the mean of prediction minus truth; ``*_ci`` are 95% bootstrap
    intervals over all scored photos. None where undefined.
    """

    n: int
    scored: int
    mae: float | None
    bias: float | None
    mae_ci: list[float] | None
    bias_ci: list[float] | None


def by_group(
    truth: ArrayLike, prediction: ArrayLike, groups: Mapping[str, ArrayLike], *, resamples: int = 1000, seed: int = 0
) -> dict[str, GroupError]:
    """Group -> its errors, of (N,) true and predicted scores, NaN where there is none.

    ``groups``: name -> (N,) booleans; a photo may be in several groups.
    """
    t = np.asarray(truth, dtype=np.float64)
    p = np.asarray(prediction, dtype=np.float64)
    known = ~np.isnan(p)
    t, p = as_columns(t[known], p[known])
    members = np.asarray(list(groups.values()), dtype=bool).reshape(len(groups), len(known))  # (G, N)
    inside = members[:, known].astype(np.float64)  # (G, M)
    figures = np.stack([np.abs(p - t), p - t])  # (2, M)

    def means(weights: Floats) -> Floats:
        """(M, B) weights -> (2, G, B) means, NaN for a group without weight."""
        return np.stack([divide(inside @ (figure[:, None] * weights), inside @ weights) for figure in figures])

    point = means(np.ones((len(t), 1)))
    weights = resample(len(t), resamples, seed)
    spread = weights.each(means) if weights else None
    found = {}
    for row, name in enumerate(groups):
        mae, bias = map(defined, point[:, row, 0])
        bounds = [None, None] if spread is None or mae is None else [interval(drawn) for drawn in spread[:, row]]
        found[name] = GroupError(int(members[row].sum()), int(inside[row].sum()), mae, bias, *bounds)
    return found


def groups_of(
    levels: ArrayLike, present: Mapping[int, Collection[str]], taxonomy: Taxonomy
) -> dict[str, dict[str, np.ndarray]]:
    """The paper's groupings of (N,) true levels: ``level``, ``attributes`` (how many) and ``attribute`` (which one).

    ``present``: row -> keys of its attributes; rows whose attributes are not known are left out of the last two.
    """
    level = np.asarray(levels)
    found = {"level": {str(number): level == number for number in LEVELS}}
    if present:
        counts = np.asarray([len(present[row]) if row in present else -1 for row in range(len(level))])
        sizes = {str(size): counts == size for size in range(MOST)} | {f"{MOST}+": counts >= MOST}
        found["attributes"] = {name: rows for name, rows in sizes.items() if rows.any()}
        found["attribute"] = {
            key: np.asarray([key in present.get(row, ()) for row in range(len(level))]) for key in taxonomy.keys
        }
    return found
