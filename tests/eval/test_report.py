"""The report page: the paper's rows, the figures' bins, what is listed, and that nothing from a file is ever markup."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import TAXONOMY, judge, make_labels
from PIL import Image

from cprt.pages.render import figure, interval, isolated, script_json
from cprt.pages.thumbnails import thumbnails_in
from cprt.paper import table6
from cprt.records import Label, Prediction
from cprt.scoring import severity
from eval.calibrated import calibrated
from eval.measures import measure
from eval.report.page import write_report
from eval.report.rows import (
    few_scores,
    judged,
    largest_errors,
    provenance,
    reliability,
    response_of,
    results_table,
    without_score,
)
from eval.runs import EvaluatedRun
from eval.tables import latex, markdown

HOSTILE = "</script><img src=x onerror=\"document.title='hacked'\">'&\"\u202e\x07$x^2$\ud800"


class Parsed(HTMLParser):
    """Tags, attributes, and the text of cells."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")
        if tag in ("td", "th", "script", "style"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("td", "th"):
            self.rows[-1][-1] += data
        elif self._inside == "script":
            self.scripts[-1] += data


def listed(html: str, id: str) -> list[list[str]]:
    """The rows of a list as the page's script finds them, each cell as a text."""
    (content,) = re.findall(rf'<script type="application/json" id="{id}-rows">(.*?)</script>', html)
    rows: list[list[Any]] = json.loads(content)
    return [[_shown(cell["value"] if isinstance(cell, dict) else cell) for cell in row] for row in rows]


def _shown(value: Any) -> str:
    return "; ".join(value) if isinstance(value, list) else str(value)


def report(
    folder: Path,
    labels: list[Label],
    runs: dict[str, list[Prediction]],
    record: dict[str, Any] | None = None,
    **more: Any,
) -> str:
    evaluated = [
        EvaluatedRun(name, rows, measure(labels, rows, TAXONOMY, "x", resamples=50), record or {})
        for name, rows in runs.items()
    ]
    return write_report(folder, labels, evaluated, TAXONOMY, **more).read_text()


# --- The paper ---------------------------------------------------------------------------------------------------


def test_table_6_is_the_papers():
    rows = table6()
    assert len(rows) == 29
    groups = ("Zero-Shot", "Intuition", "Taxonomy", "SFT")
    assert [sum(row["prompting"] == name for row in rows) for name in groups] == [8, 8, 8, 5]
    by_name = {(row["prompting"], row["model"]): list(row.values())[2:] for row in rows}
    assert by_name["Zero-Shot", "Gemini 3 Flash"] == [0.781, 0.802, 0.203, -0.166, 0.403, 0.848, 0.662]
    assert by_name["Intuition", "MiniCPM-V (8B)"] == [0.616, 0.610, 0.237, -0.160, 0.311, 0.749, 0.540]
    assert by_name["Taxonomy", "GPT-5.2"] == [0.850, 0.844, 0.158, -0.046, 0.632, 0.919, 0.805]
    assert by_name["SFT", "Qwen3-VL (8B) (80 steps)"] == [0.799, 0.762, 0.140, 0.061, 0.633, 0.849, 0.745]
    assert by_name["SFT", "Llama 3.2 (80 steps)"] == [0.415, 0.410, 0.241, 0.140, 0.325, 0.714, 0.860]
    # Sums of the columns, added up from the paper's text.
    sums = [round(sum(values[column] for values in by_name.values()), 3) for column in range(7)]
    assert sums == [17.849, 18.936, 7.713, -4.849, 10.932, 22.924, 18.317]


# --- Bins --------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1)), max_size=40))
def test_bins_agree_with_counting(pairs: list[tuple[int, float]]):
    """Every score falls in exactly one bin, its lower end included; 0.3 or 0.7, which floats blur, too."""
    rows = reliability([p / 1000 for p, _ in pairs], [t for _, t in pairs])
    for number, row in enumerate(rows):
        inside = [(p / 1000, t) for p, t in pairs if p // 100 == number or (p == 1000 and number == 9)]
        assert row["n"] == len(inside) and row["bin"] == [number / 10, (number + 1) / 10]
        if inside:
            assert row["mean_prediction"] == pytest.approx(sum(p for p, _ in inside) / len(inside))
            assert row["mean_truth"] == pytest.approx(sum(t for _, t in inside) / len(inside))
            spread = max(t for _, t in inside) - min(t for _, t in inside)
            assert row["ci"] is None if spread == 0 else spread < 1e-6 or row["ci"][0] < row["ci"][1]
        else:
            assert row["mean_prediction"] is row["mean_truth"] is row["ci"] is None


def test_a_bins_interval_is_that_of_a_mean():
    truth = np.random.default_rng(0).normal(0.5, 0.1, 400).clip(0, 1)
    (low, high) = reliability(np.full(400, 0.35), truth)[3]["ci"]
    half = 1.96 * truth.std() / 20
    assert (low, high) == pytest.approx((truth.mean() - half, truth.mean() + half), abs=0.15 * half)


# --- Lists -------------------------------------------------------------------------------------------------------


def test_the_largest_errors_of_each_run_and_every_photo_without_a_score():
    labels = make_labels(60)
    runs = {"a": judge(labels, 0.3, lost=0.3), "b": judge(labels, 0.1, seed=2)[:-4]}  # b lacks four rows
    rows = judged(labels, runs)
    listed = largest_errors(rows, count=10)
    assert [sum(row.run == name for row in listed) for name in "ab"] == [10, 10]
    truth = {label.id: label.score for label in labels}
    for name in "ab":
        errors = sorted((abs(row.score - truth[row.id]) for row in runs[name] if row.score is not None), reverse=True)
        assert [abs(row.error or 0) for row in listed if row.run == name] == pytest.approx(errors[:10])
    lost = without_score(rows)
    assert [row.prediction for row in lost if row.run == "b"] == [None] * 4
    refused = [row for row in runs["a"] if row.score is None]
    assert refused and sum(row.run == "a" for row in lost) == len(refused)
    assert len(without_score(rows, count=2)) == 4


# --- The page ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run whose every text is hostile, and one without any score."""
    labels = [replace(label, id=f"{label.id}{HOSTILE}") for label in make_labels(30)]
    hostile = [replace(row, text=HOSTILE, model=HOSTILE, prompt=HOSTILE) for row in judge(labels, 0.2, lost=0.2)]
    silent = [Prediction(label.id, None, None, "error", error=HOSTILE) for label in labels]
    folder = tmp_path_factory.mktemp("report")
    return folder, report(folder, labels, {HOSTILE: hostile, "silent": silent})


def test_nothing_from_a_file_becomes_markup(page):
    parsed = Parsed(page[1])
    runs = [attributes for name, attributes in parsed.tags if name == "script" and "type" not in attributes]
    assert len(runs) == 1  # the others are data
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    for name, attributes in parsed.tags:
        assert name not in ("iframe", "object", "embed", "form", "base", "link", "video", "audio", "svg")
        for source in ("src", "srcset"):
            assert source not in attributes or str(attributes[source]).startswith("data:image/png;base64,")
        assert "href" not in attributes and "style" not in attributes
    shown = "</script><img src=x onerror=\"document.title='hacked'\">'&\"\ufffd\ufffd$x^2$\ufffd"
    assert any(row[0] == f"photo_0000{shown}" for row in listed(page[1], "photos"))
    for hidden in ("\u202e", "\x07", "\\u202e", "\\u0007"):  # nor as JSON, which the script would show
        assert hidden not in page[1]


def test_the_policy_allows_our_script_and_style_and_no_network(page):
    parsed = Parsed(page[1])
    (policy,) = [str(a["content"]) for _, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == "'none'" and parts["img-src"] == "data:"

    def digest(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert parts["script-src"] == digest(parsed.scripts[-1])
    style = re.search(r"<style>(.*?)</style>", page[1], re.DOTALL)
    assert style and parts["style-src"] == digest(style[1])
    assert "url(" not in style[1] and "@import" not in style[1] and "fetch" not in parsed.scripts[-1]


def test_what_is_undefined_is_a_dash_and_every_row_is_counted(page):
    parsed = Parsed(page[1])
    silent = [row for row in parsed.rows if row[0] == "silent"]
    assert silent[0][1:8] == ["–"] * 7  # no figure, and no 0 in place of one
    assert silent[0][8].startswith("0.000")  # the coverage is known
    assert silent[1] == ["silent", "30", "0", "0", "0", "30", "0"]
    assert sum(row[1] == "silent" and row[4] == "error" for row in listed(page[1], "unscored")) == 30


def test_tables_say_what_heads_what(page):
    parsed = Parsed(page[1])
    heads = [attributes for name, attributes in parsed.tags if name == "th"]
    assert heads and all(attributes.get("scope") in ("col", "row", "rowgroup") for attributes in heads)
    assert all("alt" in attributes for name, attributes in parsed.tags if name == "img")


def test_pictures_lie_beside_the_page(page):
    for name in ("scores", "confusion", "calibration"):
        with Image.open(page[0] / f"{name}.png") as image:
            assert image.width > 400 and len(np.unique(np.asarray(image.convert("L")))) > 50


def test_figures_stand_beside_the_papers_and_other_ways_to_a_score_below(tmp_path):
    labels, held_out = make_labels(60), make_labels(50, seed=9)
    rows = [replace(row, expected_score=row.score) for row in judge(labels, 0.1, prompt="zero_shot")]
    rows[:9] = [replace(row, composed_score=row.score) for row in rows[:9]]
    metrics = measure(labels, rows, TAXONOMY, "x", resamples=50)
    mapped = calibrated(labels, rows, held_out, judge(held_out, 0.1, seed=5), TAXONOMY, "x", resamples=0, seed=0)
    metrics = replace(metrics, calibrated=mapped)
    parsed = Parsed(write_report(tmp_path, labels, [EvaluatedRun("mine", rows, metrics)], TAXONOMY).read_text())
    by_name = {row[0]: row for row in parsed.rows if len(row) == 9 and row[0] not in ("Photo", "Run")}
    ours = by_name["minezero_shot"]
    assert ours[2].startswith(f"{metrics.spearman:.3f}")
    low, high = metrics.ci["spearman"]
    assert ours[2].endswith(f"{low:.3f} to {high:.3f}")
    assert by_name["expected score"][1:] == ours[1:]  # the same scores here
    covered = sum(row.composed_score is not None for row in rows)
    assert f"composed scoreof {covered} photos alone" in by_name
    assert ["Paper, SFT, on other photos"] in parsed.rows  # 60 photos are not the paper's
    affine = mapped["stated"]["affine"]
    assert by_name["stated score, affine calibration"][3] == f"{affine.mae:.3f}"
    assert by_name["Qwen3-VL (4B) (80 steps)"][1:] == [
        "0.790",
        "0.753",
        "0.142",
        "−0.024",
        "0.614",
        "0.833†",
        "0.779†",
        "–",
    ]
    groups = [a["data-open"] for name, a in parsed.tags if name == "tbody" and "data-group" in a]
    assert groups == ["true", "false", "false", "true"]  # zero-shot was asked here; SFT is always shown


def test_a_label_without_any_prediction_is_listed_as_missing(tmp_path):
    labels = make_labels(5)
    html = report(tmp_path, labels, {"a": judge(labels, 0.1)[:4]})
    assert [row[:5] for row in listed(html, "unscored")] == [
        [labels[4].id, "a", str(labels[4].level), figure(labels[4].score), "missing"]
    ]


# --- Pictures of photos ------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, list[Label]]:
    labels = make_labels(4)
    (tmp_path / "data" / "images").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x010E] = "taken by somebody"
    exif[0x0112] = 6  # lies on its side
    for label in labels[:2]:
        pixels = np.random.default_rng(0).integers(0, 255, (150, 300, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / str(label.image), exif=exif)
    (tmp_path / "data" / str(labels[2].image)).write_bytes(b"not an image")
    Image.new("RGB", (8, 8)).save(tmp_path / "outside.jpg")
    (tmp_path / "data" / str(labels[3].image)).symlink_to(tmp_path / "outside.jpg")
    return tmp_path / "data", labels


def test_no_photo_is_in_the_page_unless_asked_for(photos, tmp_path):
    html = report(tmp_path / "out", photos[1], {"a": judge(photos[1], 0.1)})
    assert "image/jpeg" not in html and "private pictures" not in html


def test_thumbnails_are_pixels_alone_and_stay_inside_the_folder(photos, tmp_path):
    folder, labels = photos
    html = report(tmp_path / "out", labels, {"a": judge(labels, 0.1), "b": judge(labels, 0.2)}, images_root=folder)
    parsed = Parsed(html)
    pictures = json.loads(next(text for text in parsed.scripts if "image/jpeg" in text))
    assert len(pictures) == 2 and "This page holds private pictures" in html  # each once; a link out is none
    assert html.count('"picture":0') == html.count('"picture":1') == 4  # errors of two runs, all photos, its own page
    kept = sorted(path.read_bytes() for path in (tmp_path / "out" / "thumbnails").iterdir())
    assert kept == sorted(base64.b64decode(picture.partition(",")[2]) for picture in pictures)
    for picture in pictures:
        data = base64.b64decode(picture.removeprefix("data:image/jpeg;base64,"))
        assert b"somebody" not in data and len(data) < 20_000
        with Image.open(io.BytesIO(data)) as image:
            assert image.size == (80, 160) and not image.getexif() and "icc_profile" not in image.info


@pytest.mark.parametrize(
    "image", ["../outside.jpg", None, "images/loop.jpg", "images/nowhere.jpg", "x" * 5000 + ".jpg", "a\0b"]
)
def test_what_lies_outside_or_nowhere_gives_no_thumbnail(photos, tmp_path, image):
    folder, _ = photos
    (folder / "images" / "loop.jpg").symlink_to("loop.jpg")
    assert thumbnails_in(folder, {"a": image}, tmp_path / "kept") == {}


def test_a_thumbnail_is_kept_until_its_photo_changes(photos, tmp_path, monkeypatch):
    folder, labels = photos
    images = {label.id: label.image for label in labels}
    first = thumbnails_in(folder, images, tmp_path / "kept")
    monkeypatch.setattr("cprt.pages.thumbnails.load_image", lambda *_, **__: pytest.fail("decoded again"))
    assert thumbnails_in(folder, dict(list(images.items())[:2]), tmp_path / "kept") == first and len(first) == 2
    monkeypatch.undo()
    Image.new("RGB", (40, 20), "red").save(folder / str(labels[0].image))
    changed = thumbnails_in(folder, images, tmp_path / "kept")
    assert changed[labels[0].id] != first[labels[0].id] and changed[labels[1].id] == first[labels[1].id]


# --- One photo over runs, and what made the runs -------------------------------------------------------------------


def test_every_photo_has_the_answers_of_all_runs_beside_the_true_attributes(tmp_path):
    present = dict.fromkeys(TAXONOMY.keys, 0.0) | {"gov_ids": 1.0, "age": 1.0, "gender": 0.5}
    labels = [Label("a.jpg", "images/a.jpg", present, 1, 0.712, None), Label("b.jpg", None, None, 4, 0.0, None)]
    runs = {
        "first": [
            Prediction("a.jpg", None, None, "ok", text="A", score=0.3, attributes=["age", "gender"]),
            Prediction("b.jpg", None, None, "ok", text="B", score=0.1),
        ],
        "second": [Prediction("b.jpg", None, None, "refused", text="I cannot.")],
    }
    html = report(tmp_path, labels, runs)
    (content,) = re.findall(r'id="photos-answers">(.*?)</script>', html)
    a, b = json.loads(content)  # the larger error first
    assert (a["id"], b["id"]) == ("a.jpg", "b.jpg") and a["picture"] is None
    assert a["truth"] == [["1", "badge level-1"], "0.712", ["government ID", "chip"], ["age", "chip"]]
    assert a["answers"][0] == [
        "first",
        [
            ["3", "badge level-3"],
            "0.300",
            ["−0.412", "quiet"],
            ["✓ age", "chip seen"],
            ["missed: government ID", "chip missed"],
            ["not there: gender", "chip extra"],
        ],
        "A",
    ]
    assert a["answers"][1] == ["second", [["missing", "flag"]], ""]
    assert b["truth"] == [["4", "badge level-4"], "0.000"]
    assert b["answers"][1] == ["second", [["refused", "flag"]], "I cannot."]
    (error,) = [row for row in listed(html, "errors") if row[0] == "a.jpg"]
    assert error[9] == "government ID; age"  # the true ones, to filter by


def test_a_judge_with_few_scores_gets_a_warning(tmp_path):
    labels = make_labels(12)
    two = [Prediction(label.id, None, None, "ok", score=0.8 if i < 9 else 0.1) for i, label in enumerate(labels)]
    assert few_scores(two) == [(0.8, 9), (0.1, 3)]
    assert few_scores(two[:9]) == []  # too few photos to tell
    assert few_scores(judge(labels, 0.3)) == []
    html = report(tmp_path, labels, {"two": two, "many": judge(labels, 0.3)})
    assert html.count('class="warning"') == 1
    assert "<bdi>two</bdi> uses 2 distinct scores for 12 photos\n(0.800 9 times, 0.100 3 times)" in html


def test_rows_for_a_paper():
    figures = {"pearson": 0.9604, "spearman": 0.5, "mae": 0.04, "bias": -0.0051, "level_accuracy": None}
    figures |= {"inter_level_accuracy": 1.0, "intra_level_accuracy": 0.7, "coverage": 1.0}
    run = {"a_b|c": replace(measure([], [], TAXONOMY, "x"), **figures)}
    table = results_table(run)
    row = "a\\_b|c & 0.960 & 0.500 & 0.040 & -0.005 & -- & 1.000 & 0.700 & 1.000 \\\\"
    assert latex(table).splitlines()[-3] == row and "\\begin{tabular}{lrrrrrrrr}" in latex(table)
    lines = markdown(table).splitlines()
    assert lines[0].startswith("| Run | Pearson | Spearman | MAE |") and lines[1].count("---:") == 8
    assert lines[2] == "| a_b\\|c | 0.960 | 0.500 | 0.040 | -0.005 | – | 1.000 | 0.700 | 1.000 |"


def test_a_run_says_what_made_it(tmp_path):
    record = {
        "config": {"judge": {"model": "Qwen/x", "adapter": "out/<b>", "revision": None}},
        "prompt": {"name": "taxonomy", "target": "score"},
        "created": "2026-11-28T13:03:08+00:00",
        "cprt": "0.1.0",
        "git": "65e09c229e02585a6b23428c887126c70cc9102d",
        "inputs": {"labels": {"path": "test.jsonl", "sha256": "ba7707224043" + "0" * 52}},
        "decoding": {"structured": "a grammar"},
        "dtype": "bfloat16",
    }
    assert provenance(record) == {
        "Model": "Qwen/x",
        "Adapter": "out/<b>",
        "Revision": "",
        "Asked with": "taxonomy prompt for score",
        "Answers": "structured, by a grammar",
        "Precision": "bfloat16",
        "On": "2026-11-28",
        "Labels": "test.jsonl ba7707224043",
        "Code": "cprt 0.1.0 65e09c229e02",
    }
    assert provenance({"config": 5, "prompt": [], "inputs": None})["Model"] == "" and provenance({}) == {}
    labels = make_labels(5)
    html = report(tmp_path, labels, {"a": judge(labels, 0.1)}, record=record)
    assert "<dd><bdi>out/&lt;b&gt;</bdi></dd>" in html and "<dt>Revision</dt>" not in html


# --- Markup ------------------------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(codec=None)))
def test_text_is_safe_in_html_and_script(value: str):
    safe = isolated(value).removeprefix("<bdi>").removesuffix("</bdi>")
    assert not set("<>\"'") & set(safe)
    safe.encode("utf-8")
    data = script_json({"a": [value, 1, None]})
    assert "<" not in data and ">" not in data and data.isascii()
    assert json.loads(data) == {"a": [markup.unescape(safe), 1, None]}


def test_figures():
    assert [figure(value) for value in (0.12345, -0.5, 1, None, float("nan"), True, "1")] == [
        "0.123",
        "−0.500",
        "1.000",
        "–",
        "–",
        "–",
        "–",
    ]
    assert figure(0.5, "+") == "+0.500"


def test_predicted_against_true_by_hand(tmp_path: Path):
    labels = [replace(label, score=score) for label, score in zip(make_labels(4), (0.0, 0.05, 0.5, 1.0), strict=True)]
    said = (0.2, 0.4, None, 0.9)
    rows = [
        Prediction(label.id, "m", "taxonomy", "refused" if score is None else "ok", score=score)
        for label, score in zip(labels, said, strict=True)
    ]
    bins = response_of(labels, rows)
    assert [(row["n"], row["mean_truth"]) for row in bins if row["n"]] == [(2, pytest.approx(0.3)), (1, 0.9)]
    cells = Parsed(report(tmp_path, labels, {"one": rows})).rows
    assert ["0.9 to 1.0", "1", "1.000", "0.900"] in cells and ["0.5 to 0.6", "0", "–", "–"] in cells


# --- Where judges err (paper 5.3) --------------------------------------------------------------------------------


def test_errors_stand_by_level_number_and_attribute_with_chance(tmp_path: Path):
    keys = TAXONOMY.keys
    labels = [
        Label(f"{i}", None, {key: float(key in present) for key in keys}, level, score, None)
        for i, (present, level, score) in enumerate(
            [(("biometrics", "age"), 1, 0.8), (("age",), 3, 0.3), (("age",), 3, 0.3), ((), 4, 0.0)]
        )
    ]
    scores = (0.9, 0.1, None, 0.0)
    rows = [
        Prediction(label.id, "m", "taxonomy", "refused" if score is None else "ok", score=score)
        for label, score in zip(labels, scores, strict=True)
    ]
    cells = Parsed(report(tmp_path, labels, {"one": rows})).rows
    age = measure(labels, rows, TAXONOMY, "x", resamples=50).errors_by["attribute"]["age"]
    assert (age.n, age.scored, age.bias, age.mae) == (3, 2, pytest.approx(-0.05), pytest.approx(0.15))
    assert ["age", "3", f"−0.050{interval(age.bias_ci, '+')}0.150, 1 without"] in cells
    assert ["2", "1", "+0.1000.100"] in [[row[0], row[1], row[2][:6] + row[2][-5:]] for row in cells if len(row) == 3]
    assert not any(row[0] == "government IDs" for row in cells if row)  # no photo shows one
    assert any(row[0] == "one" and row[-1] == "–" for row in cells if row)  # no pair within a level: no p


def test_attributes_stand_with_their_figures_and_what_errors_cost(tmp_path: Path):
    """One judge says how probable they are, one only names them, and one does neither."""
    keys = TAXONOMY.keys
    labels = [
        Label(f"{i}", None, {key: float(key in present) for key in keys}, level, score, None)
        for i, (present, level, score) in enumerate([(("age", "biometrics"), 1, 0.8), (("age",), 3, 0.3), ((), 4, 0.0)])
    ]
    named = [Prediction(label.id, "m", "taxonomy", "ok", score=0.3, attributes=["age"]) for label in labels]
    likely = [replace(row, attribute_probabilities={**dict.fromkeys(keys, 0.0), "age": 0.8}) for row in named]
    plain = [replace(row, attributes=None) for row in named]
    html = report(tmp_path, labels, {"sure": likely, "names": named, "mute": plain})
    assert html.count("Attributes as sure sees them") == 1 and "Attributes as mute" not in html
    measured = measure(labels, likely, TAXONOMY, "x", resamples=50)
    age, chance = measured.attributes["per_attribute"]["age"], measured.attribute_probabilities["per_attribute"]["age"]
    assert (age["precision"], age["recall"]) == (pytest.approx(2 / 3), 1.0)
    assert chance["brier"] == pytest.approx((2 * 0.2**2 + 0.8**2) / 3)
    cells = [row for row in Parsed(html).rows if row and row[0] == "age" and len(row) in (6, 9)]
    assert [len(row) for row in cells] == [9, 6]  # no column for what nobody said
    assert cells[0][:4] == cells[1][:4] and cells[0][7:] == cells[1][4:]
    assert cells[0][2].startswith("0.667") and cells[0][6].startswith("0.240")
    invented = measured.attributes["costs"]["age"]["invented"]
    missed = measured.attributes["costs"]["biometrics"]["missed"]
    assert html.count(f"The costliest error: biometrics missed, which takes {missed:.3f} [") == 2
    assert invented == pytest.approx(severity((0, 0, 1, 0)).score / 3)
    assert cells[0][8].startswith(figure(invented))
    assert any(row[0] == "level 1" and len(row) == 9 for row in Parsed(html).rows if row)
