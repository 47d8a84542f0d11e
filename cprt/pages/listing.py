"""A list of many rows, which the page's script sorts, filters, searches, turns over and saves as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# What a cell holds: a text; a number as it is shown ("−0.012"); in a column of pictures one or more places among the
# page's pictures; or what ``cell`` makes. None is empty.
Cell = str | int | list[int] | dict[str, Any] | None
Part = str | Sequence[str]  # a text, or (text, class of the style) or (text, class, link)
Columns = Sequence[tuple["Column", Callable[[Any], Cell]]]  # each with what stands in it of a row


@dataclass(frozen=True)
class Column:
    """One column."""

    head: str
    kind: str = "text"  # or number, level (a number with its colour), id (kept on one line), pictures
    choose: bool = False  # offer its values as a filter
    shown: bool = True  # False: only for filter, search and CSV


@dataclass(frozen=True)
class Listing:
    """One list of a page: of ``rows``, or of those of the list ``like`` whose column ``only[0]`` says ``only[1]``."""

    id: str  # of its table
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]] = ()
    noun: tuple[str, str] = ("photo", "photos")  # what a row is, singular and plural
    sorted_by: int | None = None  # the column by which the rows come sorted, the largest first
    size: int = 50  # rows on one page
    like: str | None = None
    only: tuple[int, str] | None = None


def listing(id: str, rows: Sequence[Any], columns: Columns, **how: Any) -> Listing:
    """A list of rows of any kind; ``how``: further attributes of ``Listing``."""
    content = [[of(row) for _, of in columns] for row in rows]
    return Listing(id, [column for column, _ in columns], content, **how)


def cell(value: str | Sequence[str], *lines: Sequence[Part], picture: int | None = None) -> Cell:
    """A cell shown as ``lines``, and a picture below them.

    Sort, filter, search and CSV take ``value``: a text, or several in a list.
    """
    shown: dict[str, Any] = {"value": value, "lines": [list(line) for line in lines]}
    return shown if picture is None else shown | {"picture": picture}


def level(number: int) -> Part:
    """A level with its colour."""
    return str(number), f"badge level-{number}"
