"""Photos of every kind come out upright, in RGB, with their values kept; what is no photo gets a reason."""

from __future__ import annotations

import io
import os
import shutil
import socket
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pillow_heif import register_heif_opener

from cprt.errors import InputError
from cprt.images import (
    ImageIndex,
    check_images,
    cores,
    fit,
    image_root,
    image_size,
    in_order,
    list_photos,
    load_image,
    read_bare_jpeg,
)

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


TENTH = 0.1 * np.tile(np.linspace(0, 1, 64), (48, 1))  # no level is over 10% grey
UNSIGNED, SIGNED, FLOAT = 1, 2, 3


def tiff(values: np.ndarray, kind: int = UNSIGNED, bits: int | None = None, white_is_zero: bool = False) -> bytes:
    """An uncompressed greyscale TIFF, in the byte order of ``values``; 12 bits are packed two to three bytes."""
    height, width = values.shape
    order = ">" if values.dtype.byteorder == ">" else "<"
    content = values.tobytes()
    if bits == 12:
        pairs = values.reshape(-1, 2).astype(int)
        content = b"".join((one << 12 | two).to_bytes(3) for one, two in pairs.tolist())
    tags = [
        (256, width),
        (257, height),
        (258, bits or 8 * values.itemsize),
        (259, 1),
        (262, 0 if white_is_zero else 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, len(content)),
        (339, kind),
    ]
    head = struct.pack(f"{order}2sHI", b"MM" if order == ">" else b"II", 42, 8 + len(content))
    entries = [struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in tags]
    return head + content + struct.pack(f"{order}H", len(tags)) + b"".join(entries) + bytes(4)


def png16(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values.astype(np.uint16)).save(buffer, "PNG")
    return buffer.getvalue()


def jpeg2000(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values.astype(np.uint16)).save(buffer, "JPEG2000", irreversible=False)
    return buffer.getvalue()


def pgm(values: np.ndarray, most: int) -> bytes:
    return b"P5 64 48 %d " % most + values.astype(">u2").tobytes()


DEEP = {
    "16 bits, PNG": png16(TENTH * 65535),
    "16 bits, JPEG 2000": jpeg2000(TENTH * 65535),
    "16 bits, PGM": pgm(TENTH * 65535, 65535),
    "10 bits, PGM": pgm(TENTH * 1023, 1023),
    "16 bits, TIFF": tiff((TENTH * 65535).astype("<u2")),
    "16 bits, TIFF, big end first": tiff((TENTH * 65535).astype(">u2")),
    "16 bits, TIFF, white is zero": tiff((65535 - TENTH * 65535).astype("<u2"), white_is_zero=True),
    "12 bits, TIFF": tiff((TENTH * 4095).astype("<u2"), bits=12),
    "16 bits with a sign, TIFF": tiff((TENTH * 32767).astype("<i2"), SIGNED),
    "32 bits, TIFF": tiff((TENTH * (2**32 - 1)).astype("<u4")),
    "32 bits with a sign, TIFF": tiff((TENTH * (2**31 - 1)).astype("<i4"), SIGNED),
    "float of 0 to 1, TIFF": tiff(TENTH.astype("<f4"), FLOAT),
    "float of 0 to 1, TIFF, big end first": tiff(TENTH.astype(">f4"), FLOAT),
    "float of 0 to 255, TIFF": tiff((TENTH * 255).astype("<f4"), FLOAT),
    "float of 0 to 65535, TIFF": tiff((TENTH * 65535).astype("<f4"), FLOAT),
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_greys_are_scaled_by_the_full_range_of_their_type(tmp_path: Path, kind: str):
    """10% grey stays 10% grey, however bright the brightest pixel is."""
    (tmp_path / "a.tif").write_bytes(DEEP[kind])
    for cap in (None, 64 * 48):
        levels = np.asarray(load_image(tmp_path / "a.tif", cap), dtype=int)
        assert np.abs(levels - (TENTH * 255)[..., None]).max() <= (2 if "10 bits" in kind else 1)


def test_the_whole_range_of_sixteen_bits_is_exact(tmp_path: Path):
    image = Image.fromarray(np.arange(65536, dtype=np.uint16).reshape(256, 256))
    loaded = np.asarray(load_image(save(image, tmp_path / "a.png")), dtype=int)
    assert (loaded == np.rint(np.arange(65536) / 257).reshape(256, 256, 1)).all()


def test_floats_that_are_no_levels(tmp_path: Path):
    """Beyond white, below black, and no number at all."""
    values = np.asarray([[0.5, 1.0, 1.7, -3.0], [np.nan, np.inf, -np.inf, 0.25]], dtype="<f4")
    (tmp_path / "a.tif").write_bytes(tiff(values, FLOAT))
    levels = np.asarray(load_image(tmp_path / "a.tif"))[..., 0]
    assert levels.tolist() == [[128, 255, 255, 0], [0, 255, 0, 64]]


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
    register_heif_opener()
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "empty.jpg").write_bytes(b"")
    whole = save(Image.effect_noise((64, 48), 90), tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    bomb(tmp_path / "bomb.png")
    for suffix in ("avif", "heic"):
        content = save(Image.effect_noise((64, 48), 90).convert("RGB"), tmp_path / f"damaged.{suffix}").read_bytes()
        pixels = content.index(b"mdat") + 4
        (tmp_path / f"damaged.{suffix}").write_bytes(content[:pixels] + bytes(len(content) - pixels))
    reasons = {
        "damaged.avif": "cannot be read as an image",
        "damaged.heic": "cannot be read as an image",
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("collection")
    for path in ("val2017/a.PNG", "test2017/a.PNG", "test2017/b.jpg", "test2017/c.heic", "test2017/no suffix"):
        (root / "images" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9)).save(root / "images" / path, "PNG")
    (root / "images" / "test2017" / "neither").write_text("no photo")
    return root


@pytest.mark.parametrize(
    ("id", "found"),
    [
        ("val2017/a.png", "val2017/a.PNG"),
        ("test2017/a", "test2017/a.PNG"),
        ("images/test2017/a.jpg", "test2017/a.PNG"),  # the cache turns a PNG into a JPEG
        ("./test2017//a", "test2017/a.PNG"),
        ("b", "test2017/b.jpg"),
        ("b.jfif", "test2017/b.jpg"),
        ("c.HEIC", "test2017/c.heic"),
        ("test2017/no suffix", "test2017/no suffix"),
        ("neither", None),
        ("d", None),
        ("wrongfolder/b.jpg", None),
        ("val2017/b.jpg", None),
        ("val2017/b", None),
        ("2017/b.jpg", None),
        ("images/b.jpg", None),
        ("elsewhere/images/test2017/b.jpg", None),
    ],
)
def test_an_id_is_a_name_in_the_folder_that_it_names(folders: Path, id: str, found: str | None):
    assert ImageIndex(folders).find(id, "ids.txt") == (found and f"images/{found}")


def test_folders_above_the_photos_are_theirs_too(folders: Path, monkeypatch):
    inner = folders / "images" / "test2017"
    assert ImageIndex(inner).find("test2017/b.jpg", "f") == "b.jpg" == ImageIndex(inner).find("images/test2017/b", "f")
    assert ImageIndex(inner).find("val2017/b.jpg", "f") is None
    monkeypatch.chdir(inner)
    assert ImageIndex(".").find("test2017/b.jpg", "f") == "b.jpg"


@pytest.mark.parametrize("id", ["../../x", "/etc/passwd", "a/../../b", "", "a\\b", "a\0"])
def test_an_id_that_leads_elsewhere_is_refused(folders: Path, id: str):
    with pytest.raises(InputError, match="ids.txt:3: field 'id': .* is not a file name inside"):
        ImageIndex(folders).find(id, "ids.txt", 3, "id")


def test_an_id_that_fits_several_photos_needs_its_folder(folders: Path):
    with pytest.raises(InputError, match="ids.txt:3: .*fits several images"):
        ImageIndex(folders).find("a.png", "ids.txt", 3)
    assert len(ImageIndex(folders)) == 5


@pytest.mark.parametrize("id", ["b.jpg", "test2017/b.jpg"])
def test_an_exact_name_is_that_photos_whatever_lies_beside_it(folders: Path, tmp_path: Path, id: str):
    for suffix in ("png", "jpg", "webp"):
        target = tmp_path / "images/test2017" / f"b.{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folders / "images/test2017/b.jpg", target)
    assert ImageIndex(tmp_path).find(id, "ids.txt") == "images/test2017/b.jpg"
    for other in ("b", "b.gif"):
        with pytest.raises(InputError, match="fits several images"):
            ImageIndex(tmp_path).find(other, "ids.txt")


# --- What lies in a folder ---------------------------------------------------------------------------------------


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def test_what_lies_in_a_folder_is_told_apart_without_opening_what_could_hang(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's name has little room
    for suffix in ("jpg", "JPEG", "jpe", "jfif", "mpo", "png", "webp", "bmp", "gif", "tif", "tiff", "avif", "heic"):
        (tmp_path / f"a.{suffix}").touch()
    (tmp_path / ("n" * 250 + ".jpg")).touch()
    save(Image.new("RGB", (9, 9)), tmp_path / "IMG_0001", format="JPEG")
    (tmp_path / "below").mkdir()
    save(Image.new("RGB", (9, 9)), tmp_path / "below" / "last.", format="TIFF")
    for name in ("README", "notes.txt", "a.jpg.txt", ".hidden.jpg", "empty"):
        (tmp_path / name).touch()
    bomb(tmp_path / "bomb")
    for name in ("pipe", "pipe.png"):
        os.mkfifo(tmp_path / name)
    socket_at(Path("socket"))
    for name, target in (("device", "/dev/zero"), ("self", "self"), ("nowhere", "gone"), ("below/up", "..")):
        os.symlink(target, tmp_path / name)
    found = list_photos(tmp_path)
    assert len(found.photos) == 17 and {"IMG_0001", "below/last.", "pipe.png"} < set(found.photos)
    assert found.others == sorted(
        ["README", "a.jpg.txt", "bomb", "device", "empty", "notes.txt", "nowhere", "pipe", "self", "socket"]
    )
    assert (found.links, found.unlisted) == (["below/up"], {})


def test_a_folder_that_cannot_be_searched_is_named(tmp_path: Path):
    """One whose path is longer than the system takes: even root cannot list it."""
    save(Image.new("RGB", (9, 9)), tmp_path / "a.jpg")
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        save(Image.new("RGB", (9, 9)), Path("b.jpg"))
    finally:
        os.fchdir(home)
        os.close(home)
    found = list_photos(tmp_path)
    assert found.photos == ["a.jpg"]
    assert [*found.unlisted.values()] == ["cannot be listed (File name too long)"]
    with pytest.raises(InputError, match=r"d: cannot be listed \(File name too long\)"):
        ImageIndex(tmp_path)
    assert len(ImageIndex(tmp_path, unlisted=True)) == 1
    shutil.rmtree(tmp_path / ("d" * 250))


@pytest.mark.parametrize("name", ["pipe.jpg", "socket.jpg", "device.jpg", "folder.jpg"])
def test_what_is_no_file_is_never_opened(tmp_path: Path, name: str, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.jpg")
    socket_at(Path("socket.jpg"))
    os.symlink("/dev/zero", "device.jpg")
    os.mkdir("folder.jpg")
    with pytest.raises(InputError, match=f"^{name}: is not a regular file$"):
        load_image(name)
    assert read_bare_jpeg(name) is None


# --- Large, long and small ---------------------------------------------------------------------------------------


def large_jpeg(path: Path, width: int, height: int, **options: Any) -> Path:
    """A JPEG, red at its left half, whose rows of blocks are all the same: megapixels in milliseconds."""
    strip = np.zeros((16, width, 3), dtype=np.uint8)
    strip[:, : width // 2] = (200, 30, 60)
    buffer = io.BytesIO()
    Image.fromarray(strip).save(buffer, "JPEG", subsampling=2, restart_marker_rows=1, **options)
    content = bytearray(buffer.getvalue())
    frame, scan = content.index(b"\xff\xc2" if options else b"\xff\xc0"), content.index(b"\xff\xda")
    content[frame + 5 : frame + 7] = height.to_bytes(2)
    start = scan + 2 + int.from_bytes(content[scan + 2 : scan + 4])
    rows = [bytes(content[start:-2]) + bytes([0xFF, 0xD0 + row % 8]) for row in range(-(-height // 16))]
    path.write_bytes(bytes(content[:start]) + b"".join(rows)[:-2] + b"\xff\xd9")
    return path


@pytest.mark.parametrize(("width", "height"), [(12000, 9000), (16320, 12240)])
def test_the_largest_jpegs_of_phones_are_read(tmp_path: Path, width: int, height: int):
    """108 and 200 megapixels, upright and on their side."""
    path = large_jpeg(tmp_path / "a.jpg", width, height)
    image = load_image(path, 262_144)
    assert image.size == fit((width, height), 262_144)
    levels = np.asarray(image, dtype=int)
    assert np.abs(levels[:, :280] - (200, 30, 60)).max() < 6 and levels[:, 310:].max() < 6
    assert image_size(path) == (width, height)
    check_images(tmp_path, ["a.jpg"], decode=False)


def test_a_large_jpeg_without_a_budget_is_halved_and_takes_little_memory(tmp_path: Path):
    large_jpeg(tmp_path / "a.jpg", 12000, 9000)
    code = (
        "import resource, sys; from cprt.images import load_image\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(*load_image(sys.argv[1], int(sys.argv[2]) or None).size)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    for budget, size, most in (("262144", "591 443", 60_000), ("0", "6000 4500", 400_000)):
        command = [sys.executable, "-c", code, str(tmp_path / "a.jpg"), budget]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert said[0] == size and int(said[1]) < most  # kilobytes; in full size it would take 432,000


def two_scans(path: Path) -> Path:
    """A baseline JPEG of 100 megapixels whose first scan holds the first of its components."""
    frame = struct.pack(">BHHB", 8, 10_000, 10_000, 3) + bytes([1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0])
    scan = bytes([1, 1, 0, 0, 63, 0])
    parts = [(0xC0, frame), (0xDA, scan)]
    segments = b"".join(bytes([0xFF, kind]) + struct.pack(">H", len(part) + 2) + part for kind, part in parts)
    path.write_bytes(b"\xff\xd8" + segments + bytes(1000))
    return path


BOMBS = {
    "a PNG": bomb,
    "a progressive JPEG": lambda path: large_jpeg(path, 12000, 9000, progressive=True),
    "a JPEG in several scans": two_scans,
    "a JPEG of 900 megapixels": lambda path: large_jpeg(path, 30_000, 30_000),
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("budget", [None, 9000])
def test_bombs_are_refused(tmp_path: Path, kind: str, budget: int | None):
    BOMBS[kind](tmp_path / "a.jpg")
    with pytest.raises(InputError, match="a.jpg: has too many pixels to be unpacked safely"):
        load_image(tmp_path / "a.jpg", budget)
    with pytest.raises(InputError, match="too many pixels"):
        check_images(tmp_path, ["a.jpg"], decode=False)


@pytest.mark.parametrize("long", [1990, 2000, 7919, 40_000, 199 * 31])
@pytest.mark.parametrize("budget", [199, 200, 2000, 9_216, 262_144])
def test_rounding_makes_no_shape_that_models_refuse(long: int, budget: int):
    for short in {-(-long // 200), -(-long // 199), -(-long // 150)}:
        for size in ((long, short), (short, long)):
            width, height = fit(size, budget)
            assert width * height <= max(budget, 1) and max(width, height) <= 200 * min(width, height)


def test_a_shape_that_models_refuse_is_named(tmp_path: Path):
    save(Image.new("L", (200, 1)), tmp_path / "most.png")
    save(Image.new("L", (1, 201)), tmp_path / "over.png")
    check_images(tmp_path, ["most.png"])
    check_images(tmp_path, ["over.png"], decode=False)
    with pytest.raises(InputError, match="over.png: is 1 x 201 pixels: one side is over 200 times the other"):
        check_images(tmp_path, ["most.png", "over.png"])


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


@pytest.mark.parametrize("limits", [True, False])
def test_photos_are_read_in_order_on_every_system(monkeypatch, limits: bool):
    """macOS does not say to which cores a process is limited."""
    if not limits:
        monkeypatch.delattr(os, "sched_getaffinity")
    assert 1 <= cores() <= (os.cpu_count() or 1)
    assert list(in_order(lambda number: number**2, range(500))) == [number**2 for number in range(500)]
