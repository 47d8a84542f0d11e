"""``cprt select``: the paper's selection of VISPR photos (4.1), from VISPR's own labels.

A photo is a candidate by any of three rules, and each candidate says by which:

* ``sensitive``: it clearly shows a level-1 attribute or other sensitive content (lines with ``clear`` in the map);
* ``safe``: VISPR calls it safe;
* ``level_2_without_face``: it shows a level-2 attribute and no face, not even a partial one.

Writes ``OUT/candidates.jsonl``, ``OUT/candidates.txt`` (an id a line, for ``cprt annotate --input``) and
``OUT/report.json``. The map from VISPR's labels to attributes is ``data_prep/vispr_map.yaml``, with a reason for every
doubtful line; with the released labels beside it, the report shows how far the two agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_mapping, write_text
from cprt.metrics.severity import confusion
from cprt.pages.words import first_few
from cprt.provenance import sign, write_run
from cprt.records import write_json, write_jsonl
from cprt.scoring import severity
from cprt.taxonomy import LEVELS, Taxonomy
from cprt.values import read_fields
from cprt.vispr import LABEL
from data_prep.labels.files import Stated, read_bench
from data_prep.vispr import ODD, SPLITS, VisprRow, read_vispr

DEFAULT_MAP = Path(__file__).with_name("vispr_map.yaml")
RULES = ("sensitive", "safe", "level_2_without_face")


@dataclass
class SelectArguments:
    vispr: str = option("folder that holds VISPR's images/ and annotations/")
    split: str = option("which split", choices=list(SPLITS))
    out: str = option("folder to write", writes=("candidates.jsonl", "candidates.txt", "report.json"))
    map: str | None = option("YAML from VISPR labels to attributes; null: ours", None)
    faces: list[str] = option("VISPR labels that mean a face", factory=lambda: ["a9_face_complete", "a10_face_partial"])
    released: str | None = option("CPRT-Bench JSON to compare with", None)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


@dataclass(frozen=True)
class Mapped:
    """What a VISPR label means here: an attribute or none, and whether it alone makes a photo a candidate."""

    attribute: str | None
    clear: bool = False
    reason: str | None = None  # for readers


@dataclass(frozen=True)
class Candidate:
    """A photo with its VISPR labels, the attributes and level that they map to, and the rules that chose it."""

    id: str
    image: str
    vispr: list[str]
    attributes: list[str]
    level: int
    rules: list[str]


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(SelectArguments, argv, prog="cprt select", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    map_file = args.map or DEFAULT_MAP
    mapping = read_map(map_file, taxonomy)
    for label in args.faces:
        if label not in mapping:
            raise InputError(f"faces: {label!r} is not in {map_file}")
    split = read_vispr(args.vispr, args.split)
    photos = [map_photo(row, mapping, args.faces, taxonomy, str(map_file)) for row in split.rows]
    candidates = [photo for photo in photos if photo.rules]
    report: dict[str, Any] = {"vispr": split.report(), **count(photos)}
    inputs: dict[str, str | Path] = {"map": map_file}
    if args.released:
        report["released"] = compare(photos, read_bench(args.released, taxonomy))
        inputs["released"] = args.released
    out = Path(args.out)
    sign("cprt select", out / "run.json")
    write_jsonl(out / "candidates.jsonl", [asdict(candidate) for candidate in candidates])
    write_text(out / "candidates.txt", "".join(f"{candidate.id}\n" for candidate in candidates))
    write_json(out / "report.json", report)
    write_run("cprt select", out, args, inputs, taxonomy=taxonomy.digest)
    _print(out, report)


def read_map(path: str | Path, taxonomy: Taxonomy) -> dict[str, Mapped]:
    """VISPR label -> what it means. Raises InputError that names the label."""
    mapping = {}
    for label, row in read_mapping(path, " from VISPR labels to attributes").items():
        if not LABEL.fullmatch(label):
            raise InputError.at(path, "is not a VISPR label such as a9_face_complete", field=label)
        mapping[label] = read_fields(Mapped, row, path, within=f"{label}.")
        if mapping[label].attribute not in (None, *taxonomy.keys):
            raise InputError.at(path, f"{mapping[label].attribute!r} is not an attribute of the taxonomy", field=label)
    return mapping


def map_photo(
    row: VisprRow, mapping: Mapping[str, Mapped], faces: Sequence[str], taxonomy: Taxonomy, map_file: str
) -> Candidate:
    """One photo with the rules that choose it (none: it is no candidate). Raises InputError for an unmapped label."""
    for label in row.labels:
        if label not in mapping:
            raise InputError.at(map_file, f"does not map {label!r}, which {row.id!r} has")
    shown = {mapping[label].attribute for label in row.labels}
    attributes = [attribute for attribute in taxonomy.attributes if attribute.key in shown]
    levels = [attribute.level for attribute in attributes]
    chosen = {
        "sensitive": any(mapping[label].clear for label in row.labels),
        "safe": row.safe,
        "level_2_without_face": 2 in levels and not set(faces) & set(row.labels),
    }
    level = severity([levels.count(level) for level in LEVELS], taxonomy).level
    rules = [rule for rule in RULES if chosen[rule]]
    return Candidate(row.id, row.image, list(row.labels), [attribute.key for attribute in attributes], level, rules)


def count(photos: Sequence[Candidate]) -> dict[str, Any]:
    """How many photos each rule chose, and how many it alone chose."""
    return {
        "photos": len(photos),
        "candidates": sum(bool(photo.rules) for photo in photos),
        "rules": {rule: sum(rule in photo.rules for photo in photos) for rule in RULES},
        "rules_alone": {rule: sum(photo.rules == [rule] for photo in photos) for rule in RULES},
        "levels": {str(level): sum(photo.level == level for photo in photos if photo.rules) for level in LEVELS},
    }


def compare(photos: Sequence[Candidate], released: Sequence[Stated]) -> dict[str, Any]:
    """Candidates beside the released labels: ids on both sides, and mapped level (rows) by released level (columns).

    The matrix is over released photos that are in VISPR's split, whether we chose them or not.
    """
    level_of = {Path(row.id).stem: row.level for row in released if row.level is not None}
    ids = {Path(row.id).stem for row in released}
    chosen = {photo.id for photo in photos if photo.rules}
    known = {photo.id: photo.level for photo in photos}
    both = [(known[id], level) for id, level in level_of.items() if id in known]
    return {
        "released": len(ids),
        "both": len(ids & chosen),
        "only_selected": len(chosen - ids),
        "only_released": len(ids - chosen),
        "not_in_split": sorted(ids - known.keys()),
        "mapped_by_released_level": confusion(*np.reshape(both, (-1, 2)).T).tolist(),
    }


def _print(out: Path, report: Mapping[str, Any]) -> None:
    print(f"{out}: {report['candidates']} candidates of {report['photos']} photos")
    for rule in RULES:
        print(f"  {rule:<22}{report['rules'][rule]:>7}  ({report['rules_alone'][rule]} by this rule alone)")
    for name in ODD:
        names = report["vispr"][name]
        if names:
            print(f"  {name.replace('_', ' ')}: {len(names)}: {first_few(names)} (see report.json)")
    if "released" in report:
        released = report["released"]
        print("released: {released} photos, {both} of them chosen here too,".format(**released), end=" ")
        print("{only_selected} chosen only here, {only_released} only there".format(**released))
        print("  mapped level (rows) by released level (columns 1 to 4):")
        for level, row in zip(LEVELS, released["mapped_by_released_level"], strict=True):
            print(f"  level {level}" + "".join(f"{cell:>7}" for cell in row))


if __name__ == "__main__":
    run(main, "cprt select")
