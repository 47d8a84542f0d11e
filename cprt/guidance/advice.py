"""Which attributes of a photo to hide: what its score would be without them, by the exact function (paper 3.3).

Severity grows with every attribute and compares counts level by level, the most severe level first. Of all ways to hide
k attributes, taking them from the most severe level downwards therefore leaves the least score. Attributes of one level
weigh the same, so that any of them may go first: the taxonomy's order decides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cprt.scoring import Severity, severity
from cprt.taxonomy import LEVELS, Taxonomy


@dataclass(frozen=True)
class Step:
    """Hide ``key`` as well; ``score`` and ``level`` of what is then left."""

    key: str
    score: float
    level: int


def compose(keys: Collection[str], taxonomy: Taxonomy | None = None) -> Severity:
    """Severity of a photo in which exactly the attributes ``keys`` are present. Raises ValueError on an unknown key."""
    taxonomy = taxonomy or Taxonomy.default()
    unknown = set(keys) - set(taxonomy.keys)
    if unknown:
        raise ValueError(f"attribute {min(unknown)!r} is not in the taxonomy")
    present = [attribute.level for attribute in taxonomy.attributes if attribute.key in keys]
    return severity([present.count(level) for level in LEVELS], taxonomy)


def without_each(keys: Collection[str], taxonomy: Taxonomy | None = None) -> dict[str, Severity]:
    """For each of ``keys``, in the taxonomy's order, what the severity would be if it alone were hidden."""
    taxonomy = taxonomy or Taxonomy.default()
    return {key: compose(set(keys) - {key}, taxonomy) for key in taxonomy.keys if key in keys}


def hide_in_order(
    keys: Collection[str],
    until_level: int | None = None,
    until_score: float | None = None,
    taxonomy: Taxonomy | None = None,
) -> list[Step]:
    """The fewest attributes to hide until the level is ``until_level`` or milder and the score below ``until_score``.

    Each step leaves the least score that hiding so many attributes can. With neither goal the level is to become milder
    by one. Empty where the goal is met from the start, as it always is at level 4 without a goal.

    Raises ValueError on an unknown key, a level outside 1 to 4, or a score that cannot be undercut.
    """
    taxonomy = taxonomy or Taxonomy.default()
    left, now = set(keys), compose(keys, taxonomy)
    until_level = goal(now.level, until_level, until_score)
    steps: list[Step] = []
    for key in taxonomy.keys:  # the most severe level first
        if reached(now.level, now.score, until_level, until_score):
            break
        if key in left:
            left.remove(key)
            now = compose(left, taxonomy)
            steps.append(Step(key, now.score, now.level))
    return steps


def goal(now: int, until_level: int | None, until_score: float | None) -> int | None:
    """The level to reach from level ``now``: as given, milder by one where nothing is given, None for a score alone.

    Raises ValueError for a level outside 1 to 4, or a score that cannot be undercut.
    """
    if until_level is not None and until_level not in LEVELS:
        raise ValueError(f"until_level must be 1, 2, 3 or 4, not {until_level}")
    if until_score is not None and not 0 < until_score <= 1:
        raise ValueError(f"until_score must be more than 0 and at most 1, not {until_score}")
    return min(now + 1, LEVELS[-1]) if until_level is None and until_score is None else until_level


def reached(level: int, score: float, until_level: int | None, until_score: float | None) -> bool:
    """Whether level and score are as mild as they are to be."""
    return (until_level is None or level >= until_level) and (until_score is None or score < until_score)
