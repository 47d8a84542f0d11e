"""Which labelled photos train and which are held out.

The hold-out is drawn first, in the proportions of the collection: thresholds, calibration and the choice of a
checkpoint are learnt on it and have to hold on such photos. What a level-balanced draw leaves over would not do: on the
paper's proportions (Table 1) it is two thirds level 1. The training set is drawn from the rest, balanced over levels.
Draws depend on the ids and the seed, not on the order of a file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cprt.records import Label
from cprt.taxonomy import LEVELS


def draw_holdout(labels: Sequence[Label], size: int, seed: int) -> tuple[list[Label], list[Label]]:
    """``size`` labels whose levels stand within one row of the proportions of all ``labels``, and the rest, by id."""
    return _draw(labels, proportional(_counts(labels), size), np.random.default_rng([seed, 1]))


def draw_balanced(labels: Sequence[Label], size: int, seed: int) -> tuple[list[Label], list[Label]]:
    """``size`` labels as equally from the levels as they allow, in random order, and the rest, by id."""
    rng = np.random.default_rng(seed)
    drawn, rest = _draw(labels, equal(_counts(labels), size), rng)
    return [drawn[i] for i in rng.permutation(len(drawn))], rest


def draw_part(labels: Sequence[Label], share: float, seed: int) -> list[Label]:
    """A ``share`` of the labels, in their own proportions of levels."""
    quota = proportional(_counts(labels), round(share * len(labels)))
    return _draw(labels, quota, np.random.default_rng([seed, 2]))[0]


def _counts(labels: Sequence[Label]) -> list[int]:
    return [sum(label.level == level for label in labels) for level in LEVELS]


def _draw(labels: Sequence[Label], quota: Sequence[int], rng: np.random.Generator) -> tuple[list[Label], list[Label]]:
    drawn, rest = [], []
    by_id = sorted(labels, key=lambda label: label.id)
    for level, count in zip(LEVELS, quota, strict=True):
        members = [label for label in by_id if label.level == level]
        order = rng.permutation(len(members))
        drawn += [members[i] for i in order[:count]]
        rest += [members[i] for i in order[count:]]
    return drawn, sorted(rest, key=lambda label: label.id)


def equal(available: Sequence[int], size: int) -> list[int]:
    """How many of each class to take so that ``size`` (or all there is) are taken, as equally as possible.

    A class with fewer rows than its share gives all it has, and the others fill up.
    """
    taken = [0] * len(available)
    for _ in range(min(size, sum(available))):
        open_classes = [i for i, count in enumerate(available) if taken[i] < count]
        taken[min(open_classes, key=lambda i: taken[i])] += 1
    return taken


def proportional(available: Sequence[int], size: int) -> list[int]:
    """How many of each class to take so that ``size`` (or all there is) are taken in proportion: largest remainders."""
    total = sum(available)
    size = min(size, total)
    exact = [count * size / total if total else 0.0 for count in available]
    taken = [int(share) for share in exact]
    by_remainder = sorted(range(len(available)), key=lambda i: (taken[i] - exact[i], i))
    for i in by_remainder[: size - sum(taken)]:
        taken[i] += 1
    return taken
