"""The rows that travel between stages as JSON Lines, read with errors that name file, line and field."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cprt.answers import STATUSES
from cprt.errors import InputError
from cprt.files import is_safe_path, read_text, without_halves, write_parts, write_text
from cprt.scoring import SCORE_TOLERANCE, severities
from cprt.taxonomy import Taxonomy
from cprt.values import WORDS, is_number, read_fields, ruled

Row = TypeVar("Row", "Label", "Pair", "Annotation", "Prediction")
_UNIT: dict[str, Any] = {"least": 0, "most": 1}
_LEVEL: dict[str, Any] = {"least": 1, "most": 4}
_LEFT_OUT: dict[str, Any] = {"left_out": True}  # of a row, where it is None


def _is_unit(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _are_lists(value: Any) -> bool:
    return all(
        isinstance(one.get("attributes"), list)
        and all(isinstance(key, str) for key in one["attributes"])
        and _is_unit(one.get("probability"))
        and _is_unit(one.get("score"))
        for one in value
    )


def _are_messages(value: Any) -> bool:
    """Whether chat templates can take it: messages of a text, or of parts with a type (and a text, if that is it)."""
    return value != [] and all(
        isinstance(message.get("role"), str) and _is_content(message.get("content")) for message in value
    )


def _is_content(content: Any) -> bool:
    if not isinstance(content, list):
        return isinstance(content, str)
    kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
    return all(isinstance(kind, str) for kind in kinds) and all(
        isinstance(part.get("text"), str) for part, kind in zip(content, kinds, strict=True) if kind == "text"
    )


_STATUS = STATUSES.__contains__, f"one of {', '.join(STATUSES)}"
_INSIDE = is_safe_path, "a relative path inside the image folder"
_MESSAGES = _are_messages, "a list of messages, each with role and content: a text, or parts with a type"
_BAND = (
    lambda value: len(value) == 2 and all(map(_is_unit, value)) and value[0] <= value[1],
    "two numbers from 0 to 1, the lower one first",
)
_PROBABILITIES = (lambda value: all(map(_is_unit, value.values()))), "an object of numbers from 0 to 1"
_ONE_PATH = (
    lambda value: len(value) == 1 and is_safe_path(value[0]),
    "a list of one relative path inside the image folder",
)
_LISTS = _are_lists, "a list of attributes with probability and score"


@dataclass(frozen=True)
class Label:
    """Ground truth of one image. ``image`` is a path relative to the image root; ``labels`` holds 0, 0.5 or 1 a key.

    ``image``, ``labels`` and ``source`` may be absent in files that only serve as truth for metrics.
    """

    id: str = ruled(matches=WORDS)
    image: str | None = ruled(holds=_INSIDE)
    labels: dict[str, float] | None = ruled()
    level: int = ruled(**_LEVEL)
    score: float = ruled(**_UNIT)
    source: str | None = ruled()

    def present(self, taxonomy: Taxonomy) -> list[str]:
        """Keys of the attributes that are clearly present, in the taxonomy's order (0.5 counts as absent)."""
        return [key for key in taxonomy.keys if (self.labels or {}).get(key) == 1]


@dataclass(frozen=True)
class Pair:
    """One instruction-response pair for SFT, in TRL's prompt/completion form. ``level`` and ``score`` are the truth."""

    id: str = ruled(matches=WORDS)
    images: list[str] = ruled(holds=_ONE_PATH)
    prompt: list[dict[str, Any]] = ruled(holds=_MESSAGES)
    completion: list[dict[str, Any]] = ruled(holds=_MESSAGES)
    level: int | None = ruled(None, **_LEVEL)
    score: float | None = ruled(None, **_UNIT)


@dataclass(frozen=True)
class Annotation:
    """What one annotator says of one photo: a label for each key, None unless ``status`` is ok."""

    id: str = ruled(matches=WORDS)
    annotator: str = ruled(matches=WORDS)
    status: str = ruled(holds=_STATUS)
    labels: dict[str, Any] | None = ruled()


@dataclass(frozen=True)
class Prediction:
    """One answer of one model. Scores are null unless ``status`` is ok; ``error`` says what went wrong.

    What only structured answers have is left out of other rows: ``willing`` (``decoding.grammar.Constrained``),
    and what follows from probabilities of lists of attributes (``cprt.guidance.risk.Risk``):

    Attributes:
        mean_score, level_mean_score, likeliest_score: over all lists, those of the most probable level, the first one.
        score_deviation, score_band: standard deviation over all lists, and between which scores 90% of them lie.
        list_mass: the probability of the lists that were found.
        attribute_probabilities: key -> probability that it is present.
        lists: the five most probable, each with ``attributes``, ``probability`` and its exact ``score``.
    """

    id: str = ruled(matches=WORDS)
    model: str | None = ruled()
    prompt: str | None = ruled()
    status: str = ruled(holds=_STATUS)
    text: str | None = None
    score: float | None = ruled(None, **_UNIT)
    level: int | None = ruled(None, **_LEVEL)
    stated_level: int | None = ruled(None, **_LEVEL)
    attributes: list[str] | None = None
    expected_score: float | None = ruled(None, **_UNIT)
    median_score: float | None = ruled(None, **_UNIT)
    composed_score: float | None = ruled(None, **_UNIT)
    label_mass: float | None = ruled(None, **_UNIT)
    error: str | None = None
    willing: float | None = ruled(None, **_UNIT, **_LEFT_OUT)
    mean_score: float | None = ruled(None, **_UNIT, **_LEFT_OUT)
    level_mean_score: float | None = ruled(None, **_UNIT, **_LEFT_OUT)
    likeliest_score: float | None = ruled(None, **_UNIT, **_LEFT_OUT)
    score_deviation: float | None = ruled(None, **_UNIT, **_LEFT_OUT)
    score_band: list[float] | None = ruled(None, holds=_BAND, **_LEFT_OUT)
    list_mass: float | None = ruled(None, **_UNIT, **_LEFT_OUT)
    attribute_probabilities: dict[str, float] | None = ruled(None, holds=_PROBABILITIES, **_LEFT_OUT)
    lists: list[dict[str, Any]] | None = ruled(None, holds=_LISTS, **_LEFT_OUT)


def read_labels(path: str | Path, taxonomy: Taxonomy | None = None, needed: Collection[str] = ()) -> list[Label]:
    """All rows of a labels file; of image and labels, none may lack what is ``needed``.

    Raises InputError, also for an id that is there twice and for a file without rows. A level and score that do not
    follow from the row's labels are those of another taxonomy: an error where labels are needed, else a note.
    """
    taxonomy = taxonomy or Taxonomy.default()
    if not os.path.lexists(path):
        raise InputError.at(path, f"{os.strerror(errno.ENOENT)}; cprt labels makes it")

    def wrong(row: Label) -> Wrong:
        absent = next((name for name in needed if getattr(row, name) is None), None)
        return (absent, "is missing") if absent else wrong_labels(row.labels, taxonomy.keys)

    rows = _rows(path, Label, wrong, "; cprt labels makes them of CPRT-Bench's files and of tables")
    for line, field, why in islice(_other_severities(rows, taxonomy), 1):
        fault = InputError.at(path, f"{why}: were the labels made with another --taxonomy?", line, field)
        if "labels" in needed:
            raise fault
        print(f"note: {fault}", file=sys.stderr)
    return _each_once(path, rows)


def _other_severities(rows: Iterable[tuple[int, Label]], taxonomy: Taxonomy) -> Iterator[tuple[int, str, str]]:
    """(line, field, what is wrong) of rows whose severity is not what the taxonomy gives."""
    known = [(line, row, row.labels) for line, row in rows if row.labels is not None]
    matrix = [[labels[key] for key in taxonomy.keys] for _, _, labels in known]
    levels, scores = severities(np.reshape(matrix, (-1, len(taxonomy.keys))), taxonomy)
    for (line, row, _), level, score in zip(known, levels.tolist(), scores.tolist(), strict=True):
        if row.level != level:
            yield line, "level", f"{row.level} does not follow from labels, {level} does"
        if abs(row.score - score) > SCORE_TOLERANCE:
            yield line, "score", f"{row.score:g} does not follow from labels, {score:.4g} does"


def wrong_labels(labels: Mapping[str, Any] | None, keys: Collection[str]) -> Wrong:
    """Where there are other keys than those of the taxonomy, or other values than labels."""
    if labels is None:
        return None
    for key in (*labels, *keys):
        if key not in keys:
            return f"labels.{key}", "is not an attribute of the taxonomy"
        if key not in labels:
            return f"labels.{key}", "is missing"
        if isinstance(labels[key], bool) or labels[key] not in (0, 0.5, 1):
            return f"labels.{key}", f"{labels[key]!r} is not 0, 0.5 or 1"
    return None


def read_pairs(path: str | Path) -> list[Pair]:
    """All rows of a pairs file. Raises InputError."""
    return _each_once(path, _rows(path, Pair))


def read_predictions(path: str | Path) -> list[Prediction]:
    """All rows of a predictions file, whatever made it: id and status, and score where the status is ok, are needed.

    Raises InputError, also for a score beside another status: what was not read must not be counted.
    """

    def wrong(row: Prediction) -> Wrong:
        if (row.status == "ok") == (row.score is not None):
            return None
        return "score", "is missing" if row.score is None else f"must be null where status is {row.status}"

    return _each_once(path, _rows(path, Prediction, wrong))


def column(predictions: Iterable[Prediction], name: str) -> dict[str, Any]:
    """Id -> what stands in a column, of the answers that could be read and have it."""
    return {row.id: value for row in predictions if row.status == "ok" and (value := getattr(row, name)) is not None}


def read_annotations(path: str | Path, keys: Collection[str]) -> list[tuple[int, Annotation]]:
    """(line, row) of the rows that ``cprt annotate`` writes, with a label for each of ``keys``.

    Raises InputError, also for a file without rows.
    """

    def wrong(row: Annotation) -> Wrong:
        if (row.status == "ok") == (row.labels is not None):
            return wrong_labels(row.labels, keys)
        return "labels", "must be an object where status is ok, null elsewhere"

    return _rows(path, Annotation, wrong)


Wrong = tuple[str, str] | None  # a field of a row, and what is wrong with it


def _rows(
    path: str | Path, kind: type[Row], wrong: Callable[[Row], Wrong] = lambda row: None, origin: str = ""
) -> list[tuple[int, Row]]:
    """(line, row), at least one."""
    rows = []
    for line, content in read_jsonl(path, origin):
        if (other := _another_kind(content, kind)) is not None:
            raise InputError.at(path, f"holds {other}, not {_KINDS[kind]}", line)
        row = read_fields(kind, content, path, line, loose=True)
        if (found := wrong(row)) is not None:
            raise InputError.at(path, found[1], line, found[0])
        rows.append((line, row))
    if not rows:
        raise InputError.at(path, "has no rows")
    return rows


_KINDS: dict[type, str] = {
    Label: "labels (cprt labels)",
    Pair: "pairs for training (cprt pairs)",
    Annotation: "annotations (cprt annotate)",
    Prediction: "predictions (cprt eval)",
}


def _another_kind(row: Mapping[str, Any], kind: type) -> str | None:
    """What a row is that was given in the place of another: they share columns, and would be read without a word."""
    if "prompt" in row and "completion" in row:
        found: type = Pair
    elif "annotator" in row and "labels" in row:
        found = Annotation
    elif "status" in row and not row.keys() & {"labels", "source"}:
        found = Prediction
    elif "labels" in row and "status" not in row and {"level", "score"} <= row.keys():
        found = Label
    else:
        return None
    return None if found is kind else _KINDS[found]


def _each_once(path: str | Path, rows: Iterable[tuple[int, Row]]) -> list[Row]:
    first: dict[str, int] = {}
    for line, row in rows:
        if first.setdefault(row.id, line) != line:
            raise InputError.at(path, f"{row.id!r} is there already in line {first[row.id]}", line, "id")
    return [row for _, row in rows]


def read_jsonl(path: str | Path, origin: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for every line that is not blank. Raises InputError.

    ``origin``: what makes such files, for the error about a file of one JSON value.
    """
    text = read_text(path)
    # Lines end at \n alone: str.splitlines also cuts at characters that a JSON string may hold unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = parse_json(line, path, number)
            except InputError:
                if number == 1 and _is_json(text):
                    raise InputError.at(path, f"is JSON, but not JSON lines, an object in each{origin}") from None
                raise
            if isinstance(row, list) and number == 1:
                raise InputError.at(path, f"is a JSON list, not JSON lines, an object in each{origin}")
            if not isinstance(row, dict):
                raise InputError.at(path, "is not a JSON object", line=number)
            yield number, row


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_json(path: str | Path) -> Any:
    """A whole JSON file. Raises InputError."""
    return parse_json(read_text(path), path)


def read_object(path: str | Path) -> dict[str, Any]:
    """A JSON file that holds an object. Raises InputError."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a JSON object")
    return content


def inside(content: Any, *keys: str) -> dict[str, Any]:
    """The object under keys within keys of a file that may come from anywhere; an empty one where there is none."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def parse_json(text: str, path: str | Path, line: int | None = None) -> Any:
    """Strict JSON: no NaN, no Infinity, no number beyond a float, no key twice. Raises InputError."""

    def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                raise ValueError(f"key {key!r} is there twice")
            found[key] = value
        return found

    def finite(number: str) -> float:
        if not math.isfinite(float(number)):
            raise ValueError(f"{number} is not a number that JSON can hold")
        return float(number)

    try:
        value = json.loads(text, object_pairs_hook=once, parse_constant=finite, parse_float=finite)
        return with_texts(value, without_halves) if _HALF.search(text) else value
    except json.JSONDecodeError as error:
        raise InputError.at(path, f"not valid JSON: {error.msg}", line=line or error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise InputError.at(path, f"not valid JSON: {error}", line=line) from error


_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON may spell half a surrogate pair, and always half of a whole one


def with_texts(value: Any, changed: Callable[[str], str]) -> Any:
    """A JSON value with every text in it, keys included, changed."""
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, list | tuple):
        return [with_texts(item, changed) for item in value]
    if isinstance(value, Mapping):
        return {changed(key): with_texts(item, changed) for key, item in value.items()}
    return value


def write_jsonl(path: str | Path, rows: Iterable[Any]) -> None:
    """Write all rows, objects or dataclasses, or nothing."""
    write_parts(path, (_dump(row) + "\n" for row in rows))


def write_json(path: str | Path, content: Any) -> None:
    """Write a JSON file, which may hold dataclasses, or nothing."""
    write_text(path, _dump(content, indent=2) + "\n")


def to_json(row: Any) -> dict[str, Any]:
    """The fields of a dataclass as files have them: what is left out where it is None is."""
    values = {one: getattr(row, one.name) for one in fields(row)}
    return {one.name: value for one, value in values.items() if value is not None or not one.metadata.get("left_out")}


_dump = partial(json.dumps, ensure_ascii=False, allow_nan=False, default=to_json)
