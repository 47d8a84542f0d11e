"""How a batch is cut into micro-batches changes nothing: the loss is a mean over all answer tokens of the step."""

from __future__ import annotations

import pytest
from harness import build, difference, train

from cprt.records import read_pairs

# Relative, float32. Measured: gradients 7e-7, weights 2e-5 (AdamW magnifies the rounding of small gradients) where the
# loss is right; weights 9e-3 where every micro-batch counts the same.
GRADIENT_TOLERANCE = 1e-5
WEIGHT_TOLERANCE = 1e-4


def differences(base, demo, output, **options):
    """Three steps as one micro-batch of four and as four of one: how far the first gradients and the weights differ."""
    pairs = read_pairs(demo.short_pairs / "train.jsonl")[:12]
    assert len({len(pair.completion[0]["content"][0]["text"]) for pair in pairs}) > 3  # answers of different lengths
    runs = []
    for batch in (4, 1):
        sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 4 // batch}
        runs.append(train(build(base, demo.images, pairs, output, max_steps=3, **sizes, **options)))
    (gradients, weights, _), (other_gradients, other_weights, _) = runs
    return difference(gradients[0], other_gradients[0]), difference(weights, other_weights)


@pytest.mark.parametrize("share", [True, False])
def test_four_by_one_is_one_by_four(demo_base, mixed_demo, tmp_path, share):
    """Images of five sizes, answers of different lengths, three steps."""
    gradient, weight = differences(demo_base, mixed_demo, tmp_path, share=share)
    assert gradient < GRADIENT_TOLERANCE and weight < WEIGHT_TOLERANCE


def test_the_stock_setting_fails_this_test(demo_base, mixed_demo, tmp_path):
    """Qwen3-VL's own accepts_loss_kwargs, False, trains another adapter: this is what train/sft.py must override."""
    gradient, weight = differences(demo_base, mixed_demo, tmp_path, share=False, accepts_loss_kwargs=False)
    assert gradient > 1000 * GRADIENT_TOLERANCE and weight > 20 * WEIGHT_TOLERANCE


def test_four_by_one_is_one_by_four_for_llama(tiny_mllama, mixed_demo, tmp_path):
    """The same for Llama 3.2 Vision with our collator."""
    gradient, weight = differences(tiny_mllama, mixed_demo, tmp_path)
    assert gradient < GRADIENT_TOLERANCE and weight < WEIGHT_TOLERANCE
