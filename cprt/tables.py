"""Tables as CSV: one strict reader and one writer for every file of that form (RFC 4180, UTF-8)."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_text, write_text

csv.field_size_limit(2**31 - 1)  # of the whole process; by default 128 KiB, and a model's answer may be longer


@dataclass(frozen=True)
class Table:
    """A CSV file as it is read, before anybody says which columns it needs."""

    path: str | Path
    line: int  # of the header
    columns: list[str]  # names in lower case, without spaces around them
    cells: list[tuple[int, list[str]]]  # (line on which it starts, cells without blanks around them) of every row below

    @property
    def rows(self) -> list[tuple[int, dict[str, str]]]:
        """(line, column -> cell) of every row. Raises InputError for one that is not as wide as the header."""
        for line, cells in self.cells:
            if len(cells) != len(self.columns):
                raise InputError.at(self.path, f"has {len(cells)} cells, the header {len(self.columns)}", line)
        return [(line, dict(zip(self.columns, cells, strict=True))) for line, cells in self.cells]

    def fail(self, column: str, message: str) -> InputError:
        """An error about a column as such."""
        return InputError.at(self.path, message, self.line, column)

    def need(
        self, needed: Collection[str], known: Collection[str] | None = None, unknown: str = "is not a known column"
    ) -> list[tuple[int, dict[str, str]]]:
        """The rows, at least one. Raises InputError for a column of ``needed`` that is missing or there twice.

        ``known`` are those that may be there too: then any other is an error, which says ``unknown``. None: columns
        that nobody needs do not matter.
        """
        for column in self.columns:
            if known is not None and column not in needed and column not in known:
                raise self.fail(column, unknown)
            if column and self.columns.count(column) > 1:
                raise self.fail(column, "is there twice")
        for column in needed:
            if column not in self.columns:
                raise self.fail(column, f"is missing from the header ({', '.join(self.columns)})")
        if not self.cells:
            raise InputError.at(self.path, "has no rows")
        return self.rows


def read_csv(path: str | Path, aliases: Mapping[str, str] | None = None) -> Table:
    """A CSV file. A line whose cells are all blank is no row and no header, wherever it stands.

    ``aliases`` maps other spellings of column names to the names. Raises InputError that names the line: broken
    quotes, NUL characters, a file without a header.
    """
    text = read_text(path)
    if "\0" in text:
        raise InputError.at(path, "not valid CSV: holds a NUL character", text.count("\n", 0, text.index("\0")) + 1)
    names = {other.lower(): name for other, name in (aliases or {}).items()}
    table: Table | None = None
    reader, end = csv.reader(io.StringIO(text, newline=""), strict=True), 0
    try:
        for cells in reader:
            line, end = end + 1, reader.line_num
            if not any(map(str.strip, cells)):
                continue
            cells = [cell.strip(" \t") for cell in cells]
            if table is None:
                _check_header(path, line, cells)
                table = Table(path, line, [names.get(cell.lower(), cell.lower()) for cell in cells], [])
            else:
                table.cells.append((line, cells))
    except csv.Error as error:
        raise InputError.at(path, f"not valid CSV: {error}", end + 1) from error
    if table is None:
        raise InputError.at(path, "has no rows")
    return table


def _check_header(path: str | Path, line: int, cells: Sequence[str]) -> None:
    """Raises InputError for what is no header of a CSV file, and likely meant."""
    if cells[0][:1] in ("[", "{"):
        raise InputError.at(path, "is JSON, not CSV", line)
    for other, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) == 1 and other in cells[0]:
            raise InputError.at(
                path, f"its columns are parted by {name}: save it with commas, and 0.5 with a point", line
            )


def write_csv(path: str | Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table, or nothing. Lines end in CRLF; cells with commas, quotes or line breaks are quoted."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header, *rows])
    write_text(path, text.getvalue())
