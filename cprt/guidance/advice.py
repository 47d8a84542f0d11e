"""Which attributes of a photo to hide: what its score would be without them, by the exact function (paper 3.3)."""

from __future__ import annotations

from collections.abc import Collection

from cprt.guidance.risk import Risk, Step
from cprt.scoring import Severity, severity
from cprt.taxonomy import LEVELS, Taxonomy


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

    As ``Risk.hide_in_order`` has it, of the one list ``keys``. Severity grows with every attribute and compares counts
    level by level, the most severe level first: of all ways to hide k attributes, these leave the least score.
    """
    taxonomy = taxonomy or Taxonomy.default()
    compose(keys, taxonomy)
    return Risk.read({",".join(keys): 1.0}, taxonomy).hide_in_order(until_level, until_score)
