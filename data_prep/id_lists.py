"""Lists of photos by id: what commands take to ask for some photos, or to leave some out (``--exclude``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cprt.errors import InputError
from cprt.files import read_text
from cprt.images import ImageIndex
from cprt.pages.words import counted
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
    for number, stated in found:
        if (id := as_id(stated)) is None:
            raise InputError.at(path, "is missing" if stated is None else "must be a non-empty text", number, "id")
        ids.append((number, id))
    return ids


def as_id(stated: Any) -> str | None:
    """An id as files have it: a text, or a whole number; None for anything else."""
    id = str(stated) if isinstance(stated, int) and not isinstance(stated, bool) else stated
    return id if isinstance(id, str) and id.strip() else None


@dataclass(frozen=True)
class Exclusions:
    """``images``: path in the image folder -> the file that excludes it; ``notes``: a line on every file."""

    images: dict[str, str]
    notes: list[str]


def read_exclusions(files: Sequence[str], root: Path) -> Exclusions:
    """The photos that ``files``, given as ``--exclude``, name.

    Raises InputError for a file that excludes nothing, or with an id that could point outside the image folder.
    """
    excluded = Exclusions({}, [])
    if not files:
        return excluded
    index = ImageIndex(root)
    flat = all((index.root / path).parent == index.start for path in index.paths)
    for file in files:
        ids, images, unknown = read_ids(file), set(), []
        for line, id in ids:
            image = index.find(id, file, line, "id")
            if image is None and flat:  # no folder speaks against the id's
                image = index.find(PurePosixPath(id).name, file, line, "id")
            if image is None:
                unknown.append(id)
            else:
                images.add(image)
        if not images:
            raise InputError.at(file, f"excludes nothing: none of its {len(ids)} ids is a photo in {index.start}")
        excluded.images.update(dict.fromkeys(sorted(images), file))
        photos, by = counted(len(images), "photo"), counted(len(ids), "id")
        missing = f", of which {len(unknown)} are no photo there, such as {unknown[0]!r}" if unknown else ""
        excluded.notes.append(f"{file}: keeps {photos} off the training side, by {by}{missing}")
    return excluded
