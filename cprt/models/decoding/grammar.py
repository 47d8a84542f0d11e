"""The form of an answer, by llguidance: a mask over the vocabulary that holds to it, and what comes without a choice.

Shapes: B rows, V of the vocabulary. Torch and llguidance when used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cprt.answers.structure import Structure
from cprt.errors import InputError

_LIKELY = "0."  # how most scores begin


class Grammars:
    """Structures compiled for one tokenizer, the ``size`` of the model's output, and tokens that end an answer."""

    def __init__(self, tokenizer: Any, size: int, ends: Sequence[int]):
        self._tokenizer, self._size, self._ends = tokenizer, max(size, len(tokenizer)), list(ends)
        self._for_tokenizer: Any = None
        self._begin: list[int] = []
        self._compiled: dict[str, Any] = {}

    def hold(self, structure: Structure, rows: int) -> Constrained:
        """What holds ``rows`` rows to a structure. Raises InputError for a tokenizer that none can be compiled for."""
        return Constrained(self._matchers(structure, rows), self._size, self._ends, self._begin)

    def follow(self, structure: Structure, rows: int) -> Drafted | None:
        """What follows ``rows`` rows that are free, as long as they have that form; None where none can be compiled."""
        try:
            return Drafted(self._matchers(structure, rows), self._ends, self._begin)
        except InputError:
            return None

    def _matchers(self, structure: Structure, rows: int) -> list[Any]:
        from llguidance import LLMatcher, hf

        if self._for_tokenizer is None:
            try:
                self._for_tokenizer = hf.from_tokenizer(self._tokenizer, n_vocab=self._size, eos_token=self._ends)
            except ValueError as error:
                raise InputError(f"no structured answers with the model's tokenizer ({error})") from error
            self._begin = self._tokenizer(_LIKELY, add_special_tokens=False)["input_ids"]
        if structure.regex not in self._compiled:
            matcher = LLMatcher(self._for_tokenizer, LLMatcher.grammar_from_regex(structure.regex))
            if matcher.is_error():
                raise InputError(f"the form of structured answers cannot be compiled ({matcher.get_error()[:200]})")
            self._compiled[structure.regex] = matcher
        return [self._compiled[structure.regex].deep_copy() for _ in range(rows)]


class Drafted:
    """Rows whose answers most likely have a form, which drafts them: what they go on with where it leaves no choice."""

    def __init__(self, matchers: Sequence[Any], ends: Sequence[int], likely: Sequence[int]):
        self._matchers, self._ends, self._likely = dict(enumerate(matchers)), ends, likely

    def take(self, row: int, token: int) -> None:
        """A row went on with a token. One that has left the form, or ended, is followed no more."""
        if row in self._matchers and (token in self._ends or not self._matchers[row].try_consume_tokens([token])):
            del self._matchers[row]

    def forced(self, row: int) -> tuple[int, ...]:
        """The tokens that the form goes on with: jump-forward decoding reads them in one pass."""
        return tuple(self._matchers[row].compute_ff_tokens()) if row in self._matchers else ()

    def likely(self, row: int) -> tuple[int, ...]:
        """The same, and how most scores begin where one is next."""
        forced = self.forced(row)
        both = (*forced, *self._likely)
        fits = row in self._matchers and self._matchers[row].validate_tokens(list(both)) == len(both)
        return both if fits else forced


class Constrained(Drafted):
    """Constrained decoding: rows whose answers are held to a form. What does not go on with it gets no probability.

    Attributes:
        log_willing: (B,) log of the probability that the free model gives to its answer, over that which the held one
            does: at each token, its end included, the free probability of all tokens which the form allows there. 0
            says that nothing was forbidden that the model would have written. Where the form leaves no choice of
            letters it allows one way to cut them into tokens.
    """

    def __init__(self, matchers: Sequence[Any], size: int, ends: Sequence[int], likely: Sequence[int]):
        super().__init__(matchers, ends, likely)
        self._size = size
        self.log_willing = [0.0] * len(matchers)

    def allow(self, rows: Sequence[int], scores: Any) -> Any:
        """(rows, V) logits of the next token of some rows -> the same, minus infinity where the form forbids."""
        import torch
        from llguidance import numpy as masks

        bits = masks.allocate_token_bitmask(len(scores), self._size)  # all allowed, as after the end
        for place, row in enumerate(rows):
            if row in self._matchers:
                masks.fill_next_token_bitmask(self._matchers[row], bits, place)
        packed = torch.from_numpy(bits).to(scores.device)
        allowed = (packed[:, :, None] >> torch.arange(32, device=scores.device) & 1).bool().flatten(1)
        held = scores.masked_fill(~allowed[:, : scores.shape[1]], -torch.inf)
        kept = (held.float().logsumexp(-1) - scores.float().logsumexp(-1)).tolist()
        for place, row in enumerate(rows):
            if row in self._matchers:
                self.log_willing[row] += min(0.0, kept[place])
        return held
