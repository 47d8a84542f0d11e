"""The images behind a false positive: the reconstruction, and references of the class that it claims to show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from cprt.images import is_photo
from cprt.pages.thumbnails import inside, thumbnails
from cprt.records import read_jsonl
from eval.model_inversion.collection.places import IMAGES, REFERENCES

_MOST = 4  # references of one reconstruction where nobody says which were shown, as many as are shown by default


@dataclass(frozen=True)
class FalsePositive:
    """What E accepts as class ``claims``, with ``confidence`` as E's file states it, and the judge rejects.

    ``images`` is the folder of the set-up's images, where known.
    """

    setup: str
    judge: str
    claims: str
    file: str
    confidence: str
    response: str
    images: Path | None
    judge_file: Path

    @property
    def picture(self) -> tuple[str, str, str]:
        """The same image for all judges."""
        return self.setup, self.claims, self.file


@dataclass(frozen=True)
class Gallery:
    """Small pictures as data URIs, each once, and which of them show what.

    Attributes:
        reconstructions: ``FalsePositive.picture`` -> place in ``urls``; None where it was not found or cannot be read.
        references: row -> places, in the order of the judge's panel where that is known.
    """

    urls: list[str] = field(default_factory=list)
    reconstructions: dict[tuple[str, str, str], int | None] = field(default_factory=dict)
    references: dict[FalsePositive, list[int]] = field(default_factory=dict)


def gallery(rows: Sequence[FalsePositive], images: str | None, kept: Path) -> Gallery:
    """Pictures of all rows. ``images``: a folder of SETUP/..., ``kept``: where small pictures are kept."""
    root = None if images is None else Path(images)
    files = {row.picture: _reconstruction(row, root) for row in rows}
    references = {row: _references(row, root) for row in rows}
    wanted = [path for paths in (files.values(), *references.values()) for path in paths if path is not None]
    found = thumbnails({path: path for path in wanted}, kept)
    place = {path: number for number, path in enumerate(found)}
    return Gallery(
        list(found.values()),
        {key: None if path is None else place.get(path) for key, path in files.items()},
        {row: [place[path] for path in paths if path in place] for row, paths in references.items()},
    )


def _reconstruction(row: FalsePositive, root: Path | None) -> Path | None:
    # Names come from a CSV: neither they nor a link may lead out of the folder.
    names = (f"{row.claims}/{row.file}", row.file)
    places = [(row.images, name) for name in names] if row.images is not None else []
    if root is not None:
        places += [(root, f"{row.setup}/{folder}{name}") for folder in (f"{IMAGES}/", "") for name in names]
    return next((path for folder, name in places if (path := inside(folder, name)) is not None), None)


def _references(row: FalsePositive, root: Path | None) -> list[Path]:
    """Those that the judge was shown, where queries.jsonl beside its answers says so; else the first of the class."""
    paths = next((paths for folder in _folders(row, root) if (paths := _of_class(folder, row.claims))), ())
    setup = row.judge_file.parent
    shown = references_shown(setup.parent.parent).get((setup.name, row.claims, row.file), ())
    by_name = {path.name: path for path in paths}
    return [by_name[name] for name in shown if name in by_name] or list(paths[:_MOST])


def _folders(row: FalsePositive, root: Path | None) -> Iterator[Path]:
    """Where references may lie: inside the set-up, or at the level of its private data."""
    if root is not None:
        parts = row.setup.split("/")
        yield from (root.joinpath(*parts[:depth], REFERENCES) for depth in range(len(parts), 0, -1))
    if row.images is not None:
        yield from (folder / REFERENCES for folder in (row.images, *list(row.images.resolve().parents)[:5]))


@cache
def _of_class(folder: Path, claims: str) -> tuple[Path, ...]:
    try:
        names = sorted(path.name for path in (folder / claims).iterdir() if is_photo(path))
    except (OSError, ValueError):
        return ()
    return tuple(path for name in names if (path := inside(folder, f"{claims}/{name}")) is not None)


@cache
def references_shown(out: Path) -> dict[tuple[str, str, str], list[str]]:
    """(id of the set-up, class, file) -> names of the references that a run of ``cprt mi`` showed, in order."""
    file = out / "queries.jsonl"
    if not os.path.isfile(file):
        return {}
    return {
        (str(row.get("setup")), str(row.get("class")), str(row.get("file"))): [
            str(path).rsplit("/", 1)[-1] for path in row["references"]
        ]
        for _, row in read_jsonl(file)
        if row.get("kind") == "reconstruction" and isinstance(row.get("references"), list)
    }
