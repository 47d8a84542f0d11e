"""What the launcher brought along must be what the recipe says: devices, processes, precision, sharding."""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate.utils import DistributedType, DynamoBackend, str_to_bool

from cprt.errors import InputError


def check_devices() -> None:
    """Refuse more processes than GPUs before a library trips over it. Raises InputError."""
    here, cards = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.accelerator.device_count()
    if here > cards > 0:
        raise InputError(f"{here} processes on this machine, but {cards} GPUs: start one for each (--num_processes)")


def settle_launch(args: Any) -> None:
    """Refuse a launch that contradicts the recipe, before anything is loaded. Raises InputError.

    A user's default Accelerate file is enough to train in another precision, and its processes run on processors where
    there is no GPU, both without a word.

    Args:
        args: TRL's SFTConfig.
    """
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "no"
    if args.mixed_precision != precision:
        raise InputError(
            f"the launcher sets mixed precision {args.mixed_precision}, the recipe {precision}: give accelerate launch "
            f"--mixed_precision {precision}, or write bf16 or fp16 into the recipe"
        )
    if args.n_gpu > 1:
        raise InputError(
            f"one process would spread its batches over {args.n_gpu} GPUs: use accelerate launch --num_processes "
            f"{args.n_gpu}, or show it one (CUDA_VISIBLE_DEVICES)"
        )
    if args.activation_offloading and not torch.accelerator.is_available():
        raise InputError("activation_offloading moves activations from a GPU to memory, and there is no GPU here")
    on_processors = args.use_cpu or str_to_bool(os.environ.get("ACCELERATE_USE_CPU", "false"))
    world = int(os.environ.get("WORLD_SIZE", "1"))  # the library counts one where it finds no way to connect them
    if world > 1 and not on_processors and not torch.accelerator.is_available():
        raise InputError(
            f"{world} processes were started for GPUs, and there is none here; --use_cpu true trains on processors"
        )
    if args.gradient_checkpointing:
        how = args.gradient_checkpointing_kwargs or {}
        if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
            # TRL sets what ZeRO-3 needs under the old name alone, which transformers does not read any more
            args.activation_checkpointing_kwargs = args.gradient_checkpointing_kwargs = {**how, "use_reentrant": True}
        elif world > 1 and how.get("use_reentrant"):
            raise InputError(
                "gradient_checkpointing_kwargs: use_reentrant must be false with several processes: each weight's "
                "gradient would be reduced twice"
            )


def check_launch(accelerator: Any, args: Any) -> None:
    """Refuse a run that is compiled or sharded otherwise than its configuration says, or whose adapter would be lost.

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
    backend = accelerator.state.dynamo_plugin.backend
    if backend != DynamoBackend.NO and not args.torch_compile:
        raise InputError(
            f"the launcher compiles the model with {backend.value}, the recipe does not; set torch_compile"
        )
