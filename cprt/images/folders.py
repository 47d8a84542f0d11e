"""Which files are photos, and where: folders searched, ids found in them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cprt.errors import InputError
from cprt.files import is_safe_path
from cprt.images.opening import opened

# A file with another suffix is no photo; one without any is looked at.
SUFFIXES = tuple(".jpg .jpeg .jpe .jfif .mpo .png .webp .bmp .gif .tif .tiff .avif .heic .heif .hif".split())


def is_photo(path: str | Path) -> bool:
    """Whether a file counts as a photo: by its suffix, and by its content where it has none."""
    suffix = Path(path).suffix.lower()
    if suffix:
        return suffix in SUFFIXES
    try:
        with opened(path):
            return True
    except InputError:
        return False


@dataclass(frozen=True)
class Listing:
    """What lies in a folder, to any depth and in the order of the names; all paths are relative to it.

    Hidden files and folders are left out.
    """

    photos: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)  # to folders; they may lead out or in circles, and are not followed
    unlisted: dict[str, str] = field(default_factory=dict)  # folder -> why it could not be searched


def list_photos(folder: str | Path) -> Listing:
    """Search a folder for photos."""
    found = Listing()

    def unlisted(error: OSError) -> None:
        found.unlisted[os.path.relpath(error.filename, folder)] = f"cannot be listed ({error.strerror})"

    for directory, folders, files in os.walk(folder, onerror=unlisted):
        below = os.path.relpath(directory, folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [name for name in folders if os.path.islink(os.path.join(directory, name))]:
            folders.remove(name)
            found.links.append(os.path.normpath(os.path.join(below, name)))
        for name in sorted(name for name in files if not name.startswith(".")):
            kind = found.photos if is_photo(os.path.join(directory, name)) else found.others
            kind.append(os.path.normpath(os.path.join(below, name)))
    return found


def image_root(folder: str | Path) -> Path:
    """The folder that image paths in our files are relative to: the one that holds ``images/``.

    Accepts that folder, or ``images/`` itself, or any folder of photos. Raises InputError when it does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError.at(folder, "is not a folder of images")
    if not (folder / "images").is_dir() and folder.resolve().name == "images":
        return folder.resolve().parent if folder.name != "images" else folder.parent
    return folder


class ImageIndex:
    """Finds images by the ids that label files use: a file name, with or without extension and folder.

    Raises InputError for a folder that cannot be searched, unless ``unlisted`` may be.

    Attributes:
        root: what all paths are relative to.
        start: the folder that was searched, ``root`` or ``root/images``.
        paths: every image, hidden files and folders left out.
        others, unlisted: every other file and link to a folder, and folders that cannot be searched, with the reason.
    """

    def __init__(self, folder: str | Path, unlisted: bool = False):
        self.root = image_root(folder)
        self.start = self.root / "images" if (self.root / "images").is_dir() else self.root
        found = list_photos(self.start)
        below = "images/" if self.start != self.root else ""
        self.paths = [below + path for path in found.photos]
        self.others = {below + path: "is no image by its suffix" for path in found.others}
        self.others |= {below + path: "is a link to a folder, which is not followed" for path in found.links}
        self.unlisted = {below + path: reason for path, reason in found.unlisted.items()}
        if self.unlisted and not unlisted:
            path, reason = next(iter(self.unlisted.items()))
            raise InputError.at(self.root / path, reason)
        self._by_stem: dict[str, list[str]] = {}
        for path in self.paths:
            self._by_stem.setdefault(PurePosixPath(path).stem, []).append(path)

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, id: str, file: str | Path, line: int | None = None, field: str | None = None) -> str | None:
        """Path relative to the root, or None when there is no such image. Folders in the id must be the photo's.

        Raises InputError at the place where a ``file`` says the id, for one that could point outside the folder or that
        fits several images.
        """
        if not is_safe_path(id):
            raise InputError.at(file, f"{id!r} is not a file name inside the image folder", line, field)
        wanted = PurePosixPath(id)
        if wanted.suffix.lower() in SUFFIXES:
            wanted = wanted.with_suffix("")
        found = self._by_stem.get(wanted.name, [])
        if len(wanted.parts) > 1:
            whole = self.root.absolute().as_posix()
            found = [path for path in found if str(PurePosixPath(whole, path).with_suffix("")).endswith(f"/{wanted}")]
        if len(found) > 1:  # p.jpg beside p.png
            found = [path for path in found if PurePosixPath(path).name == PurePosixPath(id).name] or found
        if len(found) > 1:
            raise InputError.at(file, f"{id!r} fits several images: {', '.join(found[:3])}", line, field)
        return found[0] if found else None
