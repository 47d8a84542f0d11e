"""``cprt mi``: what judges are asked, and what comes out: a row of every query, its summary, the files."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ID, SETUP, configure, make
from judging import ANSWERS, judge, queries, results, rows, summary
from loopback import Misbehaving
from scipy.stats import binomtest

from cprt.answers.yes_no import LABELS, read_verdict
from cprt.errors import InputError
from cprt.metrics.bootstrap import ClusteredShare
from eval.model_inversion.judge.asked import summarise
from eval.model_inversion.judge.run import main

# --- What comes out ----------------------------------------------------------------------------------------------


def test_every_query_has_a_row_of_every_judge_with_its_raw_answer(undisturbed: Path):
    shown = queries(undisturbed)
    assert Counter(row["kind"] for row in shown) == {"reconstruction": 12, "positive": 6, "negative": 6}
    for name in ("one", "two"):
        text = (undisturbed / name / ID / "judge.csv").read_bytes().decode()
        assert text.startswith("filename,class,response,label\r\n") and text.endswith("\r\n")
        assert list(csv.reader(io.StringIO(text, newline="")))[1:] == [
            list(row.values()) for row in rows(undisturbed, name)
        ]
        found = {(row["class"], row["filename"]): row for row in rows(undisturbed, name)}
        assert set(found) == {(row["class"], row["file"]) for row in shown if row["kind"] == "reconstruction"}
        controls = rows(undisturbed, name, "controls.csv")
        assert [(row["kind"], row["class"], row["filename"]) for row in controls] == [
            (row["kind"], row["class"], row["file"]) for row in shown if row["kind"] != "reconstruction"
        ]
        for row in [*found.values(), *controls]:
            assert row["response"] in ANSWERS and row["label"] == read_verdict(row["response"])
    labels = [row["label"] for name in ("one", "two") for row in rows(undisturbed, name)]
    assert set(labels) == {"yes", "no", "refused", "unparsed"}


def test_the_summary_counts_the_rows(undisturbed: Path):
    for name in ("one", "two"):
        said = summary(undisturbed, name)
        counts = Counter(row["label"] for row in rows(undisturbed, name))
        assert said["counts"] == {label: counts[label] for label in LABELS} and said["n"] == 12
        assert said["attack_accuracy"] == counts["yes"] / 12
        assert said["ci"]["attack_accuracy"] == over_classes(rows(undisturbed, name))
        assert said["refusal_rate"] == counts["refused"] / 12
        assert said["answered_accuracy"] == counts["yes"] / (counts["yes"] + counts["no"])
        for kind, rate in (("positive", "hit_rate"), ("negative", "false_alarm_rate")):
            pairs = [row for row in rows(undisturbed, name, "controls.csv") if row["kind"] == kind]
            counts = Counter(row["label"] for row in pairs)
            control = said["controls"][kind]
            assert control["counts"] == {label: counts[label] for label in LABELS} and control["n"] == 6
            assert control[rate] == counts["yes"] / 6 and control["refusal_rate"] == counts["refused"] / 6
            assert control["ci"][rate] == over_classes(pairs)


def over_classes(found: list[dict[str, str]]) -> list[float] | None:
    """The interval of the share of yes."""
    classes = list(dict.fromkeys(row["class"] for row in found))
    said = [[row["label"] == "yes" for row in found if row["class"] == name] for name in classes]
    return ClusteredShare.of([sum(one) for one in said], [len(one) for one in said]).interval


def test_rates_without_rows_are_null_and_the_golden_counts_give_the_papers_accuracy():
    """CelebA, KEDMI, CelebA, FaceNet64 in the public notebook: yes to 986 of 1,500."""
    golden = [(str(number), "yes" if number < 986 else "no") for number in range(1500)]  # each of its own class
    figures = summarise({"reconstruction": golden, "positive": [], "negative": [("1", "error")] * 2}, 0)
    assert round(100 * figures["attack_accuracy"], 2) == 65.73
    wilson = [*binomtest(986, 1500).proportion_ci(method="wilson")]
    assert figures["ci"]["attack_accuracy"] == pytest.approx(wilson, abs=1e-4)
    assert figures["controls"]["positive"]["hit_rate"] is None
    assert figures["controls"]["positive"]["ci"]["hit_rate"] is None
    assert figures["controls"]["negative"]["false_alarm_rate"] == 0.0


def test_queries_say_what_was_shown(undisturbed: Path, setups: Path):
    root = Path(yaml.safe_load(setups.read_text())["root"])
    for row in queries(undisturbed):
        assert row["setup"] == ID and row["n"] == 4 == len(row["references"]) and row["layout"] == "panel"
        assert (row["seed"], row["order_seed"], row["a_first"], row["problem"]) == (0, None, True, None)
        assert all((root / path).is_file() for path in [row["path"], *row["references"]])
        assert row["path"].rsplit("/", 1)[-1] == row["file"].rsplit("/", 1)[-1]
        (panel,) = row["images"]
        assert (undisturbed / panel).is_file()
    record = json.loads((undisturbed / "run.json").read_text())
    assert (
        record["config"]["seed"] == 0 and record["inputs"]["setups"]["sha256"] and record["setups"][0]["name"] == SETUP
    )
    assert "127.0.0.1" not in json.dumps(record)
    (manifest,) = json.loads((undisturbed / "setups.json").read_text())
    assert manifest["target"] == "FaceNet64" and manifest["evaluation_accuracy"] is None


def test_a_second_run_asks_nothing_and_changes_nothing(setups: Path, undisturbed: Path, tmp_path: Path):
    shutil.copytree(undisturbed, tmp_path / "out")
    with Misbehaving(judge) as server:
        arguments = [*configure(tmp_path, setups, server.url, "one", "two", revision="1"), "--controls", "6"]
        main(arguments)  # an endpoint elsewhere counts as another model
        asked, kept = len(server.bodies), (tmp_path / "out" / "answers.jsonl").read_bytes()
        main(arguments)
        assert asked == 48 == len(server.bodies) and (tmp_path / "out" / "answers.jsonl").read_bytes() == kept
    assert results(tmp_path / "out", "one", "two") == results(undisturbed, "one", "two")


# --- What is asked -----------------------------------------------------------------------------------------------


def test_the_judge_is_shown_the_panel_and_told_what_to_allow_for(setups: Path, tmp_path: Path):
    with Misbehaving(judge) as server:
        main([*configure(tmp_path, setups, server.url, "one"), "--controls", "0", "--limit", "2"])
        (message,) = server.bodies[0]["messages"]
    text, image, question = message["content"]
    assert image["image_url"]["url"].startswith("data:image/jpeg;base64,")
    for word in ("age", "lighting", "hair", "glasses", "the same person"):
        assert word in text["text"]
    assert "the same person" in question["text"] and question["text"].endswith("yes or no.")
    assert not any(word in json.dumps(message) for word in ("KEDMI", "CelebA", "reconstruct", "attack", "ID="))


def test_a_dry_run_counts_the_calls_and_does_nothing(setups: Path, tmp_path: Path, capsys):
    with Misbehaving(judge) as server:
        arguments = [*configure(tmp_path, setups, server.url, "one", "two"), "--controls", "6"]
        main([*arguments, "--dry_run", "true"])
        assert server.bodies == [] and not (tmp_path / "out").exists()
        said = capsys.readouterr().out.splitlines()
        main(arguments)
        assert len(server.bodies) == 48
    assert said == [
        "one: at most 24 calls",
        "two: at most 24 calls",
        f"  {ID}: 12 reconstructions, 6 positive and 6 negative controls",
    ]


def test_many_calls_are_in_flight(setups: Path, tmp_path: Path):
    with Misbehaving(judge, delay=0.3) as server:
        main([*configure(tmp_path, setups, server.url, "one", concurrency=24), "--controls", "6"])
        assert server.most_in_flight >= 18


@pytest.mark.parametrize(
    ("change", "extra", "complaint"),
    [
        ({"models": []}, [], "models: the list is empty"),
        ({"models": [{"name": "a"}]}, [], "models[1]: field 'model': is missing"),
        ({"models": [{"name": "panels", "model": "m"}]}, [], "'panels' is the name of another file"),
        ({"models": [{"name": "a", "model": "m"}, {"name": "A", "model": "n"}]}, [], "'a' is there twice"),
        (
            {"models": [{"name": "a", "model": "m", "base_url": "https://api.example.com/v1"}]},
            [],
            "set --allow_remote true",
        ),
        ({}, ["--n", "6"], "n must be 1 to 5, not 6"),
        ({}, ["--n", "0"], "n must be 1 to 5, not 0"),
        ({}, ["--controls", "-1"], "controls must not be negative"),
        ({}, ["--retry", "error"], "retry: 'error' is not one of"),
        ({}, ["--only", "nobody"], "only: 'nobody' fits no set-up"),
        ({}, ["--setups", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_bad_options_get_one_line(
    setups: Path, tmp_path: Path, change: dict[str, Any], extra: list[str], complaint: str
):
    arguments = configure(tmp_path, setups, "http://127.0.0.1:1/v1", "one")
    content = yaml.safe_load((tmp_path / "mi.yaml").read_text()) | change
    (tmp_path / "mi.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError) as caught:
        main([*arguments, *extra])
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["gemini", "gpt", "qwen2_5_vl_72b", "local"])
def test_the_ready_configurations_run_as_soon_as_the_data_is_there(root: Path, tmp_path: Path, name: str, capsys):
    make(tmp_path)
    description = yaml.safe_load((root / "configs" / "mi" / "collection.yaml").read_text())
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(description | {"root": str(tmp_path / "root")}))
    main(
        [
            "--config",
            str(root / "configs" / "mi" / f"{name}.yaml"),
            "--setups",
            str(tmp_path / "all.yaml"),
            "--dry_run",
            "true",
            "--out",
            str(tmp_path / "out"),
        ]
    )
    assert "at most 75 calls" in capsys.readouterr().out  # 12 reconstructions, 21 positive and 42 negative pairs
    assert description["setups"]["CelebA"]["subject"] == "person"
