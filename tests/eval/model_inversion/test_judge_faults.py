"""``cprt mi``: every answer kept apart and once, whatever happens: faults, refusals, kills, two runs at once."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from collection import configure, describe, make
from judging import judge, process, results, rows, summary
from loopback import Misbehaving, first_try_fails

from cprt.answers.yes_no import read_verdict
from cprt.errors import InputError
from eval.model_inversion.judge.run import main


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
