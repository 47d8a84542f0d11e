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
from cprt.scoring import format_score, level_of
from cprt.taxonomy import Taxonomy
from eval.score.rows import chances, contradiction, doubt, is_uncertain, laws_met, most_severe_first
from eval.score.table import has_one_root, name_of

COLUMNS = (
    Column("Photo", "id"),
    Column("Score", "number"),
    Column("Level", "level", choose=True),
    Column("Attributes", choose=True),
    Column("Hide, in this order"),
    Column("Status", choose=True, shown=False),
    Column("Flag", choose=True, shown=False),
    Column("Contradiction", choose=True, shown=False),
    Column("Folder", choose=True, shown=False),
    Column("To look at", shown=False),
)
_LEVEL, _STATUS, _FLAG, _CONTRADICTION, _LOOK = (
    next(place for place, column in enumerate(COLUMNS) if column.head == head)
    for head in ("Level", "Status", "Flag", "Contradiction", "To look at")
)


def page(
    out: str | Path,
    rows: Sequence[dict[str, Any]],
    files: Sequence[Path],
    taxonomy: Taxonomy,
    facts: Mapping[str, str],
    with_pictures: bool,
) -> str:
    """The whole HTML.

    Args:
        out: the page's file: links to photos are relative to it, and small pictures are kept beside it.
        files: where the photos of ``rows`` lie.
        facts: name -> what made the page, in words.
        with_pictures: put small pictures of the photos into the page.
    """
    file_of = {id(row): file for row, file in zip(rows, files, strict=True)}
    pictures = thumbnails(file_of, Path(out).with_suffix(".thumbnails")) if with_pictures else {}
    place = {key: number for number, key in enumerate(pictures)}
    unsure = sorted(filter(is_uncertain, rows), key=doubt)
    ordered = [row for row in rows if row["score"] is None] + unsure
    ordered += [row for row in most_severe_first(rows) if not is_uncertain(row)]
    one_root = has_one_root(rows)
    listed = [_row(row, one_root, taxonomy, _link(file_of[id(row)], Path(out)), place.get(id(row))) for row in ordered]
    levels = Counter(_level(row, taxonomy) for row in rows)
    statuses, flags = Counter(row["status"] for row in rows), Counter(row["flagged"] for row in rows)
    against = sum(row["contradiction"] is True for row in rows)
    tiles = [(f"level {level.level}", levels[level.level], _LEVEL, str(level.level)) for level in taxonomy.levels]
    tiles += [(status, statuses[status], _STATUS, status) for status in STATUSES if statuses[status]]
    tiles += [("flagged", flags[True], _FLAG, "flagged")] if flags[True] or flags[False] else []
    tiles += [("contradictions", against, _CONTRADICTION, "yes")] if against else []
    return render(
        "score",
        title=f"Privacy risk of {counted(len(rows), 'photo')}",
        facts=facts,
        tiles=tiles,
        photos=Listing("photos", COLUMNS, listed),
        look=Listing("look", COLUMNS, like="photos", only=(_LOOK, "yes"), size=10),
        to_look_at=sum(row[_LOOK] == "yes" for row in listed),
        without_score=len(rows) - statuses["ok"],
        contradictions=against,
        unsure=len(unsure),
        has_chances=any(row.get("probable") for row in rows),
        frameworks=Regulations.published().frameworks,
        laws=[
            {"key": key, "name": taxonomy.names[key], "notes": notes, "texts": texts}
            for key, texts, notes in laws_met(rows, taxonomy)
        ],
        pictures=list(pictures.values()),
        shows_pictures=with_pictures,
    )


def _level(row: dict[str, Any], taxonomy: Taxonomy) -> int | None:
    """The most probable level where that is known, else that of what the photo is flagged and ordered by."""
    if row.get("probable"):
        return int(row["probable"]["level"])
    return None if row["flag_score"] is None else level_of(row["flag_score"], taxonomy)


def _link(file: Path, out: Path) -> str:
    """From the page to the photo, whatever bytes its name is made of."""
    path = quote(os.fsencode(os.path.relpath(file, out.parent)))
    return path if path.startswith("../") else f"./{path}"


def _row(row: dict[str, Any], one_root: bool, taxonomy: Taxonomy, link: str, picture: int | None) -> list[Cell]:
    """One row of the list, as COLUMNS say."""
    shown = partial(format_score, taxonomy=taxonomy)
    level = _level(row, taxonomy)
    name = name_of(row, one_root)
    photo: list[list[Part]] = [[(name, "", link)]]
    if row["score"] is None:
        why = printable(row["error"] or (row["text"] or "")[:200])
        photo.append([(f"{row['status']}:", "flag"), (why, "quiet")])
    if row["contradiction"]:
        photo.append([(contradiction(row, shown), "alarm")])
    score: list[list[Part]] = []
    if row.get("probable"):
        score.append([(shown(row["probable"]["score"]), "strong")])
        score += [[(line, "quiet")] for line in chances(row, shown)[:2]]
    elif row["score"] is not None:
        score.append([(shown(row["score"]), "strong")])
        if row["advice"] is not None:
            score.append([(f"named: {shown(row['advice']['composed_score'])}", "quiet")])
    if row["flagged"]:
        score.append([("flagged", "flag")])
    look = row["score"] is None or row["flag_score"] is None or row["contradiction"] is True or is_uncertain(row)
    return [
        cell(name, *photo, picture=picture),
        cell("" if row["flag_score"] is None else shown(row["flag_score"]), *score) if score else None,
        None if level is None else str(level),
        _attributes(row, shown),
        _advice(row, shown, taxonomy),
        row["status"],
        None if row["flagged"] is None else "flagged" if row["flagged"] else "not flagged",
        None if row["contradiction"] is None else "yes" if row["contradiction"] else "no",
        os.path.dirname(name) or ".",
        "yes" if look else "no",
    ]


def _attributes(row: dict[str, Any], shown: Any) -> Cell:
    if row["attributes"] is None:
        return None if row["score"] is None else cell("", [("not asked for, or not readable", "quiet")])
    if not row["attributes"]:
        return cell("none", [("none named", "quiet")])
    lines: list[list[Part]] = []
    for one in row["attributes"]:
        left = f"without it {shown(one['score_without'])}, level\u00a0{one['level_without']}"
        lines.append([(one["name"], f"named level-{one['level']}", f"#law-{one['key']}"), (left, "quiet")])
    return cell([one["name"] for one in row["attributes"]], *lines)


def _advice(row: dict[str, Any], shown: Any, taxonomy: Taxonomy) -> Cell:
    if row["advice"] is None or not row["advice"]["order"]:
        return None
    steps = row["advice"]["order"]
    lines: list[list[Part]] = [
        [taxonomy.names[step["hide"]], (f"→ {shown(step['score'])}, level\u00a0{step['level']}", "quiet")]
        for step in steps
    ]
    return cell(", ".join(taxonomy.names[step["hide"]] for step in steps), *lines)
