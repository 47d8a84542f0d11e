"""``cprt paper``: our figures beside the paper's in three formats, and the transcription itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cprt import paper
from cprt.errors import InputError
from cprt.metrics.results import to_json
from cprt.records import Label, write_jsonl
from cprt.taxonomy import Taxonomy
from eval.metrics import measure
from eval.paper import main

FIGURES = ("pearson", "spearman", "mae", "bias", "level_accuracy", "inter_level_accuracy", "intra_level_accuracy")


def read(path: Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def metrics(folder: Path, run: str, **figures: float) -> None:
    (folder / run).mkdir(parents=True)
    nothing = to_json(measure([], [], Taxonomy.default(), "x"))
    content = {**nothing, **figures, "coverage": 1.0, "ci": {name: [0.1, 0.9] for name in FIGURES}}
    (folder / run / "metrics.json").write_text(json.dumps(content))


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
    options = ["--labels", str(tmp_path / "labels.jsonl"), "--runs", str(runs), "--rows", str(tmp_path / "rows.yaml")]
    main([*options, "--out", str(tmp_path / "out")])

    table1 = read(tmp_path / "out" / "table1.csv")
    assert table1[1] == ["Level 1", "3", "50.0", "2860", "42.5", "-2857"] and table1[-1][:2] == ["Total", "6"]
    table6 = read(tmp_path / "out" / "table6.csv")
    assert len(table6) == 30
    rows = {(row[0], row[1]): dict(zip(table6[0], row, strict=True)) for row in table6[1:]}
    gpt = rows["Zero-Shot", "GPT-5.2"]
    assert (gpt["Pearson"], gpt["Pearson paper"], gpt["Pearson difference"]) == ("0.801", "0.77", "0.031")
    assert (gpt["Pearson low"], gpt["Pearson high"], gpt["MAE difference"]) == ("0.1", "0.9", "-0.025")
    assert gpt["Inter-Acc paper"] == "0.884" and "Inter-Acc difference" not in gpt  # another protocol
    assert rows["SFT", "Qwen3-VL (2B) (80 steps)"]["Spearman difference"] == "0.376"
    untouched = rows["Taxonomy", "Pixtral (12B)"]
    assert untouched["Pearson"] == untouched["Pearson difference"] == "" and untouched["Pearson paper"] == "0.616"
    assert len(read(tmp_path / "out" / "table3.csv")) == 26

    table5 = read(tmp_path / "out" / "table5.csv")
    assert [row[2] for row in table5[1:]] == list(Taxonomy.default().keys)
    assert len(read(tmp_path / "out" / "table4.csv")) == 1 + 14
    tex = (tmp_path / "out" / "table6.tex").read_text()
    assert (
        tex.count("\\\\\n") == 30 and "\\toprule" in tex and "GPT-5.2 & 1.0 & 0.801 & 0.1 & 0.9 & 0.77 & 0.031" in tex
    )
    assert "Non-Unique Identifiers" in (tmp_path / "out" / "table4.tex").read_text()
    assert "§" not in (tmp_path / "out" / "table4.tex").read_text()
    lines = (tmp_path / "out" / "table1.md").read_text().splitlines()
    assert lines[0].startswith("| privacy level | photos |") and len(lines) == 7
    assert "table2" not in capsys.readouterr().out


def test_agreement_stands_beside_table_2(tmp_path: Path):
    from eval.agreement.run import main as agreement

    keys = Taxonomy.default().keys
    lines = [",".join(("annotator", "kind", "image", *keys))]
    for name, kind, first in (("ann", "human", 1), ("bob", "human", 0), ("GPT-5.1", "model", 1)):
        lines.append(",".join((name, kind, "a.jpg", str(first), *["0"] * (len(keys) - 1))))
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    agreement(["--answers", str(tmp_path / "a.csv"), "--out", str(tmp_path / "a.json"), "--resamples", "0"])
    main(["--agreement", str(tmp_path / "a.json"), "--out", str(tmp_path / "out")])
    rows = {row[0]: row for row in read(tmp_path / "out" / "table2.csv")}
    assert rows["Human-Human"][1:4] == ["95.5", "87.4", "8.1"]  # 21 of 22
    assert rows["Human-Human, level 1"][1:4] == ["66.7", "84.4", "-17.7"]
    assert rows["Human-Human, level 4"][1:4] == ["100.0", "", ""]
    assert rows["Llama 4-Human"][1:4] == ["", "82.4", ""]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("[1]", "must be a mapping"), ("Zero-Shot / Pears: x", "field 'Zero-Shot / Pears': is no row of Table 6")],
)
def test_rows_that_are_none_get_one_line(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "rows.yaml").write_text(content)
    with pytest.raises(InputError, match=complaint):
        main(["--runs", str(tmp_path), "--rows", str(tmp_path / "rows.yaml"), "--out", str(tmp_path / "out")])
