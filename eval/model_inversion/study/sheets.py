"""What people are asked: a draw of the queries that judges were asked, as rating sheets that tell nothing else.

A rater sees the same panel as a judge, in an order of its own, controls among the reconstructions. Which query a
picture is stands in the key alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cprt.errors import InputError
from cprt.records import read_jsonl
from cprt.tables import read_csv

KEY = ("number", "setup", "kind", "class", "filename", "picture")
SHEET = ("number", "picture", "answer")
_KINDS = ("positive", "negative")


@dataclass(frozen=True)
class Asked:
    """One picture of the study: the query it is, and its file relative to the folder of ``cprt mi``."""

    number: int
    setup: str
    kind: str
    claims: str
    file: str
    picture: str

    def row(self) -> tuple[Any, ...]:
        """Of the key."""
        return self.number, self.setup, self.kind, self.claims, self.file, self.picture


def draw(run: Path, reconstructions: int, controls: int, seed: int) -> list[Asked]:
    """Reconstructions, spread evenly over set-ups, and control pairs, half of each kind; in a random order.

    Raises InputError where there are fewer, or where they were not shown as one picture.
    """
    rng = np.random.default_rng(seed)
    rows = _read_queries(run / "queries.jsonl")
    by_setup: dict[str, list[Mapping[str, Any]]] = {}
    of_kind: dict[str, dict[str, Mapping[str, Any]]] = {kind: {} for kind in _KINDS}
    for row in rows:
        if row["kind"] == "reconstruction":
            by_setup.setdefault(row["setup"], []).append(row)
        elif row["kind"] in of_kind:
            of_kind[row["kind"]].setdefault(row["images"][0], row)  # set-ups share their pairs
    turns = []
    for setup in sorted(by_setup):
        turns += list(enumerate(rng.permutation(np.asarray(by_setup[setup], dtype=object))))
    if len(turns) < reconstructions:
        have = len(turns)
        raise InputError.at(run / "queries.jsonl", f"has {have} reconstructions, {reconstructions} are to be drawn")
    turns.sort(key=lambda turn: turn[0])
    drawn = [row for _, row in turns[:reconstructions]]
    for kind, pairs in of_kind.items():
        count = (controls + (kind == _KINDS[0])) // 2
        drawn += list(rng.permutation(np.asarray(list(pairs.values()), dtype=object)))[:count]
        if len(pairs) < count:
            raise InputError.at(run / "queries.jsonl", f"has {len(pairs)} {kind} controls, {count} are to be drawn")
    return [
        Asked(number, row["setup"], row["kind"], row["class"], row["file"], row["images"][0])
        for number, row in enumerate((drawn[place] for place in rng.permutation(len(drawn))), start=1)
    ]


def _read_queries(path: Path) -> list[dict[str, Any]]:
    """Those that were asked, each of one picture. Raises InputError."""
    rows = []
    for line, row in read_jsonl(path):
        if row.get("problem") is not None:
            continue
        images = row.get("images")
        if not isinstance(images, list) or len(images) != 1:
            raise InputError.at(path, "has queries of several pictures: run cprt mi with --layout panel", line)
        texts = {"images": images[0], **{name: row.get(name) for name in ("setup", "kind", "class", "file")}}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise InputError.at(path, "is not as cprt mi writes it", line, name)
        rows.append(row)
    return rows


def read_key(path: Path) -> dict[int, Asked]:
    """Number -> query. Raises InputError."""
    found: dict[int, Asked] = {}
    for line, row in read_csv(path).need(KEY):
        number = read_number(row["number"], path, line)
        if number in found:
            raise InputError.at(path, f"{number} is there twice", line, "number")
        found[number] = Asked(number, row["setup"], row["kind"], row["class"], row["filename"], row["picture"])
    return found


def read_number(cell: str, path: Path, line: int) -> int:
    """Of a picture. Raises InputError."""
    if not (cell.isascii() and cell.isdecimal()):
        raise InputError.at(path, f"{cell!r} is not the number of a picture", line, "number")
    return int(cell)
