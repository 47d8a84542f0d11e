"""VISPR's annotations, in both of their layouts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import is_safe_path
from cprt.records import read_json
from cprt.values import read_fields, ruled

LABEL = re.compile(r"a\d+_\w+")


@dataclass(frozen=True)
class _Annotation:
    """A file of VISPR's, in either layout: ``labels``, a list, or ``attributes``, lists by category."""

    image_path: str = ruled(holds=(is_safe_path, "a path inside the collection"))
    id: Any = None
    safe: bool = False
    labels: list[Any] | None = None
    attributes: dict[str, list[Any]] | None = None


def read_annotation(path: Path, id: str) -> tuple[str, list[str], bool]:
    """Image path, labels (each once, in their order) and the safe flag of one annotation. Raises InputError."""
    stated = read_fields(_Annotation, read_json(path), path, loose=True)
    if str(stated.id or id) != id:
        raise InputError.at(path, f"{stated.id!r} is not the file's name", field="id")
    if stated.labels is None and stated.attributes is None:
        raise InputError.at(path, "is missing, and so is `attributes`", field="labels")
    groups = {"labels": stated.labels or []}
    groups |= {f"attributes.{category}": values for category, values in (stated.attributes or {}).items()}
    for field, values in groups.items():
        for label in values:
            if not isinstance(label, str) or not LABEL.fullmatch(label):
                raise InputError.at(path, f"{label!r} is not a label such as a9_face_complete", field=field)
    labels = list(dict.fromkeys(label for values in groups.values() for label in values))
    if not labels and not stated.safe:
        raise InputError.at(path, "is empty, and `safe` is not true", field="labels")
    return stated.image_path, labels, stated.safe
