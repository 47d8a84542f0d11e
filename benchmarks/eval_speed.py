"""What makes `cprt eval` fast: the shared prefix for a local model, and the client for an endpoint.

    python benchmarks/eval_speed.py [--json FILE] [--rounds 3] [--image_tokens 64 256] [--photos 16] [--calls 2000]

Local: a random Qwen3-VL, large enough that arithmetic dominates (``--width`` of its language model), is asked a prompt
that is as long as the taxonomy's in Qwen3-VL's own vocabulary, about photos of one size, and answers as a score, in
float32 on one thread; another reads photos ahead. ``prefix_ratio`` is the median time of the plain way over that of the
shared prefix, in rounds that alternate, by the processor time of the thread that runs the model; each round begins
without any kept prefix. ``limit`` is the same ratio of the arithmetic that torch counts in both ways, vision encoder
and attention included. ``answers_identical``: every answer of both ways. The file's figures are those of the first
number of image tokens; ``by_image_tokens`` holds all.

Endpoint: our client with durable rows against a bare loop over AsyncOpenAI, on a server in another process. It answers
after 50 ms, so that 64 in flight could make 1,280 calls a second: both ways are bound by what a call costs the client's
processor. ``client_ratio`` is the median time of ours over that of the bare loop, in rounds that alternate: what
back-off, checks and durable rows add, less what reading the response strictly and by ourselves saves. ``--photos 0``
measures it alone.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.endpoint import endpoint
from common.measuring import in_turn, medians, options, save
from common.random_model import BASE, random_qwen3_vl, sides
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from cprt.answers.structure import structure
from cprt.models.ask import Model
from cprt.models.inputs import read_ahead
from cprt.models.local import LocalModel
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import Messages, build
from cprt.taxonomy import Taxonomy

BATCH = 8
PROMPT_TOKENS = 811  # the policy's for target attributes; 771 for target score
FORM = structure("score", Taxonomy.default())
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
DELAY = 0.05  # seconds that the endpoint takes


def attention(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, **others: Any) -> int:
    """FLOPs of torch's attention on a processor, of (rows, heads, tokens, width) each; half of them where causal."""
    rows, heads, tokens, width = query
    return rows * heads * tokens * key[2] * (width + value[3]) * (1 if causal else 2)


def measure_prefix(image_tokens: int, photos: int, rounds: int, width: int) -> dict[str, Any]:
    """Photos a second with and without the shared prefix, and whether the answers are the same."""
    rng, size = np.random.default_rng(0), sides(image_tokens)
    images = [  # of different brightness
        Image.fromarray(rng.integers(0, 256 * (photo + 1) // photos, (*size, 3), dtype=np.uint8))
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
        LocalModel(BASE).processor.save_pretrained(folder)
        how = {"dtype": "float32", "max_pixels": math.prod(size)}
        models = {name: LocalModel(folder, share_prefix=name == "shared", **how) for name in ("plain", "shared")}
    said: dict[str, list[str]] = {}

    def run(name: str) -> None:
        model, said[name] = models[name], []
        model.forget()
        batches = [
            [(messages, [image]) for image in images[first : first + BATCH]] for first in range(0, photos, BATCH)
        ]
        for rows, prepared in zip(batches, read_ahead(model.prepare, batches), strict=True):
            said[name] += [one.text for one in model.generate(rows, 1, structure=FORM, prepared=prepared)]

    tokenizer = models["plain"].processor.tokenizer
    policy["text"] = tokenizer.decode((tokenizer(policy["text"] * 2)["input_ids"])[:PROMPT_TOKENS])
    arithmetic = {}
    for name in models:  # this warms up as well
        with FlopCounterMode(display=False, custom_mapping={FLASH: attention}) as counter:
            run(name)
        arithmetic[name] = counter.get_total_flops()
    ways = {"plain": lambda _: run("plain"), "shared": lambda _: run("shared")}
    times = in_turn(ways, rounds, {"s": time.thread_time})
    taken = medians(times)
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "image_tokens": image_tokens,
        "photos": photos,
        "plain_photos_a_second": photos / taken["plain_s"],
        "shared_photos_a_second": photos / taken["shared_s"],
        "prefix_ratio": taken["plain_s"] / taken["shared_s"],
        "limit": arithmetic["plain"] / arithmetic["shared"],
        "answers_identical": said["plain"] == said["shared"],
        "different_answers": len(set(said["plain"])),
        "rounds": times,
    }


def question(number: int) -> Messages:
    return [{"role": "user", "content": [{"type": "text", "text": f"{'How severe is this photo? ' * 40}{number}"}]}]


def bare(url: str, calls: int, in_flight: int) -> None:
    """The calls through AsyncOpenAI alone; the answers stay in memory."""
    import openai

    async def main() -> None:
        numbers = iter(range(calls))
        texts: list[str | None] = []
        async with openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

            async def work() -> None:
                for number in numbers:
                    content: Any = question(number)
                    done = await client.chat.completions.create(
                        model="m", messages=content, max_tokens=16, temperature=0.0
                    )
                    texts.append(done.choices[0].message.content)

            await asyncio.gather(*(work() for _ in range(in_flight)))
        assert len(texts) == calls

    asyncio.run(main())


def ours(url: str, calls: int, in_flight: int) -> None:
    """The same calls through our engine, until the last row is on disk."""
    row = {"name": "m", "model": "m", "base_url": url, "max_new_tokens": 16, "concurrency": in_flight}
    model = Model(ModelSpec.read(row, "benchmark"))
    with tempfile.TemporaryDirectory() as folder, ResponseCache(Path(folder) / "answers.jsonl") as cache:
        model.ask([Request(question(number)) for number in range(calls)], cache, "ours")


def measure_client(calls: int, in_flight: int, rounds: int) -> dict[str, Any]:
    """Both ways in turn against one server, and the ratio of their medians."""
    with endpoint('{"score": 0.712}', DELAY) as url:
        for way in (bare, ours):
            way(url, 2 * in_flight, in_flight)  # imports and first connections
        ways = {"bare": lambda _: bare(url, calls, in_flight), "ours": lambda _: ours(url, calls, in_flight)}
        times = in_turn(ways, rounds)
    taken = medians(times)
    return {
        "calls": calls,
        "in_flight": in_flight,
        "server_ms": 1000 * DELAY,
        "bare_s": taken["bare_s"],
        "ours_s": taken["ours_s"],
        "client_ratio": taken["ours_s"] / taken["bare_s"],
        "bare_cpu_ms_a_call": 1000 * taken["bare_cpu_s"] / calls,
        "ours_cpu_ms_a_call": 1000 * taken["ours_cpu_s"] / calls,
        "rounds": times,
    }


def main() -> None:
    args = options(__doc__, rounds=3, image_tokens=[64, 256], photos=16, width=512, calls=2000, in_flight=64)
    torch.set_num_threads(1)
    measured = []
    for image_tokens in args.image_tokens if args.photos else []:
        figures = measure_prefix(image_tokens, args.photos, args.rounds, args.width)
        measured.append(figures)
        print(
            f"prompt {figures['prompt_tokens']} tokens, image {image_tokens}: "
            f"plain {figures['plain_photos_a_second']:.2f} photos a second, shared prefix "
            f"{figures['shared_photos_a_second']:.2f}, ratio {figures['prefix_ratio']:.2f} of {figures['limit']:.2f}, "
            f"answers {'identical' if figures['answers_identical'] else 'DIFFERENT'}",
            flush=True,
        )
    client = measure_client(args.calls, args.in_flight, args.rounds)
    print("bare {bare_s:.2f} s, ours with durable rows {ours_s:.2f} s, ratio {client_ratio:.2f}".format(**client))
    first = measured[0] if measured else {}
    save(args, {**first, "by_image_tokens": measured, "client_ratio": client["client_ratio"], "client": client})


if __name__ == "__main__":
    main()
