"""``cprt images``: every kind of photo and of fault, once, on many threads, through kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps

from cprt.errors import InputError
from cprt.images import ImageIndex, fit, load_image
from data_prep.image_cache import cache_images, main

BUDGET = 30_000  # pixels
GRADIENT = np.tile(np.linspace(0, 255, 600, dtype=np.uint8), (400, 1))  # (400, 600), dark on the left
SECRETS = (b"SecretCamera", b"Dear diary", b"Here I live", b"GPS")


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


def test_every_kind_is_cached_every_fault_has_its_reason_and_the_counts_add_up(tmp_path: Path, capsys):
    source, out = collection(tmp_path / "data"), tmp_path / "cache"
    main(["--images", str(source), "--out", str(out), "--max_pixels", str(BUDGET), "--workers", "2"])
    cached = out / "images" / "val2017"
    assert {path.name for path in cached.iterdir()} == GOOD
    quarantine = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    assert [row["path"] for row in quarantine] == sorted(f"images/val2017/{name}" for name in REJECTED)
    for row in quarantine:
        assert row["reason"].startswith(REJECTED[Path(row["path"]).name])
        assert str(tmp_path) not in row["reason"]
    report = json.loads((out / "run.json").read_text())["report"]
    assert report["files"] == 18 == len(GOOD) + len(REJECTED)
    assert (report["cached"], report["made"], report["unchanged"], report["quarantined"]) == (11, 11, 0, 7)
    assert report["bytes"] == sum(path.stat().st_size for path in cached.iterdir())
    said = capsys.readouterr().out
    assert "11 of 18 photos (11 made, 0 unchanged" in said and "7 cannot be used" in said

    for path in cached.iterdir():
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert image.width * image.height <= BUDGET
            assert not image.getexif() and set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
        assert not any(secret in path.read_bytes() for secret in SECRETS)
    assert any(secret in (source / "images" / "val2017" / "turned.jpg").read_bytes() for secret in SECRETS)
    for name in GOOD - {"large.jpg", "small.jpg", "turned.jpg"}:
        image = load_image(cached / name)
        assert image.size == (212, 141)  # 600 x 400 reduced to 30,000 pixels
        ramp = np.asarray(image, dtype=float).mean(axis=(0, 2))
        assert np.abs(ramp - np.linspace(0, 255, 212)).max() < 6, name
    turned = np.asarray(load_image(cached / "turned.jpg"), dtype=float)
    assert turned.shape == (212, 141, 3) and turned[:9].mean() + 200 < turned[-9:].mean()  # dark on top
    assert load_image(cached / "small.jpg").size == (60, 40)  # nothing is enlarged


def test_a_second_run_does_nothing_and_a_change_is_noticed(tmp_path: Path, capsys):
    source, out = collection(tmp_path / "data"), tmp_path / "cache"
    photos = source / "images" / "val2017"
    assert cache_images(source, out, BUDGET, workers=2)["made"] == 11
    before = state(out / "images")
    main(["--images", str(source), "--out", str(out), "--max_pixels", str(BUDGET)])
    assert "11 of 18 photos (nothing to do" in capsys.readouterr().out
    assert state(out / "images") == before

    (photos / "rgb.jpg").write_bytes((photos / "cut.jpg").read_bytes())  # a good one becomes bad
    Image.new("RGB", (300, 200)).save(photos / "text.jpg")  # and a bad one good
    (out / "images" / "val2017" / "grey.jpg").write_bytes(b"lost in a power cut")
    (out / "images" / "val2017" / "cmyk.jpg").unlink()
    (photos / "small.jpg").unlink()
    report = cache_images(source, out, BUDGET)
    assert (report["cached"], report["made"], report["quarantined"]) == (10, 3, 7)
    assert report["without_source"] == ["images/val2017/small.jpg"]
    assert not (out / "images" / "val2017" / "rgb.jpg").exists()
    assert "images/val2017/rgb.jpg" in (out / "quarantine.jsonl").read_text()
    for name in ("grey.jpg", "cmyk.jpg", "text.jpg"):
        load_image(out / "images" / "val2017" / name)

    assert cache_images(source, out, BUDGET // 2)["made"] == 10  # another budget, every photo anew
    assert cache_images(source, out, BUDGET // 2, quality=80)["made"] == 10


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


def test_only_the_photos_of_a_list(tmp_path: Path, capsys):
    source, out = collection(tmp_path / "data"), tmp_path / "cache"
    ids = tmp_path / "val2017.txt"
    ids.write_text("annotations/val2017/rgb.json\nval2017/grey.jpg\n\ncut\nnowhere\n")
    main(["--images", str(source), "--out", str(out), "--max_pixels", str(BUDGET), "--ids", str(ids)])
    assert sorted(path.name for path in (out / "images" / "val2017").iterdir()) == ["grey.jpg", "rgb.jpg"]
    report = json.loads((out / "run.json").read_text())["report"]
    assert (report["asked"], report["files"], report["cached"], report["quarantined"]) == (4, 3, 2, 1)
    assert report["missing"] == ["nowhere"]
    assert "1 asked for and not there: nowhere" in capsys.readouterr().out
    assert cache_images(source, out, BUDGET)["made"] == 9  # the others; those of the list are there
    for text, complaint in (
        ("rgb\nval2017/rgb.jpg\n", "val2017.txt:2: 'val2017/rgb.jpg' is there already in line 1"),
        ("../../x\n", "val2017.txt:1: "),
        ("nowhere\n", "names no image in"),
    ):
        ids.write_text(text)
        with pytest.raises(InputError, match=complaint):
            cache_images(source, out, BUDGET, ids)


def test_later_commands_find_the_cached_photos_by_the_same_ids(tmp_path: Path):
    source, out = collection(tmp_path / "data"), tmp_path / "cache"
    cache_images(source, out, BUDGET)
    index = ImageIndex(out)
    assert index.find("val2017/rgb.jpg", "ids.txt") == "images/val2017/rgb.jpg"
    assert index.find("palette.png", "ids.txt") == "images/val2017/palette.jpg"
    assert index.find("cut.jpg", "ids.txt") is None
    assert len(index) == 11


def test_one_name_in_the_cache_is_one_photo(tmp_path: Path):
    (tmp_path / "photos" / "below").mkdir(parents=True)
    for name in ("a.jpg", "a.png", "b.bmp", "b.png", "below/a.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / "photos" / name)
    report = cache_images(tmp_path / "photos", tmp_path / "cache", 100)
    assert (report["files"], report["cached"], report["quarantined"]) == (5, 3, 2)
    rows = [json.loads(line) for line in (tmp_path / "cache" / "quarantine.jsonl").read_text().splitlines()]
    assert rows == [
        {"path": "a.png", "reason": "would have the same name in the cache as a.jpg"},
        {"path": "b.png", "reason": "would have the same name in the cache as b.bmp"},
    ]


@pytest.mark.parametrize("place", ["data", "data/images", "data/images/val2017/cache", "."])
def test_a_cache_among_the_photos_is_refused(tmp_path: Path, place: str):
    source = collection(tmp_path / "data")
    before = state(source)
    with pytest.raises(InputError, match="the cache must lie apart from the photos"):
        cache_images(source, tmp_path / place, BUDGET)
    assert state(source) == before


def quarantine(out: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    return {row["path"]: row["reason"] for row in rows}


def test_what_cannot_be_cached_is_quarantined_and_costs_no_other_photo(tmp_path: Path, monkeypatch):
    photos, out = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    monkeypatch.chdir(photos)  # a socket's name has little room
    picture = busy((40, 30))
    picture.save("good.jpg")
    picture.save("no suffix", "PNG")
    long, longer = "n" * 250 + ".jpg", "n" * 251 + ".tif"  # 254 and 255 bytes
    picture.save(long)
    picture.save(longer)
    (photos / "taken.jpg").mkdir()
    picture.save("taken.jpg/a.jpg")
    picture.save("taken.png")  # as taken.jpg, a folder
    Image.new("L", (2010, 10)).save("strip.png")
    Image.new("L", (1990, 10)).save("narrow.png")
    Image.new("L", (1, 1)).save("dot.png")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.jpg")
    os.symlink("/dev/zero", "device.jpg")
    os.symlink("..", "loop")
    for made in (7, 0):
        report = cache_images(photos, out, 2000)
        assert (report["files"], report["cached"], report["quarantined"], report["made"]) == (12, 7, 5, made)
    assert quarantine(out) == {
        "taken.png": "would have the same name in the cache as a folder",
        "strip.png": "is 2010 x 10 pixels: one side is over 200 times the other",
        "socket.jpg": "is no file",
        "device.jpg": "is no file",
        "loop": "is a link to a folder, which is not followed",
    }
    narrow = load_image(out / "narrow.jpg").size
    assert narrow[0] <= 200 * narrow[1] and narrow[0] * narrow[1] <= 2000


def test_a_full_disk_ends_the_run_and_leaves_what_was_made(tmp_path: Path):
    photos, out = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        busy((80, 60)).save(photos / name)
    out.mkdir()
    (out / ".b.jpg.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        cache_images(photos, out, 2000, workers=1)
    assert (out / "a.jpg").is_file() and not (out / "b.jpg").exists()
    (out / ".b.jpg.partial").unlink()  # there is room again
    report = cache_images(photos, out, 2000)
    assert report["cached"] == 3 and 1 <= report["made"] <= 2


def test_names_that_are_no_text_are_cached_and_told(tmp_path: Path, capsys):
    photos, out = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    picture = busy((40, 30))
    for name in ("a.jpg", "new\nline \x1b[31m.jpg", os.fsdecode(b"caf\xe9.png")):
        picture.save(photos / name)
    (photos / os.fsdecode(b"text\xe9.jpg")).write_text("no photo")
    options = ["--images", str(photos), "--out", str(out), "--max_pixels", "2000"]
    main(options)
    assert quarantine(out) == {os.fsdecode(b"text\xe9.jpg"): "is not an image"}
    for path in photos.iterdir():
        if path.name != "a.jpg":
            path.unlink()
    capsys.readouterr()
    main(options)
    said = capsys.readouterr().out
    assert "2 in the cache, yet no longer among the photos: caf\\udce9.jpg, new\\nline \\x1b[31m.jpg" in said
    assert len(said.splitlines()) == 2


def test_a_note_that_is_none_costs_no_more_than_the_work(tmp_path: Path):
    photos, out = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    busy((40, 30)).save(photos / "a.jpg")
    for content in ("", "[", "[]", '{"max_pixels": NaN}'):
        cache_images(photos, out, 2000)
        (out / "cache.json").write_text(content)
        assert cache_images(photos, out, 2000)["made"] == 1
    assert cache_images(photos, out, 2000)["made"] == 0


def test_what_is_no_file_in_the_cache_is_replaced(tmp_path: Path):
    """Opening a pipe would wait for ever."""
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    busy((40, 30)).save(photos / "a.jpg")
    cache_images(photos, out, 2000)
    (made,) = out.rglob("a.jpg")
    content = made.read_bytes()
    made.unlink()
    os.mkfifo(made)
    assert cache_images(photos, out, 2000)["made"] == 1 and made.read_bytes() == content


def test_photos_beside_another_programs_note_stay(tmp_path: Path):
    photos, out = tmp_path / "photos", tmp_path / "out"
    for folder in (photos, out):
        folder.mkdir()
        busy((40, 30)).save(folder / "a.jpg")
    before = (out / "a.jpg").read_bytes()
    (out / "cache.json").write_text('{"version": 3, "entries": []}')
    with pytest.raises(InputError, match="out: holds photos that cprt images did not make"):
        cache_images(photos, out, 2000)
    assert (out / "a.jpg").read_bytes() == before


def test_another_folder_of_photos_is_never_overwritten(tmp_path: Path):
    source = collection(tmp_path / "data")
    other = tmp_path / "other" / "images" / "val2017" / "rgb.jpg"
    other.parent.mkdir(parents=True)
    busy((30, 20)).save(other)
    before = other.read_bytes()
    with pytest.raises(InputError, match="other: holds photos that cprt images did not make"):
        cache_images(source, tmp_path / "other", BUDGET)
    assert other.read_bytes() == before


@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "older source", "newer source", "same time, other photo"])
def test_what_a_power_cut_leaves_and_what_has_changed_is_made_anew(tmp_path: Path, damage: str):
    photos, out = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    for name in ("a.jpg", "b.jpg"):
        busy((80, 60)).save(photos / name)
    cache_images(photos, out, 2000)
    whole, times = (out / "a.jpg").read_bytes(), (photos / "a.jpg").stat()
    if damage == "same time, other photo":
        busy((80, 60), 1).save(photos / "new.jpg")
        os.replace(photos / "new.jpg", photos / "a.jpg")
        os.utime(photos / "a.jpg", ns=(times.st_atime_ns, times.st_mtime_ns))
    elif "source" in damage:
        later = 10**9 if damage == "newer source" else -(10**9)
        os.utime(photos / "a.jpg", ns=(times.st_atime_ns, times.st_mtime_ns + later))
    else:
        left = {"empty": b"", "cut": whole[:-9], "zeros": whole[:-40] + bytes(40)}[damage]
        (out / "a.jpg").write_bytes(left)
        os.utime(out / "a.jpg", ns=(times.st_atime_ns, times.st_mtime_ns))
    report = cache_images(photos, out, 2000)
    assert (report["made"], report["unchanged"]) == (1, 1)
    assert ((out / "a.jpg").read_bytes() == whole) == (damage != "same time, other photo")
    assert cache_images(photos, out, 2000)["made"] == 0


def test_nothing_to_cache_is_an_error(tmp_path: Path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match="photos: holds no images"):
        cache_images(tmp_path / "photos", tmp_path / "cache", BUDGET)
    (tmp_path / "photos" / "a.jpg").write_text("x")
    with pytest.raises(InputError, match="none of its photos could be used"):
        main(["--images", str(tmp_path / "photos"), "--out", str(tmp_path / "cache"), "--max_pixels", "9"])


@pytest.mark.parametrize("options", [["--max_pixels", "0"], ["--quality", "99"], ["--workers", "0"]])
def test_impossible_options_are_refused(tmp_path: Path, options: list[str]):
    with pytest.raises(InputError, match=f"{options[0][2:]} must be"):
        main(["--images", ".", "--out", str(tmp_path), "--max_pixels", "9", *options])


def test_a_killed_run_goes_on_and_two_at_once_are_refused(tmp_path: Path):
    photos, out = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    picture = busy((800, 600))
    for number in range(120):
        picture.save(photos / f"{number:03}.jpg")
    undisturbed = cache_images(photos, tmp_path / "undisturbed", BUDGET, workers=1)
    command = [
        sys.executable,
        "-m",
        "data_prep.image_cache",
        "--images",
        str(photos),
        "--out",
        str(out),
        "--max_pixels",
        str(BUDGET),
        "--workers",
        "2",
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: done(out) >= 8, first)
        with pytest.raises(InputError, match="another run is writing here"):
            cache_images(photos, out, BUDGET)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    finished = done(out)
    assert 8 <= finished < 120
    report = cache_images(photos, out, BUDGET, workers=1)
    assert report["unchanged"] >= finished and report["unchanged"] + report["made"] == 120
    assert {**report, "made": 0, "unchanged": 0} == {**undisturbed, "made": 0, "unchanged": 0}
    names = [path.relative_to(photos) for path in sorted(photos.iterdir())]
    assert all((out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes() for name in names)


def done(out: Path) -> int:
    return len(list(out.glob("*.jpg")))


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
