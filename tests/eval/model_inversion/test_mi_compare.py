"""``cprt mi-compare`` from a YAML list and from ``cprt mi``'s folders: the table, what follows from it, the page."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from wandb_file import find_run, read_run, read_table

from cprt.errors import InputError
from eval.model_inversion.compare.run import main
from eval.model_inversion.metrics import run as metrics

HOSTILE = '</script><img src=x onerror=alert(1)>"'


def write_csv(path: Path, header: str, rows: list[tuple[str, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)
    return path


class Setup:
    """One set-up of ``size`` reconstructions in five classes, files alike in all of them."""

    def __init__(self, name: str, leak: float, accepted: float, size: int = 200):
        rng = random.Random(name)
        self.name, self.id = name, name.lower().replace("/", "_")
        self.keys = [(str(i % 5), f"ID={i // 5}_CT=0.9.png") for i in range(size)]
        self.truth = [rng.random() < leak for _ in self.keys]
        self.accepted = [rng.random() < accepted for _ in self.keys]

    def standard(self, path: Path) -> Path:
        rows = [
            (f"{claims}/{file}", "yes" if e else "no")
            for (claims, file), e in zip(self.keys, self.accepted, strict=True)
        ]
        return write_csv(path, "filename,prediction", rows)

    def labels(self, judge: str, noise: float) -> list[str]:
        rng = random.Random(f"{self.name} {judge}")
        return ["refused" if rng.random() < 0.03 else "yes" if t ^ (rng.random() < noise) else "no" for t in self.truth]

    def judge(self, path: Path, judge: str, noise: float = 0.1) -> Path:
        rows = [
            (file, claims, HOSTILE if label == "no" else "", label)
            for (claims, file), label in zip(self.keys, self.labels(judge, noise), strict=True)
        ]
        return write_csv(path, "filename,class,response,label", rows)


SETUPS = [
    Setup("CelebA/KEDMI/CelebA/FaceNet64", 0.65, 0.8),
    Setup("CelebA/PPA/FFHQ/ResNet18", 0.3, 0.9),
    Setup("CIFAR/IFGMI/CIFAR/VGG16", 0.5, 0.4),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of ``cprt mi`` that differ in n, two judges each, as it leaves them, and E's verdicts."""
    root = tmp_path_factory.mktemp("mi")
    for setup in SETUPS:
        setup.standard(root / "standard" / setup.id / "prediction.csv")
        for out in ("n4", "n1"):
            for judge, noise in (("gemini", 0.05), ("qwen", 0.2)):
                folder = root / out / judge / setup.id
                setup.judge(folder / "judge.csv", f"{out} {judge}", noise)
                write_csv(
                    folder / "controls.csv",
                    "kind,filename,class,response,label",
                    [
                        (kind, f"1/{i}.jpg", "1", "", "yes" if (i < 19) == (kind == "positive") else "no")
                        for kind in ("positive", "negative")
                        for i in range(20)
                    ]
                    if judge == "gemini"
                    else [],
                )
    models = [{"name": name, "model": f"served/{name}", "concurrency": 4} for name in ("gemini", "qwen")]
    for out, n in (("n4", 4), ("n1", 1)):
        config = {"n": n, "layout": "panel", "order_seed": None, "seed": 0, "models": models}
        (root / out / "run.json").write_text(json.dumps({"config": config}))
        (root / out / "setups.json").write_text(json.dumps([{"id": s.id, "name": s.name} for s in SETUPS]))
    return root


def compare(out: Path, *options: str) -> dict[str, Any]:
    main(["--out", str(out), *([] if "--resamples" in options else ["--resamples", "300"]), *options])
    return json.loads((out / "compare.json").read_text())


@pytest.fixture(scope="module")
def both(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("both")
    standard = str(folders / "standard")
    return out, compare(out, "--runs", str(folders / "n4"), str(folders / "n1"), "--standard", standard)


def test_every_row_is_what_mi_metrics_gives(both: tuple[Path, dict[str, Any]], folders: Path, tmp_path: Path):
    out, result = both
    assert result["setups"] == sorted((setup.name for setup in SETUPS), key=lambda name: name.lower())
    assert result["judges"] == ["n4/gemini", "n4/qwen", "n1/gemini", "n1/qwen"]
    assert len(result["rows"]) == 12 and [row["setup"] for row in result["rows"][:4]] == [result["setups"][0]] * 4
    (row,) = [row for row in result["rows"] if row["setup"] == SETUPS[0].name and row["judge"] == "n1/gemini"]
    folder = folders / "n1" / "gemini" / SETUPS[0].id
    metrics.main(
        [
            "--judge",
            str(folder / "judge.csv"),
            "--controls",
            str(folder / "controls.csv"),
            "--standard",
            str(folders / "standard" / SETUPS[0].id / "prediction.csv"),
            "--out",
            str(tmp_path / "m.json"),
            "--resamples",
            "300",
        ]
    )
    alone = json.loads((tmp_path / "m.json").read_text())
    assert {key: row[key] for key in alone} == alone and alone["control_hit_rate"] == 0.95
    assert (row["n"], row["references"], row["order"], row["layout"]) == (200, 1, None, "panel")

    with open(out / "compare.csv", newline="") as file:
        (line,) = [
            line for line in csv.DictReader(file) if line["setup"] == row["setup"] and line["judge"] == "n1/gemini"
        ]
    assert (line["n"], line["references"]) == ("200", "1")
    assert float(line["fpr"]) == row["fpr"] and float(line["fpr_high"]) == row["ci"]["fpr"][1]
    assert int(line["fp"]) == row["fp"] and line["type_i_transfer"] == ""
    for name in ("refusal_rate", "control_hit_rate", "control_false_alarm_rate"):
        assert float(line[name]) == row[name] and float(line[f"{name}_low"]) == row["ci"][name][0]
    record = json.loads((out / "run.json").read_text())
    assert record["inputs"][f"{row['setup']}, n1/gemini: standard"]["sha256"]


def test_rankings_against_scipy(both: tuple[Path, dict[str, Any]]):
    _, result = both
    for judge, found in result["rankings"].items():
        rows = [row for row in result["rows"] if row["judge"] == judge]
        e, j = ([row[f"accuracy_{of}"] for row in rows] for of in ("standard", "judge"))
        assert found["tau"] == pytest.approx(stats.kendalltau(e, j).statistic)
        swapped = {
            frozenset((a["setup"], b["setup"]))
            for a in rows
            for b in rows
            if a["accuracy_standard"] > b["accuracy_standard"] and a["accuracy_judge"] < b["accuracy_judge"]
        }
        assert {frozenset((s["higher_under_standard"], s["higher_under_judge"])) for s in found["swaps"]} == swapped
        assert swapped
        for swap in found["swaps"]:
            assert swap["accuracy_standard"][0] > swap["accuracy_standard"][1]
            assert swap["accuracy_judge"][0] < swap["accuracy_judge"][1]


def test_agreement_of_judges_against_scikit_learn(both: tuple[Path, dict[str, Any]]):
    _, result = both
    assert len(result["agreement"]) == 6 * (1 + len(SETUPS))
    for place in (None, SETUPS[1].name):
        (row,) = [
            row for row in result["agreement"] if row["setup"] == place and row["judges"] == ["n4/gemini", "n4/qwen"]
        ]
        pairs = [
            pair
            for setup in SETUPS
            if place in (None, setup.name)
            for pair in zip(setup.labels("n4 gemini", 0.05), setup.labels("n4 qwen", 0.2), strict=True)
            if set(pair) <= {"yes", "no"}
        ]
        assert row["n"] == len(pairs) and row["kappa"] == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)))
        low, high = row["ci"]["kappa"]
        assert low < row["kappa"] < high


def test_runs_that_differ_in_n_alone_show_its_effect(both: tuple[Path, dict[str, Any]]):
    _, result = both
    assert {(row["setting"], *row["judges"], row["from"], row["to"]) for row in result["effects"]} == {
        ("n", "n1/gemini", "n4/gemini", 1, 4),
        ("n", "n1/qwen", "n4/qwen", 1, 4),
    }
    (row,) = [row for row in result["effects"] if row["setup"] is None and row["judges"][0] == "n1/qwen"]
    pairs = [
        pair
        for setup in SETUPS
        for pair in zip(setup.labels("n1 qwen", 0.2), setup.labels("n4 qwen", 0.2), strict=True)
        if "refused" not in pair
    ]
    assert (row["n"], row["left_out"]) == (len(pairs), 600 - len(pairs)) and 0 < row["left_out"] < 60
    assert row["changed"] == pytest.approx(sum(a != b for a, b in pairs) / len(pairs))
    yes = [sum(label == "yes" for label in side) / len(pairs) for side in zip(*pairs, strict=True)]
    assert [row["accuracy_judge_from"], row["accuracy_judge_to"]] == pytest.approx(yes)
    assert row["ci"]["difference"][0] < row["difference"] < row["ci"]["difference"][1]


@pytest.mark.parametrize(
    ("change", "effects"),
    [
        ({}, 1),
        ({"seed": 1}, 0),
        ({"layout": "separate"}, 0),
        ({"n": 4}, 0),
        ({"n": 4, "layout": "separate"}, 1),
        ({"models": [{"name": "qwen", "model": "served/qwen", "revision": "new"}]}, 0),
        ({"models": [{"name": "qwen", "model": "served/qwen", "concurrency": 99}]}, 1),
    ],
)
def test_only_runs_that_differ_in_one_setting_alone_show_its_effect(
    folders: Path, tmp_path: Path, change: dict[str, Any], effects: int
):
    """Another seed draws other references and another revision is another judge; more questions in flight are not."""
    SETUPS[0].judge(tmp_path / "other" / "qwen" / SETUPS[0].id / "judge.csv", "other")
    for name in ("run.json", "setups.json"):
        content = json.loads((folders / "n1" / name).read_text())
        if name == "run.json":
            content["config"] |= change
        (tmp_path / "other" / name).write_text(json.dumps(content))
    result = compare(
        tmp_path / "out",
        "--resamples",
        "0",
        "--runs",
        str(folders / "n4"),
        str(tmp_path / "other"),
        "--standard",
        str(folders / "standard"),
    )
    assert len(result["effects"]) == effects


def listed(page: str, id: str = "list") -> list[dict[str, Any]]:
    """The rows of a list of the page by its columns' heads: what the script shows as text, places of pictures."""
    (heads,) = re.findall(rf'<table class="list" id="{id}".*?<tr>(.*?)</tr>', page, re.DOTALL)
    names = [html.unescape(name) for name in re.findall(r"<th[^>]*>(.*?)</th>", heads)]
    (data,) = re.findall(rf'<script type="application/json" id="{id}-rows">(.*?)</script>', page)
    return [dict(zip(names, map(shown, row), strict=True)) for row in json.loads(data)]


def shown(cell: Any) -> Any:
    if not isinstance(cell, dict):
        return cell
    parts = [part for line in cell["lines"] for part in line]
    return " ".join(part if isinstance(part, str) else part[0] for part in parts)


def pictures_in(page: str) -> list[str]:
    return json.loads(re.findall(r'id="pictures">(.*?)</script>', page)[0])


def test_the_page_lists_every_false_positive_and_loads_nothing(both: tuple[Path, dict[str, Any]]):
    out, result = both
    page = (out / "compare.html").read_text()
    rows = listed(page)
    assert len(rows) == sum(row["fp"] for row in result["rows"]) > 500
    expected = sorted(
        (setup.name, f"{run}/{judge}", claims, file)
        for setup in SETUPS
        for run in ("n4", "n1")
        for judge, noise in (("gemini", 0.05), ("qwen", 0.2))
        for (claims, file), label, e in zip(
            setup.keys, setup.labels(f"{run} {judge}", noise), setup.accepted, strict=True
        )
        if label == "no" and e
    )
    assert sorted((row["Set-up"], row["Judge"], row["Class"], row["File"]) for row in rows) == expected
    assert rows[0]["What the judge said"] == HOSTILE and rows[0]["E's confidence"] is None
    with open(out / "false_positives.csv", newline="") as file:
        assert sorted(tuple(row.values())[:4] for row in csv.DictReader(file)) == expected
    assert pictures_in(page) == [] and "Reconstruction" not in rows[0]
    assert "<img src=x" not in page and "http:" not in page and "https:" not in page
    assert sum("json" not in tag for tag in re.findall(r"<script[^>]*>", page)) == 1
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy


def test_the_page_holds_every_figure_with_its_interval_and_what_controls_and_refusals_say(both):
    out, result = both
    rows = listed((out / "compare.html").read_text(), "setups")
    assert len(rows) == len(result["rows"])
    for row, known in zip(rows, result["rows"], strict=True):
        assert (row["Set-up"], row["Judge"]) == (known["setup"], known["judge"])
        assert row["n"] == (f"{known['n']} TP {known['tp']} · FP {known['fp']} FN {known['fn']} · TN {known['tn']}")
        low, high = known["ci"]["fpr"]
        corrected = ""
        if known["fpr_corrected"] is not None:
            bounds = " to ".join(f"{100 * bound:.2f}" for bound in known["ci"]["fpr_corrected"] or [])
            corrected = f" corrected {100 * known['fpr_corrected']:.2f}% {bounds}".rstrip()
        assert row["FPR"] == f"{100 * known['fpr']:.2f}% {100 * low:.2f} to {100 * high:.2f}{corrected}"
        low, high = known["ci"]["kappa"]
        assert row["Kappa"] == f"{known['kappa']:.3f} {low:.3f} to {high:.3f}".replace("-", "−")
        if known["controls"] is None:
            assert row["Controls"] is None and row["Corrected by controls"] == "–"
        else:
            assert row["Controls"].startswith("hit 95.00% ") and " alarm 5.00% " in row["Controls"]
        refused = known["judge_labels"]["refused"]
        low, high = known["ci"]["refusal_rate"]
        share = f" {100 * refused / known['n']:.2f}% {100 * low:.2f} to {100 * high:.2f}" if refused else ""
        assert row["No verdict"].startswith(f"{refused} refused{share}")
    assert listed((out / "compare.html").read_text(), "agreement")[0]["Set-up"] == "all set-ups"
    effects = listed((out / "compare.html").read_text(), "effects")
    assert effects[0]["Setting"] == "n 1 to 4" and effects[0]["Judges"] == "n1/gemini to n4/gemini"


def test_names_from_outside_are_escaped(tmp_path: Path):
    setup = SETUPS[0]
    setup.standard(tmp_path / "e.csv")
    setup.judge(tmp_path / "j.csv", "x")
    listing = [{"name": f"<b>{HOSTILE}", "standard": "e.csv", "judges": {f"$x_{HOSTILE}": "j.csv", "_plain": "j.csv"}}]
    (tmp_path / "list.yaml").write_text(json.dumps(listing))
    result = compare(tmp_path / "out", "--setups", str(tmp_path / "list.yaml"))
    page = (tmp_path / "out" / "compare.html").read_text()
    assert result["setups"] == [f"<b>{HOSTILE}"] and "<b>" + HOSTILE not in page and "<img src=x" not in page
    assert listed(page, "setups")[0]["Set-up"] == f"<b>{HOSTILE}"
    with Image.open(tmp_path / "out" / "compare.png") as chart:
        assert chart.width > 800


def test_what_an_earlier_run_left_is_noted_and_left_out(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Set-ups and judges that setups.json and run.json do not know: nobody knows how those were asked."""
    run = Path(shutil.copytree(folders / "n4", tmp_path / "run"))
    one, two, _ = SETUPS
    (run / "setups.json").write_text(json.dumps([{"id": s.id, "name": s.name, "private": "x"} for s in (one, two)]))
    record = json.loads((run / "run.json").read_text())
    record["config"]["models"].pop(0)
    (run / "run.json").write_text(json.dumps(record))
    found = compare(tmp_path / "out", "--runs", str(run), "--standard", str(folders / "standard"))
    assert [(row["setup"], row["judge"]) for row in found["rows"]] == [(one.name, "qwen"), (two.name, "qwen")]
    said = capsys.readouterr().out
    assert said.count("is of an earlier run") == 4 and f"note: {run}/gemini/{one.id}/judge.csv is of an earlier" in said


def test_setups_of_the_same_private_data_share_classes_however_that_is_said(folders: Path, tmp_path: Path):
    """In setups.json, in the YAML, or by the first part of the name."""
    one, two = SETUPS[0], SETUPS[2]
    run, out, total = tmp_path / "run", tmp_path / "out", {}
    for setup in (one, two):
        for judge in ("gemini", "qwen"):
            setup.judge(run / judge / setup.id / "judge.csv", f"n4 {judge}")
    for private in (None, "faces"):
        rows = [{"id": s.id, "name": s.name, "private": private} for s in (one, two)]
        (run / "setups.json").write_text(json.dumps(rows))
        found = compare(out, "--runs", str(run), "--standard", str(folders / "standard"))
        total[private] = found["agreement"][0]
        files = [{judge: f"{run}/{judge}/{s.id}/judge.csv" for judge in ("gemini", "qwen")} for s in (one, two)]
        listed = [
            {"name": s.name, "standard": f"{folders}/standard/{s.id}/prediction.csv", "judges": judges}
            for s, judges in zip((one, two), files, strict=True)
        ]
        (tmp_path / "list.yaml").write_text(
            json.dumps([row | ({"private": private} if private else {}) for row in listed])
        )
        assert compare(out, "--setups", str(tmp_path / "list.yaml"))["agreement"] == found["agreement"]
    assert total[None]["setup"] is None and total[None]["kappa"] == total["faces"]["kappa"]
    assert total[None]["ci"] != total["faces"]["ci"]  # of twice as many classes


def listing(folder: Path, text: str) -> str:
    setup = SETUPS[0]
    setup.standard(folder / "e.csv")
    for name in ("a", "b", "c"):
        setup.judge(folder / f"{name}.csv", name)
    (folder / "list.yaml").write_text(text)
    return str(folder / "list.yaml")


def test_a_yaml_list_with_given_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_csv(tmp_path / "t.csv", "filename,prediction", [(f"{c}/{f}", "yes") for c, f in SETUPS[0].keys])
    write_csv(tmp_path / "n.csv", "filename,prediction", [(f"{i}.png", "yes" if i < 3 else "no") for i in range(60)])
    file = listing(
        tmp_path,
        """
- name: one
  standard: e.csv
  target: t.csv
  naturals: n.csv
  judges:
    four: {file: a.csv, model: vlm, n: 4, order: 1}
    two: {file: b.csv, model: vlm, n: 2, order: 1}
    other order: {file: c.csv, model: vlm, n: 4, order: 2}
    third: c.csv
- {name: two, standard: e.csv, judge: a.csv}
""",
    )
    result = compare(tmp_path / "out", "--setups", file)
    assert [(row["setup"], row["judge"], row["order"]) for row in result["rows"]] == [
        ("one", "four", 1),
        ("one", "two", 1),
        ("one", "other order", 2),
        ("one", "third", None),
        ("two", "judge", None),
    ]
    effects = {(row["setting"], *row["judges"], row["setup"]) for row in result["effects"]}
    assert effects == {("n", "two", "four", "one"), ("order", "four", "other order", "one")}
    first = result["rows"][0]
    assert first["type_i"] == first["tn"] + first["fp"] and first["type_i_transfer"] == pytest.approx(first["fpr"])
    assert first["natural_rate"] == 0.05 and result["rows"][4]["natural_rate"] is None
    printed = capsys.readouterr().out
    assert "n 2 to 4, two, one: accuracy" in printed and "four and two: kappa" in printed
    assert "four: " in printed and "refused are not in FPR" in printed


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{name: one}", r"list.yaml: must be a YAML list of set-ups"),
        ("[]", r"list.yaml: must be a YAML list"),
        ("- [", r"list.yaml:\d: not valid YAML"),
        ("- one", r"list.yaml:1: must be a mapping of name, standard"),
        ("- {standard: e.csv, judge: a.csv}", r"list.yaml:1: field 'name': is missing"),
        ("\n- {name: one, judge: a.csv}", r"list.yaml:2: field 'standard': is missing"),
        ("- {name: one, standard: e.csv}", r"field 'judge': give either judge or judges"),
        ("- {name: one, standard: x.csv, judge: a.csv}", r"list.yaml:1: field 'standard': there is no file .*x.csv"),
        ("- {name: one, standard: e.csv, judge: 3}", r"field 'judge': 3 is not a text or null"),
        ("- {name: one, standard: e.csv, judges: [a.csv]}", r"field 'judges': \['a.csv'\] is not a mapping"),
        ("- {name: one, standard: e.csv, judges: {x: {file: a.csv, m: 4}}}", r"field 'judges.x.m': unknown field"),
        ("- {name: one, standard: e.csv, judge: a.csv, colour: red}", r"field 'colour': unknown field"),
        ("- {name: one, standard: e.csv, judges: {x: a.csv}, controls: c.csv}", r"'controls': with several judges"),
        ("- &x {name: one, standard: e.csv, judge: a.csv}\n- *x", r"list.yaml:1: field 'name': 'one' is there already"),
        ("- {name: one, standard: a.csv, judge: a.csv}", r"a.csv:1: field 'prediction': is missing"),
    ],
)
def test_a_bad_list_is_refused_with_line_and_field(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError, match=complaint) as caught:
        compare(tmp_path / "out", "--setups", listing(tmp_path, text))
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_further_models_stand_in_the_cell_of_the_transfer_with_their_own_naturals(folders: Path, tmp_path: Path):
    for setup in SETUPS[:1]:
        for name, share in (("of_e", 5), ("of_other", 10)):
            rows = [(f"{i}.png", "yes" if i < share else "no") for i in range(40)]
            write_csv(tmp_path / name / setup.id / "prediction.csv", "filename,prediction", rows)
    standard = str(folders / "standard")
    words = ["--runs", str(folders / "n1"), "--standard", standard, "--target", standard, "--others", f"Net={standard}"]
    words += ["--naturals", str(tmp_path / "of_e"), "--naturals_others", f"Net={tmp_path / 'of_other'}"]
    result = compare(tmp_path / "out", *words)
    rows = {(row["setup"], row["judge"]): row for row in result["rows"]}
    row = rows[SETUPS[0].name, "gemini"]
    assert (row["natural_rate"], row["type_i_transfer_to"]["Net"]["natural_rate"]) == (0.125, 0.25)
    assert row["type_i_transfer_to"]["Net"]["transfer"] == row["type_i_transfer"] == 1.0
    assert rows[SETUPS[1].name, "gemini"]["type_i_transfer_to"]["Net"]["natural_rate"] is None
    (shown, *_) = [
        line["Type-I transfer"]
        for line in listed((tmp_path / "out" / "compare.html").read_text(), "setups")
        if line["Set-up"] == SETUPS[0].name
    ]
    assert re.fullmatch(r"100.00% .* naturals 12.50% .* to Net 100.00% .* naturals 25.00% .*", shown)


def test_options_that_do_not_fit_are_refused(folders: Path, tmp_path: Path):
    run, standard = str(folders / "n4"), str(folders / "standard")
    for options, complaint in (
        ([], "needs either --setups or --runs"),
        (["--runs", run], "runs need --standard"),
        (["--runs", run, "--standard", str(tmp_path)], r"prediction.csv: no such file, and .*judge.csv needs it"),
        (["--runs", run, run, "--standard", standard], "runs: a folder is there twice"),
        (["--runs", standard, "--standard", standard], "has no JUDGE/SETUP/judge.csv"),
        (["--setups", "x.yaml", "--standard", standard], "--standard goes with --runs"),
        (["--runs", run, "--standard", standard, "--images", run], "--images is for --thumbnails true"),
        (["--runs", run, "--standard", standard, "--thumbnails", "true"], "thumbnails need --images"),
        (["--setups", str(tmp_path / "none.yaml")], "none.yaml: No such file"),
    ):
        with pytest.raises(InputError, match=complaint):
            compare(tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_pictures_are_in_the_page_only_on_request_and_only_from_the_folder(tmp_path: Path):
    outside = tmp_path / "secret.png"
    Image.new("RGB", (300, 200), "red").save(outside)
    folder = tmp_path / "images" / "S" / "all-images" / "1"
    folder.mkdir(parents=True)
    Image.new("RGB", (300, 200), "blue").save(folder / "a.png")
    (folder / "broken.png").write_bytes(b"no image")
    (folder / "link.png").symlink_to(outside)
    names = ["a.png", "broken.png", "link.png", "gone.png", "x" * 300 + ".png"]
    rows = [(name, "1", "No", "no") for name in names] + [("secret.png", "../../..", "No", "no")]
    write_csv(tmp_path / "j.csv", "filename,class,response,label", rows)
    write_csv(tmp_path / "e.csv", "filename,class,prediction", [(row[0], row[1], "yes") for row in rows])
    (tmp_path / "list.yaml").write_text("- {name: S, standard: e.csv, judge: j.csv}")
    options = ("--setups", str(tmp_path / "list.yaml"))
    compare(tmp_path / "out", *options)
    page = (tmp_path / "out" / "compare.html").read_text()
    assert pictures_in(page) == [] and "data:image/jpeg" not in page and "private pictures" not in page

    compare(tmp_path / "out", *options, "--thumbnails", "true", "--images", str(tmp_path / "images"))
    page = (tmp_path / "out" / "compare.html").read_text()
    found = {row["File"]: row["Reconstruction"] for row in listed(page)}
    assert found == dict.fromkeys((*names, "secret.png")) | {"a.png": 0}
    (picture,) = pictures_in(page)
    assert "This page holds private pictures" in page
    with Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))) as image:
        assert image.size == (160, 107) and image.getpixel((40, 30))[2] > 200
    (tmp_path / "list.yaml").write_text("- {name: S, standard: e.csv, judge: j.csv, images: images/S/all-images}")
    compare(tmp_path / "out", *options, "--thumbnails", "true")
    assert len(pictures_in((tmp_path / "out" / "compare.html").read_text())) == 1


def test_references_and_confidence_stand_beside_a_reconstruction(tmp_path: Path):
    """Those that the judge was shown, in their order, where its folder says so; else the first four of the class."""
    root, out = tmp_path / "AttackSamples", tmp_path / "mi"
    colors = {f"{i}.png": (40 * i, 0, 0) for i in range(6)}
    for private in (root / "P" / "private-data" / "7", root / "Q" / "A" / "B" / "C" / "private-data" / "7"):
        private.mkdir(parents=True)
        for name, color in colors.items():
            Image.new("RGB", (32, 32), color).save(private / name)
        (private / "notes.txt").write_text("no image")
    (root / "P" / "private-data" / "7" / "away.png").symlink_to(tmp_path / "list.yaml")
    names = {"P/A/B/C": "p_a_b_c", "Q/A/B/C": "q_a_b_c"}
    for name, id in names.items():
        images = root / name / "all-images" / "7"
        images.mkdir(parents=True)
        Image.new("RGB", (32, 32), "blue").save(images / "x.png")
        write_csv(out / "judge" / id / "judge.csv", "filename,class,response,label", [("x.png", "7", "No", "no")])
        rows = [("x.png", "7", "yes", "0.98765")]
        write_csv(tmp_path / "e" / id / "prediction.csv", "filename,class,prediction,confidence", rows)
    (out / "setups.json").write_text(json.dumps([{"id": id, "name": name} for name, id in names.items()]))
    query = {"setup": "p_a_b_c", "kind": "reconstruction", "class": "7", "file": "x.png"}
    query["references"] = ["P/private-data/7/5.png", "P/private-data/7/2.png", "P/private-data/7/gone.png"]
    (out / "queries.jsonl").write_text(json.dumps(query) + "\n")
    options = ("--runs", str(out), "--standard", str(tmp_path / "e"), "--thumbnails", "true", "--images", str(root))
    compare(tmp_path / "out", *options)
    page = (tmp_path / "out" / "compare.html").read_text()
    first, second = listed(page)
    reds = []
    for picture in pictures_in(page):
        with Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))) as image:
            red, _, blue = image.getpixel((16, 16))
            reds.append("reconstruction" if blue > 200 else round(red / 40))
    assert first["E's confidence"] == "0.988" and reds[first["Reconstruction"]] == "reconstruction"
    assert [reds[place] for place in first["References"]] == [5, 2]
    assert [reds[place] for place in second["References"]] == [0, 1, 2, 3]


def test_a_cell_that_looks_like_a_formula_is_not_one(tmp_path: Path):
    write_csv(tmp_path / "j.csv", "filename,class,response,label", [("a.png", "1", "=cmd|'/c calc'!A1", "no")])
    write_csv(tmp_path / "e.csv", "filename,class,prediction", [("a.png", "1", "yes")])
    (tmp_path / "list.yaml").write_text("- {name: S, standard: e.csv, judge: j.csv}")
    compare(tmp_path / "out", "--setups", str(tmp_path / "list.yaml"))
    with open(tmp_path / "out" / "false_positives.csv", newline="") as file:
        assert next(csv.DictReader(file))["response"] == "'=cmd|'/c calc'!A1"


def test_the_table_is_logged_offline_when_asked(tmp_path: Path):
    file = listing(tmp_path, "- {name: one, standard: e.csv, judges: {a: a.csv, b: b.csv}}")
    result = compare(tmp_path / "quiet", "--setups", file)
    assert not (tmp_path / "quiet" / "wandb").exists()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    command = [
        sys.executable,
        "-m",
        "eval.model_inversion.compare.run",
        "--setups",
        file,
        "--out",
        str(tmp_path / "out"),
    ]
    subprocess.run([*command, "--wandb", "true"], check=True, env=environment)
    path = find_run(tmp_path / "out")
    run = read_run(path)
    assert (run.project, run.name) == ("cprt", "mi-compare out")
    logged = read_table(path, run.history[-1]["mi_compare"])
    rows = [dict(zip(logged["columns"], cells, strict=True)) for cells in logged["data"]]
    assert [(row["judge"], row["fpr"], row["type_i_transfer"]) for row in rows] == [
        (row["judge"], row["fpr"], None) for row in result["rows"]
    ]
    assert str(tmp_path).encode() not in path.read_bytes()  # nothing of where the private pictures lie
