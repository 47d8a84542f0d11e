"""What label files say, whatever their format: CPRT-Bench's JSON, a hand-made CSV, or the rows of ``cprt annotate``.

Each reader returns ``Stated`` rows and raises InputError that names file, row and field. A key under another spelling
is translated by ``aliases`` (other spelling -> key).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt import records
from cprt.annotation import consensus
from cprt.errors import InputError
from cprt.files import read_mapping
from cprt.records import read_json
from cprt.tables import read_csv
from cprt.taxonomy import LEVELS, Taxonomy
from cprt.values import is_number, number, read_fields
from data_prep.id_lists import as_id

Aliases = Mapping[str, str]
_NO_ATTRIBUTE = (
    "is not an attribute of the taxonomy (another spelling? put `OTHER: KEY` in a YAML, give it as --aliases; "
    "anything else: take the column out)"
)


@dataclass(frozen=True)
class Stated:
    """One row: where it stands, the photo's id, a value for every key, and level and score if the file has them."""

    where: str
    id: str
    labels: dict[str, float]
    level: int | None = None
    score: float | None = None


def read_bench(path: str | Path, taxonomy: Taxonomy, aliases: Aliases | None = None) -> list[Stated]:
    """A CPRT-Bench file: a JSON list of ``{id, binary_labels{level1..level4{key: 0/1}}, level, score}``.

    Values may be integers, floats or booleans.
    """
    content = read_json(path)
    if not isinstance(content, list):
        raise InputError.at(path, "must be a JSON list of rows")
    rows = [_bench_row(row, f"{path}: row {n}", taxonomy, aliases or {}) for n, row in enumerate(content, start=1)]
    return _checked(rows, path)


def read_table(path: str | Path, taxonomy: Taxonomy, aliases: Aliases | None = None) -> list[Stated]:
    """A CSV with ``id``, a column for every key with 0, 0.5 or 1, and perhaps ``level`` and ``score``."""
    table, rows = read_csv(path, aliases), []
    for line, row in table.need(("id", *taxonomy.keys), known=("level", "score"), unknown=_NO_ATTRIBUTE):
        where = f"{path}:{line}"
        labels = {key: _value(_number(row[key]), where, key) for key in taxonomy.keys}
        level, score = (_number(row[name]) if row.get(name) else None for name in ("level", "score"))
        rows.append(_stated(where, row["id"], labels, level, score))
    return _checked(rows, path)


def read_annotations(path: str | Path, taxonomy: Taxonomy) -> tuple[list[Stated], list[str]]:
    """Rows of ``cprt annotate`` -> consensus, and the ids without one.

    A label is 1 only where every annotator says 1; 0.5 counts as 0 (paper 4.1). A photo that some annotator did not
    answer has no consensus.
    """
    answers: dict[str, dict[str, dict[str, float] | None]] = {}
    first_line: dict[str, int] = {}
    annotators: set[str] = set()
    for line, row in records.read_annotations(path, taxonomy.keys):
        of_photo = answers.setdefault(row.id, {})
        if row.annotator in of_photo:
            raise InputError.at(path, f"{row.annotator!r} has answered {row.id!r} already", line, "annotator")
        of_photo[row.annotator] = row.labels
        first_line.setdefault(row.id, line)
        annotators.add(row.annotator)
    rows, without = [], []
    for id, of_photo in answers.items():
        given = [labels for labels in of_photo.values() if labels is not None]
        if len(given) < len(annotators):
            without.append(id)
            continue
        labels = {key: float(value) for key, value in consensus(given, taxonomy).items()}
        rows.append(_stated(f"{path}:{first_line[id]}", id, labels, None, None))
    if not rows:
        raise InputError.at(path, f"no photo has labels of all {len(annotators)} annotators")
    return _checked(rows, path), without


def read_aliases(path: str | Path, taxonomy: Taxonomy) -> dict[str, str]:
    """A YAML mapping of other spellings to keys, such as ``face: biometrics``."""
    content = read_mapping(path, " from other spellings to keys")
    for other, key in content.items():
        if key not in taxonomy.keys:
            raise InputError.at(path, f"{key!r} is not an attribute of the taxonomy", field=other)
    return content


@dataclass(frozen=True)
class _BenchRow:
    """A row of a CPRT-Bench file."""

    binary_labels: dict[str, dict[str, Any]]
    id: Any = None
    level: Any = None
    score: Any = None


def _bench_row(row: Any, where: str, taxonomy: Taxonomy, aliases: Aliases) -> Stated:
    stated = read_fields(_BenchRow, row, where, loose=True)
    labels: dict[str, float] = {}
    for group, values in stated.binary_labels.items():
        if group not in {f"level{level}" for level in LEVELS}:
            raise InputError.at(where, "is not one of level1 to level4", field=f"binary_labels.{group}")
        for name, value in values.items():
            field, key = f"binary_labels.{group}.{name}", aliases.get(name, name)
            if key not in taxonomy.keys:
                raise InputError.at(where, _NO_ATTRIBUTE, field=field)
            if f"level{taxonomy.level_of[key]}" != group:
                raise InputError.at(where, f"belongs to level{taxonomy.level_of[key]}", field=field)
            if key in labels:
                raise InputError.at(where, f"{key!r} is there already", field=field)
            labels[key] = _value(value, where, field)
    for key in taxonomy.keys:
        if key not in labels:
            raise InputError.at(where, "is missing", field=f"binary_labels.level{taxonomy.level_of[key]}.{key}")
    return _stated(where, stated.id, {key: labels[key] for key in taxonomy.keys}, stated.level, stated.score)


def _value(value: Any, where: str, field: str) -> float:
    if isinstance(value, str) or value not in (0, 0.5, 1):  # true and false equal 1 and 0
        raise InputError.at(where, f"{value!r} is not 0, 0.5 or 1", field=field)
    return float(value)


def _number(cell: str) -> float | str:
    """A CSV cell as a number, or as it is: then the check of its field names it."""
    try:
        return number(cell)
    except ValueError:
        return cell


def _stated(where: str, id: Any, labels: dict[str, float], level: Any, score: Any) -> Stated:
    if (id := as_id(id)) is None:
        raise InputError.at(where, "must be a non-empty text", field="id")
    if level is not None and (not is_number(level) or level not in LEVELS):
        raise InputError.at(where, f"{level!r} is not 1, 2, 3 or 4", field="level")
    if score is not None and (not is_number(score) or not 0 <= score <= 1):
        raise InputError.at(where, f"{score!r} is not a number from 0 to 1", field="score")
    return Stated(where, id, labels, None if level is None else int(level), score)


def _checked(rows: list[Stated], path: str | Path) -> list[Stated]:
    """No file without rows, no id twice."""
    if not rows:
        raise InputError.at(path, "has no rows")
    first: dict[str, str] = {}
    for row in rows:
        if (there := first.setdefault(row.id, row.where)) != row.where:
            place = there.removeprefix(str(path)).removeprefix(": ").replace(":", "line ")
            raise InputError.at(row.where, f"{row.id!r} is there already in {place}", field="id")
    return rows
