"""Photos that must not be trained on, read from the files given as ``--exclude``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cprt.errors import InputError
from cprt.files import read_text
from cprt.images import ImageIndex
from cprt.records import read_json, read_jsonl


@dataclass(frozen=True)
class Exclusions:
    """``images``: path in the image folder -> the file that excludes it; ``notes``: a line on every file."""

    images: dict[str, str]
    notes: list[str]


def read_exclusions(files: Sequence[str], root: Path) -> Exclusions:
    """The photos that ``files`` name: labels.jsonl, a CPRT-Bench JSON list, or text with one id or file name a line.

    Raises InputError for a file that excludes nothing, or with an id that could point outside the image folder.
    """
    excluded = Exclusions({}, [])
    if not files:
        return excluded
    index = ImageIndex(root)
    flat = all((index.root / path).parent == index.start for path in index.paths)
    for file in files:
        ids = _read_ids(file)
        images = set()
        for line, id in ids:
            try:
                image = index.find(id)
                if image is None and flat:  # no folder speaks against the id's
                    image = index.find(PurePosixPath(id).name)
            except ValueError as error:
                raise InputError.at(file, str(error), line, "id") from error
            images.update([image] if image else [])
        if not images:
            raise InputError.at(file, f"excludes nothing: none of its {len(ids)} ids is a photo in {index.start}")
        excluded.images.update(dict.fromkeys(sorted(images), file))
        excluded.notes.append(f"{file}: {len(images)} photos excluded, by {len(ids)} ids")
    return excluded


def _read_ids(file: str) -> list[tuple[int, str]]:
    """(line or row, id) pairs."""
    if file.endswith(".jsonl"):
        rows: list[tuple[int, object]] = list(read_jsonl(file))
    elif file.endswith(".json"):
        content = read_json(file)
        if not isinstance(content, list):
            raise InputError.at(file, "must be a JSON list of rows with an id")
        rows = list(enumerate(content, start=1))
    else:
        lines = enumerate(read_text(file).split("\n"), start=1)
        return [(number, line.strip()) for number, line in lines if line.strip()]
    found = []
    for number, row in rows:
        id = row.get("id") if isinstance(row, dict) else None
        if not isinstance(id, str) or not id.strip():
            raise InputError.at(file, "is missing", number, "id")
        found.append((number, id))
    return found
