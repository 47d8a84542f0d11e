"""Duplicates: copies are found however they were saved, different photos are not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from data_prep.demo.data import draw_attributes
from data_prep.demo.drawings import draw
from data_prep.pairs.duplicates import PhotoHash, clusters, photo_hash


def photo(seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((200, 150), Image.Resampling.BICUBIC)


def again(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def test_copies_are_found_and_different_photos_are_not():
    photos = [photo(seed) for seed in range(20)]
    photos += [again(photos[3], 40), photos[5].resize((120, 90)), photos[7].copy()]
    prints = [photo_hash(image) for image in photos]
    assert clusters(prints) == [[3, 20], [5, 21], [7, 22]]
    assert clusters(prints, threshold=None) == [[7, 22]]


def test_near_pairs_against_a_brute_force_count_of_bits():
    rng = np.random.default_rng(1)
    bits = [int(value) for value in rng.integers(1, 2**16, 1500)]  # short, so that many are near
    prints = [PhotoHash(str(i), value) for i, value in enumerate(bits)]
    expected: list[set[int]] = []
    for i, one in enumerate(bits):
        near = {j for j in range(i + 1) if 4 * (one ^ bits[j]).bit_count() <= (one | bits[j]).bit_count()}
        near = {j for j in near if (one ^ bits[j]).bit_count() <= 1}
        touching = [group for group in expected if group & near]
        expected = [group for group in expected if not group & near] + [near.union(*touching)]
    assert clusters(prints, threshold=1) == sorted(sorted(group) for group in expected if len(group) > 1)


def test_faint_photos_of_different_things_are_no_chain():
    """Skies with a dark speck each, in another place: one bit of 64 is set, and two differ."""
    skies = []
    for number in range(1, 9):
        grey = np.full((8, 9), 200, dtype=np.uint8)
        grey[number % 3, number] = 150
        skies.append(Image.fromarray(grey).resize((90, 80), Image.Resampling.NEAREST).convert("RGB"))
    hashes = [photo_hash(sky) for sky in skies]
    assert [one.bits.bit_count() for one in hashes] == [1] * 8 and clusters(hashes) == []
    assert clusters([PhotoHash("a", 0b11111111), PhotoHash("b", 0b11111100)]) == [[0, 1]]


def test_photos_of_one_colour_are_no_duplicates():
    assert clusters([photo_hash(Image.new("RGB", (8, 8), color)) for color in ("red", "blue", "red")]) == []


def test_photos_too_faint_for_the_hash_are_only_exact_duplicates():
    faint = [Image.new("RGB", (90, 80), color) for color in ("red", "blue", "red")]
    for image in faint:
        image.putpixel((0, 0), (255, 255, 255))
    faint = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for image in faint]
    prints = [photo_hash(image) for image in faint]
    assert {one.bits for one in prints} == {0}
    assert clusters(prints) == [[0, 2]]


@pytest.mark.parametrize("seed", [0, 1])
def test_drawings_of_the_demo_are_no_duplicates(seed: int):
    drawings = []
    for number in range(60):
        rng = np.random.default_rng([seed, number])
        drawings.append(photo_hash(draw(draw_attributes(rng), rng)))
    assert clusters(drawings, threshold=None) == []
