"""The phrases of ``english.yaml`` as regular expressions: what English says around an answer is data."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from cprt.files import read_mapping

_LISTS = read_mapping(Path(__file__).with_name("english.yaml"))


@cache
def any_of(*names: str) -> str:
    """A group that matches any phrase of these lists. Raises ValueError for a phrase that is no pattern by itself."""
    phrases = [_phrase(phrase) for name in names for phrase in " ".join(_LISTS[name].split()).split(" | ")]
    return f"(?:{'|'.join(phrases)})"


def _phrase(text: str) -> str:
    pattern = re.sub(r"\$([a-z_]+)", lambda name: any_of(name[1]), text)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return pattern


def words(*names: str) -> re.Pattern[str]:
    """Any phrase of these lists, as whole words in any case."""
    return re.compile(rf"\b{any_of(*names)}(?!\w)", re.IGNORECASE)
