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
from dataclasses import dataclass
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

_FACTS = ("private", "attack", "public", "target", "evaluation_model", "evaluation_crop")


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
    """What may be said of a set-up."""

    subject: Any = None
    reference_crop: list[int] | None = ruled(None, holds=(is_box, "[left, upper, right, lower] in pixels"))
    private: str | None = ruled(None, matches=WORDS)
    attack: str | None = ruled(None, matches=WORDS)
    public: str | None = ruled(None, matches=WORDS)
    target: str | None = ruled(None, matches=WORDS)
    evaluation_model: str | None = ruled(None, matches=WORDS)
    evaluation_crop: str | None = ruled(None, matches=WORDS)
    evaluation_accuracy: float | None = ruled(None, least=0, most=1)


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
        if claims in self.references or not is_index(claims):
            return self.references.get(claims, ())
        same = [name for name in self.references if plain_class(name) == plain_class(claims)]
        return self.references[same[0]] if len(same) == 1 else ()

    def record(self) -> dict[str, Any]:
        """A row of the manifest."""
        claimed = {image.claims for image in self.reconstructions}
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
            "classes_without_references": sorted(name for name in claimed if not self.references_of(name)),
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
    for name in declared:
        if name in found:
            raise InputError.at(file, f"{name!r} is a set-up of the tree or table as well", field="folders")
    found |= declared
    if not found:
        raise InputError.at(
            root, f"has no folder {IMAGES} in it; other layouts need folders, or a CSV (reconstructions)"
        )
    ids = _ids(list(found))
    chosen = _choose(found, ids, only)
    said = {str(key).strip("/"): row for key, row in stated.setups.items()}
    facts = {name: _facts(name, said, file) for name in found}
    for name in said:
        if not any(_leads(name, other) for other in found):
            print(f"note: {file}: setups.{name} fits no set-up (there are {first_few(sorted(found))})")
    shared = None if stated.references is None else read_table(stated.references, root, references=True)
    setups = []
    for name in chosen:
        if stated.reconstructions is None and name not in declared:
            tree.fill(name, found[name])
        if found[name].references:
            references = found[name].references
        elif shared is None:
            references = tree.references(name, found[name])
        else:
            references = {}
            for part in (shared.get(name), shared.get("")):
                for claims, paths in (part.references if part else {}).items():
                    references.setdefault(claims, []).extend(paths)
        stated_facts = facts[name]
        if "subject" not in stated_facts:
            raise InputError.at(
                file,
                "nobody says what its classes are: give subject, for it or for a leading part of its name",
                field=f"setups.{name}",
            )
        images = sorted(found[name].images, key=lambda image: (image.claims, image.file))
        _check_unique(images, name)
        setups.append(
            Setup(
                name,
                ids[name],
                stated_facts.pop("subject"),
                _with_path(name, stated_facts),
                stated_facts.pop("reference_crop", None),
                tuple(images),
                {claims: tuple(sorted(set(paths))) for claims, paths in sorted(references.items())},
                found[name].ignored,
            )
        )
    return root, setups


# --- What the YAML says ------------------------------------------------------------------------------------------


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


def _facts(name: str, stated: Mapping[str, Any], file: str | Path) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key in sorted((key for key in stated if _leads(key, name)), key=len):
        facts |= _read_facts(stated[key], f"setups.{key}.", file)
    return facts


def _read_facts(row: Any, within: str, file: str | Path) -> dict[str, Any]:
    """Those that are stated."""
    read_fields(Facts, row, file, within=within)
    facts = dict(row)
    if "subject" in facts:
        try:
            facts["subject"] = read_subject(facts["subject"])
        except ValueError as error:
            raise InputError.at(file, str(error), field=f"{within}subject") from error
    if facts.get("reference_crop") is not None:
        facts["reference_crop"] = tuple(facts["reference_crop"])
    return facts


def _with_path(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with those that the public collection's folders tell."""
    parts = name.split("/")
    folders = dict(zip(_FACTS, parts, strict=False)) if len(parts) == 4 else {}
    return {key: facts.get(key, folders.get(key)) for key in (*_FACTS, "evaluation_accuracy")}


def _leads(part: str, name: str) -> bool:
    """Whether a name begins with the parts of another. The collection spells Facescrub, its paper FaceScrub."""
    return f"{_spelt(name)}/".startswith(f"{_spelt(part)}/")


def _spelt(name: str) -> str:
    return re.sub(r"[^\w/]|_", "", name.casefold())


def _choose(found: Mapping[str, Found], ids: Mapping[str, str], only: Sequence[str]) -> list[str]:
    if not only:
        return sorted(found)
    chosen: set[str] = set()
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


def _check_unique(images: Sequence[Reconstruction], name: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    for image in images:
        key = image.claims, image.file
        if key in seen:
            raise InputError(f"{name}: {image.file!r} is twice in class {image.claims!r}: {seen[key]} and {image.path}")
        seen[key] = image.path
