"""Runs of Weights & Biases: offline unless configured, read back from their file, and silent about the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wandb_file import find_run, read_run, read_table

from cprt.errors import InputError
from cprt.services.tracking import start_run

SCRIPT = """
import socket, sys
socket.gethostname = lambda: "host-of-somebody"
from cprt.services.tracking import log_table, start_run
run = start_run("privacy", "höhe 1", {"lr": 2e-5, "lora": {"r": 64}, "note": "x" * 70000}, sys.argv[1])
for step in range(1, 201):
    run.log({"loss": 1 / step, "eval": {"mae": 0.25}}, step=step)
log_table(run, "figures", ["run", "mae"], [["base", 0.5], ["tuned", None]])
run.summary["best"] = 0.5
run.finish()
"""


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a git checkout with a remote, by a user whose home and name could leak."""
    folder = tmp_path_factory.mktemp("checkout_of_somebody")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    remote = ["remote", "add", "origin", "https://example.org/somebody"]
    subprocess.run(["git", "-C", str(folder), *remote], check=True)
    (folder / "program_of_somebody.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"USER": "somebody", "LOGNAME": "somebody", "HOME": str(folder), "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "program_of_somebody.py", "out"], check=True, cwd=folder, env=environment)
    return folder / "out"


def test_what_was_logged_is_in_the_file(folder):
    path = find_run(folder)
    run = read_run(path)
    assert (run.project, run.name) == ("privacy", "höhe 1")
    # The note is longer than two blocks of the file.
    assert {name: value for name, value in run.config.items() if name != "_wandb"} == {
        "lr": 2e-5,
        "lora": {"r": 64},
        "note": "x" * 70000,
    }
    losses = [row for row in run.history if "loss" in row]
    assert [(row["_step"], row["loss"], row["eval"]["mae"]) for row in losses] == [
        (step, 1 / step, 0.25) for step in range(1, 201)
    ]
    assert run.summary["best"] == 0.5
    table = read_table(path, run.history[-1]["figures"])
    assert (table["columns"], table["data"]) == (["run", "mae"], [["base", 0.5], ["tuned", None]])


def test_nothing_of_machine_or_user_is_in_the_file(folder):
    path = find_run(folder)
    data = path.read_bytes()
    for secret in ("somebody", sys.executable, str(Path.home())):
        assert secret.encode() not in data, secret
    run = read_run(path)
    assert run.run.host == "" and not run.run.git.remote_url and not run.run.git.commit
    assert not {"artifact", "environment", "stats", "output", "output_raw"} & set(run.kinds)
    kept = [file.relative_to(path.parent) for file in (path.parent / "files").rglob("*") if file.is_file()]
    assert kept and all(file.parts[:3] == ("files", "media", "table") for file in kept)


def test_an_unknown_mode_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    with pytest.raises(InputError, match="WANDB_MODE='sometimes' is not one of online, offline"):
        start_run("privacy", "x", {}, tmp_path)


def test_a_server_that_is_not_there_gets_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    with pytest.raises(InputError, match="Weights & Biases: .*WANDB_MODE=offline") as caught:
        start_run("privacy", "run", {}, tmp_path)
    assert "0000" not in str(caught.value) and "\n" not in str(caught.value)


KILLED = """
import os, signal, sys, time
from cprt.services.tracking import start_run
run = start_run(None, "n", {}, sys.argv[1], resume="abcd1234")
for step in range(int(sys.argv[2]), int(sys.argv[3])):
    run.log({"loss": 1 / (step + 1)}, step=step, commit=True)
time.sleep(1)  # the time that a training step takes
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_keeps_its_steps_and_goes_on_as_one(tmp_path, root):
    """A file for each start, with one id and steps that go on; the user's variables name project, run and folder."""
    names = {
        "WANDB_PROJECT": "mine",
        "WANDB_NAME": "my run",
        "WANDB_DIR": str(tmp_path / "mine"),
        "WANDB_MODE": "dryrun",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"PYTHONPATH": str(root), "WANDB_MODE": "dryrun", **names}
    for first, end in ((0, 12), (8, 20)):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "other"), str(first), str(end)]
        assert subprocess.run(command, env=environment).returncode == -signal.SIGKILL
    runs = [read_run(path) for path in sorted((tmp_path / "mine").glob("wandb/offline-run-*/*.wandb"))]
    assert [(run.run.run_id, run.project, run.name) for run in runs] == [("abcd1234", "mine", "my run")] * 2
    assert [[row["_step"] for row in run.history] for run in runs] == [list(range(12)), list(range(8, 20))]
    assert not (tmp_path / "other").exists()


PROJECTS = """
import os, sys
from cprt.services.tracking import finish, start_run
for asked, environments in (("a", "b"), (None, "b"), (None, "")):
    os.environ["WANDB_PROJECT"] = environments
    print(finish(start_run(asked, "run", {}, os.path.join(sys.argv[1], f"{asked}-{environments}"))))
"""


def test_a_project_that_is_asked_for_wins_over_the_environments(tmp_path, root):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    command = [sys.executable, "-c", PROJECTS, str(tmp_path)]
    done = subprocess.run(
        command, env={**environment, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=True
    )
    places = [line.removeprefix("W&B: offline: ").partition(" (")[0] for line in done.stdout.splitlines()]
    for folder, place, project in zip(("a-b", "None-b", "None-"), places, ("a", "b", "cprt"), strict=True):
        path = find_run(tmp_path / folder)
        assert str(path.parent) == place and read_run(path).project == project
