"""``cprt eval`` in several processes, and killed at random: every answer is kept once."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from evaluation import judge_like, options, rows, served, texts, with_models
from loopback import REFUSAL, Misbehaving, first_try_fails

from cprt.errors import InputError
from eval.run import main


@pytest.fixture
def shard(monkeypatch):
    """Runs one process's part in this process."""

    def run(arguments: list[str], rank: int, world: int) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("RANK", str(rank))
            patch.setenv("WORLD_SIZE", str(world))
            main(arguments)

    return run


@pytest.mark.slow
def test_several_processes_answer_a_part_each_and_the_last_writes(demo, tmp_path, shard, capsys):
    with Misbehaving(judge_like, delay=0.05) as server:
        alone = with_models(demo, tmp_path / "alone", [served(server.url, "one")], prompt=["zero_shot", "taxonomy"])
        main(alone)
        assert len(server.bodies) == 32
        parts = with_models(demo, tmp_path / "parts", [served(server.url, "one")], prompt=["zero_shot", "taxonomy"])
        out = tmp_path / "parts" / "out"
        shard(parts, 0, 2)
        assert "answers are still missing" in capsys.readouterr().out and not (out / "one-taxonomy").exists()
        shard(parts, 1, 2)
        for name in ("one-taxonomy", "one-zero_shot"):
            assert rows(out / name) == rows(tmp_path / "alone" / "out" / name)
        assert len(server.bodies) == 64
        stores = [out / f"answers.{rank}-of-2.jsonl" for rank in (0, 1)]
        counts = [len(store.read_text().splitlines()) for store in stores]
        assert sum(counts) == 32 and min(counts) > 5
        # One process, and another number of them, ask nothing that is kept.
        shutil.rmtree(out / "one-taxonomy")
        main(parts)
        for rank in range(3):
            shard(parts, rank, 3)
        assert len(server.bodies) == 64 and rows(out / "one-taxonomy") == rows(tmp_path / "alone/out/one-taxonomy")


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, 2])
def test_accelerate_launch_shards_a_local_model_with_the_answers_of_one_process(
    demo, demo_base, evaluated, tmp_path, root, machines: int
):
    """Two processes of one machine, and one on each of two, as docs/evaluating.md starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    launch += ["--config_file", "configs/accelerate/multi_gpu.yaml"]
    running = []
    for rank in range(machines):
        place = ["--num_machines", str(machines), "--machine_rank", str(rank), "--num_processes", "2"]
        place += ["--main_process_ip", "127.0.0.1", "--main_process_port", port]
        command = [*launch, *place, "-m", "eval.run", *options(demo, demo_base, tmp_path)]
        running.append(subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for process in running:
        said, _ = process.communicate(timeout=850)
        assert process.returncode == 0, said[-2000:]
    assert texts(tmp_path) == texts(evaluated)
    assert {path.name for path in tmp_path.glob("answers*")} == {f"answers.{rank}-of-2.jsonl" for rank in (0, 1)}


def test_a_refusal_asked_again_by_another_process_gives_way_to_its_answer(demo, tmp_path, shard):
    refusing = True

    def judge(body: dict[str, Any]) -> tuple[str, str]:
        return (REFUSAL, "stop") if refusing else ('{"score": 0.5}', "stop")

    with Misbehaving(judge) as server:
        arguments = with_models(demo, tmp_path, [served(server.url, "one")], limit=4)
        for rank in (0, 1):
            shard(arguments, rank, 2)
        refusing = False
        main([*arguments, "--retry", "refused"])
        assert {row["status"] for row in rows(tmp_path / "out")} == {"ok"}
        for rank in (0, 1):
            shard(arguments, rank, 2)
    assert {row["status"] for row in rows(tmp_path / "out")} == {"ok"} and len(server.bodies) == 8


@pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("x", "2"), ("-1", "2"), ("0", "")])
def test_an_odd_environment_is_one_line(demo, tmp_path, monkeypatch, rank, world):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(InputError, match="RANK=.* and WORLD_SIZE=.* in the environment do not fit together"):
        main(with_models(demo, tmp_path, [served("http://127.0.0.1:1/v1", "one")]))


# --- Kills ---------------------------------------------------------------------------------------------------------


def kill_at_random(command: list[str], out: Path, answers: int, kills: int, seed: int) -> None:
    """Start the command and kill it after a random number of kept answers, again and again; then let it end."""
    rng = random.Random(seed)
    kept = out / "answers.jsonl"
    for target in sorted(rng.choices(range(answers - 2), k=kills)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < target):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "ended before the kill: it proves nothing"
    subprocess.run(command, check=True, capture_output=True)
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines() if '"error"' not in line]
    assert len(keys) == len(set(keys)) == answers
    assert not [path for path in out.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_random_kills_lose_and_double_nothing(demo, tmp_path, kills):
    """Killed at any moment, amid faults too, and run again, the predictions are those of an undisturbed run."""
    with Misbehaving(judge_like) as server:
        main(with_models(demo, tmp_path / "calm", [served(server.url, "one")], prompt=["zero_shot", "taxonomy"]))
    with Misbehaving(judge_like, first_try_fails, delay=0.05, stall=20) as server:
        model = served(server.url, "one", timeout=2, retries=12, concurrency=2)
        arguments = with_models(demo, tmp_path / "killed", [model], prompt=["zero_shot", "taxonomy"])
        command = [sys.executable, "-m", "eval.run", *arguments]
        kill_at_random(command, tmp_path / "killed" / "out", 32, kills, seed=kills)
    for name in ("one-zero_shot", "one-taxonomy"):
        assert rows(tmp_path / "killed" / "out" / name) == rows(tmp_path / "calm" / "out" / name)


@pytest.mark.soak
def test_random_kills_of_a_local_model_change_no_answer(demo, demo_base, evaluated, tmp_path):
    command = [sys.executable, "-m", "eval.run", *options(demo, demo_base, tmp_path, "--batch_size", "1")]
    kill_at_random(command, tmp_path, 16, 5, seed=0)
    assert texts(tmp_path) == texts(evaluated)
