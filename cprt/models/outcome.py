"""What became of a request: the one place where a response, or none, turns into a status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Response

T = TypeVar("T")
K = TypeVar("K")
Status = Literal["ok", "unparsed", "refused", "error"]
Reader = Callable[[str], tuple[Status, T | None]]
"""What a text means to the stage that asked: ok with a value, unparsed, or refused in words."""

UNASKED = "not asked: the run stopped before"

_BEST_FIRST: tuple[Status, ...] = ("ok", "unparsed", "refused", "error")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """Status and value of a request."""

    status: Status
    text: str | None = None  # the model's own words
    value: T | None = None  # what the stage's reader made of them
    error: str | None = None  # why there is nothing to go by, unless the text itself says it
    response: Response | None = None  # what came back; None for a request that was never made


def find_outcome(key: str, cache: ResponseCache, read: Reader[T], spec: ModelSpec) -> Outcome[T]:
    """The outcome of a request, from what is kept.

    Only what failed or was refused is ever asked again, so of several answers to one request the best counts.
    """
    outcomes = [_read(Response.read(row, cache.path), read, spec.max_new_tokens) for row in cache.rows(key)]
    unasked = Outcome[T]("error", error=UNASKED)
    return min(outcomes, key=lambda outcome: _BEST_FIRST.index(outcome.status), default=unasked)


def find_outcomes(keys: Iterable[str], cache: ResponseCache, read: Reader[T], spec: ModelSpec) -> dict[str, Outcome[T]]:
    """``find_outcome`` of every key."""
    return {key: find_outcome(key, cache, read, spec) for key in keys}


def tally(rows: Iterable[tuple[str, str | None]]) -> str:
    """How many of (status, error) ended how, in words; those that were never asked apart from errors."""
    counts = Counter("not asked" if error == UNASKED else status for status, error in rows)
    return ", ".join(f"{counts[name]} {name}" for name in (*_BEST_FIRST, "not asked") if counts[name])


def with_status(outcomes: Mapping[K, Outcome[T]], statuses: Iterable[str]) -> set[K]:
    """The keys of the outcomes with one of ``statuses``."""
    wanted = set(statuses)
    return {key for key, outcome in outcomes.items() if outcome.status in wanted}


def _read(response: Response, read: Reader[T], limit: int | None) -> Outcome[T]:
    if response.text is None:
        return Outcome("error", error=response.error, response=response)
    if response.refused:
        error = f"the endpoint refused ({response.finish})"
        return Outcome("refused", response.text, error=error, response=response)
    if not response.complete:  # "0.71" may be the beginning of "0.719", "No" that of "Not sure"
        error = "cut off at the endpoint's limit" if limit is None else f"cut off at {limit} tokens"
        return Outcome("unparsed", response.text, error=error, response=response)
    status, value = read(response.text)
    return Outcome(status, response.text, value, response=response)
