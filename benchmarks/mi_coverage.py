"""How often the 95% intervals of ``cprt mi-metrics`` and ``cprt mi-compare`` hold the truth, where it is known.

    python benchmarks/mi_coverage.py [--json FILE] [--rounds 1000] [--resamples 500] [--classes 30 100 300 530]
        [--images 5 50] [--correlations 0 0.02 0.2 0.3] [--cells 0.54 0.27 0.12 0.07]

Each round draws classes anew. A class has its own probabilities of the four cells (judge x E), from a Dirichlet
distribution around those of the paper's golden case (CelebA, KEDMI, FaceNet64: FPR 78.4%, FNR 18.4%); its concentration
gives the correlation between two reconstructions of one class. A second judge and T are drawn likewise for the
difference of two settings and Type-I transfer, and in a tenth of the rounds 27 set-ups on the same classes for tau.
``plain`` is Wilson's interval of the accuracy that takes all reconstructions for independent. The goal is 93 to 97%. A
coverage of 1,000 rounds is itself known to within 1.4 points. ``--cells`` are other shares of TP, FP, FN and TN.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.metrics.bootstrap import ClusteredShare, wilson_interval
from eval.model_inversion.compare.statistics import Judged, effect, kendall_tau, ranking
from eval.model_inversion.metrics import rates

GOLDEN = np.array([[805, 181], [403, 111]]) / 1500  # judge yes, no x E yes, no
# Of 27 set-ups, as the paper has: shares that E and the judge accept, close together and in another order.
_ORDER = sorted(range(27), key=lambda place: place + 4 * (place % 4))
SETUPS = [(0.30 + 0.025 * place, 0.10 + 0.025 * number) for number, place in enumerate(_ORDER)]
TAU_EVERY = 10  # rounds to one of tau, which costs as much as they
SECOND_JUDGE = np.array([[0.60, 0.06], [0.04, 0.30]])  # first yes, no x second yes, no
T_ACCEPTS = 0.9

Ints = NDArray[np.int64]


def draw(cells: NDArray[np.float64], classes: int, images: int, correlation: float, rng: np.random.Generator) -> Ints:
    """(classes, *cells.shape) counts of so many images a class."""
    if correlation:
        weights = rng.gamma(cells.ravel() * (1 - correlation) / correlation, size=(classes, cells.size))
        chances = weights / weights.sum(axis=1, keepdims=True)
    else:
        chances = np.broadcast_to(cells.ravel(), (classes, cells.size))
    return rng.multinomial(images, chances).reshape(classes, *cells.shape)


def counts_of(judge_by_e: Ints) -> Ints:
    """(K, 2, 2) of judge yes, no x E yes, no -> (K, 5, 2) as ``rates`` counts."""
    counts = np.zeros((len(judge_by_e), 5, 2), dtype=np.int64)
    counts[:, :2] = judge_by_e[:, :, ::-1]
    return counts


def truths(cells: NDArray[np.float64] = GOLDEN) -> dict[str, float]:
    """The figures of infinitely many classes."""
    counts = counts_of((cells[None] * 1_500_000).round().astype(np.int64))
    counting = rates.Counting(resamples=0)
    measured, _ = rates.measure(counts, counting, counting.weights(len(counts)))
    names = ("accuracy_standard", "accuracy_judge", "accuracy_gap", "fpr", "fnr", "kappa")
    found = {name: measured[name].value for name in names}
    e, judge = zip(*SETUPS, strict=True)
    return found | {
        "type_i_transfer": found["fpr"],  # T accepts any reconstruction equally often here
        "difference": float(SECOND_JUDGE[1, 0] - SECOND_JUDGE[0, 1]),
        "tau": float(kendall_tau(e, judge)),
        "plain": found["accuracy_judge"],
    }


def intervals(
    classes: int,
    images: int,
    correlation: float,
    resamples: int,
    rng: np.random.Generator,
    cells: NDArray[np.float64],
) -> tuple[dict[str, Sequence[float] | None], float]:
    """Those of one round, by the names of ``truths`` but tau; and the design effect of the judge's accuracy."""
    counting = rates.Counting(resamples=resamples, seed=int(rng.integers(2**31)))
    counts = counts_of(draw(cells, classes, images, correlation, rng))
    measured, shares = rates.measure(counts, counting, counting.weights(classes))
    rejected = rng.binomial(counts[:, rates.NO], T_ACCEPTS)  # by the judge, of what T accepts
    joint = np.zeros((classes, 5, 5, 2), dtype=np.int64)
    joint[:, :2, :2, 0] = draw(SECOND_JUDGE, classes, images, correlation, rng)
    yes = shares["accuracy_judge"]
    return {
        **rates.split(measured)[1],
        "type_i_transfer": ClusteredShare.of(rejected[:, 1], rejected.sum(axis=1)).interval,
        "difference": effect(joint, counting)["ci"]["difference"],
        "plain": wilson_interval(yes.part, yes.whole),
    }, yes.design_effect or np.nan


def interval_of_tau(
    classes: int, images: int, correlation: float, resamples: int, rng: np.random.Generator
) -> Sequence[float] | None:
    """That of one round: 27 set-ups on the same classes."""
    names = [str(number) for number in range(classes)]
    judged = []
    for e, judge in SETUPS:
        cells = np.outer([judge, 1 - judge], [e, 1 - e])
        counts = counts_of(draw(cells, classes, images, correlation, rng))
        judged.append(Judged(str(len(judged)), "data", dict(zip(names, counts, strict=True))))
    return ranking(judged, rates.Counting(resamples=resamples, seed=int(rng.integers(2**31))))["ci"]["tau"]


def holds(bounds: Sequence[float] | None, value: float) -> bool:
    return bounds is not None and bounds[0] <= value <= bounds[1]


def coverage(
    classes: int,
    images: int,
    correlation: float,
    *,
    rounds: int,
    resamples: int,
    seed: int = 0,
    cells: NDArray[np.float64] = GOLDEN,
) -> dict[str, float]:
    """Share of rounds whose interval holds the truth, by figure; and the mean ``design_effect``."""
    rng = np.random.default_rng([seed, classes, images, round(1000 * correlation)])
    truth = truths(cells)
    tau = truth.pop("tau")
    held = dict.fromkeys(truth, 0)
    effects = []
    for _ in range(rounds):
        found, design_effect = intervals(classes, images, correlation, resamples, rng, cells)
        effects.append(design_effect)
        for name, value in truth.items():
            held[name] += holds(found[name], value)
    shares = {name: times / rounds for name, times in held.items()}
    few = -(-rounds // TAU_EVERY)
    shares["tau"] = (
        sum(holds(interval_of_tau(classes, images, correlation, resamples, rng), tau) for _ in range(few)) / few
    )
    return shares | {"design_effect": float(np.nanmean(effects))}


def main() -> None:
    from common.measuring import options, save  # beside the script; others import this module for what is above

    settings = {"classes": [30, 100, 300, 530], "images": [5, 50], "correlations": [0.0, 0.02, 0.2, 0.3]}
    golden = (805.0, 403.0, 181.0, 111.0)
    args = options(__doc__, **settings, cells=golden, rounds=1000, resamples=500, seed=0)
    tp, fp, fn, tn = args.cells
    cells = np.array([[tp, fn], [fp, tn]]) / sum(args.cells)
    names = [*truths(), "design_effect"]
    print(f"| classes | images | correlation | {' | '.join(names)} |")
    print("|---" * (3 + len(names)) + "|", flush=True)
    rows: list[dict[str, Any]] = []
    for classes, images, correlation in product(args.classes, args.images, args.correlations):
        how = {"rounds": args.rounds, "resamples": args.resamples, "seed": args.seed, "cells": cells}
        found = coverage(classes, images, correlation, **how)
        shown = " | ".join(f"{found[name]:.1f}" if name == "design_effect" else f"{found[name]:.3f}" for name in names)
        print(f"| {classes} | {images} | {correlation} | {shown} |", flush=True)
        rows.append({"classes": classes, "images": images, "correlation": correlation, **found})
    held = [row[name] for row in rows for name in names if name not in ("plain", "tau", "design_effect")]
    inside = sum(0.93 <= value <= 0.97 for value in held)
    print(f"\n{inside} of {len(held)} coverages lie from 0.93 to 0.97; all from {min(held):.3f} to {max(held):.3f}")
    save(args, {"rows": rows, "rounds": args.rounds, "resamples": args.resamples})


if __name__ == "__main__":
    main()
