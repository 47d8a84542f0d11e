"""What a recipe needs at full size, from single blocks of true width: memory, and the vision encoder's share of time.

    python benchmarks/sft_parts.py [--json FILE] [--sizes 2B 4B 8B] [--rows 8] [--image_tokens 256]

Memory: what autograd keeps of one block for one micro-batch and for the shared prefix (bfloat16, adapters in float32,
each storage once), times the number of blocks, beside weights and the adapter's own (weight, gradient and two moments).
What passes between blocks, and what the allocator loses, is not in it. Time: one block of the vision encoder forward,
and one of the language model forward and backward, in float32 on this processor, times their numbers. A photo's
features are the same in every epoch: in five epochs a cache of them would save four fifths of the encoder's share.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_sft import ROWS, SHAPES, full_config
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageTextToText, Cache

from train.adapter import LANGUAGE_MODEL_PROJECTIONS
from train.shared_prefix import PrefixLayer, RecordingLayer

PREFIX, QUESTION_AND_ANSWER = 800, 90  # tokens of the taxonomy prompt, and of what follows the photo
GB = 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--sizes", nargs="+", default=["2B", "4B", "8B"], choices=list(SHAPES))
    parser.add_argument("--rows", type=int, default=8, help="of a micro-batch")
    parser.add_argument("--image_tokens", type=int, default=256)
    args = parser.parse_args()
    print(f"micro-batch {args.rows}, image {args.image_tokens} tokens; GB without and with checkpointing")
    heads = {"weights": 9, "adapter": 9, "kept": 7, "sum": 7, "kept ": 9, "sum ": 7, "encoder": 10, "cache saves": 13}
    print(" " * 5 + "".join(f"{head.strip():>{wide}}" for head, wide in heads.items()))
    results = []
    for size in args.sizes:
        asked = size, args.rows, args.image_tokens
        figures = {"size": size, "rows": args.rows, "image_tokens": args.image_tokens, **memory(*asked)}
        figures |= shares(*asked)
        results.append(figures)
        fixed = figures["weights_gb"] + figures["adapter_gb"]
        plain, checkpointed = figures["kept_gb"], figures["kept_gb_checkpointing"]
        print(
            f"{size:<5}{figures['weights_gb']:>9.1f}{figures['adapter_gb']:>9.1f}{plain:>7.1f}{fixed + plain:>7.1f}"
            f"{checkpointed:>9.1f}{fixed + checkpointed:>7.1f}{figures['encoder_share']:>10.1%}"
            f"{0.8 * figures['encoder_share']:>13.1%}",
            flush=True,
        )
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=2) + "\n")


def memory(size: str, rows: int, image_tokens: int) -> dict[str, float]:
    """Gigabytes of a whole training step's lasting parts."""
    config = full_config(size)
    with torch.device("meta"):
        whole = adapted(AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16))
    layers, width = config.text_config.num_hidden_layers, config.text_config.hidden_size
    lora = sum(weight.numel() for weight in whole.parameters() if weight.requires_grad)
    weights = sum(weight.numel() for weight in whole.parameters() if not weight.requires_grad)
    one, two = (kept_bytes(size, depth, rows, image_tokens) for depth in (1, 2))
    tokens = rows * (image_tokens + QUESTION_AND_ANSWER) + PREFIX
    return {
        "weights_gb": 2 * weights / GB,
        "adapter_gb": 4 * 4 * lora / GB,
        "kept_gb": (one + (layers - 1) * (two - one)) / GB,
        "kept_gb_checkpointing": (one + (layers - 1) * 2 * tokens * width) / GB,  # each block's input, and one block
    }


def kept_bytes(size: str, depth: int, rows: int, image_tokens: int) -> int:
    """Bytes that ``depth`` blocks of the language model keep for backward, prefix and micro-batch together."""
    language_model = text_model(size, depth, torch.bfloat16)
    weights = {weight.untyped_storage().data_ptr() for weight in language_model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage  # holds it, so that its address is not used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        run(language_model, run_prefix(language_model), rows, image_tokens)
    return sum(storage.nbytes() for storage in kept.values())


def shares(size: str, rows: int, image_tokens: int) -> dict[str, float]:
    """Seconds of the vision encoder and the language model for one step of 128 rows, and the encoder's share."""
    config = full_config(size)
    depth, layers = config.vision_config.depth, config.text_config.num_hidden_layers
    config.vision_config.update({"depth": 1, "deepstack_visual_indexes": []})
    vision = AutoModelForImageTextToText.from_config(without_text(config), dtype=torch.float32).model.visual
    block, patches = vision.blocks[0], rows * image_tokens * 4
    side = config.vision_config.hidden_size // config.vision_config.num_heads
    hidden = torch.randn(patches, config.vision_config.hidden_size)
    angles = torch.rand(patches, side)
    ends = torch.arange(0, patches + 1, image_tokens * 4, dtype=torch.int32)
    with torch.no_grad():
        encoder = seconds(lambda: block(hidden, cu_seqlens=ends, position_embeddings=(angles.cos(), angles.sin())))
    language_model = text_model(size, 1, torch.float32)
    with torch.no_grad():
        cached = [(keys.detach(), values.detach()) for keys, values in run_prefix(language_model)]
    rest = seconds(lambda: run(language_model, cached, rows, image_tokens).sum().backward())
    prefix = seconds(lambda: sum(tensor.sum() for pair in run_prefix(language_model) for tensor in pair).backward())
    encoder, text = depth * encoder * ROWS / rows, layers * (rest * ROWS / rows + prefix)
    return {"encoder_seconds": encoder, "text_seconds": text, "encoder_share": encoder / (encoder + text)}


def seconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def adapted(model: Any) -> Any:
    return get_peft_model(model, LoraConfig(r=64, lora_alpha=128, target_modules=LANGUAGE_MODEL_PROJECTIONS))


def without_text(config: Any) -> Any:
    """The smallest language model that fits the vision encoder."""
    config.text_config.update({"num_hidden_layers": 1, "vocab_size": 512, "intermediate_size": 64})
    return config


def text_model(size: str, depth: int, dtype: torch.dtype) -> Any:
    config = full_config(size)
    config.text_config.update({"num_hidden_layers": depth, "vocab_size": 512})
    config.vision_config.update({"depth": 1, "deepstack_visual_indexes": [0]})
    return adapted(AutoModelForImageTextToText.from_config(config, dtype=dtype)).get_base_model().model.language_model


def run_prefix(language_model: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of the shared prefix, as training computes them."""
    cache = Cache(layers=[RecordingLayer() for _ in language_model.layers])
    positions = torch.arange(PREFIX).expand(3, 1, -1)
    language_model(
        input_ids=torch.zeros((1, PREFIX), dtype=torch.long),
        position_ids=positions,
        cache=cache,
        attention_mask=torch.ones((1, PREFIX), dtype=torch.long),
        use_cache=False,
    )
    return [(layer.keys, layer.values) for layer in cache.layers]


def run(language_model: Any, prefix: list[tuple[torch.Tensor, torch.Tensor]], rows: int, image_tokens: int) -> Any:
    """(rows, tokens, width) states of one micro-batch behind the prefix. Its input needs a gradient, as if inside."""
    length = image_tokens + QUESTION_AND_ANSWER
    width = language_model.config.hidden_size
    states = torch.randn(rows, length, width, dtype=language_model.embed_tokens.weight.dtype, requires_grad=True)
    cache = Cache(layers=[PrefixLayer(keys, values) for keys, values in prefix])
    positions = torch.arange(PREFIX, PREFIX + length).expand(3, rows, -1)
    output = language_model(
        inputs_embeds=states,
        position_ids=positions,
        cache=cache,
        use_cache=False,
        attention_mask=torch.ones((rows, PREFIX + length), dtype=torch.long),
    )
    return output.last_hidden_state


if __name__ == "__main__":
    main()
