"""The runs that are compared: folders of ``cprt eval``, checked to be over the same labels."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.metrics.results import Metrics
from cprt.numbers import is_number
from cprt.provenance import file_digest
from cprt.records import Label, Prediction, inside, read_object, read_predictions
from cprt.taxonomy import Taxonomy
from eval.metrics import HEADS, measure


@dataclass(frozen=True)
class EvaluatedRun:
    """What a folder of ``cprt eval`` holds."""

    name: str
    predictions: list[Prediction]
    metrics: Metrics
    record: dict[str, Any]  # its run.json

    @property
    def asked(self) -> tuple[str, ...]:
        """Name of the prompt and of the target, and whether answers were structured."""
        prompt, decoding = inside(self.record, "prompt"), inside(self.record, "decoding")
        return (
            str(prompt.get("name")),
            str(prompt.get("target")),
            *(("structured",) if "structured" in decoding else ()),
        )


def find_runs(folders: Sequence[str]) -> list[Path]:
    """The folders with predictions among those given, or in them. Raises InputError where there are none."""
    found: list[Path] = []
    for folder in map(Path, folders):
        within = (
            [folder]
            if (folder / "predictions.jsonl").is_file()
            else sorted(path.parent for path in folder.glob("*/predictions.jsonl"))
        )
        if not within:
            raise InputError.at(folder, "holds no predictions.jsonl" if folder.is_dir() else "no such folder")
        found += within
    doubled = [path for path, count in Counter(path.resolve() for path in found).items() if count > 1]
    if doubled:
        raise InputError.at(next(path for path in found if path.resolve() == doubled[0]), "is there twice")
    return found


def read_runs(folders: Sequence[Path], file: str, labels: Sequence[Label], taxonomy: Taxonomy) -> list[EvaluatedRun]:
    """The runs in these folders. Raises InputError unless all were evaluated on exactly these labels."""
    digest, found = file_digest(file), []
    for folder, name in zip(folders, unique_names(folders), strict=True):
        record, metrics = read_object(folder / "run.json"), Metrics.read(folder / "metrics.json")
        made = inside(record, "inputs", "labels").get("sha256")
        if made != digest:
            what = (
                "does not say which labels it was made on" if made is None else f"was made on other labels than {file}"
            )
            raise InputError.at(folder / "run.json", what)
        if record.get("taxonomy") != taxonomy.digest:
            raise InputError.at(folder / "run.json", "was made with another taxonomy")
        predictions = read_predictions(folder / "predictions.jsonl")
        found.append(EvaluatedRun(name, predictions, _checked(metrics, folder, labels, predictions, taxonomy), record))
    return found


def _checked(
    metrics: Metrics, folder: Path, labels: Sequence[Label], predictions: Sequence[Prediction], taxonomy: Taxonomy
) -> Metrics:
    """The metrics of a run, once they are found to be those of its predictions for all labels."""

    def fail(name: str, message: str) -> InputError:
        return InputError.at(folder / "metrics.json", message, field=name)

    if metrics.n != len(labels):
        count = f"{metrics.n} is not the number of labels, {len(labels)}"
        raise fail("n", f"{count}: runs must be over all of them (cprt eval without --limit goes on where it stopped)")
    again = measure(labels, predictions, taxonomy, str(folder / "predictions.jsonl"), resamples=0)
    for name in (*HEADS, "confusion", "status_counts"):
        if not _same(getattr(metrics, name), getattr(again, name)):
            raise fail(name, "is not that of predictions.jsonl beside it; make it anew with cprt metrics")
    return metrics


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
