"""What tests of models share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A JPEG on its side with a position, a comment, a profile and a camera's name in it."""
    pixels = np.random.default_rng(0).integers(0, 255, (12, 20, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    exif[0x0110] = "SecretCamera"
    exif.get_ifd(0x8825)[2] = (48.0, 51.0, 30.0)
    file = tmp_path / "photo.jpg"
    image.save(file, quality=95, exif=exif, comment=b"SecretComment", icc_profile=b"SecretProfile" * 20, dpi=(91, 91))
    return file
