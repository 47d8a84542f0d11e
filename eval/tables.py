"""A table as CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cprt.files import write_text
from cprt.tables import write_csv

Cell = str | int | float | None

_TEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"–": "--", "→": r"$\rightarrow$", "§": r"\S"}
)


@dataclass(frozen=True)
class Table:
    """A table as it is written. ``rows`` are as wide as ``columns``; None is a dash."""

    name: str
    caption: str
    columns: list[str]
    rows: list[list[Cell]]


def beside(ours: float | None, published: float | None, digits: int) -> list[Cell]:
    """A figure of ours, the paper's, and the difference."""
    difference = None if ours is None or published is None else ours - published
    return [rounded(ours, digits), published, rounded(difference, digits)]


def rounded(value: float | None, digits: int) -> float | None:
    """A figure as tables have it; None stays None."""
    return None if value is None else round(value, digits)


def write_table(path: Path, table: Table) -> None:
    """Write ``path`` with the endings .csv, .tex and .md."""
    write_csv(path.with_name(f"{path.name}.csv"), table.columns, table.rows)
    write_text(path.with_name(f"{path.name}.tex"), latex(table))
    write_text(path.with_name(f"{path.name}.md"), markdown(table))


def markdown(table: Table) -> str:
    """With bars in cells escaped."""
    head, *rows = ([cell.replace("|", "\\|") for cell in line] for line in _texts(table))
    marks = ["---:" if numeric else "---" for numeric in _are_numeric(table)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, marks, *rows])


def latex(table: Table) -> str:
    r"""A booktabs tabular, for \input."""
    alignment = "".join("r" if numeric else "l" for numeric in _are_numeric(table))
    head, *rows = (" & ".join(cell.translate(_TEX) for cell in line) + r" \\" for line in _texts(table))
    body = "\n".join([r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
    return f"% {table.caption}\n\\begin{{tabular}}{{{alignment}}}\n{body}\n\\end{{tabular}}\n"


def _texts(table: Table) -> list[list[str]]:
    """The header and the rows as they are shown."""
    return [table.columns, *(["–" if cell is None else str(cell) for cell in row] for row in table.rows)]


def _are_numeric(table: Table) -> list[bool]:
    """Which columns hold numbers alone."""
    columns = zip(*_texts(table), strict=True)
    return [all(re.fullmatch(r"–|-?\d+(\.\d+)?", cell) for cell in cells) for _, *cells in columns]
