"""Folders as attack tools write them, read by a layout that is declared and never guessed.

* ``classes``: CLASS/FILE.
* ``mibench`` (Model-Inversion-Attack-ToolBox, the folder ``save_dir``): final/images/CLASS/CLASS_*.png or
  final/CLASS/CLASS_*.png; what it caches beside them is passed over.
* ``plg-mi`` (the folder that ``--save_dir`` names): all_imgs/CLASS/attack_iden_CLASS_SEED.png.
* ``kedmi``: attack_iden_NUMBER_SEED.png in one folder; KEDMI counts classes from 1 there, so that class 0 is number 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cprt.errors import InputError
from cprt.images import is_photo


@dataclass(frozen=True)
class Layout:
    """Where images lie below a folder, and which number their names hold.

    Attributes:
        places: folders of images, the first that is there.
        flat: images lie in the place itself, else in CLASS folders in it.
        number: matches the class in a file's name, None where names say nothing.
        first: the number of class 0.
    """

    places: tuple[str, ...] = ("",)
    flat: bool = False
    number: re.Pattern[str] | None = None
    first: int = 0


LAYOUTS = {
    "classes": Layout(),
    "mibench": Layout(("final/images", "final"), number=re.compile(r"([0-9]+)_", re.ASCII)),
    "plg-mi": Layout(("all_imgs",), number=re.compile(r"attack_iden_([0-9]+)_", re.ASCII)),
    "kedmi": Layout(flat=True, number=re.compile(r"attack_iden_([0-9]+)_", re.ASCII), first=1),
}
_CACHE = "cache"  # of MIBench: arrays, no images


def find_images(folder: Path, name: str) -> list[tuple[str, Path]]:
    """(class, path) of every image in ``folder`` by the layout ``name``, sorted.

    Raises InputError for another layout than is there, for an image that lies elsewhere, and for one whose name says
    another class than its folder.
    """
    layout = LAYOUTS[name]
    places = [folder / place for place in layout.places if (folder / place).is_dir()]
    if not places:
        raise InputError.at(folder, f"has no folder {' or '.join(layout.places)} in it, as layout {name} has")
    found: list[tuple[str, Path]] = []
    for inner, path in scan(places[0], _CACHE if name == "mibench" else None):
        if inner is not None and layout.flat:
            raise InputError.at(path.parent, f"is a folder; layout {name} has none")
        if is_photo(path):
            if inner is None and not layout.flat:
                raise InputError.at(path, f"lies in no class folder, as layout {name} has them")
            found.append((_class_of(path, inner, layout, name), path))
    if not found:
        raise InputError.at(places[0], "has no images in it")
    return found


def _class_of(path: Path, folder: str | None, layout: Layout, name: str) -> str:
    if layout.number is None:
        return str(folder)
    match = layout.number.match(path.name)
    if match is None:
        raise InputError.at(path, f"does not begin with the class, as in layout {name}")
    said = int(match[1]) - layout.first
    if said < 0:
        raise InputError.at(path, f"has number {match[1]}, but layout {name} counts classes from {layout.first}")
    if folder is not None and (not folder.isdecimal() or int(folder) != said):
        raise InputError.at(path, f"lies in folder {folder!r} and says class {said}: is the layout another?")
    return str(said) if folder is None else folder


def scan(place: Path, without: str | None = None) -> Iterator[tuple[str | None, Path]]:
    """(folder or None, path) of every file in ``place`` and its folders but one. Raises InputError for a deeper one."""
    for entry in entries(place):
        if not entry.is_dir():
            yield None, entry
        elif entry.name != without:
            for inner in entries(entry):
                if inner.is_dir():
                    raise InputError.at(inner, f"is a folder in a class; images lie in {place.name}/<class>/")
                yield entry.name, inner


def entries(folder: Path) -> list[Path]:
    """Sorted, hidden ones left out. Raises InputError for a link to a folder, and as ``check_name``."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in found:
        check_name(path.name, folder)
        if path.is_symlink() and path.is_dir():  # it may lead anywhere, and images go to judges
            raise InputError.at(path, "is a link to a folder; links are not followed")
    return found


def check_name(name: str, where: Path) -> None:
    """Raises InputError for control characters, and for bytes that are not UTF-8."""
    if not name.isprintable():
        raise InputError(f"{str(where)!r}: the name {name!r} is not printable text")
