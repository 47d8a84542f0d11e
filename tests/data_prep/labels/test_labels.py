"""``cprt labels``: CPRT-Bench files in, checked ground truth out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cprt.errors import InputError
from cprt.records import read_labels
from cprt.scoring import format_score, severity
from cprt.taxonomy import Taxonomy
from data_prep.labels.run import main

TAXONOMY = Taxonomy.default()


def groups(keys: list[str], one: Any = 1, zero: Any = 0) -> dict[str, dict[str, Any]]:
    return {
        f"level{level}": {a.key: one if a.key in keys else zero for a in TAXONOMY.attributes if a.level == level}
        for level in (1, 2, 3, 4)
    }


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Three photos in VISPR's layout."""
    folder = tmp_path / "images" / "test2017"
    folder.mkdir(parents=True)
    for name in ("2017_1", "2017_2", "2017_3"):
        Image.new("RGB", (8, 8)).save(folder / f"{name}.jpg")
    return tmp_path


def labels_of(collection: Path, rows: Any, *options: str) -> list[Any]:
    text = rows if isinstance(rows, str) else json.dumps(rows)
    (collection / "bench.json").write_text(text)
    out = collection / "out" / "labels.jsonl"
    paths = ["--input", str(collection / "bench.json"), "--images", str(collection), "--out", str(out)]
    main(["--source", "bench", *paths, *options])
    return read_labels(out)


def test_ids_and_values_may_be_spelled_in_every_released_way(collection: Path):
    labels = labels_of(
        collection,
        [
            {"id": "2017_1.jpg", "binary_labels": groups(["age"]), "level": 3, "score": 0.292},
            {"id": "test2017/2017_2.jpg", "binary_labels": groups(["age"], 1.0, 0.0), "level": 3.0, "score": 0.292},
            {"id": "images/test2017/2017_3", "binary_labels": groups(["age"], True, False)},
        ],
    )
    assert [label.id for label in labels] == ["2017_1", "2017_2", "2017_3"]
    assert labels[2].image == "images/test2017/2017_3.jpg"
    assert {(label.level, label.score, label.present(TAXONOMY)[0]) for label in labels} == {(3, 0.292, "age")}


def test_the_recomputed_score_wins_and_the_disagreement_is_listed(collection: Path, capsys):
    labels = labels_of(
        collection,
        [
            {"id": "2017_1", "binary_labels": groups(["biometrics"]), "level": 2, "score": 0.711},
            {"id": "2017_2", "binary_labels": groups(["biometrics"]), "level": 1, "score": 0.7116},
            {"id": "2017_3", "binary_labels": groups(["biometrics"]), "level": 1, "score": 0.7117},
        ],
    )
    assert [(label.level, label.score) for label in labels] == [(1, 0.711)] * 3
    report = json.loads((collection / "out" / "labels.run.json").read_text())["report"]
    assert [row["id"] for row in report["disagreements"]] == ["2017_1", "2017_3"]  # 6e-4 apart still agrees
    assert "2 rows whose level or score disagrees" in capsys.readouterr().out


def test_half_labels_are_kept_and_count_as_absent(collection: Path):
    values = groups(["age"])
    values["level1"]["biometrics"] = 0.5
    (label,) = labels_of(collection, [{"id": "2017_1", "binary_labels": values}])
    assert label.labels["biometrics"] == 0.5
    assert (label.level, label.score) == (3, 0.292)


def test_missing_images_are_counted_and_named(collection: Path, capsys):
    rows = [{"id": name, "binary_labels": groups([])} for name in ("2017_1", "2017_9", "2017_8")]
    assert [label.id for label in labels_of(collection, rows)] == ["2017_1"]
    assert "1 of 3 rows" in (said := capsys.readouterr().out) and "2 rows without an image: 2017_9, 2017_8" in said


def test_images_may_be_named_with_or_without_their_last_folder(collection: Path):
    rows = [{"id": "2017_1", "binary_labels": groups([])}]
    first = labels_of(collection, rows)
    assert labels_of(collection, rows, "--images", str(collection / "images")) == first


def test_all_combinations_keep_their_level_score_and_printed_score(tmp_path: Path):
    folder = tmp_path / "images"
    folder.mkdir()
    keys = {level: [a.key for a in TAXONOMY.attributes if a.level == level] for level in (1, 2, 3, 4)}
    combinations = list(itertools.product(range(4), range(11), range(6), range(5)))
    rows = []
    for number, counts in enumerate(combinations):
        Image.new("L", (1, 1)).save(folder / f"{number}.png")
        chosen = [key for level, count in enumerate(counts, start=1) for key in keys[level][:count]]
        truth = severity(counts)
        rows.append(
            {"id": str(number), "binary_labels": groups(chosen), "level": truth.level, "score": round(truth.score, 3)}
        )
    labels = labels_of(tmp_path, rows)
    assert len(labels) == 1320
    for label, counts in zip(labels, combinations, strict=True):
        truth = severity(counts)
        assert (label.level, label.score) == (truth.level, truth.score)
        assert format_score(label.score) == format_score(truth.score)
    assert json.loads((tmp_path / "out" / "labels.run.json").read_text())["report"]["disagreements"] == []


GOOD = {"id": "2017_1", "binary_labels": groups(["age"]), "level": 3, "score": 0.292}


def changed(path: str, value: Any) -> dict[str, Any]:
    row = json.loads(json.dumps(GOOD))
    *parents, last = path.split("/")
    place = row
    for parent in parents:
        place = place[parent]
    place[last] = value
    return row


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("[", "bench.json:1: not valid JSON"),
        ("{}", "bench.json: must be a JSON list of rows"),
        ("[]", "bench.json: has no rows"),
        ("", "bench.json:1: not valid JSON"),
        ([GOOD, GOOD], "bench.json: row 2: field 'id': '2017_1' is there already in row 1"),
        ([GOOD, changed("id", "2017_1.jpg")], "row 2: field 'id': '2017_1.jpg' has the id '2017_1', as "),
        ([GOOD, changed("id", "../../x")], "bench.json: row 2: field 'id': '../../x' is not a file name inside"),
        ([changed("id", None)], "bench.json: row 1: field 'id': must be a non-empty text"),
        ([changed("level", 5)], "bench.json: row 1: field 'level': 5 is not 1, 2, 3 or 4"),
        ([changed("score", 1.2)], "bench.json: row 1: field 'score': 1.2 is not a number from 0 to 1"),
        ([changed("score", "0.5")], "bench.json: row 1: field 'score': '0.5' is not a number from 0 to 1"),
        ([changed("binary_labels", None)], "bench.json: row 1: field 'binary_labels': is null"),
        ([changed("binary_labels/level3/age", 0.7)], "row 1: field 'binary_labels.level3.age': 0.7 is not 0, 0.5 or 1"),
        ([changed("binary_labels/level3/age", "1")], "row 1: field 'binary_labels.level3.age': '1' is not 0, 0.5 or 1"),
        ([changed("binary_labels/level3/ages", 1)], "row 1: field 'binary_labels.level3.ages': is not an attribute"),
        ([changed("binary_labels/level4/age", 1)], "row 1: field 'binary_labels.level4.age': belongs to level3"),
        ([changed("binary_labels/level3", {})], "row 1: field 'binary_labels.level3.age': is missing"),
        ([changed("id", "2017_9")], "none of its 1 images is in"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(collection: Path, rows: Any, complaint: str):
    with pytest.raises(InputError) as caught:
        labels_of(collection, rows)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert not (collection / "out").exists()


HEADER = "id," + ",".join(TAXONOMY.keys)


def csv_row(id: str, *keys: str) -> str:
    return id + "," + ",".join("1" if key in keys else "0" for key in TAXONOMY.keys)


def from_file(collection: Path, name: str, text: str, *options: str) -> list[Any]:
    (collection / name).write_text(text)
    out = collection / "out" / "labels.jsonl"
    main(["--input", str(collection / name), "--images", str(collection), "--out", str(out), *options])
    return read_labels(out)


def test_a_hand_made_table_gives_the_same_labels_as_the_json(collection: Path):
    bench = labels_of(collection, [{"id": "2017_1", "binary_labels": groups(["age", "beliefs"])}])
    text = f"{HEADER}\n{csv_row('2017_1.jpg', 'age', 'beliefs')}\n\n"
    table = from_file(collection, "hand.csv", text, "--source", "csv")
    assert [(label.labels, label.level, label.score) for label in table] == [
        (label.labels, label.level, label.score) for label in bench
    ]
    assert table[0].source == "csv:hand.csv"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{HEADER}\n{csv_row('2017_1')}\n{csv_row('2017_2')[:-1]}2\n", "hand.csv:3: field 'background_people': 2.0"),
        (f"{HEADER}\n{csv_row('2017_1')[:-1]}yes\n", "hand.csv:2: field 'background_people': 'yes' is not 0, 0.5 or 1"),
        (f"{HEADER}\n{csv_row('2017_1')[:-1]}\n", "hand.csv:2: field 'background_people': '' is not 0, 0.5 or 1"),
        (f"{HEADER}\n{csv_row('2017_1')},1\n", "hand.csv:2: has 24 cells, the header 23"),
        (f"{HEADER},faces\n", "hand.csv:1: field 'faces': is not an attribute of the taxonomy (another spelling?"),
        (f"{HEADER},note\n", "--aliases; anything else: take the column out)"),
        (f"{HEADER},age\n", "hand.csv:1: field 'age': is there twice"),
        (HEADER.replace(",age", "") + "\n", "hand.csv:1: field 'age': is missing"),
        (f"{HEADER}\n{csv_row('2017_1')}\n{csv_row('2017_1')}\n", ":3: field 'id': '2017_1' is there already"),
        (f"{HEADER}\n{csv_row('../../x')}\n", "hand.csv:2: field 'id': '../../x' is not a file name inside"),
        (f"{HEADER}\n", "hand.csv: has no rows"),
        ("", "hand.csv: has no rows"),
        (f'{HEADER}\n"2017_1', "hand.csv:2: not valid CSV"),
    ],
)
def test_a_bad_table_is_named_with_line_and_column(collection: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        from_file(collection, "hand.csv", text, "--source", "csv")
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert not (collection / "out").exists()


def test_another_spelling_is_translated_by_the_alias_map(collection: Path):
    values = groups(["age"])
    values["level1"]["face"] = values["level1"].pop("biometrics")
    rows = [{"id": "2017_1", "binary_labels": values}]
    with pytest.raises(InputError, match=r"field 'binary_labels.level1.face': .*give it as --aliases"):
        labels_of(collection, rows)
    (collection / "aliases.yaml").write_text("face: biometrics\n")
    (label,) = labels_of(collection, rows, "--aliases", str(collection / "aliases.yaml"))
    assert label.present(TAXONOMY) == ["age"] and label.labels["biometrics"] == 0
    (collection / "aliases.yaml").write_text("face: biometric\n")
    with pytest.raises(InputError, match="aliases.yaml: field 'face': 'biometric' is not an attribute"):
        labels_of(collection, rows, "--aliases", str(collection / "aliases.yaml"))


def annotation(id: str, annotator: str, values: dict[str, float] | None, status: str = "ok") -> str:
    labels = None if values is None else dict.fromkeys(TAXONOMY.keys, 0) | values
    return json.dumps({"id": id, "annotator": annotator, "status": status, "labels": labels}) + "\n"


def test_annotators_must_agree_on_1_and_a_missing_answer_leaves_no_consensus(collection: Path, capsys):
    text = "".join(
        [
            annotation("2017_1", "one", {"age": 1, "gender": 1, "beliefs": 0.5}),
            annotation("2017_1", "two", {"age": 1, "gender": 0.5, "beliefs": 1}),
            annotation("2017_2", "one", {"nudity": 1}),
            annotation("2017_2", "two", None, "refused"),
            annotation("2017_3", "one", {}),
            annotation("2017_3", "two", {"biometrics": 1}),
        ]
    )
    labels = from_file(collection, "annotations.jsonl", text, "--source", "annotations")
    assert [(label.id, label.present(TAXONOMY), label.level) for label in labels] == [
        ("2017_1", ["age"], 3),
        ("2017_3", [], 4),
    ]
    assert "1 photos that some annotator did not answer: 2017_2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (annotation("2017_1", "one", {"age": 0.7}), "annotations.jsonl:1: field 'labels.age': 0.7 is not 0, 0.5 or 1"),
        (annotation("2017_1", "one", {"ages": 1}), "annotations.jsonl:1: field 'labels.ages': is not an attribute"),
        (
            annotation("2017_1", "one", {"age": None}),  # type: ignore[dict-item]
            "annotations.jsonl:1: field 'labels.age': None is not 0, 0.5 or 1",
        ),
        (annotation("2017_1", "one", None), "annotations.jsonl:1: field 'labels': must be an object"),
        (annotation("2017_1", "one", {}) * 2, "jsonl:2: field 'annotator': 'one' has answered '2017_1' already"),
        (annotation("2017_1", "one", None, "error"), "annotations.jsonl: no photo has labels of all 1 annotators"),
        (annotation("", "one", {}), "annotations.jsonl:1: field 'id': '' is not a non-empty text"),
    ],
)
def test_bad_annotations_are_named(collection: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        from_file(collection, "annotations.jsonl", text, "--source", "annotations")
    assert complaint in str(caught.value)
    with pytest.raises(InputError, match="aliases go with source bench or csv"):
        from_file(collection, "annotations.jsonl", text, "--source", "annotations", "--aliases", "a.yaml")
