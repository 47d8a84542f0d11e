"""Answers survive a kill, are never doubled, and have one writer at a time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cprt.errors import InputError
from cprt.models.response_cache import CacheWriter, ResponseCache, Shard, cache_key, read_cache

WRITER = """
import sys
from cprt.models.response_cache import ResponseCache
with ResponseCache(sys.argv[1]) as cache:
    for number in range(100_000):
        if str(number) not in cache:
            cache.put([(str(number), {"text": "x" * 50, "number": number})])
            print(number, flush=True)
"""


def test_answers_are_there_again(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    with ResponseCache(file) as cache:
        cache.put([("a", {"text": "ä\u2028\ud800"}), ("b", {"text": "0.5"})])
        assert "a" in cache and "c" not in cache
    with ResponseCache(file) as cache:
        assert cache.rows("b")[0] == {"text": "0.5"} and "a" in cache


def test_a_row_cut_off_by_a_kill_is_asked_again(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    with ResponseCache(file) as cache:
        cache.put([("a", {"text": "1"}), ("b", {"text": "2"})])
    whole = file.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole)):
        file.write_bytes(whole[:cut])
        with ResponseCache(file) as cache:
            assert "a" in cache and "b" not in cache
            cache.put([("b", {"text": "2"})])
        assert file.read_bytes() == whole


def test_what_was_reported_written_survives_kill_9(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    rng = random.Random(0)
    reported = -1
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        reported = max(reported, int(writer.stdout.readline()))
        time.sleep(rng.uniform(0.0, 0.2))
        os.kill(writer.pid, signal.SIGKILL)
        reported = max([reported, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        with ResponseCache(file) as cache:
            assert all(cache.rows(str(number))[0]["number"] == number for number in range(reported + 1))
    lines = file.read_bytes().splitlines()
    assert len(lines) == len(set(lines))


def test_two_runs_at_once_are_refused(tmp_path: Path):
    with ResponseCache(tmp_path / "answers.jsonl"), pytest.raises(InputError, match="another run is writing here"):
        ResponseCache(tmp_path / "answers.jsonl")
    with ResponseCache(tmp_path / "answers.jsonl"):
        pass


ROW = b'{"key": "a", "answer": {"text": "1"}}\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"dear diary\n", 1),
        (b"dear diary", 1),
        (b'{"id": "7", "score": 0.5}', 1),
        (b'{"key": 7}', 1),
        (b"[", 1),
        (ROW + b'{"key": 7, "answer": {}}\n', 2),
        (ROW + b'{"key": "b", "answer": []}\n', 2),
        (ROW + b'{"key": "b"}\n', 2),
        (ROW + b"[]\n", 2),
        (ROW + b"\n", 2),
        (ROW + b"\xff\xfe\n", 2),
        (ROW + b"[" * 100_000 + b"\n", 2),
        (ROW + b"last words", 2),
    ],
)
def test_a_file_that_is_something_else_is_not_touched(tmp_path: Path, content: bytes, line: int):
    file = tmp_path / "answers.jsonl"
    file.write_bytes(content)
    for open_it in (ResponseCache, read_cache):
        with pytest.raises(InputError) as caught:
            open_it(file)
        assert str(caught.value) == f"{file}:{line}: is not a kept answer; move the file away to start anew"
    assert file.read_bytes() == content


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None]):
    make(tmp_path / "answers.jsonl")
    with pytest.raises(InputError, match="answers.jsonl: is not a regular file"):
        ResponseCache(tmp_path / "answers.jsonl")
    with ResponseCache(tmp_path / "answers.jsonl", Shard(0, 2)) as cache:  # nor where another process would write
        assert cache.rows("a") == []


def test_a_long_answer_and_half_a_character_are_read_back(tmp_path: Path):
    file, answers = (
        tmp_path / "answers.jsonl",
        {"a": "x" * 5_000_000, "b": "\\\ud83d \\ud83d \udc00", "c": "\x00\x1b\n\r"},
    )
    with ResponseCache(file) as cache:
        cache.put((key, {"text": text}) for key, text in answers.items())
    assert {key: row["text"] for key, row in read_cache(file).items()} == answers


def test_to_look_makes_locks_and_mends_nothing(tmp_path: Path):
    cache = ResponseCache(tmp_path / "no" / "answers.jsonl", read_only=True)
    assert "a" not in cache and not (tmp_path / "no").exists()
    (tmp_path / "answers.jsonl").write_bytes(ROW + ROW[:9])
    with ResponseCache(tmp_path / "answers.jsonl", Shard(0, 2)):
        cache = ResponseCache(tmp_path / "answers.jsonl", read_only=True)
        assert cache.rows("a") == [{"text": "1"}]
    assert (tmp_path / "answers.jsonl").read_bytes() == ROW + ROW[:9]


def test_processes_have_a_file_each_and_read_one_anothers(tmp_path: Path):
    file = tmp_path / "r[1].answers.jsonl"
    (tmp_path / "r1.answers.jsonl").write_text("of somebody else")
    with ResponseCache(file, Shard(0, 2)) as first, ResponseCache(file, Shard(1, 2)) as second:
        assert first.path.name == "r[1].answers.0-of-2.jsonl" and second.path.name == "r[1].answers.1-of-2.jsonl"
        first.put([("a", {"error": "HTTP 500"}), ("b", {"text": "1"})])
        second.put([("a", {"text": "2"})])
        assert "a" not in first and "b" not in second
        first.refresh()
        second.refresh()
        assert "a" in first and "b" in second
        assert first.rows("a") == [{"error": "HTTP 500"}, {"text": "2"}]
        keys = [cache_key(number=number) for number in range(200)]
        assert sum(first.shard.has(key) for key in keys) + sum(second.shard.has(key) for key in keys) == 200
        assert all(first.shard.has(key) is not second.shard.has(key) for key in keys)
    with ResponseCache(file) as alone:
        assert alone.rows("a") == [{"error": "HTTP 500"}, {"text": "2"}] and "b" in alone


def test_every_part_of_a_request_tells_its_answer_apart():
    parts = {"image": "1", "prompt": "2", "model": "3", "adapter": None, "decoding": {"greedy": True}}
    keys = {cache_key(**parts)} | {cache_key(**{**parts, name: "other"}) for name in parts}
    assert len(keys) == len(parts) + 1
    assert cache_key(**dict(reversed(parts.items()))) == cache_key(**parts)


def test_an_error_is_kept_to_be_seen_and_does_not_count_as_an_answer(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    with ResponseCache(file) as cache:
        cache.put([("a", {"error": "HTTP 500"}), ("b", {"text": "1"})])
        assert "a" not in cache and "b" in cache
    with ResponseCache(file) as cache:
        assert "a" not in cache and cache.rows("a") == [{"error": "HTTP 500"}] and cache.rows("c") == []
        cache.put([("a", {"text": "2"})])
    assert read_cache(file) == {"a": {"text": "2"}, "b": {"text": "1"}}
    assert read_cache(tmp_path / "none.jsonl") == {} and not (tmp_path / "none.jsonl").exists()


KEEPER = """
import sys, time
from cprt.models.response_cache import ResponseCache, CacheWriter
told = 0
def kept(count):
    global told
    told += count
    print(told, flush=True)
with ResponseCache(sys.argv[1]) as cache, CacheWriter(cache, kept) as writer:
    for number in range(200_000):
        writer.keep(str(number), {"number": number})
        time.sleep(1e-5)
"""


def test_a_writer_reports_only_what_survives_kill_9(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", KEEPER, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(5):
        told = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    told = max([told, *map(int, writer.stdout.read().split())])
    writer.wait()
    writer.stdout.close()
    answers = read_cache(file)
    assert len(answers) >= told and all(answers[str(number)] == {"number": number} for number in range(told))


def test_answers_that_arrive_together_share_an_fsync(tmp_path: Path):
    """Group commit: while one fsync runs, what arrives waits for the next."""
    batches: list[int] = []
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        with CacheWriter(cache, batches.append) as writer:
            for number in range(2000):
                writer.keep(str(number), {"number": number})
        assert sum(batches) == 2000 and len(batches) < 500
        assert all(str(number) in cache for number in range(2000))
    assert [row["number"] for row in read_cache(cache.path).values()] == list(range(2000))


def test_a_writer_whose_disk_fails_says_so_and_counts_nothing_as_kept(tmp_path: Path):
    counts: list[int] = []
    cache = ResponseCache(tmp_path / "answers.jsonl")
    cache.__exit__(None, None, None)  # writing to it now fails
    with pytest.raises(ValueError, match="closed file"), CacheWriter(cache, counts.append) as writer:
        writer.keep("a", {"text": "1"})
    assert "a" not in cache and counts == []
