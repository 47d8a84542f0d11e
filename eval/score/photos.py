"""The photos that a command line names: files as they are, folders searched, whatever lies in them.

Names come from outside: they may hold newlines, terminal codes or bytes that are no text.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cprt.images import find_faults, list_photos


@dataclass(frozen=True)
class Photo:
    """One file: ``root`` is the folder given (that of a file given), ``path`` is relative to it.

    ``problem`` says why it cannot be read; None as far as its header tells.
    """

    root: str
    path: str
    problem: str | None = None

    @property
    def file(self) -> Path:
        return Path(self.root) / self.path


@dataclass(frozen=True)
class Found:
    """Photos in the order of the command line, each once, those in a folder by name; and what was passed over."""

    photos: list[Photo]
    other_files: int
    linked_folders: int


def find_photos(paths: Sequence[str]) -> Found:
    """Every photo that ``paths`` name, checked as far as its header.

    A folder is searched to any depth (see ``list_photos``). What is named itself is taken as it is.
    """
    photos: dict[str, Photo] = {}
    others = links = 0
    for given in paths:
        if os.path.isdir(given):
            found = list_photos(given)
            here = [Photo(given, path) for path in found.photos]
            here += [Photo(given, folder, why) for folder, why in found.unlisted.items()]
            others += len(found.others)
            links += len(found.links)
        else:
            root, name = os.path.split(given.rstrip(os.sep) or given)
            here = [Photo(root or ".", name)]
        for photo in here:
            photos.setdefault(os.path.abspath(photo.file), photo)
    return Found(_check(list(photos.values())), others, links)


def _check(photos: Sequence[Photo]) -> list[Photo]:
    """The same photos, with a ``problem`` where there is one."""
    problems = {photo: photo.problem or _no_file(photo.file) for photo in photos}
    faults = find_faults([photo.file for photo, problem in problems.items() if problem is None], decode=False)
    problems |= {photo: faults[photo.file].reason for photo in photos if photo.file in faults}
    return [replace(photo, problem=problem) for photo, problem in problems.items()]


def _no_file(path: Path) -> str | None:
    """Why there is nothing to open. Opening a named pipe would wait for ever."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in a name
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return None if status.st_size else "is empty"
