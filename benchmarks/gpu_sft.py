"""Seconds per 128-sample step at full size on one GPU: Qwen3-VL 8B, 4B and 2B with random weights, against stock TRL.

    python benchmarks/gpu_sft.py [--json FILE] [--runs 8B:1024 8B:256 4B:256 2B:256]

bfloat16, LoRA of rank 64 on the language model, the taxonomy prompt. Ours: the shared prefix. Stock: TRL's SFTTrainer
with its defaults (gradient checkpointing), on 32 samples, its time taken four times, since it is linear in samples.
Each is measured in a process of its own, one step after a step of warm-up. Model FLOP utilisation counts the FLOPs that
are needed (no recomputation, the prefix once) against the card's dense bfloat16 rate. Try it anywhere with
--runs tiny:256 --device cpu.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from random_model import BASE
from sft_step import build_trainer, time_steps, tokens_of

from train.fit.architectures import SHAPES, VOCABULARY, qwen3_vl

ROWS, STOCK_ROWS = 128, 32  # 16 and 8 for the tiny shape, which only shows that the script runs
MICRO_BATCH = {"8B": 8, "4B": 16, "2B": 16, "tiny": 8}
PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "A100": 312.0}  # dense bfloat16, from the makers' data sheets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--runs", nargs="+", default=["8B:1024", "8B:256", "4B:256", "2B:256"], metavar="SIZE:TOKENS")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        size, tokens, variant = args.worker
        print(json.dumps(measure(size, int(tokens), variant == "ours", args.device)))
        return
    results = []
    print(
        f"{'model':<7}{'image':>6} {'':<7}{'s/step':>8}{'80 steps':>10}{'tokens/s':>10}{'MFU':>7}{'peak GB':>9}"
        f"{'ratio':>7}"
    )
    for run in args.runs:
        size, tokens = run.split(":")
        figures = {}
        for variant in ("ours", "stock"):
            command = [sys.executable, __file__, "--device", args.device, "--worker", size, tokens, variant]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{size:<7}{tokens:>6} {variant:<7} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            figures[variant] = figure = json.loads(done.stdout.splitlines()[-1])
            results.append({"model": size, "image_tokens": int(tokens), "variant": variant, **figure})
            ratio = figures["stock"]["seconds"] / figures["ours"]["seconds"] if len(figures) == 2 else None
            utilisation = "" if figure["utilisation"] is None else f"{figure['utilisation']:.0%}"
            print(
                f"{size:<7}{tokens:>6} {variant:<7}{figure['seconds']:>8.2f}{80 * figure['seconds'] / 60:>8.1f} m"
                f"{figure['tokens_per_second']:>10.0f}{utilisation:>7}{figure['peak_gb']:>9.1f}"
                f"{'' if ratio is None else f'{ratio:.2f}':>7}",
                flush=True,
            )
    print(f"{results[0]['card'] if results else 'no result'}, {date.today()}")
    if args.json:
        Path(args.json).write_text(json.dumps({"date": str(date.today()), "runs": results}, indent=2) + "\n")


def measure(size: str, image_tokens: int, ours: bool, device: str) -> dict[str, Any]:
    """One step of ``ROWS`` samples after a step of warm-up."""
    import torch
    from transformers import AutoModelForImageTextToText

    config = full_config(size)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(
            config, dtype=torch.bfloat16 if device == "cuda" else torch.float32
        )
    rows = (16, 8)[not ours] if size == "tiny" else (ROWS, STOCK_ROWS)[not ours]
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(
            model,
            image_tokens,
            rows,
            Path(folder),
            share=True if ours else None,
            max_steps=2,
            per_device_train_batch_size=MICRO_BATCH[size],
            use_cpu=device == "cpu",
            bf16=device == "cuda",
            **({"gradient_checkpointing": True} if ours else {}),
            dataloader_num_workers=0 if device == "cpu" else 8,
        )
        if ours and trainer.plain_reason:
            raise SystemExit(f"the prefix is not shared: {trainer.plain_reason}")
        tokens = tokens_of(trainer)
        seconds = time_steps(trainer, lambda: None)[-1] * ROWS / rows
    prefix, rest = tokens["prefix_tokens"], tokens["row_tokens"] - tokens["prefix_tokens"]
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    peak = next((peak for name, peak in PEAK_TFLOPS.items() if name in card), None)
    needed = needed_flops(size, prefix, rest, image_tokens)
    return {
        "seconds": seconds,
        "tokens_per_second": ROWS * (prefix + rest) / seconds,  # of the samples, however few are computed
        "needed_tflop": needed / 1e12,
        "utilisation": None if peak is None else needed / seconds / (peak * 1e12),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0,
        "card": card,
        **tokens,
    }


def full_config(size: str) -> Any:
    """The configuration of a Qwen3-VL of one of ``SHAPES``, with the special tokens of the processor used here."""
    from transformers import AutoConfig

    config, base = qwen3_vl(size), AutoConfig.from_pretrained(BASE)
    for name in ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"):
        setattr(config, name, getattr(base, name))
    return config


def needed_flops(size: str, prefix: int, rest: int, image_tokens: int) -> float:
    """FLOPs that one step needs, the prefix once.

    2 a weight and token forward and 2 backward (frozen weights have no gradient), 6 for LoRA's weights, attention over
    what a token sees, the vision encoder forward alone, logits for 45 tokens of answer.
    """
    (width, inner, layers, heads), (vision_width, vision_inner, depth, _) = SHAPES[size]
    projections = width * heads * 128 * 2 + width * 8 * 128 * 2 + 3 * width * inner
    lora = 64 * (2 * (width + heads * 128) + 2 * (width + 8 * 128) + 3 * (width + inner))
    tokens = prefix + ROWS * rest
    seen = prefix * prefix / 2 + ROWS * rest * (prefix + rest / 2)  # pairs of a token and one that it sees
    text = layers * (tokens * (4 * projections + 6 * lora) + 3 * 4 * heads * 128 * seen)
    patches = 4 * image_tokens
    per_patch = depth * (2 * (4 * vision_width**2 + 2 * vision_width * vision_inner) + 4 * vision_width * patches)
    return text + ROWS * (patches * per_patch + 45 * 4 * width * VOCABULARY)


if __name__ == "__main__":
    main()
