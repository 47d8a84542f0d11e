"""What test_scale.py runs in two processes that share one copy of the weights: trainings of one adapter, each saved.

accelerate launch --config_file configs/accelerate/fsdp2.yaml --num_processes 2 --mixed_precision no fsdp_worker.py JSON

With the options of train/sft.py in place of JSON, that script.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import DistributedType
from harness import build
from harness import train as trained
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

import train.sft
from cprt.records import read_pairs
from train.checks import adapter_tensors, check_saved


class Cards(PartialState):
    """Accelerate shards weights on cards alone: it is told that these processes have one each."""

    def _prepare_backend(self, *_: Any) -> tuple[str, DistributedType]:
        return "gloo", DistributedType.MULTI_GPU

    def set_device(self) -> None:
        self.device = torch.device("cpu")


def main() -> None:
    dist.init_process_group("gloo")
    PartialState._prepare_backend, PartialState.set_device = Cards._prepare_backend, Cards.set_device
    if len(sys.argv) > 2:
        train.sft.main()
    else:
        compare(json.loads(sys.argv[1]))


def compare(paths: dict[str, str]) -> None:
    for name, share, checkpointing in (("stock", None, False), ("shared", True, False), ("checkpointed", True, True)):
        trainer = build(
            Path(paths["base"]),
            Path(paths["images"]),
            read_pairs(paths["pairs"])[:16],
            Path(paths["output"]) / name,
            share=share,
            max_steps=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            gradient_checkpointing=checkpointing,
        )
        assert trainer.accelerator.is_fsdp2
        if share:
            assert trainer.plain_reason is None, trainer.plain_reason
        gradients, _, losses = trained(trainer)
        layers = trainer.model.get_base_model().model.language_model.layers
        assert all(isinstance(layer, FSDPModule) for layer in layers)
        assert all(isinstance(weight, DTensor) for weight in trainer.model.parameters())
        tensors = adapter_tensors(trainer.model)
        trainer.save_model()
        whole = {name: gradient.full_tensor() for name, gradient in gradients[0].items()}
        if trainer.is_world_process_zero():
            check_saved(tensors, paths["output"] + f"/{name}")
            torch.save({"gradients": whole, "losses": losses}, Path(paths["output"]) / f"{name}.pt")
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
