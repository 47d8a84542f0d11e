"""More than one device and less than full precision: configurations, sharded saving, four bits."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType
from harness import Tensors, build, difference, trainable
from harness import train as trained
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from trl import ModelConfig

import train.sft
from cprt.models.checkpoint import load_model, load_processor
from cprt.records import read_pairs
from train.adapter import LANGUAGE_MODEL_PROJECTIONS, quantization, quantized_layers
from train.checks import adapter_tensors, check_effect
from train.loading.collator import PairCollator
from train.loading.pair_dataset import pair_dataset

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "accelerate"
KINDS = {
    "one_gpu": DistributedType.NO,
    "multi_gpu": DistributedType.MULTI_GPU,
    "fsdp2": DistributedType.FSDP,
    "deepspeed_zero3": DistributedType.DEEPSPEED,
    "several_machines": DistributedType.MULTI_GPU,
    "several_machines_fsdp2": DistributedType.FSDP,
}


@pytest.mark.parametrize("name", KINDS)
def test_accelerate_reads_its_configurations(name, root, monkeypatch):
    """Every key is known, the kind is the stated one, the number of processes is open; each opens with its launch."""
    monkeypatch.chdir(root)
    path = CONFIGS / f"{name}.yaml"
    config = load_config_from_file(str(path))
    assert config.distributed_type == KINDS[name]
    assert config.num_processes == (1 if name == "one_gpu" else -1)
    note = re.sub(r"\s*\\?\n# *", " ", path.read_text())  # its lines as one
    if "several" in name:
        assert note.startswith("# SLURM, two machines of four GPUs")
        assert "srun --nodes 2 --ntasks-per-node 1 --gpus-per-node 4 bash -c 'accelerate launch " in note
    else:
        assert note.startswith("# accelerate launch ")
    lines = re.findall(r"accelerate launch (--config_file \S+ .*?--config configs/sft/\w+.yaml)", note)
    assert len(lines) == (2 if "several" in name else 1)
    for line in lines:
        line = (
            re.sub(r"\$\(.*?\)", "host", line).replace("$SLURM_NODEID", "1").replace("machine_rank N", "machine_rank 1")
        )
        launch, *_ = _validate_launch_command(launch_command_parser().parse_args(shlex.split(line)))
        assert launch.config_file == str(path.relative_to(root)) and launch.training_script == "train/sft.py"
        assert launch.multi_gpu is (KINDS[name] == DistributedType.MULTI_GPU)
        assert launch.use_fsdp is (KINDS[name] == DistributedType.FSDP)
        if "several" in name:
            assert (launch.num_machines, launch.num_processes, int(launch.machine_rank)) == (2, 8, 1)
            assert (launch.main_process_ip.lower(), launch.main_process_port) == ("host", 29500)


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


def shard(root: Path, *words: str) -> str:
    """What fsdp_worker.py prints in two processes with the configuration for shards."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    launcher = ["-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(CONFIGS / "fsdp2.yaml")]
    launcher += ["--num_processes", "2", "--mixed_precision", "no", "--main_process_port", str(port)]
    done = subprocess.run(
        [sys.executable, *launcher, str(root / "tests" / "train" / "fsdp_worker.py"), *words],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests' / 'train'}"},
    )
    return done.stdout


@pytest.mark.slow
def test_the_script_trains_in_shards_and_goes_on_after_a_kill(demo, root, tmp_path):
    """The whole of train/sft.py; gone on from its first checkpoint, it writes the same bytes."""
    options = {"config": "configs/sft/demo.yaml", "pairs": demo.short_pairs, "images": demo.images, "use_cpu": "true"}
    options |= {"output_dir": tmp_path, "eval_strategy": "no", "max_steps": 2, "warmup_steps": 0, "save_steps": 1}
    options |= {"save_strategy": "steps", "global_batch_size": 8, "per_device_train_batch_size": 2}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    assert "shared prefix: yes" in shard(root, *words)
    whole = (tmp_path / "adapter_model.safetensors").read_bytes()
    (tmp_path / "adapter_model.safetensors").unlink()
    shutil.rmtree(tmp_path / "checkpoint-2")
    shard(root, *words, "--resume_from_checkpoint", "last")
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == whole


@pytest.mark.slow
def test_a_sharded_run_is_that_of_one_process(demo_base, mixed_demo, root, tmp_path):
    """Two processes that each hold half of every weight (FSDP2): gradients, losses and the adapter that they save.

    With TRL's trainer, and with the shared prefix, without and with checkpointing. Accelerate shards and saves.
    """
    pairs = mixed_demo.short_pairs / "train.jsonl"
    paths = {"base": str(demo_base), "images": str(mixed_demo.images), "pairs": str(pairs), "output": str(tmp_path)}
    shard(root, json.dumps(paths))
    options = dict(per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=2)
    stock = build(demo_base, mixed_demo.images, read_pairs(pairs)[:16], tmp_path / "one", share=None, **options)
    (expected, _), _, losses = trained(stock)
    adapter = adapter_tensors(stock.model)
    assert len(adapter) == 56
    for name in ("stock", "shared", "checkpointed"):
        seen = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert seen["losses"] == pytest.approx(losses, rel=1e-5)
        assert difference(seen["gradients"], expected) < 1e-5, name
        assert difference(load_file(tmp_path / name / "adapter_model.safetensors"), adapter) < 1e-4, name
    PeftModel.from_pretrained(load_model(str(demo_base), dtype="float32"), tmp_path / "shared")


def test_four_bits(demo_base, demo, root, tmp_path, monkeypatch, capsys):
    """QLoRA: the language model's projections and nothing else in four bits; it trains, and shares its prefix."""
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
    assert "shared prefix: yes" in printed
    assert "reopened, it changes logits by up to" in printed
    weights = load_file(output / "adapter_model.safetensors")
    assert len(weights) == 56 and all(weight.any() and torch.isfinite(weight).all() for weight in weights.values())


def test_the_shared_prefix_is_exact_in_four_bits(demo_base, mixed_demo, tmp_path):
    """Every gradient is stock TRL's with the same quantised weights.

    TRL rounds a QLoRA adapter to bfloat16. In float32 the two agree as they do without quantisation; as it is, sharing
    is no further from these gradients than stock is.
    """
    pairs = read_pairs(mixed_demo.short_pairs / "train.jsonl")[:4]

    def gradients(share: bool | None, dtype: torch.dtype) -> Tensors:
        trainer = build(
            demo_base,
            mixed_demo.images,
            pairs,
            tmp_path,
            share=share,
            four_bits=True,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
        )
        assert not share or trainer.plain_reason is None
        for weight in trainable(trainer.model).values():
            assert weight.dtype == torch.bfloat16
            weight.data = weight.data.to(dtype)
        (seen,), _, _ = trained(trainer)
        return {name: gradient.float() for name, gradient in seen.items()}

    stock = gradients(None, torch.float32)
    assert difference(gradients(True, torch.float32), stock) < 1e-5
    rounded, ours = (difference(gradients(share, torch.bfloat16), stock) for share in (None, True))
    assert 0 < ours < 1.2 * rounded


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
