"""``make demo`` as a newcomer runs it: every command for real, and a tuned model that has learnt the task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

FIGURES = {"n", "coverage", "pearson", "spearman", "mae", "bias", "level_accuracy", "inter_level_accuracy",
           "intra_level_accuracy", "status_counts"}  # fmt: skip


@pytest.fixture(scope="module")
def outputs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the demo leaves, run in a folder that sees the repository's files."""
    folder = tmp_path_factory.mktemp("demo")
    for name in ("assets", "configs", "train"):
        (folder / name).symlink_to(root / name)
    done = subprocess.run([sys.executable, "-m", "eval.demo"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    out = folder / "outputs" / "demo"
    (out / "said.txt").write_text(done.stdout)
    return out


def test_the_tuned_model_has_learnt_what_the_base_does_not_know(outputs: Path):
    summary = json.loads((outputs / "summary.json").read_text())
    base, tuned = summary["base"], summary["tuned"]
    assert base.keys() >= FIGURES and tuned.keys() >= FIGURES
    assert base["n"] == tuned["n"] >= 300
    assert base["spearman"] is None or base["spearman"] <= 0.3
    assert tuned["spearman"] >= 0.9
    assert tuned["mae"] <= 0.06
    assert tuned["coverage"] >= 0.98
    assert summary["seconds"] > 0


def test_the_held_out_drawings_share_no_seed_with_training(outputs: Path):
    trained = {json.loads(line)["id"] for line in (outputs / "pairs" / "train.jsonl").read_text().splitlines()}
    asked = {json.loads(line)["id"] for line in (outputs / "tuned" / "predictions.jsonl").read_text().splitlines()}
    assert trained and asked and not trained & asked
    photos = [path.read_bytes() for path in (outputs / "data" / "images").rglob("*.jpg")]
    assert len(set(photos)) == len(photos)


def test_what_is_printed_is_what_a_user_would_type_and_where_things_lie(outputs: Path):
    said = (outputs / "said.txt").read_text()
    assert "$ accelerate launch train/sft.py --config configs/sft/demo.yaml\n" in said
    assert "Spearman" in said and 'the loss is taken on:\n  \'{"attributes": [' in said
    for name in ("scores.png", "summary.json", "tuned/predictions.jsonl", "adapter", "data"):
        assert f"outputs/demo/{name}" in said and (outputs / name).exists()
    with Image.open(outputs / "scores.png") as picture:
        assert picture.format == "PNG" and picture.width > 800


def test_nothing_of_the_machine_is_recorded(outputs: Path):
    for record in outputs.rglob("*run.json"):
        text = record.read_text()
        assert os.uname().nodename not in text and str(Path.home()) not in text, record
    assert not list(outputs.rglob("*.bin"))


def test_a_second_demo_reuses_what_is_kept(outputs: Path):
    """The same commands again: the answers of the base are kept, so its evaluation asks nothing."""
    before = (outputs / "base" / "answers.jsonl").read_bytes()
    command = [sys.executable, "-m", "eval.run", "--config", "configs/eval/demo.yaml", "--out", "outputs/demo/base"]
    done = subprocess.run(command, cwd=outputs.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (outputs / "base" / "answers.jsonl").read_bytes() == before
