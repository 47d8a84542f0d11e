"""Soft labels over a score's digits: what training asks for where near scores are nearly as right as the exact one.

In place of each next token of the score, the tokens of all scores near it: a Gaussian around the exact score, within
the band of its level, so that no other level is asked for. Each place has what the Gaussian says of its next token
given the true ones before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cprt.errors import InputError
from cprt.models.decoding.score_tree import NUMBERS, ScoreTree
from cprt.models.decoding.scores import SCORES
from cprt.scoring import levels_of
from cprt.taxonomy import Taxonomy

_VALUES = np.array([float(text) for text in SCORES])
_ANSWER = re.compile(r'(?P<lead>.*?(?P<key>"\w+": ))(?P<number>[01]\.[0-9]{3})\}$', re.DOTALL)


def near(score: float, level: int, width: float, taxonomy: Taxonomy) -> NDArray[np.float64]:
    """(1001,) probabilities of the scores 0.000 to 1.000: a Gaussian around ``score`` within its level's band."""
    exponents = -0.5 * ((_VALUES - score) / width) ** 2
    exponents[levels_of(_VALUES, taxonomy) != level] = -np.inf
    weights = np.exp(exponents - exponents.max())
    return np.asarray(weights / weights.sum())


class SoftScores:
    """Soft labels in the tokens of one tokenizer, which ``encode`` makes of a text."""

    def __init__(self, encode: Callable[[str], Sequence[int]], width: float, taxonomy: Taxonomy):
        self.encode, self.width, self.taxonomy = encode, width, taxonomy
        self._paths: dict[str, list[tuple[int, ...]]] = {}  # by the key that scores stand under

    def labels(self, answer: str, score: float, level: int) -> dict[int, dict[int, float]]:
        """Place of a token in the answer -> token -> its probability there; places where one is certain are left out.

        Raises InputError for an answer that does not end with this score as ``cprt.answers.render`` writes it.
        """
        found, tokens = _ANSWER.match(answer), list(self.encode(answer))
        if found is None:
            raise InputError(f"an answer does not end with a score of three decimals: {answer[-60:]!r}")
        paths = self._scores(found["key"])
        true = paths[SCORES.index(found["number"])]
        ending = list(self.encode("{" + found["key"] + found["number"] + "}"))
        place = (
            len(tokens) - len(ending) + next(i for i in range(len(ending)) if tuple(ending[i:][: len(true)]) == true)
        )
        chances, possible = near(score, level, self.width, self.taxonomy), np.ones(len(SCORES), dtype=bool)
        if not chances[SCORES.index(found["number"])]:
            raise InputError(f"an answer says {found['number']}, which does not fit score {score} of level {level}")
        labels: dict[int, dict[int, float]] = {}
        for step, token in enumerate(true):
            following = np.array([path[step] if step < len(path) else -1 for path in paths])
            mass = {
                int(one): float(chances[possible & (following == one)].sum())
                for one in np.unique(following[possible & (chances > 0)])
            }
            if len(mass) > 1:
                total = sum(mass.values())
                labels[place + step] = {one: share / total for one, share in mass.items()}
            possible &= following == token
        return labels

    def _scores(self, key: str) -> list[tuple[int, ...]]:
        """The tokens of each score from where numbers part."""
        if key not in self._paths:
            paths = dict(zip(NUMBERS, ScoreTree.build(self.encode, "{" + key).paths, strict=True))
            self._paths[key] = [paths[text] for text in SCORES]
        return self._paths[key]
