"""What the evaluation tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


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
