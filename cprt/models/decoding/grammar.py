"""Generation that is held to the form of an answer, by llguidance: a mask over the vocabulary at every step.

Shapes: B rows, V of the vocabulary. Torch and llguidance when used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cprt.answers.structure import Structure
from cprt.errors import InputError


class Grammars:
    """Structures compiled for one tokenizer.

    Args:
        size: of the vocabulary, as the model's output has it.
        ends: tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, size: int, ends: Sequence[int]):
        self._tokenizer, self._size, self._ends = tokenizer, max(size, len(tokenizer)), list(ends)
        self._for_tokenizer: Any = None
        self._compiled: dict[str, Any] = {}

    def hold(self, structure: Structure, rows: int) -> Held:
        """What holds ``rows`` rows to a structure. Raises InputError for a tokenizer that none can be compiled for."""
        from llguidance import LLMatcher, hf

        if self._for_tokenizer is None:
            try:
                self._for_tokenizer = hf.from_tokenizer(self._tokenizer, n_vocab=self._size, eos_token=self._ends)
            except ValueError as error:
                raise InputError(f"no structured answers with the model's tokenizer ({error})") from error
        if structure.regex not in self._compiled:
            matcher = LLMatcher(self._for_tokenizer, LLMatcher.grammar_from_regex(structure.regex))
            if matcher.is_error():
                raise InputError(f"the form of structured answers cannot be compiled ({matcher.get_error()[:200]})")
            self._compiled[structure.regex] = matcher
        return Held([self._compiled[structure.regex].deep_copy() for _ in range(rows)], self._size, self._ends)


class Held:
    """A logits processor of one ``generate``: what does not go on with the form gets no probability.

    Attributes:
        log_willing: (B,) log of the probability that the free model gives to its answer, over that which the held one
            does. At each token, its end included, that ratio is the free probability of all tokens which the form
            allows there, so that 0 says that nothing was ever forbidden that the model would have written. Where the
            form leaves no choice of letters it allows one way to cut them into tokens.
    """

    def __init__(self, matchers: Sequence[Any], size: int, ends: Sequence[int]):
        self._matchers, self._size, self._ends = dict(enumerate(matchers)), size, ends
        self._begun = False
        self.log_willing = [0.0] * len(matchers)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """(B, L) tokens and (B, V) logits of the next -> the same logits, minus infinity where the form forbids."""
        import torch
        from llguidance import numpy as masks

        if self._begun:
            last = input_ids[:, -1].tolist()
            self._matchers = {row: matcher for row, matcher in self._matchers.items() if last[row] not in self._ends}
            for row, matcher in self._matchers.items():
                matcher.consume_token(last[row])
        self._begun = True
        bits = masks.allocate_token_bitmask(len(scores), self._size)  # all allowed, as after the end
        for row, matcher in self._matchers.items():
            masks.fill_next_token_bitmask(matcher, bits, row)
        packed = torch.from_numpy(bits).to(scores.device)
        allowed = (packed[:, :, None] >> torch.arange(32, device=scores.device) & 1).bool().flatten(1)
        held = scores.masked_fill(~allowed[:, : scores.shape[1]], -torch.inf)
        kept = (held.float().logsumexp(-1) - scores.float().logsumexp(-1)).tolist()
        for row in self._matchers:
            self.log_willing[row] += min(0.0, kept[row])
        return held
