"""A collection of good photos of every kind, and of every fault."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

BUDGET = 30_000  # pixels
GRADIENT = np.tile(np.linspace(0, 255, 600, dtype=np.uint8), (400, 1))  # (400, 600), dark on the left


def collection(folder: Path) -> Path:
    """In VISPR's layout: good photos of every kind, and every fault."""
    val = folder / "images" / "val2017"
    val.mkdir(parents=True)
    rgb = Image.fromarray(GRADIENT).convert("RGB")
    rgb.save(val / "rgb.jpg", quality=95)
    rgb.convert("L").save(val / "grey.jpg", quality=95)
    rgb.convert("CMYK").save(val / "cmyk.jpg", quality=95)
    rgb.save(val / "upper.JPEG", quality=95)
    rgb.save(val / "progressive.jpg", quality=95, progressive=True)
    rgb.convert("P", palette=Image.Palette.ADAPTIVE).save(val / "palette.png")
    Image.fromarray(GRADIENT.astype(np.uint16) * 257).save(val / "sixteen.png")
    alpha = rgb.copy()
    alpha.putalpha(Image.new("L", rgb.size, 255))
    alpha.save(val / "rgba.png")
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "SecretCamera"
    exif[0x8825] = {1: "N", 2: (48.0, 8.0, 0.0), 29: "2017:01:01"}  # where the photo was taken
    rgb.save(val / "turned.jpg", quality=95, exif=exif, comment=b"Dear diary", xmp=b"<x>Here I live</x>")
    rgb.resize((60, 40)).save(val / "small.jpg", quality=95)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), dtype=np.uint8))
    noise.save(val / "large.jpg", quality=98, subsampling=0)
    assert (val / "large.jpg").stat().st_size > 5_000_000
    whole = (val / "rgb.jpg").read_bytes()
    (val / "cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (val / "text.jpg").write_text("not an image")
    (val / "empty.jpg").touch()
    bomb(val / "bomb.png")
    (val / "notes.txt").write_text("no photo at all")
    (val / ".hidden.jpg").write_bytes(whole)
    (val / "link.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(val / "pipe.jpg")  # whoever opens it waits for ever
    return folder


def bomb(path: Path) -> None:
    """A PNG of a few bytes whose header promises 4 gigapixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 65536, 65536, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")))


GOOD = {
    "rgb.jpg",
    "grey.jpg",
    "cmyk.jpg",
    "upper.JPEG",
    "progressive.jpg",
    "palette.jpg",
    "sixteen.jpg",
    "rgba.jpg",
    "turned.jpg",
    "small.jpg",
    "large.jpg",
}

REJECTED = {
    "cut.jpg": "cannot be read as an image (image file is truncated",
    "text.jpg": "is not an image",
    "empty.jpg": "is not an image",
    "bomb.png": "has too many pixels to be unpacked safely",
    "notes.txt": "is no image by its suffix",
    "link.jpg": "is no file",
    "pipe.jpg": "is no file",
}


def state(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def quarantine(out: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    return {row["path"]: row["reason"] for row in rows}
