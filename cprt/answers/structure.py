"""The form that an answer is held to when answers are structured: what the prompts ask for, letter by letter.

A model that is held to it can write nothing else, so that every answer can be read. One list of fields makes both the
regular expression, for a model that runs here, and the JSON schema, for an endpoint. A schema cannot say that the keys
of a list stand in the taxonomy's order, each at most once; what an endpoint writes is read as any other answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cprt.answers.thinking import without_thinking
from cprt.taxonomy import LEVELS, Taxonomy

SCORE = r"(?:0\.[0-9]{3}|1\.000)"
REASON = 60  # characters of an annotator's reason, which is asked for in a few words


@dataclass(frozen=True)
class Structure:
    """The form of an answer. ``regex`` matches it as a whole; ``schema`` says the same, but for order and spaces."""

    regex: str
    schema: dict[str, Any]
    longest: int  # characters of the longest answer
    keys: tuple[str, ...] = ()  # attributes that a list in it may name, in order

    def holds(self, text: str) -> bool:
        """Whether a whole answer is what an endpoint that keeps to ``schema`` can have written, thoughts apart.

        Bounds of numbers are left out of account: some engines do not hold to them, and the answer's reader does.
        """
        try:
            answer = json.loads(without_thinking(text) or "")
        except (ValueError, RecursionError):
            return False
        fields = self.schema["properties"]
        return (
            isinstance(answer, dict)
            and answer.keys() == fields.keys()
            and all(map(_fits, answer.values(), fields.values()))
        )


def _fits(value: Any, field: dict[str, Any]) -> bool:
    """Whether a value is of the type that a field of the schema names, and one of those that it lists."""
    if field["type"] == "array":
        return isinstance(value, list) and all(_fits(item, field["items"]) for item in value)
    kinds: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}
    of_type = isinstance(value, kinds[field["type"]]) and not isinstance(value, bool)
    return of_type and value in field.get("enum", [value])


def structure(target: str, taxonomy: Taxonomy, score_key: str = "score", *, in_order: bool = True) -> Structure:
    """The form of the answers that ``cprt.answers.render`` writes for ``target``, whatever they claim.

    With ``in_order`` False keys may come in any order and again, as a model writes them that is not held to a form.
    """
    fields: list[tuple[str, str, dict[str, Any]]] = []
    keys: tuple[str, ...] = ()
    if target == "attributes":
        keys = taxonomy.keys
        listed = {"type": "array", "items": {"type": "string", "enum": list(keys)}}
        fields = [
            ("attributes", rf"\[{_some(keys) if in_order else _any(keys)}\]", listed),
            ("level", "[1-4]", {"type": "integer", "enum": list(LEVELS)}),
        ]
    fields.append((score_key, SCORE, {"type": "number", "minimum": 0, "maximum": 1}))
    schema = {
        "type": "object",
        "properties": {name: of_field for name, _, of_field in fields},
        "required": [name for name, _, _ in fields],
        "additionalProperties": False,
    }
    inside = ", ".join(f'"{name}": {regex}' for name, regex, _ in fields)
    longest = sum(len(name) + len('"": , 0.000') for name, _, _ in fields) + sum(len(key) + 4 for key in keys)
    return Structure(rf"\{{{inside}\}}", schema, longest, keys)


def labels_structure(taxonomy: Taxonomy) -> Structure:
    """The form of an annotator's labels: every key of the taxonomy, in order, with 0, 0.5 or 1."""
    inside = ", ".join(rf'"{key}": (?:0|0\.5|1)' for key in taxonomy.keys)
    schema = {
        "type": "object",
        "properties": {key: {"type": "number", "enum": [0, 0.5, 1]} for key in taxonomy.keys},
        "required": list(taxonomy.keys),
        "additionalProperties": False,
    }
    return Structure(rf"\{{{inside}\}}", schema, sum(len(key) + len('"": 0.5, ') for key in taxonomy.keys))


def reasons_structure(taxonomy: Taxonomy) -> Structure:
    """The form of what an annotator says of a photo: a line for every key, in order. No schema says this."""
    lines = r"\n".join(rf"{key}: (?:yes|no|unclear) - [^\n]{{1,{REASON}}}" for key in taxonomy.keys)
    return Structure(lines, {}, sum(len(key) + len(": unclear - \n") + REASON for key in taxonomy.keys))


def _some(keys: Sequence[str]) -> str:
    """A regular expression of any of the keys in quotes, in their order, each at most once, with commas between."""
    chains = [
        f'"{first}"' + "".join(f'(?:, "{later}")?' for later in keys[place:]) for place, first in enumerate(keys, 1)
    ]
    return f"(?:{'|'.join(chains)})?"


def _any(keys: Sequence[str]) -> str:
    key = f'"(?:{"|".join(keys)})"'
    return f"(?:{key}(?:, {key})*)?"
