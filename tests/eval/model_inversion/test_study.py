"""People as judges: what is drawn, what raters see, and what their answers become."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collection import ID, configure, describe, make
from loopback import Misbehaving
from sklearn.metrics import cohen_kappa_score

from cprt.answers.sheets import assign
from cprt.errors import InputError
from cprt.metrics.agreement import alpha_of_terms, alpha_terms
from cprt.metrics.bootstrap import ClusteredShare
from cprt.records import write_json, write_jsonl
from eval.model_inversion.compare import run as compare
from eval.model_inversion.judge import run as judge
from eval.model_inversion.metrics.join import write_verdicts
from eval.model_inversion.metrics.rates import Counting
from eval.model_inversion.study.answers import alpha, majority
from eval.model_inversion.study.run import main


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 reconstructions of four classes, 12 controls, one judge that always says yes."""
    folder = tmp_path_factory.mktemp("mi")
    root = make(folder, classes=4, images=6)
    with Misbehaving(lambda body: ("Yes.", "stop")) as server:
        judge.main([*configure(folder, describe(folder, root), server.url, "one"), "--controls", "6"])
    return folder / "out"


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def fill(path: Path, answers: list[str]) -> str:
    content = rows(path)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(content[0])
        writer.writerows([row["number"], row["picture"], answer] for row, answer in zip(content, answers, strict=True))
    return str(path)


def drawn(judged: Path, out: Path, *more: str) -> list[dict[str, str]]:
    main(["--runs", str(judged), "--out", str(out), "--reconstructions", "16", "--controls", "6", *more])
    return rows(out / "key.csv")


def test_a_study_is_drawn_evenly_and_sheets_tell_nothing(judged: Path, tmp_path: Path):
    key = drawn(judged, tmp_path, "--people", "3", "--each", "11")
    assert Counter(row["kind"] for row in key) == {"reconstruction": 16, "positive": 3, "negative": 3}
    assert [int(row["number"]) for row in key] == list(range(1, 23))
    assert len({row["picture"] for row in key}) == 22 and all((judged / row["picture"]).is_file() for row in key)
    sheets = [rows(tmp_path / "sheets" / f"rater{number:02}.csv") for number in (1, 2, 3)]
    assert [len(sheet) for sheet in sheets] == [11] * 3
    assert {tuple(row) for sheet in sheets for row in sheet} == {("number", "picture", "answer")}
    seen = Counter(row["number"] for sheet in sheets for row in sheet)
    assert set(seen.values()) <= {1, 2} and len(seen) == 22
    for sheet in sheets:
        assert not any(row["answer"] for row in sheet)
        assert [row["number"] for row in sheet] != sorted((row["number"] for row in sheet), key=int)
        assert all("positive" not in row["picture"] and "CelebA" not in row["picture"] for row in sheet)
    assert drawn(judged, tmp_path / "again", "--people", "3", "--each", "11") == key  # the seed decides
    assert drawn(judged, tmp_path / "other", "--seed", "1") != key


def test_filled_sheets_become_judges_and_are_held_against_each(judged: Path, tmp_path: Path, capsys):
    study = tmp_path / "study"
    key = {row["number"]: row for row in drawn(judged, study)}
    sheets = [study / "sheets" / f"rater{number:02}.csv" for number in (1, 2, 3)]

    def honest(row: dict[str, str]) -> str:
        kind, number = key[row["number"]]["kind"], int(row["number"])
        return {"positive": "yes", "negative": "no"}.get(kind) or ("yes" if number % 3 else "no")

    answers = [[honest(row) for row in rows(path)] for path in sheets]
    answers[1] = [{"yes": "No ", "no": "YES"}[answer] if i < 4 else answer for i, answer in enumerate(answers[1])]
    answers[2] = ["unsure" if i < 2 else "" if i < 4 else answer for i, answer in enumerate(answers[2])]
    words = [fill(path, given) for path, given in zip(sheets, answers, strict=True)]
    with pytest.raises(InputError, match=r"rater01\.csv: has answers in it; write new sheets to another --out"):
        drawn(judged, study)
    main(["--runs", str(judged), "--out", str(study), "--answers", *words, "--resamples", "50"])
    report = json.loads((study / "study.json").read_text())
    assert [row["answered"] for row in report["raters"].values()] == [22, 22, 20]
    assert report["raters"]["rater01"]["hit_rate"]["rate"] == 1.0
    assert report["raters"]["rater01"]["false_alarm_rate"]["rate"] == 0.0
    low, high = report["ci"]["alpha"]
    assert low <= report["alpha"] <= high <= 1 and report["alpha"] < 1
    assert f"3 raters, Krippendorff's alpha {report['alpha']:.3f} [{low:.3f}, {high:.3f}]" in capsys.readouterr().out

    votes: dict[str, list[str]] = {}
    for path in sheets:
        for row in rows(path):
            votes.setdefault(row["number"], []).append(row["answer"].strip().lower())
    expected = {}
    for number, given in votes.items():
        if key[number]["kind"] == "reconstruction":
            yes, no = given.count("yes"), given.count("no")
            label = "refused" if yes == no else "yes" if yes > no else "no"
            expected[key[number]["class"], key[number]["filename"]] = label
    of_majority = rows(study / "raters" / "majority" / ID / "judge.csv")
    assert {(row["class"], row["filename"]): row["label"] for row in of_majority} == expected
    found, *of_raters = report["judges"]
    for row, given, sheet in zip(of_raters, answers, sheets, strict=True):  # the judge always says yes
        yes = [
            answer.strip().lower() == "yes"
            for answer, asked in zip(given, rows(sheet), strict=True)
            if key[asked["number"]]["kind"] == "reconstruction" and answer.strip().lower() in ("yes", "no")
        ]
        assert (row["rater"], row["judge"], row["n"]) == (sheet.stem, "one", len(yes))
        assert row["agreement"] == pytest.approx(sum(yes) / len(yes)) and row["ci"]["agreement"] is not None
    clear = [label for label in expected.values() if label != "refused"]
    assert (found["rater"], found["judge"], found["n"]) == ("majority", "one", len(clear))
    assert found["agreement"] == pytest.approx(clear.count("yes") / len(clear))  # the judge always says yes

    # As judges like any other, beside E: agreement of any two raters, and FPR with people as the truth.
    standard = tmp_path / "standard" / ID / "prediction.csv"
    standard.parent.mkdir(parents=True)
    lines = [f"{row['filename']},{row['class']},yes" for row in rows(judged / "one" / ID / "judge.csv")]
    standard.write_text("filename,class,prediction\n" + "\n".join(lines))
    words = ["--runs", str(judged), str(study / "raters"), "--standard", str(tmp_path / "standard")]
    compare.main([*words, "--out", str(tmp_path / "compare"), "--resamples", "20"])
    result = json.loads((tmp_path / "compare" / "compare.json").read_text())
    people = [f"raters/{name}" for name in ("majority", "rater01", "rater02", "rater03")]
    assert result["judges"] == ["out/one", *people]
    (row,) = [row for row in result["agreement"] if row["judges"] == ["raters/rater01", "raters/rater02"]]
    pairs = [
        (one, two.strip().lower())
        for a, one in zip(rows(sheets[0]), answers[0], strict=True)
        for b, two in zip(rows(sheets[1]), answers[1], strict=True)
        if a["number"] == b["number"] and key[a["number"]]["kind"] == "reconstruction"
    ]
    assert row["n"] == 16 and row["kappa"] == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)))


def test_a_reconstruction_is_drawn_once_whatever_the_prompts_and_controls_stay_with_their_private_data(tmp_path: Path):
    """Two set-ups of one private data and one of another, whose classes have the same names; asked by two prompts."""
    run, study = tmp_path / "run", tmp_path / "study"
    private = {"a": "faces", "b": "faces", "c": "dogs"}
    asked = [
        *((setup, "reconstruction", setup, file) for setup in private for file in ("1.png", "2.png")),
        *((setup, kind, of, f"0/{kind}.png") for setup, of in private.items() for kind in ("positive", "negative")),
    ]
    queries = [
        {"setup": setup, "kind": kind, "class": "0", "file": file, "path": f"{place}/{file}", "problem": None}
        | {"images": [f"{prompt}-{kind}-{place}-{file.replace('/', '-')}"]}
        for prompt in ("ours", "theirs")
        for setup, kind, place, file in asked
    ]
    write_jsonl(run / "queries.jsonl", queries)
    write_json(run / "setups.json", [{"id": id, "name": id, "private": of} for id, of in private.items()])
    for setup in private:
        write_verdicts(run / "one" / setup, [(file, "0", "", "yes") for file in ("1.png", "2.png")])
    with pytest.raises(InputError, match="has 6 reconstructions, 7 are to be drawn"):
        main(["--runs", str(run), "--out", str(study), "--reconstructions", "7", "--controls", "0"])
    main(["--runs", str(run), "--out", str(study), "--reconstructions", "6", "--controls", "4", "--people", "1"])
    key = rows(study / "key.csv")
    assert len({(row["setup"], row["filename"]) for row in key if row["kind"] == "reconstruction"}) == 6
    sheet = fill(study / "sheets" / "rater01.csv", ["yes"] * len(key))
    main(["--runs", str(run), "--out", str(study), "--answers", sheet, "--resamples", "20"])
    for setup in private:
        controls = {
            (row["kind"], row["filename"]) for row in rows(study / "raters" / "rater01" / setup / "controls.csv")
        }
        assert controls == {("positive", "0/positive.png"), ("negative", "0/negative.png")}
        assert len(rows(study / "raters" / "rater01" / setup / "controls.csv")) == 2  # none of the other data's
    (rater,) = json.loads((study / "study.json").read_text())["raters"].values()
    assert rater["hit_rate"]["n"] == 2 and rater["hit_rate"]["ci"] == ClusteredShare.of([1, 1], [1, 1]).interval


def test_the_majority_and_alpha_by_hand():
    sheets = [{1: "yes", 2: "no", 3: "yes", 4: "refused"}, {1: "yes", 2: "yes", 4: "refused"}, {1: "no", 3: "yes"}]
    assert majority(sheets) == {1: "yes", 2: "refused", 3: "yes", 4: "refused"}
    classes = {1: "a", 2: "b", 3: "b"}
    same = [{1: "yes", 2: "no", 3: "no"}] * 2
    assert alpha(same, classes, Counting(resamples=0)) == {"alpha": 1.0, "ci": {"alpha": None}}
    assert alpha([{1: "yes"}], classes, Counting(resamples=10))["alpha"] is None
    # Two raters, three items, one difference; six answers, three of each: 1 - (6 - 1) x 1 / (3 x 3).
    found = alpha([{1: "yes", 2: "no", 3: "yes"}, {1: "yes", 2: "no", 3: "no"}], classes, Counting(resamples=0))
    assert found["alpha"] == pytest.approx(1 - 5 / 9)


def test_alphas_interval_rests_on_classes():
    """Two raters, one of whom errs at random in a fifth; the interval equals that of resampled classes."""
    rng = np.random.default_rng(0)
    classes = {number: str(number % 20) for number in range(100)}
    truth = {number: "yes" if rng.random() < 0.5 else "no" for number in classes}
    other = {n: {"yes": "no", "no": "yes"}[label] if rng.random() < 0.2 else label for n, label in truth.items()}
    found = alpha([truth, other], classes, Counting(resamples=2000))
    drawn = []
    for _ in range(300):
        numbers = [n for name in rng.integers(20, size=20) for n in classes if classes[n] == str(name)]
        cells = [[sheet[n] == "yes" for n in numbers] for sheet in (truth, other)]
        drawn.append(alpha_of_terms(alpha_terms(np.asarray(cells, dtype=np.int8)).sum(axis=0)))
    low, high = found["ci"]["alpha"]
    assert low < found["alpha"] < high
    assert high - low == pytest.approx(np.subtract(*np.percentile(drawn, [97.5, 2.5])), rel=0.25)


def test_everybody_gets_as_many_and_pictures_get_equally_many():
    sheets = list(assign(10, 4, 5, np.random.default_rng(0)))
    assert all(len(set(sheet)) == 5 for sheet in sheets)
    assert Counter(place for sheet in sheets for place in sheet) == dict.fromkeys(range(10), 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answer": "maybe"}, "field 'answer': 'maybe' is not one of yes, no, unsure"),
        ({"number": "99"}, "field 'number': 99 is not that picture in the key: another study?"),
        ({"number": "x"}, "field 'number': x is not that picture in the key"),
        ({"picture": "p.jpg"}, "is not that picture in the key"),
        ({"answer": ""}, "has no answers in it"),
    ],
)
def test_a_sheet_that_does_not_fit_is_one_line(judged: Path, tmp_path: Path, change: dict[str, str], said: str):
    drawn(judged, tmp_path)
    path = tmp_path / "sheets" / "rater01.csv"
    content: list[dict[str, Any]] = [{**row, "answer": "yes"} | change for row in rows(path)]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, content[0])
        writer.writeheader()
        writer.writerows(content)
    with pytest.raises(InputError) as caught:
        main(["--runs", str(judged), "--out", str(tmp_path), "--answers", str(path)])
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "raters").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reconstructions", "99"], "has 24 reconstructions, 99 are to be drawn"),
        (["--controls", "20"], "has 6 positive controls, 10 are to be drawn"),
        (["--people", "0"], "people must be 1 to 1,000"),
    ],
)
def test_what_cannot_be_drawn_is_told(judged: Path, tmp_path: Path, words: list[str], said: str):
    with pytest.raises(InputError, match=said):
        main(["--runs", str(judged), "--out", str(tmp_path / "out"), "--reconstructions", "4", *words])
    assert not (tmp_path / "out").exists()
