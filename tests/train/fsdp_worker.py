"""What test_scale.py runs in two processes: one step of a sharded model, its adapter written as the trainer writes it.

torchrun --nproc_per_node 2 tests/train/fsdp_worker.py JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from harness import build
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from cprt.records import read_pairs
from train.checks import adapter_tensors, check_saved


def main() -> None:
    paths = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    trainer = build(Path(paths["base"]), Path(paths["images"]), read_pairs(paths["pairs"])[:4], Path(paths["output"]))
    model = trainer.model
    for layer in model.get_base_model().model.language_model.layers:
        fully_shard(layer)
    fully_shard(model)
    assert all(isinstance(weight, DTensor) for weight in model.parameters())
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    rows = [trainer.train_dataset[index] for index in range(4)]  # the same in both: the mean of two equal gradients
    model(**trainer.data_collator(rows)).loss.backward()
    optimizer.step()

    state_dict = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    tensors = adapter_tensors(model)
    if dist.get_rank() == 0:
        trainer._save(paths["output"], state_dict=state_dict)
        check_saved(tensors, paths["output"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
