"""The processes that read photos ahead: how many, how far, started how, and gone when the trainer is."""

from __future__ import annotations

import math
import multiprocessing
import os
from typing import Any

from cprt.images import cores

TRAINER = "CPRT_TRAINER"  # variable of the environment: the process that starts the server


def settle_workers(args: Any) -> None:
    """Where photos are read ahead, ahead means a whole accumulation window, by processes that last for the run.

    They are not forks of this one, which has threads and perhaps a GPU, but of a server that only imports: on CUDA a
    fork fails, and a lock that a thread holds at the fork stays locked in it. Their number changes no batch.

    Args:
        args: TRL's SFTConfig, whose options of loading are set here.
    """
    workers = args.dataloader_num_workers = min(args.dataloader_num_workers, cores())  # torch warns of more, rightly
    if not workers:
        return
    args.dataloader_persistent_workers = True
    args.dataloader_multiprocessing_context = args.dataloader_multiprocessing_context or "forkserver"
    if args.dataloader_prefetch_factor is None:  # batches that each of them holds ready
        args.dataloader_prefetch_factor = max(2, math.ceil(args.gradient_accumulation_steps / workers))
    os.environ[TRAINER] = str(os.getpid())
    multiprocessing.set_forkserver_preload([f"train.loading.{name}" for name in ("ending", "collator", "pair_dataset")])
