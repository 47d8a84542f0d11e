"""A training run that is killed, at whatever moment, ends with the adapter of a run that was not, bit for bit."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

import train.sft
from cprt.config import run
from cprt.errors import InputError
from cprt.provenance import file_digest
from train.checkpoints import UNFINISHED, check_resume
from train.options import clear_output

# Forked from this process, so that a run need not import everything anew; a kill reaches it as it reaches any process.
fork = multiprocessing.get_context("fork")
STEPS = 6


class Runs:
    """Starts one recipe again and again, each time in a process of its own."""

    def __init__(self, demo, root: Path, folder: Path):
        self.demo, self.root, self.folder = demo, root, folder
        self.said = folder / "said.txt"

    def start(self, output: Path, *options: str, limit: int | None = None) -> multiprocessing.Process:
        words = [
            "train/sft.py",
            "--config",
            "configs/sft/demo.yaml",
            "--pairs",
            str(self.demo.short_pairs),
            "--images",
            str(self.demo.images),
            "--output_dir",
            str(output),
            "--max_steps",
            str(STEPS),
            "--global_batch_size",
            "4",
            "--per_device_train_batch_size",
            "2",
            "--save_strategy",
            "steps",
            "--save_steps",
            "1",
            "--save_total_limit",
            "2",
            "--eval_strategy",
            "no",
            "--overwrite",
            "false",
            *options,
        ]

        def child() -> None:
            said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.chdir(self.root)
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            sys.argv = words
            sys.stdout = sys.stderr = open(said, "w", closefd=False)  # noqa: SIM115 - the process ends with it
            run(train.sft.main, "train/sft.py")

        process = fork.Process(target=child)
        process.start()
        return process

    def finish(self, output: Path, *options: str, limit: int | None = None) -> tuple[int, str]:
        """Exit status and the last line."""
        process = self.start(output, *options, limit=limit)
        process.join()
        lines = self.said.read_text().strip().splitlines()
        return process.exitcode, lines[-1] if lines else ""


@pytest.fixture(scope="module")
def runs(demo, root, tmp_path_factory) -> Runs:
    return Runs(demo, root, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def whole(runs) -> Path:
    """The output of a run that nothing disturbed."""
    output = runs.folder / "whole"
    status, line = runs.finish(output)
    assert status == 0, line
    return output


def same_end(output: Path, whole: Path) -> bool:
    """The adapter, and the optimiser that would go on from it, equal byte for byte."""
    last = Path(f"checkpoint-{STEPS}") / "adapter_model.safetensors"
    return all(
        (output / name).read_bytes() == (whole / name).read_bytes()
        for name in (Path("adapter_model.safetensors"), last)
    )


def kill_when(process: multiprocessing.Process, moment) -> None:
    while not moment() and process.is_alive():
        time.sleep(0.0005)
    assert process.is_alive(), "the run ended before its moment came"
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_the_same_seed_gives_the_same_adapter(runs, whole):
    output = runs.folder / "again"
    assert runs.finish(output)[0] == 0
    assert same_end(output, whole)


@pytest.mark.slow
def test_evaluation_between_the_steps_changes_nothing(runs, whole):
    output = runs.folder / "asked"
    status, line = runs.finish(
        output, "--eval_strategy", "steps", "--eval_steps", "2", "--holdout_size", "3", "--max_new_tokens", "4"
    )
    assert status == 2 and "no answer on the hold-out holds a score" in line  # four tokens are too few
    assert same_end(output, whole)
    assert [json.loads(row)["step"] for row in (output / "learning.jsonl").read_text().splitlines()] == [2, 4, 6]


@pytest.mark.slow
def test_a_kill_while_a_checkpoint_is_written(runs, whole):
    """The half-written one is not taken for a checkpoint, the one before it is whole, and the end is the same."""
    output = runs.folder / "during"
    writing = output / UNFINISHED / "checkpoint-3"
    kill_when(runs.start(output), lambda: (writing / "optimizer.pt").exists())
    assert writing.is_dir() and not (output / "checkpoint-3").exists()
    status, line = runs.finish(output)
    assert status == 2 and "already holds checkpoint-2" in line and "--resume_from_checkpoint last" in line
    assert runs.finish(output, "--resume_from_checkpoint", "last")[0] == 0
    assert same_end(output, whole)
    assert not (output / UNFINISHED).exists()


def test_a_kill_between_checkpoints(runs, whole):
    output = runs.folder / "between"
    kill_when(runs.start(output), lambda: (output / "checkpoint-4").is_dir() and not (output / UNFINISHED).exists())
    assert runs.finish(output, "--resume_from_checkpoint", "last")[0] == 0
    assert same_end(output, whole)
    assert runs.finish(output, "--resume_from_checkpoint", "last")[0] == 0  # nothing is left to do
    assert same_end(output, whole)


@pytest.mark.slow
def test_photos_read_ahead_change_nothing(runs, whole):
    """By two processes until a kill, by one after it: the end is that of a run which reads between its steps."""
    output = runs.folder / "ahead"
    ahead = ("--dataloader_num_workers", "2")
    kill_when(runs.start(output, *ahead), lambda: (output / "checkpoint-4").is_dir())
    assert runs.finish(output, "--dataloader_num_workers", "1", "--resume_from_checkpoint", "last")[0] == 0
    assert same_end(output, whole)


@pytest.mark.slow
def test_a_kill_leaves_no_process_that_reads_ahead(runs):
    process = runs.start(runs.folder / "left", "--dataloader_num_workers", "2")
    known: list[psutil.Process] = []

    def under_way() -> bool:
        known[:] = psutil.Process(process.pid).children(recursive=True)
        return (runs.folder / "left" / "checkpoint-2").is_dir()

    kill_when(process, under_way)
    assert len(known) >= 3  # the server, and two that it has forked
    left = psutil.wait_procs(known, timeout=120)[1]
    for one in left:
        one.kill()
    assert left == []


@pytest.mark.slow
def test_photos_read_ahead_leave_dropout_and_the_next_epoch_alone(runs):
    """Three epochs of two steps."""
    epochs = ("--lora_dropout", "0.2", "--global_batch_size", "16")
    ends = []
    for name, *more in (("now",), ("early", "--dataloader_num_workers", "2")):
        assert runs.finish(runs.folder / name, *epochs, *more)[0] == 0
        ends.append((runs.folder / name / "adapter_model.safetensors").read_bytes())
    assert ends[0] == ends[1]


@pytest.mark.soak
def test_thirty_random_kills(runs, whole):
    """Killed at any moment, resumed, killed again: every chain of runs ends with the same bytes."""
    chance, kills = random.Random(0), 0
    while kills < 30:
        output = runs.folder / f"random-{kills}"
        while True:
            resume = ("--resume_from_checkpoint", "last") if list(output.glob("checkpoint-*")) else ()
            process = runs.start(output, *resume)
            process.join(chance.uniform(1, 8))
            if not process.is_alive():
                assert process.exitcode == 0, runs.said.read_text()
                break
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
        assert same_end(output, whole)
        shutil.rmtree(output)


@pytest.fixture
def stopped(runs, whole, tmp_path) -> Path:
    """The output of a run that was killed after its fifth step."""
    output = tmp_path / "stopped"
    shutil.copytree(whole / "checkpoint-5", output / "checkpoint-5")
    return output


@pytest.mark.parametrize(
    "options, reason",
    [
        ("--lora_r 32", "lora_r was 64 and is 32"),
        ("--learning_rate 1e-3 --seed 3", "seed was 0 and is 3; learning_rate was 0.002 and is 0.001"),
        ("--max_pixels 4096", "max_pixels was 9216 and is 4096"),
        ("--global_batch_size 8", "global_batch_size was 4 and is 8"),
        ("--max_steps 12", "max_steps was 6 and is 12"),
        ("--pairs {pairs}", "prompt was "),
        ("--model_name_or_path {base}", "base was "),
        ("--images {images}", "photos was "),
    ],
)
def test_another_recipe_is_not_resumed(runs, stopped, demo, demo_base, tmp_path, options, reason):
    """What differs is spelt out, and the checkpoint stays as it is."""
    base, images = tmp_path / "base", tmp_path / "images"
    shutil.copytree(demo_base, base)
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    shutil.copytree(demo.images, images)
    for photo in (images / "images" / "val2017").iterdir():
        with open(photo, "ab") as file:
            file.write(b"\0")
    options = options.format(pairs=demo.pairs, base=base, images=images).split()
    before = {path: path.read_bytes() for path in (stopped / "checkpoint-5").rglob("*")}
    status, line = runs.finish(stopped, "--resume_from_checkpoint", "last", *options)
    assert status == 2 and reason in line and "belongs to another run" in line, line
    assert before == {path: path.read_bytes() for path in (stopped / "checkpoint-5").rglob("*")}


@pytest.mark.parametrize("fault", ["cut", "gone", "no optimiser", "no record"])
def test_a_damaged_checkpoint_is_not_resumed(runs, stopped, fault):
    checkpoint = stopped / "checkpoint-5"
    if fault == "cut":
        data = (checkpoint / "adapter_model.safetensors").read_bytes()
        (checkpoint / "adapter_model.safetensors").write_bytes(data[: len(data) // 2])
    elif fault == "gone":
        (checkpoint / "optimizer.pt").unlink()
    elif fault == "no record":
        (checkpoint / "run.json").unlink()
    else:
        record = json.loads((checkpoint / "run.json").read_text())
        del record["files"]["optimizer.pt"]
        (checkpoint / "run.json").write_text(json.dumps(record))
    status, line = runs.finish(stopped, "--resume_from_checkpoint", str(checkpoint))
    assert status == 2
    assert {
        "cut": "adapter_model.safetensors is missing or damaged",
        "gone": "optimizer.pt is missing or damaged",
        "no optimiser": "holds no optimiser",
        "no record": "no run.json",
    }[fault] in line


def reseal(checkpoint: Path) -> dict:
    """Whoever tampers with a checkpoint can name the digests of what he wrote; returns the recipe in its record."""
    record = json.loads((checkpoint / "run.json").read_text())
    files = [path for path in checkpoint.iterdir() if path.name != "run.json"]
    record["files"] = {path.name: file_digest(path) for path in files}
    (checkpoint / "run.json").write_text(json.dumps(record))
    return record["recipe"]


STATE = [{"global_step": step} for step in ("x", None, -1, 0, 10**9, 1.5, True)]
STATE += [{"max_steps": "x"}, {"max_steps": None}, {"epoch": "x"}, {"epoch": None}, {"num_train_epochs": "x"}]
STATE += [
    {"log_history": "x"},
    {"log_history": [3]},
    {"stateful_callbacks": "x"},
    {"train_batch_size": "x"},
    {"odd": 1},
]


@pytest.mark.parametrize("change", ["[]", "null", '"x"', "{", "", "{}", *STATE], ids=str)
def test_a_hostile_state_is_one_line(stopped, change):
    checkpoint = stopped / "checkpoint-5"
    path = checkpoint / "trainer_state.json"
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=r"trainer_state\.json") as error:
        check_resume(checkpoint, reseal(checkpoint))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        "[]",
        "null",
        '"x"',
        "{",
        "",
        "{}",
        {"files": []},
        {"files": {"../../secret": "0"}},
        {"files": {"x": 1}},
        {"recipe": 3},
    ],
    ids=str,
)
def test_a_hostile_record_is_one_line(stopped, change):
    checkpoint = stopped / "checkpoint-5"
    (stopped.parent / "secret").write_text("")
    recipe, path = reseal(checkpoint), checkpoint / "run.json"
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError) as error:
        check_resume(checkpoint, recipe)
    assert "\n" not in str(error.value) and "checkpoint-5" in str(error.value)


class Evil:
    """Pickled, it runs a command where it is loaded."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
@pytest.mark.parametrize("content", ["pickle", "nothing", "another"])
def test_no_pickle_of_a_checkpoint_is_run(runs, stopped, tmp_path, name, content):
    checkpoint, mark = stopped / "checkpoint-5", tmp_path / "ran"
    torch.save({"pickle": Evil(mark), "another": {"no": "such thing"}, "nothing": None}[content], checkpoint / name)
    if content == "nothing":
        (checkpoint / name).write_bytes(b"")
    reseal(checkpoint)
    status, line = runs.finish(stopped, "--resume_from_checkpoint", "last")
    assert status == 2 and "checkpoint-5: cannot be loaded (" in line, line
    assert not mark.exists()


@pytest.mark.parametrize("change", ["other names", "one layer of four", "NaN"])
def test_another_adapter_in_a_checkpoint_is_not_resumed(runs, stopped, change):
    """PEFT passes over what does not fit: the run would go on from random weights."""
    path = stopped / "checkpoint-5" / "adapter_model.safetensors"
    weights = load_file(path)
    changed = {
        "other names": {name.replace("q_proj", "Q_proj"): weight for name, weight in weights.items()},
        "one layer of four": {name: weight for name, weight in weights.items() if ".layers.0." in name},
        "NaN": {name: weight * float("nan") for name, weight in weights.items()},
    }[change]
    save_file(changed, path)
    reseal(stopped / "checkpoint-5")
    status, line = runs.finish(stopped, "--resume_from_checkpoint", "last")
    assert status == 2 and "checkpoint-5: cannot be loaded (" in line, line


def test_a_full_disk_leaves_the_last_checkpoint(runs, stopped, whole):
    """Files above a size cannot be written, as on a full disk: one line, status 2, and what was there is whole."""
    before = (stopped / "checkpoint-5" / "optimizer.pt").read_bytes()
    status, _ = runs.finish(stopped, "--resume_from_checkpoint", "last", limit=100_000)
    said = runs.said.read_text()
    assert status == 2 and "checkpoint 6 cannot be written" in said and "earlier ones are whole" in said, said
    assert "Traceback" not in said
    assert (stopped / "checkpoint-5" / "optimizer.pt").read_bytes() == before
    assert not (stopped / "checkpoint-6").exists()
    assert runs.finish(stopped, "--resume_from_checkpoint", "last")[0] == 0
    assert same_end(stopped, whole)


def test_what_a_killed_run_replaces_does_not_pass_for_its_own(whole, tmp_path):
    """Nothing that evaluation or publishing would take is left of the run that was overwritten."""
    output = Path(shutil.copytree(whole, tmp_path / "out"))
    for name in ("learning.jsonl", "learning.png"):
        (output / name).touch()
    clear_output(output)
    assert {path.name for path in output.iterdir()} == {path.name for path in whole.iterdir()} - {
        *("adapter_model.safetensors", "adapter_config.json", "run.json", "README.md"),
        *(path.name for path in whole.glob("checkpoint-*")),
    }
