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
from eval.model_inversion.compare.inputs import SETTINGS, Run
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.evaluation import Evaluation
from eval.model_inversion.metrics.join import LABELS, Key, Verdict, named_like
from eval.model_inversion.metrics.rates import NO, REFUSED, YES, Counting, Counts

BySetup = Mapping[str, dict[Key, Verdict]]  # what a judge says
Done = Sequence[tuple[Run, Evaluation]]  # judges on set-ups, measured


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


# --- All together ------------------------------------------------------------------------------------------------


def compare(done: Done, counting: Counting) -> dict[str, Any]:
    """Everything in ``compare.json`` from what was measured."""
    judges = list(dict.fromkeys(run.judge for run, _ in done))
    private = {run.setup: run.private for run, _ in reversed(done)}  # of several that say it, the first
    rows = []
    of_judge: dict[str, list[Judged]] = {judge: [] for judge in judges}
    for one, found in done:
        settings = {head: one.settings.get(name) for head, name in _SETTINGS.items()}
        rows.append({"setup": one.setup, "judge": one.judge, **settings, **found.figures})
        of_judge[one.judge].append(Judged(one.setup, private[one.setup], found.counts))
    return {
        "setups": list(dict.fromkeys(run.setup for run, _ in done)),
        "judges": judges,
        "rows": rows,
        "rankings": {judge: ranking(judged, counting) for judge, judged in of_judge.items()},
        "agreement": _agreements(done, judges, private, counting),
        "effects": _effects(done, private, counting),
        "ci_method": done[0][1].figures["ci_method"]
        | {
            "difference": "as kappa",
            "tau": "as kappa, to the mirror images about tau; set-ups kept; set-ups with the same private data "
            "(as stated, else the first part of the name) share their classes; quantile of the fewest classes",
        },
    }


_SETTINGS = {"references": "n", "order": "order", "layout": "layout"}  # as rows have them


def _agreements(
    done: Done, judges: Sequence[str], private: Mapping[str, str], counting: Counting
) -> list[dict[str, Any]]:
    """Every pair of judges, on each set-up that both judged and on all of them (``setup`` null)."""
    found = {judge: {run.setup: said.judge for run, said in done if run.judge == judge} for judge in judges}
    return [
        {"judges": [a, b], "setup": place, **agreement(stacked(counts), counting)}
        for a, b in combinations(judges, 2)
        for place, counts in _with_total(shared(found[a], found[b]), private)
    ]


def _effects(done: Done, private: Mapping[str, str], counting: Counting) -> list[dict[str, Any]]:
    """Pairs of runs that differ in one setting alone, on each set-up and on all (``setup`` null).

    The smaller number of a setting comes first; others as given.
    """
    pairs: dict[tuple[str, str, str], dict[str, dict[str, Counts]]] = {}
    for first, second in combinations(done, 2):
        one, two = first[0].settings, second[0].settings
        differ = [key for key in SETTINGS if one.get(key) != two.get(key)]
        same = first[0].setup == second[0].setup and first[0].model == second[0].model
        if same and len(differ) == 1 and differ[0] in one and differ[0] in two:
            a, b = one[differ[0]], two[differ[0]]
            turned = isinstance(a, int) and isinstance(b, int) and a > b
            (low, of_low), (high, of_high) = (second, first) if turned else (first, second)
            tables = pairs.setdefault((differ[0], low.judge, high.judge), {})
            tables[low.setup] = joint(of_low.judge, of_high.judge, of_low.standard)
    settings = {run.judge: run.settings for run, _ in done}
    rows = []
    for (setting, a, b), tables in pairs.items():
        shown = {"setting": setting, "judges": [a, b], "from": settings[a][setting], "to": settings[b][setting]}
        parts = _with_total(tables, private)
        rows += [{**shown, "setup": setup, **effect(stacked(of), counting)} for setup, of in parts]
    return rows


def _with_total(
    tables: Mapping[str, Mapping[str, Counts]], private: Mapping[str, str]
) -> list[tuple[str | None, Mapping[str, Counts]]]:
    """Every set-up, and all together where there are several."""
    total: list[tuple[str | None, Mapping[str, Counts]]] = [(None, pooled(tables, private))] if len(tables) > 1 else []
    return [*total, *tables.items()]
