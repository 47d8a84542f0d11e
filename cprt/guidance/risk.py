"""What probabilities of lists of attributes say of a photo: how probable each attribute is, and scores over all lists.

Lists come from a model (``cprt.models.decoding.lists``), with less than all of the probability: what is missing is
taken to be as what was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cprt.scoring import severities
from cprt.taxonomy import LEVELS, Taxonomy

BAND = 0.9  # of the probability lies in a photo's band of scores
LISTS = 5  # most probable ones that are kept with a prediction


@dataclass(frozen=True)
class Step:
    """Hide ``key`` as well; ``score`` and ``level`` of what is then left."""

    key: str
    score: float
    level: int


@dataclass(frozen=True)
class Risk:
    """The lists that a photo may have, N of them, the most probable first; A attributes of the taxonomy."""

    present: NDArray[np.bool_]  # (N, A) whether a list names an attribute
    weights: NDArray[np.float64]  # (N,) probabilities, as they were found: their sum is ``mass``
    taxonomy: Taxonomy

    @staticmethod
    def read(lists: Mapping[str, float], taxonomy: Taxonomy) -> Risk:
        """From keys with commas between -> probability, at least one with more than 0."""
        ordered = sorted(lists.items(), key=lambda item: -item[1])
        named = [set(text.split(",")) for text, _ in ordered]
        present = np.array([[key in keys for key in taxonomy.keys] for keys in named], dtype=bool)
        return Risk(present, np.array([probability for _, probability in ordered]), taxonomy)

    @property
    def mass(self) -> float:
        """The probability of all lists that were found."""
        return min(1.0, float(self.weights.sum()))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """(N,) probabilities given that the list is one of these."""
        return np.asarray(self.weights / self.weights.sum())

    @cached_property
    def levels_and_scores(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(N,) level and exact score of each list."""
        return severities(self.present.astype(float), self.taxonomy)

    @property
    def scores(self) -> NDArray[np.float64]:
        return self.levels_and_scores[1]

    @property
    def attributes(self) -> dict[str, float]:
        """Key -> probability that it is present."""
        return dict(zip(self.taxonomy.keys, np.minimum(1.0, self.shares @ self.present).tolist(), strict=True))

    @property
    def mean(self) -> float:
        """The expected severity."""
        return float(np.clip(self.shares @ self.scores, 0.0, 1.0))

    @cached_property
    def levels(self) -> dict[int, float]:
        """Level -> its probability."""
        found = np.bincount(self.levels_and_scores[0], weights=self.shares, minlength=len(LEVELS) + 1)
        return {level: float(min(1.0, found[level])) for level in LEVELS}

    @property
    def level(self) -> int:
        """The most probable level."""
        return max(self.levels, key=self.levels.__getitem__)

    @property
    def level_mean(self) -> float:
        """The expected severity given the most probable level, which is then the level of this score."""
        levels, scores = self.levels_and_scores
        of_level = levels == self.level
        within = scores[of_level]
        return float(np.clip(np.average(within, weights=self.shares[of_level]), within.min(), within.max()))

    @property
    def deviation(self) -> float:
        """The standard deviation of the severity."""
        return float(np.sqrt(self.shares @ (self.scores - self.mean) ** 2))

    @property
    def band(self) -> tuple[float, float]:
        """The scores between which the middle ``BAND`` of the probability lies."""
        order = np.argsort(self.scores, kind="stable")
        reached = np.cumsum(self.shares[order])
        places = np.searchsorted(reached, [(1 - BAND) / 2, (1 + BAND) / 2 - 1e-12])
        low, high = self.scores[order][np.minimum(places, len(order) - 1)]
        return float(low), float(high)

    def exceeds(self, score: float) -> float:
        """How probable it is that the severity is ``score`` or more."""
        return float(np.clip(self.shares @ (self.scores >= score), 0.0, 1.0))

    def hiding(self, *keys: str) -> Risk:
        """The same photo with attributes hidden, should they be there."""
        left = self.present.copy()
        left[:, [self.taxonomy.keys.index(key) for key in keys]] = False
        return Risk(left, self.weights, self.taxonomy)

    def hide_in_order(self, until_level: int | None = None, until_score: float | None = None) -> list[Step]:
        """What to hide until the most probable level is ``until_level`` or milder and the mean below ``until_score``.

        Each step hides the attribute without which least of the mean is left; the taxonomy's order decides between
        equals. With neither goal the level is to become milder by one; none is milder than 4.

        Raises ValueError for a level outside 1 to 4, or a score that cannot be undercut.
        """
        if until_level is not None and until_level not in LEVELS:
            raise ValueError(f"until_level must be 1, 2, 3 or 4, not {until_level}")
        if until_score is not None and not 0 < until_score <= 1:
            raise ValueError(f"until_score must be more than 0 and at most 1, not {until_score}")
        if until_level is None and until_score is None:
            until_level = min(self.level + 1, LEVELS[-1])
        mildest, least = until_level or LEVELS[0], until_score or np.inf
        steps: list[Step] = []
        left = self
        while left.present.any() and not (left.level >= mildest and left.mean < least):
            there = [key for key, probability in left.attributes.items() if probability > 0]
            key = min(there, key=lambda key: left.hiding(key).mean)
            left = left.hiding(key)
            steps.append(Step(key, left.mean, left.level))
        return steps

    @property
    def likeliest(self) -> list[tuple[tuple[str, ...], float, float]]:
        """The ``LISTS`` most probable lists: keys, probability as found, exact severity."""
        keys = np.array(self.taxonomy.keys)
        rows = zip(self.present[:LISTS], self.weights[:LISTS], self.scores[:LISTS], strict=True)
        return [(tuple(keys[row].tolist()), float(weight), float(score)) for row, weight, score in rows]
