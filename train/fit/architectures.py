"""The published sizes of the models that our recipes tune, so that nothing has to be fetched to know what they need."""

from __future__ import annotations

import os
from typing import Any

from cprt.errors import InputError
from cprt.models.checkpoint import load_config

QWEN3_VL = ("2B", "4B", "8B")
LLAMA = "Llama-3.2-11B-Vision"

# Of Qwen3-VL. Text: width, inner width, layers, heads (8 key-value heads of 128). Vision: width, inner width, depth,
# layers that feed the text model directly.
SHAPES = {
    "8B": ((4096, 12288, 36, 32), (1152, 4304, 27, [8, 16, 24])),
    "4B": ((2560, 9728, 36, 32), (1024, 4096, 24, [5, 11, 17])),
    "2B": ((2048, 6144, 28, 16), (1024, 4096, 24, [5, 11, 17])),
    "tiny": ((128, 256, 2, 8), (64, 128, 3, [0, 1, 2])),  # to try things out
}


def config_of(model: str, revision: str | None = None) -> Any:
    """The configuration of a checkpoint: ours for the models of our recipes, else its own. Raises InputError."""
    if not os.path.isdir(model):
        for size in QWEN3_VL:
            if model == f"Qwen/Qwen3-VL-{size}-Instruct":
                return qwen3_vl(size)
        if model == f"meta-llama/{LLAMA}-Instruct":
            return llama_3_2_11b()
    config = load_config(model, revision)
    if config.model_type not in ("qwen3_vl", "mllama"):
        raise InputError(f"{model}: is {config.model_type}; only qwen3_vl and mllama are known here")
    return config


def qwen3_vl(size: str) -> Any:
    """The configuration of a Qwen3-VL of one of ``SHAPES``; what all have in common is the library's default."""
    from transformers import Qwen3VLConfig

    (width, inner, layers, heads), (vision_width, vision_inner, depth, deepstack) = SHAPES[size]
    tied = size != "8B"
    return Qwen3VLConfig(
        text_config={
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": 8,
            "max_position_embeddings": 262_144,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000,
                "mrope_interleaved": True,
                "mrope_section": [24, 20, 20],
            },
            "tie_word_embeddings": tied,
        },
        vision_config={
            "hidden_size": vision_width,
            "intermediate_size": vision_inner,
            "depth": depth,
            "out_hidden_size": width,
            "deepstack_visual_indexes": deepstack,
        },
        tie_word_embeddings=tied,
    )


def llama_3_2_11b() -> Any:
    """The configuration of Llama 3.2 Vision 11B: its sizes are the library's defaults."""
    from transformers import MllamaConfig

    return MllamaConfig(text_config={"pad_token_id": 128_004}, vision_config={"image_size": 560})
