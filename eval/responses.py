"""What a kept response to a judge's prompt means: status, text, and what was read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cprt.answers import Answer, parse
from cprt.models.spec import Response
from cprt.taxonomy import Taxonomy


@dataclass(frozen=True)
class Outcome:
    """``status`` is ok, unparsed, refused or error; ``answer`` holds figures only where it is ok."""

    status: str
    text: str | None
    answer: Answer
    error: str | None


def read(row: Mapping[str, Any] | None, max_new_tokens: int, taxonomy: Taxonomy) -> Outcome:
    """Read a row of the answer cache; None stands for a request that was never asked."""
    nothing = Answer("unparsed")
    response = Response(error="not asked: the run stopped before") if row is None else Response.read(row)
    if response.text is None:
        return Outcome("error", None, nothing, response.error)
    if response.refused:
        return Outcome("refused", response.text, nothing, f"the endpoint refused ({response.finish})")
    if not response.complete:  # "0.71" may be the beginning of "0.719"
        return Outcome("unparsed", response.text, nothing, f"cut off at {max_new_tokens} tokens")
    answer = parse(response.text, taxonomy)
    return Outcome(answer.status, response.text, answer, None)
