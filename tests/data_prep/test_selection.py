"""``cprt select``: the paper's three rules, a complete map, and the comparison with the released labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from PIL import Image

from cprt.errors import InputError
from cprt.taxonomy import Taxonomy
from data_prep.selection import DEFAULT_MAP, main, read_map

TAXONOMY = Taxonomy.default()

# VISPR labels of a photo -> attributes, level and rules, by hand.
PHOTOS = {
    "2017_1": (["a9_face_complete", "a4_gender"], ["biometrics", "gender"], 1, ["sensitive"]),
    "2017_2": ([], [], 4, ["safe"]),
    "2017_3": (["a55_religion", "a73_landmark"], ["beliefs", "location"], 2, ["level_2_without_face"]),
    "2017_4": (["a55_religion", "a10_face_partial"], ["beliefs"], 2, []),
    "2017_5": (["a30_credit_card"], ["financial_data"], 2, ["sensitive", "level_2_without_face"]),
    "2017_6": (["a1_age_approx", "a102_vehicle_ownership"], ["age", "property_assets"], 3, []),
    "2017_7": (["a13_full_nudity", "a9_face_complete"], ["biometrics", "nudity"], 1, ["sensitive"]),
}


@pytest.fixture
def vispr(tmp_path: Path) -> Path:
    for kind in ("images", "annotations"):
        (tmp_path / kind / "test2017").mkdir(parents=True)
    for id, (labels, *_) in PHOTOS.items():
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / "test2017" / f"{id}.jpg")
        annotation = {"id": id, "image_path": f"images/test2017/{id}.jpg", "labels": labels or ["a0_safe"]}
        (tmp_path / "annotations" / "test2017" / f"{id}.json").write_text(json.dumps(annotation))
    return tmp_path


def select(vispr: Path, *options: str) -> tuple[dict[str, dict], dict]:
    main(["--vispr", str(vispr), "--split", "test", "--out", str(vispr / "out"), *options])
    rows = [json.loads(line) for line in (vispr / "out" / "candidates.jsonl").read_text().splitlines()]
    return {row["id"]: row for row in rows}, json.loads((vispr / "out" / "report.json").read_text())


def test_the_map_covers_visprs_68_labels_with_a_reason_where_it_drops_one():
    content = yaml.safe_load(DEFAULT_MAP.read_text())
    assert len(content) == 68
    numbers = [int(label.split("_")[0][1:]) for label in content]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0 and numbers[-1] == 104
    for label, row in content.items():
        assert row["attribute"] in TAXONOMY.keys or row.get("reason"), label
    mapping = read_map(DEFAULT_MAP, TAXONOMY)
    reached = {mapped.attribute for mapped in mapping.values()} - {None}
    # VISPR has no label for a state of mind: only annotation can find it.
    assert set(TAXONOMY.keys) - reached == {"emotion_mental_health"}
    level_of = {attribute.key: attribute.level for attribute in TAXONOMY.attributes}
    assert all(mapped.clear for mapped in mapping.values() if mapped.attribute and level_of[mapped.attribute] == 1)
    assert not mapping["a10_face_partial"].clear


def test_each_photo_is_chosen_by_the_rules_that_fit_it(vispr: Path):
    candidates, report = select(vispr)
    expected = {id: (attributes, level, rules) for id, (_, attributes, level, rules) in PHOTOS.items() if rules}
    got = {id: (row["attributes"], row["level"], row["rules"]) for id, row in candidates.items()}
    assert got == expected
    assert (vispr / "out" / "candidates.txt").read_text().split() == list(expected)
    assert (report["photos"], report["candidates"]) == (7, 5)
    assert report["rules"] == {"sensitive": 3, "safe": 1, "level_2_without_face": 2}
    assert report["rules_alone"] == {"sensitive": 2, "safe": 1, "level_2_without_face": 1}
    assert report["levels"] == {"1": 2, "2": 2, "3": 0, "4": 1}


def test_what_counts_as_a_face_is_configuration(vispr: Path):
    candidates, _ = select(vispr, "--faces", "a9_face_complete")
    assert candidates["2017_4"]["rules"] == ["level_2_without_face"]


def test_the_report_compares_with_the_released_labels(vispr: Path, capsys):
    def row(id: str, key: str) -> dict:
        groups = {
            f"level{level}": {a.key: int(a.key == key) for a in TAXONOMY.attributes if a.level == level}
            for level in (1, 2, 3, 4)
        }
        level = next(a.level for a in TAXONOMY.attributes if a.key == key)
        return {"id": id, "binary_labels": groups, "level": level}

    rows = [
        row("2017_1.jpg", "biometrics"),
        row("test2017/2017_3.jpg", "age"),
        row("2017_6", "biometrics"),
        row("2017_99", "age"),
    ]
    (vispr / "bench.json").write_text(json.dumps(rows))
    _, report = select(vispr, "--released", str(vispr / "bench.json"))
    released = report["released"]
    assert (released["both"], released["only_selected"], released["only_released"]) == (2, 3, 2)
    assert released["not_in_split"] == ["2017_99"]
    assert released["mapped_by_released_level"] == [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert "released: 4 photos, 2 of them chosen here too" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a9_face_complete: {attribute: face}", "field 'a9_face_complete': 'face' is not an attribute"),
        ("a9_face_complete: biometrics", "field 'a9_face_complete': must be a mapping of attribute"),
        ("a9_face_complete: {attribute: biometrics, clear: 1}", "clear': 1 is not true or false"),
        ("face: {attribute: biometrics}", "field 'face': is not a VISPR label"),
        ("a9_face_complete: {attribute: biometrics}", "faces: 'a10_face_partial' is not in"),
        (
            "{a9_face_complete: {attribute: biometrics}, a10_face_partial: {attribute: null}}",
            "does not map 'a4_gender'",
        ),
        ("[", "not valid YAML"),
        ("", "must be a mapping"),
    ],
)
def test_a_broken_map_is_named_and_nothing_is_written(vispr: Path, text: str, complaint: str):
    (vispr / "map.yaml").write_text(text)
    with pytest.raises(InputError, match="map.yaml") as caught:
        select(vispr, "--map", str(vispr / "map.yaml"))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert not (vispr / "out").exists()
