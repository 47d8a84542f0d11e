"""``cprt survey`` and ``cprt export``: what they write is what the other commands read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from cprt.answers.sheets import assign
from cprt.errors import InputError
from cprt.provenance import write_run
from cprt.records import Label, read_labels, write_jsonl
from cprt.scoring import severities
from cprt.tables import read_csv, write_csv
from cprt.taxonomy import Taxonomy
from data_prep.labels import export, survey
from data_prep.labels import run as labels

TAXONOMY = Taxonomy.default()


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(120):
        row = {attribute.key: float(rng.choice([0, 0, 0.5, 1])) for attribute in TAXONOMY.attributes}
        (level, score) = (part[0] for part in severities([list(row.values())]))
        rows.append(Label(f"p{number}", f"images/val2017/p{number}.jpg", row, int(level), float(score), "hand"))
    write_jsonl(tmp_path / "labels.jsonl", rows)
    return tmp_path


def test_the_papers_study_shows_each_photo_to_two_or_three_people():
    """Appendix D: 17 people, 10 of 65 photos each."""
    sheets = [list(assign(65, 17, 10, np.random.default_rng(seed))) for seed in (1, 1, 2)]
    assert sheets[0] == sheets[1] != sheets[2]
    assert all(len(set(sheet)) == len(sheet) == 10 for sheet in sheets[0])
    groups = [tuple(person for person, sheet in enumerate(sheets[0]) if photo in sheet) for photo in range(65)]
    assert all(len(group) in (2, 3) for group in groups)
    assert len(set(groups)) > 40  # people meet many others


def test_sheets_are_read_back_as_answers(labelled: Path, capsys):
    from eval.agreement.run import main as agreement

    out = labelled / "survey"
    options = ["--labels", str(labelled / "labels.jsonl"), "--out", str(out), "--photos", "20", "--people", "5"]
    options += ["--each", "8"]
    survey.main(options)
    assert "5 sheets of 8 photos and 22 questions, each photo on 2 to 2" in capsys.readouterr().out
    sheets = sorted((out / "sheets").glob("*.csv"))
    truth = {label.image: label for label in read_labels(labelled / "labels.jsonl")}
    for sheet in sheets:
        rows = [row for _, row in read_csv(sheet).rows]
        assert len(rows) == 8 and all(row[key] == "" for row in rows for key in TAXONOMY.keys)
        filled = [
            (
                row["annotator"],
                "human",
                row["image"],
                *(int(truth[row["image"]].labels[key] == 1) for key in TAXONOMY.keys),
            )
            for row in rows
        ]
        write_csv(sheet, ("annotator", "kind", "image", *TAXONOMY.keys), filled)
    agreement(["--answers", *map(str, sheets), "--out", str(labelled / "a.json"), "--resamples", "0"])
    found = json.loads((labelled / "a.json").read_text())
    assert found["human_human"]["overall"]["agreement"] == 1 and found["human_human"]["overall"]["n"] == 20 * 22
    with pytest.raises(InputError, match="person01.csv: has answers in it"):
        survey.main(options)


def test_sheets_are_in_no_order_of_severity_and_those_of_an_earlier_draw_are_gone(labelled: Path):
    labels, out = str(labelled / "labels.jsonl"), labelled / "survey"
    level = {label.image: label.level for label in read_labels(labels)}
    (out / "sheets").mkdir(parents=True)
    write_run("cprt survey", out, {})
    write_csv(out / "sheets" / "notes.csv", ("mine",), [])
    for people in (8, 5):
        given = ["--photos", "40", "--people", str(people), "--each", "20", "--seed", str(people)]
        survey.main(["--labels", labels, "--out", str(out), *given])
    sheets = sorted((out / "sheets").glob("*.csv"))
    assert [sheet.stem for sheet in sheets] == ["notes", *(f"person{number:02}" for number in range(1, 6))]
    for sheet in sheets[1:]:
        levels = [level[row["image"]] for _, row in read_csv(sheet).rows]
        assert levels != sorted(levels) and abs(np.corrcoef(levels, np.arange(20))[0, 1]) < 0.7


def test_an_export_is_read_as_cprt_bench_and_gives_the_same_labels(labelled: Path, capsys):
    out = labelled / "export"
    export.main(["--labels", str(labelled / "labels.jsonl"), "--out", str(out), "--name", "mine"])
    for number in range(120):
        (labelled / "images" / "val2017").mkdir(parents=True, exist_ok=True)
        (labelled / "images" / "val2017" / f"p{number}.jpg").write_bytes(b"")
    again = labelled / "again.jsonl"
    words = ["--source", "bench", "--input", str(out / "mine.json"), "--images", str(labelled), "--out", str(again)]
    labels.main([*words, "--card", "true"])
    with Image.open(labelled / "again.card.png") as picture:  # paper Fig. 7 of these labels
        assert picture.format == "PNG" and picture.width > 1000
    before = {label.id: label for label in read_labels(labelled / "labels.jsonl")}
    after = read_labels(again)
    assert len(after) == 120
    for label in after:
        original = before[label.id.removesuffix(".jpg")]
        assert (label.level, label.score, label.image) == (original.level, original.score, original.image)
        assert label.present(TAXONOMY) == original.present(TAXONOMY)
    front, _, body = (out / "README.md").read_text().removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(front)["license"] == "mit"
    ages = sum("age" in label.present(TAXONOMY) for label in before.values())
    assert f"| age | {ages} |" in body and "120 photos" in body


@pytest.mark.parametrize(
    ("command", "options", "complaint"),
    [
        (survey.main, ["--photos", "121", "--people", "30"], "has 120 photos, fewer than the 121 to draw"),
        (survey.main, ["--people", "2"], "2 people with 10 photos each cannot see 65 photos twice"),
        (survey.main, ["--photos", "5"], "nobody can label 10 of 5 photos"),
        (survey.main, ["--people", "1001"], "people must be 1 to 1,000"),
        (export.main, ["--name", "../x"], "is not a name of letters"),
        (export.main, ["--source", "a\nb"], "source must be one line"),
    ],
)
def test_bad_options_get_one_line(labelled: Path, command, options, complaint):
    with pytest.raises(InputError, match=complaint):
        command(["--labels", str(labelled / "labels.jsonl"), "--out", str(labelled / "x"), *options])
    assert not (labelled / "x").exists()
