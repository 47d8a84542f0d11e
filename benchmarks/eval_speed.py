"""What makes `cprt eval` fast: the shared prefix for a local model, and the client for an endpoint.

    python benchmarks/eval_speed.py [--json FILE] [--rounds 3] [--image_tokens 64 256] [--photos 16]

Local: a random Qwen3-VL, large enough that arithmetic dominates, is asked a prompt that is as long as the taxonomy's in
Qwen3-VL's own vocabulary, about photos of one size, and answers as a score, in float32 on one thread; another
reads photos ahead. ``prefix_ratio`` is the median time of the plain way over that of the shared prefix, in rounds that
alternate, by the processor time of the thread that runs the model; each round begins without any kept prefix. ``limit``
is the same ratio of the arithmetic that torch counts in both ways, vision encoder and attention included.
``answers_identical``: every answer of both ways. The file's figures are those of the first number of image tokens;
``by_image_tokens`` holds all. Endpoint: ``client_ratio`` as benchmarks/client_speed.py measures it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import client_speed
import numpy as np
import torch
from PIL import Image
from random_model import BASE, random_qwen3_vl
from torch.utils.flop_counter import FlopCounterMode

from cprt.answers.structure import structure
from cprt.models.inputs import read_ahead
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.records import write_json
from cprt.taxonomy import Taxonomy

BATCH = 8
PROMPT_TOKENS = 811  # the policy's for target attributes; 771 for target score
FORM = structure("score", Taxonomy.default())
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
SIDES = {64: (256, 256), 256: (512, 512)}  # 32 x 32 pixels a token


def attention(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, **others: Any) -> int:
    """FLOPs of torch's attention on a processor, of (rows, heads, tokens, width) each; half of them where causal."""
    rows, heads, tokens, width = query
    return rows * heads * tokens * key[2] * (width + value[3]) * (1 if causal else 2)


def measure_prefix(image_tokens: int, photos: int, rounds: int, width: int) -> dict[str, Any]:
    """Photos a second with and without the shared prefix, and whether the answers are the same."""
    rng = np.random.default_rng(0)
    images = [  # of different brightness
        Image.fromarray(rng.integers(0, 256 * (photo + 1) // photos, (*SIDES[image_tokens], 3), dtype=np.uint8))
        for photo in range(photos)
    ]
    messages = build("taxonomy", "attributes").messages()
    policy = messages[0]["content"][0]
    with tempfile.TemporaryDirectory() as folder:
        model = random_qwen3_vl(width)
        model.model.visual.merger.linear_fc2.weight.data *= 30  # photos must matter: with small random weights every
        for weight in model.model.language_model.layers.parameters():  # answer would be the same, and the comparison
            weight.data *= 4 if weight.ndim == 2 else 1  # of answers would prove nothing
        model.save_pretrained(folder)
        ways = {}
        for name, share in (("plain", False), ("shared", True)):
            LocalModel(BASE).processor.save_pretrained(folder)
            ways[name] = LocalModel(
                folder, dtype="float32", share_prefix=share, max_pixels=SIDES[image_tokens][0] * SIDES[image_tokens][1]
            )

    def run(model: LocalModel) -> tuple[float, list[str]]:
        model.forget()
        start = time.thread_time()
        answers = []
        batches = [
            [(messages, [image]) for image in images[first : first + BATCH]] for first in range(0, photos, BATCH)
        ]
        for rows, prepared in zip(batches, read_ahead(model.prepare, batches), strict=True):
            answers += [said.text for said in model.generate(rows, 1, structure=FORM, prepared=prepared)]
        return time.thread_time() - start, answers

    tokenizer = ways["plain"].processor.tokenizer
    length = PROMPT_TOKENS
    policy["text"] = tokenizer.decode((tokenizer(policy["text"] * 2)["input_ids"])[:length])
    arithmetic = {}
    for name, model in ways.items():  # this warms up as well
        with FlopCounterMode(display=False, custom_mapping={FLASH: attention}) as counter:
            run(model)
        arithmetic[name] = counter.get_total_flops()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    said: dict[str, list[str]] = {}
    for _ in range(rounds):
        for name, model in ways.items():
            took, said[name] = run(model)
            seconds[name].append(took)
    plain, shared = (statistics.median(seconds[name]) for name in ways)
    return {
        "prompt_tokens": length,
        "image_tokens": image_tokens,
        "photos": photos,
        "plain_photos_a_second": photos / plain,
        "shared_photos_a_second": photos / shared,
        "prefix_ratio": plain / shared,
        "limit": arithmetic["plain"] / arithmetic["shared"],
        "answers_identical": said["plain"] == said["shared"],
        "different_answers": len(set(said["plain"])),
        "rounds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--image_tokens", type=int, nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--photos", type=int, default=16)
    parser.add_argument("--width", type=int, default=512, help="hidden size of the language model")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    measured = []
    for image_tokens in args.image_tokens:
        figures = measure_prefix(image_tokens, args.photos, args.rounds, args.width)
        measured.append(figures)
        print(
            f"prompt {figures['prompt_tokens']} tokens, image {image_tokens}: "
            f"plain {figures['plain_photos_a_second']:.2f} photos a second, shared prefix "
            f"{figures['shared_photos_a_second']:.2f}, ratio {figures['prefix_ratio']:.2f} of {figures['limit']:.2f}, "
            f"answers {'identical' if figures['answers_identical'] else 'DIFFERENT'}",
            flush=True,
        )
    client = client_speed.measure(args.calls, args.in_flight, args.rounds)
    figures = {**measured[0], "by_image_tokens": measured, "client_ratio": client["client_ratio"], "client": client}
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
