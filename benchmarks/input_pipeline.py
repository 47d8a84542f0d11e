"""Does reading photos hide behind the device's work? A training step's batches, with a device that sleeps.

    python benchmarks/input_pipeline.py [--json FILE] [--seconds 2.5] [--steps 4] [--workers 2]

Every step takes a whole accumulation window from the loader (128 pairs by default, each a 512 x 512 photo and the
taxonomy prompt), then sleeps for the seconds that a card would compute. ``stall`` is the median step over these
seconds, without processes that read ahead and with them, in this order; 1 is hidden. Other work on the same cores
lengthens it: ``load`` is that of the last minute, ours included.
Processor time is touched less. ``cpu_s_a_sample``: of one sample, made here and, with ``ahead_``, by those processes,
which also put it where the trainer's can see it. ``trainer_cpu_s_a_step``: of the trainer's process while it takes a
step's batches from them. ``complete_cpu_s_a_sample``: of making numbers of a photo's bytes, which a card does itself.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from common.measuring import options, save
from common.pictures import write_photos
from common.random_model import BASE
from PIL import Image
from torch.utils.data import DataLoader

from cprt.images import fit
from cprt.images.patches import complete, in_bytes
from cprt.models.checkpoint import load_processor
from cprt.prompts import build
from cprt.records import Pair
from train.loading.collator import PairCollator
from train.loading.pair_dataset import pair_dataset

SIDE, MICRO = 512, 8


def pairs_of(folder: Path, count: int) -> list[Pair]:
    """Photos of the recipes' size, each with the prompt that ships and an answer."""
    (folder / "images").mkdir()
    write_photos(folder / "large", 16)
    for path in (folder / "large").iterdir():
        with Image.open(path) as image:
            image.resize(fit(image.size, SIDE * SIDE)).save(folder / "images" / path.name, quality=95)
    prompt, answer = build("taxonomy").messages(), '{"score": 0.812}'
    completion = [{"role": "assistant", "content": [{"type": "text", "text": answer}]}]
    return [Pair(str(i), [f"images/{i % 16:03}.jpg"], prompt, completion, 1, 0.812) for i in range(count)]


def steps_of(loader: Any, window: int, steps: int, seconds: float) -> tuple[list[float], float, float]:
    """Seconds of each step but the first, which waits for the processes to start; processor time of all these steps.

    The latter of the processes that read ahead, and of this one.
    """
    batches, taken, theirs, ours = iter(loader), list[float](), list[float](), list[float]()
    for _ in range(steps + 1):
        started = time.perf_counter()
        for _ in range(window):
            next(batches)
        time.sleep(seconds)
        taken.append(time.perf_counter() - started)
        processes = [psutil.Process(worker.pid).cpu_times() for worker in getattr(batches, "_workers", ())]
        theirs.append(sum(times.user + times.system for times in processes))
        ours.append(time.process_time())
    return taken[1:], theirs[-1] - theirs[0], ours[-1] - ours[0]


def main() -> None:
    args = options(__doc__, seconds=2.5, steps=4, batch=128, workers=2)
    torch.set_num_threads(1)
    window = args.batch // MICRO
    figures: dict[str, Any] = vars(args).copy()
    with tempfile.TemporaryDirectory() as name:
        pairs = pairs_of(Path(name), args.batch * (args.steps + 2))
        dataset = pair_dataset(pairs, Path(name), "qwen3_vl")
        processor = load_processor(BASE, None, SIDE * SIDE)
        collate = PairCollator(in_bytes(processor))
        started = time.process_time()
        made = [collate(dataset.__getitems__(list(range(start, start + MICRO)))) for start in range(0, 64, MICRO)]
        figures["cpu_s_a_sample"] = (time.process_time() - started) / 64
        started = time.process_time()
        for batch in made:
            complete(batch, processor.image_processor)
        figures["complete_cpu_s_a_sample"] = (time.process_time() - started) / 64
        for workers in (0, args.workers):
            ahead = {"prefetch_factor": max(2, math.ceil(window / workers))} if workers else {}
            loader = DataLoader(
                dataset,
                MICRO,
                collate_fn=collate,
                num_workers=workers,
                multiprocessing_context="forkserver" if workers else None,
                **ahead,
            )
            taken, theirs, ours = steps_of(loader, window, args.steps, args.seconds)
            figures["ahead_cpu_s_a_sample"] = theirs / args.steps / args.batch
            figures["trainer_cpu_s_a_step"] = ours / args.steps
            figures[f"stall_{workers}"] = statistics.median(taken) / args.seconds
    figures["load"] = psutil.getloadavg()[0]
    print(
        f"a step of {args.seconds:g} s: {figures['stall_0']:.2f} times that without reading ahead, "
        f"{figures[f'stall_{args.workers}']:.2f} with {args.workers} processes; "
        f"{1000 * figures['cpu_s_a_sample']:.1f} ms of processor time a sample, "
        f"{1000 * figures['ahead_cpu_s_a_sample']:.1f} there, {1000 * figures['complete_cpu_s_a_sample']:.1f} to "
        "complete one; "
        f"{1000 * figures['trainer_cpu_s_a_step']:.0f} ms of the trainer's a step; load {figures['load']:.1f}"
    )
    save(args, figures)


if __name__ == "__main__":
    main()
