"""Paired differences between runs with Holm's correction, and figures over the steps and the seeds of trainings."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cprt.errors import check_name
from cprt.metrics.bootstrap import paired_interval
from cprt.metrics.severity import paired_differences
from cprt.records import Label, column
from cprt.taxonomy import Taxonomy
from eval.compare.results import CurvePoint, Difference, PairDifferences, SeedGroup, Spread
from eval.measures import HEADS
from eval.runs import EvaluatedRun, unique_names

ALPHA = 0.05
FIGURES = tuple(name for name in HEADS if name != "coverage")  # those that a resample of common photos can change
_ALL = "all"


def choose_pairs(names: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    """(run, what it is held against): each against one, the first by default, or all pairs."""
    if against == _ALL:
        return [(second, first) for first, second in itertools.combinations(names, 2)]
    reference = names[0] if against is None else against
    check_name("against", "run", reference, names)
    return [(name, reference) for name in names if name != reference]


def differences(
    runs: Sequence[EvaluatedRun],
    pairs: Sequence[tuple[str, str]],
    labels: Sequence[Label],
    taxonomy: Taxonomy,
    resamples: int,
    seed: int,
) -> list[PairDifferences]:
    """Paired differences of the figures of each pair, over the photos that both have scored, tested together."""
    scores = {one.name: column(one.predictions, "score") for one in runs}
    # Pairs over the same photos share their resamples: where all runs scored everything, each run is resampled once.
    by_photos: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for pair in pairs:
        common = tuple(label.id for label in labels if all(label.id in scores[name] for name in pair))
        by_photos.setdefault(common, []).append(pair)
    truth = {label.id: label for label in labels}
    tests: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    total = sum(len({name for pair in group for name in pair}) for group in by_photos.values())
    with tqdm(total=total, desc="resampling", unit="run", disable=None) as progress:
        for ids, group in by_photos.items():
            tests |= paired_differences(
                [truth[id].score for id in ids],
                {name: [scores[name][id] for id in ids] for pair in group for name in pair},
                [truth[id].level for id in ids],
                group,
                taxonomy,
                resamples=resamples,
                seed=seed,
                done=progress.update,
            )
    photos = {pair: len(ids) for ids, group in by_photos.items() for pair in group}
    figures = iter(_corrected([tests[pair][name] for pair in pairs for name in FIGURES]))
    covered = {name: np.asarray([label.id in scores[name] for label in labels]) for name in scores}
    coverage = _corrected([coverage_difference(covered[first], covered[second]) for first, second in pairs])
    return [
        PairDifferences(*pair, photos[pair], {name: next(figures) for name in FIGURES}, of_coverage)
        for pair, of_coverage in zip(pairs, coverage, strict=True)
    ]


def coverage_difference(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Difference of the shares of (N,) photos with a score: interval and McNemar's exact p."""
    from scipy.stats import binomtest

    n, gained, lost = len(first), int((first & ~second).sum()), int((second & ~first).sum())
    if not n:
        return dict.fromkeys(("difference", "ci", "p"))
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    both = int((first & second).sum())
    return {"difference": (gained - lost) / n, "ci": paired_interval(both, gained, lost, n), "p": p}


def _corrected(tests: Sequence[Mapping[str, Any]]) -> list[Difference]:
    corrected = holm([test["p"] for test in tests])
    return [
        Difference(**test, p_holm=p, beyond_noise=None if p is None else p < ALPHA)
        for test, p in zip(tests, corrected, strict=True)
    ]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p values after Holm's step-down correction (1979) for all that are defined; the others stay None."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted


# --- Over trainings and seeds ----------------------------------------------------------------------------------------

_CHECKPOINT = re.compile(r"(.*?)[/_.-]?\bcheckpoint-(\d{1,9})\b")
_SEED = re.compile(r"[/_.-]?\bseed-(\d{1,9})\b")
_Groups = dict[tuple[str, tuple[str, ...]], list[tuple[int, EvaluatedRun]]]  # name, way to ask -> (number, run)


def curves(runs: Sequence[EvaluatedRun]) -> dict[str, list[CurvePoint]]:
    """Training -> its runs, rising in step.

    A training is the folder that holds the checkpoints, with one prompt and target. A run of its base with the same
    prompt and target is its step 0.
    """
    trainings: _Groups = {}
    others = []
    for one in runs:
        if match := next(filter(None, map(_CHECKPOINT.search, one.paths)), None):
            training = PurePosixPath(match[1]).name or "training"
            trainings.setdefault((training, one.asked), []).append((int(match[2]), one))
        elif one.record.get("adapter") is None:
            others.append(one)
    for (_, asked), members in trainings.items():
        bases = {one.model for _, one in members}
        members += [(0, one) for one in others if one.asked == asked and one.model in bases]
    return {
        name: [CurvePoint.of(one.metrics, step=step, run=one.name) for step, one in sorted(members, key=itemgetter(0))]
        for name, members in _by_name(trainings).items()
    }


def over_seeds(runs: Sequence[EvaluatedRun]) -> dict[str, SeedGroup]:
    """Recipe -> the spread of its figures over seeds, for recipes with two runs or more.

    A recipe is what remains of the adapter's folder, or of the run's name, without its ``seed-N``, asked in one way.
    Where a seed is there twice, its runs differ in something else: that recipe has no spread, and a note says so.
    """
    recipes: _Groups = {}
    for one in runs:
        if match := next(filter(None, map(_SEED.search, one.paths)), None):
            recipe = re.sub(r"^[_.-]+(?![/_.-])|[/_.-]+$", "", _SEED.sub("", match.string))
            recipes.setdefault((str(Path(recipe).resolve()), one.asked), []).append((int(match[1]), one))
    recipes = {key: sorted(members, key=itemgetter(0)) for key, members in recipes.items() if len(members) > 1}
    for members in recipes.values():
        if twice := next((pair for pair in itertools.pairwise(members) if pair[0][0] == pair[1][0]), None):
            (seed, first), (_, second) = twice
            print(f"note: {first.name} and {second.name} are both of seed {seed}: no spread over seeds of their recipe")
    recipes = {key: own for key, own in recipes.items() if len({seed for seed, _ in own}) == len(own)}
    paths = sorted({recipe for recipe, _ in recipes})
    short = dict(zip(paths, unique_names(list(map(Path, paths))), strict=True))
    return {
        name: SeedGroup(
            [one.name for _, one in members],
            [seed for seed, _ in members],
            {figure: _spread([one.metrics.figure(figure) for _, one in members]) for figure in HEADS},
        )
        for name, members in _by_name({(short[path], asked): own for (path, asked), own in recipes.items()}).items()
    }


def _by_name(groups: _Groups) -> dict[str, list[tuple[int, EvaluatedRun]]]:
    """Groups by their names, with the way to ask where there are several of one name."""
    ways = Counter(name for name, _ in groups)
    named = {name if ways[name] == 1 else f"{name}, {', '.join(asked)}": (name, asked) for name, asked in groups}
    return {name: groups[key] for name, key in named.items()}


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return Spread(float(np.mean(known)), float(np.std(known, ddof=1)), min(known), max(known))
