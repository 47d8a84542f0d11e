"""Seconds per optimiser step: stock TRL against the shared prefix, side by side, and how far the results differ.

    python benchmarks/sft_step.py [--json FILE] [--image_tokens 256 512] [--steps 2]

A random Qwen3-VL, large enough that arithmetic dominates (``--width`` of its language model), is tuned on the taxonomy
prompt (about 800 tokens), one image, and an answer of about 40 tokens: micro-batches of 8, accumulation over 4, LoRA of
rank 64, float32. Each variant runs in a process of its own; the first step warms up and gives the gradients, the other
``--steps`` are timed. Stock TRL runs as it is, with gradient checkpointing, and with logits only where there are labels
(as it does on a GPU); the fastest counts. The vocabulary and the heads are few, so that logits and attention weigh as
little as in a large model. The limit is the ratio of the tokens to be computed; attention gains less, since every row
still looks at the whole prefix.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common.measuring import options, save
from common.random_model import BASE, random_qwen3_vl, sides

MICRO_BATCH, ACCUMULATION = 8, 4
ROWS = MICRO_BATCH * ACCUMULATION
# Whether the prefix is shared (None: TRL's own trainer, without any code of ours), and gradient checkpointing.
VARIANTS = {
    "stock": (None, False),
    "stock_checkpointing": (None, True),
    "stock_few_logits": (False, False),
    "shared": (True, False),
}


def main() -> None:
    args = options(__doc__, image_tokens=[256, 512], steps=2, width=768)
    save(args, [compare(tokens, args.steps, args.width) for tokens in args.image_tokens])


def compare(image_tokens: int, steps: int, width: int) -> dict[str, Any]:
    """All variants at one image size, each in its own process."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variant in VARIANTS:
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                figures[variant] = alone.submit(measure, variant, image_tokens, steps, width, folder).result()
        gradient_difference = largest_difference(folder / "stock.safetensors", folder / "shared.safetensors")
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


def measure(variant: str, image_tokens: int, steps: int, width: int, folder: Path) -> dict[str, Any]:
    """Train ``steps`` + 1 steps of one variant; write the first step's gradients to ``VARIANT.safetensors``."""
    from safetensors.torch import save_file
    from transformers import PrinterCallback, TrainerCallback

    model = random_qwen3_vl(width)
    trainer = build_trainer(model, image_tokens, folder / variant, steps, *VARIANTS[variant])
    seconds: list[float] = []

    class Clock(TrainerCallback):
        """Seconds of every optimiser step, the reading of its rows left out."""

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.start = time.perf_counter()

        def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            if not seconds:
                weights = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
                gradients = {name: weight.grad.clone() for name, weight in weights.items()}
                save_file(gradients, folder / f"{variant}.safetensors")

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.perf_counter() - self.start)

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Clock())
    trainer.train()
    ids = trainer.data_collator([trainer.train_dataset[0]])["input_ids"]
    return {
        "seconds": statistics.median(seconds[1:]),
        "loss": trainer.state.log_history[0]["loss"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "prefix_tokens": int((ids[0] == model.config.vision_start_token_id).nonzero()[0, 0]),
        "row_tokens": ids.shape[1],
        "weights": sum(weight.numel() for weight in model.parameters()),
    }


def build_trainer(
    model: Any, image_tokens: int, output: Path, steps: int, share: bool | None, checkpointing: bool
) -> Any:
    """A trainer over made-up pairs, all of which are one optimiser step. ``share`` None is TRL's own."""
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

    height, width = sides(image_tokens)
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
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=ACCUMULATION,
            gradient_checkpointing=checkpointing,
            max_steps=steps + 1,
            max_length=None,
            seed=0,
            use_cpu=True,
            bf16=False,
            remove_unused_columns=False,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
            max_grad_norm=1e9,
        ),
        train_dataset=Dataset.from_dict({"index": list(range(ROWS))}).with_transform(read),
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


if __name__ == "__main__":
    main()
