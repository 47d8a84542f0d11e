"""Who answered what about which image: the files that ``cprt agreement`` reads, and the array they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from cprt import records
from cprt.errors import InputError
from cprt.images import SUFFIXES
from cprt.metrics.agreement import KINDS, MISSING
from cprt.tables import read_csv
from cprt.taxonomy import Taxonomy
from cprt.values import number

LABELS = (0, 0.5, 1)


@dataclass(frozen=True)
class Row:
    """One annotator's answers about one image, None for each that is missing. ``where``: file and line."""

    where: str
    annotator: str
    kind: str
    image: str
    values: list[float | None]
    status: str = "ok"


def read_answers(path: str | Path, taxonomy: Taxonomy) -> Iterator[Row]:
    """The rows of a CSV file. Raises InputError naming line and column."""
    wanted = ("annotator", "kind", "image", *taxonomy.keys)
    unknown = "is neither annotator, kind, image nor a key of the taxonomy"
    for line, row in read_csv(path).need(wanted, known=(), unknown=unknown):
        for name in ("annotator", "image"):
            if not row[name]:
                raise InputError.at(path, "is empty", line, name)
        if row["kind"] not in KINDS:
            raise InputError.at(path, f"{row['kind']!r} is not human or model", line, "kind")
        values = [_label(row[key], path, line, key) for key in taxonomy.keys]
        yield Row(f"{path}:{line}", row["annotator"], row["kind"], image_name(row["image"]), values)


def _label(cell: str, path: str | Path, line: int, key: str) -> float | None:
    with suppress(ValueError):
        if not cell or number(cell) in LABELS:
            return number(cell) if cell else None
    raise InputError.at(path, f"{cell!r} is not 0, 0.5, 1 or empty", line, key)


def read_annotations(path: str | Path, taxonomy: Taxonomy) -> Iterator[Row]:
    """The rows of an annotations file, all of models. Raises InputError naming line and field."""
    for line, row in records.read_annotations(path, taxonomy.keys):
        values = [(row.labels or {}).get(key) for key in taxonomy.keys]
        yield Row(f"{path}:{line}", row.annotator, "model", image_name(row.id), values, row.status)


def image_name(image: str) -> str:
    """The id of an image: its file name, without folder and extension, as in labels.jsonl."""
    name = PurePosixPath(image)
    return name.stem if name.suffix.lower() in SUFFIXES else name.name


def assemble(rows: Sequence[Row]) -> tuple[NDArray[np.int8], list[str], list[str], list[str]]:
    """(R, N, A) answers of 0, 1 and MISSING, the R annotators, their kinds, and the N images, each in order of first
    appearance. Raises InputError on an image that an annotator has twice and on a name of both kinds.
    """
    kinds: dict[str, tuple[str, str]] = {}
    seen: dict[tuple[str, str], str] = {}
    images = list(dict.fromkeys(row.image for row in rows))
    for row in rows:
        kind, where = kinds.setdefault(row.annotator, (row.kind, row.where))
        if kind != row.kind:
            raise InputError(
                f"{row.where}: field 'kind': {row.annotator!r} is a {row.kind} here and a {kind} in {where}"
            )
        first = seen.setdefault((row.annotator, row.image), row.where)
        if first is not row.where:
            raise InputError(f"{row.where}: field 'image': {row.annotator!r} has answers on {row.image!r} in {first}")
    answers = np.full((len(kinds), len(images), len(rows[0].values)), MISSING, dtype=np.int8)
    annotators = list(kinds)
    image_at, annotator_at = ({name: place for place, name in enumerate(names)} for names in (images, annotators))
    for row in rows:
        values = [MISSING if value is None else int(value == 1) for value in row.values]
        answers[annotator_at[row.annotator], image_at[row.image]] = values
    return answers, annotators, [kind for kind, _ in kinds.values()], images
