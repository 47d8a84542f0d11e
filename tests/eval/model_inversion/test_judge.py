"""``cprt mi``: every answer kept apart and once, whatever happens."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from collection import ID, SETUP, configure, describe, make
from loopback import Misbehaving, first_try_fails, identity, transformers_serve
from PIL import Image, ImageFilter
from scipy.stats import binomtest

from cprt.answers.yes_no import LABELS, read_verdict, yes_probability
from cprt.errors import InputError
from cprt.images import load_image
from cprt.metrics.bootstrap import ClusteredShare
from cprt.models.ask import answer_batch
from cprt.models.local import LocalModel
from cprt.models.response_cache import read_cache
from cprt.models.spec import Request, Response
from eval.model_inversion.judge.asked import summarise
from eval.model_inversion.judge.degrade import sharpness
from eval.model_inversion.judge.drawing import GAP, TILE
from eval.model_inversion.judge.prompts import OURS, SUBJECTS
from eval.model_inversion.judge.run import main

ANSWERS = (
    "Yes",
    "yes ",
    "No, they are not the same individual.",
    "no.",
    "I cannot answer yes or no.",
    "yes, and no",
    'Yes, "he" is,\nas far as I see',
)
FILES = ("judge.csv", "controls.csv", "summary.json")


def judge(body: dict[str, Any]) -> tuple[str, str]:
    """A judge whose every answer follows from what it is shown."""
    digest = hashlib.sha256(f"{identity(body)} {body['model']}".encode()).digest()
    return ANSWERS[digest[0] % len(ANSWERS)], "stop"


def rows(out: Path, name: str, file: str = "judge.csv", id: str = ID) -> list[dict[str, str]]:
    with open(out / name / id / file, newline="") as stream:
        return list(csv.DictReader(stream))


def summary(out: Path, name: str, id: str = ID) -> dict[str, Any]:
    return json.loads((out / name / id / "summary.json").read_text())


def queries(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "queries.jsonl").read_text().splitlines()]


def results(out: Path, *names: str) -> list[bytes]:
    return [
        (out / "queries.jsonl").read_bytes(),
        *((out / name / ID / file).read_bytes() for name in names for file in FILES),
    ]


@pytest.fixture(scope="module")
def setups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    return describe(folder, make(folder))


@pytest.fixture(scope="module")
def undisturbed(setups: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two judges say when nothing goes wrong: 12 reconstructions and 12 controls."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Misbehaving(judge) as server:
        main([*configure(folder, setups, server.url, "one", "two"), "--controls", "6"])
        assert max(server.answered.values()) == 2  # once for each judge
    return folder / "out"


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


def test_faults_3_and_5_and_6_every_label_stays_apart_and_in_the_denominator(setups: Path, tmp_path: Path):
    """ "yes " counted as no, "I cannot answer yes or no" as yes, "No, ..." as refused, and errors shrank the sum."""
    texts = iter(["yes ", "YES", "I cannot answer yes or no.", "No, they are not the same individual.", "hm"] * 9)

    def turns(body: dict[str, Any]) -> Any:
        text = next(texts)
        return (400, {"error": {"message": "bad image"}}) if text == "hm" else (text, "stop")

    with Misbehaving(turns) as server:
        main([*configure(tmp_path, setups, server.url, "one", concurrency=1), "--controls", "0", "--limit", "10"])
    said = summary(tmp_path / "out", "one")
    assert said["counts"] == {"yes": 4, "no": 2, "refused": 2, "unparsed": 0, "error": 2} and said["n"] == 10
    assert said["attack_accuracy"] == 0.4 and said["answered"] == 6
    errors = [row for row in rows(tmp_path / "out", "one") if row["label"] == "error"]
    assert [row["response"] for row in errors] == ["", ""]
    assert [row["reason"] for row in said["problems"]] == ["HTTP 400: bad image"] * 2
    assert {row["label"]: row["response"] for row in rows(tmp_path / "out", "one")}["refused"] == (
        "I cannot answer yes or no."
    )


def test_fault_7_equal_names_and_equal_bytes_in_other_classes_never_mix(tmp_path: Path):
    """Resuming by file name alone skipped them."""
    root = make(tmp_path)
    images = next(root.rglob("all-images"))
    for number, folder in enumerate(sorted(images.iterdir())):
        for path in folder.iterdir():
            path.unlink()
        shutil.copy(next((root / "AttackSamples/CelebA/private-data" / str(number)).iterdir()), folder / "image.png")
        shutil.copy(root / "AttackSamples/CelebA/private-data/0/000.png", folder / "same.png")
    with Misbehaving(judge) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "0"]
        main([*arguments, "--limit", "1"])
        main(arguments)
        found = {(row["class"], row["filename"]): row["response"] for row in rows(tmp_path / "out", "one")}
        assert len(found) == 6 == len(server.bodies)
    keys = [json.loads(line)["key"] for line in (tmp_path / "out" / "answers.jsonl").read_text().splitlines()]
    assert len(set(keys)) == 6


def test_setups_are_judged_together_and_share_their_controls(tmp_path: Path):
    root = make(tmp_path)
    base = root / "AttackSamples" / "CelebA"
    shutil.copytree(base / "KEDMI", base / "PPA")
    with Misbehaving(judge) as server:
        main([*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "6"])
        assert len(server.bodies) == 12 + 12 + 12
    ids = (ID, "celeba_ppa_ffhq_facenet64")
    first, second = (rows(tmp_path / "out", "one", "controls.csv", id) for id in ids)
    assert first == second and len(first) == 12
    assert rows(tmp_path / "out", "one", id=ids[0]) != rows(tmp_path / "out", "one", id=ids[1])
    with Misbehaving(judge) as server:
        main([*configure(tmp_path / "only", describe(tmp_path, root), server.url, "one"), "--only", "CelebA/PPA"])
        assert not (tmp_path / "only" / "out" / "one" / ID).exists()


def test_logprobs_give_the_probability_of_yes(setups: Path, tmp_path: Path):
    def sure(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert body["logprobs"] is True and body["top_logprobs"] == 5
        alternatives = [
            {"token": token, "logprob": value} for token, value in (("Yes", -0.5), (" yes", -3.0), ("No", -1.2))
        ]
        content = [{"token": "Yes", "logprob": -0.5, "top_logprobs": alternatives}]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes"},
            "finish_reason": "stop",
            "logprobs": {"content": content},
        }
        return 200, {"id": "x", "model": "m", "choices": [choice]}

    with Misbehaving(sure) as server:
        main([*configure(tmp_path, setups, server.url, "one", top_logprobs=5), "--controls", "2"])
    found = rows(tmp_path / "out", "one", "probabilities.csv")
    assert len(found) == 12 + 4 and {row["kind"] for row in found} == {"reconstruction", "positive", "negative"}
    yes, no = 2.718281828459045**-0.5 + 2.718281828459045**-3, 2.718281828459045**-1.2
    for row in found:
        assert float(row["p_yes"]) == pytest.approx(yes / (yes + no))
        assert float(row["missing_mass"]) == pytest.approx(1 - yes - no)


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


def test_refused_and_unparsed_are_asked_again_only_when_told(setups: Path, undisturbed: Path, tmp_path: Path):
    better = False

    def learns(body: dict[str, Any]) -> tuple[str, str]:
        text, finish = judge(body)
        return ("no" if better and read_verdict(text) in ("refused", "unparsed") else text), finish

    with Misbehaving(learns) as server:
        arguments = [*configure(tmp_path, setups, server.url, "one"), "--controls", "0"]
        main(arguments)
        first, better = rows(tmp_path / "out", "one"), True
        for retry in (["refused"], ["unparsed"]):
            before, label = len(server.bodies), retry[0]
            main([*arguments, "--retry", *retry])
            assert len(server.bodies) - before == sum(row["label"] == label for row in first) > 0
    for old, new in zip(first, rows(tmp_path / "out", "one"), strict=True):
        assert new == old if old["label"] in ("yes", "no") else new["label"] == "no"


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


# --- What goes wrong ---------------------------------------------------------------------------------------------


def process(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "eval.model_inversion.judge.run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


def test_a_class_without_references_is_a_reported_row_and_none_at_all_is_status_2(tmp_path: Path):
    root = make(tmp_path)
    private = root / "AttackSamples" / "CelebA" / "private-data"
    shutil.rmtree(private / "1")
    with Misbehaving(judge) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "0"]
        main(arguments)
        said = summary(tmp_path / "out", "one")
        assert (said["n"], said["not_shown"], said["counts"]["error"]) == (8, 4, 0) and len(server.bodies) == 8
        assert {row["reason"] for row in said["problems"]} == {"class '1' has 0 usable references, 4 are needed"}
        for number in ("0", "2"):
            for path in [*(private / number).iterdir()][3:]:
                path.unlink()
        run = process(arguments)
        _, err = run.communicate()
        assert run.returncode == 2 and len(server.bodies) == 8
        line = err.splitlines()[-1]
        assert line.startswith(f"cprt mi: error: {SETUP}: none of its 12 reconstructions can be shown (the first: ")
        assert "class '0' has 3 usable references, 4 are needed" in line and "Traceback" not in err


def test_degraded_controls_show_the_same_pairs_with_a_blurred(tmp_path: Path):
    root = make(tmp_path)
    for path in root.glob("AttackSamples/**/all-images/*/*.png"):  # reconstructions are smoother than references
        with Image.open(path) as image:
            image.filter(ImageFilter.GaussianBlur(3)).save(path)
    with Misbehaving(lambda body: ("yes", "stop")) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "5"]
        main([*arguments, "--degraded", "true"])
        asked = len(server.bodies)
        main([*arguments, "--degraded", "false"])  # the others are kept
        assert asked == 12 + 20 and len(server.bodies) == asked
        assert Counter(row["kind"] for row in rows(tmp_path / "out", "one", "controls.csv")).total() == 10
        main([*arguments, "--degraded", "true"])
        assert len(server.bodies) == asked
    out = tmp_path / "out"
    counts = Counter(row["kind"] for row in rows(out, "one", "controls.csv"))
    assert counts == dict.fromkeys(("positive", "negative", "positive_degraded", "negative_degraded"), 5)
    assert summary(out, "one")["controls"]["positive_degraded"]["hit_rate"] == 1.0
    shown = {(row["kind"], row["class"], row["file"]): row for row in queries(out)}
    for (kind, claims, file), row in shown.items():
        if kind.endswith("_degraded"):
            clean = shown[kind.removesuffix("_degraded"), claims, file]
            assert row["references"] == clean["references"] and row["blur"] > 1 and clean["blur"] == 0
            with Image.open(out / row["images"][0]) as soft, Image.open(out / clean["images"][0]) as hard:
                a, b = (0, 0, TILE, TILE), (TILE + GAP, 0, hard.width, TILE)
                assert sharpness(soft.crop(a)) < 0.7 * sharpness(hard.crop(a))
                assert np.abs(np.asarray(soft.crop(b), int) - np.asarray(hard.crop(b), int)).max() < 40


@pytest.mark.parametrize("pad", [False, True])
def test_classes_with_few_references_cost_no_rate(tmp_path: Path, pad: bool):
    """A judge that always says yes: its hit rate is 1, with n = 1 as with n = 4, and padded or not."""
    root = make(tmp_path)
    for number in ("0", "1"):
        for path in sorted((root / "AttackSamples" / "CelebA" / "private-data" / number).iterdir())[2:]:
            path.unlink()
    with Misbehaving(lambda body: ("yes", "stop")) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--pad", str(pad)]
        for n in ("1", "4"):
            main([*arguments, "--n", n, "--controls", "6"])
            said, shown = summary(tmp_path / "out", "one"), 12 if pad or n == "1" else 4
            controls = said["controls"]
            assert (said["n"], said["not_shown"], said["attack_accuracy"]) == (shown, 12 - shown, 1.0)
            assert (controls["positive"]["n"], controls["positive"]["not_shown"]) == (6, 0)
            assert controls["positive"]["hit_rate"] == controls["negative"]["false_alarm_rate"] == 1.0
            labels = Counter(row["label"] for row in rows(tmp_path / "out", "one"))
            assert labels == Counter(yes=shown) + Counter(not_shown=12 - shown)
    for row in queries(tmp_path / "out"):
        if row["problem"] is None:
            repeated = row["class"] != "2"
            of_class = [path for path in row["references"] if f"/{row['class']}/" in path]
            assert len(of_class) == 4 and len(set(of_class)) == ((2 - (row["kind"] == "positive")) if repeated else 4)


def test_an_endpoint_that_always_fails_gives_only_errors_and_no_success(setups: Path, tmp_path: Path, capsys):
    for limit, complaint in (("4", "every query ended in an error"), ("12", "one: the endpoint keeps failing")):
        with Misbehaving(judge, lambda who, earlier: "500") as server, pytest.raises(InputError, match=complaint):
            main(
                [
                    *configure(tmp_path / limit, setups, server.url, "one", "two", retries=0),
                    "--limit",
                    limit,
                    "--controls",
                    "0" if limit == "4" else "9",
                ]
            )
        assert (": attack accuracy - of 4 (0 yes, " in capsys.readouterr().out) is (limit == "4")
        for name in ("one", "two"):
            said = summary(tmp_path / limit / "out", name)
            assert said["counts"]["error"] == said["n"] == int(limit) and said["attack_accuracy"] == 0.0
            assert said["answered_accuracy"] is None


@pytest.mark.slow
def test_through_every_fault_the_rows_are_the_same(setups: Path, undisturbed: Path, tmp_path: Path):
    with Misbehaving(judge, first_try_fails, stall=20) as server:
        main([*configure(tmp_path, setups, server.url, "one", "two", timeout=2, retries=12), "--controls", "6"])
        assert len(server.faulted) >= 5
    assert results(tmp_path / "out", "one", "two") == results(undisturbed, "one", "two")


def test_two_runs_at_once_do_not_write_to_one_folder(setups: Path, tmp_path: Path):
    with Misbehaving(judge, delay=1.0) as server:
        arguments = [*configure(tmp_path, setups, server.url, "one", concurrency=1), "--controls", "0"]
        first = process([*arguments, "--limit", "3"])
        while not server.bodies:
            time.sleep(0.01)
        with pytest.raises(InputError, match="another run is writing here"):
            main(arguments)
        first.communicate()
        assert first.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_random_kills_lose_and_double_nothing(setups: Path, undisturbed: Path, tmp_path: Path, kills: int):
    """Killed at any moment, amid faults too, and run again, the rows are exactly those of an undisturbed run."""
    rng = random.Random(kills)
    concurrency, out = 4, tmp_path / "out"

    def kept() -> int:
        cache = out / "answers.jsonl"
        return cache.read_bytes().count(b"\n") if cache.exists() else 0

    with Misbehaving(judge, first_try_fails, delay=0.03, stall=20) as server:
        arguments = [
            *configure(tmp_path, setups, server.url, "one", "two", timeout=2, retries=12, concurrency=concurrency),
            "--controls",
            "6",
        ]
        for target in sorted(rng.choices(range(0, 45), k=kills)):
            run = process(arguments)
            while run.poll() is None and kept() < target:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.05))
            run.send_signal(signal.SIGKILL)
            run.communicate()
            assert run.returncode == -signal.SIGKILL, "ended before the kill: it proves nothing"
        main(arguments)
        answered = sum(server.answered.values())
    assert results(out, "one", "two") == results(undisturbed, "one", "two")
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    good = [line["key"] for line in lines if "error" not in line["answer"]]
    assert len(good) == len(set(good)) == 48
    assert 48 <= answered <= 48 + (kills + 1) * 3 * concurrency
    assert not list(out.rglob("*.partial")) and not list((out / "panels" / "unfinished").iterdir())


# --- Real models -------------------------------------------------------------------------------------------------


def judge_with(models: list[dict[str, Any]], folder: Path, layout: str) -> list[list[str]]:
    """Raw answers of each judge to the four reconstructions and two control pairs of a small collection."""
    file = describe(folder, make(folder, classes=2, images=2))
    (folder / "mi.yaml").write_text(yaml.safe_dump({"models": models, "setups": str(file)}))
    out = folder / layout
    main(["--config", str(folder / "mi.yaml"), "--out", str(out), "--controls", "1", "--layout", layout, "--n", "2"])
    files = ("judge.csv", "controls.csv")
    return [[row["response"] for file in files for row in rows(out, model["name"], file)] for model in models]


@pytest.mark.parametrize("layout", ["panel", "separate"])
def test_a_local_model_judges_in_batches_as_one_by_one(demo_base: Path, tmp_path: Path, layout: str):
    """The tiny model knows nothing of the task: its words show that it saw the pictures."""
    (said,) = judge_with([here(demo_base)], tmp_path, layout)
    model = LocalModel(str(demo_base), dtype="float32", max_pixels=9216)
    for row, text in zip(queries(tmp_path / layout), said, strict=True):
        request = Request(
            OURS.messages(SUBJECTS["person"], False, layout, 2, True),
            tuple(tmp_path / layout / image for image in row["images"]),
        )
        ((_, response),) = answer_batch(model, [("key", request, [load_image(path) for path in request.images])], 8)
        assert response.text == text != ""
    assert len(said) == 6


def test_a_local_model_says_how_sure_it_is(demo_base: Path, tmp_path: Path):
    """With all alternatives listed nothing is missing but what is neither yes nor no."""
    judge_with([here(demo_base) | {"top_logprobs": 10**6}], tmp_path, "panel")
    sure = rows(tmp_path / "panel", "here", "probabilities.csv")
    kept = [Response.read(row) for row in read_cache(tmp_path / "panel" / "answers.jsonl").values()]
    expected = [yes_probability(response.logprobs) for response in kept]
    assert len(sure) == len(expected) == 6
    assert sorted(float(row["yes_mass"]) for row in sure) == sorted(row["yes_mass"] for row in expected)
    for row in sure:
        assert float(row["yes_mass"]) > 0
        assert sum(float(row[name]) for name in ("yes_mass", "no_mass", "missing_mass")) == pytest.approx(1)


@pytest.mark.soak
def test_a_real_server_and_the_same_model_here_say_the_same(demo_base: Path, tmp_path: Path):
    with transformers_serve([demo_base], tmp_path) as urls:
        # The server's own processor shrinks the pictures, to as many pixels.
        there = here(demo_base) | {
            "name": "served",
            "base_url": urls[demo_base],
            "max_pixels": None,
            "image_format": "png",
            "concurrency": 2,
        }
        del there["dtype"]
        for layout in ("panel", "separate"):
            served, local = judge_with([there, here(demo_base)], tmp_path, layout)
            assert len(served) == 6 and served == local and all(served)


def here(model: Path) -> dict[str, Any]:
    return {"name": "here", "model": str(model), "max_pixels": 9216, "dtype": "float32", "max_new_tokens": 8}
