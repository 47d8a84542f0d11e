"""Control images spoiled to the quality of reconstructions."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from eval.model_inversion.judge.degrade import blurred, matching_radius, sharpness


def photo(seed: int, size: int = 96) -> Image.Image:
    """Smooth areas with edges and grain."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8)).resize((size, size))
    return Image.fromarray((np.asarray(coarse) + rng.normal(0, 6, (size, size, 3))).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("radius", [0.7, 2.0, 5.0])
def test_the_radius_is_the_one_that_reconstructions_were_blurred_by(radius: float):
    made = [photo(seed).filter(ImageFilter.GaussianBlur(radius)) for seed in range(20, 40)]
    found = matching_radius([photo(seed) for seed in range(20)], made)
    assert found == pytest.approx(radius, abs=max(0.3, 0.2 * radius))  # other photos than those that were blurred


def test_photos_that_are_no_sharper_stay_as_they_are():
    smooth = [photo(seed).filter(ImageFilter.GaussianBlur(4)) for seed in range(8)]
    assert matching_radius(smooth, [photo(seed) for seed in range(8)]) == 0
    assert blurred(smooth[0], 0) is smooth[0]


def test_sharpness_is_that_of_the_definition_and_leaves_light_and_contrast_alone():
    picture = photo(3)
    dim = Image.fromarray((np.asarray(picture) * 0.5 + 40).astype(np.uint8))
    assert sharpness(dim) == pytest.approx(sharpness(picture), rel=0.05)
    grey = np.asarray(picture.convert("L"), dtype=float)
    taps = np.exp(-0.5 * (np.arange(-12, 13) / 3) ** 2)
    smooth = np.pad(grey, 12, mode="symmetric")
    for axis in (0, 1):
        smooth = np.apply_along_axis(np.convolve, axis, smooth, taps / taps.sum(), "valid")
    assert sharpness(picture) == pytest.approx((grey - smooth).var() / grey.var(), rel=1e-6)
    assert sharpness(Image.new("RGB", (40, 40), "red")) == 0
