"""Photos with what reducing can get wrong, the obvious way to reduce them, and how far two lie apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from cprt.images import fit


def busy(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Smooth areas, sharp edges, thin lines and grain: what reducing can get wrong."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(300):
        x, y, length = (int(value) for value in rng.integers(0, (size[0], size[1], 200)))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        if length % 2:
            draw.rectangle([x, y, x + length, y + length // 2], fill=colour)
        else:
            draw.line([x, y, x + length, y + 40], fill=colour, width=length % 5 + 1)
    grain = np.asarray(image, dtype=np.int16) + rng.normal(0, 6, (size[1], size[0], 1)).astype(np.int16)
    return Image.fromarray(grain.clip(0, 255).astype(np.uint8))


def plain(path: Path, max_pixels: int, filter: Image.Resampling = Image.Resampling.LANCZOS) -> Image.Image:
    """The obvious way: all pixels, then reduced."""
    with Image.open(path) as image:
        whole = ImageOps.exif_transpose(image).convert("RGB")
    return whole.resize(fit(whole.size, max_pixels), filter)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean absolute difference, in levels of 255."""
    assert one.size == other.size
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean())
