"""A Qwen3-VL of random weights, large enough that arithmetic dominates, for measurements on a processor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

BASE = str(Path(__file__).parents[2] / "assets" / "demo_base")  # its tokenizer, processor and vision encoder


def sides(tokens: int) -> tuple[int, int]:
    """Height and width of a photo of so many tokens, of 32 x 32 pixels each, as square as can be."""
    rows = next(rows for rows in range(math.isqrt(tokens), 0, -1) if tokens % rows == 0)
    return 32 * rows, 32 * tokens // rows


def random_qwen3_vl(width: int) -> Any:
    """Three layers of hidden size ``width`` in float32; the same weights every time.

    With few heads, attention takes the share of the work that it takes at the full width of the 2B model (5%).
    """
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(BASE)
    config.text_config.update(
        {
            "hidden_size": width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": 3,
            "num_attention_heads": width // 192,
            "num_key_value_heads": width // 384,
            "head_dim": 64,
            "dtype": "float32",
        }
    )
    config.text_config.rope_parameters["mrope_section"] = [12, 10, 10]
    config.vision_config.out_hidden_size = width
    return AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
