"""``train/sft.py`` as users start it: what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

import data_prep.pairs.run
import train.sft
from cprt.config import run
from cprt.models.checkpoint import load_model
from cprt.prompts import build
from cprt.provenance import file_digest
from cprt.taxonomy import Taxonomy
from eval.judges import from_options

# A pixel cap other than the one that the base brings along, so that it shows where it comes from.
STEPS = [
    "--max_steps",
    "2",
    "--logging_steps",
    "1",
    "--num_train_epochs",
    "1",
    "--max_pixels",
    "8192",
    "--eval_strategy",
    "no",
]


def paths(demo: Any, output: Path) -> list[str]:
    return ["--pairs", str(demo.pairs), "--images", str(demo.images), "--output_dir", str(output)]


@pytest.fixture(scope="module")
def launched(demo, root, tmp_path_factory) -> tuple[Path, str]:
    """The demo's recipe through Accelerate's launcher, two steps: the output folder and what was printed."""
    output = tmp_path_factory.mktemp("launched") / "adapter"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "accelerate.commands.accelerate_cli",
            "launch",
            "train/sft.py",
            "--config",
            "configs/sft/demo.yaml",
            *paths(demo, output),
            *STEPS,
            "--save_strategy",
            "steps",
            "--save_steps",
            "1",
        ],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    for word in ("Warning", "deprecated", "gemm_4bit", "[transformers]"):  # what libraries tell their developers
        assert word not in done.stderr
    return output, done.stdout


@pytest.fixture
def sft(monkeypatch, capsys, root):
    """Runs the script in this process, as its last line does: (exit status, the last line on stderr)."""
    monkeypatch.chdir(root)

    def start(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["train/sft.py", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            run(train.sft.main, "train/sft.py")
        lines = capsys.readouterr().err.strip().splitlines()
        assert not any(line.startswith("Traceback") for line in lines)
        return exit.value.code, lines[-1] if lines else ""

    return start


@pytest.mark.slow
def test_launched_run_leaves_an_adapter(launched, demo_base):
    """Exactly what is needed, no pickle of the settings beside it, and PEFT loads it onto the untouched base."""
    output, _ = launched
    files = {path.name for path in output.iterdir()}
    assert {
        "adapter_model.safetensors",
        "adapter_config.json",
        "run.json",
        "chat_template.jinja",
        "processor_config.json",
        "tokenizer.json",
    } <= files
    assert not list(output.rglob("training_args.bin"))
    weights = load_file(output / "adapter_model.safetensors")
    base = load_model(str(demo_base), dtype="float32")
    before = {name: weight.clone() for name, weight in base.named_parameters()}
    adapted = PeftModel.from_pretrained(base, output)
    loaded = adapted.state_dict()
    assert len(weights) == 2 * 7 * 4  # A and B of seven projections in four layers
    for name, weight in weights.items():
        place = name.replace(".lora_A.", ".lora_A.default.").replace(".lora_B.", ".lora_B.default.")
        assert ".language_model." in name and torch.equal(loaded[place], weight)
        assert weight.shape[0 if "lora_A" in name else 1] == 64
        assert "lora_B" not in name or weight.any()
    merged = adapted.merge_and_unload()
    changed = {name for name, weight in merged.named_parameters() if not torch.equal(weight, before[name])}
    assert len(changed) == 7 * 4 and all(".language_model." in name for name in changed)


@pytest.mark.slow
def test_launched_run_is_recorded(launched, demo, demo_base):
    """run.json says what made the adapter, without a secret; the processor keeps the pixel cap."""
    output, _ = launched
    record = json.loads((output / "run.json").read_text())
    assert record["inputs"]["pairs"]["sha256"] == file_digest(demo.pairs / "train.jsonl")
    assert record["prompt"] == build("taxonomy", "attributes").identity()
    assert record["result"]["step"] == 2 and record["result"]["tensors"] == 56
    assert record["config"]["model"]["lora_r"] == 64
    assert record["config"]["data"]["global_batch_size"] == 8
    assert record["config"]["trainer"]["max_length"] is None
    assert record["seed"] == 0 and record["result"]["steps"] == 2
    assert record["base_model"] == "assets/demo_base" and len(record["base_digest"]) == 64
    assert {"torch", "transformers", "trl", "peft"} <= {name for name, version in record["packages"].items() if version}
    processor = json.loads((output / "processor_config.json").read_text())
    assert processor["image_processor"]["size"]["longest_edge"] == 8192


@pytest.mark.slow
def test_launched_run_shows_what_it_trains(launched):
    """The table of weights, the labelled text of the first rows, the batch and the prefix, at the start."""
    _, printed = launched
    table = {words[0]: words[-2:] for line in printed.splitlines() if len(words := line.split()) >= 3}
    assert table["vision"][1] == "0"
    assert table["language"][1].replace(",", "").isdigit() and table["language"][1] != "0"
    assert """'{"attributes": [""" in printed and "<|im_end|>" in printed
    assert "32 pairs, 8 a step (1 x 8 on each of 1 processes)" in printed
    assert "shared prefix: yes" in printed
    assert "56 adapter tensors saved and read back" in printed


@pytest.mark.slow
def test_checkpoints_resume(launched, sft, demo, tmp_path):
    """A run resumed after its first step ends with the adapter of the uninterrupted run, bit for bit."""
    output, _ = launched
    copy = tmp_path / "copy"
    shutil.copytree(output / "checkpoint-1", copy / "checkpoint-1")
    status, line = sft(
        "--config",
        "configs/sft/demo.yaml",
        *paths(demo, copy),
        *STEPS,
        "--resume_from_checkpoint",
        str(copy / "checkpoint-1"),
    )
    assert status == 0, line
    resumed, whole = (load_file(folder / "adapter_model.safetensors") for folder in (copy, output))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.slow
def test_mixed_pairs_train_one_adapter_that_is_asked_both_ways(sft, demo, tmp_path, capsys):
    """The whole way from ``cprt pairs``; on the hold-out it is asked for attributes, which two steps do not teach."""
    pairs = tmp_path / "pairs"
    mixed = {"labels": demo.train_labels, "images": demo.images, "out": pairs, "target": "mixed", "size": 32}
    data_prep.pairs.run.main([word for name, value in mixed.items() for word in (f"--{name}", str(value))])
    watched = ["--eval_strategy", "steps", "--eval_steps", "2", "--holdout_size", "4", "--max_new_tokens", "8"]
    output = tmp_path / "adapter"
    where = ["--pairs", str(pairs), "--images", str(demo.images), "--output_dir", str(output)]
    status, line = sft("--config", "configs/sft/demo.yaml", *where, *STEPS, *watched)
    assert status == 2 and "no answer on the hold-out holds a score" in line
    (row,) = [json.loads(text) for text in (output / "learning.jsonl").read_text().splitlines()]
    assert row["step"] == 2 and row["n"] == 4
    prompts = {target: build("taxonomy", target) for target in ("score", "attributes")}
    record = json.loads((output / "run.json").read_text())
    assert record["prompt"] == {**prompts["attributes"].identity(), "also": prompts["score"].identity()}
    assert "it answers both" in (output / "README.md").read_text()
    for target, asked in ((None, "attributes"), ("score", "score"), ("attributes", "attributes")):
        (judge,) = from_options("m", [str(output)], [], target, "greedy", False, Taxonomy.default())
        assert judge.prompt == prompts[asked]
    assert "asked otherwise" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_finished_adapter_is_not_overwritten(launched, sft, demo):
    """Without --overwrite a second run is refused, before it loads a model, and the adapter stays as it is."""
    output, _ = launched
    before = file_digest(output / "adapter_model.safetensors")
    status, line = sft("--config", "configs/sft/demo.yaml", *paths(demo, output), *STEPS, "--overwrite", "false")
    assert status == 2
    assert line.startswith("train/sft.py: error: ") and "already holds checkpoint-" in line and "--overwrite" in line
    assert file_digest(output / "adapter_model.safetensors") == before


@pytest.mark.parametrize(
    "options, reason",
    [
        ("--max_length 1024", "max_length is 1024, but must be null"),
        ("--packing true", "packing"),
        ("--completion_only_loss false", "completion_only_loss"),
        ("--assistant_only_loss true", "assistant_only_loss"),
        ("--push_to_hub true", "push_to_hub"),
        ("--use_peft false", "use_peft"),
        ("--lora_r 0", "lora_r"),
        ("--lora_r 16.5", "lora_r"),
        ("--lora_alpha 0", "lora_alpha must be more than 0, not 0"),
        ("--max_steps -3", "max_steps must be at least 1, not -3"),
        ("--learning_rate -1", "learning_rate must be more than 0, not -1.0"),
        ("--score_width 0", "score_width must be 0.001 to 1"),
        ("--score_width 0.02 --label_smoothing_factor 0.1", "score_width goes with loss_type nll and label_smoothing"),
        ("--save_steps 0", "save_steps must be more than 0, not 0"),
        ("--load_in_8bit true", "load_in_8bit is not supported"),
        ("--trust_remote_code true", "trust_remote_code"),
        ("--auto_find_batch_size true", "auto_find_batch_size"),
        ("--resume_from_checkpoint last", "holds no checkpoint"),
        ("--global_batch_size 0", "global_batch_size must be at least 1"),
        ("--max_pixels 0", "max_pixels must be at least 1"),
        ("--per_device_train_batch_size 0", "per_device_train_batch_size"),
        ("--per_device_train_batch_size 3", "global_batch_size 8 is not a multiple of per_device_train_batch_size 3"),
        ("--images nowhere", "nowhere: is not a folder of images"),
        ("--pairs nowhere", "nowhere/train.jsonl: No such file or directory"),
        ("--model_name_or_path nowhere/at/all", "nowhere/at/all: no such model folder"),
        ("--model_name_or_path configs", "configs: cannot be loaded as a model"),
        ("--resume_from_checkpoint configs", "configs: is not a checkpoint folder"),
        ("--lora_target_modules qkv", "lora_target_modules: 'qkv' fits no module"),
        ("--lora_target_modules .*qkv", "visual.blocks.0.attn.qkv"),
        ("--lora_target_modules q_proj qkv", "is outside the language model and would be trained"),
        ("--lora_target_modules all-linear", "is outside the language model and would be trained"),
        ("--learning_rate fast", "learning_rate"),
        ("--lerning_rate 1e-5", "unknown argument --lerning_rate (did you mean --learning_rate?)"),
    ],
)
def test_options_that_are_refused(sft, demo, tmp_path, options, reason):
    """One line that says what is wrong, exit status 2, and no file written."""
    output = tmp_path / "adapter"
    status, line = sft("--config", "configs/sft/demo.yaml", *paths(demo, output), *STEPS, *options.split())
    assert status == 2, line
    assert line.startswith("train/sft.py: error: ") and reason in line
    assert not list(output.glob("*"))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("lora_r: 16.5", "field 'lora_r': 16.5 is not a whole number"),
        ("lerning_rate: 1.0e-5", "field 'lerning_rate': unknown option (did you mean learning_rate?)"),
        ("lora_target_modules: qkv", "lora_target_modules"),
        ("overwrite: maybe", "field 'overwrite': 'maybe' is not true or false"),
        ("pairs: [", "not valid YAML"),
    ],
)
def test_recipes_that_are_refused(sft, tmp_path, text, reason):
    """A recipe's mistakes are named with file and line."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("images: nowhere\n" + text + "\n")
    status, line = sft("--config", str(recipe))
    assert status == 2
    assert "recipe.yaml:2" in line or text.startswith("pairs")  # YAML's own mark is at the end of the file
    assert reason in line


@pytest.mark.parametrize("fault", ["gone", "no image"])
def test_a_bad_image_is_named(sft, demo, tmp_path, fault):
    """A pair whose image has gone since the pairs were made, and one that is no image any more."""
    images, pairs = tmp_path / "data", tmp_path / "pairs"
    shutil.copytree(demo.images / "images", images / "images")
    pairs.mkdir()
    rows = (demo.pairs / "train.jsonl").read_text().splitlines(keepends=True)[:8]
    (pairs / "train.jsonl").write_text("".join(rows))
    path = images / json.loads(rows[3])["images"][0]
    if fault == "gone":
        path.unlink()
    else:
        path.write_text("not a photo")
    status, line = sft(
        "--config",
        "configs/sft/demo.yaml",
        "--pairs",
        str(pairs),
        "--images",
        str(images),
        "--output_dir",
        str(tmp_path / "adapter"),
        *STEPS,
    )
    assert status == 2 and str(path) in line
