"""Runs of Weights & Biases: offline unless configured, read back from their file, and silent about the machine."""

from __future__ import annotations

import os
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
