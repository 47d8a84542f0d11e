"""How probable a local model finds every score: all numbers that it could write go through the model at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.models.decoding.lookahead import TokenTree, look_ahead
from cprt.models.decoding.scores import SCORE_LEAD_IN, SCORES, kept

_KEY = re.compile(r'"[^"]*"\s*:\s*$')  # the key that a score stands under, at the end of a lead-in
DECIMALS = len(SCORES[0]) - 2
# Every way to write a score with at most three decimals: 0, 0.7, 0.71, 0.712, 1, 1.0 ...
NUMBERS = (
    "0",
    "1",
    *(f"{part / 10**places:.{places}f}" for places in range(1, DECIMALS + 1) for part in range(10**places + 1)),
)


@dataclass(frozen=True)
class ScoreTree:
    """The tokens of all numbers as a tree, whatever a tokenizer makes of them: 0, 0., 0.7 or one token for 712.

    Each number has the tokens that the tokenizer itself gives it; other ways to spell it are not counted.

    Attributes:
        paths: for each of ``NUMBERS``, its tokens from where the numbers part.
    """

    paths: tuple[tuple[int, ...], ...]

    @staticmethod
    def build(encode: Callable[[str], Sequence[int]], lead_in: str) -> ScoreTree:
        """The tree behind ``lead_in``, which may share a token with a number's first characters."""
        encoded = [tuple(encode(lead_in + number)) for number in NUMBERS]
        shared = next(place for place, tokens in enumerate(zip(*encoded, strict=False)) if len(set(tokens)) > 1)
        return ScoreTree(tuple(tokens[shared:] for tokens in encoded))

    def lead(self, encode: Callable[[str], Sequence[int]], lead_in: str) -> list[int]:
        """The tokens of a longer lead-in with the same end, up to where the numbers part."""
        tokens, path = list(encode(lead_in + NUMBERS[0])), list(self.paths[0])
        if tokens[-len(path) :] != path:
            raise ValueError("the lead-in ends otherwise than the tree's")
        return tokens[: -len(path)]

    @cached_property
    def tree(self) -> TokenTree:
        """The nodes are what stands before a further token; a number that can go on is one as well."""
        whole = [path for path, number in zip(self.paths, NUMBERS, strict=True) if _can_go_on(number)]
        return TokenTree([*whole, *(path[:-1] for path in self.paths)])

    @cached_property
    def _steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """(numbers, longest) nodes and next tokens on the way to each number, and which of these steps there are."""
        longest = max(map(len, self.paths))
        nodes, tokens = (np.zeros((len(self.paths), longest), dtype=np.int64) for _ in range(2))
        exists = np.zeros(nodes.shape, dtype=bool)
        for row, path in enumerate(self.paths):
            nodes[row, : len(path)] = [self.tree.nodes[path[:length]] for length in range(len(path))]
            tokens[row, : len(path)], exists[row, : len(path)] = path, True
        return nodes, tokens, exists

    def probabilities(
        self, log_probabilities: NDArray[np.floating[Any]], continues: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """(1001,) probabilities of the scores: that a number is written which reads as one.

        A number of three decimals counts whatever follows, a shorter one when no digit and no point does.

        Args:
            log_probabilities: (nodes or more, V) of what comes next.
            continues: (V,) whether a token goes on with a number.
        """
        nodes, tokens, exists = self._steps
        steps = np.where(exists, log_probabilities[nodes, tokens], 0.0)
        written = np.exp(steps.sum(axis=1))
        going_on = np.exp(log_probabilities[:, continues].astype(np.float64)).sum(axis=1)
        for row, (path, number) in enumerate(zip(self.paths, NUMBERS, strict=True)):
            if _can_go_on(number):
                written[row] *= max(0.0, 1 - going_on[self.tree.nodes[path]])
        return np.bincount(_THOUSANDTHS, weights=written, minlength=len(SCORES)).astype(np.float64)


def _can_go_on(number: str) -> bool:
    return len(number.partition(".")[2]) < DECIMALS


_THOUSANDTHS = np.array([round(float(number) * 1000) for number in NUMBERS])


class ScoreReader:
    """Distributions over scores of one model.

    Args:
        model: as ``transformers`` has it, with an adapter or without; ``base`` the same without.
        tokenizer: of its processor.
    """

    def __init__(self, model: Any, base: Any, tokenizer: Any):
        self._model, self._base, self._tokenizer = model, base, tokenizer
        self._trees: dict[str, ScoreTree] = {}

    def distributions(self, inputs: Any, cache: Any, lead_ins: Sequence[str | None]) -> list[dict[str, float] | None]:
        """The probability of every score after prompt and lead-in; None for a row without a lead-in.

        Args:
            inputs: what ``generate`` was given.
            cache: what it computed of the prompts, for Qwen3-VL.
        """
        # One whose own text leads to no score has one to look at all the same, so that the batch stays in one piece.
        texts = [lead_in or SCORE_LEAD_IN for lead_in in lead_ins]
        trees = [self._tree(text) for text in texts]
        leads = [tree.lead(self._encode, text) for tree, text in zip(trees, texts, strict=True)]
        logits = look_ahead(self._model, self._base, inputs, cache, leads, [tree.tree for tree in trees])
        continues = self._continues(logits.shape[-1])
        return [
            None if lead_in is None else kept(tree.probabilities(row.float().log_softmax(-1).cpu().numpy(), continues))
            for lead_in, tree, row in zip(lead_ins, trees, logits, strict=True)
        ]

    def _tree(self, lead_in: str) -> ScoreTree:
        """The tree of scores behind a lead-in. How its text is cut into tokens depends on its last words alone."""
        found = _KEY.search(lead_in)
        end = found[0] if found else lead_in
        if end not in self._trees:
            self._trees[end] = ScoreTree.build(self._encode, "{" + end)
        return self._trees[end]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _continues(self, size: int) -> NDArray[np.bool_]:
        """(V,) whether a token begins with a digit or a point."""
        tokens = self._tokenizer.convert_ids_to_tokens(range(len(self._tokenizer)))
        going_on = np.zeros(size, dtype=bool)
        going_on[: len(tokens)] = [token[:1] in tuple("0123456789.") for token in tokens[:size]]
        return going_on
