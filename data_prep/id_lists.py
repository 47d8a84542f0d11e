"""Lists of photos by id: what commands take to ask for some photos, or to leave some out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_text
from cprt.records import read_json, read_jsonl
from cprt.tables import read_csv


def read_ids(path: str | Path) -> list[tuple[int, str]]:
    """(line or row, id) of every entry.

    By its suffix a file is JSON Lines with ``id`` in every row (labels.jsonl), a JSON list of such rows (CPRT-Bench), a
    CSV with a column ``id``, or else text with one id or file name a line, or a line of a VISPR split list each.
    Raises InputError.
    """
    suffix = Path(path).suffix.lower()
    found: Iterable[tuple[int, Any]]
    if suffix == ".jsonl":
        found = [(line, row.get("id")) for line, row in read_jsonl(path)]
    elif suffix == ".json":
        rows = read_json(path)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError.at(path, "must be a JSON list of rows with an id")
        found = enumerate((row.get("id") for row in rows), start=1)
    elif suffix == ".csv":
        found = [(line, row["id"]) for line, row in read_csv(path).need(["id"])]
    else:
        lines = enumerate(map(str.strip, read_text(path).split("\n")), start=1)
        found = [(number, line.removeprefix("annotations/").removesuffix(".json")) for number, line in lines if line]
    ids: list[tuple[int, str]] = []
    for number, id in found:
        if not isinstance(id, str) or not id.strip():
            raise InputError.at(path, "is missing" if id is None else "must be a non-empty text", number, "id")
        ids.append((number, id))
    return ids
