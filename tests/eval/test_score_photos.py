"""Which photos ``cprt score`` finds, and what it says of those that it cannot read: hostile folders, HEIC, changes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge_endpoint import PASSPORT, by_width, photo, rows_of, width_of
from loopback import Misbehaving
from PIL import Image

from cprt.errors import InputError
from cprt.images import AHEAD, load_image
from eval.score.photos import find_photos
from eval.score.run import main


def hostile(folder: Path) -> None:
    """What lies in real folders, and worse."""
    photo(folder / "b" / "21.jpg", 21)
    photo(folder / "a" / "21.jpg", 22)  # the same name
    photo(folder / "new\nline \x1b[31m<b>.png", 23)
    photo(folder / "ünï.PNG", 21)
    shutil.copy(folder / "ünï.PNG", os.fsencode(folder) + b"/caf\xe9.png")
    for hidden in (".hidden.png", ".cache/x.png"):
        photo(folder / hidden, 24)
    (folder / "notes.txt").write_text("no photo")
    (folder / "text.jpg").write_text("no photo either")
    (folder / "text\n.jpg").write_text("no photo either")
    (folder / "empty.jpg").touch()
    whole = photo(folder / "cut.jpg", 21, 400).read_bytes()
    for name in ("cut.jpg", "cut again.jpg", "cut\n.jpg"):
        (folder / name).write_bytes(whole[: len(whole) // 2])
    os.symlink("..", folder / "a" / "loop")
    os.symlink("nowhere.jpg", folder / "dangling.jpg")
    os.symlink("self.jpg", folder / "self.jpg")
    os.mkfifo(folder / "pipe.jpg")
    frames = [Image.new("RGB", (22, 20), color) for color in ("red", "blue")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    Image.new("1", (20_000, 20_000)).save(folder / "bomb.png")  # 50 kB, 400 megapixels


def test_a_hostile_folder_loses_nothing_and_stops_nothing(judge, tmp_path, capsys):
    folder = tmp_path / "photos"
    hostile(folder)
    main(
        [
            str(folder),
            str(folder / "notes.txt"),
            str(folder / "b" / "21.jpg"),
            str(tmp_path / "nowhere"),
            "--base_url",
            judge.url,
            "--out",
            str(tmp_path / "r.jsonl"),
        ]
    )
    rows = {row["path"]: row for row in rows_of(tmp_path / "r.jsonl")}
    assert len(rows) == len(rows_of(tmp_path / "r.jsonl"))  # b/21.jpg once
    assert {path: row["score"] for path, row in rows.items() if row["status"] == "ok"} == {
        "a/21.jpg": 0.337,
        "b/21.jpg": 0.85,
        "new\nline \x1b[31m<b>.png": 0.0,
        "ünï.PNG": 0.85,
        "caf\\udce9.png": 0.85,
        "moving.gif": 0.337,
    }
    assert {path: row["error"] for path, row in rows.items() if row["status"] == "error"} == {
        "text.jpg": "is not an image",
        "text\n.jpg": "is not an image",
        "notes.txt": "is not an image",
        "empty.jpg": "is empty",
        "cut.jpg": rows["cut again.jpg"]["error"],
        "cut again.jpg": rows["cut again.jpg"]["error"],
        "cut\n.jpg": rows["cut again.jpg"]["error"],
        "dangling.jpg": "cannot be read (No such file or directory)",
        "self.jpg": "cannot be read (Too many levels of symbolic links)",
        "pipe.jpg": "is not a regular file",
        "bomb.png": "has too many pixels to be unpacked safely",
        "nowhere": "cannot be read (No such file or directory)",
    }
    assert rows["cut.jpg"]["error"].startswith("cannot be read as an image")
    assert str(tmp_path) not in "".join(row["error"] or "" for row in rows.values())
    said = capsys.readouterr()
    assert "new\\nline \\x1b[31m<b>.png" in said.out and "\x1b" not in said.out + said.err
    assert "passed over 1 file not named like a photo and 1 folder behind a link" in said.err


def test_what_a_folder_holds_is_found_or_reported(tmp_path, monkeypatch):
    """Names without a suffix are looked at; nothing that could hang is opened; no folder goes missing."""
    folder = tmp_path / "photos"
    photo(folder / "IMG_0001.png", 21).rename(folder / "IMG_0001")
    long = "n" * 250 + ".png"  # 254 bytes
    photo(folder / long, 21)
    for name in ("a.heic", "b.jfif", "c.avif", "d.mpo"):
        photo(folder / f"{name}.png", 21).rename(folder / name)
    (folder / "README").write_text("no photo")
    for name in ("pipe", "pipe.png"):
        os.mkfifo(folder / name)
    os.symlink("/dev/zero", folder / "device.jpg")
    monkeypatch.chdir(folder)  # a socket's name has little room
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.jpg")
    for _ in range(20):  # deeper than the system can name: even root cannot list it
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    monkeypatch.chdir(tmp_path)
    found = find_photos(["photos"])
    shutil.rmtree(folder / ("d" * 250))
    problems = {one.path: one.problem for one in found.photos}
    assert [path for path, problem in problems.items() if problem is None] == sorted(
        ["IMG_0001", "a.heic", "b.jfif", "c.avif", "d.mpo", long]
    )
    assert [problems.pop(name) for name in ("device.jpg", "pipe.png", "socket.jpg")] == ["is not a regular file"] * 3
    assert list(problems.values()).count("cannot be listed (File name too long)") == 1 and len(problems) == 7
    assert found.other_files == 2


def test_a_photo_that_goes_or_changes_during_the_run_is_an_error_beside_the_others(tmp_path):
    """The first question takes the last photo away and edits the one before; that one is asked as it then is."""
    paths = [photo(tmp_path / "photos" / f"{number:04}.png", 21 + number % 2) for number in range(AHEAD + 40)]

    def answer(body: dict[str, Any]) -> tuple[str, str]:
        if len(server.bodies) == 1:
            paths[-1].unlink()
            photo(paths[-2], 23)
        return str(width_of(body) / 100), "stop"

    with Misbehaving(answer) as server:
        where = ["--out", str(tmp_path / "r.jsonl"), "--base_url", server.url, "--target", "score"]
        main([str(tmp_path / "photos"), *where, "--concurrency", "1"])
        *_, edited, gone = rows_of(tmp_path / "r.jsonl")
    assert (edited["status"], edited["score"]) == ("ok", 0.23)
    assert (gone["status"], gone["error"]) == ("error", "cannot be read (No such file or directory)")
    assert len(server.bodies) == len(paths) - 1


# --- HEIC --------------------------------------------------------------------------------------------------------


@pytest.fixture
def phone(tmp_path: Path) -> Path:
    """A HEIC photo that its EXIF data turns by a quarter; dark on the left as stored."""
    from pillow_heif import register_heif_opener

    register_heif_opener()
    exif = Image.Exif()
    exif[0x0112] = 6
    gradient = np.tile(np.linspace(0, 255, 64, dtype=np.uint8), (48, 1))
    Image.fromarray(gradient).convert("RGB").save(tmp_path / "phone.heic", exif=exif.tobytes())
    return tmp_path / "phone.heic"


def test_a_heic_photo_comes_upright(phone, tmp_path):
    with Misbehaving(by_width({48: PASSPORT})) as server:  # 64 wide as stored
        main([str(phone), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl")])
    assert rows_of(tmp_path / "r.jsonl")[0]["score"] == 0.85
    values = np.asarray(load_image(phone), dtype=int)
    assert values[:8].mean() + 150 < values[-8:].mean()  # dark on top


def test_without_the_extra_a_heic_photo_is_reported_with_the_way_to_install_it(judge, folder, phone, tmp_path):
    shutil.copy(phone, folder / "phone.heic")
    shutil.copy(phone, folder / "renamed.jpg")
    code = "import sys; sys.modules['pillow_heif'] = None; from eval.score.run import main; main(sys.argv[1:])"
    subprocess.run(
        [sys.executable, "-c", code, str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl")],
        check=True,
        capture_output=True,
    )
    errors = {row["path"]: row["error"] for row in rows_of(tmp_path / "r.jsonl") if row["status"] == "error"}
    hint = "is a HEIC photo: install pillow-heif to read it (pip install 'cprt[heic]')"
    assert errors == {"phone.heic": hint, "renamed.jpg": hint}


def test_photos_that_are_not_there_are_told_before_the_hub_is_asked(tmp_path):
    with pytest.raises(InputError, match=r"^.*/nowhere/a\.jpg: cannot be read \(No such file or directory\)$"):
        main([str(tmp_path / "nowhere" / "a.jpg"), "--model", "nobody/has-this-model"])
    with pytest.raises(InputError, match=r"/b: cannot be read \(No such file or directory\) \(nor can the other 1\)$"):
        main([str(tmp_path / "b"), str(tmp_path / "c"), "--model", "nobody/has-this-model"])
