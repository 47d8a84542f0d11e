"""Options of a training run beside those of TRL, and the rules that hold across all of them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import DistributedType

from cprt.config import option
from cprt.errors import InputError
from cprt.provenance import check_output
from train.checkpoints import UNFINISHED, newest
from train.holdout import GREATER_IS_BETTER


@dataclass
class DataArguments:
    pairs: str = option("folder made by cprt pairs, with train.jsonl and holdout.jsonl")
    images: str = option("folder that holds images/, or images/ itself")
    max_pixels: int | None = option(
        "largest photo in pixels after resizing; needed for Qwen3-VL, whose stock limit is 16k tokens", None
    )
    global_batch_size: int = option(
        "pairs per optimiser step over all processes; accumulation steps follow from it", 128
    )
    shared_prefix: bool = option(
        "compute the text that all samples share once per step: same result, several times faster", True
    )
    holdout_size: int = option(
        "photos of the hold-out that the model is asked about every eval_steps, if eval_strategy", 64
    )
    max_new_tokens: int = option("longest answer on the hold-out", 256)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)
    wandb: bool = option(
        "log to Weights & Biases, as report_to: wandb; offline unless its variables say otherwise", False
    )
    overwrite: bool = option("replace the adapter and checkpoints that are in output_dir", False)

    def __post_init__(self) -> None:
        for name in ("global_batch_size", "max_pixels", "holdout_size", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")


def settle(data: DataArguments, model: Any, args: Any) -> None:
    """Check what must fit together and set what follows from it, before anything slow starts. Raises InputError.

    Args:
        model: TRL's ModelConfig.
        args: TRL's SFTConfig; its accumulation steps, column and loss settings are set here.
    """
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
    if args.max_steps != -1 and args.max_steps < 1:  # -1, the default, stands for epochs
        raise InputError(f"max_steps must be at least 1, not {args.max_steps}")
    for name in ("save_steps", "eval_steps", "learning_rate"):
        if (value := getattr(args, name)) is not None and value <= 0:
            raise InputError(f"{name} must be more than 0, not {value}")
    if model.lora_alpha <= 0:
        raise InputError(f"lora_alpha must be more than 0, not {model.lora_alpha}: the adapter would do nothing")
    if args.per_device_train_batch_size < 1:
        raise InputError(f"per_device_train_batch_size must be at least 1, not {args.per_device_train_batch_size}")
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
    if "wandb" in args.report_to:  # by our own callback
        args.report_to = [name for name in args.report_to if name != "wandb"]
        data.wandb = True
    args.remove_unused_columns = False  # our data set makes its columns as it is read
    args.logging_nan_inf_filter = False  # the default hides a loss that is NaN
    if args.load_best_model_at_end:
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


def check_launch(accelerator: Any, args: Any) -> None:
    """Refuse a run that is sharded otherwise than its Accelerate configuration says, or whose adapter would be lost.

    Without a GPU Accelerate turns an FSDP configuration into plain data parallelism, and with sharded state dicts
    transformers saves no adapter at all, both without a word. Raises InputError.
    """
    for variable, kind in (
        ("ACCELERATE_USE_FSDP", DistributedType.FSDP),
        ("ACCELERATE_USE_DEEPSPEED", DistributedType.DEEPSPEED),
    ):
        if os.environ.get(variable) == "true" and accelerator.distributed_type != kind:
            raise InputError(
                f"the Accelerate configuration asks for {kind.value}, but this run is "
                f"{accelerator.distributed_type.value}: it needs GPUs, and one process for each"
            )
    if args.eval_strategy != "no" and accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        raise InputError(
            "eval_strategy must be no where weights are sharded: generating would take a gather a token; "
            "ask the checkpoints with cprt eval instead"
        )
    if accelerator.distributed_type == DistributedType.FSDP:
        state_dict = str(accelerator.state.fsdp_plugin.state_dict_type)
        if "FULL_STATE_DICT" not in state_dict:
            raise InputError(
                f"fsdp_state_dict_type is {state_dict}, with which no adapter is saved; it must be FULL_STATE_DICT"
            )


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
    """Take away what an earlier run left: its checkpoints, and what it had not finished writing."""
    for old in [*output.glob("checkpoint-*"), output / UNFINISHED]:
        shutil.rmtree(old, ignore_errors=True)
