"""What is shown and checked around a run, because none of it fails by itself: labels, weights, the saved file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from cprt.errors import InputError
from cprt.models.adapter import load_weights
from cprt.pages.words import aligned
from train.loading.collator import IGNORED

_LOGITS = 16  # positions at the end of a row whose logits are compared


def preview_labels(trainer: Any, rows: int = 2) -> list[str]:
    """The labelled text of the first rows of a real batch: what the loss is taken on. One string a row.

    Raises InputError when it is not the row's answer and the end token: then a template or a collator lost or added
    something.
    """
    chosen = [trainer.train_dataset[index] for index in range(min(rows, len(trainer.train_dataset)))]
    answers = [row["completion"][-1]["content"][0]["text"] for row in chosen]
    labels = trainer.data_collator(chosen)["labels"]
    tokenizer = trainer.processing_class.tokenizer
    texts = [tokenizer.decode(row[row != IGNORED], skip_special_tokens=False) for row in labels]
    for text, answer in zip(texts, answers, strict=True):
        if text != answer + tokenizer.eos_token:
            raise InputError(f"the loss would be taken on {text!r}, not on the answer {answer!r} and its end")
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
    rows = [[f"  {part}", f"{total:,}", f"{trained:,}"] for part, (total, trained) in parts.items()]
    return aligned([["  part", "weights", "trainable"], *rows])


_PARTS = {
    "visual": "vision",
    "vision_model": "vision",
    "multi_modal_projector": "projector",
    "language_model": "language model",
    "lm_head": "output head",
}


def adapter_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The adapter in memory as it is saved: name -> whole tensor on the CPU. Every process must call it.

    A weight that FSDP has sharded is gathered.
    """
    tensors = get_peft_model_state_dict(model)
    return {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()
        for name, tensor in tensors.items()
    }


def check_saved(expected: Mapping[str, torch.Tensor], folder: str | Path) -> int:
    """Reopen a saved adapter: every tensor of ``expected`` there and equal, and not all of lora_B zero.

    Returns the number of tensors. Raises RuntimeError: this is a fault of the run, not of its input.
    """
    saved = compare_saved(expected, folder)
    if not any(tensor.any() for name, tensor in saved.items() if "lora_B" in name):
        raise RuntimeError(f"{folder}: every lora_B is zero, the adapter does nothing")
    return len(saved)


def compare_saved(expected: Mapping[str, torch.Tensor], folder: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a saved adapter, which are those of ``expected``. Raises RuntimeError."""
    path = Path(folder) / "adapter_model.safetensors"
    saved = load_file(path)
    if saved.keys() != expected.keys():
        raise RuntimeError(f"{path} has {len(saved)} tensors, the model {len(expected)}")
    for name, tensor in expected.items():
        # ZeRO-3 keeps no more than a shard in memory, and an empty tensor here
        if tensor.numel() and not torch.equal(saved[name], tensor.to(saved[name].dtype)):
            raise RuntimeError(f"{path}: {name} differs from the model's")
    return saved


@torch.no_grad()
def check_effect(model: Any, folder: str | Path, batch: Mapping[str, torch.Tensor]) -> float:
    """Load a saved adapter beside the one in memory: it must give the same logits, and other ones than the base.

    Args:
        model: the PEFT model in memory; it is left as it was.
        batch: inputs of a forward pass, on the model's device.

    Returns the largest change of a logit. Raises RuntimeError.
    """
    training, active = model.training, model.active_adapter
    model.eval()
    inputs = {name: value for name, value in batch.items() if name != "labels"}  # with labels all logits are computed

    def logits() -> torch.Tensor:
        return model(**inputs, logits_to_keep=_LOGITS).logits.float()

    # Loading first: it may touch the base (four-bit weights are unpacked), and all three shall stand on the same.
    load_weights(model, folder, "reopened")
    weights = dict(model.named_parameters())
    for name in weights:
        if ".reopened" in name:  # in the precision that was trained in: PEFT opens bfloat16 as float32
            weights[name].data = weights[name].data.to(weights[name.replace(".reopened", f".{active}")].dtype)
    try:
        trained = logits()
        with model.disable_adapter():
            plain = logits()
        model.set_adapter("reopened")
        reopened = logits()
    finally:
        model.set_adapter(active)
        model.delete_adapter("reopened")
        model.train(training)
    if not torch.allclose(reopened, trained, rtol=1e-3, atol=1e-3 * float(trained.abs().max())):
        raise RuntimeError(f"{folder}: the saved adapter gives other logits than the one that was trained")
    change = float((trained - plain).abs().max())
    if not change > 0:  # NaN too
        raise RuntimeError(f"{folder}: the adapter changes no logit")
    return change


class StopOnBadLoss(TrainerCallback):
    """Stops a run whose loss is NaN, infinite, or exactly 0: labels were lost, or training has diverged."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and (not math.isfinite(loss) or loss == 0):
            raise RuntimeError(f"the loss is {loss} at step {state.global_step}: training on nothing, or diverged")
