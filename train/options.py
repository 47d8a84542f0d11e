"""Options of a training run beside those of TRL, and the rules that hold across all of them."""

from __future__ import annotations

import math
import operator
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft.utils.error import NoMatchingPeftModuleError
from transformers import Trainer, get_scheduler
from transformers.utils import is_liger_kernel_available, is_torch_bf16_gpu_available
from trl import SFTConfig

from cprt.config import option
from cprt.errors import InputError
from cprt.models.adapter import CONFIG, WEIGHTS
from cprt.models.checkpoint import first_line
from cprt.provenance import check_output
from train.checkpoints import UNFINISHED, newest
from train.holdout import GREATER_IS_BETTER
from train.loading.workers import settle_workers


@dataclass
class DataArguments:
    pairs: str = option("folder made by cprt pairs, with train.jsonl and holdout.jsonl")
    images: str = option("folder that holds images/, or images/ itself")
    max_pixels: int | None = option(
        "largest photo in pixels after resizing; needed for Qwen3-VL, whose stock limit is 16k tokens", None, least=1
    )
    global_batch_size: int = option(
        "pairs per optimiser step over all processes; accumulation steps follow from it", 128, least=1
    )
    shared_prefix: bool = option(
        "compute the text that all samples share once per step: same result, several times faster", True
    )
    score_width: float | None = option(
        "soft labels for the score's digits: standard deviation of a Gaussian around the exact score, within the band "
        "of its level; null: the digits themselves",
        None,
        least=0.001,
        most=1,
    )
    holdout_size: int = option(
        "photos of the hold-out that the model is asked about every eval_steps, if eval_strategy", 64, least=1
    )
    max_new_tokens: int = option("longest answer on the hold-out", 256, least=1)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)
    wandb: bool = option(
        "log to Weights & Biases, as report_to: wandb; offline unless its variables say otherwise", False
    )
    overwrite: bool = option("replace the adapter and checkpoints that are in output_dir", False)


@dataclass
class TrainerArguments(SFTConfig):
    """TRL's options. A recipe for a GPU says at once what it needs on a machine without one."""

    def __post_init__(self) -> None:
        if (self.bf16 or self.bf16_full_eval) and not self.use_cpu and not is_torch_bf16_gpu_available():
            raise ValueError("bf16 needs a GPU that has it, and there is none; --use_cpu true trains on processors")
        super().__post_init__()


def settle(data: DataArguments, model: Any, args: Any) -> None:
    """Check what must fit together and set what follows from it, before anything slow starts. Raises InputError.

    Args:
        model: TRL's ModelConfig.
        args: TRL's SFTConfig; its accumulation steps, column and loss settings are set here.
    """
    _check_ranges(data, model, args)
    if not model.model_name_or_path:
        raise InputError("model_name_or_path is missing: the checkpoint to tune")
    if not model.use_peft or model.lora_r < 1:
        raise InputError("use_peft must be true and lora_r at least 1: this script trains LoRA adapters")
    if model.load_in_8bit:
        raise InputError("load_in_8bit is not supported: use load_in_4bit, or train in bfloat16")
    if args.trust_remote_code:
        raise InputError("trust_remote_code would run code that a checkpoint brings along; it must be false")
    if args.auto_find_batch_size:
        raise InputError("auto_find_batch_size would change global_batch_size unseen; it must be false")
    if args.max_length is not None:
        raise InputError(f"max_length is {args.max_length}, but must be null: a pair that is cut loses its answer")
    if args.packing or args.assistant_only_loss or args.completion_only_loss is False:
        raise InputError(
            "packing, assistant_only_loss and completion_only_loss: false do not fit prompt/completion pairs"
        )
    if args.push_to_hub:
        raise InputError("push_to_hub would upload training_args.bin, a pickle that can hold a token; it must be false")
    if args.chat_template_path is not None:
        raise InputError("chat_template_path must be null: the checkpoint's own template serves evaluation too")
    if args.use_liger_kernel and not is_liger_kernel_available():
        raise InputError("use_liger_kernel needs the package liger-kernel, which is not installed")
    if not set(args.gradient_checkpointing_kwargs or {}) <= _CHECKPOINTING:
        raise InputError(f"gradient_checkpointing_kwargs may hold {', '.join(sorted(_CHECKPOINTING))}")
    if data.score_width is not None and (args.label_smoothing_factor or args.loss_type != "nll"):
        raise InputError("score_width goes with loss_type nll and label_smoothing_factor 0")
    if data.score_width is not None and "true" in map(
        os.environ.get, ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    ):
        raise InputError("score_width needs whole weights in each process: it takes neither FSDP nor DeepSpeed")
    _settle_batch(data, args)
    settle_workers(args)
    _check_optimiser(args)
    if "wandb" in args.report_to:  # by our own callback
        args.report_to = [name for name in args.report_to if name != "wandb"]
        data.wandb = True
    args.remove_unused_columns = False  # our data set makes its columns as it is read
    device = torch.accelerator.current_accelerator(check_available=True)
    # What has no memory of its own pins none, and says so at every start.
    args.dataloader_pin_memory = args.dataloader_pin_memory and device is not None and device.type != "mps"
    args.logging_nan_inf_filter = False  # the default hides a loss that is NaN
    if args.load_best_model_at_end or args.save_strategy == "best":
        if args.metric_for_best_model not in GREATER_IS_BETTER:
            raise InputError(
                f"metric_for_best_model is {args.metric_for_best_model}, but must be one of "
                f"{', '.join(GREATER_IS_BETTER)}, measured on the hold-out"
            )
        args.greater_is_better = GREATER_IS_BETTER[args.metric_for_best_model]
    if args.eval_on_start or args.eval_strategy not in ("no", "steps", "epoch"):
        raise InputError("eval_strategy must be no, steps or epoch, and eval_on_start false")
    if args.resume_from_checkpoint == "last":
        args.resume_from_checkpoint = str(newest(Path(args.output_dir)))
    _check_output(Path(args.output_dir), args.resume_from_checkpoint, data.overwrite)


def _settle_batch(data: DataArguments, args: Any) -> None:
    """The accumulation steps that make ``global_batch_size`` of all processes. Raises InputError.

    Refuses what would make the batch another one, or the loss another mean, with another number of processes.
    """
    if args.train_sampling_strategy != "random":
        raise InputError("train_sampling_strategy must be random: every epoch draws its pairs anew")
    if args.accelerator_config.split_batches:
        raise InputError("accelerator_config: split_batches must be false: a batch would be shared out")
    if not args.average_tokens_across_devices:
        raise InputError("average_tokens_across_devices must be true, or two processes train another adapter than one")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    per_pass = args.per_device_train_batch_size * world
    if data.global_batch_size % per_pass:
        raise InputError(
            f"global_batch_size {data.global_batch_size} is not a multiple of per_device_train_batch_size "
            f"{args.per_device_train_batch_size} x {world} processes"
        )
    accumulation = data.global_batch_size // per_pass
    if args.gradient_accumulation_steps not in (1, accumulation):  # 1 is the default
        raise InputError(
            f"gradient_accumulation_steps {args.gradient_accumulation_steps} contradicts global_batch_size "
            f"{data.global_batch_size}, from which {accumulation} follow; leave it out"
        )
    args.gradient_accumulation_steps = accumulation


def _check_optimiser(args: Any) -> None:
    """Make optimiser and schedule once, for a weight of one number. Raises InputError when the options forbid it."""
    try:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(args)
        optimizer = kind([torch.zeros(1, requires_grad=True)], **options)
        kwargs = args.lr_scheduler_kwargs
        get_scheduler(args.lr_scheduler_type, optimizer, 0, 1, scheduler_specific_kwargs=kwargs)
    except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"optim, optim_args or lr_scheduler_kwargs cannot be used ({first_line(error)})") from error


@contextmanager
def recipe_faults(model: Any) -> Iterator[None]:
    """One line for what libraries say of options that do not go together, while a trainer is made of them."""
    try:
        yield
    except InputError:
        raise
    except NoMatchingPeftModuleError as error:
        raise InputError(
            f"lora_target_modules: {model.lora_target_modules!r} fits no module (one entry is a regular expression for "
            "whole names, several are endings of names)"
        ) from error
    except (ImportError, OSError, RuntimeError, TypeError, ValueError, re.error) as error:
        raise InputError(f"the options make no trainer ({first_line(error)})") from error


# Options, and what they have to be; null is left to the library.
_MORE_THAN = dict.fromkeys(
    "learning_rate num_train_epochs adam_epsilon lora_alpha save_steps eval_steps logging_steps".split(), 0
)
_LESS_THAN = dict.fromkeys("adam_beta1 adam_beta2 label_smoothing_factor lora_dropout".split(), 1)
_LESS_THAN |= {"seed": 2**32, "data_seed": 2**63}
_AT_LEAST = dict.fromkeys("weight_decay max_grad_norm warmup_steps dataloader_num_workers".split(), 0)
_AT_LEAST |= dict.fromkeys(_LESS_THAN, 0)
_AT_LEAST |= dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), 1)
_CHECKPOINTING = {"use_reentrant", "preserve_rng_state", "determinism_check", "debug"}


def _check_ranges(data: DataArguments, model: Any, args: Any) -> None:
    """Every number is one, and lies where training means something by it. Raises InputError."""
    options = {**vars(data), **vars(model), **vars(args)}
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, not {value}")
    for said, bounds, is_broken in (
        ("more than", _MORE_THAN, operator.le),
        ("at least", _AT_LEAST, operator.lt),
        ("less than", _LESS_THAN, operator.ge),
    ):
        for name, bound in bounds.items():
            value = options[name]
            if value is not None and not isinstance(value, str) and is_broken(value, bound):
                raise InputError(f"{name} must be {said} {bound}, not {value}")
    if args.max_steps != -1 and args.max_steps < 1:  # -1, the default, stands for epochs
        raise InputError(f"max_steps must be at least 1, not {args.max_steps}")


def _check_output(output: Path, resume: str | None, overwrite: bool) -> None:
    """Nothing that took hours is overwritten unasked, and resuming is explicit."""
    check_output("train/sft.py", output, writes=())
    if resume is not None:
        if not (Path(resume) / "trainer_state.json").is_file():
            raise InputError(f"resume_from_checkpoint {resume}: is not a checkpoint folder (no trainer_state.json)")
        return
    old = sorted([*output.glob("checkpoint-*"), *output.glob("adapter_model.safetensors")])
    if old and not overwrite:
        raise InputError(
            f"{output} already holds {old[-1].name}: choose another output_dir, --resume_from_checkpoint last to go "
            "on, or --overwrite true"
        )


def clear_output(output: Path) -> None:
    """Take away all that an earlier run left: else a new one that is killed would pass for it."""
    for old in [*output.glob("checkpoint-*"), output / UNFINISHED]:
        shutil.rmtree(old, ignore_errors=True)
    for name in (WEIGHTS, CONFIG, "run.json", "README.md", "learning.jsonl", "learning.png"):
        (output / name).unlink(missing_ok=True)
