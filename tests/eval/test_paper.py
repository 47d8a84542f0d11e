"""``cprt paper``: our figures beside the paper's in three formats, and the transcription itself."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from judged import judge, make_labels, write_folder
from loopback import Misbehaving
from PIL import Image

from cprt import paper
from cprt.config import parse
from cprt.errors import InputError
from cprt.prompts import build
from cprt.records import Label, read_labels, write_json, write_jsonl
from cprt.taxonomy import Taxonomy
from data_prep.boundaries.run import main as learn_bands
from eval.agreement.run import main as agree
from eval.counterfactual.run import main as ask_again
from eval.measures import measure
from eval.paper import PaperArguments, main
from eval.prompts import as_text
from eval.run import main as evaluate

FIGURES = ("pearson", "spearman", "mae", "bias", "level_accuracy", "inter_level_accuracy", "intra_level_accuracy")


def read(path: Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def metrics(folder: Path, run: str, **figures: float) -> None:
    nothing = vars(measure([], [], Taxonomy.default(), "x"))
    content = {**nothing, **figures, "n": 9, "coverage": 1.0, "ci": {name: [0.1, 0.9] for name in FIGURES}}
    write_json(folder / run / "metrics.json", content)
    write_jsonl(folder / run / "predictions.jsonl", [{"id": "a", "status": "ok", "score": 0.5}])


def test_the_tables_are_the_papers():
    """Table 1's total and shares, and the rows that Tables 3 and 6 have in common (paper 4.1, 5.1, appendix F)."""
    assert sum(paper.table1().values()) == 6736
    assert [round(100 * count / 6736, 1) for count in paper.table1().values()] == [42.5, 15.2, 20.2, 22.1]
    assert len(paper.table6()) == 29 and len(paper.table3()) == 25
    assert paper.table3()[-1]["model"] == "Qwen3-VL (8B) (80 steps)"


def test_every_table_stands_beside_the_papers_with_the_difference(tmp_path: Path, capsys):
    counts = {1: 3, 2: 0, 3: 1, 4: 2}
    labels = [Label(f"{level}-{i}", None, None, level, 0.5, None) for level, n in counts.items() for i in range(n)]
    write_jsonl(tmp_path / "labels.jsonl", labels)
    runs = tmp_path / "runs"
    metrics(runs, "gpt-5.2-zero_shot", pearson=0.801, mae=0.2, inter_level_accuracy=0.9)
    metrics(runs, "mine", spearman=0.7)
    (tmp_path / "rows.yaml").write_text("SFT / Qwen3-VL (2B) (80 steps): mine\n")
    main(["--labels", str(tmp_path / "labels.jsonl"), "--out", str(tmp_path / "counts")])
    main(["--runs", str(runs), "--rows", str(tmp_path / "rows.yaml"), "--out", str(tmp_path / "out")])

    table1 = read(tmp_path / "counts" / "table1.csv")
    assert table1[1] == ["Level 1", "3", "50.0", "2860", "42.5", "-2857"] and table1[-1][:2] == ["Total", "6"]
    table6 = read(tmp_path / "out" / "table6.csv")
    assert len(table6) == 30
    rows = {(row[0], row[1]): dict(zip(table6[0], row, strict=True)) for row in table6[1:]}
    gpt = rows["Zero-Shot", "GPT-5.2"]
    assert (gpt["Pearson"], gpt["Pearson paper"], gpt["Pearson difference"]) == ("0.801", "0.77", "0.031")
    assert (gpt["Pearson low"], gpt["Pearson high"], gpt["MAE difference"]) == ("0.1", "0.9", "-0.025")
    assert gpt["photos"] == "9" and rows["Taxonomy", "GPT-5.2"]["photos"] == ""
    assert gpt["Inter-Acc paper"] == "0.884" and "Inter-Acc difference" not in gpt  # another protocol
    assert rows["SFT", "Qwen3-VL (2B) (80 steps)"]["Spearman difference"] == "0.376"
    untouched = rows["Taxonomy", "Pixtral (12B)"]
    assert untouched["Pearson"] == untouched["Pearson difference"] == "" and untouched["Pearson paper"] == "0.616"
    assert len(read(tmp_path / "out" / "table3.csv")) == 26

    table5 = read(tmp_path / "out" / "table5.csv")
    assert [row[2] for row in table5[1:]] == list(Taxonomy.default().keys)
    assert len(read(tmp_path / "out" / "table4.csv")) == 1 + 14
    tex = (tmp_path / "out" / "table6.tex").read_text()
    assert tex.count("\\\\\n") == 30 and "\\toprule" in tex
    assert "GPT-5.2 & 9 & 1.0 & 0.801 & 0.1 & 0.9 & 0.77 & 0.031" in tex
    assert "Non-Unique Identifiers" in (tmp_path / "out" / "table4.tex").read_text()
    assert "§" not in (tmp_path / "out" / "table4.tex").read_text()
    lines = (tmp_path / "counts" / "table1.md").read_text().splitlines()
    assert lines[0].startswith("| privacy level | photos |") and len(lines) == 7
    assert "table2" not in capsys.readouterr().out


def test_agreement_stands_beside_table_2(tmp_path: Path):
    keys = Taxonomy.default().keys
    lines = [",".join(("annotator", "kind", "image", *keys))]
    for name, kind, first in (("ann", "human", 1), ("bob", "human", 0), ("GPT-5.1", "model", 1)):
        lines.append(",".join((name, kind, "a.jpg", str(first), *["0"] * (len(keys) - 1))))
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    agree(["--answers", str(tmp_path / "a.csv"), "--out", str(tmp_path / "a.json"), "--resamples", "0"])
    main(["--agreement", str(tmp_path / "a.json"), "--out", str(tmp_path / "out")])
    rows = {row[0]: row for row in read(tmp_path / "out" / "table2.csv")}
    assert rows["Human-Human"][1:4] == ["95.5", "87.4", "8.1"]  # 21 of 22
    assert rows["Human-Human, level 1"][1:4] == ["66.7", "84.4", "-17.7"]
    assert rows["Human-Human, level 4"][1:4] == ["100.0", "", ""]
    assert rows["Llama 4-Human"][1:4] == ["", "82.4", ""]
    assert rows["Models-Human, level 2"][1:4] == ["100.0", "78.6", "21.4"]
    assert rows["Models-Human, level 3"][1:4] == ["100.0", "57 to 59", ""]  # a range is no figure to differ from
    assert rows["Models, level 2"][1:4] == ["", "76.9", ""]  # there is one model


# --- All of them, by the commands of docs/paper.md -----------------------------------------------------------------


def judged_by_size(body: dict[str, Any]) -> tuple[str, str]:
    """A score that follows from the photo and the model."""
    digest = hashlib.sha256(json.dumps([body["messages"], body["model"]]).encode()).digest()
    return json.dumps({"score": digest[0] / 255}), "stop"


@pytest.fixture(scope="module")
def inputs(demo: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every other command leaves for ``cprt paper``, on drawings."""
    top = tmp_path_factory.mktemp("inputs")
    data = {"labels": str(demo.test_labels), "images": str(demo.images)}

    def configured(name: str, **content: Any) -> list[str]:
        (top / f"{name}.yaml").write_text(yaml.safe_dump({**data, **content, "out": str(top / name)}))
        return ["--config", str(top / f"{name}.yaml")]

    with Misbehaving(judged_by_size) as server:
        names = ["gemini-3-flash", "sft-qwen3-vl-8b-80-steps", "gemini-3-flash-512px"]
        models = [{"name": name, "model": name, "base_url": server.url} for name in names]
        for row in models[1:]:
            row |= {"prompts": ["taxonomy"]}
        evaluate(configured("runs", models=models, prompt=["zero_shot", "taxonomy"]))
        chosen_by = [str(top / "runs" / f"{name}-taxonomy") for name in names[:2]]
        asked = [str(top / "runs" / f"gemini-3-flash-{prompt}") for prompt in ("zero_shot", "taxonomy")]
        repeated = {"base_url": server.url, "confidence": 1.0, "size": 4, "resamples": 50}
        ask_again(configured("counterfactual", select_by=chosen_by, ask=asked, **repeated))
    learn = [
        "--labels",
        str(demo.train_labels),
        "--out",
        str(top / "boundaries"),
        "--epochs",
        "2",
        "--seeds",
        "2",
        "--settings",
        "false",
    ]
    learn_bands(learn)
    keys = Taxonomy.default().keys
    lines = [",".join(("annotator", "kind", "image", *keys))]
    lines += [f"{name},{kind},a.jpg{',1' * len(keys)}" for name, kind in (("ann", "human"), ("bob", "human"))]
    (top / "a.csv").write_text("\n".join(lines) + "\n")
    agree(["--answers", str(top / "a.csv"), "--out", str(top / "agreement.json"), "--resamples", "0"])
    return {
        "labels": str(demo.test_labels),
        "sft_labels": str(demo.train_labels),
        "agreement": str(top / "agreement.json"),
        "runs": [str(top / "runs")],
        "counterfactual": str(top / "counterfactual"),
        "boundaries": str(top / "boundaries"),
    }


@pytest.fixture(scope="module")
def everything(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper")
    (out / "paper.yaml").write_text(yaml.safe_dump({**inputs, "out": str(out / "out")}))
    main(["--config", str(out / "paper.yaml")])
    return out / "out"


TABLES = {f"table{number}" for number in range(1, 7)} | {"section5.3"}
PICTURES = {f"figure{number}" for number in range(3, 12)}
TEXTS = {f"figure{number}" for number in range(12, 17)}


@pytest.mark.slow
def test_every_table_and_figure_of_the_paper_is_made_and_in_the_index(everything: Path, root: Path):
    for ending in ("csv", "tex", "md"):
        assert {path.name.removesuffix(f".{ending}") for path in everything.glob(f"*.{ending}")} == TABLES | PICTURES
    assert {path.stem for path in everything.glob("*.png")} == PICTURES
    assert {path.stem for path in everything.glob("*.txt")} == TEXTS
    for name in PICTURES:
        with Image.open(everything / f"{name}.png") as picture:
            assert len(picture.convert("RGB").getcolors(1 << 22)) > 20, name
    index = {row.split("|")[1].strip(): row for row in (root / "docs/paper.md").read_text().splitlines() if "|" in row}
    for name in TABLES | PICTURES | TEXTS:
        kind, number = re.fullmatch(r"([a-z]+)([\d.]+)", name).groups()  # type: ignore[union-attr]
        assert f"`{name}`" in index[f"{kind.title()} {number}"]
    options = set(
        re.findall(r"`([a-z_]+)`", " ".join(row.split("|")[4] for row in index.values() if row.count("|") == 5))
    )
    (args,) = parse(PaperArguments, ["--config", str(root / "configs/eval/paper.yaml")])
    inputs = {name for name, value in vars(args).items() if value} - {"out", "skip_missing"}
    assert options - {"decision"} == inputs


@pytest.mark.slow
def test_numbers_behind_the_figures(everything: Path, demo: Any):
    def table(name: str) -> list[dict[str, str]]:
        with open(everything / f"{name}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    score = {row[""]: row for row in table("figure6")}
    assert score["(2, 10, 5, 4), lexicographic score"] == {
        "": "(2, 10, 5, 4), lexicographic score",
        "ours": "989",
        "paper": "989",
        "difference": "0",
    }
    assert score["(1, 10, 0, 0), severity score"]["ours"] == "0.87" and len(score) == 5
    assert score["combinations of counts"]["ours"] == "1320"
    labels = read_labels(demo.train_labels, Taxonomy.default())
    counts = {row[""]: row for row in table("figure7")}
    assert (counts["all"]["SFT"], counts["all"]["SFT paper"]) == (str(len(labels)), "3630")
    assert counts["level 1"]["evaluation paper"] == "2860" and counts["level 1"]["SFT paper"] == ""
    named = sum(label.labels["age"] == 1 for label in labels if label.labels)
    assert counts["age"]["SFT"] == str(named)
    bands = table("figure5")
    assert [row["paper"] for row in bands] == ["0.711", "0.514", "0.292", "0.0"]
    assert float(bands[0]["difference"]) == pytest.approx(float(bands[0]["lower end"]) - 0.711, abs=1e-3)

    evaluated = read_labels(demo.test_labels, Taxonomy.default())
    shown = [
        row for row in table("figure11") if (row["model"], row["prompting"]) == ("Qwen3-VL (8B) (80 steps)", "SFT")
    ]
    assert [int(row["photos"]) for row in shown] == [
        sum(one.level == level for one in evaluated) for level in range(1, 5)
    ]
    confusion = [row for row in table("figure8") if row["prompting"] == "Zero-Shot"]
    assert sum(int(row[f"predicted {level}"]) for row in confusion for level in range(1, 5)) == len(evaluated)
    assert {row["prompting"] for row in table("figure3")} == {"Zero-Shot", "Taxonomy", "SFT"}
    assert {row["prompt"] for row in table("figure4")} == {"zero_shot", "taxonomy"}
    own = [row for row in table("table6") if row["prompting"].startswith("own")]
    assert [(row["prompting"], row["model"]) for row in own] == [("own: taxonomy", "gemini-3-flash-512px-taxonomy")]
    assert own[0]["Pearson paper"] == own[0]["Pearson difference"] == "" != own[0]["MAE"]
    errs = [row for row in table("section5.3") if (row["model"], row["prompting"]) == ("Gemini 3 Flash", "Zero-Shot")]
    assert {row["of"] for row in errs} == {"level", "attributes", "attribute", "pairs within a level"}
    levels = [row for row in errs if row["of"] == "level"]
    assert [int(row["photos"]) for row in levels] == [
        sum(one.level == level for one in evaluated) for level in range(1, 5)
    ]
    assert 0 < float(errs[-1]["p"]) <= 1 and errs[-1]["bias"] != ""
    assert (everything / "figure12.txt").read_text() == as_text(build("zero_shot").messages())


def test_what_is_missing_is_named_with_its_option(tmp_path: Path, capsys):
    main(["--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "not made without --sft_labels: Figure 7" in said
    assert "--runs: Table 3, Table 6, Section 5.3, Figure 3, Figure 8, Figure 9, Figure 10, Figure 11" in said
    assert {path.stem for path in (tmp_path / "out").glob("*.csv")} == {"table4", "table5", "figure6"}


@pytest.mark.parametrize(
    ("option", "file", "complaint"),
    [
        ("counterfactual", "summary.json", "is not what cprt counterfactual writes"),
        ("boundaries", "boundaries.json", "is not what cprt boundaries writes"),
    ],
)
def test_folders_of_something_else_get_one_line(tmp_path: Path, option: str, file: str, complaint: str):
    (tmp_path / file).write_text("{}")
    with pytest.raises(InputError, match=f"{file}: {complaint}"):
        main([f"--{option}", str(tmp_path), "--out", str(tmp_path / "out")])


def test_two_runs_of_one_name_are_refused(tmp_path: Path):
    for folder in ("a", "b"):
        metrics(tmp_path / folder, "gpt-5.2-zero_shot")
    with pytest.raises(InputError, match="a/gpt-5.2-zero_shot has the same name"):
        main(["--runs", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "out")])


def test_runs_are_found_by_themselves_and_in_their_folder(tmp_path: Path, capsys, monkeypatch):
    metrics(tmp_path / "runs", "gpt-5.2-zero_shot", pearson=0.801)
    metrics(tmp_path / "runs", "mine", pearson=0.5)
    made = []
    for number, runs in enumerate((["runs"], ["runs/mine", "runs/gpt-5.2-zero_shot/"])):
        monkeypatch.chdir(tmp_path)
        main(["--runs", *runs, "--out", str(number)])
        made.append((tmp_path / str(number) / "table6.csv").read_text())
        assert "not made of what is given as --runs: Figure 3," in capsys.readouterr().out
    (tmp_path / "0" / "table7.csv").touch()
    monkeypatch.chdir(tmp_path)
    main(["--out", "0"])  # what it is made of is not given any more
    assert {path.stem for path in Path("0").glob("*.csv")} == {"table4", "table5", "figure6", "table7"}
    monkeypatch.chdir(tmp_path / "runs" / "mine")
    main(["--runs", ".", "../gpt-5.2-zero_shot", "--out", "../../2"])
    assert made[0] == made[1] == (tmp_path / "2" / "table6.csv").read_text() and "own: ,mine" in made[0]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="none: holds no predictions.jsonl"):
        main(["--runs", str(tmp_path / "runs"), str(tmp_path / "none"), "--out", str(tmp_path / "out")])


def test_inputs_that_are_not_there_yet_are_left_out_where_that_is_asked_for(tmp_path: Path, capsys):
    metrics(tmp_path / "runs", "gpt-5.2-zero_shot", pearson=0.801)
    given = ["--runs", str(tmp_path / "runs"), str(tmp_path / "later"), "--labels", str(tmp_path / "no.jsonl")]
    given += ["--out", str(tmp_path / "out")]
    write_jsonl(tmp_path / "sft.jsonl", [Label("a", None, dict.fromkeys(Taxonomy.default().keys, 0), 4, 0.0, None)])
    with pytest.raises((InputError, OSError), match=r"no\.jsonl"):
        main(given)
    main([*given, "--skip_missing", "true", "--sft_labels", str(tmp_path / "sft.jsonl")])
    assert read(tmp_path / "out" / "figure7.csv")[0] == ["", "SFT", "SFT paper", "SFT difference"]  # no empty split
    said = capsys.readouterr().out
    assert "not made without --labels: Table 1\n" in said
    for name in ("later", "no.jsonl"):
        assert f"{tmp_path / name}: is not there yet; docs/paper.md says which command makes it\n" in said
    assert ",0.801," in (tmp_path / "out" / "table6.csv").read_text()


def test_the_configuration_runs_before_any_input_is_there(root: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["--config", str(root / "configs" / "eval" / "paper.yaml")])
    assert capsys.readouterr().out.count("is not there yet") == 7
    assert (tmp_path / "outputs" / "paper" / "table4.csv").is_file()


def test_a_run_over_other_photos_stands_in_no_table(tmp_path: Path):
    """With the labels, a run must be over all of them; a file of predictions is measured on them."""
    labels = make_labels(6)
    write_folder(tmp_path / "gpt-5.2-zero_shot", labels[:2], judge(labels, 0.1)[:2])  # its labels are these two
    write_jsonl(tmp_path / "all.jsonl", labels)
    write_jsonl(tmp_path / "theirs.jsonl", judge(labels, 0.1))
    given = ["--labels", str(tmp_path / "all.jsonl"), "--out", str(tmp_path / "out"), "--runs"]
    with pytest.raises(InputError, match=r"run.json: was made on other labels than .*all.jsonl"):
        main([*given, str(tmp_path / "gpt-5.2-zero_shot")])
    main([*given, str(tmp_path / "theirs.jsonl")])
    assert read(tmp_path / "out" / "table6.csv")[-1][:4] == ["own: ", "theirs", "6", "1.0"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[1]", "must be a mapping"),
        ("Zero-Shot / Pears: x", "field 'Zero-Shot / Pears': is no row of Table 6"),
        ("Zero-Shot / GPT-5.2: x", "rows.yaml: field 'Zero-Shot / GPT-5.2': 'x' is no run, or that of a row above"),
        (
            "Zero-Shot / GPT-5.2: mine\nTaxonomy / GPT-5.2: mine",
            "field 'Taxonomy / GPT-5.2': 'mine' is no run, or that of a row above",
        ),
    ],
)
def test_rows_that_are_none_get_one_line(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "rows.yaml").write_text(content)
    metrics(tmp_path, "mine")
    with pytest.raises(InputError, match=complaint):
        main(["--runs", str(tmp_path), "--rows", str(tmp_path / "rows.yaml"), "--out", str(tmp_path / "out")])
