"""Photos that must not be trained on, read from the files given as ``--exclude``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cprt.errors import InputError
from cprt.images import ImageIndex
from cprt.pages.words import counted
from data_prep.id_lists import read_ids


@dataclass(frozen=True)
class Exclusions:
    """``images``: path in the image folder -> the file that excludes it; ``notes``: a line on every file."""

    images: dict[str, str]
    notes: list[str]


def read_exclusions(files: Sequence[str], root: Path) -> Exclusions:
    """The photos that ``files`` name (``read_ids``).

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
            try:
                image = index.find(id)
                if image is None and flat:  # no folder speaks against the id's
                    image = index.find(PurePosixPath(id).name)
            except ValueError as error:
                raise InputError.at(file, str(error), line, "id") from error
            if image is None:
                unknown.append(id)
            else:
                images.add(image)
        if not images:
            raise InputError.at(file, f"excludes nothing: none of its {len(ids)} ids is a photo in {index.start}")
        excluded.images.update(dict.fromkeys(sorted(images), file))
        photos, by = counted(len(images), "photo"), counted(len(ids), "id")
        excluded.notes.append(f"{file}: keeps {photos} off the training side, by {by}{_missing(unknown)}")
    return excluded


def _missing(unknown: Sequence[str]) -> str:
    return f", of which {len(unknown)} are no photo there, such as {unknown[0]!r}" if unknown else ""
