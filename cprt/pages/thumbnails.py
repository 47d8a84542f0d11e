"""Small pictures of photos for pages: pixels alone, without metadata, embedded preview or colour profile."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from cprt.errors import InputError
from cprt.files import write_bytes
from cprt.images import in_parallel, load_image

SIDE = 160  # pixels, the longer side

Key = TypeVar("Key", bound=Hashable)


def thumbnails(files: Mapping[Key, Path], folder: str | Path) -> dict[Key, str]:
    """Small JPEGs of ``files`` as data URIs, left out what cannot be read.

    Each is kept in ``folder`` under a digest of the file's place, size and time, so that the next page needs only those
    of photos that are new or changed.
    """
    made = in_parallel(lambda file: _thumbnail(file, Path(folder)), list(files.values()), "thumbnails")
    found = dict(zip(files, made, strict=True))
    return {
        key: f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
        for key, content in found.items()
        if content is not None
    }


def thumbnails_in(root: Path | None, names: Mapping[Key, str | None], folder: str | Path) -> dict[Key, str]:
    """The same of those ``names`` that are files in ``root``, also by their links; none without a ``root``."""
    files = {key: inside(root, name) for key, name in names.items() if root is not None and name is not None}
    return thumbnails({key: file for key, file in files.items() if file is not None}, folder)


def inside(root: Path, name: str) -> Path | None:
    """The file ``name`` in ``root``; None where there is none, or where it leads out of the folder or in circles."""
    try:
        path = root / name
        return path if os.path.isfile(path) and path.resolve().is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError, ValueError):  # a looping link; a name too long, or with a zero byte
        return None


def _thumbnail(file: Path, folder: Path) -> bytes | None:
    try:
        status = file.stat()
        place = f"{file.resolve()}\n{status.st_size}\n{status.st_mtime_ns}\n{SIDE}"
        kept = folder / f"{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.jpg"
        if kept.is_file():
            return kept.read_bytes()
        picture = load_image(file, max_pixels=4 * SIDE**2)
    except (InputError, OSError, RuntimeError, ValueError):
        return None
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=75)
    write_bytes(kept, buffer.getvalue())
    return buffer.getvalue()
