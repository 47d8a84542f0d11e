"""Greedy answers in fewer passes than they have tokens: what most likely comes is read with what has been written.

This is speculative decoding with greedy verification: forms and scores take the place of a drafting model. A guess
counts where it is what greedy decoding writes there, and is dropped where it is not: no answer changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from cprt.models.decoding.grammar import Constrained, Drafted
from cprt.models.decoding.lookahead import Reading, TokenTree
from cprt.models.decoding.score_tree import ScoreLook


def write(
    reading: Reading,
    rows: int,
    ends: Collection[int],
    most: int,
    form: Drafted | None = None,
    scores: ScoreLook | None = None,
    listen: Callable[[Sequence[int], Sequence[int], Any], None] | None = None,
) -> list[list[int]]:
    """The tokens of each row's answer, its end included, ``most`` of them if it has not ended by then.

    Args:
        reading: prompts that nothing has been read behind; ends: tokens that end an answer.
        form: what the answers are guessed to be like, or held to.
        scores: what looks at all scores where an answer comes to its own.
        listen: called at each token with rows, what they go on with, and the logits of that, (rows, V).
    """
    answers: list[list[int]] = [[] for _ in range(rows)]
    unread: list[tuple[int, ...]] = [()] * rows  # what is written and has not been read
    going = list(range(rows))
    while going:
        trees = [TokenTree([])] * rows
        for row in going:
            ahead = [form.likely(row)] if form is not None else []
            if scores is not None:
                ahead += scores.paths(row, answers[row], form.forced(row) if form is not None else ())
            trees[row] = TokenTree([unread[row], *(unread[row] + path for path in ahead)])
        logits, first = reading.read(trees)
        ways, walking = list(unread), going
        while walking:
            nodes = [trees[row].nodes[ways[row]] - first for row in walking]
            of_next = logits[walking, nodes]
            allowed = form.allow(walking, of_next) if isinstance(form, Constrained) else of_next
            tokens = allowed.argmax(-1).tolist()
            if listen is not None:
                listen(walking, tokens, of_next)
            still = []
            for row, token in zip(walking, tokens, strict=True):
                answers[row].append(token)
                if form is not None:
                    form.take(row, token)
                if token in ends or len(answers[row]) == most:
                    unread[row] = ()
                elif (*ways[row], token) in trees[row].nodes:
                    ways[row] += (token,)
                    still.append(row)
                else:
                    unread[row] = (token,)
            walking = still
        if scores is not None:
            for row in going:
                scores.take(row, answers[row], trees[row], logits[row], first)
        ways_down = ([way[:length] for length in range(1, len(way) + 1)] for way in ways)
        reading.take([[tree.nodes[part] for part in way] for tree, way in zip(trees, ways_down, strict=True)])
        going = [row for row in going if unread[row]]
    return answers
