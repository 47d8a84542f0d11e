"""``make demo`` as a newcomer runs it: every command for real, and a tuned model that has learnt the task."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from loopback import transformers_serve
from PIL import Image

import eval.run
from cprt.models.local import LocalModel
from cprt.records import read_predictions

pytestmark = pytest.mark.slow

FIGURES = {
    "n",
    "coverage",
    "pearson",
    "spearman",
    "mae",
    "bias",
    "level_accuracy",
    "inter_level_accuracy",
    "intra_level_accuracy",
    "status_counts",
}


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
    assert base["coverage"] == tuned["coverage"] == 1
    assert base["spearman"] is None or base["spearman"] <= 0.3
    assert tuned["spearman"] >= 0.9
    assert tuned["mae"] <= 0.06
    base_lists, lists = base["decodings"]["level_mean"], tuned["decodings"]["level_mean"]
    assert 0.15 < base_lists["spearman"] < 0.5 and base_lists["ci"]["spearman"][0] > 0  # mediocre, and not mute
    assert lists["spearman"] >= 0.9 and lists["mae"] < tuned["mae"]
    assert lists["level_accuracy"] > base_lists["level_accuracy"] + 0.3
    assert summary["seconds"] > 0


def test_the_held_out_drawings_share_no_seed_with_training(outputs: Path):
    trained = {json.loads(line)["id"] for line in (outputs / "pairs" / "train.jsonl").read_text().splitlines()}
    asked = {json.loads(line)["id"] for line in (outputs / "tuned" / "predictions.jsonl").read_text().splitlines()}
    assert trained and asked and not trained & asked
    photos = [path.read_bytes() for path in (outputs / "data" / "images").rglob("*.jpg")]
    assert len(set(photos)) == len(photos)


def test_what_is_printed_is_what_a_user_would_type_and_where_things_lie(outputs: Path):
    said = (outputs / "said.txt").read_text()
    assert "$ accelerate launch --config_file configs/accelerate/one_gpu.yaml train/sft.py --config" in said
    assert "--num_processes 2 -m eval.run --config configs/eval/demo.yaml --out outputs/demo/tuned" in said
    assert re.search(r"Tuned against base, over lists: Spearman \+0\.[3-8]\d\d \[0\.", said)
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


def test_the_adapter_gives_the_same_scores_through_transformers_merged_and_served(
    outputs: Path, demo_base: Path, tmp_path: Path
):
    adapter, merged = outputs / "adapter", tmp_path / "merged"
    shutil.copytree(demo_base, merged)
    LocalModel(str(demo_base), str(adapter), dtype="float32").model.merge_and_unload().save_pretrained(merged)
    common = {"max_new_tokens": 96, "max_pixels": 9216}
    local = {**common, "dtype": "float32"}
    with transformers_serve([merged], tmp_path) as urls:
        models = [
            {"name": "adapter", "model": str(demo_base), "adapter": str(adapter), **local},
            {"name": "merged", "model": str(merged), **local},
            {
                "name": "served",
                "model": str(merged),
                "base_url": urls[merged],
                "image_format": "png",
                "concurrency": 2,
                **common,
            },
        ]
        options = {
            "models": models,
            "labels": str(outputs / "test.jsonl"),
            "images": str(outputs / "data"),
            "out": str(tmp_path / "out"),
            "target": "attributes",
            "decoding": "expected",
            "limit": 16,
        }
        (tmp_path / "eval.yaml").write_text(yaml.safe_dump(options))
        eval.run.main(["--config", str(tmp_path / "eval.yaml")])
    found = {
        name: read_predictions(tmp_path / "out" / name / "predictions.jsonl")
        for name in ("adapter", "merged", "served")
    }
    scores, texts = (
        {name: [getattr(row, column) for row in rows] for name, rows in found.items()} for column in ("score", "text")
    )
    assert scores["adapter"] == scores["merged"] == scores["served"]
    assert texts["adapter"] == texts["merged"] == texts["served"]
    assert None not in scores["served"] and len(set(scores["served"])) > 8
    for column in ("expected_score", "label_mass"):  # `transformers serve` gives no probabilities
        one, other = ([getattr(row, column) for row in found[name]] for name in ("adapter", "merged"))
        assert one == pytest.approx(other, rel=1e-3) and None not in one


def test_a_second_demo_reuses_what_is_kept(outputs: Path):
    """The same commands again: the answers of the base are kept, so its evaluation asks nothing."""
    before = (outputs / "base" / "answers.jsonl").read_bytes()
    command = [sys.executable, "-m", "eval.run", "--config", "configs/eval/demo.yaml", "--out", "outputs/demo/base"]
    done = subprocess.run(command, cwd=outputs.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (outputs / "base" / "answers.jsonl").read_bytes() == before
