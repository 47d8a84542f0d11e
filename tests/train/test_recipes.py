"""Every recipe holds the paper's values, and a tiny model of the same family trains through it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trl import ModelConfig, SFTConfig

import train.sft
from cprt.config import parse
from cprt.errors import InputError
from train.loading.workers import settle_workers
from train.options import DataArguments, settle

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "configs" / "sft").rglob("*.yaml"))
PAPERS = [recipe for recipe in RECIPES if recipe.name != "demo.yaml"]


def read(recipe: Path) -> tuple[DataArguments, ModelConfig, SFTConfig]:
    # Without use_cpu transformers refuses bfloat16 where there is no GPU.
    return parse((DataArguments, ModelConfig, SFTConfig), ["--config", str(recipe), "--use_cpu", "true"])


def test_the_recipes_are_there():
    """One for each model of the paper, the largest Qwen's with more pixels, and the demo's."""
    papers = {"qwen3_vl_2b", "qwen3_vl_4b", "qwen3_vl_8b", "llama_3_2_11b"}
    assert {recipe.stem for recipe in RECIPES} == papers | {"qwen3_vl_8b_1024_tokens", "demo"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_parses_and_opens_with_its_command(recipe, tmp_path):
    """The options exist, have their types, and fit together; the first line runs this very file."""
    data, model, args = read(recipe)
    args.output_dir = str(tmp_path / "adapter")  # the recipe's own may hold a run
    settle(data, model, args)
    assert args.gradient_accumulation_steps * args.per_device_train_batch_size == data.global_batch_size
    assert args.max_length is None and model.use_peft and model.lora_r == 64 and model.lora_dropout == 0
    launch = "# accelerate launch --config_file configs/accelerate/one_gpu.yaml train/sft.py --config"
    assert recipe.read_text().startswith(f"{launch} {recipe.relative_to(ROOT)}\n")


@pytest.mark.parametrize("recipe", PAPERS, ids=lambda recipe: recipe.stem)
def test_a_recipe_holds_the_papers_values(recipe):
    """Section 5.4 and appendix E: rank 64, batch 128, 80 steps, learning rate within 1e-5 to 2e-5."""
    data, model, args = read(recipe)
    assert model.lora_r == 64
    assert data.global_batch_size == 128
    assert args.max_steps == 80
    assert 1e-5 <= args.learning_rate <= 2e-5
    size = recipe.stem.removesuffix("_1024_tokens").rsplit("_", 1)[1]
    names = {"2b": "Qwen3-VL-2B", "4b": "Qwen3-VL-4B", "8b": "Qwen3-VL-8B", "11b": "Llama-3.2-11B-Vision"}
    assert f"/{names[size]}-Instruct" in model.model_name_or_path
    assert model.dtype == "bfloat16" and args.bf16 and args.gradient_checkpointing
    qwen = "qwen" in recipe.stem
    side = 1024 if recipe.stem.endswith("_1024_tokens") else 512  # 32 x 32 pixels an image token
    assert data.shared_prefix is qwen and (data.max_pixels == side * side) is qwen


@pytest.mark.parametrize("recipe", PAPERS, ids=lambda recipe: recipe.stem)
def test_a_tiny_model_trains_through_a_recipe(recipe, demo, demo_base, tiny_mllama, tmp_path, monkeypatch, capsys):
    """Two steps, in bfloat16 and with checkpointing as it says; only paths, data, sizes and the device are replaced."""
    qwen = "qwen" in recipe.stem
    output = tmp_path / "adapter"
    replaced = {
        "model_name_or_path": demo_base if qwen else tiny_mllama,
        "pairs": demo.short_pairs,
        "images": demo.images,
        "output_dir": output,
        "global_batch_size": 4,
        "per_device_train_batch_size": 2,
        "max_steps": 2,
        "holdout_size": 2,
        "max_new_tokens": 4,
        "dataloader_num_workers": 0,
        "use_cpu": "true",
    }
    argv = ["train/sft.py", "--config", str(recipe)]
    monkeypatch.setattr(
        sys, "argv", argv + [word for key, value in replaced.items() for word in (f"--{key}", str(value))]
    )
    with pytest.raises(InputError, match="no answer on the hold-out holds a score"):  # as is true after two steps
        train.sft.main()
    printed = capsys.readouterr().out
    assert ("shared prefix: yes" if qwen else "shared prefix: no, switched off") in printed
    record = json.loads((output / "run.json").read_text())
    assert record["result"]["steps"] == 2 and 0 < record["result"]["train_loss"] < 20
    assert record["config"]["trainer"]["bf16"] and record["config"]["trainer"]["gradient_checkpointing"]
    weights = load_file(output / "adapter_model.safetensors")
    # Warm-up starts at a learning rate of zero: the second step is the first that moves anything.
    assert all(weight.any() and torch.isfinite(weight).all() for weight in weights.values())
    assert all(".language_model." in name for name in weights)


def test_no_more_processes_read_photos_than_there_are_cores():
    """The recipes ask for eight; torch warns of more than there are cores, and their number changes no result."""
    for asked, taken in ((10_000, len(os.sched_getaffinity(0))), (1, 1), (0, 0)):
        args = SFTConfig("unused", dataloader_num_workers=asked, bf16=False, use_cpu=True)
        settle_workers(args)
        assert args.dataloader_num_workers == taken
