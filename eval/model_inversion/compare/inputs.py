"""Which files belong to which judge and set-up: a YAML list, or the folders that ``cprt mi`` writes.

The YAML (paths relative to its own folder)::

    - name: CelebA/KEDMI/CelebA/FaceNet64
      standard: kedmi/prediction.csv
      judge: kedmi/judge.csv          # one judge; or several:
      judges:
        gemini: kedmi/gemini.csv
        qwen, n=1: {file: kedmi/qwen1.csv, controls: kedmi/controls1.csv, model: qwen, n: 1}
        qwen, n=4: {file: kedmi/qwen4.csv, model: qwen, n: 4, order: 0, layout: panel}
      controls: kedmi/controls.csv    # of the one judge
      target: kedmi/target.csv        # these may be left out
      naturals: kedmi/naturals.csv
      naturals_target: kedmi/naturals_of_t.csv
      others: {ResNet: kedmi/resnet.csv}   # further evaluation models, for Type-I transfer to each
      naturals_others: {ResNet: kedmi/resnet_naturals.csv}
      images: AttackSamples/CelebA/KEDMI/CelebA/FaceNet64/all-images
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_yaml_lines
from cprt.records import read_json, read_object
from cprt.tables import read_csv
from eval.model_inversion.metrics.evaluation import Inputs

SETTINGS = ("n", "order", "layout", "pad", "prompt")
# Of how a judge was asked (ModelSpec), what may change its answers.
_ANSWERS = (
    "model",
    "revision",
    "adapter",
    "max_new_tokens",
    "temperature",
    "max_pixels",
    "image_format",
    "extra",
    "dtype",
)
_SHARED = ("standard", "target", "naturals", "naturals_target")
_OTHERS = ("others", "naturals_others")
_SETUP_FIELDS = ("name", *_SHARED, *_OTHERS, "judge", "judges", "controls", "images")
_JUDGE_FIELDS = ("file", "controls", "model", *SETTINGS)


@dataclass(frozen=True)
class Run:
    """One judge on one set-up.

    Attributes:
        inputs: its files.
        model: what is the same in runs that differ only in settings; text to compare.
        settings: those of SETTINGS that are known.
        images: folder with this set-up's ``<class>/<file>``, None where nobody said.
    """

    setup: str
    judge: str
    inputs: Inputs
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    images: Path | None = None


def from_yaml(path: str | Path) -> list[Run]:
    """Runs of a YAML list. Raises InputError that names line and field; that the files exist is checked too."""
    content, lines = read_yaml_lines(path)
    if not isinstance(content, list) or not content:
        raise InputError.at(path, "must be a YAML list of set-ups")
    runs: list[Run] = []
    names: dict[str, int] = {}
    for number, row in enumerate(content):
        place = _Place(Path(path), lines[number])
        if not isinstance(row, dict):
            raise InputError.at(path, "is not a mapping", place.line)
        place.check(row, _SETUP_FIELDS)
        name = row.get("name")
        if not isinstance(name, str) or not name.strip():
            raise place.fail("name", "must be a text")
        if name in names:
            raise place.fail("name", f"{name!r} is there already in line {names[name]}")
        names[name] = place.line
        runs += _of_setup(name, row, place)
    return runs


@dataclass(frozen=True)
class _Place:
    """A set-up in the YAML, for errors and for paths."""

    path: Path
    line: int

    def fail(self, field: str, message: str) -> InputError:
        return InputError.at(self.path, message, self.line, field)

    def check(self, row: Mapping[Any, Any], known: Sequence[str], within: str = "") -> None:
        for key in row:
            if key not in known:
                raise self.fail(f"{within}{key}", f"unknown field (there are {', '.join(known)})")

    def file(self, field: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise self.fail(field, "must be the name of a file")
        found = self.path.parent / value
        if not os.path.isfile(found):
            raise self.fail(field, f"there is no file {found}")
        return str(found)


def _of_setup(name: str, row: Mapping[str, Any], place: _Place) -> list[Run]:
    if ("judge" in row) == ("judges" in row):
        raise place.fail("judge", "give either judge or judges")
    if "judges" in row and "controls" in row:
        raise place.fail("controls", "with several judges, controls belong to each: {file: ..., controls: ...}")
    if "standard" not in row:
        raise place.fail("standard", "is missing")
    shared: dict[str, Any] = {key: place.file(key, row[key]) for key in _SHARED if key in row}
    for key in _OTHERS:
        given = row.get(key, {})
        if not isinstance(given, dict) or "E" in given:
            raise place.fail(key, "must be a mapping of names, none of them E, to files")
        shared[key] = {str(other): place.file(f"{key}.{other}", value) for other, value in given.items()}
    images = place.path.parent / str(row["images"]) if "images" in row else None
    if images is not None and not images.is_dir():
        raise place.fail("images", f"there is no folder {images}")
    one = {"file": row.get("judge")} | {key: row[key] for key in ("controls",) if key in row}
    judges = row.get("judges", {"judge": one})
    if not isinstance(judges, dict) or not judges:
        raise place.fail("judges", "must be a mapping of names to files")
    runs = []
    for judge, said in judges.items():
        facts, field = said if isinstance(said, dict) else {"file": said}, f"judges.{judge}"
        place.check(facts, _JUDGE_FIELDS, f"{field}.")
        controls = place.file(f"{field}.controls", facts["controls"]) if "controls" in facts else None
        verdicts = place.file(f"{field}.file", facts.get("file"))
        inputs = Inputs(verdicts, controls=controls, **shared)
        settings = {key: facts[key] for key in SETTINGS if key in facts}
        runs.append(Run(name, judge, inputs, str(facts.get("model", judge)), settings, images))
    return runs


def from_folders(outs: Sequence[str], folders: Inputs, standards: Mapping[str, str] | None = None) -> list[Run]:
    """Runs in the folders that ``cprt mi`` wrote, ``OUT/JUDGE/SETUP/judge.csv`` each.

    ``folders`` names folders of ``SETUP/prediction.csv`` in place of files; a set-up needs that of E, unless
    ``standards`` has it by the set-up's name. Of several ``outs``, judges are called ``OUT/JUDGE``. Raises InputError.
    """
    runs: list[Run] = []
    names = [Path(out).name for out in outs]
    labels = names if len(set(names)) == len(names) else list(outs)
    if len(set(labels)) < len(labels):
        raise InputError("runs: a folder is there twice")
    for out, label in zip(map(Path, outs), labels, strict=True):
        found = sorted(out.glob("*/*/judge.csv"))
        if not found:
            raise InputError.at(out, "has no JUDGE/SETUP/judge.csv in it, as cprt mi writes them")
        config = _config(out)
        full_names = _full_names(out)
        for path in found:
            judge, setup = path.parts[-3:-1]
            name = full_names.get(setup, setup)
            inputs = _predictions(folders, setup, path, (standards or {}).get(name))
            shown = judge if len(outs) == 1 else f"{label}/{judge}"
            runs.append(Run(name, shown, inputs, *_asked(judge, config)))
    return runs


def _predictions(folders: Inputs, setup: str, judge: Path, standard: str | None) -> Inputs:
    """The files of one set-up, beside a judge's; ``standard`` is E's where it is known."""

    def file(folder: str | None) -> str | None:
        path = None if folder is None else Path(folder) / setup / "prediction.csv"
        return str(path) if path is not None and path.is_file() else None

    standard = standard or file(folders.standard)
    if standard is None:
        missing = Path(folders.standard) / setup / "prediction.csv"
        raise InputError.at(missing, f"no such file, and {judge} needs it")
    controls = judge.parent / "controls.csv"
    others = [
        {name: path for name, folder in of.items() if (path := file(folder)) is not None}
        for of in (folders.others, folders.naturals_others)
    ]
    return Inputs(
        str(judge),
        standard,
        file(folders.target),
        str(controls) if controls.is_file() and read_csv(controls).rows else None,  # --controls 0 leaves a header
        file(folders.naturals),
        file(folders.naturals_target),
        *others,
    )


def _config(out: Path) -> Mapping[str, Any]:
    """The options that a run was made with; empty where its record is missing."""
    if not (out / "run.json").is_file():
        return {}
    config = read_object(out / "run.json").get("config")
    if not isinstance(config, dict):
        raise InputError.at(out / "run.json", "must be an object", field="config")
    return config


def _full_names(out: Path) -> dict[str, str]:
    """Id of a set-up -> its name, from the manifest of ``cprt mi``."""
    if not (out / "setups.json").is_file():
        return {}
    rows = read_json(out / "setups.json")
    rows = rows if isinstance(rows, list) else []
    return {str(row["id"]): str(row["name"]) for row in rows if isinstance(row, dict) and {"id", "name"} <= set(row)}


def _asked(judge: str, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The judge by its name and by what may change its answers, and SETTINGS; of a run without its record the name."""
    models = config.get("models")
    rows = models if isinstance(models, list) else []
    spec = next((row for row in rows if isinstance(row, dict) and row.get("name") == judge), None)
    model = judge
    if spec is not None:
        answers = {key: spec[key] for key in _ANSWERS if key in spec}
        model = json.dumps([judge, config.get("seed"), answers], sort_keys=True)
    if not config:
        return model, {}
    settings = {name: config.get("order_seed" if name == "order" else name) for name in SETTINGS}
    return model, settings | {"prompt": (spec or {}).get("prompt", "own")}
