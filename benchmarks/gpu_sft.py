"""Seconds a step of the recipes that ship, at full size on one GPU, against stock TRL: random weights, made-up photos.

    python benchmarks/gpu_sft.py [--json FILE] [--recipes configs/sft/qwen3_vl_8b.yaml ...] [--tiny]

A recipe is read as train/sft.py reads it: its micro-batch, processes that read ahead, checkpointing, LoRA, optimiser;
pairs have the tokens of the real ones, photos the largest size. Ours is the recipe's own trainer, stock TRL's with the
same options, for a quarter of the batch, its time taken four times. A step's time is from the end of one to the end of
the next, reading included. ``utilisation`` is what ``cprt fit`` takes: the FLOPs that it counts a step over the card's
dense bfloat16 rate. A recipe whose need, rehearsed by ``cprt fit``, does not fit the card is left out in one line.
"""

from __future__ import annotations

import copy
import gc
import json
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import on_card

STEPS = 3  # the first warms up
STOCK_SHARE = 4


def main() -> None:
    args = on_card.parser(__doc__).parse_args()
    if args.worker:
        with tempfile.TemporaryDirectory() as folder:
            recipe = on_card.read(args.recipes[0], args.tiny, folder, args.worker == "measure")
            print(json.dumps(need(recipe) if args.worker == "need" else measure(recipe, Path(folder))))
        return
    print(f"{'recipe':<24}{'':<8}{'s/step':>8}{'80 steps':>10}{'tokens/s':>10}{'peak GB':>9}{'util.':>7}{'ratio':>7}")
    on_card.run(__file__, args, show)


def show(name: str, figures: dict[str, Any], card: str) -> list[dict[str, Any]]:
    """A line for ours, and one for stock TRL."""
    rows, peak = [], on_card.rate(card)
    for variant in ("ours", "stock"):
        figure = figures[variant]
        if figure is None:
            print(f"{name:<24}{variant:<8}{'out of memory':>18}", flush=True)
            continue
        figure |= {"variant": variant, "need": figures["need"], "utilisation": None, "ratio": None}
        if variant == "ours" and peak is not None:
            figure["utilisation"] = figures["need"]["flops"] / figure["seconds"] / peak
        if variant == "stock":
            figure["ratio"] = figure["seconds"] / figures["ours"]["seconds"]
        rows.append(figure)
        print(
            f"{name:<24}{variant:<8}{figure['seconds']:>8.2f}{80 * figure['seconds'] / 60:>8.1f} m"
            f"{figure['tokens_a_second']:>10.0f}{figure['peak_gb']:>9.1f}"
            f"{'' if figure['utilisation'] is None else format(figure['utilisation'], '.0%'):>7}"
            f"{'' if figure['ratio'] is None else format(figure['ratio'], '.2f'):>7}",
            flush=True,
        )
    return rows


def need(recipe: tuple[Any, ...]) -> dict[str, Any]:
    """Bytes of a card that the recipe takes, and FLOPs of a step, by the rehearsal behind ``cprt fit``."""
    from train.fit.run import RESERVE, rehearse_quietly

    figures = rehearse_quietly(recipe, recipe[3].per_device_train_batch_size)
    return {"bytes": figures.peak + RESERVE, "flops": figures.flops, "plain_reason": figures.plain_reason}


def measure(recipe: tuple[Any, ...], folder: Path) -> dict[str, Any]:
    """Figures of both variants; None where stock TRL finds no room."""
    import torch

    ours = train(recipe, folder, ours=True)
    try:
        stock = train(recipe, folder, ours=False)
    except torch.OutOfMemoryError:
        stock = None
    return {"ours": ours, "stock": stock}


def train(recipe: tuple[Any, ...], folder: Path, *, ours: bool) -> dict[str, Any]:
    """Seconds a step, the middle of ``STEPS`` but the first, and the most memory."""
    import torch
    from transformers import TrainerCallback
    from trl import SFTTrainer

    from train.fit.rehearsal import made_up_pairs, parts_of_trainer, random_model, stand_in_processor
    from train.trainer import JudgeTrainer

    config, data, model_args, args, lengths = recipe
    config, args = copy.deepcopy(config), copy.copy(args)
    share = 1 if ours else min(STOCK_SHARE, args.gradient_accumulation_steps)
    args.gradient_accumulation_steps //= share
    args.max_steps, args.disable_tqdm = STEPS, True
    processor = stand_in_processor(config, data.max_pixels)
    rows = args.per_device_train_batch_size * args.gradient_accumulation_steps
    pairs = made_up_pairs(lengths, STEPS * rows, folder, config, data)
    ends = []

    class Stock(SFTTrainer):
        _send_telemetry = JudgeTrainer._send_telemetry  # nothing, where the library would tell the Hub

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(on_card.now())

    if torch.cuda.is_available():
        gc.collect()  # what the other variant left
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = random_model(config, model_args, str(args.device))
    parts = parts_of_trainer(model, model_args, args, pairs, folder, processor)
    parts["callbacks"] = [Clock()]
    trainer = JudgeTrainer(**parts, share=data.shared_prefix, record={}) if ours else Stock(**parts)
    tokens = sum(trainer.data_collator([trainer.train_dataset[0]])["attention_mask"].sum(1).tolist())
    trainer.train()
    seconds = share * statistics.median(end - start for start, end in pairwise(ends))
    return {
        "seconds": seconds,
        "tokens_a_second": share * rows * tokens / seconds,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0,
        "micro_batch": args.per_device_train_batch_size,
        "processes": args.dataloader_num_workers,
        "plain_reason": trainer.plain_reason if ours else None,
    }


if __name__ == "__main__":
    main()
