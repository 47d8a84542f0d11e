"""How long pairs are in a model's own tokens, photo included: what does not fit must be known before training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.prompts import arrange
from cprt.records import Pair


def check_lengths(
    model: str, pairs: Sequence[Pair], root: Path, max_pixels: int | None, max_tokens: int
) -> dict[str, Any]:
    """Measure every pair with a checkpoint's processor.

    Returns ``{model, shortest, longest, mean}`` in tokens. Raises InputError that names the longest pair when it is
    over ``max_tokens``.
    """
    from cprt.models.checkpoint import load_config, load_processor

    processor = load_processor(model, max_pixels=max_pixels)
    model_type = load_config(model).model_type
    texts: dict[str, int] = {}  # the text is the same for most pairs but for the answer
    lengths = []
    for pair in tqdm(pairs, desc=f"measuring in tokens of {Path(model).name}", unit="pair", leave=False):
        messages = [*arrange(pair.prompt, model_type), *pair.completion]
        text = processor.apply_chat_template(messages)
        if text not in texts:
            texts[text] = len(processor.tokenizer(text, add_special_tokens=False)["input_ids"])
        lengths.append(texts[text] + _image_tokens(processor, load_image(root / pair.images[0])))
    longest = max(range(len(pairs)), key=lengths.__getitem__)
    if lengths[longest] > max_tokens:
        raise InputError(
            f"{model}: pair {pairs[longest].id!r} is {lengths[longest]} tokens long, over --max_tokens {max_tokens}; "
            "lower max_pixels or raise the limit"
        )
    mean = round(sum(lengths) / len(lengths), 1)
    return {"model": model, "shortest": min(lengths), "longest": max(lengths), "mean": mean}


def _image_tokens(processor: Any, image: Any) -> int:
    """Tokens that the photo adds to the text's placeholder: none for families that see by cross-attention."""
    merge = getattr(processor.image_processor, "merge_size", None)
    if merge is None:
        return 0
    grid = processor.image_processor(images=[image], return_tensors="pt")["image_grid_thw"][0]
    return int(grid.prod()) // merge**2 - 1
