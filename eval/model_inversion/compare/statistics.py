"""What several judges and set-ups say together: rankings that change, judges that agree, settings that matter.

Two runs of judges on the same reconstructions are a table ``joint`` (5, 5, 2): how many got each label of the first and
of the second (in the order of ``LABELS``) and E's no or yes. Everything about the two follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cprt.metrics.agreement import kappa_of_tables
from cprt.metrics.bootstrap import wilson_interval
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.join import LABELS, Key, Verdict
from eval.model_inversion.metrics.rates import NO, REFUSED, YES, Counts, Floats, defined, divide, percentiles


def joint(first: Mapping[Key, Verdict], second: Mapping[Key, Verdict], standard: Mapping[Key, Verdict]) -> Counts:
    """(5, 5, 2) counts over the reconstructions that all three have."""
    table = np.zeros((len(LABELS), len(LABELS), 2), dtype=np.int64)
    number = {label: index for index, label in enumerate(LABELS)}
    for key, verdict in first.items():
        if key in second and key in standard:
            table[number[verdict.label], number[second[key].label], int(standard[key].label == "yes")] += 1
    return table


def agreement(table: Counts, *, refused_as_no: bool, resamples: int, seed: int) -> dict[str, Any]:
    """How far two judges agree over what both answered, from their ``joint``: share and Cohen's kappa."""

    def answered(table: Counts) -> Counts:
        """(..., 5, 5, 2) -> (..., 4): no no, no yes, yes no, yes yes."""
        labels = table.sum(axis=-1)
        if refused_as_no:
            labels = labels.copy()
            labels[..., NO, :] += labels[..., REFUSED, :]
            labels[..., NO] += labels[..., REFUSED]
        return np.stack([labels[..., a, b] for a in (NO, YES) for b in (NO, YES)], axis=-1)

    def kappa(table: Counts) -> Floats:
        return kappa_of_tables(answered(table).astype(np.float64))

    cells = answered(table)
    agreed, n = int(cells[0] + cells[3]), int(cells.sum())
    found = defined(kappa(table))
    return {
        "n": n,
        "agreement": agreed / n if n else None,
        "kappa": found,
        "ci": {
            "agreement": wilson_interval(agreed, n),
            "kappa": None if found is None else percentiles(kappa(rates.resample(table, resamples, seed))),
        },
    }


def effect(table: Counts, *, refused_as_no: bool, resamples: int, seed: int) -> dict[str, Any]:
    """What changes from the first of two runs to the second, on the reconstructions that both answered.

    ``left_out`` are those that only one of them, or none, said yes or no to.
    """
    answers = (YES, NO, REFUSED) if refused_as_no else (YES, NO)
    everything, table = int(table.sum()), table[np.ix_(answers, answers)]
    table = np.pad(table, [(0, len(LABELS) - len(answers))] * 2 + [(0, 0)])

    def shift(table: Counts) -> Floats:
        yes = table.sum(axis=-1)
        return divide(yes[..., YES].sum(axis=-1) - yes[..., YES, :].sum(axis=-1), yes.sum(axis=(-2, -1)))

    n, changed = int(table.sum()), int(table.sum() - np.trace(table.sum(axis=-1)))
    sides = {"from": table.sum(axis=1), "to": table.sum(axis=0)}
    found: dict[str, Any] = {"n": n, "left_out": everything - n}
    for side, counts in sides.items():
        for name in ("accuracy_judge", "fpr"):
            part, whole = rates.fractions(counts, refused_as_no)[name]
            found[f"{name}_{side}"] = defined(divide(part, whole))
    found["difference"] = defined(shift(table))
    found["changed"] = changed / n if n else None
    found["ci"] = {
        "difference": percentiles(shift(rates.resample(table, resamples, seed))) if n else None,
        "changed": wilson_interval(changed, n),
    }
    return found


# --- Rankings ----------------------------------------------------------------------------------------------------


def ranking(names: Sequence[str], counts: Sequence[Counts], *, resamples: int, seed: int) -> dict[str, Any]:
    """How one judge ranks set-ups by attack accuracy, against E.

    Args:
        names, counts: of the set-ups; (5, 2) counts each.

    Returns ``tau`` (Kendall's tau-b) with its interval over resamples of the reconstructions of every set-up, and
    ``swaps``: the pairs that E and the judge put in opposite order. ``support`` is the share of resamples that show the
    same swap: near 1 it is no accident of which reconstructions were looked at.
    """
    drawn = [rates.resample(table, resamples, seed + number) for number, table in enumerate(counts)]
    standard, judge = (np.array([_accuracy(table, name) for table in counts]) for name in ("standard", "judge"))
    standards, judges = (
        np.stack([_accuracy(table, name) for table in drawn], axis=-1) if drawn else np.zeros((resamples, 0))
        for name in ("standard", "judge")
    )
    swaps: list[dict[str, Any]] = []
    for i, j in combinations(range(len(names)), 2):
        ahead, behind = (i, j) if standard[i] > standard[j] else (j, i)
        if standard[ahead] > standard[behind] and judge[ahead] < judge[behind]:
            same = (standards[:, ahead] > standards[:, behind]) & (judges[:, ahead] < judges[:, behind])
            swaps.append(
                {
                    "higher_under_standard": names[ahead],
                    "higher_under_judge": names[behind],
                    "accuracy_standard": [float(standard[ahead]), float(standard[behind])],
                    "accuracy_judge": [float(judge[ahead]), float(judge[behind])],
                    "support": float(same.mean()) if resamples else None,
                }
            )
    swaps.sort(key=lambda swap: -(swap["support"] or 0.0))
    tau = defined(kendall_tau(standard, judge))
    return {
        "setups": len(names),
        "order_standard": _order(names, standard),
        "order_judge": _order(names, judge),
        "tau": tau,
        "swaps": swaps,
        "ci": {"tau": None if tau is None else percentiles(kendall_tau(standards, judges))},
    }


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


def _accuracy(counts: Counts, of: str) -> NDArray[np.float64]:
    part, whole = rates.fractions(counts)[f"accuracy_{of}"]
    return divide(part, whole)


def _order(names: Sequence[str], values: Floats) -> list[str]:
    return [names[i] for i in np.argsort(-values, kind="stable")]
