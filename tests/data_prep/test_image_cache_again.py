"""``cprt images`` where a cache is there already: unchanged, changed, damaged, another's, a killed run's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from drawn_photos import busy
from kinds_of_photos import BUDGET, collection, state
from PIL import Image

from cprt.errors import InputError
from cprt.images import load_image
from data_prep.image_cache import cache_images, main


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
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
