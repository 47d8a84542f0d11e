"""The trained adapter on disk: room for it is taken before training, and it is saved elsewhere when all else fails."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from cprt.errors import InputError
from cprt.models.adapter import CONFIG
from cprt.models.checkpoint import first_line
from train.checkpoints import LEFT_OUT

ROOM = ".room"  # file in output_dir that holds the adapter's place
_ELSE = 2**20  # bytes of configuration and templates beside weights and vocabulary


def take_room(output: Path, tensors: Mapping[str, torch.Tensor], processor: Any) -> None:
    """Fill a file as large as the adapter will be, so that it still fits when the disk has filled up meanwhile.

    Raises InputError when there is no room now.
    """
    weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    needed = weights + len(processor.tokenizer.backend_tokenizer.to_str().encode()) + _ELSE
    try:
        with open(output / ROOM, "wb") as file:
            for start in range(0, needed, _ELSE):
                file.write(bytes(min(_ELSE, needed - start)))
    except OSError as error:
        (output / ROOM).unlink(missing_ok=True)
        raise InputError(f"{output}: the adapter will not fit ({needed:,} bytes: {error.strerror})") from error


def save_adapter(trainer: Any, output: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write what PEFT and transformers load into ``output``. Every process must call it.

    Args:
        tensors: the adapter as ``adapter_tensors`` gives it.

    Raises InputError when the disk does not take it; the adapter is then in a temporary folder, which is named.
    """
    (output / ROOM).unlink(missing_ok=True)
    try:
        trainer.save_model(str(output))
    except (OSError, RuntimeError, SafetensorError) as error:  # a full disk shows itself as any of these
        said = f"{output}: the adapter cannot be written ({first_line(error)})"
        try:
            refuge = tempfile.mkdtemp(prefix="adapter-")
            save_file(dict(tensors), Path(refuge) / "adapter_model.safetensors", metadata={"format": "pt"})
            trainer.model.active_peft_config.save_pretrained(refuge)
            trainer.processing_class.save_pretrained(refuge)
        except (OSError, RuntimeError, SafetensorError) as other:
            raise InputError(f"{said}, nor to {tempfile.gettempdir()} ({first_line(other)})") from other
        raise InputError(f"{said}; it is in {refuge}") from error
    if trainer.is_world_process_zero():
        readable_like(output / CONFIG)
        for name in LEFT_OUT:
            (output / name).unlink(missing_ok=True)


def readable_like(file: Path) -> None:
    """Give the weights beside ``file`` its permissions: safetensors leaves them to their owner alone."""
    for weights in file.parent.glob("*.safetensors"):
        shutil.copymode(file, weights)
