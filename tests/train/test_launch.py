"""What a launcher, a recipe or a pair brings along unseen: refused at the start, in one line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from harness import build, difference
from safetensors.torch import load_file
from trl import ModelConfig, SFTConfig

import train.sft
from cprt.config import parse, run
from cprt.errors import InputError
from cprt.models.adapter import check_adapter
from cprt.prompts import build as build_prompt
from cprt.records import read_pairs
from train.checks import adapter_tensors
from train.launch import settle_launch
from train.options import DataArguments
from train.saving import ROOM, save_adapter, take_room


def words(demo: Any, output: Path, *more: str, pairs: Path | None = None) -> list[str]:
    options = {"pairs": pairs or demo.short_pairs, "images": demo.images, "output_dir": output, "eval_strategy": "no"}
    options |= {"max_steps": 2, "warmup_steps": 0, "global_batch_size": 4, "per_device_train_batch_size": 2}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["train/sft.py", "--config", "configs/sft/demo.yaml", *given, *more]


@pytest.fixture
def sft(monkeypatch, capsys, root, demo, tmp_path):
    """Runs the script in this process, as its last line does: (exit status, the last line on stderr)."""
    monkeypatch.chdir(root)

    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        monkeypatch.delenv(name)
    environment = dict(os.environ)

    def start(*more: str, pairs: Path | None = None) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", words(demo, tmp_path / "adapter", *more, pairs=pairs))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            run(train.sft.main, "train/sft.py")
        lines = capsys.readouterr().err.strip().splitlines()
        assert not any(line.startswith("Traceback") for line in lines)
        return exit.value.code, lines[-1] if lines else ""

    yield start
    for name in os.environ.keys() - environment.keys():  # what the options of one run tell the libraries
        del os.environ[name]


@pytest.mark.parametrize(
    "variable, value, reason",
    [
        ("ACCELERATE_MIXED_PRECISION", "bf16", "the launcher sets mixed precision bf16, the recipe no"),
        ("ACCELERATE_MIXED_PRECISION", "fp16", "the launcher sets mixed precision fp16, the recipe no"),
        ("ACCELERATE_MIXED_PRECISION", "fp8", "the launcher sets mixed precision fp8, the recipe no"),
        ("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR", "the launcher compiles the model with INDUCTOR"),
    ],
)
def test_a_launcher_that_contradicts_the_recipe_is_refused(sft, monkeypatch, tmp_path, variable, value, reason):
    """As a default Accelerate file of the user's sets them: another adapter, and a record that says otherwise."""
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ACCELERATE_DYNAMO_MODE", "default")
    status, line = sft()
    assert status == 2 and reason in line
    assert not list((tmp_path / "adapter").glob("*"))


@pytest.mark.parametrize(
    "options, reason",
    [
        ("--learning_rate 0", "learning_rate must be more than 0, not 0"),
        ("--num_train_epochs 0", "num_train_epochs must be more than 0, not 0"),
        ("--weight_decay -1", "weight_decay must be at least 0, not -1"),
        ("--adam_beta1 1", "adam_beta1 must be less than 1, not 1"),
        ("--adam_beta2 -0.1", "adam_beta2 must be at least 0, not -0.1"),
        ("--adam_epsilon 0", "adam_epsilon must be more than 0, not 0"),
        ("--max_grad_norm -1", "max_grad_norm must be at least 0, not -1"),
        ("--label_smoothing_factor 1", "label_smoothing_factor must be less than 1, not 1"),
        ("--lora_dropout 1", "lora_dropout must be less than 1, not 1"),
        ("--logging_steps -1", "logging_steps must be more than 0, not -1"),
        ("--per_device_eval_batch_size 0", "per_device_eval_batch_size must be at least 1, not 0"),
        ("--neftune_noise_alpha nan", "neftune_noise_alpha"),
        ("--learning_rate nan", "learning_rate"),
        ("--learning_rate inf", "learning_rate"),
        ("--lora_dropout nan", "lora_dropout"),
        ("--seed -1", "seed must be at least 0, not -1"),
        ("--train_sampling_strategy sequential", "train_sampling_strategy must be random"),
        ("--metric_for_best_model spearman --save_strategy best", "must be one of mae, expected_mae"),
        ("--save_strategy best", "must be one of mae, expected_mae"),
        ("--data_seed -1", "data_seed must be at least 0, not -1"),
        ("--optim_args nope", "optim, optim_args or lr_scheduler_kwargs cannot be used"),
        ("--lr_scheduler_kwargs nope", "optim, optim_args or lr_scheduler_kwargs cannot be used"),
        ('--lr_scheduler_kwargs {"x":1}', "optim, optim_args or lr_scheduler_kwargs cannot be used"),
        ("--gradient_checkpointing_kwargs nope", "gradient_checkpointing_kwargs may hold"),
        ('--gradient_checkpointing_kwargs {"nope":1}', "gradient_checkpointing_kwargs may hold"),
        ("--chat_template_path nope", "chat_template_path must be null"),
        ("--average_tokens_across_devices false", "average_tokens_across_devices must be true"),
        ('--accelerator_config {"split_batches":true}', "split_batches must be false"),
        ("--activation_offloading true", "there is no GPU here"),
        ("--bf16 true --use_cpu false", "bf16 needs a GPU that has it, and there is none; --use_cpu true trains on"),
        ("--padding_free true", "the options make no trainer (Padding-free"),
        ("--use_liger_kernel true", "use_liger_kernel needs the package liger-kernel"),
        ("--fsdp full_shard", "the options make no trainer ("),
        ("--report_to nope", "the options make no trainer (nope is not supported"),
        ("--lora_task_type NOPE", "the options make no trainer (Invalid task type"),
        ("--lora_target_modules (", "the options make no trainer ("),
        ("--global_batch_size 64", "train.jsonl: 32 pairs make no step of global_batch_size 64"),
    ],
)
def test_options_out_of_range_or_at_odds_are_refused(sft, tmp_path, options, reason):
    status, line = sft(*options.split())
    assert status == 2 and reason in line, line
    assert not list((tmp_path / "adapter").glob("*"))


def image(pair: dict) -> dict:
    return next(part for part in pair["prompt"][0]["content"] if part["type"] == "image")


def text(pair: dict) -> dict:
    return next(part for part in pair["prompt"][0]["content"] if part["type"] == "text")


PARTS = "is not a list of messages, each w"  # which the one line has room for
PAIRS = {
    "placeholder of an image": (lambda pair: text(pair).update(text="Look <|image_pad|>"), "holds '<|image_pad|>'"),
    "an end in the prompt": (lambda pair: text(pair).update(text="Look.<|im_end|>"), "holds '<|im_end|>'"),
    "an end in the answer": (
        lambda pair: pair["completion"][0]["content"][0].update(text='{"score": 0.1}<|im_end|>'),
        "holds '<|im_end|>'",
    ),
    "a turn in the answer": (
        lambda pair: pair["completion"][0]["content"][0].update(text="<|im_start|>user"),
        "holds '<|im_start|>'",
    ),
    "no image": (lambda pair: image(pair).update(type="text", text="?"), "texts and one image"),
    "two images": (lambda pair: text(pair).update(type="image"), "texts and one image"),
    "a video": (lambda pair: image(pair).update(type="video"), "texts and one image"),
    "a text that is a number": (lambda pair: text(pair).update(text=7), PARTS),
    "content that is a text": (lambda pair: pair["prompt"][0].update(content="Look."), "texts and one image"),
    "content that is null": (
        lambda pair: pair["prompt"][0].update(content=None),
        PARTS,
    ),
    "parts that are texts": (
        lambda pair: pair["prompt"][0].update(content=["Look."]),
        PARTS,
    ),
    "two answers": (lambda pair: pair["completion"].append(pair["completion"][0]), "one text of the assistant"),
    "an answer of the user": (lambda pair: pair["completion"][0].update(role="user"), "one text of the assistant"),
    "an image for an answer": (
        lambda pair: pair["completion"][0].update(content=[{"type": "image"}]),
        "one text of the assistant",
    ),
    "an empty answer": (lambda pair: pair["completion"][0]["content"][0].update(text=" "), "has an empty answer"),
    "another prompt": (lambda pair: text(pair).update(text="Look again."), "is asked otherwise than"),
}


@pytest.mark.parametrize("change, reason", PAIRS.values(), ids=PAIRS)
def test_odd_pairs_are_refused_by_name(sft, demo, tmp_path, change, reason):
    rows = [json.loads(line) for line in (demo.short_pairs / "train.jsonl").read_text().splitlines()[:8]]
    change(rows[5])
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, line = sft(pairs=folder)
    assert status == 2 and reason in line, line
    assert (f"{folder / 'train.jsonl'}: " in line and f"pair {rows[5]['id']!r}" in line) or "train.jsonl:6: " in line


def launch(demo: Any, root: Path, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The script in two processes, as Accelerate's launcher starts them."""
    launcher = [*ACCELERATE, "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    command = [*launcher, "--dynamo_backend", "no", "--main_process_port", free_port(), *words(demo, output, *more)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=900, env=environment)


ACCELERATE = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]


def free_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


@pytest.mark.parametrize(
    "options, reason",
    [
        ("", "2 processes were started for GPUs, and there is none here"),
        (
            '--use_cpu true --gradient_checkpointing true --gradient_checkpointing_kwargs {"use_reentrant":true}',
            "use_reentrant must be false with several processes",
        ),
    ],
)
def test_several_processes_that_cannot_train_are_refused(demo, root, tmp_path, monkeypatch, options, reason):
    monkeypatch.chdir(root)
    given = words(demo, tmp_path, *options.split())[1:]
    _, _, args = parse((DataArguments, ModelConfig, SFTConfig), given)
    settle_launch(args)
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a launcher sets it
    with pytest.raises(InputError, match=reason):
        settle_launch(args)


def test_zero_3_gets_the_reentrant_checkpointing_that_it_needs(demo, root, tmp_path, monkeypatch):
    """By the name that TRL reads, and by the one that the library does."""
    monkeypatch.chdir(root)
    given = words(demo, tmp_path, "--use_cpu", "true", "--gradient_checkpointing", "true")[1:]
    _, _, args = parse((DataArguments, ModelConfig, SFTConfig), given)
    settle_launch(args)
    assert args.activation_checkpointing_kwargs is None
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a launcher sets them
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    settle_launch(args)
    assert args.activation_checkpointing_kwargs == args.gradient_checkpointing_kwargs == {"use_reentrant": True}


@pytest.mark.slow
def test_what_is_left_over_is_dropped_and_two_processes_train_what_one_does(sft, demo, root, tmp_path, capsys):
    """11 pairs in steps of 4: 3 are left out in each epoch. Filled up, two processes would end somewhere else."""
    rows = (demo.short_pairs / "train.jsonl").read_text().splitlines(keepends=True)[:11]
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(rows))
    more = ["--pairs", str(folder), "--max_steps", "-1", "--num_train_epochs", "2", "--use_cpu", "true"]
    more += ["--per_device_train_batch_size", "1", "--logging_steps", "1"]
    done = launch(demo, root, tmp_path / "two", *more)
    assert done.returncode == 0, done.stderr
    assert "11 pairs, 4 a step (2 x 1 on each of 2 processes); 3 are left out in each epoch" in done.stdout
    assert sft(*more)[0] == 0
    two, one = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("two", "adapter"))
    assert difference(two, one) < 1e-4
    record = json.loads((tmp_path / "two" / "run.json").read_text())
    assert record["result"]["steps"] == record["result"]["step"] == 4  # two in each epoch
    assert record["prompt"] == {"name": None, "target": None, "sha256": build_prompt("zero_shot").digest}


@pytest.mark.slow
def test_two_machines_train_what_one_process_does(sft, demo, root, tmp_path):
    """A launcher for each, connected over loopback, by the configuration for several machines and by torchrun."""
    more = ["--use_cpu", "true", "--per_device_train_batch_size", "1", "--logging_steps", "1"]
    assert sft(*more)[0] == 0
    one = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    file = ["--config_file", "configs/accelerate/several_machines.yaml"]
    accelerate = [*ACCELERATE, *file, "--num_processes", "2", "--main_process_ip", "127.0.0.1", "--main_process_port"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1"]
    torchrun += ["--master_addr", "127.0.0.1", "--master_port"]
    for name, launcher, rank in (("accelerate", accelerate, "--machine_rank"), ("torchrun", torchrun, "--node_rank")):
        output, port = tmp_path / name, free_port()
        machines = [
            subprocess.Popen(
                [*launcher, port, rank, number, *words(demo, output, *more)],
                cwd=root,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(root)},
            )
            for number in "01"
        ]
        said = [machine.communicate(timeout=600) for machine in machines]
        assert [machine.returncode for machine in machines] == [0, 0], said
        assert "(2 x 1 on each of 2 processes)" in said[0][0] and "on each of" not in said[1][0]
        assert difference(load_file(output / "adapter_model.safetensors"), one) < 1e-4


@pytest.fixture
def trainer(demo_base, demo, tmp_path):
    return build(demo_base, demo.images, read_pairs(demo.short_pairs / "train.jsonl")[:4], tmp_path)


def test_room_for_the_adapter_is_taken_before_training(trainer, tmp_path):
    tensors = adapter_tensors(trainer.model)
    take_room(tmp_path, tensors, trainer.processing_class)
    taken = (tmp_path / ROOM).stat()
    folder = tmp_path / "saved"
    folder.mkdir()
    save_adapter(trainer, folder, tensors)
    assert taken.st_blocks * 512 >= taken.st_size >= sum(path.stat().st_size for path in folder.iterdir())
    save_adapter(trainer, tmp_path, tensors)
    assert not (tmp_path / ROOM).exists() and not (tmp_path / "training_args.bin").exists()


def test_an_adapter_that_cannot_be_written_is_saved_elsewhere(trainer, tmp_path, monkeypatch):
    """Hours of training end in a folder that is named, not in nothing."""
    refuge, output = tmp_path / "refuge", tmp_path / "output"
    refuge.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(refuge))
    (output / "adapter_model.safetensors").mkdir(parents=True)  # nothing can be written over a folder
    tensors = adapter_tensors(trainer.model)
    with pytest.raises(InputError, match=r"the adapter cannot be written \(.*; it is in ") as error:
        save_adapter(trainer, output, tensors)
    (saved,) = refuge.iterdir()
    assert str(saved) in str(error.value) and "\n" not in str(error.value)
    check_adapter(saved)
    weights = load_file(saved / "adapter_model.safetensors")
    assert weights.keys() == tensors.keys() and all(torch.equal(weights[name], tensors[name]) for name in weights)
    assert (saved / "processor_config.json").is_file()
    monkeypatch.setattr(trainer, "save_model", Mock(side_effect=RuntimeError))  # says nothing
    with pytest.raises(InputError, match=r"the adapter cannot be written \(RuntimeError\)"):
        save_adapter(trainer, output, tensors)
