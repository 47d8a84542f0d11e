"""Photos in bytes, completed, are bit for bit what the library's processor of images makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from cprt.images.patches import complete, in_bytes
from cprt.models.checkpoint import load_processor

SIZES = [(570, 459), (512, 512), (64, 64), (30, 40), (445, 588), (2000, 11), (1200, 900), (512, 512)]


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    """Every byte in every size, in what modes Pillow may hand over."""
    draw = np.random.default_rng(0).integers
    made = [Image.fromarray(draw(0, 256, (height, width, 3), dtype=np.uint8)) for width, height in SIZES]
    modes = ["RGB", "L", "RGBA", "P"]
    return [photo.convert(modes[place % 4]) for place, photo in enumerate(made)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"image_mean": (0.48, 0.45, 0.4), "image_std": (0.26, 0.25, 0.27)},
        {"do_normalize": False},
        {"do_rescale": False},
        {"do_rescale": False, "do_normalize": False},
        {"do_resize": False},
        {"resample": 2, "size": {"shortest_edge": 4096, "longest_edge": 65536}},
        {"patch_size": 8, "merge_size": 4, "temporal_patch_size": 3},
    ],
    ids=lambda settings: "-".join(settings) or "stock",
)
def test_the_numbers_are_the_librarys(settings, photos, demo_base):
    processor = load_processor(str(demo_base), max_pixels=512 * 512)
    for name, value in settings.items():
        setattr(processor.image_processor, name, value)
    shown = [photo.convert("RGB").resize((128, 96)) for photo in photos] if "do_resize" in settings else photos
    texts = [processor.image_token] * len(shown)
    made = [
        way(text=texts, images=[[photo] for photo in shown], padding=True, return_tensors="pt")
        for way in (processor, in_bytes(processor))
    ]
    theirs, ours = made
    assert ours["patches"].dtype == torch.uint8 and "pixel_values" not in ours
    assert ours["patches"].numel() * processor.image_processor.temporal_patch_size == theirs["pixel_values"].numel()
    complete(ours, processor.image_processor, theirs["pixel_values"].dtype)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype and torch.equal(ours[name], tensor), name


def test_in_half_precision_they_are_the_librarys_rounded(photos, demo_base):
    processor = load_processor(str(demo_base))
    theirs = processor.image_processor(photos, return_tensors="pt")["pixel_values"]
    ours = in_bytes(processor).image_processor(photos, return_tensors="pt")
    complete(ours, processor.image_processor, torch.bfloat16)
    assert torch.equal(ours["pixel_values"], theirs.to(torch.bfloat16))


def test_another_familys_processor_stays_as_it_is(tiny_mllama, photos):
    processor = load_processor(str(tiny_mllama))
    assert in_bytes(processor) is processor
    made = dict(processor.image_processor(photos[:1], return_tensors="pt"))
    before = dict(made)
    complete(made, processor.image_processor)
    assert made == before
