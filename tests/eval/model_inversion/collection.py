"""A small collection in the public one's layout. Every image is one of a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

SETUP = "CelebA/KEDMI/FFHQ/FaceNet64"
ID = "celeba_kedmi_ffhq_facenet64"


def picture(path: Path, *seed: int, size: tuple[int, int] = (40, 40)) -> Path:
    """A smooth seeded picture whose top left corner has the colour of its first seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 5, 3)).astype(np.uint8)
    image = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
    image.paste(colour(seed[0]), (0, 0, size[0] // 4, size[1] // 4))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=95)
    return path


def colour(number: int) -> tuple[int, int, int]:
    return (37 * number % 256, 91 * number % 256, 153 * number % 256)


def make(folder: Path, classes: int = 3, references: int = 7, images: int = 4, nest: str = "AttackSamples") -> Path:
    """``root`` with one set-up: ``images`` reconstructions and ``references`` references a class."""
    base = folder / "root" / nest
    for number in range(classes):
        for image in range(references):
            suffix = ".JPG" if image % 2 else ".png"
            picture(base / "CelebA" / "private-data" / str(number) / f"{image:03}{suffix}", number, 1, image)
        for image in range(images):
            name = f"ID={image}_T={number}_P={number}_CT=0.8{image}.png"
            picture(base / SETUP / "all-images" / str(number) / name, number, 2, image)
    return folder / "root"


def describe(folder: Path, root: Path, setups: dict[str, Any] | None = None, **more: Any) -> Path:
    """The YAML of a collection."""
    path = folder / "collection.yaml"
    path.write_text(yaml.safe_dump({"root": str(root), "setups": setups or {"CelebA": {"subject": "person"}}, **more}))
    return path


def configure(folder: Path, setups: Path, url: str, *names: str, **more: Any) -> list[str]:
    """Arguments of ``cprt mi`` for judges behind ``url``."""
    models = [{"name": name, "model": f"model-{name}", "base_url": url, "max_new_tokens": 64, **more} for name in names]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mi.yaml").write_text(yaml.safe_dump({"models": models, "setups": str(setups)}))
    return ["--config", str(folder / "mi.yaml"), "--out", str(folder / "out")]
