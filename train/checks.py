"""What is shown and checked around a run, because none of it fails by itself: labels, weights, the saved file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import TrainerCallback

from cprt.errors import InputError
from train.pair_dataset import IGNORED


def preview_labels(trainer: Any, rows: int = 2) -> list[str]:
    """The labelled text of the first rows of a real batch: what the loss is taken on. One string a row.

    Raises InputError when it is not the row's answer: then a template or a collator lost or added something.
    """
    chosen = [trainer.train_dataset[index] for index in range(min(rows, len(trainer.train_dataset)))]
    answers = [row["completion"][-1]["content"][0]["text"] for row in chosen]
    labels = trainer.data_collator(chosen)["labels"]
    tokenizer = trainer.processing_class.tokenizer
    texts = [tokenizer.decode(row[row != IGNORED], skip_special_tokens=False) for row in labels]
    for text, answer in zip(texts, answers, strict=True):
        if not text.startswith(answer):
            raise InputError(f"the loss would be taken on {text!r}, not on the answer {answer!r}")
    return texts


def trainable_table(model: Any) -> str:
    """Number of weights and of trainable ones for each part of the model.

    Raises InputError when anything outside the language model would be trained, or nothing at all.
    """
    parts: dict[str, list[int]] = {}
    for name, weight in model.named_parameters():
        part = next((part for part in name.split(".") if part in _PARTS), "other")
        total = parts.setdefault(_PARTS.get(part, part), [0, 0])
        total[0] += weight.numel()
        if weight.requires_grad:
            total[1] += weight.numel()
            if "language_model." not in name:
                raise InputError(f"lora_target_modules: {name} is outside the language model and would be trained")
    if not any(trained for _, trained in parts.values()):
        raise InputError("lora_target_modules fits no module: nothing would be trained")
    lines = [f"  {'part':<16}{'weights':>16}{'trainable':>16}"]
    lines += [f"  {part:<16}{total:>16,}{trained:>16,}" for part, (total, trained) in parts.items()]
    return "\n".join(lines)


_PARTS = {
    "visual": "vision",
    "vision_model": "vision",
    "multi_modal_projector": "projector",
    "language_model": "language model",
    "lm_head": "output head",
}


def check_saved(model: Any, folder: str | Path) -> int:
    """Reopen a saved adapter: every tensor there, equal to the one in memory, and not all of lora_B zero.

    Returns the number of tensors. Raises RuntimeError: this is a fault of the run, not of its input.
    """
    path = Path(folder) / "adapter_model.safetensors"
    saved = load_file(path)
    expected = get_peft_model_state_dict(model)
    if saved.keys() != expected.keys():
        raise RuntimeError(f"{path} has {len(saved)} tensors, the model {len(expected)}")
    for name, tensor in expected.items():
        if not torch.equal(saved[name], tensor.detach().cpu().to(saved[name].dtype)):
            raise RuntimeError(f"{path}: {name} differs from the model's")
    if not any(tensor.any() for name, tensor in saved.items() if "lora_B" in name):
        raise RuntimeError(f"{path}: every lora_B is zero, the adapter does nothing")
    return len(saved)


class StopOnBadLoss(TrainerCallback):
    """Stops a run whose loss is NaN, infinite, or exactly 0: labels were lost, or training has diverged."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and (not math.isfinite(loss) or loss == 0):
            raise RuntimeError(f"the loss is {loss} at step {state.global_step}: training on nothing, or diverged")


class NoPickles(TrainerCallback):
    """Takes ``training_args.bin`` out of checkpoints: a pickle that can hold a token, and that resuming ignores."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / "training_args.bin").unlink(missing_ok=True)
