"""A batch that comes from another process is the one that is made in this one, tensor by tensor."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from cprt.images.patches import in_bytes
from cprt.models.checkpoint import load_processor
from cprt.records import read_pairs
from train.loading.collator import PairCollator
from train.loading.pair_dataset import pair_dataset
from train.loading.transport import Packed

FAMILIES = {"qwen3_vl": "demo_base", "mllama": "tiny_mllama"}


def leaves(batch: dict) -> dict[tuple[str, ...], torch.Tensor]:
    nested = {
        (name, inner): value for name in batch if isinstance(batch[name], dict) for inner, value in batch[name].items()
    }
    return nested | {(name,): value for name, value in batch.items() if not isinstance(value, dict)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_arrives_as_it_was_made(family, demo, request):
    base = request.getfixturevalue(FAMILIES[family])
    pairs = read_pairs(demo.short_pairs / "train.jsonl")[:6]
    dataset = pair_dataset(pairs, demo.images, family)
    collate = PairCollator(in_bytes(load_processor(str(base), max_pixels=9216)), score_width=0.03)
    loader = DataLoader(dataset, 4, collate_fn=collate, num_workers=1, multiprocessing_context="forkserver")
    for start, batch in zip((0, 4), loader, strict=True):
        ours = leaves(batch)
        theirs = leaves(collate([dataset[index] for index in range(start, min(start + 4, len(pairs)))]))
        assert ours.keys() == theirs.keys() and ("softened", "weight") in ours
        for name, tensor in theirs.items():
            assert ours[name].dtype == tensor.dtype and torch.equal(ours[name], tensor), name
        assert len({tensor.untyped_storage().data_ptr() for tensor in ours.values()}) == 1


def test_what_has_no_numbers_or_odd_sizes_has_its_place_too():
    batch = {
        "odd": torch.arange(7, dtype=torch.uint8),
        "none": torch.zeros(0, 3),
        "inner": {"long": torch.arange(5), "half": torch.ones(3, dtype=torch.bfloat16), "yes": torch.tensor(True)},
        "wide": torch.arange(6).reshape(2, 3).T,
    }
    rebuild, parts = Packed(batch).__reduce__()
    ours, theirs = leaves(rebuild(*parts)), leaves(batch)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype and torch.equal(ours[name], tensor), name
