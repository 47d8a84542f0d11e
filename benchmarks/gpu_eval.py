"""Photos a second of ``cprt eval`` at full size on one GPU, plain and with the shared prefix: random weights.

    python benchmarks/gpu_eval.py [--json FILE] [--recipes configs/sft/qwen3_vl_8b.yaml ...] [--tiny]

The models and the size of photos are those of the recipes; batch, precision and decoding (greedy, or with the expected
score over the tree of all scores) are those of ``cprt eval``, whose own code asks. Photos lie on the disk, of the
largest size; the prompt has the tokens of the real one. Random weights never end an answer, so it is cut off at the
tokens of a score. A model whose need, rehearsed on an imagined card, does not fit the card is left out in one line.
"""

from __future__ import annotations

import copy
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import on_card

PHOTOS = 256  # 8 for the tiny shape
ANSWER_TOKENS = 12  # {"score": 0.712} and its end


def main() -> None:
    args = on_card.parser(__doc__).parse_args()
    if args.worker:
        with tempfile.TemporaryDirectory() as folder:
            recipe = on_card.read(args.recipes[0], args.tiny, folder, args.worker == "measure")
            photos = 8 if args.tiny else PHOTOS
            print(json.dumps(need(recipe) if args.worker == "need" else measure(recipe, photos)))
        return
    print(f"{'recipe':<24}{'decoding':<10}{'plain':>10}{'shared':>10}{'ratio':>7}   photos a second")
    on_card.run(__file__, args, show)


def show(name: str, figures: dict[str, Any], card: str) -> list[dict[str, Any]]:
    """A line for each decoding."""
    rows = []
    for decoding in ("greedy", "expected"):
        plain, shared = figures[decoding]["plain"], figures[decoding]["shared"]
        print(f"{name:<24}{decoding:<10}{plain:>10.1f}{shared:>10.1f}{shared / plain:>7.2f}", flush=True)
        rows.append({"decoding": decoding, "plain": plain, "shared": shared, "peak_gb": figures["peak_gb"]})
    return rows


def need(recipe: tuple[Any, ...]) -> dict[str, Any]:
    """Bytes of a card that a batch takes, the dearer of both decodings and both ways."""
    from train.fit.card import imagined_card
    from train.fit.run import RESERVE

    with imagined_card() as card:
        measure(recipe, photos=None, device="cuda")
        return {"bytes": card.peak + RESERVE}


def measure(recipe: tuple[Any, ...], photos: int | None, device: str | None = None) -> dict[str, Any]:
    """Photos a second for each decoding, plain and shared. ``photos`` None: one batch, without warming up."""
    import torch

    from cprt.models.local import LocalModel
    from cprt.taxonomy import Taxonomy
    from eval.run import EvalArguments, find_judges
    from train.fit.rehearsal import made_up_pairs, random_model, stand_in_processor

    config, data, model_args, args, lengths = recipe
    config = copy.deepcopy(config)
    processor = stand_in_processor(config, data.max_pixels)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (pair,) = made_up_pairs(lengths, 1, folder, config, data)
        model = random_model(config, model_args, device or str(args.device)).eval()
        for decoding in ("greedy", "expected"):
            asked = EvalArguments(
                model=model_args.model_name_or_path,
                labels="",
                images=name,
                out=name,
                decoding=decoding,
                max_pixels=data.max_pixels,
                max_new_tokens=ANSWER_TOKENS,
                dtype=model_args.dtype,
            )
            (judge,) = find_judges(asked, Taxonomy.default())
            figures[decoding] = {}
            for way in ("plain", "shared"):
                local = LocalModel.around(model, processor)
                local.share_prefix = way == "shared"
                if photos is not None:
                    ask(local, judge, pair, asked.batch_size, folder)
                started = on_card.now()
                number = photos or asked.batch_size
                ask(local, judge, pair, number, folder)
                figures[decoding][way] = number / (on_card.now() - started)
    figures["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    return figures


def ask(local: Any, judge: Any, pair: Any, number: int, folder: Path) -> None:
    """Have ``number`` photos answered as ``cprt eval`` does, each a file of its own, every answer kept."""
    from PIL import Image

    from cprt.images import image_size
    from cprt.models.ask import Memory, Model
    from cprt.models.response_cache import ResponseCache

    class Held(Memory):
        def load(self, spec: Any) -> Any:
            return local

    requests, size = {}, image_size(folder / pair.images[0])
    for index in range(number):
        photo = folder / f"{index}.jpg"
        if not photo.is_file():  # each another one: a model encodes the same photos once
            Image.effect_noise(size, 50).convert("RGB").save(photo, quality=95)
        requests[str(index)] = replace(judge.request(photo), messages=pair.prompt)
    with tempfile.TemporaryDirectory() as kept, ResponseCache(Path(kept) / "answers") as cache:
        Model(judge.spec, memory=Held()).ask(requests, cache, "")
        errors = [row["error"] for row in map(cache.get, requests) if "error" in row]
    assert not errors, errors[0]


if __name__ == "__main__":
    main()
