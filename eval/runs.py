"""Runs of ``cprt eval`` as other commands read them: folders with their records, or files of others' predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.errors import InputError, printable
from cprt.metrics.results import Metrics
from cprt.provenance import file_digest, read_record
from cprt.records import Label, Prediction, inside, read_predictions
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
        """Name of the prompt and of the target, and what sets its stated scores apart: structured, sampled."""
        prompt, decoding = inside(self.record, "prompt"), inside(self.record, "decoding")
        ways = {"structured": "structured" in decoding, "sampled": decoding.get("greedy") is False}
        return str(prompt.get("name", "")), str(prompt.get("target", "")), *(way for way in ways if ways[way])

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
        named = path.name == _FILE and path.is_file()
        path = path.parent if named else path
        own, within = predictions_of(path).is_file(), sorted(file.parent for file in path.glob(f"*/{_FILE}"))
        if own and within and not named:
            raise InputError.at(path, f"holds a run of its own, {_FILE}, and runs in its folders: name those you mean")
        if not (own or within):
            raise InputError.at(path, f"holds no {_FILE}" if path.is_dir() else "no such folder or file")
        found += [path] if own else within
    resolved = [path.resolve() for path in found]
    for number, path in enumerate(found):
        if resolved[number] in resolved[:number]:
            raise InputError.at(path, "is there twice")
    short = [path if path.is_dir() else path.with_suffix("") for path in resolved]
    return dict(zip(unique_names(short if len(set(short)) == len(short) else resolved), found, strict=True))


def predictions_of(run: Path) -> Path:
    """The file of a run's predictions: itself, or the one in its folder."""
    return run / _FILE if run.is_dir() else run


def read_run(name: str, path: Path) -> EvaluatedRun:
    """A folder with predictions and metrics, and a record if ``cprt eval`` made it. Raises InputError."""
    record = read_record(path / "run.json") if (path / "run.json").exists() else {}
    return EvaluatedRun(name, read_predictions(predictions_of(path)), Metrics.read(path / "metrics.json"), record)


def read_runs(paths: Mapping[str, Path], file: str, labels: Sequence[Label], taxonomy: Taxonomy) -> list[EvaluatedRun]:
    """The runs that ``find_runs`` found. Raises InputError where one is not over these labels.

    A folder of ``cprt eval`` holds a record and metrics too, which must be of exactly these labels. Other predictions,
    rows of ``id``, ``status`` and ``score``, are measured here; what they leave out counts against their coverage.
    """
    digest, found = file_digest(file), []
    for name, path in paths.items():
        if (path / "run.json").exists():
            one = read_run(name, path)
            made = inside(one.record, "inputs", "labels").get("sha256")
            if made is None:
                raise InputError.at(path / "run.json", "does not say which labels it was made on")
            if made != digest:
                raise InputError.at(path / "run.json", f"was made on other labels than {file}")
            if one.record.get("taxonomy") != taxonomy.digest:
                raise InputError.at(path / "run.json", "was made with another taxonomy")
            _check(one, path / "metrics.json", labels, taxonomy)
        else:
            predictions = read_predictions(predictions_of(path))
            one = EvaluatedRun(name, predictions, measure(labels, predictions, taxonomy, str(predictions_of(path))))
        found.append(one)
    return found


def _check(one: EvaluatedRun, file: Path, labels: Sequence[Label], taxonomy: Taxonomy) -> None:
    """Raises InputError where the metrics of a run are not those of its predictions for all labels."""
    metrics = one.metrics
    if metrics.n != len(labels):
        count = f"{metrics.n} is not the number of labels, {len(labels)}"
        all_of_them = "runs must be over all of them (cprt eval without --limit goes on where it stopped)"
        raise InputError.at(file, f"{count}: {all_of_them}", field="n")
    again = measure(labels, one.predictions, taxonomy, str(file.with_name(_FILE)), resamples=0)
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


def unique_names(paths: Sequence[Path], spell: Callable[[Sequence[str]], str] = "/".join) -> list[str]:
    """A name for each: its last part, with the parts before where two are the same, as ``spell`` writes parts.

    They differ beyond case. Where all parts do not tell two apart, the names are numbered.
    """
    names = list[str]()
    for parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = [printable(spell(path.parts[-parts:])) for path in paths]
        if len(set(map(str.lower, names))) == len(names):
            return names
    return [f"{name}-{number}" for number, name in enumerate(names, start=1)]
