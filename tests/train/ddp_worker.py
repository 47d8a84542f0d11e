"""What test_shared_prefix.py runs in two processes: three trainings of one adapter, each written to a file.

accelerate launch --multi_gpu --num_processes 2 tests/train/ddp_worker.py JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from harness import build, train

from cprt.records import read_pairs
from cprt.taxonomy import Taxonomy
from train.holdout import HoldOut


def main() -> None:
    paths = json.loads(sys.argv[1])
    pairs = read_pairs(paths["pairs"])[:16]
    output = Path(paths["output"])
    for name, share, checkpointing in (("stock", None, False), ("shared", True, False), ("checkpointed", True, True)):
        trainer = build(
            Path(paths["base"]),
            Path(paths["images"]),
            pairs,
            output,
            share=share,
            max_steps=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            gradient_checkpointing=checkpointing,
        )
        if share:
            assert trainer.plain_reason is None, trainer.plain_reason
        gradients, adapter, _ = train(trainer)
        holdout = HoldOut(pairs[:3], Path(paths["images"]), 2, 16, Taxonomy.default())
        figures = holdout.measure(trainer.model, trainer.processing_class, trainer.args.process_index, 2)
        if trainer.is_world_process_zero():
            result = {
                "processes": trainer.args.world_size,
                "gradients": gradients[0],
                "adapter": adapter,
                "holdout": figures,
            }
            torch.save(result, output / f"{name}.pt")
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
