"""Figures, counts, texts and tables in words, for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 photo``, ``3,000 photos``; ``many`` where it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def show(value: float | None, interval: Sequence[float] | None = None, form: str = ".3f") -> str:
    """``0.041 [-0.006, 0.089]``, by ``form`` ``.1%``: ``4.1% [-0.6, 8.9]``; a dash for what is undefined, never 0.

    No zero is negative.
    """
    form = form.replace(".", "z.")
    if value is None:
        return "-"
    bounds = ", ".join(format(bound, form).rstrip("%") for bound in interval or ())
    return format(value, form) + (f" [{bounds}]" if bounds else "")


def cut(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def first_few(names: Sequence[str]) -> str:
    """``a, b, c, d, e, ...``"""
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of as many cells each, in columns as wide as they need: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    return "\n".join("  ".join(line).rstrip() for line in lines)
