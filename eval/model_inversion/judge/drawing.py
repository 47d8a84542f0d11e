"""The panel that shows A beside B, in the paper's layout.

A row of 224-pixel tiles, A and B apart by 100 pixels, captions below, the question in red at the bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from cprt.errors import InputError

TILE, GAP, CAPTION, LINE = 224, 100, 50, 44  # pixels; LINE: of the question
_FONT = 30


def draw(a: Image.Image, b: Sequence[Image.Image], question: str, a_first: bool = True) -> Image.Image:
    """The panel of tile A and tiles B, each TILE x TILE."""
    panel = _captions(question, len(b), a_first).copy()
    before_gap = 1 if a_first else len(b)
    for number, tile in enumerate([a, *b] if a_first else [*b, a]):
        panel.paste(tile, (number * TILE + (GAP if number >= before_gap else 0), 0))
    return panel


@lru_cache(64)
def _captions(question: str, n: int, a_first: bool) -> Image.Image:
    """The panel without its tiles: all queries of a set-up share it."""
    font = ImageFont.load_default(_FONT)
    width = (n + 1) * TILE + GAP
    lines = _wrap(question, font, width - 20)
    panel = Image.new("RGB", (width, TILE + CAPTION + LINE * len(lines) + 6), "white")
    pen = ImageDraw.Draw(panel)
    a, b = TILE / 2, TILE + GAP + n * TILE / 2
    middle = TILE + CAPTION / 2
    pen.text((a if a_first else width - a, middle), "Image A", "black", font, anchor="mm")
    pen.text((b if a_first else width - b, middle), "Set of Images B", "black", font, anchor="mm")
    for number, line in enumerate(lines):
        pen.text((width / 2, TILE + CAPTION + LINE * (number + 0.5)), line, "red", font, anchor="mm")
    return panel


def _wrap(text: str, font: Any, width: float) -> list[str]:
    """Lines of at most so many pixels, as far as words allow."""
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def check_drawable(question: str) -> None:
    """The font that Pillow brings has Latin letters only and would draw boxes for others."""
    try:
        question.encode("latin-1")
    except UnicodeEncodeError as error:
        how = "word it in them, or set --layout separate"
        raise InputError(f"{question!r} cannot be drawn into a panel, which has Latin letters only; {how}") from error
