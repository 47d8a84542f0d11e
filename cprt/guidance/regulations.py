"""What four privacy laws say about an attribute (paper B.2, Table 4), as data: found by the taxonomy's keys.

Table 4 has 14 rows. Eight of the 22 attributes have none, nor has an attribute that a taxonomy of one's own adds:
these are answered with None, never with law that the paper does not state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cprt.files import read_yaml
from cprt.taxonomy import Taxonomy

_TABLE = Path(__file__).with_name("regulations.yaml")


@dataclass(frozen=True)
class Regulation:
    """One row of Table 4. ``texts`` maps every framework to what it says about ``element``."""

    element: str
    attributes: tuple[str, ...]
    texts: dict[str, str]


@dataclass(frozen=True)
class Regulations:
    """Table 4: its frameworks and rows in the paper's order, and notes on where the paper's tables disagree."""

    frameworks: tuple[str, ...]
    rows: tuple[Regulation, ...]
    notes: tuple[tuple[str, str], ...]  # (attribute key, text)

    @staticmethod
    @cache
    def published() -> Regulations:
        """Table 4 as the paper has it."""
        content = read_yaml(_TABLE)
        frameworks = tuple(content["frameworks"])
        return Regulations(
            frameworks,
            tuple(
                Regulation(row["element"], tuple(row["attributes"]), {name: row[name] for name in frameworks})
                for row in content["rows"]
            ),
            tuple((key, note["text"]) for note in content["notes"] for key in note["attributes"]),
        )


def regulations_of(key: str, taxonomy: Taxonomy | None = None) -> dict[str, str] | None:
    """Framework -> what it says about the attribute ``key``; None for an attribute that Table 4 has no row for.

    Raises ValueError for a key that is not in the taxonomy: a misspelt name must not read as "no law applies".
    """
    _check(key, taxonomy)
    row = next((row for row in Regulations.published().rows if key in row.attributes), None)
    return None if row is None else dict(row.texts)


def notes_of(key: str, taxonomy: Taxonomy | None = None) -> tuple[str, ...]:
    """What to know before relying on the row of ``key``, or on its absence. Raises ValueError as above."""
    _check(key, taxonomy)
    return tuple(text for attribute, text in Regulations.published().notes if attribute == key)


def _check(key: str, taxonomy: Taxonomy | None) -> None:
    if key not in (taxonomy or Taxonomy.default()).keys:
        raise ValueError(f"attribute {key!r} is not in the taxonomy")
