"""What people are asked: a draw of the queries that judges were asked, as rating sheets that tell nothing else.

A rater sees the same panel as a judge, in an order of its own, controls among the reconstructions. Which query a
picture is stands in the key alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from cprt.errors import InputError
from cprt.records import read_jsonl
from cprt.tables import read_csv

KEY = ("number", "setup", "kind", "class", "filename", "picture")
SHEET = ("number", "picture", "answer")
_TEXTS = ("setup", "kind", "class", "file", "path")

Row = dict[str, Any]  # of queries.jsonl


@dataclass(frozen=True)
class Asked:
    """One picture of the study: the query it is, and its file relative to the folder of ``cprt mi``."""

    number: str
    setup: str
    kind: str
    claims: str
    file: str
    picture: str


def draw(run: Path, reconstructions: int, controls: int, seed: int) -> list[Asked]:
    """Reconstructions, spread evenly over set-ups, and control pairs, half of each kind; in a random order.

    Raises InputError where there are fewer, or where they were not shown as one picture.
    """
    rng = np.random.default_rng(seed)

    def permuted(rows: Collection[Row]) -> list[Row]:
        return list(rng.permutation(np.asarray(list(rows), dtype=object)))

    by_setup: dict[str, dict[Any, Row]] = {}
    of_kind: dict[str, dict[Any, Row]] = {"positive": {}, "negative": {}}  # set-ups share their pairs
    for row in _read_queries(run / "queries.jsonl"):
        same = row["class"], row["path"]  # a run may have several prompts
        if row["kind"] == "reconstruction":
            by_setup.setdefault(row["setup"], {}).setdefault(same, row)
        elif row["kind"] in of_kind:
            of_kind[row["kind"]].setdefault(same, row)
    in_turn = zip_longest(*(permuted(by_setup[setup].values()) for setup in sorted(by_setup)))
    parts = [("reconstructions", [row for turn in in_turn for row in turn if row is not None], reconstructions)]
    for more, (kind, pairs) in zip((1, 0), of_kind.items(), strict=True):
        parts.append((f"{kind} controls", permuted(pairs.values()), (controls + more) // 2))
    for what, rows, count in parts:
        if len(rows) < count:
            raise InputError.at(run / "queries.jsonl", f"has {len(rows)} {what}, {count} are to be drawn")
    drawn = [row for _, rows, count in parts for row in rows[:count]]
    return [
        Asked(str(number), row["setup"], row["kind"], row["class"], row["file"], row["images"][0])
        for number, row in enumerate((drawn[place] for place in rng.permutation(len(drawn))), start=1)
    ]


def _read_queries(path: Path) -> Iterator[Row]:
    """Those that were asked, each of one picture. Raises InputError."""
    for line, row in read_jsonl(path):
        if row.get("problem") is not None:
            continue
        images = row.get("images")
        if not isinstance(images, list) or len(images) != 1:
            raise InputError.at(path, "has queries of several pictures: run cprt mi with --layout panel", line)
        for name, text in {"images": images[0], **{name: row.get(name) for name in _TEXTS}}.items():
            if not isinstance(text, str):
                raise InputError.at(path, "is not as cprt mi writes it", line, name)
        yield row


def read_key(path: Path) -> dict[str, Asked]:
    """Number -> query, in the order of the numbers. Raises InputError."""
    found: dict[str, Asked] = {}
    for line, row in read_csv(path).need(KEY):
        number = row["number"]
        if number in found:
            raise InputError.at(path, f"{number} is there twice", line, "number")
        found[number] = Asked(*(row[name] for name in KEY))
    return found
