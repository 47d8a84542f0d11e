"""Photos that must not be trained on, read from the files given as ``--exclude``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cprt.errors import InputError
from cprt.images import ImageIndex
from data_prep.id_lists import read_ids


@dataclass(frozen=True)
class Exclusions:
    """``ids``: file stem -> the file that excludes it; ``images``: those of them that are in the image folder."""

    ids: dict[str, str]
    images: list[str]


def read_exclusions(files: Sequence[str], root: Path) -> Exclusions:
    """Ids of all ``files`` (``read_ids``). Ids that are no photo are counted in a note.

    Raises InputError for a file of which no id is a photo, or with an id that could point outside the image folder.
    """
    ids: dict[str, str] = {}
    images: set[str] = set()
    index = ImageIndex(root) if files else None
    for file in files:
        listed, unknown = read_ids(file), []
        for line, id in listed:
            assert index is not None
            try:
                image = index.find(id)
            except ValueError as error:
                raise InputError.at(file, str(error), line, "id") from error
            ids[Path(image).stem if image else Path(id).name] = file
            if image is None:
                unknown.append(id)
            else:
                images.add(image)
        if len(unknown) == len(listed):
            why = (
                f"none of its {len(listed)} ids is a photo in {root}, such as {unknown[0]!r}"
                if listed
                else "has no ids"
            )
            raise InputError.at(file, f"excludes nothing: {why}")
        if unknown:
            print(f"note: {file}: {len(unknown)} of {len(listed)} ids are no photo in {root}, such as {unknown[0]!r}")
    return Exclusions(ids, sorted(images))
