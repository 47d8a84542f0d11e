"""Photos that must not be trained on, read from the files given as ``--exclude``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cprt.errors import InputError
from cprt.files import read_text
from cprt.images import ImageIndex
from cprt.records import read_json, read_jsonl


@dataclass(frozen=True)
class Exclusions:
    """``ids``: file stem -> the file that excludes it; ``images``: those of them that are in the image folder."""

    ids: dict[str, str]
    images: list[str]


def read_exclusions(files: Sequence[str], root: Path) -> Exclusions:
    """Ids of all ``files``: labels.jsonl, a CPRT-Bench JSON list, or text with one id or file name a line.

    Raises InputError for a file without ids, or with an id that could point outside the image folder.
    """
    ids: dict[str, str] = {}
    images: list[str] = []
    index = ImageIndex(root) if files else None
    for file in files:
        found = _read_ids(file)
        if not found:
            raise InputError.at(file, "excludes nothing: it has no ids")
        for line, id in found:
            assert index is not None
            try:
                image = index.find(id)
            except ValueError as error:
                raise InputError.at(file, str(error), line, "id") from error
            stem = Path(image).stem if image else Path(id).name
            ids[stem] = str(file)
            if image:
                images.append(image)
    return Exclusions(ids, sorted(set(images)))


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
