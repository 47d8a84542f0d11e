"""Rows on disk: what is written reads back, and every complaint names file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cprt.errors import InputError
from cprt.files import is_safe_path
from cprt.records import Label, Prediction, read_jsonl, read_labels, read_pairs, read_predictions, write_jsonl
from cprt.taxonomy import Taxonomy

LABELS = {key: 0.0 for key in Taxonomy.default().keys} | {"age": 1.0, "nudity": 0.5}
LABEL = {"id": "a", "image": "images/a.jpg", "labels": LABELS, "level": 3, "score": 0.292, "source": "hand"}
MESSAGES = {"prompt": [{"role": "user", "content": "?"}], "completion": [{"role": "assistant", "content": "!"}]}
PAIR = {"id": "a", "images": ["images/a.jpg"], **MESSAGES}
PREDICTION = {"id": "a", "status": "ok", "score": 0.5}
READERS = {"labels": (read_labels, LABEL), "pairs": (read_pairs, PAIR), "predictions": (read_predictions, PREDICTION)}


def write_rows(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_what_is_written_reads_back(tmp_path: Path):
    label = Label("ä\u2028b", "images/a.jpg", LABELS, 3, 0.29200000000000004, "hand")
    write_jsonl(tmp_path / "labels.jsonl", [label])
    assert read_labels(tmp_path / "labels.jsonl") == [label]  # U+2028 ends no line, and no digit is lost
    assert label.present(Taxonomy.default()) == ["age"]
    prediction = Prediction("a", "m", "taxonomy", "ok", text="0.5", score=0.5, level=3, attributes=["age"])
    write_jsonl(tmp_path / "predictions.jsonl", [prediction])
    assert read_predictions(tmp_path / "predictions.jsonl") == [prediction]


def test_labels_for_metrics_need_only_id_level_and_score(tmp_path: Path):
    (label,) = read_labels(write_rows(tmp_path / "l.jsonl", {"id": "a", "level": 1, "score": 0.8}))
    assert (label.image, label.labels, label.score) == (None, None, 0.8)


@pytest.mark.parametrize(
    ("wanted", "given", "said"),
    [
        (
            "labels",
            PAIR | {"level": 1, "score": 0.8},
            "holds pairs for training (cprt pairs), not labels (cprt labels)",
        ),
        ("labels", PREDICTION | {"level": 3}, "holds predictions (cprt eval), not labels (cprt labels)"),
        ("predictions", PAIR, "holds pairs for training (cprt pairs), not predictions (cprt eval)"),
        ("predictions", LABEL, "holds labels (cprt labels), not predictions (cprt eval)"),
        ("pairs", LABEL, "holds labels (cprt labels), not pairs for training (cprt pairs)"),
        ("pairs", PREDICTION, "holds predictions (cprt eval), not pairs for training (cprt pairs)"),
        (
            "labels",
            {"id": "a", "annotator": "m", "status": "ok", "labels": LABELS},
            "holds annotations (cprt annotate), n",
        ),
    ],
)
def test_a_file_of_another_kind_is_named_as_one(tmp_path: Path, wanted: str, given: dict[str, object], said: str):
    file = write_rows(tmp_path / "x.jsonl", given)
    with pytest.raises(InputError, match=re.escape(f"x.jsonl:1: {said}")):
        READERS[wanted][0](file)


@pytest.mark.parametrize("name", ["image", "labels"])
def test_what_a_command_needs_of_labels_must_be_there(tmp_path: Path, name: str):
    file = write_rows(tmp_path / "l.jsonl", LABEL, LABEL | {"id": "b", name: None})
    assert len(read_labels(file)) == 2
    with pytest.raises(InputError, match=f"l.jsonl:2: field '{name}': is missing"):
        read_labels(file, needed=(name,))


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("labels", {"id": ""}, "id"),
        ("labels", {"id": 7}, "id"),
        ("labels", {"level": 5}, "level"),
        ("labels", {"level": 2.0}, "level"),
        ("labels", {"level": True}, "level"),
        ("labels", {"score": 1.01}, "score"),
        ("labels", {"score": "0.5"}, "score"),
        ("labels", {"score": True}, "score"),
        ("labels", {"score": None}, "score"),
        ("labels", {"image": "../secret.jpg"}, "image"),
        ("labels", {"image": "/etc/passwd"}, "image"),
        ("labels", {"labels": LABELS | {"age": 0.7}}, "labels.age"),
        ("labels", {"labels": LABELS | {"age": True}}, "labels.age"),
        ("labels", {"labels": LABELS | {"aeg": 1}}, "labels.aeg"),
        ("labels", {"labels": {"age": 1}}, "labels.biometrics"),
        ("pairs", {"images": []}, "images"),
        ("pairs", {"images": ["../a.jpg"]}, "images"),
        ("pairs", {"prompt": []}, "prompt"),
        ("pairs", {"completion": [{"role": "assistant"}]}, "completion"),
        ("predictions", {"status": "fine"}, "status"),
        ("predictions", {"score": None}, "score"),
        ("predictions", {"status": "refused"}, "score"),
        ("predictions", {"attributes": [1]}, "attributes"),
        ("predictions", {"expected_score": 2}, "expected_score"),
        ("predictions", {"willing": -0.1}, "willing"),
        ("predictions", {"score_band": [0.5, 0.4]}, "score_band"),
        ("predictions", {"score_band": [0.5]}, "score_band"),
        ("predictions", {"attribute_probabilities": {"age": 1.5}}, "attribute_probabilities"),
        ("predictions", {"lists": [{"attributes": ["age"], "score": 0.3}]}, "lists"),
    ],
)
def test_a_bad_field_is_named_with_its_line(tmp_path: Path, kind: str, change: dict, field: str):
    read, row = READERS[kind]
    file = write_rows(tmp_path / "rows.jsonl", row, {**row, "id": "b", **change})
    with pytest.raises(InputError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}:2: field '{field}': ")
    assert "\n" not in str(caught.value)


def test_the_severity_of_a_label_is_that_of_the_taxonomy_at_hand(tmp_path: Path, capsys):
    (tmp_path / "bands.yaml").write_text("bands: [0.9, 0.6, 0.1]")
    other = Taxonomy.load(tmp_path / "bands.yaml")
    file = write_rows(tmp_path / "l.jsonl", LABEL, LABEL | {"id": "b", "score": 0.1})
    fault = f"{file}:2: field 'score': 0.1 does not follow from labels, 0.292 does: were the labels made with another"
    with pytest.raises(InputError, match=re.escape(fault)):
        read_labels(file, needed=("labels",))
    assert len(read_labels(file)) == 2 and capsys.readouterr().err.startswith(f"note: {fault}")  # truth alone
    level = write_rows(tmp_path / "level.jsonl", LABEL | {"level": 2})
    with pytest.raises(InputError, match="'level': 2 does not follow from labels, 3 does"):
        read_labels(level, needed=("labels",))
    (own,) = read_labels(write_rows(tmp_path / "own.jsonl", LABEL | {"score": 0.1}), other, needed=("labels",))
    assert own.score == 0.1 and capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", READERS)
def test_a_doubled_id_and_an_empty_file_are_refused(tmp_path: Path, kind: str):
    read, row = READERS[kind]
    with pytest.raises(InputError, match=r"rows.jsonl:2: field 'id': 'a' is there already in line 1"):
        read(write_rows(tmp_path / "rows.jsonl", row, row))
    (tmp_path / "empty.jsonl").write_text("\n \n")
    with pytest.raises(InputError, match="has no rows"):
        read(tmp_path / "empty.jsonl")


@pytest.mark.parametrize(
    "line", ["{", '{"a": NaN}', '{"a": Infinity}', '{"a": 1, "a": 2}', "[1]", '"text"', "[" * 100_000, '{"a": 1} x']
)
def test_a_line_that_is_no_json_object_is_named(tmp_path: Path, line: str):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": "a"}\n' + line + "\n")
    with pytest.raises(InputError, match=r"rows.jsonl:2: "):
        list(read_jsonl(file))


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe4"}\n')
    for name in ("latin.jsonl", "missing.jsonl", "."):
        with pytest.raises(InputError):
            list(read_jsonl(tmp_path / name))


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("a.jpg", True),
        ("images/val2017/a.jpg", True),
        ("a..b/c", True),
        ("../a", False),
        ("a/../../b", False),
        ("/a", False),
        ("", False),
        ("a\\b", False),
        ("a\0b", False),
    ],
)
def test_paths_stay_inside_their_folder(path: str, safe: bool):
    assert is_safe_path(path) is safe


@pytest.mark.parametrize("text", ['[{"id": "a"}]', '[\n  {"id": "a"}\n]\n', '{\n  "id": "a"\n}\n'])
def test_json_where_json_lines_are_wanted_is_told_as_such(tmp_path: Path, text: str):
    (tmp_path / "l.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"l\.jsonl: is .*JSON lines, an object in each; cprt labels makes them of "):
        read_labels(tmp_path / "l.jsonl", Taxonomy.default())
    with pytest.raises(InputError, match=r"JSON lines, an object in each$"):
        read_predictions(tmp_path / "l.jsonl")


def test_broken_json_lines_are_told_by_their_line(tmp_path: Path):
    (tmp_path / "l.jsonl").write_text('{"id": "a"\n{"id": "b"}\n')
    with pytest.raises(InputError, match=r"l\.jsonl:1: not valid JSON"):
        list(read_jsonl(tmp_path / "l.jsonl"))
