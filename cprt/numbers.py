"""What counts as a number, in a text and in JSON: finite, and written in plain ASCII decimals."""

from __future__ import annotations

import math
import re
from typing import Any

_WHOLE = r"[+-]?(?:0|[1-9][0-9]*)"
_NUMBER = re.compile(rf"(?:{_WHOLE}(?:\.[0-9]*)?|[+-]?\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_DIGITS, _LONGEST = 19, 400  # of a whole number in 64 bits; of any number


def number(text: str) -> float:
    """The number that a text states, such as 3, -0.5, .5 or 1e-5.

    Raises ValueError for what ``float`` would take too: 0_1, nan, inf, other scripts' digits, and what is too large.
    """
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def whole(text: str) -> int:
    """The whole number of at most 64 bits that a text states. Raises ValueError, also for 1.0, 007, 0_1 and 0x1."""
    if len(text) > _MOST_DIGITS + 1 or not re.fullmatch(_WHOLE, text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def is_number(value: Any) -> bool:
    """A finite JSON number; true and false are none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1023  # as far as a float goes
    return isinstance(value, float) and math.isfinite(value)
