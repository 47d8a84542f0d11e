"""The JSON object in an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from cprt.answers.prose import leads_in, stands_alone

OBJECT = "\ufffc"  # stands in prose where the object stood
# What may stand beside an answer in its object. Any other key may be a rival, a scale, an error or a transcription.
EXPLANATIONS = frozenset(
    "reason reasons reasoning rationale explanation justification analysis description summary comment comments note "
    "notes confidence certainty".split()
)
_FRAGMENT = re.compile(r"""["']\s{0,9}:|[{}]""")  # `"score": 0.7` whose braces were lost


def split_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """The one object of an answer (keys in lower case; None without any) and the text with OBJECT in its place.

    Raises ValueError where it is cut off, broken, absurdly nested, says a key twice, or is one of several.
    """
    text = text.replace(OBJECT, "")
    start = text.find("{")
    if start < 0:
        if _FRAGMENT.search(text):
            raise ValueError("JSON without its beginning")
        return None, text
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=lambda _: None, strict=False)
    try:
        content, end = decoder.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _FRAGMENT.search(text[:start]) or _FRAGMENT.search(text[end:]):
        raise ValueError("more than one object")
    return content, f"{text[:start]}{OBJECT}{text[end:]}"


def object_stands_alone(text: str) -> bool:
    """Whether the object of a plain text has lines of its own, or ends it after a finished sentence."""
    lines = text.split("\n")
    number = next(number for number, line in enumerate(lines) if OBJECT in line)
    before, _, after = lines[number].partition(OBJECT)
    if after.strip() not in ("", ".", "!"):
        return False
    if not before or leads_in(before.rstrip()):
        return stands_alone(lines, number)
    return number == len(lines) - 1 and before.rstrip()[-1:] in (".", "!", "?")


def explanations(content: dict[str, Any], beside: Collection[str]) -> str:
    """What an object says beyond the keys ``beside``. Raises ValueError for what may be another answer."""
    said: list[str] = []
    for key, value in content.items():
        if key in beside or (key in ("confidence", "certainty") and not isinstance(value, str | list | dict)):
            continue
        parts = value if isinstance(value, list) else [value]
        if key not in EXPLANATIONS or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"{key} may be another answer")
        said += parts
    return "\n".join(said)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        name = key.strip().lower()
        if name in content:
            raise ValueError(f"{name} twice")
        content[name] = value
    return content
