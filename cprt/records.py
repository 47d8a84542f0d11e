"""The rows that travel between stages as JSON Lines, read with errors that name file, line and field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from cprt.answers import STATUSES
from cprt.errors import InputError
from cprt.files import is_safe_path, read_text, without_halves, write_text
from cprt.taxonomy import Taxonomy
from cprt.values import is_number

Row = TypeVar("Row", "Label", "Pair", "Prediction")
_LEFT_OUT = {"left_out": True}  # of a row, where it is None


@dataclass(frozen=True)
class Label:
    """Ground truth of one image. ``image`` is a path relative to the image root; ``labels`` holds 0, 0.5 or 1 a key.

    ``image``, ``labels`` and ``source`` may be absent in files that only serve as truth for metrics.
    """

    id: str
    image: str | None
    labels: dict[str, float] | None
    level: int
    score: float
    source: str | None

    def present(self, taxonomy: Taxonomy) -> list[str]:
        """Keys of the attributes that are clearly present, in the taxonomy's order (0.5 counts as absent)."""
        return [key for key in taxonomy.keys if (self.labels or {}).get(key) == 1]


@dataclass(frozen=True)
class Pair:
    """One instruction-response pair for SFT, in TRL's prompt/completion form. ``level`` and ``score`` are the truth."""

    id: str
    images: list[str]
    prompt: list[dict[str, Any]]
    completion: list[dict[str, Any]]
    level: int | None = None
    score: float | None = None


@dataclass(frozen=True)
class Prediction:
    """One answer of one model. Scores are null unless ``status`` is ok; ``error`` says what went wrong.

    What only structured answers have is left out of other rows:

    Attributes:
        willing: the share of the answer's probability that a free model gives it, 1 where the form forbade nothing that
            it would have written (``cprt.models.decoding.grammar.Held``). None at an endpoint.
        mean_score, level_mean_score, likeliest_score: by the exact function from probabilities of lists of attributes
            (``cprt.guidance.risk.Risk``): over all lists, those of the most probable level, the most probable one.
        score_deviation, score_band: standard deviation over all lists, and between which scores 90% of them lie.
        list_mass: the probability of the lists that were found.
        attribute_probabilities: key -> probability that it is present.
        lists: the five most probable, each with ``attributes``, ``probability`` and its exact ``score``.
    """

    id: str
    model: str | None
    prompt: str | None
    status: str
    text: str | None = None
    score: float | None = None
    level: int | None = None
    stated_level: int | None = None
    attributes: list[str] | None = None
    expected_score: float | None = None
    median_score: float | None = None
    composed_score: float | None = None
    label_mass: float | None = None
    error: str | None = None
    willing: float | None = field(default=None, metadata=_LEFT_OUT)
    mean_score: float | None = field(default=None, metadata=_LEFT_OUT)
    level_mean_score: float | None = field(default=None, metadata=_LEFT_OUT)
    likeliest_score: float | None = field(default=None, metadata=_LEFT_OUT)
    score_deviation: float | None = field(default=None, metadata=_LEFT_OUT)
    score_band: list[float] | None = field(default=None, metadata=_LEFT_OUT)
    list_mass: float | None = field(default=None, metadata=_LEFT_OUT)
    attribute_probabilities: dict[str, float] | None = field(default=None, metadata=_LEFT_OUT)
    lists: list[dict[str, Any]] | None = field(default=None, metadata=_LEFT_OUT)


def _is_unit(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_band(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_unit, value)) and value[0] <= value[1]


def _are_lists(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("attributes"), list)
        and all(isinstance(key, str) for key in one["attributes"])
        and _is_unit(one.get("probability"))
        and _is_unit(one.get("score"))
        for one in value
    )


class _Fields:
    """Typed access to one row; every complaint names file, line and field."""

    def __init__(self, row: dict[str, Any], file: str | Path, line: int):
        self.row, self.file, self.line = row, file, line

    def fail(self, field: str, message: str) -> InputError:
        return InputError.at(self.file, message, line=self.line, field=field)

    def get(self, field: str, check: Callable[[Any], bool], what: str, optional: bool = False) -> Any:
        value = self.row.get(field)
        if value is None:
            if optional:
                return None
            raise self.fail(field, "is null" if field in self.row else "is missing")
        if not check(value):
            raise self.fail(field, f"{_short(value)} is not {what}")
        return value

    def text(self, field: str, optional: bool = False) -> Any:
        return self.get(field, lambda value: isinstance(value, str), "a text", optional)

    def name(self, field: str) -> str:
        return self.get(field, lambda value: isinstance(value, str) and value.strip() != "", "a non-empty text")

    def level(self, field: str, optional: bool = False) -> Any:
        return self.get(field, lambda value: type(value) is int and value in (1, 2, 3, 4), "1, 2, 3 or 4", optional)

    def unit(self, field: str, optional: bool = False) -> Any:
        value = self.get(field, _is_unit, "a number from 0 to 1", optional)
        return None if value is None else float(value)

    def path(self, field: str, value: Any) -> str:
        if not isinstance(value, str) or not is_safe_path(value):
            raise self.fail(field, f"{_short(value)} is not a relative path inside the image folder")
        return value

    def messages(self, field: str) -> list[dict[str, Any]]:
        messages = self.get(field, lambda value: isinstance(value, list) and value != [], "a list of messages")
        for message in messages:
            if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
                raise self.fail(field, "every message needs role and content")
            if not _is_content(message["content"]):
                raise self.fail(
                    field, "content must be a text, or parts with a type (and a text, where that is the type)"
                )
        return messages


def _is_content(content: Any) -> bool:
    """Whether chat templates can take it: a text, or parts of a message."""
    if not isinstance(content, list):
        return isinstance(content, str)
    kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
    return all(isinstance(kind, str) for kind in kinds) and all(
        isinstance(part.get("text"), str) for part, kind in zip(content, kinds, strict=True) if kind == "text"
    )


def read_labels(path: str | Path, taxonomy: Taxonomy | None = None) -> list[Label]:
    """All rows of a labels file. Raises InputError, also for an id that is there twice and for a file without rows."""
    keys = (taxonomy or Taxonomy.default()).keys

    def parse(row: _Fields) -> Label:
        labels = row.get("labels", lambda value: isinstance(value, dict), "an object", optional=True)
        if labels is not None:
            for key in labels:
                if key not in keys:
                    raise row.fail(f"labels.{key}", "is not an attribute of the taxonomy")
            for key in keys:
                if key not in labels:
                    raise row.fail(f"labels.{key}", "is missing")
                if isinstance(labels[key], bool) or labels[key] not in (0, 0.5, 1):
                    raise row.fail(f"labels.{key}", f"{_short(labels[key])} is not 0, 0.5 or 1")
        image = row.text("image", optional=True)
        return Label(
            id=row.name("id"),
            image=None if image is None else row.path("image", image),
            labels=labels,
            level=row.level("level"),
            score=row.unit("score"),
            source=row.text("source", optional=True),
        )

    return _read(path, parse)


def read_pairs(path: str | Path) -> list[Pair]:
    """All rows of a pairs file. Raises InputError."""

    def parse(row: _Fields) -> Pair:
        images = row.get("images", lambda value: isinstance(value, list) and len(value) == 1, "a list of one path")
        return Pair(
            id=row.name("id"),
            images=[row.path("images", image) for image in images],
            prompt=row.messages("prompt"),
            completion=row.messages("completion"),
            level=row.level("level", optional=True),
            score=row.unit("score", optional=True),
        )

    return _read(path, parse)


def read_predictions(path: str | Path) -> list[Prediction]:
    """All rows of a predictions file, whatever made it: id and status, and score where the status is ok, are needed.

    Raises InputError, also for a score beside another status: what was not read must not be counted.
    """

    def parse(row: _Fields) -> Prediction:
        status = row.get("status", lambda value: value in STATUSES, " or ".join(STATUSES))
        if status != "ok" and row.row.get("score") is not None:
            raise row.fail("score", f"must be null where status is {status}")
        attributes = row.get(
            "attributes",
            lambda value: isinstance(value, list) and all(isinstance(key, str) for key in value),
            "a list of texts",
            optional=True,
        )
        return Prediction(
            id=row.name("id"),
            model=row.text("model", optional=True),
            prompt=row.text("prompt", optional=True),
            status=status,
            text=row.text("text", optional=True),
            score=row.unit("score", optional=status != "ok"),
            level=row.level("level", optional=True),
            stated_level=row.level("stated_level", optional=True),
            attributes=attributes,
            expected_score=row.unit("expected_score", optional=True),
            median_score=row.unit("median_score", optional=True),
            composed_score=row.unit("composed_score", optional=True),
            label_mass=row.unit("label_mass", optional=True),
            error=row.text("error", optional=True),
            willing=row.unit("willing", optional=True),
            mean_score=row.unit("mean_score", optional=True),
            level_mean_score=row.unit("level_mean_score", optional=True),
            likeliest_score=row.unit("likeliest_score", optional=True),
            score_deviation=row.unit("score_deviation", optional=True),
            score_band=row.get("score_band", _is_band, "two numbers from 0 to 1, the lower one first", optional=True),
            list_mass=row.unit("list_mass", optional=True),
            attribute_probabilities=row.get(
                "attribute_probabilities",
                lambda value: isinstance(value, dict) and all(map(_is_unit, value.values())),
                "an object of numbers from 0 to 1",
                optional=True,
            ),
            lists=row.get("lists", _are_lists, "a list of attributes with probability and score", optional=True),
        )

    return _read(path, parse)


def _read(path: str | Path, parse: Callable[[_Fields], Row]) -> list[Row]:
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for line, row in read_jsonl(path):
        parsed = parse(_Fields(row, path, line))
        if parsed.id in seen:
            raise InputError.at(path, f"{parsed.id!r} is there already in line {seen[parsed.id]}", line, "id")
        seen[parsed.id] = line
        rows.append(parsed)
    if not rows:
        raise InputError.at(path, "has no rows")
    return rows


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for every line that is not blank. Raises InputError."""
    # Lines end at \n alone: str.splitlines also cuts at characters that a JSON string may hold unescaped.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            row = parse_json(line, path, number)
            if not isinstance(row, dict):
                raise InputError.at(path, "is not a JSON object", line=number)
            yield number, row


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
        return _whole_text(value) if _HALF.search(text) else value
    except json.JSONDecodeError as error:
        raise InputError.at(path, f"not valid JSON: {error.msg}", line=line or error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise InputError.at(path, f"not valid JSON: {error}", line=line) from error


_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON may spell half a surrogate pair, and always half of a whole one


def _whole_text(value: Any) -> Any:
    """A JSON value with ``without_halves`` for every text in it."""
    if isinstance(value, str):
        return without_halves(value)
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    if isinstance(value, dict):
        return {without_halves(key): _whole_text(item) for key, item in value.items()}
    return value


def write_jsonl(path: str | Path, rows: Iterable[Label | Pair | Prediction | dict[str, Any]]) -> None:
    """Write all rows, or nothing."""
    lines = (row if isinstance(row, dict) else _to_json(row) for row in rows)
    write_text(path, "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines))


def _to_json(row: Label | Pair | Prediction) -> dict[str, Any]:
    values = {one.name: getattr(row, one.name) for one in fields(row) if not one.metadata.get("left_out")}
    return values | {
        one.name: value
        for one in fields(row)
        if one.metadata.get("left_out") and (value := getattr(row, one.name)) is not None
    }


def write_json(path: str | Path, content: Any) -> None:
    """Write a JSON file, or nothing."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
