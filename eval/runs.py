"""Runs of ``cprt eval`` as other commands read them: folders with their records, or files of others' predictions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.metrics.results import Metrics
from cprt.provenance import file_digest
from cprt.records import Label, Prediction, inside, read_object, read_predictions
from cprt.taxonomy import Taxonomy
from cprt.values import is_number
from eval.measures import HEADS, measure

_FILE = "predictions.jsonl"


@dataclass(frozen=True)
class EvaluatedRun:
    """What a folder of ``cprt eval`` holds; of predictions that something else made, the ``record`` is empty."""

    name: str
    predictions: list[Prediction]
    metrics: Metrics
    record: dict[str, Any] = field(default_factory=dict)  # its run.json

    @property
    def asked(self) -> tuple[str, ...]:
        """Name of the prompt and of the target, and whether answers were structured."""
        prompt, structured = inside(self.record, "prompt"), "structured" in inside(self.record, "decoding")
        return str(prompt.get("name")), str(prompt.get("target")), *(("structured",) if structured else ())

    @property
    def model(self) -> str:
        return str(self.record.get("model"))

    @property
    def paths(self) -> list[str]:
        """What may name the training: the folder of its adapter, and the run."""
        return [str(inside(self.record, "config", "judge").get("adapter") or ""), self.name]


def find_runs(paths: Sequence[str]) -> dict[str, Path]:
    """Name -> run among the paths given: files, folders with predictions, or the folders in these.

    A name is that of the folder, or of the file without its ending. Raises InputError.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        path = path.parent if path.name == _FILE and path.is_file() else path
        within = [path] if predictions_of(path).is_file() else sorted(file.parent for file in path.glob(f"*/{_FILE}"))
        if not within:
            raise InputError.at(path, f"holds no {_FILE}" if path.is_dir() else "no such folder or file")
        found += within
    resolved = [path.resolve() for path in found]
    for number, path in enumerate(found):
        if resolved[number] in resolved[:number]:
            raise InputError.at(path, "is there twice")
    names = unique_names([path if path.is_dir() else path.with_suffix("") for path in found])
    return dict(zip(names, found, strict=True))


def predictions_of(run: Path) -> Path:
    """The file of a run's predictions: itself, or the one in its folder."""
    return run / _FILE if run.is_dir() else run


def read_runs(paths: Mapping[str, Path], file: str, labels: Sequence[Label], taxonomy: Taxonomy) -> list[EvaluatedRun]:
    """The runs that ``find_runs`` found. Raises InputError where one is not over these labels.

    A folder of ``cprt eval`` holds a record and metrics too, which must be of exactly these labels. Other predictions,
    rows of ``id``, ``status`` and ``score``, are measured here; what they leave out counts against their coverage.
    """
    digest, found = file_digest(file), []
    for name, path in paths.items():
        predictions, record = read_predictions(predictions_of(path)), {}
        if (path / "run.json").exists():
            record, metrics = read_object(path / "run.json"), Metrics.read(path / "metrics.json")
            made = inside(record, "inputs", "labels").get("sha256")
            if made is None:
                raise InputError.at(path / "run.json", "does not say which labels it was made on")
            if made != digest:
                raise InputError.at(path / "run.json", f"was made on other labels than {file}")
            if record.get("taxonomy") != taxonomy.digest:
                raise InputError.at(path / "run.json", "was made with another taxonomy")
            _check(metrics, path / "metrics.json", labels, predictions, taxonomy)
        else:
            metrics = measure(labels, predictions, taxonomy, str(predictions_of(path)))
        found.append(EvaluatedRun(name, predictions, metrics, record))
    return found


def _check(
    metrics: Metrics, file: Path, labels: Sequence[Label], predictions: Sequence[Prediction], taxonomy: Taxonomy
) -> None:
    """Raises InputError where the metrics of a run are not those of its predictions for all labels."""
    if metrics.n != len(labels):
        count = f"{metrics.n} is not the number of labels, {len(labels)}"
        all_of_them = "runs must be over all of them (cprt eval without --limit goes on where it stopped)"
        raise InputError.at(file, f"{count}: {all_of_them}", field="n")
    again = measure(labels, predictions, taxonomy, str(file.with_name(_FILE)), resamples=0)
    for name in (*HEADS, "confusion", "status_counts"):
        if not _same(getattr(metrics, name), getattr(again, name)):
            why = "is not that of predictions.jsonl beside it; make it anew with cprt metrics"
            raise InputError.at(file, why, field=name)


def _same(first: Any, second: Any) -> bool:
    if is_number(first) and is_number(second):
        return math.isclose(first, second, abs_tol=1e-9)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return first == second


def unique_names(paths: Sequence[Path]) -> list[str]:
    """A name for each: its last part, with the parts before where two are the same."""
    resolved = [path.resolve() for path in paths]
    for parts in itertools.count(1):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            break
    return ["".join(letter if letter.isprintable() else "\ufffd" for letter in name) for name in names]
