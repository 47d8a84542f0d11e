"""``cprt score`` as a user runs it: real endpoints and the tiny model, hostile folders, kills, values by hand."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_endpoint import by_width, photo, width_of
from loopback import Misbehaving
from PIL import Image

from cprt.answers import Answer
from cprt.errors import InputError
from cprt.guidance.regulations import regulations_of
from cprt.guidance.risk import Risk
from cprt.images import AHEAD, load_image
from cprt.metrics.bootstrap import wilson_interval
from cprt.models.ask import Model
from cprt.models.outcome import Outcome
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request, Response
from cprt.prompts import build
from cprt.records import Label, Prediction, write_jsonl
from cprt.scoring import format_score
from cprt.taxonomy import Taxonomy
from eval.score.options import ScoreArguments
from eval.score.page import COLUMNS, page
from eval.score.photos import Photo, find_photos
from eval.score.rows import beside, score_row
from eval.score.run import main, settle
from eval.score.threshold import choose, reweighted_precision

PASSPORT = {"attributes": ["gov_ids", "biometrics", "age"], "level": 1, "score": 0.85}
ANSWERS: dict[int, Any] = {
    21: PASSPORT,
    22: {"attributes": ["age", "location"], "level": 3, "score": 0.337},
    23: {"attributes": [], "level": 4, "score": 0.0},
    24: "I'm sorry, but I can't assist with that request.",
    25: "somewhere between 0.2 and 0.9",
    26: {"attributes": ["face"], "level": 1, "score": 0.75},
}


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def level_1(s: float) -> float:
    """Eq. 17-20 for level 1: S_max = 330 * 3 + 30 * 10 + 5 * 5 + 4 = 1319."""
    return 0.711 + 0.289 * math.sqrt((s - 330) / (1319 - 330))


@pytest.fixture
def judge():
    with Misbehaving(by_width(ANSWERS)) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for width in ANSWERS:
        photo(tmp_path / "photos" / f"{width}.png", width)
    return tmp_path / "photos"


def test_a_row_holds_level_score_regulations_and_advice(judge, folder, tmp_path, capsys):
    out = tmp_path / "r.jsonl"
    main([str(folder), "--base_url", judge.url, "--out", str(out), "--flag_above", "0.85"])
    rows = {row["path"]: row for row in rows_of(out)}
    row = rows["21.png"]
    assert (row["root"], row["status"], row["score"], row["level"], row["error"]) == (str(folder), "ok", 0.85, 1, None)
    assert row["flagged"] is True and json.loads(row["text"]) == PASSPORT
    assert [one["key"] for one in row["attributes"]] == ["biometrics", "gov_ids", "age"]  # the taxonomy's order
    first, _, age = row["attributes"]
    assert (first["name"], first["level"]) == ("biometrics", 1)
    assert first["regulations"] == regulations_of("biometrics") and "GDPR" in first["regulations"]
    assert age["regulations"] is None  # Table 4 has no row for it
    assert first["score_without"] == pytest.approx(level_1(335)) and first["level_without"] == 1
    assert age["score_without"] == pytest.approx(level_1(660)) and age["level_without"] == 1
    advice = row["advice"]
    assert advice["composed_score"] == pytest.approx(level_1(665)) and advice["composed_level"] == 1
    assert advice["hide_first"] == "biometrics"
    assert [(step["hide"], step["level"]) for step in advice["order"]] == [("biometrics", 1), ("gov_ids", 3)]
    assert advice["order"][0]["score"] == pytest.approx(level_1(335)) and advice["order"][1]["score"] == 0.292
    assert rows["22.png"]["flagged"] is False and rows["23.png"]["advice"]["hide_first"] is None
    # What has no score is never flagged or cleared.
    assert [(rows[f"{width}.png"]["status"], rows[f"{width}.png"]["flagged"]) for width in (24, 25)] == [
        ("refused", None),
        ("unparsed", None),
    ]
    # A score whose list of attributes cannot be trusted has no advice.
    assert (rows["26.png"]["score"], rows["26.png"]["attributes"], rows["26.png"]["advice"]) == (0.75, None, None)
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split() == ["0.879", "1", "*", "21.png"]  # by what it is flagged by
    assert "states 0.850, level 1" in said.out and "named attributes make 0.879, level 1; without" in said.out
    assert "hide biometrics, then gov_ids: 0.292, level 3" in said.out
    assert "Art. 4(14)" not in said.out  # the file has it
    assert "6 photos (4 ok, 1 unparsed, 1 refused); 1 flagged (score 0.85 or more)" in said.out
    assert "no score: 24.png: refused" in said.err and "images leave" not in said.err
    assert "1 list of attributes cannot be read, so no advice follows; --structured true helps" in said.err
    record = json.loads((tmp_path / "r.run.json").read_text())
    assert record["counts"] == {"ok": 4, "refused": 1, "unparsed": 1}
    assert record["prompt"] == build("taxonomy", "attributes").identity()
    assert str(judge.port) not in json.dumps(record)
    main([str(folder), "--base_url", judge.url])  # without a file the laws stand on the terminal
    said = capsys.readouterr().out
    assert "Art. 4(14)" in said and "age: no row in Table 4" in said


def test_answers_are_structured_when_told(tmp_path):
    photo(tmp_path / "21.png", 21)
    with Misbehaving(lambda body: (json.dumps(PASSPORT) if "response_format" in body else "0.9", "stop")) as server:
        for name, more in (("free", []), ("held", ["--structured", "true"])):
            main([str(tmp_path), "--base_url", server.url, "--out", str(tmp_path / f"{name}.jsonl"), *more])
    assert [row["score"] for name in ("free", "held") for row in rows_of(tmp_path / f"{name}.jsonl")] == [0.9, 0.85]
    schema = server.bodies[1]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["attributes"]["items"]["enum"] == list(Taxonomy.default().keys)
    assert "response_format" not in server.bodies[0]
    assert "free" not in rows_of(tmp_path / "held.jsonl")[0]


def test_an_answer_that_an_endpoint_did_not_hold_to_the_form_says_so(tmp_path, capsys):
    photo(tmp_path / "21.png", 21)
    with Misbehaving(lambda body: ("0.9", "stop")) as server:
        main([str(tmp_path), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), "--structured", "true"])
    (row,) = rows_of(tmp_path / "r.jsonl")
    assert (row["score"], row["free"]) == (0.9, True) and "response_format" in server.bodies[0]
    assert json.loads((tmp_path / "r.run.json").read_text())["free_answers"] == 1
    assert "note: 1 of 1 answers are free ones" in capsys.readouterr().err


def test_the_goal_of_the_advice(judge, folder, tmp_path):
    main([str(folder / "21.png"), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), "--until_level", "4"])
    (row,) = rows_of(tmp_path / "r.jsonl")
    assert (row["root"], row["path"]) == (str(folder), "21.png")
    assert [step["hide"] for step in row["advice"]["order"]] == ["biometrics", "gov_ids", "age"]
    main([str(folder / "21.png"), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), "--until_score", "0.8"])
    assert [step["hide"] for step in rows_of(tmp_path / "r.jsonl")[0]["advice"]["order"]] == ["biometrics"]


def test_what_was_answered_is_never_asked_again_whatever_the_format(judge, folder, tmp_path):
    for name in ("r.jsonl", "r.jsonl", "r.html"):
        main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / name)])
    shutil.copy(folder / "21.png", folder / "copy.png")
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl")])
    assert len(judge.bodies) == len(ANSWERS)
    assert rows_of(tmp_path / "r.jsonl")[-1]["score"] == 0.85
    main([str(folder), "--base_url", judge.url])  # no file: nothing is kept, and nothing was
    assert len(judge.bodies) == 2 * len(ANSWERS)


def test_a_page_shows_what_the_jsonl_came_to_and_asks_and_loads_nothing(folder, tmp_path, monkeypatch):
    """Also of what failed: a photo that breaks off, and one that the endpoint could not answer."""
    whole = photo(folder / "cut.jpg", 21, 400).read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    answer = by_width(ANSWERS)

    def fails(body: dict[str, Any]) -> Any:
        said = answer(body)
        return said if "0.85" in said[0] else (400, {"error": {"message": "no"}})

    with Misbehaving(fails) as server:
        options = [str(folder), "--base_url", server.url, "--out"]
        main([*options, str(tmp_path / "r.jsonl")])
        asked, record = len(server.bodies), (tmp_path / "r.run.json").read_bytes()
        kept = (tmp_path / "r.answers.jsonl").read_bytes()
        main([*options, str(tmp_path / "r.html")])
        assert len(server.bodies) == asked and (tmp_path / "r.run.json").read_bytes() == record
        assert (tmp_path / "r.answers.jsonl").read_bytes() == kept
        assert json.loads((tmp_path / "r.html.run.json").read_text())["config"]["out"] == str(tmp_path / "r.html")
        photo(folder / "new.png", 21, 30)
        main([*options, str(tmp_path / "r.html")])  # and what is new is asked
        assert len(server.bodies) == asked + 1
        main([*options, str(tmp_path / "r.jsonl")])  # errors by the command that met them
        assert len(server.bodies) == 2 * asked
    monkeypatch.setattr("cprt.models.ask.LocalModel", None)
    (tmp_path / "only").mkdir()
    shutil.copy(folder / "cut.jpg", tmp_path / "only")
    for name in ("local.jsonl", "local.html"):  # nothing that could be asked, so that no model is loaded
        with pytest.raises(InputError, match="no photo got a score .the first: cut.jpg"):
            main([str(tmp_path / "only"), "--model", "no/such/folder", "--out", str(tmp_path / name)])


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


def test_without_one_score_the_status_is_2_and_the_rows_are_there(judge, folder, tmp_path):
    out = tmp_path / "r.jsonl"
    with pytest.raises(InputError, match=r"no photo got a score \(the first: 24.png: refused: I'm sorry"):
        main([str(folder / "24.png"), str(folder / "25.png"), "--base_url", judge.url, "--out", str(out)])
    assert [row["status"] for row in rows_of(out)] == ["refused", "unparsed"]


def test_an_endpoint_that_refuses_the_key_stops_the_run_and_what_came_is_written(folder, tmp_path):
    server = Misbehaving(lambda body: (401, {}) if len(server.bodies) > 2 else by_width(ANSWERS)(body))
    with server, pytest.raises(InputError, match="refuses a call without a key"):
        main([str(folder), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), "--concurrency", "1"])
    statuses = [row["status"] for row in rows_of(tmp_path / "r.jsonl")]
    assert len(statuses) == 6 and statuses.count("error") == 4
    assert "not asked: the run stopped before" in (tmp_path / "r.jsonl").read_text()


def test_photos_leave_the_machine_only_when_allowed_and_with_a_word(judge, folder, tmp_path, capsys):
    url = f"http://0.0.0.0:{judge.port}/v1"  # reaches this machine, and is no loopback address
    with pytest.raises(InputError, match="images would leave this one"):
        main([str(folder), "--base_url", url, "--out", str(tmp_path / "r.jsonl")])
    assert judge.bodies == []
    main([str(folder), "--base_url", url, "--out", str(tmp_path / "r.jsonl"), "--allow_remote", "true"])
    assert "another machine: up to 6 images leave this one" in capsys.readouterr().err
    assert len(judge.bodies) == 6


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


def test_a_kill_loses_and_doubles_nothing(folder, tmp_path):
    for number in range(20):
        photo(folder / f"more{number}.png", 21)
    plain, killed = tmp_path / "plain.jsonl", tmp_path / "killed.jsonl"
    with Misbehaving(by_width(ANSWERS), delay=0.03) as server:
        options = ["--base_url", server.url, "--concurrency", "1", "--out"]
        main([str(folder), *options, str(plain)])
        command = [sys.executable, "-m", "eval.score.run", str(folder), *options, str(killed)]
        kept = tmp_path / "killed.answers.jsonl"
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 9):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert kept.read_bytes().count(b"\n") < 26 and not killed.exists(), "killed too late to prove anything"
        subprocess.run(command, check=True, capture_output=True)
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 26
    assert killed.read_text() == plain.read_text()


# --- Local models and adapters -----------------------------------------------------------------------------------


def test_a_local_model_says_how_probable_attributes_are(demo_base, tmp_path, capsys):
    """Flagged, ordered and shown first by the mean over its lists, as the kept answers have them."""
    for width in (64, 96, 128):
        photo(tmp_path / f"{width}.png", width, 64)
    how = ["--model", str(demo_base), "--dtype", "float32", "--max_pixels", "9216", "--structured", "true"]
    out = tmp_path / "r.jsonl"
    main([str(tmp_path), *how, "--flag_above", "0.3", "--out", str(out)])
    said = capsys.readouterr().out
    rows = rows_of(out)
    kept = [json.loads(line)["answer"]["lists"] for line in (tmp_path / "r.answers.jsonl").read_text().splitlines()]
    risks = [Risk.read(lists, Taxonomy.default()) for lists in kept]
    assert sorted(row["probable"]["score"] for row in rows) == pytest.approx(sorted(risk.mean for risk in risks))
    for row in rows:
        told = row["probable"]
        risk = min(risks, key=lambda risk: abs(risk.mean - told["score"]))
        assert row["flag_score"] == told["score"] and row["flagged"] is (told["score"] >= 0.3)
        assert 0 < row["willing"] < 0.01  # a base that answers nothing that can be read when it is free
        assert told["exceeds"] == pytest.approx(risk.exceeds(0.3)) and told["band"] == pytest.approx(list(risk.band))
        assert told["uncertain"] is (0.05 < told["exceeds"] < 0.95) and told["level"] == risk.level
        left = [one["score_without"] for one in told["attributes"]]
        assert left == sorted(left) and all(one["probability"] >= 0.05 for one in told["attributes"])
        for one in told["attributes"]:
            assert one["score_without"] == pytest.approx(risk.hiding(one["key"]).mean)
        assert [(one["hide"], one["score"], one["level"]) for one in told["order"]] == [
            (step.key, pytest.approx(step.score), step.level) for step in risk.hide_in_order()
        ]
        low, high = map(format_score, told["band"])
        assert f"its own 90%: {low} to {high}; level {told['level']} with" in " ".join(said.split())
    main([str(tmp_path), *how, "--flag_above", "0.3", "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text()
    unsure = sum(row["probable"]["uncertain"] for row in rows)
    assert "mean severity over all lists" in page and (f"{unsure} photo" in page) is bool(unsure)
    assert "the middle 90% of the model&#39;s own probability, which is no promise" in page

    # With a hold-out whose truth lies 0.05 above each band, both ends move out by as much.
    wanted = [{"id": str(n), "level": 1, "score": 0.85} for n in range(9)]
    held = [row | {"status": "ok", "mean_score": 0.75, "score_band": [0.7, 0.8]} for row in wanted]
    for name, content in (("l", wanted), ("p", held)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    capsys.readouterr()
    main([str(tmp_path), *how, *chosen, "--out", str(tmp_path / "r.html")])
    assert "90% bands are widened by 0.050 (9 labelled photos)" in capsys.readouterr().out
    page = (tmp_path / "r.html").read_text()
    assert "hold the truth in 90% of photos like the 9 labelled ones" in page
    main([str(tmp_path), *how, *chosen, "--out", str(out)])
    for before, after in zip(rows, rows_of(out), strict=True):
        low, high = before["probable"]["band"]
        assert after["probable"]["band"] == pytest.approx([max(0, low - 0.05), min(1, high + 0.05)])
        assert after["probable"]["band_calibrated"] and not before["probable"]["band_calibrated"]


def test_photos_that_the_model_is_not_sure_of_are_looked_at_first(tmp_path):
    """Of three, one is above the threshold with 50%, one with 80% and one with 100%."""
    lists = [{"gov_ids": 0.8, "age": 0.2}, {"gov_ids": 0.5, "age": 0.5}, {"gov_ids": 1.0}]
    rows = []
    for number, of_photo in enumerate(lists):
        answer = Answer("ok", 0.711, 1, 1, ("gov_ids",))
        outcome = Outcome("ok", "{}", answer, response=Response("{}", lists=of_photo))
        args = ScoreArguments(["x"], structured=True, flag_above=0.7, flag_by="expected")
        rows.append(score_row(Photo("p", f"{number}.png"), outcome, args, Taxonomy.default()))
    assert [row["probable"]["uncertain"] for row in rows] == [True, True, False]
    assert [row["flagged"] for row in rows] == [False, False, True]
    files = [tmp_path / f"{number}.png" for number in range(3)]
    html = page(tmp_path / "p.html", rows, files, Taxonomy.default(), {}, with_pictures=False, asks_attributes=True)
    places = [html.index(f"{number}.png") for number in (1, 0, 2)]
    assert places == sorted(places) and "2 photos near the threshold" in html
    half = next(row for row in Page(html).rows if row["Photo"]["value"] == "1.png")
    mean, without, ageless = (format_score(0.5 * score) for score in (0.711 + 0.292, 0.292, 0.711))
    assert texts(
        half["Score"]
    ) == f"{mean} its own 90%: 0.292 to 0.711 level 1 with 50% above the threshold with 50% " + (
        "states 0.711, level 1"
    )
    assert texts(half["Attributes"]) == f"government ID 50%, without it {without} age 50%, without it {ageless}"
    assert (
        texts(half["Hide, in this order"]) == f"government ID → {without}, level 3"
    )  # of equally probable levels the more severe


def test_a_row_says_where_the_lists_that_were_found_hold_little():
    answer, args = Answer("ok", 0.711, 1, 1, ("gov_ids",)), ScoreArguments(["x"], structured=True, flag_by="expected")
    for mass, said in ((0.4, True), (0.6, False)):
        outcome = Outcome("ok", "{}", answer, response=Response("{}", lists={"gov_ids": mass}))
        row = score_row(Photo("p", "0.png"), outcome, args, Taxonomy.default())
        assert ("lists found hold 40% of its probability" in beside(row, format_score)) is said


def test_a_threshold_goes_by_the_mean_over_lists_where_there_is_one(tmp_path, capsys):
    labels = [Label(str(n), None, None, 1 if n < 5 else 4, 0.8 if n < 5 else 0.1, None) for n in range(10)]
    predictions = [
        Prediction(str(n), "m", "taxonomy", "ok", score=0.5, composed_score=0.5, mean_score=0.9 - n / 20)
        for n in range(10)
    ]
    write_jsonl(tmp_path / "l.jsonl", labels)
    write_jsonl(tmp_path / "p.jsonl", predictions)
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    main([*chosen, "--recall", "1"])
    assert "0.7" in capsys.readouterr().out.splitlines()[0]
    write_jsonl(tmp_path / "p.jsonl", [replace(row, mean_score=None) for row in predictions])
    with pytest.raises(InputError, match="mean_score.*is missing"):
        main([*chosen, "--flag_by", "expected"])


def test_a_local_model_says_what_it_says_elsewhere(demo_base, adapter, tmp_path, capsys):
    """The tiny models answer no privacy question: their words are kept, and nothing is made of them."""
    chosen = [photo(tmp_path / f"{width}.png", width, 64) for width in (64, 96, 128)]
    with pytest.raises(InputError, match="no photo got a score"):
        main(
            [
                *map(str, chosen),
                "--model",
                str(demo_base),
                "--adapter",
                str(adapter),
                "--dtype",
                "float32",
                "--max_new_tokens",
                "12",
                "--batch_size",
                "2",
                "--target",
                "score",
                "--prompt",
                "zero_shot",
                "--max_pixels",
                "9216",
                "--out",
                str(tmp_path / "r.jsonl"),
            ]
        )
    row = {
        "name": "m",
        "model": str(demo_base),
        "adapter": str(adapter),
        "dtype": "float32",
        "max_new_tokens": 12,
        "max_pixels": 9216,
        "batch_size": 1,
    }
    model = Model(ModelSpec.read(row, "spec"))
    requests = {str(path): Request(build("zero_shot").messages(), (path,)) for path in chosen}
    with ResponseCache(tmp_path / "alone.jsonl") as cache:
        model.ask(requests, cache, "alone")
        expected = [cache.rows(str(path))[0]["text"] for path in chosen]
    rows = rows_of(tmp_path / "r.jsonl")
    assert [row["text"] for row in sorted(rows, key=lambda row: int(row["path"][:-4]))] == expected
    assert {row["status"] for row in rows} == {"unparsed"} and {row["score"] for row in rows} == {None}
    assert "scores alone, without attributes and advice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trained", "options", "asked", "said"),
    [
        (None, {}, ("taxonomy", "attributes"), ""),
        (None, {"prompt": "zero_shot"}, ("zero_shot", "score"), "scores alone"),
        (("taxonomy", "attributes"), {}, ("taxonomy", "attributes"), ""),
        (("taxonomy", "score"), {}, ("taxonomy", "score"), "--target score, as ADAPTER was trained: scores alone"),
        (("intuition", "score"), {}, ("intuition", "score"), "as ADAPTER was trained"),
        (
            ("intuition", "score"),
            {"target": "attributes"},
            ("taxonomy", "attributes"),
            "ADAPTER was trained with --prompt intuition --target score: asked otherwise",
        ),
        (("taxonomy", "score"), {"target": "attributes"}, ("taxonomy", "attributes"), "asked otherwise"),
        (("zero_shot", "score"), {"target": "score"}, ("zero_shot", "score"), "scores alone"),
    ],
)
def test_an_adapter_is_asked_as_it_was_trained(adapter, tmp_path, capsys, trained, options, asked, said):
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    if trained:
        (folder / "run.json").write_text(json.dumps({"prompt": build(*trained).identity()}))
    judge = settle(ScoreArguments(["x"], adapter=str(folder), **options), Taxonomy.default())
    assert (judge.prompt.name, judge.prompt.target) == asked
    err = capsys.readouterr().err
    assert said.replace("ADAPTER", str(folder)) in err and (said != "" or err == "")
    assert judge.spec.max_pixels is None  # the cap that the adapter brings


def test_a_prompt_that_is_not_known_here_gets_a_word(adapter, tmp_path, capsys):
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    (folder / "run.json").write_text('{"prompt": {"name": "taxonomy"}}')
    assert settle(ScoreArguments(["x"], adapter=str(folder)), Taxonomy.default()).prompt.target == "attributes"
    assert "not known here" in capsys.readouterr().err
    (folder / "adapter_config.json").unlink()
    with pytest.raises(InputError, match="is not an adapter folder"):
        settle(ScoreArguments(["x"], adapter=str(folder)), Taxonomy.default())
    assert capsys.readouterr().err == ""  # that it is none is all there is to say


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


# --- The page ----------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Elements, what stands in styles and scripts, and all other text."""

    def __init__(self, content: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "": []}
        self._open = ""
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag if tag in self.inside else ""
        if self._open:
            self.inside[tag].append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open:
            self.inside[self._open][-1] += data
        else:
            self.inside[""].append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.inside[""]).split())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The list of all photos: column -> what its cell holds."""
        data = next(text for text in self.inside["script"] if text.startswith("[["))
        return [dict(zip((column.head for column in COLUMNS), row, strict=True)) for row in json.loads(data)]


def texts(cell: Any) -> str:
    """What a cell shows."""
    if not isinstance(cell, dict):
        return str(cell or "")
    parts = [part for line in cell["lines"] for part in line]
    return " ".join(part if isinstance(part, str) else part[0] for part in parts).replace("\u00a0", " ")


def make_page(judge, folder, tmp_path, *options: str) -> Page:
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.html"), "--flag_above", "0.8", *options])
    return Page((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_the_page_runs_nothing_but_its_own_and_asks_nothing_of_the_network(judge, folder, tmp_path):
    photo(folder / "<img src=x onerror=alert(1)>\u202e.png", 21, 33)
    (folder / '"><script>alert(2)<').mkdir()
    (folder / '"><script>alert(2)<' / "broken.png").write_text("no photo")
    page = make_page(judge, folder, tmp_path)
    tags = [tag for tag, _ in page.elements]
    running = [attrs for tag, attrs in page.elements if tag == "script" and attrs.get("type") != "application/json"]
    assert len(running) == tags.count("style") == 1 and not {"img", "link", "iframe", "form", "a"} & set(tags)
    (policy,) = (attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == rules["img-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for kind in ("script", "style"):
        digest = hashlib.sha256(page.inside[kind][-1].encode()).digest()
        assert rules[f"{kind}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    for _, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on") or name in ("src", "style", "href")]
    names = [row["Photo"]["value"] for row in page.rows]
    assert "<img src=x onerror=alert(1)>\\u202e.png" in names and '"><script>alert(2)</broken.png' in names


def test_the_page_says_what_the_rows_say_those_to_look_at_first(judge, folder, tmp_path):
    page = make_page(judge, folder, tmp_path)
    rows = page.rows
    assert [row["Photo"]["value"] for row in rows] == ["24.png", "25.png", "21.png", "26.png", "22.png", "23.png"]
    assert [row["To look at"] for row in rows] == ["yes", "yes", "no", "no", "no", "no"]
    assert texts(rows[0]["Photo"]) == "24.png refused: I'm sorry, but I can't assist with that request."
    assert texts(rows[2]["Score"]) == "0.879 states 0.850, level 1 flagged" and rows[2]["Level"] == "1"
    assert rows[2]["Attributes"]["value"] == ["biometrics", "government ID", "age"]
    assert texts(rows[2]["Attributes"]).startswith("biometrics without it 0.732, level 1 government ID without it")
    assert texts(rows[2]["Hide, in this order"]) == "biometrics → 0.732, level 1 government ID → 0.292, level 3"
    assert [row["List"] for row in rows] == [None, None, "readable", "unreadable", "readable", "readable"]
    assert [row["Flag"] for row in rows] == [None, None, "flagged", "not flagged", "not flagged", "not flagged"]
    assert "Privacy risk of 6 photos" in page.text and "2 photos without a score" in page.text
    for words in (
        "2 level 1",
        "1 level 3",
        "1 refused",
        "1 unreadable lists",
        "Of 1 photo the list cannot be read",
        "1 flagged",
        "0.8 or more, by the more severe of the score that the model states",
        "taxonomy prompt for attributes and score",
        "Art. 4(14)",
    ):
        assert words in page.text
    lines = [line for row in rows if row["Attributes"] for line in row["Attributes"]["lines"]]
    anchors = {line[0][2] for line in lines if len(line[0]) > 2}
    assert anchors == {f"#law-{key}" for key in ("biometrics", "gov_ids", "age", "location")}
    assert anchors <= {f"#{attrs['id']}" for _, attrs in page.elements if "id" in attrs}


def test_links_lead_from_the_page_to_the_photos(judge, folder, tmp_path):
    odd = os.fsencode(folder) + b"/caf\xe9 #1?.png"
    shutil.copy(folder / "21.png", odd)
    (tmp_path / "pages").mkdir()
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "pages" / "r.html")])
    page = Page((tmp_path / "pages" / "r.html").read_text())
    links = [row["Photo"]["lines"][0][0][2] for row in page.rows]
    assert "../photos/21.png" in links and len(links) == 7
    for link in links:
        assert (tmp_path / "pages").joinpath(os.fsdecode(urllib.parse.unquote_to_bytes(link))).is_file()


def test_contradictions_are_marked_counted_and_flagged(folder, tmp_path, capsys):
    answers = {
        **ANSWERS,
        22: {"attributes": ["gov_ids"], "level": 3, "score": 0.4},  # names a level-1 attribute, states level 3
        23: {"attributes": ["background_people"], "level": 1, "score": 0.994},  # the other way round
    }
    with Misbehaving(by_width(answers)) as server:
        rows = {}
        for by in (None, "stated", "composed"):
            main(
                [str(folder), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), "--flag_above", "0.7"]
                + (["--flag_by", by] if by else [])
            )
            rows[by] = {row["path"]: row for row in rows_of(tmp_path / "r.jsonl")}
        said = capsys.readouterr().out
        page = make_page(server, folder, tmp_path)
    assert {path: row["contradiction"] for path, row in rows[None].items()} == {
        "21.png": False,
        "22.png": True,
        "23.png": True,
        "24.png": None,
        "25.png": None,
        "26.png": None,
    }
    flagged = {by: [path for path, row in found.items() if row["flagged"]] for by, found in rows.items()}
    assert flagged == {
        None: ["21.png", "22.png", "23.png", "26.png"],
        "stated": ["21.png", "23.png", "26.png"],
        "composed": ["21.png", "22.png"],
    }
    assert rows["composed"]["26.png"]["flagged"] is None  # names no attributes: a person has to look
    assert rows[None]["22.png"]["flag_score"] == pytest.approx(0.711) and rows[None]["23.png"]["flag_score"] == 0.994
    assert [rows[None]["22.png"][name] for name in ("score", "level")] == [0.4, 3]  # what the model said stays
    assert "; 2 contradictions: the score and the attributes are of two levels" in said
    assert "contradiction: states 0.400, level 3; its attributes make 0.711, level 1" in said
    assert "2 contradictions: the score that the model states" in page.text
    shown = {row["Photo"]["value"]: row for row in page.rows}
    assert "contradiction: states 0.994, level 1; its attributes make 0.000, level 4" in texts(shown["23.png"]["Photo"])
    assert [shown[f"{width}.png"]["Contradiction"] for width in (21, 22, 23, 26)] == ["no", "yes", "yes", None]
    assert [row["Photo"]["value"] for row in page.rows if row["To look at"] == "yes"] == [
        "24.png",
        "25.png",
        "23.png",
        "22.png",
    ]


def test_the_threshold_is_chosen_by_the_score_that_flags(tmp_path, capsys):
    """The first photo states 0.4 and names what makes 0.9."""
    write_jsonl(tmp_path / "l.jsonl", [label("a", 1), label("b", 1), label("c", 3)])
    rows = [replace(prediction("a", 0.4), composed_score=0.9), prediction("b", 0.75), prediction("c", 0.5)]
    write_jsonl(tmp_path / "p.jsonl", rows)
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    main([*chosen, "--recall", "1"])
    assert capsys.readouterr().out.startswith("flag_above 0.75 by the severe score: recall of level 1 1.000")
    main([*chosen, "--recall", "1", "--flag_by", "stated"])
    assert capsys.readouterr().out.startswith("flag_above 0.4 by the stated score: recall of level 1 1.000")
    write_jsonl(tmp_path / "p.jsonl", [replace(row, composed_score=None) for row in rows])
    main([*chosen, "--recall", "1"])
    said = capsys.readouterr()
    assert said.out.startswith("flag_above 0.4 by the stated score:") and "holds no composed score" in said.err
    with pytest.raises(InputError, match=r"p.jsonl: field 'composed_score': is missing: it takes cprt eval --target"):
        main([*chosen, "--flag_by", "composed"])


def test_photos_are_flagged_by_the_score_that_the_threshold_was_learnt_on(judge, folder, tmp_path, capsys):
    """The hold-out has stated scores alone, of another judge: photo 22 states 0.4 and names a passport."""
    write_jsonl(tmp_path / "l.jsonl", [label("a", 1), label("c", 3)])
    rows = [replace(prediction("a", 0.5), model="other", prompt="taxonomy"), prediction("c", 0.3)]
    write_jsonl(tmp_path / "p.jsonl", rows)
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    with Misbehaving(by_width({**ANSWERS, 22: {"attributes": ["gov_ids"], "level": 3, "score": 0.4}})) as server:
        main([str(folder), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), *chosen])
    found = {row["path"]: (row["flagged"], row["flag_score"]) for row in rows_of(tmp_path / "r.jsonl")}
    assert found["22.png"] == (False, 0.4) and found["21.png"][0] is True
    record = json.loads((tmp_path / "r.run.json").read_text())
    assert (record["config"]["flag_by"], record["threshold"]["by"]) == ("stated", "stated")
    assert "p.jsonl is of other, asked with taxonomy, not of " in capsys.readouterr().err


def test_thumbnails_are_small_pixels_and_nothing_else_also_of_photos_without_a_score(judge, folder, tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "my secret place"
    photo(folder / "21.png", 21).unlink()
    photo(folder / "big.jpg", 600, 400, exif=exif)
    with Misbehaving(by_width({**ANSWERS, 600: PASSPORT})) as server:
        page = make_page(server, folder, tmp_path, "--thumbnails", "true")
    pictures = json.loads(next(text for text in page.inside["script"] if "image/jpeg" in text))
    assert len(pictures) == 6 and all(source.startswith("data:image/jpeg;base64,") for source in pictures)
    shown = {row["Photo"]["value"]: row["Photo"]["picture"] for row in page.rows}
    data = base64.b64decode(pictures[shown["big.jpg"]].partition(",")[2])
    assert b"secret" not in data and b"Exif" not in data and "24.png" in shown
    with Image.open(io.BytesIO(data)) as image:
        assert image.width <= 160 and image.width == pytest.approx(1.5 * image.height, abs=2)


# --- The threshold -----------------------------------------------------------------------------------------------


def label(id: str, level: int) -> Label:
    return Label(id, None, None, level, 0.5, None)


def prediction(id: str, score: float | None) -> Prediction:
    return Prediction(id, None, None, "ok" if score is not None else "refused", score=score)


def test_a_threshold_by_hand():
    """Level 1: 0.9, 0.8, 0.4 and one without a score; others: 0.85, 0.1, and one without."""
    levels = [1, 1, 1, 1, 2, 4, 3]
    scores = [0.9, 0.8, 0.4, None, 0.85, 0.1, None]
    labels = [label(str(i), level) for i, level in enumerate(levels)]
    predictions = [prediction(str(i), score) for i, score in enumerate(scores[:-1])]
    found = choose(labels, predictions, 0.5, "p.jsonl")
    assert (found.score, found.recall, found.precision) == (0.8, 0.5, 2 / 3)
    assert (found.flagged, found.without_score, found.level_1_without_score) == (3, 2, 1)
    assert choose(labels, predictions, 0.75, "p.jsonl").score == 0.4
    with pytest.raises(
        InputError, match="p.jsonl: no threshold has recall 0.8: 1 of 4 photos of level 1 have no score"
    ):
        choose(labels, predictions, 0.8, "p.jsonl")
    with pytest.raises(InputError, match="p.jsonl: not one id of the labels is among its predictions"):
        choose(labels, [prediction("other", 0.9)], 0.8, "p.jsonl")
    with pytest.raises(InputError, match="no labelled photo is of level 1"):
        choose(labels[4:], predictions[4:], 0.5, "p.jsonl")
    without_first = choose(labels[1:], predictions, 0.3, "p.jsonl")  # only labelled photos count
    assert (without_first.score, without_first.rows, without_first.predictions_left_aside) == (0.8, 6, 1)
    assert "1 predictions are of other photos" in str(without_first)


def test_precision_is_reweighted_to_the_photos_to_come():
    """By hand: of level 1, 3 of 4 are flagged, of level 2, 1 of 2, of level 4, 1 of 4."""
    levels = [1, 1, 1, 1, 2, 2, 4, 4, 4, 4]
    scores = [0.9, 0.8, 0.7, 0.1, 0.75, 0.2, 0.8, 0.1, 0.1, 0.1]
    labels = [label(str(i), level) for i, level in enumerate(levels)]
    predictions = [prediction(str(i), score) for i, score in enumerate(scores)]
    plain = choose(labels, predictions, 0.75, "p.jsonl")
    assert (plain.score, plain.precision, plain.population) == (0.7, 3 / 5, [0.4, 0.2, 0, 0.4])
    rare = choose(labels, predictions, 0.75, "p.jsonl", [0.1, 0.1, 0, 0.8])
    flagged = 0.1 * 3 / 4, 0.1 / 2, 0.8 / 4
    assert rare.precision == pytest.approx(flagged[0] / sum(flagged)) and rare.score == plain.score
    assert rare.precision_interval[0] < rare.precision < rare.precision_interval[1]
    assert "where levels 1 to 4 are 10% / 10% / 0% / 80% of the photos" in str(rare)
    same = choose(labels, predictions, 0.75, "p.jsonl", [4, 2, 0, 4])
    assert same.precision == pytest.approx(plain.precision)
    with pytest.raises(InputError, match="no labelled photo is of level 3, whose share is given"):
        choose(labels, predictions, 0.75, "p.jsonl", [1, 1, 1, 1])


def test_no_false_alarm_is_not_certain_of_photos_to_come():
    """Of 80 of level 4 none is flagged: up to 4.6% may be (Wilson), as many as are flagged of a rare level 1."""
    precision, bounds = reweighted_precision([20, 0, 0, 0], [20, 20, 20, 80], [0.05, 0, 0, 0.95])
    least, most = wilson_interval(20, 20)[0], wilson_interval(0, 80)[1]
    assert precision == 1 and bounds[1] == 1
    assert 0.05 * least / (0.05 * least + 0.95 * most) < bounds[0] < 0.05 / (0.05 + 0.95 * most)
    assert reweighted_precision([1, 0, 0, 0], [2, 0, 0, 0], [1, 0, 0, 0]) == (1.0, None)
    assert reweighted_precision([1, 1, 0, 0], [2, 2, 0, 0], [0, 1, 0, 0]) == (0.0, None)


def test_the_interval_of_a_reweighted_precision_holds_it_95_times_in_100():
    counts, population, shares = [60, 40, 40, 80], [0.1, 0.1, 0.2, 0.6], np.array([0.9, 0.2, 0.05, 0.01])
    flagged = shares * population
    drawn = np.random.default_rng(0).binomial(counts, shares, size=(2000, 4))
    bounds = np.array([reweighted_precision(row, counts, population)[1] for row in drawn.tolist()])
    holds = (bounds[:, 0] <= flagged[0] / flagged.sum()) & (flagged[0] / flagged.sum() <= bounds[:, 1])
    assert 0.93 < holds.mean() < 0.98


@given(
    rows=st.lists(st.tuples(st.integers(1, 2), st.none() | st.sampled_from([0.1, 0.2, 0.7, 0.71, 0.9])), min_size=1),
    recall=st.floats(0.01, 1),
)
def test_the_threshold_is_the_highest_that_flags_enough(rows, recall):
    labels = [label(str(i), level) for i, (level, _) in enumerate(rows)]
    predictions = [prediction(str(i), score) for i, (_, score) in enumerate(rows)]
    severe = [score for level, score in rows if level == 1]

    def reaches(threshold: float) -> bool:
        return (
            bool(severe) and sum(score is not None and score >= threshold for score in severe) / len(severe) >= recall
        )

    enough = [score for score in (0.1, 0.2, 0.7, 0.71, 0.9) if reaches(score)]
    if not enough:
        with pytest.raises(InputError):
            choose(labels, predictions, recall, "p.jsonl")
        return
    found = choose(labels, predictions, recall, "p.jsonl")
    assert found.score == max(enough)
    flagged = [level for level, score in rows if score is not None and score >= found.score]
    assert (found.flagged, found.precision) == (len(flagged), flagged.count(1) / len(flagged))


def test_the_threshold_from_files_flags_the_photos(judge, folder, tmp_path, capsys):
    write_jsonl(tmp_path / "l.jsonl", [label("a", 1), label("b", 1), label("c", 3)])
    write_jsonl(tmp_path / "p.jsonl", [prediction("a", 0.9), prediction("b", 0.75), prediction("c", 0.3)])
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    main(chosen)
    line = capsys.readouterr().out
    assert line.startswith("flag_above 0.75 by the stated score: recall of level 1 1.000 [0.342, 1.000], ")
    assert "precision 1.000 [0.342, 1.000] where levels" in line
    assert "(2 of 3 labelled photos flagged, 2 are of level 1;" in line
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), *chosen, "--recall", "0.5"])
    assert [row["path"] for row in rows_of(tmp_path / "r.jsonl") if row["flagged"]] == []
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), *chosen])
    assert [row["path"] for row in rows_of(tmp_path / "r.jsonl") if row["flagged"]] == ["21.png", "26.png"]
    assert json.loads((tmp_path / "r.run.json").read_text())["threshold"]["score"] == 0.75


# --- Bad input ---------------------------------------------------------------------------------------------------

_THRESHOLD = ["--threshold_from", "p.jsonl", "--threshold_labels", "l.jsonl"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "name photos, or folders of photos"),
        (["x", "--out", "r.csv"], "'r.csv' is neither NAME.jsonl nor NAME.html"),
        (["x", "--thumbnails", "true"], "thumbnails need --out NAME.html"),
        (["x", "--threshold_from", "p.jsonl"], "threshold_from and threshold_labels need each other"),
        (["x", "--flag_above", "1.2"], "flag_above must be more than 0 and at most 1"),
        (["x", "--flag_above", "nan"], "'nan' is not a number"),
        (["x", "--population", "1", "1", "1", "1"], "population goes with threshold_from"),
        ([*_THRESHOLD, "--population", "1", "2"], "population: needs four shares"),
        ([*_THRESHOLD, "--population", *["1e200"] * 4], "population: needs four shares"),
        ([*_THRESHOLD, "--population", "1e-320", "1", "1", "1"], "population: needs four shares"),
        (["x", "--max_pixels", "0"], "max_pixels must be at least 1"),
        (["x", "--population", "nan", "1", "1", "1"], "'nan' is not a number"),
        (["x", "--flag_by", "both"], "invalid choice: 'both'"),
        (["x", "--flag_by", "expected"], "flag_by expected needs --structured true"),
        (["x", "--flag_by", "composed", "--target", "score"], "flag_by composed needs target attributes"),
        (["x", "--until_level", "1"], "until_level must be 2 to 4"),
        (["x", "--target", "attributes", "--prompt", "intuition"], "target 'attributes' needs prompt 'taxonomy'"),
        (["x", "--batch_size", "0"], "batch_size must be at least 1"),
        (["x", "--base_url", "ftp://x"], "must be http(s)://"),
        (["x", "--base_url", "http://127.0.0.1:1/v1", "--adapter", "y"], "y: is not an adapter folder"),
        (["x", "--taxonomy", "nowhere.yaml"], "nowhere.yaml: No such file"),
    ],
)
def test_bad_options_get_one_line(argv, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        main(argv)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_photos_that_are_not_there_are_told_before_the_hub_is_asked(tmp_path):
    with pytest.raises(InputError, match=r"^.*/nowhere/a\.jpg: cannot be read \(No such file or directory\)$"):
        main([str(tmp_path / "nowhere" / "a.jpg"), "--model", "nobody/has-this-model"])
    with pytest.raises(InputError, match=r"/b: cannot be read \(No such file or directory\) \(nor can the other 1\)$"):
        main([str(tmp_path / "b"), str(tmp_path / "c"), "--model", "nobody/has-this-model"])


def test_a_folder_without_photos_and_two_runs_at_once(judge, folder, tmp_path):
    (tmp_path / "none\n").mkdir()
    with pytest.raises(InputError, match=r"no photos in .*none\\n$"):
        main([str(tmp_path / "none\n"), "--base_url", judge.url])
    with ResponseCache(tmp_path / "r.answers.jsonl"), pytest.raises(InputError, match="another run is writing here"):
        main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.html")])
