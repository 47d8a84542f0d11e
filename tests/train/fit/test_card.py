"""The imagined card: faults that a card has, values that decide shapes, and memory and FLOPs as they really are."""

from __future__ import annotations

import json

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError
from torch.profiler import ProfilerActivity, profile
from torch.utils._device import _device_constructors
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForImageTextToText

from train.fit.card import imagined_card


def test_what_is_left_on_the_processor_is_noticed():
    with imagined_card(), pytest.raises(FakeTensorDeviceMismatchError):
        torch.ones(3, device="cuda") + torch.ones(3)


def test_another_dtype_is_noticed():
    with imagined_card(), pytest.raises(RuntimeError, match="same dtype"):
        torch.ones(2, 2, device="cuda", dtype=torch.bfloat16) @ torch.ones(2, 2, device="cuda")


def test_whole_numbers_hold_what_they_hold():
    """Through copies, views, changes in place and masks, so that shapes come out as on a card."""
    with imagined_card():
        grid = torch.tensor([[1, 2, 3], [1, 1, 2]]).to("cuda")
        counts = grid.prod(-1)
        assert grid.device.type == "cuda" and counts.tolist() == [6, 2]
        assert torch.repeat_interleave(counts).shape == (8,)
        row = grid[1]
        row[0] = 7
        assert grid.tolist() == [[1, 2, 3], [7, 1, 2]]
        mask = grid > 1
        assert torch.rand(2, 3, device="cuda")[mask].shape == (4,)
        assert mask.nonzero().cpu().tolist() == [[0, 1], [0, 2], [1, 0], [1, 2]]
        assert torch.tensor([counts.max(), grid[0, 1]], device="cuda").tolist() == [6, 2]
        assert torch.rand(5, device="cuda").argmax().item() == 0  # what comes of weights is made up


def test_a_cards_memory_ends():
    with imagined_card(limit=1e6), pytest.raises(torch.OutOfMemoryError):
        torch.empty(1000, 1000, device="cuda")


def test_memory_comes_back():
    with imagined_card() as card:
        one = torch.empty(1000, device="cuda")
        view, other = one[10:], torch.empty(1, device="cuda")
        assert card.live == 4096 + 512
        del one
        assert card.live == 4096 + 512
        del view, other
        assert (card.live, card.peak) == (0, 4096 + 512)


def test_afterwards_all_is_as_before():
    """A device in context is heeded, also where the card was the first to have one."""
    _device_constructors.cache_clear()
    with imagined_card(), torch.device("cuda"):
        assert torch.tensor([1.0]).device.type == "cuda"
    with torch.device("meta"):
        assert torch.tensor([1.0]).device.type == "meta"
    assert torch.tensor([1.0]).device.type == "cpu"


def step(model: torch.nn.Module, device: str) -> None:
    """A training step of the language model on 2 x 200 tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    ids = torch.arange(400).reshape(2, 200).to(device)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()


@pytest.fixture
def config(demo_base):
    config = AutoConfig.from_pretrained(demo_base)
    config._attn_implementation = "eager"  # the fused kernels of processors and cards differ in what they keep
    return config


def test_peak_and_flops_are_those_of_a_real_step(config, tmp_path):
    """Memory against the allocator of this processor, as torch's profiler saw it; FLOPs against torch's counter."""
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    held = sum(weight.untyped_storage().nbytes() for weight in model.parameters())
    with (
        FlopCounterMode(display=False) as counter,
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen,
    ):
        step(model, "cpu")
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    now = real = 0
    for event in sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"]):
        now += event["args"]["Bytes"]
        real = max(real, now)
    with imagined_card() as card:
        with torch.device("cuda"):
            model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
        step(model, "cuda")
    assert card.peak == pytest.approx(held + real, rel=0.1)
    assert card.flops == counter.get_total_flops() > 0
