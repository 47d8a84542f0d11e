"""Seconds per optimiser step: stock TRL against the shared prefix, side by side, and how far the results differ.

    python benchmarks/sft_step.py [--json FILE] [--image_tokens 256 512] [--steps 2]

A random Qwen3-VL, large enough that arithmetic dominates, is tuned on the taxonomy prompt (about 800 tokens), one
image, and an answer of about 40 tokens: micro-batches of 8, accumulation over 4, LoRA of rank 64, float32. Each variant
runs in a process of its own; the first step warms up and gives the gradients, the others are timed. Stock TRL runs as
it is, with gradient checkpointing, and with logits only where there are labels (as it does on a GPU); the fastest
counts. The vocabulary and the heads are few, so that logits and attention weigh as little as in a large model. The
limit is the ratio of the tokens to be computed; attention gains less, since every row still looks at the whole prefix.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from random_model import BASE, random_qwen3_vl

MICRO_BATCH, ACCUMULATION = 8, 4
ROWS = MICRO_BATCH * ACCUMULATION
# Whether the prefix is shared (None: TRL's own trainer, without any code of ours), and gradient checkpointing.
VARIANTS = {
    "stock": (None, False),
    "stock_checkpointing": (None, True),
    "stock_few_logits": (False, False),
    "shared": (True, False),
}
SIDES = {256: (512, 512), 512: (512, 1024), 1024: (1024, 1024)}  # 32 x 32 pixels a token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--image_tokens", type=int, nargs="+", default=[256, 512], choices=list(SIDES))
    parser.add_argument("--steps", type=int, default=2, help="timed steps of each variant")
    parser.add_argument("--width", type=int, default=768, help="hidden size of the language model")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.worker[0], args.image_tokens[0], args.steps, args.width, Path(args.worker[1]))))
        return
    results = [compare(tokens, args) for tokens in args.image_tokens]
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=2) + "\n")


def compare(image_tokens: int, args: argparse.Namespace) -> dict[str, Any]:
    """All variants at one image size, each in its own process."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in VARIANTS:
            command = [
                sys.executable,
                __file__,
                "--worker",
                name,
                f"{folder}/{name}.safetensors",
                "--image_tokens",
                str(image_tokens),
                "--steps",
                str(args.steps),
                "--width",
                str(args.width),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            figures[name] = json.loads(done.stdout.splitlines()[-1])
        gradient_difference = largest_difference(
            Path(folder) / "stock.safetensors", Path(folder) / "shared.safetensors"
        )
    stock = min(figure["seconds"] for name, figure in figures.items() if name != "shared")
    shared, losses = figures["shared"], (figures["stock"]["loss"], figures["shared"]["loss"])
    prefix, rest = shared["prefix_tokens"], shared["row_tokens"] - shared["prefix_tokens"]
    result = {
        "image_tokens": image_tokens,
        "prefix_tokens": prefix,
        "rest_tokens": rest,
        "ratio": stock / shared["seconds"],
        "limit": ROWS * (prefix + rest) / (prefix + ROWS * rest),
        "loss_difference": abs(losses[0] - losses[1]) / abs(losses[0]),
        "gradient_difference": gradient_difference,
        "variants": figures,
    }
    print(f"\nprompt {prefix} tokens, image {image_tokens}, question and answer {rest - image_tokens:.0f}")
    print(f"{'':<22}{'s/step':>10}{'samples/s':>12}{'peak MB':>10}")
    for name, figure in figures.items():
        print(f"{name:<22}{figure['seconds']:>10.2f}{ROWS / figure['seconds']:>12.2f}{figure['peak_mb']:>10.0f}")
    print(
        f"ratio {result['ratio']:.2f} (limit by computed tokens {result['limit']:.2f}); relative difference: loss "
        f"{result['loss_difference']:.1e}, gradients {gradient_difference:.1e}",
        flush=True,
    )
    return result


def largest_difference(one: Path, other: Path) -> float:
    """The largest relative difference of any LoRA gradient between two runs."""
    from safetensors.torch import load_file

    a, b = load_file(one), load_file(other)
    return max(float((a[name] - b[name]).norm() / a[name].norm()) for name in a)


def measure(variant: str, image_tokens: int, steps: int, width: int, gradients: Path) -> dict[str, Any]:
    """Train ``steps`` + 1 steps of one variant; write the first step's gradients to ``gradients``."""
    from safetensors.torch import save_file

    model = random_qwen3_vl(width)
    share, checkpointing = VARIANTS[variant]
    trainer = build_trainer(
        model,
        image_tokens,
        ROWS,
        gradients.parent / variant,
        share=share,
        max_steps=steps + 1,
        use_cpu=True,
        per_device_train_batch_size=MICRO_BATCH,
        gradient_checkpointing=checkpointing,
        bf16=False,
    )
    seconds = time_steps(
        trainer,
        lambda: save_file(
            {name: weight.grad.clone() for name, weight in trainer.model.named_parameters() if weight.requires_grad},
            gradients,
        ),
    )
    return {
        "seconds": statistics.median(seconds[1:]),
        "loss": trainer.state.log_history[0]["loss"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **tokens_of(trainer),
        "weights": sum(weight.numel() for weight in model.parameters()),
    }


def build_trainer(model: Any, image_tokens: int, rows: int, output: Path, *, share: bool | None, **options: Any) -> Any:
    """A trainer over ``rows`` made-up pairs, all of which are one optimiser step. ``share`` None is TRL's own."""
    import numpy as np
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from PIL import Image
    from trl import SFTConfig, SFTTrainer

    from cprt.models.checkpoint import load_processor
    from cprt.prompts import build
    from train.adapter import LANGUAGE_MODEL_PROJECTIONS
    from train.loading.collator import PairCollator
    from train.shared_prefix import SharedPrefixTrainer

    height, width = SIDES[image_tokens]
    model.accepts_loss_kwargs = True
    processor = load_processor(BASE, max_pixels=height * width)
    rng = np.random.default_rng(0)
    prompt = build("taxonomy", "attributes").messages()
    answer = '{"attributes": ["biometrics", "race_ethnicity", "age", "gender", "location", "metadata"], "level": 1, '

    def read(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        text = [answer + f'"score": {0.711 + index / 1000:.3f}}}' for index in batch["index"]]
        return {
            "prompt": [prompt for _ in text],
            "completion": [[{"role": "assistant", "content": [{"type": "text", "text": t}]}] for t in text],
            "images": [[Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))] for _ in text],
        }

    trainer_class, extra = (SFTTrainer, {}) if share is None else (SharedPrefixTrainer, {"share": share})
    trainer = trainer_class(
        model,
        SFTConfig(
            output_dir=str(output),
            gradient_accumulation_steps=rows // options["per_device_train_batch_size"],
            max_length=None,
            seed=0,
            remove_unused_columns=False,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
            max_grad_norm=1e9,
            **options,
        ),
        train_dataset=Dataset.from_dict({"index": list(range(rows))}).with_transform(read),
        processing_class=processor,
        data_collator=PairCollator(processor),
        peft_config=LoraConfig(
            r=64, lora_alpha=64, lora_dropout=0.0, target_modules=LANGUAGE_MODEL_PROJECTIONS, task_type="CAUSAL_LM"
        ),
        **extra,
    )
    generator = torch.Generator().manual_seed(1)
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:  # at zero, lora_A has no gradient to compare
            weight.data.copy_(torch.randn(weight.shape, generator=generator) * 0.02)
    return trainer


def time_steps(trainer: Any, before_first_update: Callable[[], object]) -> list[float]:
    """Seconds of every optimiser step of a training, the reading of its rows left out."""
    import torch
    from transformers import TrainerCallback

    seconds: list[float] = []

    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.start = now()

        def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            if not seconds:
                before_first_update()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(now() - self.start)

    trainer.add_callback(Clock())
    trainer.train()
    return seconds


def tokens_of(trainer: Any) -> dict[str, int]:
    """How long a row is, and how much of it stands before its image."""
    ids = trainer.data_collator([trainer.train_dataset[0]])["input_ids"]
    start = trainer.model.get_base_model().config.vision_start_token_id
    return {"prefix_tokens": int((ids[0] == start).nonzero()[0, 0]), "row_tokens": ids.shape[1]}


if __name__ == "__main__":
    main()
