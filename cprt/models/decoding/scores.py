"""From what a model finds probable to a score: the distribution over the scores 0.000 to 1.000, its mean and median.

A greedy answer is the one most probable string. Its neighbours carry information too, and a tie between two scores far
apart shows only in them. The distribution comes from a local model's logits (``score_tree``), or, of an
endpoint, from the alternatives it lists along its answer. Both are conditional on the text before the score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCORES = tuple(f"{thousandths / 1000:.3f}" for thousandths in range(1001))
SCORE_LEAD_IN = '{"score": '  # how an answer of target "score" begins
LEAST = 1e-8  # what is less probable is not kept

_NUMBER = re.compile(r"[01](?:\.[0-9]*)?")
_LONGEST = len(SCORES[0])  # characters of a score; what follows them is not told apart


def stated_lead_in(text: str, score_key: str = "score") -> str | None:
    """An answer's text up to the number it states as its (last) score; None where it states none in JSON."""
    found = [match.end() for match in re.finditer(rf'"{re.escape(score_key)}"\s*:\s*(?=[0-9.])', text)]
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


def from_top_logprobs(entries: Sequence[Mapping[str, Any]], score_key: str = "score") -> dict[str, float] | None:
    """Score -> probability from an endpoint's ``logprobs``: a token each, with ``top_logprobs`` as its alternatives.

    Only the way that the answer took is known. An alternative that leaves it in the middle of the number ("0.6" where
    the answer goes on with 0.71) is spread evenly over the scores it can become; a number that ends earlier ("0.7}")
    counts as itself, one with more decimals as its first three. What the endpoint did not list is missing from the sum.
    None where the answer states no score in JSON or the entries cannot be read.
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
    lead_in = stated_lead_in(text, score_key)
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
            if path[1] or len(path[0]) == _LONGEST:
                probabilities[_completions(path)] += reached
                break
        before = after
    else:  # the answer ends with its number
        if (path := _beginning(text, lead_in)) is not None:
            probabilities[_completions((path[0], True))] += reached
    return kept(probabilities)


def _beginning(text: str, lead_in: str) -> tuple[str, bool] | None:
    """How a number begins behind the lead-in, and whether it ends there; None where no score begins."""
    if not text.startswith(lead_in):
        return None
    match = _NUMBER.match(text, len(lead_in))
    if match is None or not 0 <= float(match[0]) <= 1:
        return None
    number, following = match[0][:_LONGEST], text[match.end() : match.end() + 1]
    if following.isdigit() or following == "." or (following and number.endswith(".")):
        return None  # 10, 0.7.1, or a point without decimals: no score
    return number, following != "" or len(match[0]) > _LONGEST


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


def kept(probabilities: NDArray[np.float64]) -> dict[str, float]:
    """(1001,) probabilities as answers keep them, by score: what is less probable than ``LEAST`` is left out."""
    return {score: value for score, value in zip(SCORES, probabilities.tolist(), strict=True) if value >= LEAST}
