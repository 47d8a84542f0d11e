"""``cprt annotate``: two stages, any number of annotators, nothing lost or doubled whatever happens."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from loopback import REFUSAL, Misbehaving, annotate, first_try_fails, identity, transformers_serve
from PIL import Image

from cprt.errors import InputError
from cprt.models.outcome import Outcome
from cprt.models.spec import ModelSpec
from cprt.taxonomy import Taxonomy
from data_prep.annotate import STAGE1_TOKENS, STAGE2_TOKENS, Annotator, Photo, main

KEYS = Taxonomy.default().keys
SECRET = "sk-test-5Q9vXkW2mZ8"


def make_photos(folder: Path, count: int) -> Path:
    """Small photos, all different, under images/."""
    (folder / "images").mkdir(parents=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (24, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"photo_{number:03}.png")
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"), 24)


def config(folder: Path, images: Path, url: str, *names: str, **more: Any) -> list[str]:
    """The command's arguments for annotators behind ``url``; their model's name is their own."""
    annotators = [{"name": name, "model": f"model-{name}", "base_url": url, **more} for name in names]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "annotate.yaml").write_text(yaml.safe_dump({"annotators": annotators, "images": str(images)}))
    return ["--config", str(folder / "annotate.yaml"), "--out", str(folder / "out")]


def read(out: Path, file: str = "annotations.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / file).read_text().splitlines()]


def results(out: Path) -> list[bytes]:
    return [(out / file).read_bytes() for file in ("annotations.jsonl", "consensus.jsonl", "report.json")]


@pytest.fixture(scope="module")
def undisturbed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two annotators say when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Misbehaving(annotate) as server:
        main(config(folder, photos, server.url, "one", "two"))
        assert max(server.answered.values()) == 2  # once for each annotator
    return folder / "out"


# --- What comes out ----------------------------------------------------------------------------------------------


def test_every_photo_has_one_row_of_every_annotator_with_labels_from_their_words(photos: Path, undisturbed: Path):
    rows = read(undisturbed)
    ids = sorted(path.stem for path in (photos / "images").iterdir())
    assert [(row["id"], row["annotator"]) for row in rows] == [(id, name) for id in ids for name in ("one", "two")]
    assert {row["status"] for row in rows} == {"ok", "refused", "unparsed"}
    for row in rows:
        assert list(row) == ["id", "annotator", "status", "labels", "stage1", "stage2", "error"]
        if row["status"] == "ok":  # the labels are what the annotator said in stage one
            said = dict(re.findall(r"^(\w+): (yes|no|unclear)", row["stage1"], re.MULTILINE))
            assert row["labels"] == {key: {"yes": 1, "unclear": 0.5, "no": 0}[said[key]] for key in KEYS}
            assert row["error"] is None
        else:
            assert row["labels"] is None and row["error"]
            assert row["status"] == "unparsed" or (row["stage1"], row["stage2"]) == (REFUSAL, None)


@pytest.mark.parametrize("takes", [True, False])
def test_structured_labels_are_asked_for_as_a_schema_and_where_it_is_refused_not(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], takes: bool
):
    def held(body: dict[str, Any]) -> Any:
        if "response_format" not in body:
            return annotate(body)
        if not takes:
            return 400, {"error": {"message": "unknown field response_format"}}
        schema = body["response_format"]["json_schema"]["schema"]
        assert list(schema["properties"]) == schema["required"] == list(KEYS) and not schema["additionalProperties"]
        assert all(field == {"type": "number", "enum": [0, 0.5, 1]} for field in schema["properties"].values())
        return json.dumps(dict.fromkeys(KEYS, 0.5)), "stop"

    with Misbehaving(held) as server:
        main([*config(tmp_path, photos, server.url, "one"), "--structured", "true"])
    rows, report = read(tmp_path / "out"), json.loads((tmp_path / "out" / "report.json").read_text())
    labelled = [row for row in rows if row["stage2"] is not None]
    assert len(labelled) > 10 and {row["free"] for row in labelled} == {not takes}
    assert {row["willing"] for row in rows} == {None}  # an endpoint does not say
    if takes:
        assert all(row["labels"] == dict.fromkeys(KEYS, 0.5) for row in labelled)
    # What two stages came to: refused in stage one, or labels, of which a free annotator garbles some.
    assert {row["status"] for row in rows} == ({"ok", "refused"} if takes else {"ok", "refused", "unparsed"})
    free = 0 if takes else len(labelled)
    assert report["structured"] == {"one": {"free": free, "willing": None}}
    assert (f"{free} answers are free ones" in capsys.readouterr().out) is not takes


def test_any_model_that_runs_here_labels_every_photo_when_structured(demo_base: Path, tmp_path: Path):
    """The base, which free says nothing that can be read; and how unwillingly it does is told."""
    images, base = make_photos(tmp_path / "photos", 2), {"name": "base", "model": str(demo_base), "dtype": "float32"}
    (tmp_path / "annotate.yaml").write_text(yaml.safe_dump({"annotators": [base | {"max_new_tokens": 8}]}))
    asked = ["--config", str(tmp_path / "annotate.yaml"), "--images", str(images)]
    main([*asked, "--structured", "true", "--out", str(tmp_path / "held")])
    form = "\n".join(rf"{key}: (yes|no|unclear) - [^\n]{{1,60}}" for key in KEYS)
    for row in read(tmp_path / "held"):
        assert row["status"] == "ok" and re.fullmatch(form, row["stage1"])
        assert list(json.loads(row["stage2"])) == list(KEYS) and row["labels"] == json.loads(row["stage2"])
        assert 0 <= row["willing"] < 0.01 and row["free"] is False
    held = json.loads((tmp_path / "held" / "report.json").read_text())["structured"]["base"]
    assert held["free"] == 0 and held["willing"] < 0.01
    main([*asked, "--out", str(tmp_path / "free")])
    assert all(row["status"] != "ok" and "willing" not in row for row in read(tmp_path / "free"))


def test_consensus_is_where_all_agree_and_the_rest_is_listed(undisturbed: Path):
    rows, agreed = read(undisturbed), {row["id"]: row for row in read(undisturbed, "consensus.jsonl")}
    report = json.loads((undisturbed / "report.json").read_text())
    left = {row["id"]: row["statuses"] for row in report["without_consensus"]}
    assert report["photos"] == 24 == len(agreed) + len(left) and report["consensus"] == len(agreed) > 5 and left
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        if first["status"] == second["status"] == "ok":
            expected = {key: int(first["labels"][key] == 1 and second["labels"][key] == 1) for key in KEYS}
            assert agreed[first["id"]] == {"id": first["id"], "labels": expected, "annotators": ["one", "two"]}
        else:
            assert left[first["id"]] == {"one": first["status"], "two": second["status"]}
    for name, part in (("one", rows[::2]), ("two", rows[1::2])):
        counts = Counter(row["status"] for row in part)
        assert report["annotators"][name] == {
            status: counts[status] for status in ("ok", "unparsed", "refused", "error")
        }
    for key in KEYS:
        assert report["consensus_positives"][key] == sum(row["labels"][key] for row in agreed.values())


def test_a_second_run_asks_nothing_and_changes_nothing(photos: Path, undisturbed: Path, tmp_path: Path):
    """Not even a photo that was refused or whose labels were unreadable; not after a rename either."""
    shutil.copytree(undisturbed, tmp_path / "out")
    with Misbehaving(annotate) as server:
        # The kept answers are those of another address: with the model's revision stated they would count.
        arguments = config(tmp_path, photos, server.url, "one", "two", revision="1")
        main(arguments)
        asked, before = len(server.bodies), results(tmp_path / "out")
        stores = [path.read_bytes() for path in (tmp_path / "out" / "answers").iterdir()]
        main(arguments)
        assert len(server.bodies) == asked > 0 and results(tmp_path / "out") == before == results(undisturbed)
        assert [path.read_bytes() for path in (tmp_path / "out" / "answers").iterdir()] == stores


def test_refused_and_unparsed_are_asked_again_only_when_told(photos: Path, tmp_path: Path):
    better = False

    def learns(body: dict[str, Any]) -> Any:
        answer = annotate(body)
        if not better:
            return answer
        if answer[0] == REFUSAL:  # the photo it would not look at before
            return "\n".join(f"{key}: no - {identity(body)[:8]}" for key in KEYS), "stop"
        text = body["messages"][0]["content"][0]["text"]
        said = dict(re.findall(r"^(\w+): (yes|no|unclear) -", text, re.MULTILINE))
        if len(body["messages"][0]["content"]) == 1:
            return json.dumps({key: {"yes": 1, "no": 0, "unclear": 0.5}[said[key]] for key in KEYS}), "stop"
        return answer

    with Misbehaving(learns) as server:
        arguments = config(tmp_path, photos, server.url, "one")
        main(arguments)
        first = read(tmp_path / "out")
        better = True
        calls = {}
        for retry in (["refused"], ["unparsed"], ["refused", "unparsed"]):
            before = len(server.bodies)
            main([*arguments, "--retry", *retry])
            calls[" ".join(retry)] = len(server.bodies) - before
    refused, unparsed = (sum(row["status"] == status for row in first) for status in ("refused", "unparsed"))
    assert refused and unparsed
    assert calls == {"refused": 2 * refused, "unparsed": 2 * unparsed, "refused unparsed": 0}
    assert {row["status"] for row in read(tmp_path / "out")} == {"ok"}
    assert [row for row in first if row["status"] == "ok"] == [
        row for row, old in zip(read(tmp_path / "out"), first, strict=True) if old["status"] == "ok"
    ]


def test_a_changed_photo_and_an_extended_taxonomy_are_asked_anew(tmp_path: Path):
    images = make_photos(tmp_path / "data", 3)
    more = tmp_path / "more.yaml"
    more.write_text("attributes:\n  - {key: voice_print, level: 1, question: 'Is a voice print visible?'}\n")

    def all_yes(body: dict[str, Any]) -> tuple[str, str]:
        content = body["messages"][0]["content"]
        keys = re.findall(r"^- (\w+):", content[0]["text"], re.MULTILINE)
        return ("age: yes" if len(content) > 1 else json.dumps(dict.fromkeys(keys, 1))), "stop"

    with Misbehaving(all_yes) as server:
        arguments = config(tmp_path, images, server.url, "one")
        calls = []
        for extra in ([], ["--taxonomy", str(more)], []):
            main([*arguments, *extra])
            calls.append(len(server.bodies))
            labels = read(tmp_path / "out")[0]["labels"]
            assert set(labels) == {*KEYS, *(["voice_print"] if extra else [])} and set(labels.values()) == {1.0}
        # Three photos, and one stage two, since all three stage ones say the same.
        assert calls == [4, 8, 8]
        shutil.copy(images / "images" / "photo_001.png", images / "images" / "photo_000.png")
        main(arguments)
        assert len(server.bodies) == 8  # the same bytes are answered already
        Image.new("RGB", (9, 9)).save(images / "images" / "photo_002.png")
        main(arguments)
        assert len(server.bodies) == 9
    assert len(read(tmp_path / "out")) == 3


def test_cut_off_answers_are_unparsed_and_a_cut_off_stage_one_goes_no_further(photos: Path, tmp_path: Path, capsys):
    with Misbehaving(lambda body: (annotate(body)[0], "length")) as server:
        main([*config(tmp_path, photos, server.url, "one", max_new_tokens=30), "--limit", "4"])
        assert len(server.bodies) == 4
    rows = read(tmp_path / "out")
    assert {(row["status"], row["error"], row["stage2"]) for row in rows} == {
        ("unparsed", "stage 1: cut off at 30 tokens", None)
    }
    assert all(row["stage1"] for row in rows)
    (said,) = re.findall(r"  the first unparsed answer: (.*)", capsys.readouterr().out)
    assert len(said) <= 160 and " ".join(rows[0]["stage1"].split()).startswith(said[:100])


# --- What is asked -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("<think>age: no, wait</think>age: yes - grey hair", "ok"),
        ("[THINK] age: no, wait[/THINK]age: yes - grey hair", "ok"),
        ("[THINK] age: no, wait", "unparsed"),
        ("<think>age: no, wait</think>I must decline.", "refused"),
    ],
)
def test_stage_two_is_shown_what_stage_one_said_and_not_what_it_thought(photos: Path, said: str, status: str):
    annotator = Annotator(
        ModelSpec("one", "model", "http://127.0.0.1:1/v1"),
        [Photo("a", photos / "images/photo_000.png")],
        Taxonomy.default(),
    )
    found, value = annotator.read_first(said)
    asked = annotator.second_requests({annotator.keys["a"]: Outcome(found, said, value)})
    shown = "".join(str(request.messages) for _, request in asked.values())
    assert (found, "age: yes - grey hair" in shown, "wait" in shown) == (status, status == "ok", False)


def test_a_dry_run_counts_calls_and_tokens_and_does_nothing(photos: Path, tmp_path: Path, capsys):
    with Misbehaving(lambda body: ("age: yes", "stop")) as server:
        arguments = config(tmp_path, photos, server.url, "one")
        main([*arguments, "--dry_run", "true", "--limit", "2"])
        assert server.bodies == [] and not (tmp_path / "out").exists()
        line = capsys.readouterr().out
        main([*arguments, "--limit", "2"])
        first, second = server.bodies[0]["messages"][0]["content"], server.bodies[-1]["messages"][0]["content"]
        shown = len(first[0]["text"]) + len(first[2]["text"])
        asked = len(second[0]["text"]) - len("age: yes") + 4 * STAGE1_TOKENS * 22
        tokens = 2 * (shown // 4 + 1) + 2 * (asked // 4)  # 32 x 24 pixels are one token
        written = 2 * 22 * (STAGE1_TOKENS + STAGE2_TOKENS)
        expected = f"2 + 2 calls (stage 1 + 2) for 2 photos, about {tokens:,} tokens to read and {written:,} to write"
        assert line == f"one: {expected}\n"
        # After a run only what is missing counts.
        capsys.readouterr()
        main([*arguments, "--dry_run", "true", "--limit", "3"])
        assert "one: 1 + 1 calls (stage 1 + 2) for 3 photos" in capsys.readouterr().out


def test_ids_choose_the_photos(photos: Path, tmp_path: Path):
    (tmp_path / "ids.txt").write_text("photo_003\n\nphoto_001.png\n")
    (tmp_path / "rows.jsonl").write_text('{"id": "photo_003", "level": 2}\n{"id": "images/photo_001.png"}\n')
    with Misbehaving(annotate) as server:
        for file in ("ids.txt", "rows.jsonl"):
            main([*config(tmp_path / file[:3], photos, server.url, "one"), "--input", str(tmp_path / file)])
            assert [row["id"] for row in read(tmp_path / file[:3] / "out")] == ["photo_001", "photo_003"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("photo_000\nphoto_777\n", "there is no photo 'photo_777'"),
        ("photo_000\nphoto_000.png\n", "'photo_000' is there twice"),
        ("../../etc/passwd\n", "is not a file name inside the image folder"),
        ("\n", "holds no images"),
        (None, "No such file"),
    ],
)
def test_bad_ids_get_one_line(photos: Path, tmp_path: Path, content: str | None, complaint: str):
    ids = tmp_path / "ids.txt"
    if content is not None:
        ids.write_text(content)
    with Misbehaving(annotate) as server, pytest.raises(InputError) as caught:
        main([*config(tmp_path, photos, server.url, "one"), "--input", str(ids)])
    assert complaint in str(caught.value) and "ids.txt" in str(caught.value) and "\n" not in str(caught.value)
    assert server.bodies == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("annotators", "extra", "complaint"),
    [
        ([], [], "annotators: the list is empty"),
        ([{"name": "a"}], [], "annotators[1]: field 'model': is missing"),
        ([{"name": "a", "model": "m"}, {"name": "A", "model": "n"}], [], "'a' is there twice"),
        ([{"name": "a", "model": "m", "base_url": "https://api.example.com/v1"}], [], "set --allow_remote true"),
        ([{"name": "a", "model": "m"}], ["--retry", "error"], "retry: 'error' is not one of refused, unparsed"),
        ([{"name": "a", "model": "m"}], ["--limit", "0"], "limit must be at least 1"),
        (["gpt"], [], "field 'annotators'"),
        ([{"name": "a", "model": "no/such/folder"}], [], "no/such/folder: no such model folder"),
    ],
)
def test_bad_options_get_one_line(
    photos: Path, tmp_path: Path, annotators: list[Any], extra: list[str], complaint: str
):
    arguments = config(tmp_path, photos, "http://127.0.0.1:1/v1")
    (tmp_path / "annotate.yaml").write_text(yaml.safe_dump({"annotators": annotators, "images": str(photos)}))
    with pytest.raises(InputError) as caught:
        main([*arguments, *extra])
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_remote_annotators_are_announced(photos: Path, tmp_path: Path, monkeypatch, capsys):
    """A name that is not known to be this machine counts as remote, whatever it resolves to."""
    monkeypatch.setenv("NO_PROXY", "*")
    with Misbehaving(annotate) as server:
        url = server.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")
        main([*config(tmp_path, photos, url, "one"), "--limit", "1", "--allow_remote", "true"])
    assert "note: one is on another machine: 1 image leaves this one\n" in capsys.readouterr().err


# --- What goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_through_every_fault_the_rows_are_the_same(photos: Path, undisturbed: Path, tmp_path: Path):
    with Misbehaving(annotate, first_try_fails, stall=20) as server:
        main(config(tmp_path, photos, server.url, "one", "two", timeout=2, retries=12, concurrency=24))
        assert set(server.faulted) >= {"429", "429-date", "500", "reset", "stall", "empty", "cut"}
    assert results(tmp_path / "out") == results(undisturbed)


def test_errors_stay_visible_and_are_asked_again(photos: Path, undisturbed: Path, tmp_path: Path, capsys):
    """Photos that the server fails on for good; it is mended before the second run."""
    broken = True

    def fault(who: str, earlier: int) -> str | None:
        return "500" if broken and int(who[:2], 16) % 3 == 0 else None

    with Misbehaving(annotate, fault) as server:
        arguments = config(tmp_path, photos, server.url, "one", "two", retries=0)
        main(arguments)
        rows = {(row["id"], row["annotator"]): row for row in read(tmp_path / "out")}
        failed = {place for place, row in rows.items() if row["status"] == "error"}
        assert 0 < len(failed) < 40 and all(rows[place]["labels"] is None for place in failed)
        assert {re.sub(r": failed.*", "", rows[place]["error"]) for place in failed} == {
            "stage 1: HTTP 500",
            "stage 2: HTTP 500",
        }
        whole = {(row["id"], row["annotator"]): row for row in read(undisturbed)}
        assert {place: row for place, row in rows.items() if place not in failed} == {
            place: row for place, row in whole.items() if place not in failed
        }
        broken = False
        before = len(server.bodies)
        main(arguments)
        again = len(server.bodies) - before
    assert results(tmp_path / "out") == results(undisturbed)
    assert len(failed) <= again <= 2 * len(failed)


def test_an_endpoint_that_always_fails_gives_only_errors_and_no_success(photos: Path, tmp_path: Path):
    for limit, complaint in (("4", "every photo ended in an error"), ("24", "one: the endpoint keeps failing")):
        out = tmp_path / limit
        with Misbehaving(annotate, lambda who, earlier: "500") as server, pytest.raises(InputError, match=complaint):
            main([*config(out, photos, server.url, "one", "two", retries=0), "--limit", limit])
        rows = read(out / "out")
        assert {row["status"] for row in rows} == {"error"} and len(rows) == 2 * int(limit)
        assert {row["error"].split(":")[1] for row in rows} <= {" HTTP 500", " not asked"}
        assert (out / "out" / "consensus.jsonl").read_text() == ""


def annotate_process(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "data_prep.annotate", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_refused_key_is_one_line_and_status_2_and_nothing_secret_is_written(photos: Path, tmp_path: Path):
    """The server echoes key, address and photo in its errors before it refuses the key."""
    asked = 0

    def expires(body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return annotate(body) if asked <= 12 else (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}})

    def fault(who: str, earlier: int) -> str | None:
        return "500" if int(who[:2], 16) % 3 == 0 and asked < 8 else None

    with Misbehaving(expires, fault) as server:
        arguments = config(tmp_path, photos, server.url, "one", "two", api_key_env="ANNOTATOR_KEY", retries=0)
        process = annotate_process(arguments, ANNOTATOR_KEY=SECRET, OPENAI_LOG="debug")
        out, err = process.communicate()
    assert SECRET in server.headers[0]
    assert process.returncode == 2, err
    line = "cprt annotate: error: one: the endpoint refuses the key in ANNOTATOR_KEY (HTTP 401)"
    assert err.splitlines()[-1] == line and "Traceback" not in err
    statuses = Counter(row["status"] for row in read(tmp_path / "out"))
    assert statuses["error"] >= 36 and sum(statuses.values()) == 48  # nothing is lost, nothing is made up
    kept = (tmp_path / "out" / "answers" / "one.jsonl").read_text()
    assert kept.count('"text"') >= 3 and "HTTP 500: failed at [...]" in kept
    texts = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"run.json", "annotations.jsonl", "one.jsonl", "report.json"} <= set(texts)
    for name, text in {**texts, "stdout": out, "stderr": err}.items():
        for secret in (SECRET, "127.0.0.1", f":{server.port}", "base64", "iVBOR", "/9j/", os.uname().nodename):
            assert secret not in text, f"{secret} in {name}"


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_random_kills_lose_and_double_nothing(photos: Path, undisturbed: Path, tmp_path: Path, kills: int):
    """Killed at any moment, amid faults too, and run again, the rows are exactly those of an undisturbed run."""
    rng = random.Random(kills)
    concurrency, out = 4, tmp_path / "out"
    stores = [out / "answers" / f"{name}.jsonl" for name in ("one", "two")]

    def kept() -> int:
        return sum(store.read_bytes().count(b"\n") for store in stores if store.exists())

    with Misbehaving(annotate, first_try_fails, delay=0.02, stall=20) as server:
        arguments = config(tmp_path, photos, server.url, "one", "two", timeout=2, retries=12, concurrency=concurrency)
        for target in sorted(rng.choices(range(0, 75), k=kills)):
            process = annotate_process(arguments)
            while process.poll() is None and kept() < target:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert process.returncode == -signal.SIGKILL, "ended before the kill: it proves nothing"
        main(arguments)
        answered = sum(server.answered.values())
    assert results(out) == results(undisturbed)
    rows = [json.loads(line) for store in stores for line in store.read_text().splitlines()]
    good = [row["key"] for row in rows if "error" not in row["answer"]]
    assert len(good) == len(set(good))
    # Only what was in the air or not yet on disk at a kill, or timed out, was asked twice.
    assert len(good) <= answered <= len(good) + (kills + 1) * 3 * concurrency
    assert not [path for path in out.rglob("*") if path.name.endswith(".partial")]


# --- Real servers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def real_servers(demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, str]]:
    """Two ``transformers serve`` processes, of the tiny model and of a relative of it that says other things."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("serve")
    relative = folder / "relative"
    shutil.copytree(demo_base, relative)
    weights = load_file(relative / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name, weight in weights.items():
        if "language_model" in name and weight.dim() == 2:
            noise = torch.randn(weight.shape, generator=generator) * weight.float().std() * 0.3
            weights[name] = (weight.float() + noise).to(weight.dtype)
    save_file(weights, relative / "model.safetensors", metadata={"format": "pt"})
    with transformers_serve([demo_base, relative], folder) as urls:
        yield urls


@pytest.mark.slow
def test_real_servers_and_the_same_models_here_say_the_same(real_servers: dict[Path, str], tmp_path: Path):
    """The tiny models know nothing of the task: the rows are unparsed, which shows that every word came through."""
    images = make_photos(tmp_path / "data", 4)
    for number, path in enumerate(sorted((images / "images").iterdir())):
        Image.effect_mandelbrot((96, 96), (-3, -2.5, 2 - number / 2, 2.5), 100).convert("RGB").save(path)
    common = {"max_new_tokens": 40, "image_format": "png", "concurrency": 2}
    local = {"max_new_tokens": 40, "dtype": "float32"}
    annotators = [
        {"name": f"served-{n}", "model": str(model), "base_url": url, **common}
        for n, (model, url) in enumerate(real_servers.items())
    ]
    annotators += [{"name": f"here-{n}", "model": str(model), **local} for n, model in enumerate(real_servers)]
    arguments = config(tmp_path, images, "http://127.0.0.1:1/v1")
    (tmp_path / "annotate.yaml").write_text(yaml.safe_dump({"annotators": annotators, "images": str(images)}))
    main(arguments)
    rows = {(row["id"], row["annotator"]): row for row in read(tmp_path / "out")}
    assert len(rows) == 16 and {row["status"] for row in rows.values()} <= {"unparsed", "refused"}
    texts = {
        name: [(rows[id, name]["stage1"], rows[id, name]["stage2"]) for id in sorted({id for id, _ in rows})]
        for _, name in rows
    }
    assert texts["served-0"] == texts["here-0"] and texts["served-1"] == texts["here-1"]
    assert texts["served-0"] != texts["served-1"]
    assert any(stage2 for _, stage2 in texts["served-0"] + texts["served-1"]), "stage two was never reached"
    before = [path.read_bytes() for path in sorted((tmp_path / "out" / "answers").iterdir())]
    main(arguments)
    assert [path.read_bytes() for path in sorted((tmp_path / "out" / "answers").iterdir())] == before
