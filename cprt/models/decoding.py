"""From what a model finds probable to a score: the distribution over the scores 0.000 to 1.000, its mean and median.

A greedy answer is the one most probable string. Its neighbours carry information too, and a tie between two scores far
apart shows only in them. The distribution comes from a local model's logits over the tree of all 1,001 strings, or, of
an endpoint, from the alternatives it lists along its answer. Both are conditional on the text before the score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCORES = tuple(f"{thousandths / 1000:.3f}" for thousandths in range(1001))
SCORE_LEAD_IN = '{"score": '  # how an answer of target "score" begins
LEAST = 1e-8  # what is less probable is not kept

_STATED = re.compile(r'"score"\s*:\s*(?=[0-9.])')
_NUMBER = re.compile(r"[01](?:\.[0-9]{0,3})?")


def stated_lead_in(text: str) -> str | None:
    """An answer's text up to the number it states as its (last) score; None where it states none in JSON."""
    found = [match.end() for match in _STATED.finditer(text)]
    return text[: found[-1]] if found else None


@dataclass(frozen=True)
class Summary:
    """What a distribution says. ``mass``: of all that the model could have written, how much is a score.

    ``mean`` and ``median`` are of the distribution given that a score is written, and None where the mass is 0.
    """

    mean: float | None
    median: float | None
    mass: float


def summarise(distribution: Mapping[str, float]) -> Summary:
    """Mean, median (the lower one of two) and mass of score string -> probability."""
    ordered = sorted((float(text), probability) for text, probability in distribution.items())
    mass = math.fsum(probability for _, probability in ordered)
    if mass <= 0:
        return Summary(None, None, 0.0)
    mean = math.fsum(score * probability for score, probability in ordered) / mass
    reached, median = 0.0, ordered[-1][0]
    for score, probability in ordered:
        reached += probability
        if reached >= mass / 2:
            median = score
            break
    return Summary(min(1.0, mean), median, min(1.0, mass))


@dataclass(frozen=True)
class ScoreTree:
    """The tokens of all 1,001 scores as a tree, whatever a tokenizer makes of them: 0, 0., 0.7 or one token for 712.

    Each score has the tokens that the tokenizer itself gives it; other ways to spell it are not counted. The unfinished
    scores are the nodes: node 0 is the lead-in, the others carry a token each.

    Attributes:
        paths: for each of ``SCORES``, its tokens from where the scores part.
    """

    paths: tuple[tuple[int, ...], ...]

    @staticmethod
    def build(encode: Callable[[str], Sequence[int]], lead_in: str) -> ScoreTree:
        """The tree behind ``lead_in``, which may share a token with a score's first characters."""
        encoded = [tuple(encode(lead_in + score)) for score in SCORES]
        shared = next(place for place, tokens in enumerate(zip(*encoded, strict=False)) if len(set(tokens)) > 1)
        return ScoreTree(tuple(tokens[shared:] for tokens in encoded))

    def lead(self, encode: Callable[[str], Sequence[int]], lead_in: str) -> list[int]:
        """The tokens of a longer lead-in with the same end, up to where the scores part."""
        tokens, path = list(encode(lead_in + SCORES[0])), list(self.paths[0])
        if tokens[-len(path) :] != path:
            raise ValueError("the lead-in ends otherwise than the tree's")
        return tokens[: -len(path)]

    @cached_property
    def _nodes(self) -> dict[tuple[int, ...], int]:
        """Path of tokens -> number of the node, parents before children."""
        inner = {path[:length] for path in self.paths for length in range(len(path))}
        return {path: number for number, path in enumerate(sorted(inner, key=lambda path: (len(path), path)))}

    @cached_property
    def tokens(self) -> list[int]:
        """The token of each node but the root."""
        return [path[-1] for path in self._nodes if path]

    @cached_property
    def depths(self) -> list[int]:
        """How many tokens of the score each node but the root has."""
        return [len(path) for path in self._nodes if path]

    @cached_property
    def ancestors(self) -> list[list[int]]:
        """For each node but the root, it and its ancestors but the root, as indices into ``tokens``."""
        return [[self._nodes[path[:length]] - 1 for length in range(1, len(path) + 1)] for path in self._nodes if path]

    @cached_property
    def _steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """(1001, longest) nodes and next tokens on the way to each score, and which of these steps there are."""
        longest = max(map(len, self.paths))
        nodes, tokens = (np.zeros((len(self.paths), longest), dtype=np.int64) for _ in range(2))
        exists = np.zeros(nodes.shape, dtype=bool)
        for row, path in enumerate(self.paths):
            nodes[row, : len(path)] = [self._nodes[path[:length]] for length in range(len(path))]
            tokens[row, : len(path)], exists[row, : len(path)] = path, True
        return nodes, tokens, exists

    def probabilities(self, log_probabilities: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """(1001,) probabilities of the scores from (nodes or more, vocabulary) log-probabilities of what comes next."""
        nodes, tokens, exists = self._steps
        steps = np.where(exists, log_probabilities[nodes, tokens].astype(np.float64), 0.0)
        return np.asarray(np.exp(steps.sum(axis=1)))

    def distribution(self, log_probabilities: NDArray[np.floating[Any]]) -> dict[str, float]:
        """Score -> probability, as answers keep it: what is less probable than ``LEAST`` is left out."""
        return _kept(self.probabilities(log_probabilities))


def from_top_logprobs(entries: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Score -> probability from an endpoint's ``logprobs``: a token each, with ``top_logprobs`` as its alternatives.

    Only the way that the answer took is known. An alternative that leaves it in the middle of the number ("0.6" where
    the answer goes on with 0.71) is spread evenly over the scores it can become; a number that ends earlier ("0.7}")
    counts as itself. What the endpoint did not list is missing from the sum. None where the answer states no score in
    JSON or the entries cannot be read.
    """
    try:
        tokens = [
            (str(entry["token"]), float(entry["logprob"]), list(entry.get("top_logprobs") or [])) for entry in entries
        ]
        alternatives = [
            {str(option["token"]): float(option["logprob"]) for option in options} | {token: logprob}
            for token, logprob, options in tokens
        ]
    except (KeyError, TypeError, ValueError):
        return None
    text = "".join(token for token, _, _ in tokens)
    lead_in = stated_lead_in(text)
    if lead_in is None:
        return None
    probabilities = np.zeros(len(SCORES))
    reached, before = 1.0, ""  # the probability of the way so far, and its text
    for (token, logprob, _), options in zip(tokens, alternatives, strict=True):
        after = before + token
        if len(after) > len(lead_in):
            path = _beginning(after, lead_in)
            for option, its_logprob in options.items():
                number = _beginning(before + option, lead_in)
                if option != token and number is not None:
                    probabilities[_completions(number)] += reached * math.exp(its_logprob) / len(_completions(number))
            reached *= math.exp(min(0.0, logprob))
            if path is None:
                break
            if path[1] or len(path[0]) == 5:
                probabilities[_completions(path)] += reached
                break
        before = after
    return _kept(probabilities)


def _beginning(text: str, lead_in: str) -> tuple[str, bool] | None:
    """How a number begins behind the lead-in, and whether it ends there; None where no score begins."""
    if not text.startswith(lead_in):
        return None
    match = _NUMBER.match(text, len(lead_in))
    if match is None or not 0 <= float(match[0]) <= 1:
        return None
    following = text[match.end() : match.end() + 1]
    if following.isdigit() or following == ".":
        return None  # four decimals, 10, or 0..: no score
    return match[0], following != ""


def _completions(number: tuple[str, bool]) -> list[int]:
    """The scores, in thousandths, that a number stands for: itself where it ends, else all it can become."""
    text, ends = number
    if ends:
        return [round(float(text) * 1000)]
    if text.startswith("1"):
        return [1000]
    decimals = text[2:]
    low = int(decimals.ljust(3, "0"))
    return list(range(low, low + 10 ** (3 - len(decimals))))


def _kept(probabilities: NDArray[np.float64]) -> dict[str, float]:
    return {
        score: float(probability)
        for score, probability in zip(SCORES, probabilities, strict=True)
        if probability >= LEAST
    }
