"""The photos that a command line names: files as they are, folders searched, whatever lies in them.

Names come from outside: they may hold newlines, terminal codes or bytes that are no text. ``printable`` makes a line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cprt.images import find_faults

# Told by name: opening every file of a large folder to see whether it is a photo takes too long.
SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".mpo",
    ".png",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".avif",
    ".heic",
    ".heif",
    ".hif",
)
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_HEIC_HINT = "is a HEIC photo: install pillow-heif to read it (pip install 'cprt[heic]')"


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

    A folder is searched to any depth for the names of photos. Hidden files and folders in it are passed over, and so
    are links to folders, which may lead out of it or round in circles. What is named itself is taken as it is.
    """
    photos: dict[str, Photo] = {}
    others = links = 0

    def add(photo: Photo) -> None:
        photos.setdefault(os.path.abspath(photo.file), photo)

    for given in paths:
        if not os.path.isdir(given):
            root, name = os.path.split(given.rstrip(os.sep) or given)
            add(Photo(root or ".", name))
            continue

        def unlisted(error: OSError, root: str = given) -> None:
            folder = os.path.relpath(error.filename, root)
            add(Photo(root, folder, f"cannot be listed ({error.strerror})"))

        for directory, folders, files in os.walk(given, onerror=unlisted):
            shown = sorted(name for name in folders if not name.startswith("."))
            folders[:] = [name for name in shown if not os.path.islink(os.path.join(directory, name))]
            links += len(shown) - len(folders)
            for name in sorted(name for name in files if not name.startswith(".")):
                if name.lower().endswith(SUFFIXES):
                    add(Photo(given, os.path.relpath(os.path.join(directory, name), given)))
                else:
                    others += 1
    return Found(_check(list(photos.values())), others, links)


def _check(photos: Sequence[Photo]) -> list[Photo]:
    """The same photos, with a ``problem`` where there is one."""
    reads_heic = _read_heic()
    problems = {photo: photo.problem or _no_file(photo.file) for photo in photos}
    faults = find_faults([photo.file for photo, problem in problems.items() if problem is None], decode=False)
    checked = []
    for photo, problem in problems.items():
        if problem is None and photo.file in faults:
            heic = not reads_heic and _is_heic(photo.file)
            problem = _HEIC_HINT if heic else reason(str(faults[photo.file]), photo.file)
        checked.append(replace(photo, problem=problem))
    return checked


def _no_file(path: Path) -> str | None:
    """Why there is nothing to open. Opening a named pipe would wait for ever."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in a name
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return None if status.st_size else "is empty"


def reason(error: str, file: Path) -> str:
    """What is wrong with a file, without the folder it lies in: that may name a user or a machine."""
    return error.removeprefix(f"{file}: ").replace(str(file), file.name)


def _read_heic() -> bool:
    """Teach Pillow the photos of phones (HEIC), if the extra is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register: Callable[[], None] = register_heif_opener
    register()
    return True


def _is_heic(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError:
        return False
    return head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS


def printable(name: str) -> str:
    """A name as one line that changes nothing on a terminal or page: what is not printable is escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in as_text(name))


def as_text(text: str) -> str:
    """A text that UTF-8 can hold: what of a name's bytes is no text is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
