"""Pieces of HTML for pages made of what others wrote: all from a file goes through ``text`` or ``script_json``."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape

from cprt.numbers import is_number

# Control characters, what turns the direction of writing, and halves of surrogate pairs, which UTF-8 cannot hold.
_UNSEEMLY = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def text(value: object) -> str:
    """Anything from a file, safe between tags and inside quotes."""
    return escape(_UNSEEMLY.sub("\ufffd", str(value)))


def isolated(value: object) -> str:
    """The same, kept from changing the direction of what stands beside it."""
    return f"<bdi>{text(value)}</bdi>"


def figure(value: object, sign: str = "") -> str:
    return f"{value:{sign}.3f}".replace("-", "−") if is_number(value) else "–"


def interval(bounds: object, sign: str = "") -> str:
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2 or not all(map(is_number, bounds)):
        return ""
    low, high = (figure(bound, sign) for bound in bounds)
    return f"<small>{low} to {high}</small>"


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def script_json(data: object) -> str:
    """JSON in ASCII that cannot end the element it stands in."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def wide(table: str, name: str, kind: str = "wide") -> str:
    """Scrolls by itself where the screen is narrow, with the keyboard too."""
    return f'<div class="{kind}" role=region tabindex=0 aria-label="{text(name)}">{table}</div>'
