"""Answers survive a kill, are never doubled, and have one writer at a time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cprt.errors import InputError
from cprt.models.response_cache import CacheWriter, ResponseCache, cache_key, read_cache

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
        assert cache["b"] == {"text": "0.5"} and "a" in cache


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
            assert all(cache[str(number)]["number"] == number for number in range(reported + 1))
    lines = file.read_bytes().splitlines()
    assert len(lines) == len(set(lines))


def test_two_runs_at_once_are_refused(tmp_path: Path):
    with ResponseCache(tmp_path / "answers.jsonl"), pytest.raises(InputError, match="another run is writing here"):
        ResponseCache(tmp_path / "answers.jsonl")
    with ResponseCache(tmp_path / "answers.jsonl"):
        pass


def test_a_file_that_is_something_else_is_not_touched(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    file.write_text("dear diary\n")
    with pytest.raises(InputError, match=r"answers.jsonl:1: is not a kept answer"):
        ResponseCache(file)
    assert file.read_text() == "dear diary\n"


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
        assert "a" not in cache and cache["a"] == cache.get("a") == {"error": "HTTP 500"} and cache.get("c") is None
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
