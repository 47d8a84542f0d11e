"""Whether a training recipe fits a card, the largest micro-batch that does, and how long it takes: before renting one.

    cprt fit --config configs/sft/qwen3_vl_8b.yaml --gpu 24 [--load_in_4bit true ...]

The recipe's first step runs through the code that trains, at full size, on an imagined card (``train.fit.card``): what
would fail there fails here, without a card and without weights. Every option of train/sft.py can be given too.
"""

from __future__ import annotations

import os
import sys
import warnings
from bisect import bisect
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cprt.config import option, parse, run
from cprt.errors import InputError

if TYPE_CHECKING:
    from train.fit.rehearsal import Figures, Lengths

Recipe = tuple[Any, Any, Any, Any, "Lengths"]  # as train.fit.rehearsal.rehearse takes it

GB = 1e9
RESERVE = 1.5 * GB  # CUDA's context, cuBLAS's workspaces, and what torch's allocator loses between blocks

VARIANTS = {
    "with checkpointing": ("--gradient_checkpointing", "true", "--load_in_4bit", "false"),
    "without": ("--gradient_checkpointing", "false", "--load_in_4bit", "false"),
    "in four bits, with checkpointing": ("--gradient_checkpointing", "true", "--load_in_4bit", "true"),
    "in four bits, without": ("--gradient_checkpointing", "false", "--load_in_4bit", "true"),
}


@dataclass
class FitArguments:
    gpu: float = option("memory of the card in GB, as its maker calls it", 24.0, above=0)
    tflops: float = option(
        "the card's dense bfloat16 rate: 989 (H100, H200), 312 (A100), 121 (L4), 165 (RTX 4090)", 312.0, above=0
    )
    utilisation: float = option("share of that rate that training reaches; 0.3 to 0.5 is usual", 0.4, above=0, most=1)
    prompt_tokens: int = option("tokens before the photo: 774 ask for a score, 814 for attributes", 814, least=1)
    answer_tokens: int = option("tokens behind the photo, the answer and what stands around it", 69, least=1)
    search: bool = option("also look for the largest micro-batch, with checkpointing, without, and in four bits", True)


def main(argv: Sequence[str] | None = None) -> None:
    argv = list(sys.argv[1:] if argv is None else argv)
    if "-h" in argv or "--help" in argv:  # without torch; the others are those of train/sft.py --help
        parse(FitArguments, ["--help"], prog="cprt fit", description=__doc__)
    names = {f"--{field.name}" for field in fields(FitArguments)}
    own = [word for pair in pairwise(argv) if pair[0] in names for word in pair]
    parse(FitArguments, own, prog="cprt fit")  # before torch and the recipe, which take seconds
    fit, recipe = read_recipe(argv)
    _, _, model_args, args, _ = recipe
    rows, room = args.per_device_train_batch_size, fit.gpu * GB - RESERVE
    print(f"{model_args.model_name_or_path}, imagined card of {fit.gpu:g} GB, {RESERVE / GB:g} of them for libraries")
    print("one step at full size, which takes a minute or two ...", flush=True)
    figures = rehearse_quietly(recipe, rows)
    smaller = "does not fit: the recipe's first lines say what to change for a smaller card"
    print(
        f"as it is, micro-batch {rows}: {_bytes(figures.peak)}, {_bytes(figures.fixed)} of them weights "
        f"and adapter; {'fits' if figures.peak <= room else smaller}"
    )
    print(f"shared prefix: {f'no, {figures.plain_reason}' if figures.plain_reason else 'yes'}")
    seconds = figures.flops / (fit.tflops * 1e12 * fit.utilisation)
    rate = f"{fit.utilisation:.0%} of {fit.tflops:g} TFLOP/s"
    tera = figures.flops / 1e12
    line = f"{f'{tera:,.0f} T' if tera >= 1 else f'{1000 * tera:,.1f} G'}FLOP a step: {_seconds(seconds)} at {rate}"
    if args.max_steps > 0:
        line += f"; {args.max_steps} steps take {_seconds(args.max_steps * seconds)}"
    print(line, flush=True)
    if fit.search:
        print(f"largest micro-batch within {fit.gpu:g} GB:")
        for name, options in VARIANTS.items():
            print(f"  {name:<32} ", end="", flush=True)  # what is being tried, for some seconds each
            _, varied = read_recipe([*argv, *options])
            most = largest(varied, room)
            print(f"{most or 'none'}{' (the whole batch)' * (most == varied[1].global_batch_size)}", flush=True)


def _bytes(count: float) -> str:
    return f"{count / GB:.1f} GB" if count >= GB / 10 else f"{count / 1e6:.0f} MB"


def _seconds(count: float) -> str:
    return f"{count / 60:.0f} minutes" if count >= 600 else f"{count:.1f} s" if count >= 1 else f"{count:.1g} s"


def largest(recipe: Recipe, room: float) -> int | None:
    """The most pairs of a micro-batch, a divisor of the global batch, that fit ``room`` bytes; None for none."""
    import torch

    batch = recipe[1].global_batch_size
    candidates = [rows for rows in range(1, batch + 1) if batch % rows == 0]

    def fits(rows: int) -> bool:
        try:
            rehearse_quietly(recipe, rows, room)
        except torch.OutOfMemoryError:
            return False
        return True

    fitting = bisect(candidates, 0, key=lambda rows: not fits(rows))
    return candidates[fitting - 1] if fitting else None


def read_recipe(argv: Sequence[str]) -> tuple[FitArguments, Recipe]:
    """As ``recipe_of``, for an imagined card."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:  # the recipe's own may hold a run
        # With use_cpu transformers looks for no GPU; workers would not see the imagined one.
        return recipe_of([*argv, "--use_cpu", "true", "--dataloader_num_workers", "0", "--output_dir", folder])


def recipe_of(argv: Sequence[str]) -> tuple[FitArguments, Recipe]:
    """Our options, and the recipe checked as train/sft.py checks it. Raises InputError."""
    from trl import ModelConfig, SFTConfig

    from train.fit.architectures import config_of
    from train.fit.rehearsal import Lengths
    from train.options import DataArguments, settle

    fit, data, model_args, args = parse((FitArguments, DataArguments, ModelConfig, SFTConfig), argv, prog="cprt fit")
    settle(data, model_args, args)
    config = config_of(model_args.model_name_or_path, model_args.model_revision)
    if config.model_type == "qwen3_vl" and data.max_pixels is None:
        raise InputError("max_pixels is missing: without it a photo takes up to 16k tokens")
    return fit, (config, data, model_args, args, Lengths(fit.prompt_tokens, fit.answer_tokens))


def rehearse_quietly(recipe: Recipe, rows: int, limit: float | None = None) -> Figures:
    """A rehearsal without what the libraries say meanwhile."""
    from datasets.utils.logging import disable_progress_bar
    from transformers.utils import logging

    from train.fit.rehearsal import rehearse

    logging.set_verbosity_error()
    disable_progress_bar()
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stderr(nowhere),
        redirect_stdout(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        return rehearse(*recipe, rows, limit)


if __name__ == "__main__":
    run(main, "cprt fit")
