"""Answers of one evaluation in one or several files: each process of a run on several cards writes its own.

``answers.jsonl`` is the file of a single process, ``answers.0-of-4.jsonl`` that of the first of four. Any process reads
all of them, so that nothing is asked twice whatever number of processes asked it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.models.response_cache import ResponseCache, read_cache

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Shard:
    """Which part of the requests this process asks: ``rank`` of ``world``, as `accelerate launch` says."""

    rank: int = 0
    world: int = 1

    @staticmethod
    def from_environment() -> Shard:
        """From RANK and WORLD_SIZE. Raises InputError where they are no sensible numbers."""
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
            raise InputError(f"RANK={rank} and WORLD_SIZE={world} in the environment do not fit together")
        return Shard(int(rank), int(world))

    def has(self, key: str) -> bool:
        """Whether the request with this key (a hexadecimal digest) is this process's to ask."""
        return int(key[:12], 16) % self.world == self.rank

    @property
    def file(self) -> str:
        return "answers.jsonl" if self.world == 1 else f"answers.{self.rank}-of-{self.world}.jsonl"


class Kept:
    """What this process's cache and the other files hold.

    Only what failed or was refused is ever asked again, so of several answers to one request the best counts.

    Args:
        rank_of: how good an answer is, the lowest best.
    """

    def __init__(self, out: Path, cache: ResponseCache):
        self._cache = cache
        others = sorted(path for path in out.glob("answers*.jsonl") if path.name != cache.path.name)
        self._others = [read_cache(path) for path in others]

    def get(self, key: str, rank_of: Callable[[Row], int]) -> Row | None:
        """The best answer or error kept under ``key``, None when there is neither."""
        every = [self._cache.get(key), *(other.get(key) for other in self._others)]
        found = [row for row in every if row is not None]
        return min(found, key=rank_of) if len(found) > 1 else found[0] if found else None

    def missing(self, keys: Iterable[str]) -> int:
        """How many of the keys have neither an answer nor an error."""
        return sum(self._cache.get(key) is None and not any(key in other for other in self._others) for key in keys)
