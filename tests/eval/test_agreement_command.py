"""``cprt agreement``: files in, the paper's table out, every fault named."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from cprt import paper
from cprt.errors import InputError
from cprt.taxonomy import Taxonomy
from eval.agreement.run import main, table2

KEYS = list(Taxonomy.default().keys)

# The paper's lines as its text has them.
TABLE_2 = """
Human-Human 87.4% 0.652
GPT-5.1-Human 81.5% 0.559
Llama 4-Human 82.4% 0.565
Gemini-Human 74.6% 0.391
GPT-5.1-Llama 4 81.0% 0.519
GPT-5.1-Gemini 73.7% 0.418
Llama 4-Gemini 75.9% 0.483
""".strip().splitlines()


def test_the_papers_table_is_transcribed():
    rows = [f"{row['comparison']} {row['agreement_percent']:.1f}% {row['kappa']:.3f}" for row in paper.table2()]
    assert rows == TABLE_2
    assert paper.human_agreement_by_level() == {1: 84.4, 2: 94.5, 3: 80}  # section 4.1


Answers = tuple[str, str, str, dict[str, Any]]


def write_csv(path: Path, rows: list[Answers], columns: list[str] | None = None) -> Path:
    """Rows of (annotator, kind, image, answers); what is not named is 0."""
    columns = columns or ["annotator", "kind", "image", *KEYS]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="0", extrasaction="ignore")
        writer.writeheader()
        for annotator, kind, image, answers in rows:
            writer.writerow({"annotator": annotator, "kind": kind, "image": image, **answers})
    return path


def annotation(id: str, annotator: str, status: str = "ok", **labels: Any) -> dict[str, Any]:
    values = {**dict.fromkeys(KEYS, 0), **labels} if status == "ok" else None
    return {
        "id": id,
        "annotator": annotator,
        "status": status,
        "labels": values,
        "stage1": "age: yes - a child",
        "stage2": "{}",
        "error": None,
    }


def run(folder: Path, rows: list[Answers] | None, annotations: list[dict] | None = None, *options: str) -> dict:
    arguments = ["--out", str(folder / "out" / "agreement.json"), "--resamples", "50", *options]
    if rows is not None:
        arguments += ["--answers", str(write_csv(folder / "survey.csv", rows))]
    if annotations is not None:
        file = folder / "annotations.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in annotations))
        arguments += ["--annotations", str(file)]
    main(arguments)
    return json.loads((folder / "out" / "agreement.json").read_text())


SURVEY: list[Answers] = [
    ("ann", "human", "images/test2017/a.jpg", {"age": 1, "gender": "1.0"}),
    ("bob", "human", "a.jpg", {"age": "0.5", "gender": 1}),
    ("ann", "human", "b", {"biometrics": 1}),
    ("bob", "human", "b.JPG", {"biometrics": 1, "metadata": 1, "lifestyle": ""}),
    ("cy", "human", "b", {"biometrics": 1, "metadata": 1, "lifestyle": 1}),
    ("GPT-5.1 (high)", "model", "a", {"age": 1, "gender": 1}),
    ("GPT-5.1 (high)", "model", "b", {"biometrics": 1, "metadata": "0.5"}),
]


def test_a_name_that_the_paper_does_not_have_is_told_before_its_row_is_looked_for(tmp_path: Path, capsys):
    run(tmp_path, [(name.replace("GPT-5.1 (high)", "gpt"), *rest) for name, *rest in SURVEY])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "4 annotators, 2 images: drawing them 50 times for the intervals ..."
    assert "note: gpt stands beside no row of the paper's: there a name holds GPT-5.1 or Llama 4 or Gemini" in said
    run(tmp_path, SURVEY)
    assert "beside no row" not in capsys.readouterr().out


def test_a_survey_by_hand(tmp_path: Path, capsys):
    found = run(tmp_path, SURVEY)
    assert (found["images"], found["images_of_both_kinds"], found["half_counts_as"]) == (2, 2, 0)
    humans = found["human_human"]
    # Image a: all but age (1 against a half, which counts as 0). Image b: all but metadata (0 1 1), lifestyle (0 . 1).
    assert (humans["overall"]["n"], humans["overall"]["agreement"]) == (44, pytest.approx(41 / 44))
    assert humans["attributes"]["age"]["agreement"] == humans["attributes"]["metadata"]["agreement"] == 0.5
    assert humans["levels"]["3"]["agreement"] == pytest.approx(8 / 10)
    # Majority: a gender alone (age is a tie), b biometrics and metadata (lifestyle a tie). The model: age too much,
    # metadata too little.
    model = found["model_human"]["models"]["GPT-5.1 (high)"]
    assert model["overall"]["agreement"] == pytest.approx(42 / 44)
    assert model["overall"]["over_rate"] == pytest.approx(1 / 41)
    assert model["overall"]["under_rate"] == pytest.approx(1 / 3)
    assert model["overall"]["signed_difference"] == 0
    assert model["attributes"]["metadata"]["signed_difference"] == -0.5
    assert model["levels"]["3"]["signed_difference"] == pytest.approx(1 / 10)
    assert model["levels"]["1"]["kappa"] == 1.0
    profiles = {row["annotator"]: row for row in found["annotators"]}
    assert (profiles["bob"]["answers"], profiles["bob"]["halves"], profiles["bob"]["images"]) == (43, 1, 2)

    rows = {row["comparison"]: row for row in found["table2"]}
    assert rows["Human-Human"]["paper"]["kappa"] == 0.652
    assert rows["GPT-5.1 (high)-Human"]["paper"]["agreement_percent"] == 81.5
    assert rows["GPT-5.1-Gemini"] == {
        "comparison": "GPT-5.1-Gemini",
        "n": 0,
        "agreement": None,
        "kappa": None,
        "ci": {"agreement": None, "kappa": None},
        "paper": paper.table2()[5],
    }

    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("Human-Human")]
    assert line.split()[:3] == ["Human-Human", "44", "93.2%"] and line.split()[-2:] == ["87.4%", "0.652"]
    (line,) = [line for line in out.splitlines() if line.startswith("GPT-5.1-Gemini")]
    assert line.split()[1:] == ["0", "-", "-", "73.7%", "0.418"]
    (line,) = [line for line in out.splitlines() if line.startswith("nudity")]  # nobody sees any: kappa is undefined
    assert line.split()[1:] == "100.0% - - - 100.0% - 0.0% - +0.0% - -".split()
    assert "0.5 counts as 0" in out

    record = json.loads((tmp_path / "out" / "agreement.run.json").read_text())
    assert record["config"]["resamples"] == 50 and record["inputs"]["answers_0"]["sha256"]


def test_annotations_are_of_models_and_join_by_image(tmp_path: Path, capsys):
    humans = [row for row in SURVEY if row[1] == "human"]
    annotations = [
        annotation("a", "gpt-5.1", age=1, gender=1),
        annotation("b", "gpt-5.1", biometrics=1, metadata=0.5),
        annotation("a", "gemini-3-flash", "refused"),
        annotation("b", "gemini-3-flash", biometrics=0.5),
    ]
    found = run(tmp_path, humans, annotations)
    by_hand = run(tmp_path, SURVEY)
    models = found["model_human"]["models"]
    assert models["gpt-5.1"] == by_hand["model_human"]["models"]["GPT-5.1 (high)"]
    assert models["gemini-3-flash"]["overall"]["n"] == 22  # the refused image is not answered, which is not 0
    assert models["gemini-3-flash"]["attributes"]["biometrics"]["under_rate"] == 1.0
    (pair,) = found["model_model"]["pairs"]
    assert pair["annotators"] == ["gpt-5.1", "gemini-3-flash"] and pair["overall"]["n"] == 22
    rows = {row["comparison"]: row["paper"] for row in found["table2"]}
    assert rows["gpt-5.1-gemini-3-flash"]["comparison"] == "GPT-5.1-Gemini"
    assert {row["annotator"]: row["kind"] for row in found["annotators"]}["gpt-5.1"] == "model"
    assert "gemini-3-flash: 1 refused of 2 rows count as not answered" in capsys.readouterr().out


def test_annotations_alone_compare_models(tmp_path: Path):
    rows = [annotation(id, name, age=int(id == name)) for id in "ab" for name in "ab"]
    found = run(tmp_path, None, rows)
    assert found["human_human"]["overall"]["agreement"] is None
    assert found["model_model"]["pooled"]["attributes"]["age"]["agreement"] == 0
    assert found["model_model"]["pooled"]["overall"]["agreement"] == pytest.approx(42 / 44)


def test_the_papers_pairs_match_in_either_order():
    def part(n: int) -> dict[str, Any]:
        return {"overall": {"n": n, "agreement": 0.5, "kappa": 0.1, "ci": {}}}

    pairs = [{"annotators": pair, **part(1)} for pair in (["Gemini 3", "meta/Llama-4-Scout"], ["gemma", "gpt-5.2"])]
    found = {
        "human_human": part(4),
        "model_human": {"pooled": part(0), "models": {"gemma": part(2)}},
        "model_model": {"pooled": part(0), "pairs": pairs},
    }
    rows = {row["comparison"]: row["paper"] and row["paper"]["comparison"] for row in table2(found)}
    assert rows["Gemini 3-meta/Llama-4-Scout"] == "Llama 4-Gemini"
    assert rows["gemma-gpt-5.2"] is None and rows["gemma-Human"] is None
    assert next(iter(rows)) == "Human-Human" and len(rows) == 6 + 5  # the paper's five others follow


def test_images_that_do_not_meet_are_pointed_out(tmp_path: Path, capsys):
    rows = [("ann", "human", "a.jpg", {}), ("bob", "human", "a.jpg", {}), ("vlm", "model", "photo_a.jpg", {})]
    found = run(tmp_path, rows)
    assert found["images_of_both_kinds"] == 0
    assert "no image has answers of humans and of models" in capsys.readouterr().out


def test_an_unfilled_sheet_is_told_and_no_table_is_made_of_nothing(tmp_path: Path, capsys):
    empty = dict.fromkeys(KEYS, "")
    sheets = [("ann", "human", "a", empty), ("vlm", "model", "a", {})]
    refused = [annotation("a", "m", "unparsed"), annotation("b", "m", "unparsed")]
    why = "ann filled in nothing; m: 2 unparsed of 2 rows count as not answered"
    with pytest.raises(InputError, match=f"^nothing to compare, no two annotators answered .*: {why}$"):
        run(tmp_path, sheets, refused)
    assert not (tmp_path / "out").exists()
    run(tmp_path, [*sheets, ("gpt", "model", "a", {})], refused)
    said = capsys.readouterr().out
    assert "  ann filled in nothing\n" in said and "spelled alike" not in said


def test_models_are_compared_on_the_images_that_people_answered_too(tmp_path: Path, capsys):
    """Two models agree on the image that people saw and on nothing else: both figures are there, and told apart."""
    rows: list[Answers] = [("ann", "human", "a", {"age": 1}), ("bob", "human", "a", {"age": 1})]
    annotations = [annotation("a", "m1", age=1), annotation("a", "m2", age=1)]
    for name in "bcd":
        annotations += [annotation(name, "m1", **dict.fromkeys(KEYS, 1)), annotation(name, "m2")]
    found = run(tmp_path, rows, annotations)
    assert (found["images"], found["images_of_both_kinds"], found["images_compared"]) == (4, 1, 1)
    assert found["model_model"]["pooled"]["overall"]["agreement"] == 1
    assert found["model_model"]["pooled"]["overall"]["n"] == found["human_human"]["overall"]["n"] == len(KEYS)
    everywhere = found["models_on_all_images"]["pooled"]["overall"]
    assert (everywhere["agreement"], everywhere["n"]) == (pytest.approx(1 / 4), 4 * len(KEYS))
    assert "over the 1 images that people and models answered" in capsys.readouterr().out


def test_an_extended_taxonomy_brings_its_own_columns(tmp_path: Path):
    file = tmp_path / "more.yaml"
    file.write_text(
        "remove: [age]\nattributes: [{key: voice_print, level: 1, question: 'Is a voice print visible?'}]\n"
    )
    columns = ["annotator", "kind", "image", *(key for key in KEYS if key != "age"), "voice_print"]
    path = write_csv(tmp_path / "a.csv", [("a", "human", "1", {"voice_print": 1}), ("b", "human", "1", {})], columns)
    main(["--answers", str(path), "--out", str(tmp_path / "o.json"), "--taxonomy", str(file), "--resamples", "0"])
    humans = json.loads((tmp_path / "o.json").read_text())["human_human"]
    assert humans["attributes"]["voice_print"]["agreement"] == 0 and "age" not in humans["attributes"]
    assert humans["levels"]["1"]["n"] == 4


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([("ann", "human", "a", {"age": "0.7"})], r"survey.csv:2: field 'age': '0.7' is not 0, 0.5, 1 or empty"),
        ([("ann", "human", "a", {"age": "yes"})], r"survey.csv:2: field 'age': 'yes'"),
        ([("ann", "human", "a", {"age": "nan"})], r"survey.csv:2: field 'age': 'nan'"),
        ([("ann", "robot", "a", {})], r"survey.csv:2: field 'kind': 'robot' is not human or model"),
        ([("", "human", "a", {})], r"survey.csv:2: field 'annotator': is empty"),
        ([("ann", "human", " ", {})], r"survey.csv:2: field 'image': is empty"),
        (
            [("ann", "human", "a", {}), ("ann", "human", "x/a.jpg", {})],
            r"survey.csv:3: field 'image': 'ann' has answers on 'a' in .*survey.csv:2",
        ),
        (
            [("ann", "human", "a", {}), ("ann", "model", "b", {})],
            r"survey.csv:3: field 'kind': 'ann' is a model here and a human in .*survey.csv:2",
        ),
        ([], r"survey.csv: has no rows"),
    ],
)
def test_bad_answers_are_refused_and_nothing_is_written(tmp_path: Path, rows: list[Answers], complaint: str):
    with pytest.raises(InputError, match=complaint) as caught:
        run(tmp_path, rows)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: [lines[0] + ",pets", lines[1] + ",1"], r"a.csv:1: field 'pets': is neither annotator"),
        (lambda lines: [lines[0].replace(",age", ",aeg"), lines[1]], "a.csv:1: field 'aeg'"),
        (lambda lines: [lines[0].replace(",gender", ""), lines[1]], r"field 'gender': is missing from the header"),
        (lambda lines: [lines[0] + ",age", lines[1] + ",1"], r"field 'age': is there twice"),
        (lambda lines: [lines[0], lines[1] + ",1"], r"a.csv:2: has 26 cells, the header 25"),
        (lambda lines: [lines[0], "", lines[1][:-2]], r"a.csv:3: has 24 cells, the header 25"),
        (lambda lines: [lines[0], '"' + lines[1]], r"a.csv:2: not valid CSV"),
        (lambda lines: [], "has no rows"),
    ],
)
def test_a_broken_csv_is_refused_with_its_line(tmp_path: Path, change: Any, complaint: str):
    path = write_csv(tmp_path / "a.csv", [("ann", "human", "a", {})])
    path.write_text("\n".join(change(path.read_text().splitlines())))
    with pytest.raises(InputError, match=complaint) as caught:
        main(["--answers", str(path), "--out", str(tmp_path / "out.json")])
    assert "a.csv" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"labels": {"age": 0.7}}, r"field 'labels.age': 0.7 is not 0, 0.5 or 1"),
        ({"labels": {"age": True}}, r"field 'labels.age': True is not"),
        ({"labels": dict.fromkeys(KEYS) | {"age": 1}}, rf"field 'labels.{KEYS[0]}': None is not"),  # as cprt labels
        ({"labels": {"age": 1}}, rf"field 'labels.{KEYS[0]}': is missing"),
        ({"labels": {"pets": 1}}, r"field 'labels.pets': is not an attribute"),
        ({"labels": None}, r"field 'labels': must be an object where status is ok"),
        ({"status": "refused"}, r"field 'labels': must be an object where status is ok, null elsewhere"),
        ({"status": "done"}, r"field 'status': 'done' is not one of ok, unparsed"),
        ({"id": 7}, r"field 'id': 7 is not a text"),
    ],
)
def test_bad_annotations_are_refused_with_their_line(tmp_path: Path, row: dict, complaint: str):
    with pytest.raises(InputError, match=f"annotations.jsonl:2: {complaint}"):
        run(tmp_path, None, [annotation("a", "vlm"), annotation("b", "vlm") | row])
    assert not (tmp_path / "out").exists()


def test_an_input_is_needed(tmp_path: Path):
    with pytest.raises(InputError, match="needs --answers or --annotations"):
        main(["--out", str(tmp_path / "out.json")])
