"""The taxonomy as data: 22 attributes in four levels, the decision tree, and what follows from them (paper 3.2).

A taxonomy of your own is a YAML with any of four keys, applied to the published one::

    remove: [metadata]                    # keys to drop
    attributes:                           # attributes to add
      - {key: voice_print, level: 1, question: "Is a voice print visible (e.g., a spectrogram)?"}  # name: in words
    bands: [0.70, 0.45, 0.20]             # where the bands of levels 1 to 3 begin; that of level 4 begins at 0
    name: CPRT with voice prints

Its weights and level sizes are rederived (Eq. 1); a new attribute stands after the published ones of its level.
``cprt boundaries`` learns bands from labels and writes such a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_mapping
from cprt.values import WORDS, read_fields, ruled

LEVELS = (1, 2, 3, 4)
_PUBLISHED = Path(__file__).with_name("taxonomy.yaml")


@dataclass(frozen=True)
class Attribute:
    """One privacy attribute."""

    key: str = ruled(matches=(r"[a-z][a-z0-9_]*", "a lower_case_name"))  # what files call it
    level: int = ruled(least=1, most=4)  # of severity, 1 is the most severe
    question: str = ruled(matches=WORDS)  # to be answered yes or no
    name: str = ruled("", matches=(WORDS[0] + "|", WORDS[1]))  # what pages call it

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.key.replace("_", " "))


@dataclass(frozen=True)
class Level:
    """One severity level. ``lower_bound`` is where its band of scores begins (paper 3.3)."""

    level: int
    name: str
    meaning: str
    decision: str
    lower_bound: float


@dataclass(frozen=True)
class Taxonomy:
    """Levels 1 to 4 and the attributes, ordered by level and within a level as in Table 5."""

    name: str
    levels: tuple[Level, ...]
    attributes: tuple[Attribute, ...]

    @staticmethod
    @cache
    def default() -> Taxonomy:
        """The published taxonomy."""
        return _parse(read_mapping(_PUBLISHED), _PUBLISHED)

    @staticmethod
    def load(path: str | Path | None = None) -> Taxonomy:
        """The published taxonomy, or its extension by the YAML at ``path``. Raises InputError."""
        if path is None:
            return Taxonomy.default()
        extension, published = read_fields(_Extension, read_mapping(path), path), read_mapping(_PUBLISHED)
        missing = [key for key in extension.remove if key not in Taxonomy.default().keys]
        if missing:
            raise InputError.at(path, f"{missing[0]!r} is not in the published taxonomy", field="remove")
        kept = [row for row in published["attributes"] if row["key"] not in extension.remove]
        merged = {
            "name": extension.name or f"CPRT extended by {Path(path).name}",
            "levels": _with_bands(published["levels"], extension.bands, path),
            "attributes": kept + extension.attributes,
        }
        return _parse(merged, path)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(attribute.key for attribute in self.attributes)

    @cached_property
    def names(self) -> dict[str, str]:
        """Key -> what pages call the attribute."""
        return {attribute.key: attribute.name for attribute in self.attributes}

    @cached_property
    def level_of(self) -> dict[str, int]:
        """Key -> level of the attribute."""
        return {attribute.key: attribute.level for attribute in self.attributes}

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """|A_i| for levels 1 to 4: (3, 10, 5, 4) as published."""
        return tuple(sum(attribute.level == level for attribute in self.attributes) for level in LEVELS)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """w_i = 1 + sum over lower levels of |A_j| w_j, the least weights that Eq. 1 allows: (330, 30, 5, 1)."""
        weights, heaviest_below = [], 0
        for size in reversed(self.sizes):
            weights.append(1 + heaviest_below)
            heaviest_below += size * weights[-1]
        return tuple(reversed(weights))

    @cached_property
    def lower_bounds(self) -> tuple[float, ...]:
        """b_min for levels 1 to 4."""
        return tuple(level.lower_bound for level in self.levels)

    @cached_property
    def bands(self) -> tuple[tuple[float, float], ...]:
        """Where the band of each level begins and ends, levels 1 to 4."""
        return tuple(zip(self.lower_bounds, (1.0, *self.lower_bounds[:-1]), strict=True))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that gives the taxonomy its meaning; recorded with every result."""
        content = [
            [[level.level, level.name, level.meaning, level.decision, level.lower_bound] for level in self.levels],
            [[attribute.key, attribute.level, attribute.question] for attribute in self.attributes],
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @staticmethod
    def decide(q1: bool, q2: bool, q3: bool, q4: bool) -> int | None:
        """The decision tree of Figure 2: the first question answered yes gives the level; None where none is."""
        return next((level for level, yes in zip(LEVELS, (q1, q2, q3, q4), strict=True) if yes), None)


@dataclass(frozen=True)
class _Extension:
    """A user's own file."""

    name: Any = None
    remove: list[Any] = field(default_factory=list)
    attributes: list[Any] = field(default_factory=list)
    bands: list[Any] | None = None


def _with_bands(levels: list[dict[str, Any]], bands: list[Any] | None, path: str | Path) -> list[dict[str, Any]]:
    """The levels with other lower ends of their bands, in thousandths: an answer states three decimals."""
    if bands is None:
        return levels
    ends = [1.0, *bands, 0.0]
    if len(bands) != len(LEVELS) - 1 or any(type(end) not in (int, float) for end in bands):
        raise InputError.at(path, "must be three numbers: where the bands of levels 1 to 3 begin", field="bands")
    if any(round(end, 3) != end for end in bands) or any(high <= low for high, low in pairwise(ends)):
        raise InputError.at(path, "must fall from below 1 to above 0, with at most three decimals", field="bands")
    return [{**level, "lower_bound": float(low)} for level, low in zip(levels, ends[1:], strict=True)]


def _parse(content: Mapping[str, Any], path: str | Path) -> Taxonomy:
    levels = tuple(Level(**row) for row in content["levels"])
    attributes: list[Attribute] = []
    for number, row in enumerate(content["attributes"], start=1):
        within = f"attributes[{number}]."
        attribute = read_fields(Attribute, row, path, within=within)
        if attribute.key in (other.key for other in attributes):
            raise InputError.at(path, f"{attribute.key!r} is there twice", field=f"{within}key")
        attributes.append(attribute)
    if not attributes:
        raise InputError.at(path, "no attribute is left", field="attributes")
    attributes.sort(key=lambda attribute: attribute.level)  # stable: Table 5's order stays within a level
    return Taxonomy(str(content["name"]), levels, tuple(attributes))
