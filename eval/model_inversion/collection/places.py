"""Images as they lie on disk, in the public collection's tree or listed in CSV files, with the class each claims."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cprt.errors import InputError
from cprt.files import is_safe_path
from cprt.images import is_photo
from cprt.tables import read_csv
from eval.model_inversion.collection.layouts import check_name, entries, scan

IMAGES, REFERENCES, _NEST = "all-images", "private-data", "AttackSamples"  # folders of the public collection
_TARGET = re.compile(r"(?:^|_)T=([0-9]+)(?=[_.]|$)", re.ASCII)


@dataclass(frozen=True)
class Reconstruction:
    """One reconstruction: the class it claims to be, its file name there, and its path relative to the root."""

    claims: str
    file: str
    path: str


@dataclass
class Found:
    """What lies on disk, before anybody says what it is."""

    images: list[Reconstruction] = field(default_factory=list)
    references: dict[str, list[str]] = field(default_factory=dict)
    ignored: int = 0


# --- The public collection's tree --------------------------------------------------------------------------------


def setup_name(folder: Path, root: Path) -> str:
    """The folders that lead to a set-up, without those that nest a collection; empty for the root itself."""
    return "/".join(part for part in folder.relative_to(root).parts if part != _NEST)


def inner_folders(folders: list[str]) -> list[str]:
    """Those of a folder in which set-ups may lie, sorted."""
    return sorted(name for name in folders if name not in (IMAGES, REFERENCES) and name[0] != ".")


class Tree:
    """Where set-ups and references lie below a root. Links to folders are not followed."""

    def __init__(self, root: Path):
        self.root = root
        self.images: dict[str, Path] = {}
        self.private: dict[str, Path] = {}

    def setups(self) -> dict[str, Found]:
        """Names of all set-ups, still empty."""
        for directory, folders, _ in os.walk(self.root):
            for kind, places in ((IMAGES, self.images), (REFERENCES, self.private)):
                if kind in folders:
                    self._add(Path(directory) / kind, places)
            folders[:] = inner_folders(folders)
        return {name: Found() for name in self.images}

    def _add(self, path: Path, places: dict[str, Path]) -> None:
        name = setup_name(path.parent, self.root)
        check_name(name, path)
        if name in places:
            raise InputError.at(path, f"is there twice, also as {places[name]}")
        if name or path.name == REFERENCES:
            places[name] = path

    def fill(self, name: str, found: Found) -> None:
        """Read the reconstructions of one set-up."""
        targets: dict[str, str] = {}  # the class that T= names -> the folder it was seen in
        for folder, path in self._images(self.images[name], found):
            file = path.rsplit("/", 1)[-1]
            claims = claimed_class(folder, file, path)
            stated = targets_in(file)
            if stated and folder is not None and not is_index(folder):
                (target,) = stated
                if targets.setdefault(target, folder) != folder:
                    raise InputError.at(path, f"T={target} stands in folder {folder!r} and in {targets[target]!r}")
                if targets.setdefault(f"/{folder}", target) != target:
                    raise InputError.at(path, f"folder {folder!r} has T={target} and T={targets[f'/{folder}']}")
            found.images.append(Reconstruction(claims, file, path))
        if not found.images:
            raise InputError.at(self.images[name], "has no images in it")

    def references(self, name: str, found: Found) -> dict[str, list[str]]:
        """References of one set-up by class, from the nearest folder above it."""
        if not self.private and not self.images:  # reconstructions came from a CSV
            self.setups()
        parts = name.split("/")
        above = ("/".join(parts[:depth]) for depth in range(len(parts), -1, -1))
        place = next((self.private[one] for one in above if one in self.private), None)
        if place is None:
            raise InputError.at(self.root, f"has no {REFERENCES} for set-up {name}, inside it or at a level above")
        classes: dict[str, list[str]] = {entry.name: [] for entry in entries(place) if entry.is_dir()}
        for folder, path in self._images(place, found):
            if folder is None:
                raise InputError.at(path, f"lies in {REFERENCES} itself: its class is not known")
            classes[folder].append(path)
        return classes

    def _images(self, place: Path, found: Found) -> Iterator[tuple[str | None, str]]:
        """(folder or None, path relative to the root) of every image in ``place`` and its folders."""
        for folder, path in scan(place):
            if is_photo(path):
                yield folder, path.relative_to(self.root).as_posix()
            else:
                found.ignored += 1


def targets_in(file: str) -> list[str]:
    """The class indices that ``T=`` in a file's name states, each once."""
    return sorted({str(int(index)) for index in _TARGET.findall(file)})


def claimed_class(
    folder: str | None, file: str, where: str | Path, line: int | None = None, field: str | None = None
) -> str:
    """The class a reconstruction claims, by its folder (or table) or by ``T=`` in its name. Raises InputError.

    A folder that is a number must agree with ``T=``; one that is a name cannot be compared with an index.
    """
    stated, what = targets_in(file), None
    if len(stated) > 1:
        what = f"states several classes, T={' and T='.join(stated)}"
    elif not stated and folder is None:
        what = "claims no class: it lies in no class folder and has no T= in its name"
    elif stated and folder is not None and is_index(folder) and plain_class(folder) != stated[0]:
        what = f"claims two classes: {folder!r} and T={stated[0]} in its name"
    if what is not None:
        raise InputError.at(where, f"{file!r} {what}", line, field)
    return stated[0] if folder is None else folder


# --- Other layouts -----------------------------------------------------------------------------------------------


def read_table(file: str, root: Path, references: bool = False) -> dict[str, Found]:
    """Set-up -> images of a CSV with the columns file, class and setup, in any order. Raises InputError."""
    setups: dict[str, Found] = {}
    for line, row in read_csv(file).need(("file", "class", "setup")):
        path, claims, name = row["file"], row["class"], row["setup"].strip("/")
        everywhere = references and name == ""
        for column, wrong, what in (
            ("file", not is_safe_path(path), f"{path!r} is not a path inside {root}"),
            ("file", not os.path.isfile(root / path), f"there is no file {path} in {root}"),
            ("setup", not everywhere and not (is_safe_path(name) and name.isprintable()), f"{name!r} is not a name"),
            ("class", not claims.isprintable() or (references and not claims), f"{claims!r} is not a class"),
        ):
            if wrong:
                raise InputError.at(file, what, line, column)
        found = setups.setdefault(name, Found())
        if references:
            found.references.setdefault(claims, []).append(path)
        else:
            claims = claimed_class(claims or None, path.rsplit("/", 1)[-1], file, line, "file")
            found.images.append(Reconstruction(claims, path, path))
    return setups


def is_index(text: str) -> bool:
    return text.isascii() and text.isdigit()


def plain_class(name: str) -> str:
    """A class without its leading zeros, where it is a number: 007 is class 7."""
    return name.lstrip("0") or "0" if is_index(name) else name
