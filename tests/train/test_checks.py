"""A run that learns nothing, diverges, or saves less than it trained, stops with a reason."""

from __future__ import annotations

import pytest
import torch
from harness import build, trainable
from safetensors.torch import load_file, save_file

from cprt.errors import InputError
from cprt.records import read_pairs
from train.checks import StopOnBadLoss, adapter_tensors, check_effect, check_saved, trainable_table


@pytest.fixture
def trainer(demo_base, demo, tmp_path):
    pairs = read_pairs(demo.short_pairs / "train.jsonl")[:8]
    return build(
        demo_base, demo.images, pairs, tmp_path, per_device_train_batch_size=2, max_steps=3, learning_rate=1e20
    )


def test_a_diverged_run_stops(trainer):
    """A learning rate far too high: the loss turns NaN and the run ends there, not after the night."""
    trainer.add_callback(StopOnBadLoss())
    trainer.args.logging_nan_inf_filter = False  # as train/sft.py sets it
    with pytest.raises(RuntimeError, match="the loss is nan at step"):
        trainer.train()


def test_a_loss_of_zero_stops(trainer):
    """Rows without any label, as a cut at max_length leaves them, train on nothing."""
    collate = trainer.data_collator

    def without_labels(rows):
        batch = collate(rows)
        batch["labels"][:] = -100
        return batch

    trainer.data_collator = without_labels
    trainer.add_callback(StopOnBadLoss())
    with pytest.raises(RuntimeError, match="the loss is 0"):
        trainer.train()


def test_a_saved_adapter_is_read_back(trainer, tmp_path):
    """What was saved is compared with what is in memory: a lost tensor, another value, an adapter of zeros."""
    folder = tmp_path / "saved"
    trainer.model.save_pretrained(folder)
    assert check_saved(adapter_tensors(trainer.model), folder) == 2 * 7 * 4
    path = folder / "adapter_model.safetensors"
    good = load_file(path)
    first = next(iter(good))
    save_file({name: weight for name, weight in good.items() if name != first}, path)
    with pytest.raises(RuntimeError, match="has 55 tensors, the model 56"):
        check_saved(adapter_tensors(trainer.model), folder)
    save_file({**good, first: good[first] + 1}, path)
    with pytest.raises(RuntimeError, match=first):
        check_saved(adapter_tensors(trainer.model), folder)
    for name, weight in trainable(trainer.model).items():
        if "lora_B" in name:
            weight.data.zero_()
    trainer.model.save_pretrained(folder)
    with pytest.raises(RuntimeError, match="every lora_B is zero"):
        check_saved(adapter_tensors(trainer.model), folder)


def test_an_adapter_without_effect_is_an_error(trainer, tmp_path):
    """The saved file is loaded beside the one in memory: the same logits, other ones than the base, or an error."""
    row = trainer.data_collator([trainer.train_dataset[0]])
    trainer.model.save_pretrained(tmp_path / "good")
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    assert check_effect(trainer.model, tmp_path / "good", row) > 0.01
    assert all((weight == before[name]).all() for name, weight in trainer.model.named_parameters())
    assert trainer.model.active_adapter == "default" and list(trainer.model.peft_config) == ["default"]

    for weight in trainable(trainer.model).values():  # as of four bits, which PEFT opens in float32
        weight.data = (4 * weight.data).bfloat16()  # large enough for the rounding of products to show
    trainer.model.save_pretrained(tmp_path / "good")
    assert check_effect(trainer.model, tmp_path / "good", row) > 0.01
    assert {weight.dtype for weight in trainable(trainer.model).values()} == {torch.bfloat16}

    path = tmp_path / "good" / "adapter_config.json"  # the weights are right, their scale is not
    path.write_text(path.read_text().replace('"lora_alpha": 16', '"lora_alpha": 64'))
    with pytest.raises(RuntimeError, match="other logits than the one that was trained"):
        check_effect(trainer.model, tmp_path / "good", row)
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            weight.data.zero_()
    trainer.model.save_pretrained(tmp_path / "nothing")
    with pytest.raises(RuntimeError, match="changes no logit"):
        check_effect(trainer.model, tmp_path / "nothing", row)


def test_what_would_be_trained_is_counted(trainer):
    """The table agrees with the model, and a weight outside the language model is refused, as is none at all."""
    table = trainable_table(trainer.model)
    weights = sum(weight.numel() for weight in trainable(trainer.model).values())
    assert f"{weights:,}" in next(line for line in table.splitlines() if "language model" in line)
    patch = trainer.model.get_base_model().model.visual.patch_embed.proj.weight
    patch.requires_grad = True
    with pytest.raises(InputError, match=r"visual\.patch_embed\.proj\.weight is outside the language model"):
        trainable_table(trainer.model)
    for weight in trainer.model.parameters():
        weight.requires_grad = False
    with pytest.raises(InputError, match="nothing would be trained"):
        trainable_table(trainer.model)
