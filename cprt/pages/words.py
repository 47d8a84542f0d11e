"""Counts in proper English."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 photo``, ``3,000 photos``; ``many`` where it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
