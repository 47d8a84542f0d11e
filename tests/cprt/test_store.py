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
from cprt.store import AnswerStore, answer_key

WRITER = """
import sys
from cprt.store import AnswerStore
with AnswerStore(sys.argv[1]) as store:
    for number in range(100_000):
        if str(number) not in store:
            store.put([(str(number), {"text": "x" * 50, "number": number})])
            print(number, flush=True)
"""


def test_answers_are_there_again(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    with AnswerStore(file) as store:
        store.put([("a", {"text": "ä\u2028\ud800"}), ("b", {"text": "0.5"})])
        assert "a" in store and "c" not in store
    with AnswerStore(file) as store:
        assert store["b"] == {"text": "0.5"} and "a" in store


def test_a_row_cut_off_by_a_kill_is_asked_again(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    with AnswerStore(file) as store:
        store.put([("a", {"text": "1"}), ("b", {"text": "2"})])
    whole = file.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole)):
        file.write_bytes(whole[:cut])
        with AnswerStore(file) as store:
            assert "a" in store and "b" not in store
            store.put([("b", {"text": "2"})])
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
        with AnswerStore(file) as store:
            assert all(store[str(number)]["number"] == number for number in range(reported + 1))
    lines = file.read_bytes().splitlines()
    assert len(lines) == len(set(lines))


def test_two_runs_at_once_are_refused(tmp_path: Path):
    with AnswerStore(tmp_path / "answers.jsonl"), pytest.raises(InputError, match="another run is writing here"):
        AnswerStore(tmp_path / "answers.jsonl")
    with AnswerStore(tmp_path / "answers.jsonl"):
        pass


def test_a_file_that_is_something_else_is_not_touched(tmp_path: Path):
    file = tmp_path / "answers.jsonl"
    file.write_text("dear diary\n")
    with pytest.raises(InputError, match=r"answers.jsonl:1: is not a kept answer"):
        AnswerStore(file)
    assert file.read_text() == "dear diary\n"


def test_every_part_of_a_question_tells_its_answer_apart():
    parts = {"image": "1", "prompt": "2", "model": "3", "adapter": None, "decoding": {"greedy": True}}
    keys = {answer_key(**parts)} | {answer_key(**{**parts, name: "other"}) for name in parts}
    assert len(keys) == len(parts) + 1
    assert answer_key(**dict(reversed(parts.items()))) == answer_key(**parts)
