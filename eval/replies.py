"""What a kept reply to a judge's prompt means: status, text, and what was read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cprt.answers import Answer, parse
from cprt.models.spec import Reply
from cprt.taxonomy import Taxonomy


@dataclass(frozen=True)
class Outcome:
    """``status`` is ok, unparsed, refused or error; ``answer`` holds figures only where it is ok."""

    status: str
    text: str | None
    answer: Answer
    error: str | None


def read(row: Mapping[str, Any] | None, max_new_tokens: int, taxonomy: Taxonomy) -> Outcome:
    """Read a row of the answer store; None stands for a question that was never asked."""
    nothing = Answer("unparsed")
    reply = Reply(error="not asked: the run stopped before") if row is None else Reply.read(row)
    if reply.text is None:
        return Outcome("error", None, nothing, reply.error)
    if reply.refused:
        return Outcome("refused", reply.text, nothing, f"the endpoint refused ({reply.finish})")
    if not reply.complete:  # "0.71" may be the beginning of "0.719"
        return Outcome("unparsed", reply.text, nothing, f"cut off at {max_new_tokens} tokens")
    answer = parse(reply.text, taxonomy)
    return Outcome(answer.status, reply.text, answer, None)
