"""What the evaluation tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evaluation import options
from judge_endpoint import ANSWERS, by_width, photo
from loopback import Misbehaving


@pytest.fixture(scope="session")
def adapter(demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter with weights of its own that changes what the tiny model says."""
    import torch
    from peft import LoraConfig, get_peft_model

    from cprt.models.checkpoint import load_model

    config = LoraConfig(r=4, target_modules=r".*language_model\..*\.(q|v)_proj", task_type="CAUSAL_LM")
    model = get_peft_model(load_model(str(demo_base), dtype="float32"), config)
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    folder = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def judge() -> Iterator[Misbehaving]:
    """An endpoint that gives ANSWERS."""
    with Misbehaving(by_width(ANSWERS)) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The photos that ANSWERS are about."""
    for width in ANSWERS:
        photo(tmp_path / "photos" / f"{width}.png", width)
    return tmp_path / "photos"


@pytest.fixture(scope="session")
def evaluated(demo: Any, demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``cprt eval`` left of the tiny model."""
    from eval.run import main

    out = tmp_path_factory.mktemp("evaluated")
    main(options(demo, demo_base, out))
    return out
