"""Rating sheets that people fill in: who gets what, and whether anybody has begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cprt.errors import InputError
from cprt.tables import read_csv


def assign(items: int, people: int, each: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """For one of ``people`` after another, the ``each`` items that fewest have so far, ties at random.

    Nobody gets an item twice, and items get equally many people, give or take one.
    """
    seen = np.zeros(items, dtype=np.int64)
    for _ in range(people):
        own = np.lexsort((rng.random(items), seen))[:each]
        seen[own] += 1
        yield own.tolist()


def check_unfilled(folder: Path, first: int) -> None:
    """Raises InputError where a sheet in ``folder`` has an answer, in column number ``first`` or behind it."""
    for path in sorted(folder.glob("*.csv")):
        if any(any(cells[first:]) for _, cells in read_csv(path).cells):
            raise InputError.at(path, "has answers in it; write new sheets to another --out")
