"""The set-ups of a collection of reconstructions: private data x attack x public data x target model.

A YAML file says where the collection lies and what cannot be seen in it, by set-up or by any leading part of its name;
the longest name that fits wins, field by field (``configs/mi/collection.yaml``)::

    root: data/MI-Reconstruction-Collection
    setups:
      CelebA: {subject: person}
      CelebA/PPA: {evaluation_model: InceptionV3, evaluation_crop: "centre, 224 pixels", evaluation_accuracy: 0.93}

The public collection is read as it is, ``AttackSamples`` nested or not: every folder ``all-images`` is a set-up, named
by the folders above it, and references stand in ``private-data/<class>/``, inside the set-up or at any level above. In
``all-images`` the claimed class is the folder, or ``T=`` in the file's name where files lie flat. Folders of other
tools come in by a declared layout (``layouts.py``), anything else through CSV files of ``file, class, setup``. Names
fit whatever their capitals, hyphens and underscores are.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from cprt.config import option, parse
from cprt.errors import InputError
from cprt.files import is_safe_path
from cprt.images import is_box
from cprt.pages.words import first_few
from cprt.values import WORDS, read_fields, ruled
from eval.model_inversion.collection.layouts import LAYOUTS, find_images
from eval.model_inversion.collection.places import (
    IMAGES,
    Found,
    Reconstruction,
    Tree,
    is_index,
    plain_class,
    read_table,
)
from eval.model_inversion.judge.prompts import Subject, read_subject


@dataclass
class SetupsFile:
    """The YAML file. ``root`` is relative to the working directory, every path in the CSV files to ``root``."""

    root: str = option("folder of the collection")
    setups: dict[str, Any] = option("facts by set-up, or by leading parts of its name")
    folders: dict[str, Any] = option("set-ups of other tools: name -> {layout, images, references}", factory=dict)
    reconstructions: str | None = option("CSV of file, class, setup; null: the tree", None)
    references: str | None = option("CSV of file, class, setup (empty: all set-ups)", None)


@dataclass(frozen=True)
class _Folder:
    """A set-up of another tool in the YAML."""

    layout: str = ruled(holds=(LAYOUTS.__contains__, f"one of {', '.join(LAYOUTS)}"))
    images: str = ruled(holds=(is_safe_path, "a path inside the collection"))
    references: str | None = ruled(None, holds=(is_safe_path, "a path inside the collection"))


@dataclass(frozen=True)
class Facts:
    """What may be said of a set-up; ``evaluation_accuracy`` is that of the evaluation model on clean images."""

    subject: Any = None
    reference_crop: list[int] | None = ruled(None, holds=(is_box, "[left, upper, right, lower] in pixels"))
    private: str | None = ruled(None, matches=WORDS)
    attack: str | None = ruled(None, matches=WORDS)
    public: str | None = ruled(None, matches=WORDS)
    target: str | None = ruled(None, matches=WORDS)
    evaluation_model: str | None = ruled(None, matches=WORDS)
    evaluation_crop: str | None = ruled(None, matches=WORDS)
    evaluation_accuracy: float | None = ruled(None, least=0, most=1)


_FACTS = [field.name for field in fields(Facts) if field.name not in ("subject", "reference_crop")]  # in the manifest


@dataclass(frozen=True)
class Setup:
    """One attack on one model.

    Attributes:
        name: as in the collection, such as CelebA/KEDMI/CelebA/FaceNet64.
        id: the same as a safe file name: celeba_kedmi_celeba_facenet64.
        facts: those of ``Facts`` but subject and crop; null where nobody said.
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
        if claims in self.references or not is_index(claims):
            return self.references.get(claims, ())
        same = [name for name in self.references if plain_class(name) == plain_class(claims)]
        return self.references[same[0]] if len(same) == 1 else ()

    def record(self) -> dict[str, Any]:
        """A row of the manifest."""
        claimed = sorted({image.claims for image in self.reconstructions})
        return {
            "id": self.id,
            "name": self.name,
            **self.facts,
            "same": self.subject.same,
            "allow": self.subject.allow,
            "reference_crop": None if self.crop is None else list(self.crop),
            "reconstructions": len(self.reconstructions),
            "classes": len(claimed),
            "reference_classes": len(self.references),
            "references": sum(map(len, self.references.values())),
            "classes_without_references": [name for name in claimed if not self.references_of(name)],
            "ignored_files": self.ignored,
        }


def read_setups(file: str | Path, only: Sequence[str] = ()) -> tuple[Path, list[Setup]]:
    """The root and all set-ups, or those that ``only`` names (by name, leading part of a name, or id), in order.

    Raises InputError for whatever leaves a class, a subject or a file in doubt.
    """
    (stated,) = parse(SetupsFile, ["--config", str(file)])
    root = Path(stated.root)
    if not root.is_dir():
        raise InputError.at(file, f"there is no folder {stated.root}", field="root")
    tree = Tree(root)
    found = tree.setups() if stated.reconstructions is None else read_table(stated.reconstructions, root)
    declared = _declared(stated.folders, root, file)
    for name in declared.keys() & found.keys():
        raise InputError.at(file, f"{name!r} is a set-up of the tree or table as well", field="folders")
    in_tree = {} if stated.reconstructions is not None else found
    found = found | declared
    if not found:
        what = f"has no folder {IMAGES} in it; other layouts need folders, or a CSV (reconstructions)"
        raise InputError.at(root, what)
    ids = _ids(list(found))
    chosen = _choose(found, ids, only)
    said = {key.strip("/"): _read_facts(row, f"setups.{key}.", file) for key, row in stated.setups.items()}
    for key in said:
        if not any(_leads(key, name) for name in found):
            print(f"note: {file}: setups.{key} fits no set-up (there are {first_few(sorted(found))})")
    shared = None if stated.references is None else read_table(stated.references, root, references=True)
    setups = []
    for name in chosen:
        own = found[name]
        if name in in_tree:
            tree.fill(name, own)
        references = own.references
        if not references and shared is None:
            references = tree.references(name, own)
        elif shared is not None and not references:
            for place in (name, ""):
                for claims, paths in shared.get(place, Found()).references.items():
                    references.setdefault(claims, []).extend(paths)
        facts: dict[str, Any] = {}
        for key in sorted((key for key in said if _leads(key, name)), key=len):
            facts |= said[key]
        if "subject" not in facts:
            nobody = "nobody says what its classes are: give subject, for it or for a leading part of its name"
            raise InputError.at(file, nobody, field=f"setups.{name}")
        parts = name.split("/")
        of_folders = dict(zip(_FACTS, parts, strict=False)) if len(parts) == 4 else {}
        setups.append(
            Setup(
                name,
                ids[name],
                facts["subject"],
                {key: facts.get(key, of_folders.get(key)) for key in _FACTS},
                facts.get("reference_crop"),
                _each_once(own.images, name),
                {claims: tuple(sorted(set(paths))) for claims, paths in sorted(references.items())},
                own.ignored,
            )
        )
    return root, setups


def _declared(rows: Mapping[str, Any], root: Path, file: str | Path) -> dict[str, Found]:
    """Set-ups that ``folders`` declares. Raises InputError."""
    setups = {}
    for name, row in rows.items():
        if not is_safe_path(name) or not name.isprintable():
            raise InputError.at(file, f"{name!r} is not a name", field="folders")
        stated = read_fields(_Folder, row, file, within=f"folders.{name}.")
        for key, folder in (("images", stated.images), ("references", stated.references)):
            if folder is not None and not (root / folder).is_dir():
                raise InputError.at(file, f"{folder!r} is not a folder in {root}", field=f"folders.{name}.{key}")
        found = setups[name.strip("/")] = Found()
        for claims, path in find_images(root / stated.images, stated.layout):
            found.images.append(Reconstruction(claims, path.name, path.relative_to(root).as_posix()))
        for claims, path in find_images(root / stated.references, "classes") if stated.references else []:
            found.references.setdefault(claims, []).append(path.relative_to(root).as_posix())
    return setups


def _read_facts(row: Any, within: str, file: str | Path) -> dict[str, Any]:
    """Those that are stated."""
    read_fields(Facts, row, file, within=within)
    facts = dict(row)
    try:
        if "subject" in facts:
            facts["subject"] = read_subject(facts["subject"])
    except ValueError as error:
        raise InputError.at(file, str(error), field=f"{within}subject") from error
    if facts.get("reference_crop") is not None:
        facts["reference_crop"] = tuple(facts["reference_crop"])
    return facts


def _leads(part: str, name: str) -> bool:
    """Whether a name begins with the parts of another. The collection spells Facescrub, its paper FaceScrub."""
    name, part = (re.sub(r"[^\w/]|_", "", text.casefold()) for text in (name, part))
    return f"{name}/".startswith(f"{part}/")


def _choose(found: Mapping[str, Found], ids: Mapping[str, str], only: Sequence[str]) -> list[str]:
    chosen: set[str] = set() if only else set(found)
    for wanted in only:
        fitting = [name for name in found if _leads(wanted.strip("/"), name) or ids[name] == wanted]
        if not fitting:
            raise InputError(f"only: {wanted!r} fits no set-up (there are {first_few(sorted(found))})")
        chosen.update(fitting)
    return sorted(chosen)


def _ids(names: Sequence[str]) -> dict[str, str]:
    """A safe file name for each set-up; two that would be equal are told apart by a digest of their names."""
    plain = {name: "_".join(map(_slug, name.split("/"))) for name in names}
    count = Counter(plain.values())
    return {
        name: slug if count[slug] == 1 and len(slug) <= 120 else f"{slug[:100]}-{_digest(name)}"
        for name, slug in plain.items()
    }


def _slug(part: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9-]+", "-", ascii_only).strip("-") or _digest(part)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _each_once(images: Sequence[Reconstruction], name: str) -> tuple[Reconstruction, ...]:
    """Sorted. Raises InputError for a file that is twice in its class."""
    ordered = tuple(sorted(images, key=lambda image: (image.claims, image.file)))
    for one, two in pairwise(ordered):
        if (one.claims, one.file) == (two.claims, two.file):
            raise InputError(f"{name}: {two.file!r} is twice in class {two.claims!r}: {one.path} and {two.path}")
    return ordered
