"""Control images spoiled to the quality of reconstructions, so that a judge is tested on what it has to judge.

Reconstructions are smoother than photos, and a judge that recognises a person in a photo may not in a blurred one. The
measure is the share of a picture's variance that lies in its detail, which light and contrast leave alone; photos are
blurred until their median is that of the reconstructions. Noise and false colours are not imitated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageFilter

MOST_LOOKED_AT = 200  # tiles of either kind: their median hardly changes with more
_DETAIL = 3.0  # pixels of a tile; much finer, and the steps of eight bits would count as detail
_LARGEST = 32.0
_STEPS = 12  # halvings: to within 0.01 pixels


def sharpness(tile: Image.Image) -> float:
    """Variance of what a Gaussian of three pixels takes away, over that of the grey values; 0 for one colour."""
    from scipy.ndimage import gaussian_filter

    grey = np.asarray(tile.convert("L"), dtype=np.float64)
    spread = grey.var()
    return float((grey - gaussian_filter(grey, _DETAIL)).var() / spread) if spread else 0.0


def blurred(tile: Image.Image, radius: float) -> Image.Image:
    """By a Gaussian with a standard deviation of so many pixels."""
    return tile.filter(ImageFilter.GaussianBlur(radius)) if radius else tile


def matching_radius(photos: Sequence[Image.Image], reconstructions: Sequence[Image.Image]) -> float:
    """The radius that gives photos the median sharpness of reconstructions; 0 where they are no sharper."""
    wanted = float(np.median([sharpness(tile) for tile in reconstructions]))

    def too_sharp(radius: float) -> bool:
        return float(np.median([sharpness(blurred(tile, radius)) for tile in photos])) > wanted

    if not too_sharp(0.0):
        return 0.0
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_sharp(middle) else (low, middle)
    return round(high, 3)
