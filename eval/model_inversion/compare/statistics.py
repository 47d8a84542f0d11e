"""What several judges and set-ups say together: rankings that change, judges that agree, settings that matter.

Two runs of judges on the same reconstructions are a table ``joint`` (K, 5, 5, 2): how many of each of K classes got
each label of the first and of the second (in the order of ``LABELS``) and E's no or yes. Everything about the two
follows from it. Set-ups on the same private data have classes in common: a resample draws a class in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cprt.metrics.agreement import kappa_of_tables
from cprt.metrics.bootstrap import (
    ClusteredShare,
    Floats,
    cluster_figure,
    defined,
    divide,
    resample_clusters,
    totals,
    widened_interval,
)
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.join import LABELS, Key, Verdict, named_like
from eval.model_inversion.metrics.rates import NO, REFUSED, YES, Counting, Counts

BySetup = Mapping[str, dict[Key, Verdict]]  # what a judge says


@dataclass(frozen=True)
class Judged:
    """What one judge and E say of one set-up: class -> (5, 2) counts. ``private`` names its private data."""

    setup: str
    private: str
    counts: Mapping[str, Counts]


def joint(
    first: Mapping[Key, Verdict], second: Mapping[Key, Verdict], standard: Mapping[Key, Verdict]
) -> dict[str, Counts]:
    """Class -> (5, 5, 2) counts over the reconstructions that all three have."""
    number = {label: index for index, label in enumerate(LABELS)}
    tables: dict[str, Counts] = {}
    for key, verdict in first.items():
        if key in second and key in standard:
            table = tables.setdefault(key[0], np.zeros((len(LABELS), len(LABELS), 2), dtype=np.int64))
            table[number[verdict.label], number[second[key].label], int(standard[key].label == "yes")] += 1
    return tables


def shared(first: BySetup, second: BySetup) -> dict[str, dict[str, Counts]]:
    """Set-up -> ``joint`` of two judges, of the set-ups that both judged; what E says does not matter here."""
    both = {setup: (rows, second[setup]) for setup, rows in first.items() if setup in second}
    return {setup: joint(rows, named_like(others, rows)[0], rows) for setup, (rows, others) in both.items()}


def pooled(tables: Mapping[str, Mapping[str, Counts]], private: Mapping[str, str]) -> dict[str, Counts]:
    """Set-up -> class -> counts, as class of its private data -> counts: each class of each private data once."""
    total: dict[str, Counts] = {}
    for setup, classes in tables.items():
        for name, table in classes.items():
            place = f"{private[setup]}/{name}"
            total[place] = total[place] + table if place in total else table
    return total


def stacked(tables: Mapping[str, Counts]) -> Counts:
    """(K, 5, 5, 2) of a ``joint``; where nothing is shared, one class with nothing in it."""
    return rates.by_class(tables) if tables else np.zeros((1, len(LABELS), len(LABELS), 2), dtype=np.int64)


def answered(joint: Counts, refused_as_no: bool) -> Counts:
    """(..., 5, 5, 2) -> (..., 2, 2, 2) over what both answered: no and yes of the first, of the second, of E."""
    kept = joint.copy()
    if refused_as_no:
        kept[..., NO, :, :] += kept[..., REFUSED, :, :]
        kept[..., NO, :] += kept[..., REFUSED, :]
    return np.stack([np.stack([kept[..., a, b, :] for b in (NO, YES)], axis=-2) for a in (NO, YES)], axis=-3)


def agreement(joint_K: Counts, counting: Counting) -> dict[str, Any]:
    """How far two judges agree over what both answered, from their ``joint``: share and Cohen's kappa."""
    cells = answered(joint_K, counting.refused_as_no).sum(axis=-1).reshape(len(joint_K), 4)
    same = ClusteredShare.of(cells[:, 0] + cells[:, 3], cells.sum(axis=1))
    weights = counting.weights(len(cells))
    kappa = cluster_figure(cells.astype(np.float64), kappa_of_tables, weights)
    return {"n": same.whole, **rates.with_intervals({"agreement": same.figure, "kappa": kappa})}


def effect(joint_K: Counts, counting: Counting) -> dict[str, Any]:
    """What changes from the first of two runs to the second, on the reconstructions that both answered.

    ``left_out`` are those that only one of them, or none, answered.
    """
    tables = answered(joint_K, counting.refused_as_no)

    def shift(tables: Counts) -> Floats:
        """(..., 2, 2, 2) -> (...): share of yes of the second minus that of the first."""
        both = tables.sum(axis=-1)
        return divide(both[..., 0, 1] - both[..., 1, 0], both.sum(axis=(-2, -1)))

    table = tables.sum(axis=0)
    changed = ClusteredShare.of(tables[:, 0, 1].sum(axis=-1) + tables[:, 1, 0].sum(axis=-1), tables.sum(axis=(1, 2, 3)))
    found: dict[str, Any] = {"n": changed.whole, "left_out": int(joint_K.sum()) - changed.whole}
    for side, (no, yes) in {"from": table.sum(axis=1), "to": table.sum(axis=0)}.items():
        found[f"accuracy_judge_{side}"] = defined(divide(yes.sum(), table.sum()))
        found[f"fpr_{side}"] = defined(divide(no[1], no.sum()))
    weights = counting.weights(len(tables))
    found |= {"difference": cluster_figure(tables, shift, weights), "changed": changed.figure}
    return rates.with_intervals(found)


# --- Rankings ----------------------------------------------------------------------------------------------------


def ranking(judged: Sequence[Judged], counting: Counting) -> dict[str, Any]:
    """How one judge ranks set-ups by attack accuracy, against E.

    Returns ``tau`` (Kendall's tau-b) with its interval, and ``swaps``: the pairs that E and the judge put in opposite
    order. ``support`` is the share of resamples that show the same swap: near 1 it is no accident of which classes were
    looked at. Noise in the accuracies disorders set-ups that are near one another, and a resample adds to it: tau is
    nearer to 0 than the truth, and in resamples once more. The interval reaches from their percentiles to the mirror
    images of these about tau.
    """
    names = [one.setup for one in judged]
    standard, judge = _accuracies(np.stack([np.sum(list(one.counts.values()), axis=0) for one in judged]))
    drawn, fewest = _resampled(judged, counting)
    standards, judges = _accuracies(drawn)
    swaps: list[dict[str, Any]] = []
    for i, j in combinations(range(len(names)), 2):
        ahead, behind = (i, j) if standard[i] > standard[j] else (j, i)
        if standard[ahead] > standard[behind] and judge[ahead] < judge[behind]:
            same = (standards[:, ahead] > standards[:, behind]) & (judges[:, ahead] < judges[:, behind])
            swaps.append(
                {
                    "higher_under_standard": names[ahead],
                    "higher_under_judge": names[behind],
                    "accuracy_standard": standard[[ahead, behind]].tolist(),
                    "accuracy_judge": judge[[ahead, behind]].tolist(),
                    "support": float(same.mean()) if counting.resamples else None,
                }
            )
    swaps.sort(key=lambda swap: -(swap["support"] or 0.0))
    tau = defined(kendall_tau(standard, judge))
    interval = widened_interval(kendall_tau(standards, judges), fewest, max(fewest - 1, 1))
    if tau is not None and interval is not None:
        low, high = interval
        interval = [max(-1.0, min(low, 2 * tau - high)), min(1.0, max(high, 2 * tau - low))]
    return {
        "setups": len(names),
        **{
            f"order_{of}": [names[i] for i in np.argsort(-accuracies, kind="stable")]
            for of, accuracies in (("standard", standard), ("judge", judge))
        },
        "tau": tau,
        "swaps": swaps,
        "ci": {"tau": None if tau is None else interval},
    }


def _resampled(judged: Sequence[Judged], counting: Counting) -> tuple[Counts, int]:
    """(B, S, 5, 2) totals of every set-up, classes drawn by private data; and the fewest classes of any."""
    classes: dict[str, set[str]] = {}
    for one in judged:
        classes.setdefault(one.private, set()).update(one.counts)
    drawn = []
    weights = {
        private: resample_clusters(len(names), counting.resamples, [counting.seed, number])
        for number, (private, names) in enumerate(sorted(classes.items()))
    }
    nothing = np.zeros((len(LABELS), 2), dtype=np.int64)
    for one in judged:
        counts = [one.counts.get(name, nothing) for name in sorted(classes[one.private])]
        drawn.append(totals(np.stack(counts), weights[one.private]))
    return np.stack(drawn, axis=1), min(map(len, classes.values()))


def kendall_tau(first: ArrayLike, second: ArrayLike) -> Floats:
    """Kendall's tau-b of (..., N) and (..., N); NaN where either has no two different values."""
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    both, of_x, of_y = (np.zeros(x.shape[:-1]) for _ in range(3))
    for i in range(x.shape[-1]):  # row by row: all pairs of all resamples at once would not fit in memory
        dx, dy = (np.sign(values[..., i + 1 :] - values[..., i : i + 1]) for values in (x, y))
        both += (dx * dy).sum(axis=-1)
        of_x += np.abs(dx).sum(axis=-1)
        of_y += np.abs(dy).sum(axis=-1)
    return divide(both, np.sqrt(of_x) * np.sqrt(of_y))


def _accuracies(counts: Counts) -> tuple[Floats, Floats]:
    """(..., 5, 2) -> (...) under E and under the judge."""
    of = rates.fractions(counts)
    return divide(*of["accuracy_standard"]), divide(*of["accuracy_judge"])
