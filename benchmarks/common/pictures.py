"""Seeded pictures with what makes photos cost something: smooth areas, edges, lines and grain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw


def soft(rng: np.random.Generator, cells: int, width: int, height: int) -> Image.Image:
    """Smooth areas alone: ``cells`` x ``cells`` random colours, enlarged."""
    coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def with_grain(image: Image.Image, grain: np.ndarray) -> Image.Image:
    """A picture with ``grain`` on it, whole numbers that reach at least as far as it does."""
    pixels = np.asarray(image, dtype=np.int16) + grain[: image.height, : image.width]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_photos(folder: Path, count: int) -> None:
    """JPEGs of 2,000 to 4,000 pixels wide and high, as VISPR's photos are."""
    rng = np.random.default_rng(0)
    grain = rng.normal(0, 5, (4000, 4000, 1)).astype(np.int16)
    folder.mkdir()
    for number in range(count):
        width, height = (int(side) for side in rng.integers(2000, 4001, 2))
        image = soft(rng, 12, width, height)
        draw = ImageDraw.Draw(image)
        for _ in range(400):
            x, y, length = (int(value) for value in rng.integers(0, (width, height, 400)))
            colour = tuple(int(value) for value in rng.integers(0, 256, 3))
            draw.ellipse([x, y, x + length, y + length // 2], fill=colour)
            draw.line([x, y, x + length, y + 60], fill=colour, width=length % 5 + 1)
        with_grain(image, grain).save(folder / f"{number:03}.jpg", quality=90)
