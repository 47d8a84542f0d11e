"""CPRT-Bench label files: a JSON list of ``{id, binary_labels{level1..level4{key: 0/1}}, level, score}``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.records import is_number, read_json
from cprt.taxonomy import LEVELS, Taxonomy


def read_bench(path: str | Path, taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """Rows ``{row, id, labels, level, score}``, level and score as the file states them (None where it does not).

    ``labels`` maps every key of the taxonomy to 0.0, 0.5 or 1.0. Raises InputError naming row and field.
    """
    content = read_json(path)
    if not isinstance(content, list):
        raise InputError.at(path, "must be a JSON list of rows")
    if not content:
        raise InputError.at(path, "has no rows")
    rows: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(content, start=1):
        parsed = _parse_row(row, f"{path}: row {number}", taxonomy)
        if parsed["id"] in seen:
            first = seen[parsed["id"]]
            raise InputError.at(
                f"{path}: row {number}", f"{parsed['id']!r} is there already in row {first}", field="id"
            )
        seen[parsed["id"]] = number
        rows.append({"row": number, **parsed})
    return rows


def _parse_row(row: Any, where: str, taxonomy: Taxonomy) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InputError.at(where, "is not a JSON object")
    id = row.get("id")
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not id.strip():
        raise InputError.at(where, "must be a non-empty text", field="id")
    level, score = row.get("level"), row.get("score")
    if level is not None and (not is_number(level) or level not in LEVELS):
        raise InputError.at(where, f"{level!r} is not 1, 2, 3 or 4", field="level")
    if score is not None and (not is_number(score) or not 0 <= score <= 1):
        raise InputError.at(where, f"{score!r} is not a number from 0 to 1", field="score")
    labels = _parse_labels(row.get("binary_labels"), where, taxonomy)
    return {"id": id, "labels": labels, "level": None if level is None else int(level), "score": score}


def _parse_labels(groups: Any, where: str, taxonomy: Taxonomy) -> dict[str, float]:
    if not isinstance(groups, Mapping):
        raise InputError.at(where, "must be an object with level1 to level4", field="binary_labels")
    level_of_key = {attribute.key: attribute.level for attribute in taxonomy.attributes}
    labels: dict[str, float] = {}
    for group, values in groups.items():
        field = f"binary_labels.{group}"
        if group not in {f"level{level}" for level in LEVELS} or not isinstance(values, Mapping):
            raise InputError.at(where, "must be one of level1 to level4, holding an object", field=field)
        for key, value in values.items():
            if key not in level_of_key:
                raise InputError.at(where, "is not an attribute of the taxonomy", field=f"{field}.{key}")
            if f"level{level_of_key[key]}" != group:
                raise InputError.at(where, f"belongs to level{level_of_key[key]}", field=f"{field}.{key}")
            if value not in (0, 0.5, 1):  # true and false equal 1 and 0
                raise InputError.at(where, f"{value!r} is not 0, 0.5 or 1", field=f"{field}.{key}")
            labels[key] = float(value)
    missing = [key for key in taxonomy.keys if key not in labels]
    if missing:
        raise InputError.at(where, "is missing", field=f"binary_labels.level{level_of_key[missing[0]]}.{missing[0]}")
    return {key: labels[key] for key in taxonomy.keys}
