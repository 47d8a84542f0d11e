"""Reading ahead: in order, one item and no more, faults in their place; inputs made in a thread are the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from cprt.errors import InputError
from cprt.models.inputs import read_ahead
from cprt.models.local import LocalModel
from cprt.prompts import build


def test_one_item_is_worked_on_while_the_one_before_is_used():
    begun, last = [threading.Event() for _ in range(5)], 0

    def work(item: int) -> tuple[int, int]:
        begun[item].set()
        return item, threading.get_ident()

    for last, (item, thread) in enumerate(read_ahead(work, range(5))):
        assert item == last and thread != threading.get_ident()
        assert all(event.wait(300) for event in begun[: item + 2])  # the next is under way before this one is let go
        assert not any(event.is_set() for event in begun[item + 2 :])
    assert last == 4
    assert list(read_ahead(work, [])) == []


def test_a_fault_comes_in_its_place_and_leaves_no_thread():
    def work(item: int) -> int:
        return 6 // item

    results = read_ahead(work, [1, 2, 0, 3])
    assert [next(results), next(results)] == [6, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)
    stopped = read_ahead(work, iter([1, 2, 3]))
    assert next(stopped) == 6
    stopped.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_what_threads_make_at_once_is_what_one_makes_alone(demo_base: Path):
    """The tokenizer keeps how it pads from call to call, and is used for other texts meanwhile."""
    model = LocalModel(str(demo_base), dtype="float32")
    photo = Image.effect_mandelbrot((96, 64), (-3, -2.5, 2, 2.5), 100).convert("RGB")
    long, short = (build(name).messages() for name in ("taxonomy", "zero_shot"))
    batches = [[(long, [photo]), (short, [photo])], [(short, [photo])], [(short, [photo]), (long, [photo])]] * 8
    alone = [model.prepare(batch) for batch in batches]
    with ThreadPoolExecutor(3) as threads:
        jobs = [threads.submit(lambda: [model.prepare(batch) for batch in batches]) for _ in range(3)]
        while not all(job.done() for job in jobs):
            assert model.processor.tokenizer("no padding")["input_ids"]
    found = [job.result() for job in jobs]
    for made in found:
        for one, other in zip(made, alone, strict=True):
            assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert model.generate(batches[0], 8, prepared=alone[0]) == model.generate(batches[0], 8)
    assert model.prepare([([{"role": "user", "content": [{"type": "text", "text": "<|im_end|>"}]}], [])]) is None
    with pytest.raises(InputError, match="im_end"):
        model.generate([([{"role": "user", "content": [{"type": "text", "text": "<|im_end|>"}]}], [])], 8)
