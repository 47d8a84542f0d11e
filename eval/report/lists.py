"""The lists of ``report.html``: the largest errors, and photos without a score. Its script makes them sortable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cprt.pages.markup import figure, isolated, text, wide
from eval.report.write import LISTED, ListedRow

_ANSWER = 240  # characters of an answer that are shown
_ON_PAPER = '<p class="note on-paper">On paper: the first 40 rows at most.</p>'


def errors(rows: Sequence[ListedRow], numbers: Mapping[str, str], metrics: Mapping[str, Mapping[str, Any]]) -> str:
    scored = sum(figures["status_counts"].get("ok", 0) for figures in metrics.values())
    heads = [
        ("Photo", "text"),
        ("Run", "text"),
        ("True level", "number"),
        ("Predicted level", "number"),
        ("True", "number"),
        ("Predicted", "number"),
        ("Error", "number"),
        ("Size", "number"),
        ("Answer", "text"),
    ]
    body = []
    for row in rows:
        assert row.prediction is not None and row.error is not None
        scores = ((row.label.score, ""), (row.prediction.score, ""), (row.error, "+"), (abs(row.error), ""))
        cells = f"<td>{row.label.level}</td><td>{row.level}</td>"
        cells += "".join(f'<td data-value="{value}">{figure(value, sign)}</td>' for value, sign in scores)
        body.append(_list_row(row, numbers, cells, row.prediction.text))
    which = "all of them" if len(rows) == scored else f"the {LISTED} largest errors of each run"
    note = f"{len(rows):,} of {scored:,} answers with a score: {which}. The error is prediction minus truth."
    return _list("errors", "Largest errors", note, heads, body, sorted_by=7)


def unscored(rows: Sequence[ListedRow], numbers: Mapping[str, str], metrics: Mapping[str, Mapping[str, Any]]) -> str:
    total = sum(
        sum(figures["status_counts"].values()) - figures["status_counts"].get("ok", 0) for figures in metrics.values()
    )
    if not total:
        return "<h2>Without a score</h2><p class=note>None: every photo has a score in every run.</p>"
    heads = [
        ("Photo", "text"),
        ("Run", "text"),
        ("True level", "number"),
        ("True", "number"),
        ("Status", "text"),
        ("Answer", "text"),
    ]
    body = []
    for row in rows:
        status = "missing" if row.prediction is None else row.prediction.status
        said = None if row.prediction is None else row.prediction.text or row.prediction.error
        cells = f"<td>{row.label.level}</td>"
        cells += f'<td data-value="{row.label.score}">{figure(row.label.score)}</td><td class=text>{text(status)}</td>'
        body.append(_list_row(row, numbers, cells, said))
    which = "all of them" if len(rows) == total else f"the {LISTED} most severe photos of each run"
    note = f"{len(rows):,} of {total:,} answers without a score: {which}. No score was made up for them."
    return _list("unscored", "Without a score", note, heads, body)


def _list_row(row: ListedRow, numbers: Mapping[str, str], cells: str, said: str | None) -> str:
    answer = "" if said is None else said if len(said) <= _ANSWER else said[: _ANSWER - 1] + "…"
    number = numbers.get(row.label.id)
    picture = "" if number is None else f' data-picture="{number}"'
    head = f"<th scope=row{picture}>{isolated(row.label.id)}</th><td class=text>{isolated(row.run)}</td>"
    last = f'<td class="text answer">{isolated(" ".join(answer.split()))}</td>'
    return f'<tr data-run="{text(row.run)}">{head}{cells}{last}</tr>\n'


def _list(
    id: str,
    title: str,
    note: str,
    heads: Sequence[tuple[str, str]],
    body: Sequence[str],
    sorted_by: int | None = None,
) -> str:
    cells = []
    for column, (head, kind) in enumerate(heads):
        order = ' aria-sort="descending"' if column == sorted_by else ""
        cells.append(f"<th scope=col data-kind={kind}{' class=text' if kind == 'text' else ''}{order}>{head}</th>")
    table = (
        f"<table class=list id={id}><thead><tr>{''.join(cells)}</tr></thead><tbody>\n{''.join(body)}</tbody></table>"
    )
    return f"<h2>{title}</h2><p class=note>{note}</p>" + wide(table, title, "wide long") + _ON_PAPER
