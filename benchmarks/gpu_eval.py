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
    """Bytes of a card that a batch takes the dearest way; a further token adds no more than its keys and values."""
    from train.fit.card import imagined_card
    from train.fit.run import RESERVE

    with imagined_card() as card, tempfile.TemporaryDirectory() as name:
        judge = judge_of(recipe, name, "expected", 2)
        ask(*made_up(recipe, judge.spec.batch_size, Path(name), "cuda"), judge, share=False)
        return {"bytes": card.peak + RESERVE}


def measure(recipe: tuple[Any, ...], photos: int) -> dict[str, Any]:
    """Photos a second for each decoding, plain and shared, each after a batch that warms up; the most memory."""
    import torch

    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        model, processor, pair, paths = made_up(recipe, photos, Path(name), str(recipe[3].device))
        for decoding in ("greedy", "expected"):
            judge, figures[decoding] = judge_of(recipe, name, decoding, ANSWER_TOKENS), {}
            for way in ("plain", "shared"):
                for part in (paths[: judge.spec.batch_size], paths):
                    started = on_card.now()
                    ask(model, processor, pair, part, judge, share=way == "shared")
                figures[decoding][way] = photos / (on_card.now() - started)
    figures["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    return figures


def made_up(recipe: tuple[Any, ...], photos: int, folder: Path, device: str) -> tuple[Any, Any, Any, list[Path]]:
    """A model of random weights, its processor, a pair with the prompt, and photos in ``folder``."""
    from PIL import Image

    from cprt.images import image_size
    from train.fit.rehearsal import made_up_pairs, random_model, stand_in_processor

    config, data, model_args, _, lengths = recipe
    config = copy.deepcopy(config)
    processor = stand_in_processor(config, data.max_pixels)
    (pair,) = made_up_pairs(lengths, 1, folder, config, data)
    size, paths = image_size(folder / pair.images[0]), [folder / f"{index}.jpg" for index in range(photos)]
    for path in paths:  # each another one: a model encodes the same photos once
        Image.effect_noise(size, 50).convert("RGB").save(path, quality=95)
    return random_model(config, model_args, device).eval(), processor, pair, paths


def judge_of(recipe: tuple[Any, ...], folder: str, decoding: str, tokens: int) -> Any:
    """What ``cprt eval`` makes of a model in ``folder`` and the recipe's photos with its own defaults."""
    from cprt.taxonomy import Taxonomy
    from eval.run import EvalArguments, find_judges

    _, data, model_args, *_ = recipe
    options = {"dtype": model_args.dtype, "max_pixels": data.max_pixels, "decoding": decoding}
    args = EvalArguments(labels="", images="", out="", model=folder, max_new_tokens=tokens, **options)
    (judge,) = find_judges(args, Taxonomy.default())
    return judge


def ask(model: Any, processor: Any, pair: Any, photos: list[Path], judge: Any, *, share: bool) -> None:
    """Have photos answered as ``cprt eval`` does, every answer kept."""
    from cprt.models.ask import Memory, Model
    from cprt.models.local import LocalModel
    from cprt.models.response_cache import ResponseCache

    local = LocalModel.around(model, processor)
    local.share_prefix = share

    class Held(Memory):
        def load(self, spec: Any) -> Any:
            return local

    requests = {photo.stem: replace(judge.request(photo), messages=pair.prompt) for photo in photos}
    with tempfile.TemporaryDirectory() as kept, ResponseCache(Path(kept) / "answers") as cache:
        Model(judge.spec, memory=Held()).ask(requests, cache, "")
        errors = [row["error"] for key in requests for row in cache.rows(key) if "error" in row]
    assert not errors, errors[0]


if __name__ == "__main__":
    main()
