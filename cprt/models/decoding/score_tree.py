"""How probable a local model finds every score: all numbers that it could write go through the model at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cprt.models.decoding.lookahead import Reading, TokenTree, look_ahead
from cprt.models.decoding.scores import SCORE_LEAD_IN, SCORES, kept, stated_lead_in

if TYPE_CHECKING:
    import torch

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

    ``paths``: for each of ``NUMBERS``, the tokens that the tokenizer itself gives it, from where the numbers part.
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
    def steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """(numbers, longest) nodes and next tokens on the way to each number, and which of these steps there are."""
        longest = max(map(len, self.paths))
        nodes, tokens = (np.zeros((len(self.paths), longest), dtype=np.int64) for _ in range(2))
        exists = np.zeros(nodes.shape, dtype=bool)
        for row, path in enumerate(self.paths):
            nodes[row, : len(path)] = [self.tree.nodes[path[:length]] for length in range(len(path))]
            tokens[row, : len(path)], exists[row, : len(path)] = path, True
        return nodes, tokens, exists

    def probabilities(self, steps: NDArray[np.floating[Any]], going_on: NDArray[np.float64]) -> NDArray[np.float64]:
        """(1001,) probabilities of the scores, from log probabilities of their ``steps``.

        A number of three decimals counts whatever follows, a shorter one when no digit and no point does:
        ``going_on`` (nodes or more,) is how probable one is.
        """
        written = np.exp(np.where(self.steps[2], steps, 0.0).sum(axis=1))
        for row, (path, number) in enumerate(zip(self.paths, NUMBERS, strict=True)):
            if _can_go_on(number):
                written[row] *= max(0.0, 1 - going_on[self.tree.nodes[path]])
        return np.bincount(_THOUSANDTHS, weights=written, minlength=len(SCORES)).astype(np.float64)


def _can_go_on(number: str) -> bool:
    return len(number.partition(".")[2]) < DECIMALS


_THOUSANDTHS = np.array([round(float(number) * 1000) for number in NUMBERS])


def widest(device: torch.device) -> torch.dtype:
    """The most precise numbers that a device adds: Apple's have no doubles."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64


class ScoreReader:
    """Distributions over scores of one model, whose processor has ``tokenizer``."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._trees: dict[str, ScoreTree] = {}
        self._continues: dict[tuple[int, Any], Any] = {}  # size of the vocabulary, device -> tokens

    def lead(self, lead_in: str) -> tuple[tuple[int, ...], ScoreTree]:
        """The tokens of a lead-in up to where the scores behind it part, and their tree."""
        tree = self._tree(lead_in)
        return tuple(tree.lead(self.encode, lead_in)), tree

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def distribution(self, tree: ScoreTree, logits: Any) -> dict[str, float]:
        """Score -> probability, from (nodes, V) logits of what comes behind each node of a tree."""
        import torch

        log_probabilities = logits.float().log_softmax(-1)
        nodes, tokens = (torch.from_numpy(index).to(logits.device) for index in tree.steps[:2])
        going_on = log_probabilities[:, self._going_on(logits)].to(widest(logits.device)).exp().sum(1)
        return kept(tree.probabilities(log_probabilities[nodes, tokens].cpu().numpy(), going_on.cpu().numpy()))

    def _tree(self, lead_in: str) -> ScoreTree:
        """The tree of scores behind a lead-in. How its text is cut into tokens depends on its last words alone."""
        found = _KEY.search(lead_in)
        end = found[0] if found else lead_in
        if end not in self._trees:
            self._trees[end] = ScoreTree.build(self.encode, "{" + end)
        return self._trees[end]

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _going_on(self, logits: Any) -> Any:
        """The tokens that begin with a digit or a point, on the device of (..., V) logits."""
        import torch

        of = logits.shape[-1], logits.device
        if of not in self._continues:  # once: it takes as long as a photo
            tokens = self._tokenizer.convert_ids_to_tokens(range(min(len(self._tokenizer), logits.shape[-1])))
            found = [number for number, token in enumerate(tokens) if token[:1] in tuple("0123456789.")]
            self._continues[of] = torch.tensor(found, dtype=torch.int64, device=logits.device)
        return self._continues[of]


class ScoreLook:
    """How probable each score is in each row of a batch; read in passing where an answer comes to its score.

    ``lead_in``: the text before the scores; an empty one stands for the answer's own text up to its score.
    """

    def __init__(self, reader: ScoreReader, lead_in: str):
        self._reader, self._lead_in = reader, lead_in
        self._read: dict[int, tuple[str, int, tuple[int, ...], ScoreTree]] = {}
        self._found: dict[int, tuple[str, dict[str, float]]] = {}  # row -> lead-in, probabilities behind it

    def paths(self, row: int, written: Sequence[int], forced: Sequence[int]) -> list[tuple[int, ...]]:
        """What to read ahead behind an answer so far: every score, if it most likely comes to its own.

        ``forced``: what the answer most likely goes on with.
        """
        text = self._lead_in if not written else ""
        if not self._lead_in:
            text = self._reader.text([*written, *forced])
            if stated_lead_in(text + NUMBERS[0]) != text:
                return []
        if not text:
            return []
        lead, tree = self._reader.lead(text)
        if lead[: len(written)] != tuple(written):  # the answer is cut into other tokens
            return []
        self._read[row] = text, len(written), lead, tree
        return [lead[len(written) :] + path for path in tree.tree.nodes]

    def take(self, row: int, written: Sequence[int], tree: TokenTree, logits: Any, first: int) -> None:
        """Keep what was read. ``written``: the answer now; ``tree``, ``logits``: of the pass (``Reading.read``)."""
        if row not in self._read:
            return
        text, begun, lead, scores = self._read.pop(row)
        if self._lead_in or tuple(written[: len(lead)]) == lead:
            before = tuple(written[begun - 1 : begun]) if begun else ()  # read in the same pass
            nodes = [tree.nodes[before + lead[begun:] + path] - first for path in scores.tree.nodes]
            self._found[row] = text, self._reader.distribution(scores, logits[nodes])

    def distributions(self, reading: Reading, answers: Sequence[str]) -> list[dict[str, float] | None]:
        """The probability of every score; None for a row whose answer states none where its own is to lead in."""
        lead_ins = [self._lead_in or stated_lead_in(answer) for answer in answers]
        found = [self._found.get(row, (None, None)) for row in range(len(answers))]
        missing = [lead_in is not None and lead_in != read for lead_in, (read, _) in zip(lead_ins, found, strict=True)]
        values = [values for _, values in found]
        if any(missing):
            # Rows that have theirs look at some all the same, so that the batch stays in one piece.
            looks = [self._reader.lead(lead_in or SCORE_LEAD_IN) for lead_in in lead_ins]
            logits = look_ahead(reading, [lead for lead, _ in looks], [tree.tree for _, tree in looks])
            for row, (_, tree) in enumerate(looks):
                if missing[row]:
                    values[row] = self._reader.distribution(tree, logits[row])
        return [None if lead_in is None else value for lead_in, value in zip(lead_ins, values, strict=True)]
