"""The page of ``cprt score``: photos to triage, those first that a person should look at."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cprt.answers import STATUSES
from cprt.errors import printable
from cprt.guidance.regulations import Regulations
from cprt.pages.listing import Cell, Column, Listing, Part, cell
from cprt.pages.render import render
from cprt.pages.thumbnails import thumbnails
from cprt.pages.words import counted
from cprt.scoring import format_score
from cprt.taxonomy import LEVELS, Taxonomy
from eval.score.rows import (
    Rows,
    abstains,
    beside,
    contradiction,
    doubt,
    goes_by_lists,
    has_no_list,
    headline,
    is_uncertain,
    laws_met,
    most_severe_first,
    steps_to_hide,
)
from eval.score.table import has_one_root, name_of

_MOST = 8  # probable attributes of a photo that are shown
COLUMNS = (
    Column("Photo", "id"),
    Column("Score", "number"),
    Column("Level", "level", choose=True),
    Column("Attributes", choose=True),
    Column("Hide, in this order"),
    Column("Status", choose=True, shown=False),
    Column("Flag", choose=True, shown=False),
    Column("Contradiction", choose=True, shown=False),
    Column("List", choose=True, shown=False),
    Column("Folder", choose=True, shown=False),
    Column("To look at", shown=False),
)
_PLACE = {column.head: place for place, column in enumerate(COLUMNS)}


def page(
    out: str | Path,
    rows: Rows,
    files: Sequence[Path],
    taxonomy: Taxonomy,
    facts: Mapping[str, str],
    with_pictures: bool,
    asks_attributes: bool,
) -> str:
    """The whole HTML.

    Args:
        out: the page's file: links to photos are relative to it, and small pictures are kept beside it.
        files: where the photos of ``rows`` lie.
        facts: name -> what made the page, in words.
    """
    file_of = {id(row): file for row, file in zip(rows, files, strict=True)}
    pictures = thumbnails(file_of, Path(out).with_suffix(".thumbnails")) if with_pictures else {}
    place = {key: number for number, key in enumerate(pictures)}
    unsure, left = sorted(filter(is_uncertain, rows), key=doubt), [row for row in rows if abstains(row)]
    first = [row for row in rows if row["score"] is None] + unsure
    first += [row for row in most_severe_first(left) if not is_uncertain(row)]
    taken = set(map(id, first))
    ordered = first + [row for row in most_severe_first(rows) if id(row) not in taken]
    one_root = has_one_root(rows)
    listed = []
    for row in ordered:
        link = quote(os.fsencode(os.path.relpath(file_of[id(row)], Path(out).parent)))  # whatever bytes its name is of
        link = link if link.startswith("../") else f"./{link}"
        listed.append(_row(row, one_root, taxonomy, link, place.get(id(row)), asks_attributes))
    levels = Counter(headline(row, taxonomy)[1] for row in rows)
    statuses, flags = Counter(row["status"] for row in rows), Counter(row["flagged"] for row in rows)
    against = sum(row["contradiction"] is True for row in rows)
    without_list = sum(has_no_list(row, asks_attributes) for row in rows)
    tiles = [(f"level {level}", levels[level], "Level", str(level)) for level in LEVELS]
    tiles += [(status, statuses[status], "Status", status) for status in STATUSES if statuses[status]]
    tiles += [("flagged", flags[True], "Flag", "flagged")] if flags[True] or flags[False] else []
    tiles += [("contradictions", against, "Contradiction", "yes")] if against else []
    tiles += [("unreadable lists", without_list, "List", "unreadable")] if without_list else []
    return render(
        "score",
        title=f"Privacy risk of {counted(len(rows), 'photo')}",
        facts=facts,
        tiles=[(name, number, _PLACE[head], value) for name, number, head, value in tiles],
        photos=Listing("photos", COLUMNS, listed),
        look=Listing("look", COLUMNS, like="photos", only=(_PLACE["To look at"], "yes"), size=10),
        to_look_at=sum(row[_PLACE["To look at"]] == "yes" for row in listed),
        without_score=len(rows) - statuses["ok"],
        contradictions=against,
        unsure=len(unsure),
        left=len(left),
        goes_by_lists=any(map(goes_by_lists, rows)),
        without_list=without_list,
        frameworks=Regulations.published().frameworks,
        laws=[
            {"key": key, "name": taxonomy.names[key], "notes": notes, "texts": texts}
            for key, texts, notes in laws_met(rows, taxonomy)
        ],
        pictures=list(pictures.values()),
        shows_pictures=with_pictures,
    )


def _row(
    row: dict[str, Any], one_root: bool, taxonomy: Taxonomy, link: str, picture: int | None, asks_attributes: bool
) -> list[Cell]:
    """One row of the list, as COLUMNS say."""
    shown = partial(format_score, taxonomy=taxonomy)
    first, level = headline(row, taxonomy)
    name, without_list = name_of(row, one_root), has_no_list(row, asks_attributes)
    photo: list[list[Part]] = [[(name, "", link)]]
    if row["score"] is None:
        why = printable(row["error"] or (row["text"] or "")[:200])
        photo.append([(f"{row['status']}:", "flag"), (why, "quiet")])
    if row["contradiction"]:
        photo.append([(contradiction(row, shown), "alarm")])
    score: list[list[Part]] = []
    if row["score"] is not None:
        score += [[(shown(first), "strong")]] if first is not None else []
        score += [[(line, "quiet")] for line in beside(row, shown)]
    if row["advice"] is not None and row["advice"]["composed_score"] != first and not goes_by_lists(row):
        score.append([(f"names {shown(row['advice']['composed_score'])}", "quiet")])
    if row["flagged"]:
        score.append([("flagged", "flag")])
    look = row["score"] is None or row["flag_score"] is None or row["contradiction"] is True
    look = look or is_uncertain(row) or abstains(row)
    return [
        cell(name, *photo, picture=picture),
        cell("" if first is None else shown(first), *score) if score else None,
        None if level is None else str(level),
        cell("", [("its list cannot be read", "quiet")]) if without_list else _attributes(row, shown, taxonomy),
        _steps(row, shown, taxonomy),
        row["status"],
        None if row["flagged"] is None else "flagged" if row["flagged"] else "not flagged",
        None if row["contradiction"] is None else "yes" if row["contradiction"] else "no",
        "unreadable" if without_list else "readable" if row["attributes"] is not None else None,
        os.path.dirname(name) or ".",
        "yes" if look else "no",
    ]


def _attributes(row: dict[str, Any], shown: Any, taxonomy: Taxonomy) -> Cell:
    """What carries the score shown first, with what is left of it without each."""
    by_lists = goes_by_lists(row)
    told = row["probable"]["attributes"][:_MOST] if by_lists else row["attributes"]
    if not told:
        return None if told is None else cell("none", [("none named", "quiet")])
    lines: list[list[Part]] = []
    for one in told:
        left = f"without it {shown(one['score_without'])}"
        left = f"{one['probability']:.0%}, {left}" if by_lists else f"{left}, level\u00a0{one['level_without']}"
        name = taxonomy.names[one["key"]], f"named level-{taxonomy.level_of[one['key']]}", f"#law-{one['key']}"
        lines.append([name, (left, "quiet")])
    return cell([taxonomy.names[one["key"]] for one in told], *lines)


def _steps(row: dict[str, Any], shown: Any, taxonomy: Taxonomy) -> Cell:
    steps = steps_to_hide(row)
    if not steps:
        return None
    lines: list[list[Part]] = [
        [taxonomy.names[step["hide"]], (f"→ {shown(step['score'])}, level\u00a0{step['level']}", "quiet")]
        for step in steps
    ]
    return cell(", ".join(taxonomy.names[step["hide"]] for step in steps), *lines)
