"""What gpu_sft.py and gpu_eval.py share: recipes as their commands read them, room on the card, processes, a table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from cprt.records import write_json

ROOT = Path(__file__).parents[1]
RECIPES = [str(ROOT / "configs" / "sft" / f"qwen3_vl_{size}.yaml") for size in ("2b", "4b", "8b")]
PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "A100": 312.0, "L40S": 362.0, "L4": 121.0, "4090": 165.0}  # dense bfloat16
TINY = ["--global_batch_size", "8", "--per_device_train_batch_size", "2", "--per_device_eval_batch_size", "4"]
TINY += ["--max_pixels", "65536", "--dataloader_num_workers", "1"]


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of both scripts."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", help="file to write the figures to")
    options.add_argument("--recipes", nargs="+", default=RECIPES, metavar="YAML")
    options.add_argument("--tiny", action="store_true", help="a model of two layers on the processor, to try it out")
    options.add_argument("--worker", choices=["need", "measure"], help=argparse.SUPPRESS)
    return options


def read(path: str, tiny: bool, folder: str, on_card: bool = True) -> tuple[Any, ...]:
    """(configuration of the model, DataArguments, ModelConfig, SFTConfig, lengths of a pair) of a recipe.

    Its values are those that train/sft.py runs; only what lies outside a step (hold-out, checkpoints) is left out.

    Args:
        on_card: False where a card is imagined, which other processes that read ahead would not see.
    """
    from train.fit.architectures import qwen3_vl
    from train.fit.run import recipe_of

    words = ["--config", path, "--output_dir", folder, "--eval_strategy", "no", "--save_strategy", "no"]
    words += TINY if tiny else []
    words += ["--use_cpu", "true"] if tiny or not on_card else []
    words += [] if on_card else ["--dataloader_num_workers", "0"]
    _, (config, *others) = recipe_of(words)
    if tiny:
        config = qwen3_vl("tiny")
        config.text_config.vocab_size = 1000
    return config, *others


def run(script: str, args: argparse.Namespace, row: Callable[[str, dict[str, Any], str], list[dict[str, Any]]]) -> None:
    """Every recipe's need, side by side and without the card; then, where there is room, its measurement on the card.

    Args:
        row: prints the lines of one recipe and returns what is written of them, from its name, its figures (``need``
            among them) and the card.
    """
    card, room = memory(args.tiny)
    print(f"{card}, {room / 1e9:.0f} GB free, {date.today()}", flush=True)
    needs = {recipe: start(script, "need", recipe, args.tiny) for recipe in args.recipes}
    rows: list[dict[str, Any]] = []
    for recipe in args.recipes:
        name, need = Path(recipe).stem, finish(needs[recipe])
        if "failed" not in need and need["bytes"] > room:
            print(f"{name}: needs {need['bytes'] / 1e9:.1f} GB, {room / 1e9:.1f} are free: left out", flush=True)
            continue
        figures = need if "failed" in need else finish(start(script, "measure", recipe, args.tiny))
        if "failed" in figures:
            print(f"{name}: failed: {figures['failed']}", flush=True)
            continue
        rows += [{"recipe": name, **one} for one in row(name, {**figures, "need": need}, card)]
    if args.json:
        write_json(args.json, {"date": str(date.today()), "card": card, "rows": rows})
    if not rows:
        sys.exit(1)


def start(script: str, task: str, recipe: str, tiny: bool) -> subprocess.Popen[str]:
    """A process for one task; what a recipe needs is worked out on the processor."""
    command = [sys.executable, script, "--worker", task, "--recipes", recipe, *(["--tiny"] if tiny else [])]
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if task == "need" else {}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **hidden}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process found, or the last line that it said as ``failed``."""
    out, err = process.communicate()
    if process.returncode:
        return {"failed": (err.strip().splitlines() or ["without a word"])[-1]}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def memory(tiny: bool) -> tuple[str, float]:
    """The card's name, and the bytes that are free on it; of the processor for the tiny shape."""
    import torch

    if tiny:
        return "CPU", 8e9
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here; --tiny tries the script out on the processor")
    free, _ = torch.cuda.mem_get_info()
    return torch.cuda.get_device_name(), free


def rate(card: str) -> float | None:
    """The card's dense bfloat16 FLOPs a second, None where it is not in the list."""
    return next((1e12 * tflops for name, tflops in PEAK_TFLOPS.items() if name in card), None)


def now() -> float:
    """Seconds, once the card has done what it was given."""
    import time

    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
