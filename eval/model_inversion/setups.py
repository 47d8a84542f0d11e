"""The set-ups of a collection of reconstructions: private data x attack x public data x target model.

A YAML file says where the collection lies and what cannot be seen in it, by set-up or by any leading part of its name;
the longest name that fits wins, field by field (``configs/mi/collection.yaml``)::

    root: data/MI-Reconstruction-Collection
    setups:
      CelebA: {subject: person}
      CelebA/PPA: {evaluation_model: InceptionV3, evaluation_crop: "centre, 224 pixels", evaluation_accuracy: 0.93}

The public collection is read as it is, ``AttackSamples`` nested or not: every folder ``all-images`` is a set-up, named
by the folders above it, and references stand in ``private-data/<class>/``, inside the set-up or at any level above. In
``all-images`` the claimed class is the folder, or ``T=`` in the file's name where files lie flat. Any other layout
comes in through CSV files of ``file, class, setup``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.config import fits, parse
from cprt.errors import InputError
from cprt.images import SUFFIXES
from cprt.records import is_number, is_safe_path, read_text
from eval.model_inversion.prompts import Subject, read_subject

_IMAGES, _REFERENCES, _NEST = "all-images", "private-data", "AttackSamples"
_FACTS = ("private", "attack", "public", "target", "evaluation_model", "evaluation_crop")
_TARGET = re.compile(r"(?:^|_)T=([0-9]+)(?=[_.]|$)", re.ASCII)


@dataclass
class SetupsFile:
    """The YAML file. ``root`` is relative to the working directory, every path in the CSV files to ``root``."""

    root: str = field(metadata={"help": "folder of the collection"})
    setups: dict[str, Any] = field(metadata={"help": "facts by set-up, or by leading parts of its name"})
    reconstructions: str | None = field(default=None, metadata={"help": "CSV of file, class, setup; null: the tree"})
    references: str | None = field(default=None, metadata={"help": "CSV of file, class, setup (empty: all set-ups)"})


@dataclass(frozen=True)
class Reconstruction:
    """One reconstruction: the class it claims to be, its file name there, and its path relative to the root."""

    claims: str
    file: str
    path: str


@dataclass(frozen=True)
class Setup:
    """One attack on one model.

    Attributes:
        name: as in the collection, such as CelebA/KEDMI/CelebA/FaceNet64.
        id: the same as a safe file name: celeba_kedmi_celeba_facenet64.
        facts: private, attack, public, target, evaluation_model, evaluation_crop, evaluation_accuracy (of the
            evaluation model on clean images, 0 to 1); null where nobody said.
        crop: left, upper, right, lower in pixels that references are cut to, or None.
        references: class -> paths relative to the root, sorted.
        ignored: files in its folders that are no images by their suffix.
    """

    name: str
    id: str
    subject: Subject
    facts: Mapping[str, Any]
    crop: tuple[int, int, int, int] | None
    reconstructions: tuple[Reconstruction, ...]
    references: Mapping[str, tuple[str, ...]]
    ignored: int = 0

    @property
    def source(self) -> str:
        """What control pairs belong to: set-ups with the same private data share them."""
        return self.facts["private"] or self.name

    def references_of(self, claims: str) -> tuple[str, ...]:
        """References of a class; "7" also finds the folder "007" where there is no "7"."""
        if claims in self.references or not _is_index(claims):
            return self.references.get(claims, ())
        same = [name for name in self.references if _is_index(name) and int(name) == int(claims)]
        return self.references[same[0]] if len(same) == 1 else ()

    def record(self) -> dict[str, Any]:
        """A row of the manifest."""
        claimed = {image.claims for image in self.reconstructions}
        return {
            "id": self.id, "name": self.name, **self.facts, "same": self.subject.same, "allow": self.subject.allow,
            "reference_crop": None if self.crop is None else list(self.crop),
            "reconstructions": len(self.reconstructions), "classes": len(claimed),
            "reference_classes": len(self.references), "references": sum(map(len, self.references.values())),
            "classes_without_references": sorted(name for name in claimed if not self.references_of(name)),
            "ignored_files": self.ignored,
        }  # fmt: skip


@dataclass
class _Found:
    """What lies on disk, before anybody says what it is."""

    images: list[Reconstruction] = field(default_factory=list)
    references: dict[str, list[str]] = field(default_factory=dict)
    ignored: int = 0


def read_setups(file: str | Path, only: Sequence[str] = ()) -> tuple[Path, list[Setup]]:
    """The root and all set-ups, or those that ``only`` names (by name, leading part of a name, or id), in order.

    Raises InputError for whatever leaves a class, a subject or a file in doubt.
    """
    (stated,) = parse(SetupsFile, ["--config", str(file)])
    root = Path(stated.root)
    if not root.is_dir():
        raise InputError.at(file, f"there is no folder {stated.root}", field="root")
    tree = _Tree(root)
    found = tree.setups() if stated.reconstructions is None else _read_table(stated.reconstructions, root)
    if not found:
        raise InputError.at(root, f"has no folder {_IMAGES} in it; other layouts need a CSV (reconstructions)")
    ids = _ids(list(found))
    chosen = _choose(found, ids, only)
    said = {str(key).strip("/"): row for key, row in stated.setups.items()}
    facts = {name: _facts(name, said, file) for name in found}
    for name in said:
        if not any(_leads(name, other) for other in found):
            print(f"note: {file}: setups.{name} fits no set-up (there are {_list(found)})")
    shared = None if stated.references is None else _read_table(stated.references, root, references=True)
    setups = []
    for name in chosen:
        if stated.reconstructions is None:
            tree.fill(name, found[name])
        if shared is None:
            references = tree.references(name, found[name])
        else:
            references = {}
            for part in (shared.get(name), shared.get("")):
                for claims, paths in (part.references if part else {}).items():
                    references.setdefault(claims, []).extend(paths)
        stated_facts = facts[name]
        if "subject" not in stated_facts:
            raise InputError.at(file, "nobody says what its classes are: give subject, for it or for a leading part of "
                                "its name", field=f"setups.{name}")  # fmt: skip
        images = sorted(found[name].images, key=lambda image: (image.claims, image.file))
        _check_unique(images, name)
        setups.append(Setup(name, ids[name], stated_facts.pop("subject"), _with_path(name, stated_facts),
                            stated_facts.pop("reference_crop", None), tuple(images),
                            {claims: tuple(sorted(set(paths))) for claims, paths in sorted(references.items())},
                            found[name].ignored))  # fmt: skip
    return root, setups


# --- What the YAML says ------------------------------------------------------------------------------------------


def _facts(name: str, stated: Mapping[str, Any], file: str | Path) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key in sorted((key for key in stated if _leads(key, name)), key=len):
        facts |= _read_facts(stated[key], f"setups.{key}", file)
    return facts


def _read_facts(row: Any, where: str, file: str | Path) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InputError.at(file, "must be a mapping", field=where)
    facts = dict(row)
    for key, value in row.items():
        place = f"{where}.{key}"
        if key == "subject":
            try:
                facts[key] = read_subject(value)
            except ValueError as error:
                raise InputError.at(file, str(error), field=place) from error
        elif key == "reference_crop":
            if (
                not fits(value, list[int])
                or len(value) != 4
                or not (0 <= value[0] < value[2] and 0 <= value[1] < value[3])
            ):
                raise InputError.at(file, "must be [left, upper, right, lower] in pixels", field=place)
            facts[key] = tuple(value)
        elif key == "evaluation_accuracy":
            if value is not None and not (is_number(value) and 0 <= value <= 1):
                raise InputError.at(file, f"{value!r} is not a number from 0 to 1", field=place)
        elif key not in _FACTS:
            known = ", ".join(("subject", "reference_crop", *_FACTS, "evaluation_accuracy"))
            raise InputError.at(file, f"unknown field (there are {known})", field=place)
        elif value is not None and not (isinstance(value, str) and value.strip()):
            raise InputError.at(file, f"{value!r} is not a text", field=place)
    return facts


def _with_path(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with those that the public collection's folders tell."""
    parts = name.split("/")
    folders = dict(zip(_FACTS, parts, strict=False)) if len(parts) == 4 else {}
    return {key: facts.get(key, folders.get(key)) for key in (*_FACTS, "evaluation_accuracy")}


def _leads(part: str, name: str) -> bool:
    return f"{name}/".startswith(f"{part}/")


def _choose(found: Mapping[str, _Found], ids: Mapping[str, str], only: Sequence[str]) -> list[str]:
    if not only:
        return sorted(found)
    chosen: set[str] = set()
    for wanted in only:
        fitting = [name for name in found if _leads(wanted.strip("/"), name) or ids[name] == wanted]
        if not fitting:
            raise InputError(f"only: {wanted!r} fits no set-up (there are {_list(found)})")
        chosen.update(fitting)
    return sorted(chosen)


def _ids(names: Sequence[str]) -> dict[str, str]:
    """A safe file name for each set-up; two that would be equal are told apart by a digest of their names."""
    plain = {name: "_".join(map(_slug, name.split("/"))) for name in names}
    count = Counter(plain.values())
    return {name: slug if count[slug] == 1 and len(slug) <= 120 else f"{slug[:100]}-{_digest(name)}"
            for name, slug in plain.items()}  # fmt: skip


def _slug(part: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9-]+", "-", ascii_only).strip("-") or _digest(part)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# --- The public collection's tree --------------------------------------------------------------------------------


class _Tree:
    """Where set-ups and references lie below a root. Links to folders are not followed."""

    def __init__(self, root: Path):
        self.root = root
        self.images: dict[str, Path] = {}
        self.private: dict[str, Path] = {}

    def setups(self) -> dict[str, _Found]:
        """Names of all set-ups, still empty."""
        for directory, folders, _ in os.walk(self.root):
            for kind, places in ((_IMAGES, self.images), (_REFERENCES, self.private)):
                if kind in folders:
                    self._add(Path(directory) / kind, places)
            folders[:] = sorted(name for name in folders if name not in (_IMAGES, _REFERENCES) and name[0] != ".")
        return {name: _Found() for name in self.images}

    def _add(self, path: Path, places: dict[str, Path]) -> None:
        parts = path.parent.relative_to(self.root).parts
        while parts and parts[0] == _NEST:
            parts = parts[1:]
        name = "/".join(parts)
        _check_name(name, path)
        if name in places:
            raise InputError.at(path, f"is there twice, also as {places[name]}")
        if parts or path.name == _REFERENCES:
            places[name] = path

    def fill(self, name: str, found: _Found) -> None:
        """Read the reconstructions of one set-up."""
        targets: dict[str, str] = {}  # the class that T= names -> the folder it was seen in
        for folder, path in self._files(self.images[name], found):
            file = path.rsplit("/", 1)[-1]
            target = target_in(file)
            claims = claimed_class(folder, file, path)
            if target is not None and folder is not None and not _is_index(folder):
                if targets.setdefault(target, folder) != folder:
                    raise InputError.at(path, f"T={target} stands in folder {folder!r} and in {targets[target]!r}")
                if targets.setdefault(f"/{folder}", target) != target:
                    raise InputError.at(path, f"folder {folder!r} has T={target} and T={targets[f'/{folder}']}")
            found.images.append(Reconstruction(claims, file, path))
        if not found.images:
            raise InputError.at(self.images[name], "has no images in it")

    def references(self, name: str, found: _Found) -> dict[str, list[str]]:
        """References of one set-up by class, from the nearest folder above it."""
        if not self.private and not self.images:  # reconstructions came from a CSV
            self.setups()
        parts = name.split("/")
        for depth in range(len(parts), -1, -1):
            place = self.private.get("/".join(parts[:depth]))
            if place is not None:
                break
        else:
            raise InputError.at(self.root, f"has no {_REFERENCES} for set-up {name}, inside it or at a level above")
        classes: dict[str, list[str]] = {entry.name: [] for entry in _entries(place) if entry.is_dir()}
        for folder, path in self._files(place, found):
            if folder is None:
                raise InputError.at(path, f"lies in {_REFERENCES} itself: its class is not known")
            classes[folder].append(path)
        return classes

    def _files(self, place: Path, found: _Found) -> Iterator[tuple[str | None, str]]:
        """(folder or None, path relative to the root) of every image in ``place`` and its folders."""
        for entry in _entries(place):
            if entry.is_dir():
                for inner in _entries(entry):
                    if inner.is_dir():
                        raise InputError.at(inner, f"is a folder in a class; images lie in {place.name}/<class>/")
                    yield from ((entry.name, path) for path in self._image(inner, found))
            else:
                yield from ((None, path) for path in self._image(entry, found))

    def _image(self, path: Path, found: _Found) -> list[str]:
        if path.suffix.lower() in SUFFIXES:
            return [path.relative_to(self.root).as_posix()]
        found.ignored += 1
        return []


def _entries(folder: Path) -> list[Path]:
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in entries:
        _check_name(path.name, folder)
    return entries


def target_in(file: str) -> str | None:
    """The class index that ``T=`` in a file's name states, None where there is none."""
    stated = {str(int(index)) for index in _TARGET.findall(file)}
    if len(stated) > 1:
        raise InputError(f"{file}: states several classes, {' and '.join(f'T={index}' for index in sorted(stated))}")
    return stated.pop() if stated else None


def claimed_class(folder: str | None, file: str, where: str) -> str:
    """The class a reconstruction claims, by its folder (or table) or by ``T=`` in its name. Raises InputError.

    A folder that is a number must agree with ``T=``; one that is a name cannot be compared with an index.
    """
    target = target_in(file)
    if folder is None:
        if target is None:
            raise InputError.at(where, "claims no class: it lies in no class folder and has no T= in its name")
        return target
    if target is not None and _is_index(folder) and int(folder) != int(target):
        raise InputError.at(where, f"claims two classes: {folder!r} and T={target} in its name")
    return folder


# --- Other layouts -----------------------------------------------------------------------------------------------


def _read_table(file: str, root: Path, references: bool = False) -> dict[str, _Found]:
    """Set-up -> images of a CSV with the columns file, class and setup, in any order. Raises InputError."""
    reader = csv.reader(io.StringIO(read_text(file), newline=""), strict=True)
    setups: dict[str, _Found] = {}
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        for column in ("file", "class", "setup"):
            if header.count(column) != 1:
                raise InputError.at(file, f"needs one column {column!r} (it has {', '.join(header) or 'none'})", line=1)
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise InputError.at(file, f"has {len(cells)} cells, the header {len(header)}", line=reader.line_num)
            row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
            _read_row(row, file, reader.line_num, root, references, setups)
    except csv.Error as error:
        raise InputError.at(file, f"not valid CSV: {error}", line=reader.line_num) from error
    if not setups:
        raise InputError.at(file, "has no rows")
    return setups


def _read_row(
    row: dict[str, str], file: str, line: int, root: Path, references: bool, setups: dict[str, _Found]
) -> None:
    path, claims, name = row["file"], row["class"], row["setup"].strip("/")
    if not is_safe_path(path):
        raise InputError.at(file, f"{path!r} is not a path inside {root}", line, "file")
    if not (root / path).is_file():
        raise InputError.at(file, f"there is no file {path} in {root}", line, "file")
    if name == "" and references:
        pass
    elif not is_safe_path(name) or not name.isprintable():
        raise InputError.at(file, f"{name!r} is not a name", line, "setup")
    if not claims.isprintable() or (references and not claims):
        raise InputError.at(file, f"{claims!r} is not a class", line, "class")
    found = setups.setdefault(name, _Found())
    if references:
        found.references.setdefault(claims, []).append(path)
    else:
        claims = claimed_class(claims or None, path.rsplit("/", 1)[-1], f"{file}:{line}: {path}")
        found.images.append(Reconstruction(claims, path, path))


# --- Checks ------------------------------------------------------------------------------------------------------


def _check_unique(images: Sequence[Reconstruction], name: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    for image in images:
        key = image.claims, image.file
        if key in seen:
            raise InputError(f"{name}: {image.file!r} is twice in class {image.claims!r}: {seen[key]} and {image.path}")
        seen[key] = image.path


def _check_name(name: str, where: Path) -> None:
    if not name.isprintable():  # control characters, and bytes that are not UTF-8
        raise InputError(f"{str(where)!r}: the name {name!r} is not printable text")


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
