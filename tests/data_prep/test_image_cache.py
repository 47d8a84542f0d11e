"""``cprt images``: every kind of photo and of fault, once."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from drawn_photos import busy
from kinds_of_photos import BUDGET, GOOD, REJECTED, collection, quarantine, state
from PIL import Image

from cprt.errors import InputError
from cprt.images import ImageIndex, load_image
from data_prep.image_cache import cache_images, main

SECRETS = (b"SecretCamera", b"Dear diary", b"Here I live", b"GPS")


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
