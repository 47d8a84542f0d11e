"""A vision-language model that runs here: transformers, with a PEFT adapter or without. Imports torch when used."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cprt.errors import InputError
from cprt.prompts import Messages, arrange
from cprt.provenance import model_digest

if TYPE_CHECKING:
    from PIL.Image import Image

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Generation:
    """What a model wrote, special tokens left out. ``complete`` is False when it ran into the token limit."""

    text: str
    complete: bool


def load_processor(model: str, revision: str | None = None, max_pixels: int | None = None) -> Any:
    """The processor of a checkpoint, padding on the left, with images capped at ``max_pixels``.

    Stock Qwen3-VL lets one image take about 16k tokens. Families that resize to fixed tiles (Mllama) know no cap and
    keep their own size. Raises InputError when there is no such checkpoint.
    """
    from transformers import AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(model, revision=revision)
    except (OSError, ValueError) as error:
        raise _unusable(model, error) from error
    if not hasattr(processor, "image_processor"):
        raise InputError(f"{model}: is not a vision-language model (its processor takes no images)")
    processor.tokenizer.padding_side = "left"  # right padding changes what a decoder generates
    size = processor.image_processor.size
    if max_pixels is not None and "longest_edge" in size and "shortest_edge" in size:
        # In this family's processors the two "edges" are numbers of pixels.
        floor = min(size["shortest_edge"], max_pixels)
        processor.image_processor.size = {"shortest_edge": floor, "longest_edge": max_pixels}
    return processor


def load_model(model: str, revision: str | None = None, **kwargs: Any) -> Any:
    """The weights of a checkpoint; ``kwargs`` go to ``from_pretrained``. Raises InputError when there is none.

    Only safetensors are read, and no code that a checkpoint brings along is run.
    """
    from transformers import AutoModelForImageTextToText

    try:
        return AutoModelForImageTextToText.from_pretrained(model, revision=revision, use_safetensors=True, **kwargs)
    except (OSError, ValueError) as error:
        raise _unusable(model, error) from error


class LocalModel:
    """Greedy generation, batched and padded on the left."""

    def __init__(
        self,
        model: str,
        adapter: str | None = None,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        max_pixels: int | None = None,
    ):
        import torch

        # The adapter's folder holds the processor it was trained with, pixel cap included.
        has_processor = adapter is not None and (Path(adapter) / "processor_config.json").is_file()
        self.processor = load_processor(adapter if has_processor and adapter else model,
                                        None if has_processor else revision, max_pixels)  # fmt: skip
        self.model = load_model(model, revision, dtype=dtype)
        self.model_type = self.model.config.model_type
        self.revision = getattr(self.model.config, "_commit_hash", None)
        if adapter is not None:
            self.model = _add_adapter(self.model, adapter)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.to(self.device).eval()
        self.dtype = str(self.model.dtype).removeprefix("torch.")
        self.size = self.processor.image_processor.size
        self._prefix: tuple[Any, Any] | None = None  # token ids and cache of the last shared prefix

    def generate(self, images: Sequence[Image], messages: Messages, max_new_tokens: int) -> list[Generation]:
        """One answer an image, each image asked with the same one-image ``messages``."""
        import torch

        text = self.processor.apply_chat_template(arrange(messages, self.model_type), add_generation_prompt=True)
        batch = self.processor(
            text=[text] * len(images),
            images=[[image] for image in images],
            padding=True,
            add_special_tokens=False,  # the template wrote them
            return_tensors="pt",
        ).to(self.device, dtype=self.model.dtype)
        with torch.inference_mode():
            if self.model_type == "qwen3_vl":
                batch["cache"] = self._share_prefix(batch)
            output = self.model.generate(**batch, max_new_tokens=max_new_tokens, do_sample=False)
        answers = output[:, batch["input_ids"].shape[1] :].tolist()
        ends = self.model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        texts = self.processor.batch_decode(answers, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return [Generation(text, not ends.isdisjoint(ids)) for text, ids in zip(texts, answers, strict=True)]

    def _share_prefix(self, batch: Any) -> Any:
        """The cache of the text before the image, which is the same in every row: computed once, then copied.

        Rows change from [padding, prefix, rest] to [prefix, padding, rest] in place. The padding stays masked, and the
        model counts positions over what is not masked, so the answers are those of the plain way.
        """
        import torch
        from transformers import DynamicCache

        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        mask = batch["attention_mask"]
        rows, width = mask.shape
        padding = width - mask.sum(dim=1, keepdim=True)  # (rows, 1)
        first = batch["input_ids"][0, padding[0, 0] :]
        length = int((first == base.config.vision_start_token_id).nonzero()[0, 0])
        place = torch.arange(width, device=mask.device).expand(rows, -1)
        source = torch.where(place < length, place + padding, place)
        source = torch.where((place >= length) & (place < length + padding), place - length, source)
        for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
            batch[name] = batch[name].gather(1, source)

        prefix = batch["input_ids"][:1, :length]
        if self._prefix is None or not torch.equal(self._prefix[0], prefix):
            cache = DynamicCache(config=base.config.get_text_config())
            positions = torch.arange(length, device=prefix.device).expand(3, 1, -1)
            base.model.language_model(
                input_ids=prefix, attention_mask=torch.ones_like(prefix), position_ids=positions, cache=cache,
                use_cache=True,
            )  # fmt: skip
            self._prefix = prefix, cache
        cache = copy.deepcopy(self._prefix[1])
        cache.batch_repeat_interleave(rows)
        return cache


def identity(model: str, revision: str | None = None) -> str:
    """What tells one checkpoint from another: a folder's content digest, or a hub name with its revision."""
    return model_digest(model) if os.path.isdir(model) else f"{model}@{revision or 'main'}"


def revision_of(model: str, revision: str | None = None) -> str | None:
    """The commit of a Hub model, read from its configuration alone; None for a folder. Raises InputError."""
    from transformers import AutoConfig

    if os.path.isdir(model):
        return None
    try:
        return getattr(AutoConfig.from_pretrained(model, revision=revision), "_commit_hash", None)
    except (OSError, ValueError) as error:
        raise _unusable(model, error) from error


def _add_adapter(model: Any, adapter: str) -> Any:
    from peft import PeftModel

    if not (Path(adapter) / "adapter_config.json").is_file():
        raise InputError(f"{adapter}: is not an adapter folder (no adapter_config.json)")
    if not (Path(adapter) / "adapter_model.safetensors").is_file():
        raise InputError(f"{adapter}: has no adapter_model.safetensors (other formats are not loaded)")
    try:
        return PeftModel.from_pretrained(model, adapter)
    except (ValueError, RuntimeError, OSError) as error:
        raise InputError(f"{adapter}: does not fit the model ({_first_line(error)})") from error


def _unusable(model: str, error: Exception) -> InputError:
    if os.path.sep in model and not os.path.exists(model) and model.count("/") != 1:
        return InputError(f"{model}: no such model folder")
    return InputError(f"{model}: cannot be loaded as a model ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
