"""Files of any origin: what is no file is never opened, text and YAML are strict, writing is all or nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from readers import READERS

from cprt.errors import InputError, one_line
from cprt.files import (
    claim,
    kind_of,
    locked,
    naming,
    open_file,
    read_text,
    read_yaml,
    read_yaml_lines,
    without_halves,
    write_bytes,
    write_parts,
    write_text,
)
from cprt.models.spec import ModelSpec
from cprt.records import read_json, read_jsonl, write_json, write_jsonl

# --- What a path is ----------------------------------------------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[dict[str, Path | str]]:
    """Paths that are no files, by what they are."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "to_pipe").symlink_to(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        yield {
            "pipe": tmp_path / "pipe",
            "link to a pipe": tmp_path / "to_pipe",
            "folder": tmp_path / "folder",
            "socket": tmp_path / "socket",
            "device": Path("/dev/zero"),
            "looping link": tmp_path / "loop",
            "lost link": tmp_path / "lost",
            "nothing": tmp_path / "nothing",
            "below a file": Path(__file__) / "x",
            "NUL": f"{tmp_path}/a\0b",
            "half a surrogate pair": f"{tmp_path}/a\ud800b",
            "name of 256 bytes": tmp_path / ("x" * 256),
            "path of 5,000 bytes": tmp_path / "/".join(["x" * 99] * 50),
            "name that is no UTF-8": os.fsdecode(os.fsencode(tmp_path) + b"/\xff"),
        }


ODD = (
    "pipe|link to a pipe|folder|socket|device|looping link|lost link|nothing|below a file|NUL|half a surrogate pair|"
    "name of 256 bytes|path of 5,000 bytes|name that is no UTF-8"
).split("|")


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_is_not_opened_by_any_reader(odd: dict[str, Any], kind: str):
    for name, reader in READERS.items():
        if name == "kept answers" or reader.optional:  # where there is no file, they go on without
            continue
        with pytest.raises(InputError) as caught:
            reader.read(odd[kind])
        message = str(caught.value)
        assert message.isprintable() and len(message) < 700, message


@pytest.mark.parametrize(("kind", "name"), [("pipe", "a pipe"), ("folder", "a folder"), ("socket", "a socket")])
def test_the_error_says_what_it_is(odd: dict[str, Any], kind: str, name: str):
    assert kind_of(odd[kind]) == name
    with pytest.raises(InputError, match=f"{kind}: is {name}, not a file"):
        open_file(odd[kind])


def test_a_pipe_that_somebody_writes_to_is_refused_all_the_same(tmp_path: Path):
    """Its content could be read, and a second look at the file would hang."""
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(InputError, match="is a pipe"):
            read_text(tmp_path / "pipe")
    finally:
        os.close(descriptor)


# --- Text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "shift_jis", "gb18030"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str):
    (tmp_path / "a").write_bytes(("labels: ä\n" if "1" in encoding or "32" in encoding else "写真\n").encode(encoding))
    with pytest.raises(InputError, match="a: is not text in UTF-8"):
        read_text(tmp_path / "a")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfid\r\n")
    assert read_text(tmp_path / "a") == "id\r\n"


HALVES = ["\ud83d", "a\ud800b", "\udfff\ud83d", "cut \ud83d"]


@pytest.mark.parametrize("text", HALVES)
def test_half_a_surrogate_pair_becomes_its_escape_once_and_for_all(tmp_path: Path, text: str):
    held = without_halves(text)
    assert held.isascii() and held == text.encode("unicode_escape").decode() and without_halves(held) == held
    # From a JSON file, where such an escape is the only way in.
    (tmp_path / "a.json").write_text(json.dumps({text: [text, {"deep": text}]}))
    assert read_json(tmp_path / "a.json") == {held: [held, {"deep": held}]}
    # Written at once, without having been read: the same text comes back.
    write_json(tmp_path / "b.json", {"text": text})
    write_jsonl(tmp_path / "c.jsonl", [{"text": text}])
    write_text(tmp_path / "d.txt", text)
    assert read_json(tmp_path / "b.json") == {"text": held}
    assert [row for _, row in read_jsonl(tmp_path / "c.jsonl")] == [{"text": held}]
    assert read_text(tmp_path / "d.txt") == held


@pytest.mark.parametrize("text", ["😀", "ä\u2028b", "\\ud83d", "\x00\x0b\x85", "\U0010ffff"])
def test_every_other_text_stays_what_it_is(tmp_path: Path, text: str):
    assert without_halves(text) == text
    for content in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        (tmp_path / "a.json").write_text(content, encoding="utf-8")
        assert read_json(tmp_path / "a.json") == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\u2028b\u202ec\x85", r"a\u2028b\u202ec\x85"),
        ("\ud800", r"\ud800"),
        ("ä 写真 😀", "ä 写真 😀"),
    ],
)
def test_a_message_is_one_printable_line(text: str, line: str):
    assert one_line(text) == line == str(InputError(text))
    assert str(InputError.at(f"f{text}", text, 3, text)) == f"f{line}:3: field '{line}': {line}"


def test_five_megabytes_never_reach_a_message():
    message = str(InputError.at("file.csv", f"{'x' * 5_000_000!r} is not a number", 3, "y" * 5_000_000))
    assert len(message) < 700 and message.startswith("file.csv:3: field 'yyy") and message.endswith("is not a number")


# --- YAML --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: 1.5\nc: 1e-5\nd: .5\ne: -3", {"a": 1, "b": 1.5, "c": 1e-5, "d": 0.5, "e": -3}),
        ("[~, null, true, no, 'no', on]", [None, None, True, False, "no", True]),
        ("a: 2024-01-31\nb: 2024-13-45\nc: 12:30:45", {"a": "2024-01-31", "b": "2024-13-45", "c": "12:30:45"}),
        ("[0_1, 1_000, 010, 0x1f, 0o7, .nan, .inf, -.inf, 1e999, ٣]", "0_1 1_000 010 0x1f 0o7 .nan .inf -.inf 1e999 ٣"),
        ("1: a\ntrue: b\n~: c\n2024-01-31: d", {"1": "a", "true": "b", "~": "c", "2024-01-31": "d"}),
        ("a: &x [1, {b: 2}]\nc: *x", {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("d: {<<: [{b: 1}, {b: 2, c: 3}]}", {"d": {"b": 1, "c": 3}}),
        ("'<<': 1", {"<<": 1}),
        ('{"\\ud83d\\ude00": "\\ud83d\\ude00", "a": "\\ud83d"}', {"😀": "😀", "a": "\\ud83d"}),
        ("", None),
        ("# nothing", None),
    ],
)
def test_yaml_gives_what_json_can_hold(tmp_path: Path, text: str, value: Any):
    (tmp_path / "a.yaml").write_text(text)
    read = read_yaml(tmp_path / "a.yaml")
    assert read == (value.split() if isinstance(value, str) else value)
    assert json.loads(json.dumps(read)) == read


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: 2\na: 3", "a.yaml:3: field 'a': is there twice"),
        ("a:\n  b: 1\n  b: 2", "a.yaml:3: field 'b': is there twice"),
        ("- {c: 1}\n- {d: [{e: 1, f: 2, e: 3}]}", "a.yaml:2: field 'e': is there twice"),
        ("1: a\n'1': b", "a.yaml:2: field '1': is there twice"),
        (laughs(9), "nested too deeply, or too many values once aliases are followed"),
        ("a: &a [*a]", "nested too deeply"),
        ("a: &a {b: *a}", "nested too deeply"),
        ("[" * 60 + "]" * 60, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("{a: " * 5_000, "nested too deeply"),
        ("a: *b", "a.yaml:1: not valid YAML: found undefined alias"),
        ("? [1]\n: 2", "a.yaml:1: not valid YAML: a key must be a text"),
        ("? {a: 1}\n: 2", "a key must be a text"),
        ("a: !!python/object/apply:os.system [echo]", "a.yaml:1: not valid YAML: the tag tag:yaml.org,2002:python"),
        ("a: !!python/name:os.system ''", "is not known"),
        ("a: !!binary aGVsbG8=", "is not known"),
        ("a: !!timestamp 2024-01-01", "is not known"),
        ("a: !!set {b, c}", "is not known"),
        ("a: !!omap [b: 1]", "is not known"),
        ("a: !own x", "is not known"),
        ("a: !!bool maybe", "is not known"),
        ("<<: 3", "<< takes mappings"),
        ("a: [", "a.yaml:1: not valid YAML"),
        ("a: b: c", "a.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("\tb: 1", "a.yaml:1: not valid YAML"),
        ("a: 1\n---\nb: 2", "a.yaml:2: not valid YAML"),
        ("a: '\x07'", "not valid YAML: a character that YAML does not allow"),
        ('a: "\\xZZ"', "a.yaml:1: not valid YAML"),
        ("%YAML 9.9\n---\na: 1", "not valid YAML: found incompatible YAML document"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, complaint: str):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_yaml(tmp_path / "a.yaml")
    assert complaint in str(caught.value)


def test_lines_of_top_level_entries(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("# a comment\na: 1\n\nb: [1,\n  2]\nc: 3\n")
    assert read_yaml_lines(tmp_path / "a.yaml")[1] == {"a": 2, "b": 4, "c": 6}
    (tmp_path / "a.yaml").write_text("- a\n-\n  b: 1\n")
    assert read_yaml_lines(tmp_path / "a.yaml")[1] == {0: 1, 1: 3}


def test_a_models_row_reads_numbers_that_yaml_1_1_takes_for_texts(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("{name: a, model: b, base_url: 'http://127.0.0.1:1/v1', temperature: 1e-1}")
    assert ModelSpec.read(read_yaml(tmp_path / "a.yaml"), "models[1]").temperature == 0.1


# --- Writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 199, 200, 230, 254, 255])
def test_a_name_may_take_all_the_bytes_that_there_are(tmp_path: Path, length: int):
    write_bytes(tmp_path / ("x" * length), b"whole")
    assert os.listdir(tmp_path) == ["x" * length] and (tmp_path / ("x" * length)).read_bytes() == b"whole"


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path):
    file = tmp_path / "labels.jsonl"
    write_text(file, "old")

    def rows() -> Iterator[dict[str, Any]]:
        yield {"id": "a"}
        raise RuntimeError("killed half-way")

    with pytest.raises(RuntimeError):
        write_jsonl(file, rows())
    with pytest.raises(ValueError):
        write_jsonl(file, [{"score": float("nan")}])
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["labels.jsonl"]


def test_readers_never_see_half_a_file(tmp_path: Path):
    file, contents = tmp_path / "a", [bytes([65 + n]) * 300_000 for n in range(4)]
    write_bytes(file, contents[0])
    seen = set()

    def look() -> None:
        while not done.is_set():
            seen.add(file.read_bytes())

    done = threading.Event()
    reader = threading.Thread(target=look)
    reader.start()
    for content in contents * 3:
        write_bytes(file, content)
    done.set()
    reader.join()
    assert seen <= set(contents)


def test_what_a_killed_writer_left_goes_and_what_others_write_stays(tmp_path: Path):
    file = tmp_path / "a[1].csv"
    with subprocess.Popen(["true"]) as gone:
        pass
    seen = list[str]()

    def parts() -> Iterator[str]:
        seen.extend(os.listdir(tmp_path))  # what this process calls its own
        yield "x"

    write_parts(file, parts())
    here = seen[0].removeprefix(".a[1].csv.").partition("-")[0]
    orphan, other_file, alive, elsewhere = (
        tmp_path / f".{name}-7.partial"
        for name in (
            f"a[1].csv.{here}-{gone.pid}",
            f"b.csv.{here}-{gone.pid}",
            f"a[1].csv.{here}-{os.getppid()}",
            f"a[1].csv.0badcafe-{gone.pid}",  # of another machine, where it may well be alive
        )
    )
    for left in (orphan, other_file, alive, elsewhere):
        left.write_text("half")
    write_text(file, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([file, other_file, alive, elsewhere])
    assert file.read_text() == "whole"


def test_a_full_disk_is_told_with_the_file(tmp_path: Path):
    with (
        pytest.raises(OSError, match="No space left") as caught,
        naming(tmp_path / "a.csv"),
        open("/dev/full", "w") as full,
    ):
        full.write("x")
    assert caught.value.filename == str(tmp_path / "a.csv")


def test_threads_may_write_the_same_file(tmp_path: Path):
    barrier = threading.Barrier(2, timeout=300)

    def parts() -> Iterator[bytes]:
        barrier.wait()  # both have opened theirs
        yield b"whole"

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: write_parts(tmp_path / "a", parts()), range(2)))
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"whole"


# --- One run at a time -------------------------------------------------------------------------------------------


def test_two_runs_never_write_to_one_folder(tmp_path: Path):
    first = claim(tmp_path / "out", "output_dir")
    with pytest.raises(InputError, match="another run is writing here; wait for it or choose another output_dir"):
        claim(tmp_path / "out", "output_dir")
    os.close(first)  # as the end of its process does
    os.close(claim(tmp_path / "out"))


def test_a_folder_is_locked_where_only_what_may_be_written_can_be(tmp_path: Path, monkeypatch):
    """As NFS has it."""
    local = fcntl.flock

    def nfs(descriptor: int, how: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        local(descriptor, how)

    monkeypatch.setattr("fcntl.flock", nfs)
    with locked(tmp_path / "out"), pytest.raises(InputError, match="another run is writing here"):
        claim(tmp_path / "out")


def test_a_file_system_without_locks_is_not_another_run(tmp_path: Path, monkeypatch):
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(InputError, match=r"out: cannot be locked on this file system \(No locks available\)"):
        claim(tmp_path / "out")
