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
      private: CelebA   # set-ups with the same private data share classes; else it is the first part of the name
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_yaml_lines
from cprt.provenance import read_record
from cprt.records import inside, read_json
from cprt.tables import read_csv
from cprt.values import WORDS, read_fields, ruled
from eval.model_inversion.metrics.evaluation import Inputs

SETTINGS = ("n", "order", "layout", "pad", "prompt")
# Of how a judge was asked (ModelSpec), what may change its answers.
_ANSWERS = "model revision adapter max_new_tokens temperature max_pixels image_format extra dtype".split()
_SHARED = ("standard", "target", "naturals", "naturals_target")
_OTHERS = ("others", "naturals_others")


@dataclass(frozen=True)
class Run:
    """One judge on one set-up.

    Attributes:
        inputs: its files.
        private: names its private data, whose classes it shares with other set-ups.
        model: what is the same in runs that differ only in settings; text to compare.
        settings: those of SETTINGS that are known.
        images: folder with this set-up's ``<class>/<file>``, None where nobody said.
    """

    setup: str
    private: str
    judge: str
    inputs: Inputs
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    images: Path | None = None


@dataclass(frozen=True)
class _Judge:
    """A judge of a set-up in the YAML; its settings say only what is stated."""

    file: str
    controls: str | None = None
    model: str | None = None
    n: Any = None
    order: Any = None
    layout: Any = None
    pad: Any = None
    prompt: Any = None


@dataclass(frozen=True)
class _Setup:
    """A set-up in the YAML."""

    name: str = ruled(matches=WORDS)
    standard: str = ruled()
    target: str | None = None
    naturals: str | None = None
    naturals_target: str | None = None
    others: dict[str, str] = field(default_factory=dict)
    naturals_others: dict[str, str] = field(default_factory=dict)
    judge: str | None = None
    judges: dict[str, Any] = field(default_factory=dict)
    controls: str | None = None
    images: str | None = None
    private: str | None = ruled(None, matches=WORDS)


def private_data(setup: str, stated: Any = None) -> str:
    """As stated, else what the public collection's folders begin with."""
    return str(stated or setup.split("/")[0])


def from_yaml(path: str | Path) -> list[Run]:
    """Runs of a YAML list. Raises InputError that names line and field; that the files exist is checked too."""
    content, lines = read_yaml_lines(path)
    if not isinstance(content, list) or not content:
        raise InputError.at(path, "must be a YAML list of set-ups")
    runs: list[Run] = []
    names: dict[str, int] = {}
    for number, row in enumerate(content):
        line = lines[number]
        setup = read_fields(_Setup, row, path, line)
        if setup.name in names:
            raise InputError.at(path, f"{setup.name!r} is there already in line {names[setup.name]}", line, "name")
        names[setup.name] = line
        runs += _of_setup(setup, Path(path), line)
    return runs


def _of_setup(setup: _Setup, path: Path, line: int) -> list[Run]:
    def fail(name: str, message: str) -> InputError:
        return InputError.at(path, message, line, name)

    def file(name: str, value: str | None) -> str | None:
        if value is not None and not os.path.isfile(path.parent / value):
            raise fail(name, f"there is no file {path.parent / value}")
        return None if value is None else str(path.parent / value)

    if (setup.judge is None) == (not setup.judges):
        raise fail("judge", "give either judge or judges")
    if setup.judges and setup.controls is not None:
        raise fail("controls", "with several judges, controls belong to each: {file: ..., controls: ...}")
    shared: dict[str, Any] = {name: file(name, getattr(setup, name)) for name in _SHARED}
    for name in _OTHERS:
        given = getattr(setup, name)
        if "E" in given:
            raise fail(name, "must be a mapping of names, none of them E, to files")
        shared[name] = {other: file(f"{name}.{other}", value) for other, value in given.items()}
    images = None if setup.images is None else path.parent / setup.images
    if images is not None and not images.is_dir():
        raise fail("images", f"there is no folder {images}")
    runs = []
    for name, said in (setup.judges or {"judge": {"file": setup.judge, "controls": setup.controls}}).items():
        facts, within = said if isinstance(said, dict) else {"file": said}, f"judges.{name}."
        judge = read_fields(_Judge, facts, path, line, within)
        verdicts, controls = file(f"{within}file", judge.file), file(f"{within}controls", judge.controls)
        settings = {key: facts[key] for key in SETTINGS if key in facts}
        inputs = Inputs(str(verdicts), controls=controls, **shared)
        private = private_data(setup.name, setup.private)
        runs.append(Run(setup.name, private, name, inputs, judge.model or name, settings, images))
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
        config, setups = read_config(out), read_manifest(out)
        for path in find_verdicts(out, config, setups):
            judge, id = path.parts[-3:-1]
            name, private = setups.get(id, (id, private_data(id)))
            inputs = _predictions(folders, id, path, (standards or {}).get(name))
            shown = judge if len(outs) == 1 else f"{label}/{judge}"
            runs.append(Run(name, private, shown, inputs, *_asked(judge, config)))
    return runs


def read_config(out: Path) -> Mapping[str, Any]:
    """The options of the last run of ``cprt mi`` into ``out``; empty where there is no record."""
    record = out / "run.json"
    return inside(read_record(record), "config") if record.is_file() else {}


def read_manifest(out: Path) -> dict[str, tuple[str, str]]:
    """Id -> (name, private data) of the set-ups of that run; empty where nobody said. Raises InputError."""
    file = out / "setups.json"
    rows = read_json(file) if file.is_file() else []
    if not isinstance(rows, list) or not all(isinstance(inside(row).get("name"), str) for row in rows):
        raise InputError.at(file, "is not as cprt mi writes it")
    return {str(row.get("id")): (row["name"], private_data(row["name"], row.get("private"))) for row in rows}


def find_verdicts(out: Path, config: Mapping[str, Any], setups: Collection[str]) -> list[Path]:
    """``JUDGE/SETUP/judge.csv`` of the last run; those of earlier ones, with other judges or set-ups, are noted.

    Settings and classes of those are not known any more. Raises InputError where there are none.
    """
    judges, found = _models(config), []
    for path in sorted(out.glob("*/*/judge.csv")):
        judge, id = path.parts[-3:-1]
        if (judge in judges or not judges) and (id in setups or not setups):
            found.append(path)
        else:
            print(f"note: {path} is of an earlier run, with other judges or set-ups, and is left out")
    if not found:
        raise InputError.at(out, "has no JUDGE/SETUP/judge.csv in it, as cprt mi writes them")
    return found


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
    others = (
        {name: path for name, folder in of.items() if (path := file(folder)) is not None}
        for of in (folders.others, folders.naturals_others)
    )
    asked = controls.is_file() and read_csv(controls).rows  # --controls 0 leaves a header
    further = (file(folders.naturals), file(folders.naturals_target))
    return Inputs(str(judge), standard, file(folders.target), str(controls) if asked else None, *further, *others)


def _asked(judge: str, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The judge by its name and by what may change its answers, and SETTINGS; of a run without its record the name."""
    if not config:
        return judge, {}
    spec = _models(config).get(judge)
    settings = {name: config.get("order_seed" if name == "order" else name) for name in SETTINGS}
    settings["prompt"] = (spec or {}).get("prompt", "own")
    if spec is None:
        return judge, settings
    answers = {key: spec[key] for key in _ANSWERS if key in spec}
    return json.dumps([judge, config.get("seed"), answers], sort_keys=True), settings


def _models(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name -> how a judge of ``cprt mi`` was asked."""
    rows = config.get("models")
    return {str(row.get("name")): row for row in map(inside, rows if isinstance(rows, list) else [])}
