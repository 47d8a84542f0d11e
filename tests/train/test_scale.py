"""More than one device and less than full precision: configurations, sharded saving, four bits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from harness import build
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from trl import ModelConfig

import train.sft
from cprt.models.checkpoint import load_model, load_processor
from cprt.records import read_pairs
from train.adapter import LANGUAGE_MODEL_PROJECTIONS, quantization, quantized_layers
from train.checks import check_effect
from train.pair_dataset import PairCollator, pair_dataset

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "accelerate"
KINDS = {
    "one_gpu": DistributedType.NO,
    "multi_gpu": DistributedType.MULTI_GPU,
    "fsdp2": DistributedType.FSDP,
    "deepspeed_zero3": DistributedType.DEEPSPEED,
}


@pytest.mark.parametrize("name", KINDS)
def test_accelerate_reads_its_configurations(name, root):
    """Every key is known to the launcher, the kind is the stated one, and the number of processes is left open."""
    path = CONFIGS / f"{name}.yaml"
    config = load_config_from_file(str(path))
    assert config.distributed_type == KINDS[name]
    assert config.num_processes == (1 if name == "one_gpu" else -1)
    assert path.read_text().startswith(f"# accelerate launch --config_file {path.relative_to(root)} ")


def test_these_are_all_configurations():
    assert {path.stem for path in CONFIGS.glob("*")} == KINDS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, reason",
    [
        ("FSDP", "the Accelerate configuration asks for FSDP, but this run is NO"),
        ("DEEPSPEED", "The 'deepspeed>=0.9.3' distribution was not found"),
    ],
)
def test_a_run_that_is_not_sharded_as_configured_is_refused(kind, reason, demo, root, tmp_path):
    """Without a GPU Accelerate quietly trains unsharded; the launcher's variables tell what was asked for.

    In a process of its own: transformers keeps a DeepSpeed configuration for the rest of the process.
    """
    done = subprocess.run(
        [
            sys.executable,
            "train/sft.py",
            "--config",
            "configs/sft/demo.yaml",
            "--pairs",
            str(demo.short_pairs),
            "--images",
            str(demo.images),
            "--output_dir",
            str(tmp_path / "adapter"),
            "--max_steps",
            "1",
            "--eval_strategy",
            "no",
        ],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), f"ACCELERATE_USE_{kind}": "true"},
    )
    assert done.returncode == 2, done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("train/sft.py: error: ") and reason in line


@pytest.mark.slow
def test_a_sharded_adapter_is_saved_whole(demo_base, demo, root, tmp_path):
    """Two processes that each hold half of every weight write the adapter that one process writes."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    pairs = demo.short_pairs / "train.jsonl"
    paths = {"base": str(demo_base), "images": str(demo.images), "pairs": str(pairs), "output": str(tmp_path / "a")}
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc_per_node",
            "2",
            "--master_port",
            str(port),
            str(root / "tests" / "train" / "fsdp_worker.py"),
            json.dumps(paths),
        ],
        check=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests' / 'train'}"},
    )
    trainer = build(demo_base, demo.images, read_pairs(pairs)[:4], tmp_path / "b")
    model = trainer.model
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    model(**trainer.data_collator([trainer.train_dataset[index] for index in range(4)])).loss.backward()
    optimizer.step()
    model.save_pretrained(tmp_path / "b")
    sharded, whole = (load_file(tmp_path / name / "adapter_model.safetensors") for name in "ab")
    assert sharded.keys() == whole.keys() and len(whole) == 56
    for name, weight in whole.items():
        torch.testing.assert_close(sharded[name], weight, rtol=1e-5, atol=1e-6)
    PeftModel.from_pretrained(load_model(str(demo_base), dtype="float32"), tmp_path / "a")


def test_four_bits(demo_base, demo, root, tmp_path, monkeypatch, capsys):
    """QLoRA: the language model's projections and nothing else in four bits; it trains, on the plain path."""
    monkeypatch.chdir(root)
    output = tmp_path / "adapter"
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "train/sft.py",
            "--config",
            "configs/sft/demo.yaml",
            "--pairs",
            str(demo.short_pairs),
            "--images",
            str(demo.images),
            "--output_dir",
            str(output),
            "--max_steps",
            "2",
            "--eval_strategy",
            "no",
            "--global_batch_size",
            "2",
            "--per_device_train_batch_size",
            "2",
            "--warmup_steps",
            "0",
            "--gradient_checkpointing",
            "true",
            "--load_in_4bit",
            "true",
        ],
    )
    train.sft.main()
    printed = capsys.readouterr().out
    assert "in four bits: 28 layers of the language model" in printed  # seven projections in each of four layers
    assert "shared prefix: no, the model is quantised" in printed
    assert "reopened, it changes logits by up to" in printed
    weights = load_file(output / "adapter_model.safetensors")
    assert len(weights) == 56 and all(weight.any() and torch.isfinite(weight).all() for weight in weights.values())


@pytest.fixture
def four_bits(demo_base, demo):
    """A model in four bits with an adapter that does something, and a batch for it."""
    base = load_model(str(demo_base), dtype="float32", quantization_config=quantization(ModelConfig(load_in_4bit=True)))
    assert quantized_layers(base) == 28
    torch.manual_seed(0)
    lora = LoraConfig(
        r=8, target_modules=LANGUAGE_MODEL_PROJECTIONS, init_lora_weights=False, task_type="CAUSAL_LM", lora_alpha=8
    )
    model = get_peft_model(base, lora)
    rows = pair_dataset(read_pairs(demo.short_pairs / "train.jsonl")[:1], demo.images, "qwen3_vl")
    return model, PairCollator(load_processor(str(demo_base), max_pixels=9216))([rows[0]])


@pytest.mark.parametrize("change", ["scale", "one tensor", "nothing"])
def test_a_wrong_adapter_is_noticed_in_four_bits(change, four_bits, tmp_path):
    """The same logits for the same adapter, on every kind of CPU, and another adapter is still another."""
    model, row = four_bits
    model.save_pretrained(tmp_path)
    if change == "scale":
        path = tmp_path / "adapter_config.json"
        path.write_text(path.read_text().replace('"lora_alpha": 8', '"lora_alpha": 32'))
    if change == "one tensor":
        path = tmp_path / "adapter_model.safetensors"
        weights = load_file(path)
        name = next(name for name in weights if "layers.3.mlp.down_proj.lora_B" in name)
        save_file({**weights, name: -weights[name]}, path)
    if change == "nothing":
        assert check_effect(model, tmp_path, row) > 0.01
    else:
        with pytest.raises(RuntimeError, match="other logits than the one that was trained"):
            check_effect(model, tmp_path, row)


def test_asking_between_the_steps_leaves_four_bits_as_they_are(four_bits):
    """A forward pass of evaluation changes no weight, and the next training step has the same gradients."""
    model, row = four_bits

    def gradients() -> dict[str, torch.Tensor]:
        model.train().zero_grad()
        model(**row).loss.backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    before = gradients()
    with torch.inference_mode():
        model.eval()(**row)
    after = gradients()
    assert len(before) == 56 and before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
