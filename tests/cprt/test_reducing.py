"""Photos reduced and turned while they are opened, beside the obvious way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_photos import busy, difference, plain
from PIL import Image, ImageOps

from cprt.images import fit, load_image


def test_a_draft_is_close_to_a_decode_in_full_size(tmp_path: Path):
    """Within 1.5 of 255 levels, photo by photo; over all of them within what Lanczos and bicubic differ by."""
    drafts, filters = [], []
    for number, (size, options) in enumerate(
        [
            ((1600, 1200), {}),
            ((1999, 1401), {"subsampling": 0}),
            ((1200, 1803), {"progressive": True}),
            ((901, 700), {"quality": 75}),
            ((2400, 500), {}),
        ]
    ):
        path = tmp_path / f"{number}.jpg"
        busy(size, number).save(path, **{"quality": 90, **options})
        for budget in (262_144, 65_536, 9_216):
            whole = plain(path, budget)
            fast = load_image(path, budget)
            drafts.append(difference(fast, whole))
            filters.append(difference(plain(path, budget, Image.Resampling.BICUBIC), whole))
            shifted = Image.fromarray(np.roll(np.asarray(whole), 1, axis=1))
            assert difference(shifted, whole) > 4  # so that the bound means something
    assert max(drafts) < 1.5 and np.mean(drafts) < np.mean(filters)
    grey = tmp_path / "grey.jpg"
    busy((1600, 1200)).convert("L").save(grey)
    assert difference(load_image(grey, 30_000), plain(grey, 30_000)) < 1.5


@pytest.mark.parametrize("suffix", ["jpg", "tif", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_photos_are_as_pillow_turns_them(tmp_path: Path, suffix: str, orientation: int):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{suffix}"
    busy((300, 200)).save(path, exif=exif, **({"lossless": True} if suffix == "webp" else {}))
    with Image.open(path) as image:
        assert difference(load_image(path), ImageOps.exif_transpose(image).convert("RGB")) == 0
    assert difference(load_image(path, 9000), plain(path, 9000)) < 1.5


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_broken_exif_data_does_not_cost_a_photo(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Maker"
    whole = exif.tobytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "a.jpg"
    for _ in range(300):
        broken = bytearray(whole)
        for position in rng.integers(6, len(broken), 4):
            broken[position] = rng.integers(256)
        Image.new("RGB", (32, 16)).save(path, exif=bytes(broken))
        assert sorted(load_image(path, 100_000).size) == [16, 32]


@pytest.mark.parametrize("size", [(4000, 3000), (3000, 4000), (999, 1), (1, 999), (100_000, 3), (7, 5), (173, 173)])
@pytest.mark.parametrize("budget", [1, 2, 100, 9_216, 262_144])
def test_sizes_fit_the_budget_and_keep_their_shape(size: tuple[int, int], budget: int):
    width, height = fit(size, budget)
    assert 1 <= width * height <= budget or size == (width, height)
    assert width <= size[0] and height <= size[1]
    if min(width, height) >= 30:
        assert width / height == pytest.approx(size[0] / size[1], rel=0.04)
        assert width * height > 0.93 * min(budget, size[0] * size[1])
