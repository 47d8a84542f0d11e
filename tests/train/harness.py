"""Trainers as ``train/sft.py`` builds them, in float32 on small parts, for tests that compare weights and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import TrainerCallback
from trl import ModelConfig, SFTConfig, SFTTrainer

from cprt.models.checkpoint import load_model, load_processor
from cprt.records import Pair
from train.adapter import LANGUAGE_MODEL_PROJECTIONS, quantization, quantized_layers
from train.loading.collator import PairCollator
from train.loading.pair_dataset import pair_dataset
from train.shared_prefix import SharedPrefixTrainer

MAX_PIXELS = 9216
Tensors = dict[str, torch.Tensor]


def build(
    base: Path,
    images: Path,
    pairs: Sequence[Pair],
    output: Path,
    *,
    share: bool | None = True,
    accepts_loss_kwargs: bool = True,
    four_bits: bool = False,
    dropout: float = 0.0,
    dataset: Any = None,
    held_out: Any = None,
    score_width: float | None = None,
    **options: Any,
) -> SFTTrainer:
    """A trainer; ``share`` None means TRL's own. ``options`` go to SFTConfig.

    Every lora_B is set away from zero: at zero, no gradient would reach lora_A, nor what the prefix hands on.
    """
    processor = load_processor(str(base), max_pixels=MAX_PIXELS)
    settings = quantization(ModelConfig(dtype="float32", load_in_4bit=four_bits))
    model = load_model(str(base), dtype="float32", quantization_config=settings)
    assert quantized_layers(model) == (28 if four_bits else 0)
    model.accepts_loss_kwargs = accepts_loss_kwargs
    model_type = model.config.model_type
    options = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,
        "max_grad_norm": 1e9,
        "logging_steps": 1,
        "bf16": False,
        **options,
    }
    args = SFTConfig(
        output_dir=str(output),
        max_length=None,
        use_cpu=True,
        remove_unused_columns=False,
        seed=0,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **options,
    )
    torch.manual_seed(0)
    trainer_class, extra = (SFTTrainer, {}) if share is None else (SharedPrefixTrainer, {"share": share})
    trainer = trainer_class(
        model,
        args,
        train_dataset=dataset or pair_dataset(pairs, images, model_type),
        eval_dataset=held_out,
        processing_class=processor,
        data_collator=PairCollator(processor, score_width),
        peft_config=LoraConfig(
            r=8, lora_alpha=16, lora_dropout=dropout, target_modules=LANGUAGE_MODEL_PROJECTIONS, task_type="CAUSAL_LM"
        ),
        **extra,
    )
    generator = torch.Generator().manual_seed(1)
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            weight.data.copy_(0.05 * torch.randn(weight.shape, generator=generator))
    return trainer


class Gradients(TrainerCallback):
    """Keeps the gradients of every optimiser step, as they are before it."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self.steps: list[Tensors] = []

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.steps.append({name: weight.grad.clone() for name, weight in trainable(self.model).items()})


def trainable(model: torch.nn.Module) -> Tensors:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def train(trainer: SFTTrainer) -> tuple[list[Tensors], Tensors, list[float]]:
    """Gradients of each step, the adapter at the end, and the loss of each step."""
    gradients = Gradients(trainer.model)
    trainer.add_callback(gradients)
    trainer.train()
    adapter = {name: weight.detach().clone() for name, weight in trainable(trainer.model).items()}
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return gradients.steps, adapter, losses


def difference(ours: Tensors, theirs: Tensors) -> float:
    """The largest relative difference of a tensor: norm of the difference over norm."""
    assert ours.keys() == theirs.keys() and ours
    return max(float((ours[name] - theirs[name]).norm() / theirs[name].norm()) for name in ours)
