"""Photos of every kind come out upright, in RGB, with their values kept; what is no photo gets a reason."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cprt.errors import InputError
from cprt.images import ImageIndex, check_images, image_root, load_image, read_bare_jpeg

GRADIENT = np.tile(np.linspace(0, 255, 64, dtype=np.uint8), (48, 1))  # (48, 64), dark on the left


def save(image: Image.Image, path: Path, **options) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["L", "P", "1", "CMYK", "RGB", "LA", "RGBA", "YCbCr"])
def test_every_mode_becomes_the_same_rgb_picture(tmp_path: Path, mode: str):
    suffix = ".jpg" if mode in ("CMYK", "YCbCr") else ".png"
    image = Image.fromarray(GRADIENT).convert("RGB").convert(mode)
    loaded = load_image(save(image, tmp_path / f"a{suffix}"))
    assert (loaded.mode, loaded.size) == ("RGB", (64, 48))
    values = np.asarray(loaded, dtype=int)
    assert abs(values.mean() - GRADIENT.mean()) < (40 if mode == "1" else 6)
    assert values[:, :8].mean() + 150 < values[:, -8:].mean()


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path):
    image = Image.fromarray(GRADIENT.astype(np.uint16) * 257)
    loaded = np.asarray(load_image(save(image, tmp_path / "a.png")), dtype=int)
    assert np.abs(loaded[..., 0] - GRADIENT).max() <= 1


def test_transparency_is_laid_on_white(tmp_path: Path):
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert load_image(save(image, tmp_path / "a.png")).getpixel((0, 0)) == (255, 255, 255)


def test_exif_orientation_turns_the_photo_upright(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn to the right
    loaded = load_image(save(Image.fromarray(GRADIENT), tmp_path / "a.jpg", exif=exif))
    assert loaded.size == (48, 64)
    values = np.asarray(loaded, dtype=int)
    assert values[:8].mean() + 150 < values[-8:].mean()  # dark on top


def bomb(path: Path) -> Path:
    """A PNG of a few bytes whose header promises 4 gigapixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 65536, 65536, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")))
    return path


def test_what_is_no_photo_is_refused_with_its_name_and_reason(tmp_path: Path):
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "empty.jpg").write_bytes(b"")
    whole = save(Image.effect_noise((64, 48), 90), tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    bomb(tmp_path / "bomb.png")
    reasons = {
        "text.jpg": "is not an image",
        "empty.jpg": "is not an image",
        "cut.jpg": "cannot be read as an image",
        "bomb.png": "too many pixels",
        "gone.jpg": "no such image",
    }
    for name, reason in reasons.items():
        with pytest.raises(InputError, match=f"{name}: .*{reason}"):
            load_image(tmp_path / name)


def test_content_that_another_program_would_have_to_open_is_refused(tmp_path: Path, monkeypatch):
    """Pillow hands PostScript to Ghostscript, whatever the file is called."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args, **options: pytest.fail("Ghostscript was asked"))
    Image.fromarray(GRADIENT).save(tmp_path / "a.jpg", format="EPS")
    with pytest.raises(InputError, match=r"a.jpg: is no photo format \(EPS\)"):
        load_image(tmp_path / "a.jpg")


def test_checking_names_the_first_bad_photo_and_counts_the_others(tmp_path: Path):
    whole = save(Image.effect_noise((64, 48), 90), tmp_path / "a.jpg").read_bytes()
    check_images(tmp_path, ["a.jpg"])
    (tmp_path / "cut.jpg").write_bytes(whole[:-400])
    with pytest.raises(InputError, match=r"cut.jpg: .* \(and 1 more\)"):
        check_images(tmp_path, ["a.jpg", "cut.jpg", "gone.jpg"])
    check_images(tmp_path, ["cut.jpg"], decode=False)  # its header is whole: found when it is asked about


def test_the_root_is_the_folder_that_holds_images(tmp_path: Path, monkeypatch):
    (tmp_path / "images" / "val2017").mkdir(parents=True)
    assert image_root(tmp_path) == tmp_path
    assert image_root(tmp_path / "images") == tmp_path
    monkeypatch.chdir(tmp_path / "images")
    assert image_root(".") == tmp_path.resolve()
    (tmp_path / "flat").mkdir()
    assert image_root(tmp_path / "flat") == tmp_path / "flat"
    with pytest.raises(InputError, match="is not a folder"):
        image_root(tmp_path / "nowhere")


def test_an_id_that_fits_several_photos_needs_its_folder(tmp_path: Path):
    for folder in ("val2017", "test2017"):
        (tmp_path / "images" / folder).mkdir(parents=True)
        Image.new("L", (1, 1)).save(tmp_path / "images" / folder / "a.PNG")
    index = ImageIndex(tmp_path)
    assert len(index) == 2
    assert index.find("val2017/a.png") == "images/val2017/a.PNG"
    assert index.find("test2017/a") == "images/test2017/a.PNG"
    assert index.find("b") is None
    with pytest.raises(ValueError, match="fits several images"):
        index.find("a.png")
    for hostile in ("../../x", "/etc/passwd", "a/../../b", ""):
        with pytest.raises(ValueError, match="is not a file name inside"):
            index.find(hostile)


# --- JPEGs that hold nothing but pixels --------------------------------------------------------------------------


def jpeg(path: Path, mode: str = "RGB", **save: Any) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).convert(mode).resize((40, 30)).save(path, "JPEG", **{"quality": 95, **save})
    return path


def test_a_jpeg_of_nothing_but_pixels_may_go_as_it_is(tmp_path: Path):
    for save in ({}, {"subsampling": 0}, {"restart_marker_blocks": 1}, {"optimize": True}):
        path = jpeg(tmp_path / "a.jpg", **save)
        assert read_bare_jpeg(path) == path.read_bytes() == read_bare_jpeg(path, 1200), save
        assert read_bare_jpeg(path, 1199) is None
    assert read_bare_jpeg(tmp_path / "none.jpg") is None


def test_whatever_else_a_jpeg_holds_keeps_it_from_going_as_it_is(tmp_path: Path):
    exif = Image.Exif()
    exif[0x010E] = "secret"
    others = {
        "exif": {"exif": exif},
        "comment": {"comment": b"secret"},
        "profile": {"icc_profile": b"secret" * 9},
        "density": {"dpi": (300, 300)},
        "progressive": {"progressive": True},
        "grey": {"mode": "L"},
        "four colours": {"mode": "CMYK"},
    }
    for name, save in others.items():
        assert read_bare_jpeg(jpeg(tmp_path / "a.jpg", **save)) is None, name
    whole = jpeg(tmp_path / "a.jpg").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b.jpg").write_bytes(whole[:length])
        assert read_bare_jpeg(tmp_path / "b.jpg") is None, length
    for content in (whole + b"secret", whole + whole, whole[:-2] + b"\xff\xfe\x00\x08secret\xff\xd9"):
        (tmp_path / "b.jpg").write_bytes(content)
        assert read_bare_jpeg(tmp_path / "b.jpg") is None
    jpeg(tmp_path / "a.jpg").with_suffix(".png").write_bytes(whole[:2] + b"\x89PNG")
    assert read_bare_jpeg(tmp_path / "a.png") is None
