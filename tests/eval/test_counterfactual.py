"""``cprt counterfactual``: selection by hand, truth by brute force, a judge whose change of mind is written down."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge_endpoint import photo, width_of
from loopback import Misbehaving
from PIL import Image

from cprt.errors import InputError
from cprt.models.checkpoint import identity
from cprt.prompts import build
from cprt.provenance import model_digest
from cprt.records import Label, Prediction, write_jsonl
from cprt.scoring import severities
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import Case, confident, make_case, read_fingerprints, select
from eval.counterfactual.run import main, read_runs

KEYS = Taxonomy.default().keys
GUIDED, ZERO = build("taxonomy"), build("zero_shot")
NO_FACES = build("taxonomy", faces_anonymised=True)

# Width of the photo -> its attributes. 4 with a face, 2 with an ID (one with a face too), 2 with neither.
PHOTOS = {
    31: ["biometrics", "age"],
    32: ["biometrics", "medical_data", "age"],
    33: ["biometrics"],
    34: ["biometrics", "location"],
    41: ["gov_ids", "biometrics", "full_legal_name"],
    42: ["gov_ids", "full_legal_name"],
    51: ["age", "location"],
    52: ["metadata"],
}


def truth(keys: list[str]) -> tuple[int, float]:
    levels, scores = severities([[float(key in keys) for key in KEYS]])
    return int(levels[0]), float(scores[0])


def make_label(width: int, keys: list[str]) -> Label:
    level, score = truth(keys)
    return Label(str(width), f"images/{width}.png", {key: float(key in keys) for key in KEYS}, level, score, "test")


LABELS = [make_label(width, keys) for width, keys in PHOTOS.items()]


def before(width: int) -> float:
    return round(truth(PHOTOS[width])[1], 3)


def after(width: int, prompt: str) -> float | str:
    """What the judge says: guided it is right, but for one refusal; without guidance faces are all it sees."""
    if prompt == "taxonomy":
        if width == 34:
            return "I'm sorry, but I can't assist with that request."
        return round(truth([key for key in PHOTOS[width] if key != "biometrics"])[1], 3)
    return 0.05 if "biometrics" in PHOTOS[width] else before(width)


@pytest.fixture
def judge():
    def answer(body: dict[str, Any]) -> tuple[str, str]:
        text = body["messages"][0]["content"][0]["text"]
        prompt = "taxonomy" if "taxonomy" in text else "zero_shot"
        if "every face in the photo has been perfectly anonymised" in text:
            said = after(width_of(body), prompt)
        else:  # the control; the one without guidance does not say the same again
            said = round(before(width_of(body)) + 0.02 * (prompt == "zero_shot"), 3)
        return (said if isinstance(said, str) else json.dumps({"score": said})), "stop"

    with Misbehaving(answer, delay=0.02) as server:
        yield server


def write_eval(folder: Path, prompt: Any, scores: dict[str, float | None], **config: Any) -> str:
    """A folder as ``cprt eval`` leaves it."""
    write_jsonl(
        folder / "predictions.jsonl",
        [
            Prediction(id, "judge", prompt.name, "ok" if score is not None else "refused", score=score)
            for id, score in scores.items()
        ],
    )
    record = {
        "config": {"prompt": [prompt.name], "judge": {"name": "judge", "model": "judge", **config}},
        "prompt": prompt.identity(),
        "model": "judge@main",
        "adapter": None,
        "decoding": {"max_pixels": None},
    }
    (folder / "run.json").write_text(json.dumps(record))
    return str(folder)


@pytest.fixture
def options(judge, tmp_path: Path) -> list[str]:
    """Two runs, guided and not, both right about every photo before."""
    for width in PHOTOS:
        photo(tmp_path / "data" / "images" / f"{width}.png", width)
    write_jsonl(tmp_path / "labels.jsonl", LABELS)
    scores = {str(width): before(width) for width in PHOTOS}
    runs = [
        write_eval(tmp_path / name, prompt, scores, base_url="endpoint", concurrency=1)
        for name, prompt in (("guided", GUIDED), ("zero", ZERO))
    ]
    return [
        "--runs",
        *runs,
        "--labels",
        str(tmp_path / "labels.jsonl"),
        "--images",
        str(tmp_path / "data"),
        "--base_url",
        judge.url,
        "--size",
        "8",
        "--share",
        "0.75",
        "--out",
        str(tmp_path / "out"),
    ]


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_changes_of_run_and_truth_with_values_by_hand(options, tmp_path, capsys):
    main(options)
    rows = rows_of(tmp_path / "out" / "counterfactual.jsonl")
    assert [(row["run"], row["id"]) for row in rows] == [(run, str(w)) for run in ("guided", "zero") for w in PHOTOS]
    row = rows[1]  # face, medical data, age: level 2 is what is left
    assert (row["before"], row["truth_level_before"], row["level_before"]) == (before(32), 1, 1)
    assert row["truth_after"] == truth(["medical_data", "age"])[1] and row["truth_level_after"] == 2
    assert (row["after"], row["level_after"], row["status"]) == (after(32, "taxonomy"), 2, "ok")
    assert (rows[3]["status"], rows[3]["after"], rows[3]["level_after"]) == ("refused", None, None)

    figures = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    guided, zero = figures["guided"], figures["zero"]
    assert (guided["all"]["n"], guided["all"]["scored"], guided["all"]["status_counts"]["refused"]) == (8, 7, 1)
    assert (guided["face"]["n"], guided["id"]["n"], guided["other"]["n"]) == (4, 2, 2)
    changes = [after(width, "taxonomy") - before(width) for width in (31, 32, 33)]
    assert guided["face"]["change"] == pytest.approx(np.mean(changes))
    exact = [truth([key for key in PHOTOS[w] if key != "biometrics"])[1] - truth(PHOTOS[w])[1] for w in (31, 32, 33)]
    assert guided["face"]["truth_change"] == pytest.approx(np.mean(exact))  # over the photos with a score alone
    assert guided["face"]["moved_down"] == guided["face"]["truth_moved_down"] == 1.0
    assert (guided["id"]["moved_down"], guided["id"]["unmoved"]) == (0.0, 0.5)  # robust: the ID is still there
    assert (guided["other"]["change"], guided["other"]["unmoved"]) == (0.0, 1.0)
    assert guided["all"]["error_after"] < 0.0006
    assert zero["id"]["moved_down"] == 0.5 and zero["face"]["after"] == pytest.approx(0.05)
    assert zero["all"]["change"] == pytest.approx(sum(0.05 - before(w) for w in (31, 32, 33, 34, 41)) / 8)
    low, high = zero["all"]["ci"]["change"]
    assert low < zero["all"]["change"] < high
    assert guided["id"]["after"] > 0.51 and guided["id"]["ci"]["moved_down"][1] > 0.5  # two photos say little
    assert (guided["all"]["self_change"], guided["all"]["asked_again"]) == (0.0, 7)
    assert guided["all"]["net_change"] == guided["all"]["change"]
    assert zero["other"]["self_change"] == pytest.approx(0.02)
    assert zero["other"]["ci"]["self_change"] is None  # all photos by the same
    assert (zero["other"]["change"], zero["other"]["net_change"]) == (0.0, pytest.approx(-0.02))
    assert zero["all"]["self_difference"] == pytest.approx(0.02)
    with Image.open(tmp_path / "out" / "change.png") as picture:
        assert len(picture.getcolors(1 << 20)) > 20
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert [run["prompt"]["faces_anonymised"] for run in record["runs"]] == [True, True]
    assert record["runs"][0]["prompt"]["sha256"] == NO_FACES.digest
    said = capsys.readouterr().out
    assert "8 photos (4 face, 2 id, 2 other) of 8" in said and "zero: confident on 8 of 8" in said
    with open(tmp_path / "out" / "table.csv", newline="") as file:
        table = {(row["run"], row["photos"]): row for row in csv.DictReader(file)}
    assert len(table) == 8 and table["zero", "other"]["change by itself"] == "0.02"
    assert table["guided", "face"]["change low"] != table["guided", "face"]["change high"] != ""
    assert r"\toprule" in (tmp_path / "out" / "table.tex").read_text()


def test_all_judges_choose_and_one_is_asked_with_two_prompts(options, judge, tmp_path):
    """The paper's 5.4.1: a judge's own score plays no part in the choice of photos that it is asked about."""
    far = {str(width): 0.0 if width == 31 else None if width == 32 else before(width) for width in PHOTOS}
    asked = write_eval(tmp_path / "asked", ZERO, far, base_url="endpoint")
    chosen = [{"id": str(width), "status": "ok", "score": before(width)} for width in PHOTOS if width != 52]
    write_jsonl(tmp_path / "others.jsonl", chosen)
    guided = str(tmp_path / "guided")
    select_by = ["--select_by", guided, str(tmp_path / "others.jsonl")]
    main([*options[3:], *select_by, "--ask", asked, "--control", "false", "--thumbnails", "true"])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["runs"]) == ["asked"]
    assert summary["selection"]["confident_alone"] == {"guided": 8, "others": 7}
    rows = {row["id"]: row for row in rows_of(tmp_path / "out" / "counterfactual.jsonl")}
    assert sorted(rows) == ["31", "32", "33", "34", "41", "42", "51"] and len(judge.bodies) == 7
    assert (rows["31"]["before"], rows["31"]["level_before"]) == (0.0, 4)
    assert (rows["32"]["before"], rows["32"]["level_before"], rows["32"]["after"]) == (None, None, 0.05)
    assert summary["runs"]["asked"]["all"]["scored"] == 6  # without a score before there is no change
    assert summary["runs"]["asked"]["all"]["net_change"] is None and rows["31"]["status_again"] is None
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["selected_by"] == ["guided", "others"] and [run["name"] for run in record["runs"]] == ["asked"]

    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 7
    (content,) = re.findall(r'<script type="application/json" id="answers-rows">(.*?)</script>', page)
    shown = {row[0]["value"]: row for row in json.loads(content)}
    assert shown["31"][1] == "face" and shown["31"][3]["value"] == ["0.000", "–", "0.050"]
    assert shown["32"][3]["lines"][0] == [["as it is", "quiet"], ["no score", "flag"]]
    main([*options[3:], *select_by, "--ask", asked, "--control", "false"])
    assert "data:image" not in (tmp_path / "out" / "report.html").read_text() and len(judge.bodies) == 7


@pytest.mark.parametrize("held", [False, True])
def test_a_run_whose_answers_were_held_to_a_form_is_held_to_it_again(options, judge, tmp_path, held: bool):
    form = {"structured": "a JSON schema"} if held else {}
    for name in ("guided", "zero"):
        change(tmp_path / name / "run.json", decoding={"max_pixels": None, **form})
    main([*options, "--size", "1"])
    assert len(judge.bodies) == 4 and all(("response_format" in body) is held for body in judge.bodies)


def test_the_interval_is_a_percentile_bootstrap_over_photos(options, tmp_path):
    main([*options, "--resamples", "200", "--seed", "3"])
    rows = [row for row in rows_of(tmp_path / "out" / "counterfactual.jsonl") if row["run"] == "zero"]
    changes = np.array([row["after"] - row["before"] for row in rows])
    rng = np.random.default_rng(3)
    means = [changes[row].mean() for row in rng.integers(8, size=(200, 8))]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["runs"]["zero"]["all"]["ci"]["change"] == pytest.approx(np.percentile(means, [2.5, 97.5]))


def test_a_second_run_and_one_after_a_kill_ask_only_what_is_missing(options, judge, tmp_path):
    command = [sys.executable, "-m", "eval.counterfactual.run", *options]
    kept = tmp_path / "out" / "answers.jsonl"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 5):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert kept.read_bytes().count(b"\n") < 32, "killed too late to prove anything"
    main(options)
    first = (tmp_path / "out" / "counterfactual.jsonl").read_bytes()
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 32
    asked = len(judge.bodies)
    main(options)
    assert len(judge.bodies) == asked and (tmp_path / "out" / "counterfactual.jsonl").read_bytes() == first


def test_a_local_run_is_repeated_with_its_own_model_and_adapter(demo_base, adapter, tmp_path, capsys):
    """The tiny model's words are no scores: every row says so, and every figure is null, not 0."""
    photo(tmp_path / "data" / "images" / "31.png", 31)
    write_jsonl(tmp_path / "labels.jsonl", LABELS[:1])
    run = write_eval(
        tmp_path / "run",
        ZERO,
        {"31": before(31)},
        model=str(demo_base),
        adapter=str(adapter),
        max_new_tokens=8,
        dtype="float32",
        batch_size=2,
        max_pixels=9216,
    )
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record |= {"model": identity(str(demo_base)), "adapter": model_digest(adapter), "decoding": {"max_pixels": 9216}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    options = [
        "--runs",
        run,
        "--labels",
        str(tmp_path / "labels.jsonl"),
        "--images",
        str(tmp_path / "data"),
        "--out",
        str(tmp_path / "out"),
    ]
    main(options)
    (row,) = rows_of(tmp_path / "out" / "counterfactual.jsonl")
    assert row["status"] == "unparsed" and row["after"] is None and row["text"] is not None
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["selection"]["unfilled"] == 99 and summary["runs"]["run"]["all"]["change"] is None
    assert summary["runs"]["run"]["all"]["ci"]["unmoved"] is None
    assert "99 fewer than asked for" in capsys.readouterr().out
    record["adapter"] = "0" * 64
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="field 'adapter': the adapter .* has changed since"):
        main(options)


# --- Selection and truth -----------------------------------------------------------------------------------------


def test_confident_means_every_run_near_the_truth():
    def run(**scores: float | None) -> dict[str, Prediction]:
        return {
            id[1:]: Prediction(id[1:], None, None, "ok" if score is not None else "refused", score=score)
            for id, score in scores.items()
        }

    near = {f"_{width}": before(width) for width in PHOTOS}
    sure = {**near, "_31": before(31) - 0.09, "_32": before(32) - 0.11, "_33": None}
    runs = {"a": run(**near), "b": run(**sure), "c": run(**{id: s for id, s in near.items() if id != "_34"})}
    assert [label.id for label in confident(LABELS, runs, 0.1)] == ["31", "41", "42", "51", "52"]


def test_truth_without_faces_keeps_a_fingerprint_and_whatever_else_there_is():
    cases = {label.id: make_case(label, {"33"}, Taxonomy.default()) for label in LABELS}
    for width, keys in PHOTOS.items():
        rest = keys if width == 33 else [key for key in keys if key != "biometrics"]
        case = cases[str(width)]
        assert (case.level_after, case.truth_after) == truth(rest)
        assert (case.level_before, case.truth_before) == truth(keys)
    assert Counter(case.group for case in cases.values()) == {"face": 4, "id": 2, "other": 2}
    assert [case.id for case in cases.values() if case.fingerprint] == ["33"]


def make_cases(**counts: int) -> list[Case]:
    return [
        Case(f"{group}{i:03d}", "x.png", group, 0.8, 1, 0.8, 1, False)
        for group, count in counts.items()
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("available", "taken", "unfilled"),
    [
        ({"face": 90, "id": 90, "other": 90}, {"face": 40, "id": 40, "other": 20}, 0),
        ({"face": 90, "id": 10, "other": 90}, {"face": 70, "id": 10, "other": 20}, 0),
        ({"face": 10, "id": 90, "other": 90}, {"face": 10, "id": 70, "other": 20}, 0),
        ({"face": 90, "id": 90, "other": 5}, {"face": 55, "id": 40, "other": 5}, 0),
        ({"face": 10, "id": 10, "other": 90}, {"face": 10, "id": 10, "other": 20}, 60),  # mostly others is no test
        ({"face": 0, "id": 0, "other": 3}, {"face": 0, "id": 0, "other": 3}, 97),
    ],
)
def test_the_draw_is_mostly_faces_and_ids_and_says_what_it_lacks(available, taken, unfilled):
    chosen, report = select(make_cases(**available), 100, 0.8, seed=1)
    assert Counter(case.group for case in chosen) == Counter(taken)
    assert (report["taken"], report["unfilled"], report["available"]) == (taken, unfilled, available)
    assert [case.id for case in chosen] == sorted({case.id for case in chosen})


def test_the_draw_depends_on_the_seed_and_not_on_the_order():
    cases = make_cases(face=60, id=60, other=60)
    first = select(cases, 50, 0.8, seed=1)[0]
    assert select(cases[::-1], 50, 0.8, seed=1)[0] == first
    assert select(cases, 50, 0.8, seed=2)[0] != first


def test_fingerprints_from_both_layouts_of_visprs_annotations(tmp_path):
    (tmp_path / "test2017").mkdir()
    for name, content in {
        "a": {"image_path": "a.jpg", "labels": ["a7_fingerprint", "a9_face_complete"]},
        "b": {"image_path": "b.jpg", "labels": ["a9_face_complete"]},
        "c": {"image_path": "c.jpg", "attributes": {"biometric": ["a7_fingerprint"]}},
        "d": {"image_path": "d.jpg", "labels": [], "safe": True},
        "of another kind": ["a7_fingerprint"],
    }.items():
        (tmp_path / "test2017" / f"{name}.json").write_text(json.dumps(content))
    assert read_fingerprints(str(tmp_path), set("abcd")) == {"a", "c"} and read_fingerprints(None, {"a"}) == set()
    for folder, photos in ((tmp_path / "nowhere", {"a"}), (tmp_path, {"elsewhere"})):
        with pytest.raises(InputError, match="holds an annotation .* of none of the 1 photos"):
            read_fingerprints(str(folder), photos)
    (tmp_path / "test2017" / "b.json").write_text('{"image_path": "b.jpg", "labels": "a7_fingerprint"}')
    with pytest.raises(InputError, match="b.json: field 'labels'"):
        read_fingerprints(str(tmp_path), set("abcd"))


# --- Bad input ---------------------------------------------------------------------------------------------------


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_runs_that_cannot_be_repeated_as_they_were_are_refused(options, tmp_path):
    def complaint(*more: str) -> str:
        with pytest.raises(InputError) as caught:
            main([*options, *more])
        assert "\n" not in str(caught.value)
        return str(caught.value)

    guided = str(tmp_path / "guided")
    assert f"{guided}: is there twice" in complaint("--runs", guided, guided + "/")
    assert "nowhere: no such folder or file" in complaint("--runs", str(tmp_path / "nowhere"))
    none = "on no photo are all runs within 0 of the truth (each alone: guided on 0, zero on 0)"
    assert none in complaint("--confidence", "0")
    write_jsonl(tmp_path / "silent.jsonl", [Prediction("31", "m", "p", "refused")])
    apart = ["--ask", guided, "--select_by", guided, str(tmp_path / "silent.jsonl")]
    with pytest.raises(InputError, match="silent has no score on any of 8 photos: leave it out of the selection"):
        main([*options[3:], *apart])
    assert "needs select_by and ask, or runs for both" in complaint("--ask", guided)
    with pytest.raises(InputError, match="needs select_by and ask, or runs for both"):
        main([*options[3:], "--ask", guided])
    assert "size must be at least 1" in complaint("--size", "0")
    assert "share must be 0 to 1" in complaint("--share", "1.5")
    record = tmp_path / "guided" / "run.json"
    before = record.read_text()
    change(record, prompt={**GUIDED.identity(), "sha256": "0"})
    assert "field 'prompt': asked with another prompt or taxonomy" in complaint()
    record.write_text(before)
    change(record, model="another@main")
    assert "field 'model': the model judge has changed since" in complaint()
    record.write_text("{}")
    assert "is not the record of cprt eval" in complaint()
    record.write_text(before)
    write_jsonl(tmp_path / "labels.jsonl", LABELS[1:])
    assert "has no label '31', which guided has a prediction for" in complaint()
    index = options.index("--base_url")
    del options[index : index + 2]
    assert "field 'base_url': asked an endpoint: name it with --base_url" in complaint()


def test_a_run_is_asked_as_its_judge_was(tmp_path):
    run = write_eval(tmp_path / "run", ZERO, {"31": 0.8}, revision="v2", base_url="endpoint", max_new_tokens=33)
    change(tmp_path / "run" / "run.json", model="judge@v2")
    (one,) = read_runs({"run": Path(run)}, Taxonomy.default(), "http://127.0.0.1:9/v1")
    spec = one.judge.spec
    assert (one.name, spec.model, spec.revision, spec.max_new_tokens) == ("run", "judge", "v2", 33)
    assert spec.base_url == "http://127.0.0.1:9/v1" and spec.max_pixels is None


# --- The prompt --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [("zero_shot", "score"), ("intuition", "score"), ("taxonomy", "score"), ("taxonomy", "attributes")],
)
def test_the_counterfactual_prompt_is_the_plain_one_and_one_paragraph(name, target):
    plain, changed = build(name, target), build(name, target, faces_anonymised=True)
    kept = changed.policy.split("\n\n")
    (added,) = [part for part in kept if part not in plain.policy.split("\n\n")]
    kept.remove(added)
    assert "\n\n".join(kept) == plain.policy and changed.question == plain.question
    assert "anonymised" in added and not any(char.isdigit() for char in added)  # no band, no score
    assert changed.digest != plain.digest
    assert changed.identity() == {**plain.identity(), "sha256": changed.digest, "faces_anonymised": True}
    assert "faces_anonymised" not in plain.identity()
