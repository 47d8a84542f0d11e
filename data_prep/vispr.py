"""VISPR as it lies on disk: split lists, annotations, and the photos they speak of.

A collection is a folder with ``images/val2017/``, ``annotations/val2017/`` and, if it came along, ``val2017.txt``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import is_safe_path, read_text
from cprt.images import ImageIndex
from cprt.vispr import read_annotation

SPLITS = ("train", "val", "test")
SAFE = "a0_safe"
ODD = ("missing_images", "missing_annotations", "unlisted", "contradictory")


@dataclass(frozen=True)
class VisprRow:
    """One photo. ``image`` is relative to the image root; ``labels`` are VISPR's ids, without ``a0_safe``.

    ``safe``: the annotation says that nothing private is shown, and lists nothing.
    """

    id: str
    image: str
    labels: tuple[str, ...]
    safe: bool


@dataclass(frozen=True)
class VisprSplit:
    """A split: its rows, in the order of its list, and by id all that is not in them or is odd."""

    split: str
    rows: list[VisprRow]
    missing_images: list[str]  # annotated, but the photo is not there
    missing_annotations: list[str]  # in the list, but not annotated
    unlisted: list[str]  # annotated, but not in the list; no rows either
    contradictory: list[str]  # said to be safe beside labels of something private; rows, not safe
    has_list: bool  # False where there is no list: then every annotation is a row

    def report(self) -> dict[str, Any]:
        """Counts that add up, and the names. ``listed`` = ``rows`` + missing images + missing annotations."""
        rows, names = len(self.rows), {name: getattr(self, name) for name in ODD}
        listed = rows + len(self.missing_images) + len(self.missing_annotations)
        about = {"split": self.split, "has_list": self.has_list, "listed": listed, "rows": rows}
        return {**about, "safe": sum(row.safe for row in self.rows), **names}


def read_vispr(folder: str | Path, split: str, images: str | Path | None = None) -> VisprSplit:
    """Read one split (train, val or test) of the collection in ``folder``; ``images``: where photos are, if not there.

    Raises InputError that names file and field: no such split, an annotation that cannot be read, a list that names an
    id twice or a path outside the collection.
    """
    if split not in SPLITS:
        raise InputError(f"{split!r} is no split of VISPR ({', '.join(SPLITS)})")
    name = f"{split}2017"
    annotations = Path(folder) / "annotations" / name
    if not annotations.is_dir():
        raise InputError.at(annotations, "is not a folder of annotations")
    index = ImageIndex(images or folder)
    annotated = sorted(path.stem for path in annotations.glob("*.json") if not path.name.startswith("."))
    # An archive may bring the list along with its annotations.
    found = [path for path in (Path(folder) / f"{name}.txt", annotations / f"{name}.txt") if path.is_file()]
    listed = _read_list(found[0], name) if found else annotated
    if not listed:
        raise InputError.at(annotations, "holds no annotations")
    there = set(annotated)
    rows, missing_images, contradictory = [], [], []
    for id in listed:
        if id not in there:
            continue
        file = annotations / f"{id}.json"
        image_path, labels, safe = read_annotation(file, id)
        image = index.find(image_path.removeprefix("images/"), file, field="image_path")
        if image is None:
            missing_images.append(id)
            continue
        private = tuple(label for label in labels if label != SAFE)
        safe = safe or SAFE in labels
        if safe and private:
            contradictory.append(id)
        rows.append(VisprRow(id, image, private, safe and not private))
    missing_annotations, unlisted = [id for id in listed if id not in there], sorted(there - set(listed))
    return VisprSplit(split, rows, missing_images, missing_annotations, unlisted, contradictory, bool(found))


def _read_list(path: Path, name: str) -> list[str]:
    """The ids of a split list, whose lines are ``annotations/val2017/ID.json``."""
    lines: dict[str, int] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        entry = line.strip()
        if not entry:
            continue
        id = entry.removeprefix(f"annotations/{name}/").removesuffix(".json")
        if not is_safe_path(id) or "/" in id or not entry.endswith(".json"):
            raise InputError.at(path, f"{entry!r} is not annotations/{name}/ID.json", line=number)
        if id in lines:
            raise InputError.at(path, f"{id!r} is there already in line {lines[id]}", line=number)
        lines[id] = number
    if not lines:
        raise InputError.at(path, "has no lines")
    return list(lines)
