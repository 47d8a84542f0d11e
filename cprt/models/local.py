"""A vision-language model that runs here: transformers, with a PEFT adapter or without. Imports torch when used."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cprt.answers.structure import Structure
from cprt.errors import InputError
from cprt.models.adapter import add_adapter, read_config
from cprt.models.checkpoint import check_fit, first_line, load_model, load_processor, special_token
from cprt.models.decoding.grammar import Grammars
from cprt.models.decoding.lists import ListReader
from cprt.models.decoding.score_tree import ScoreReader
from cprt.models.decoding.scores import stated_lead_in
from cprt.prompts import Messages, arrange

if TYPE_CHECKING:
    from PIL.Image import Image

_PREFIXES = 4  # shared texts kept at once: one for each prompt that is asked in turn


@dataclass(frozen=True)
class Generation:
    """What a model wrote, special tokens left out. ``complete`` is False when it ran into the token limit.

    ``distribution``: probability of the scores "0.000" to "1.000" after a lead-in, where it was asked for.
    ``lists``: probability of the lists of attributes, where it was asked for in a structure with keys (``ListReader``).
    ``logprobs``: one entry a token of the answer with its most probable alternatives, in the form of an endpoint's.
    ``willing``: of an answer held to a structure, the share of its probability that a free model gives it (``Held``).
    """

    text: str
    complete: bool
    distribution: dict[str, float] | None = None
    lists: dict[str, float] | None = None
    logprobs: list[dict[str, Any]] | None = None
    willing: float | None = None


class LocalModel:
    """Greedy generation, batched and padded on the left.

    For Qwen3-VL the text that all rows of a batch begin with is computed once a run, and photos that were encoded for
    one prompt are not encoded again for the next. Neither changes an answer; ``share_prefix`` False leaves it out.
    """

    def __init__(
        self,
        model: str,
        adapter: str | None = None,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        max_pixels: int | None = None,
        share_prefix: bool = True,
    ):
        import torch

        if adapter is not None:
            read_config(adapter)
        self._checkpoint = model, revision
        processor = self._load_processor(adapter, max_pixels)
        loaded = load_model(model, revision, dtype=dtype)
        check_fit(model, loaded, processor)
        if adapter is not None:
            loaded = add_adapter(loaded, adapter)
        device = "cpu"
        if torch.cuda.is_available():  # each process of `accelerate launch` takes a card of its own
            device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        self._use(loaded.to(device).eval(), processor, share_prefix)

    def change_adapter(self, adapter: str | None, max_pixels: int | None = None) -> None:
        """Put another adapter on the same weights, or none, with the processor that goes with it.

        Raises InputError for an adapter that does not fit; the model is of no use then.
        """
        from peft import PeftModel

        if adapter is not None:
            read_config(adapter)
        processor = self._load_processor(adapter, max_pixels)
        check_fit(adapter or self._checkpoint[0], self.model, processor)
        model = self.model.unload() if isinstance(self.model, PeftModel) else self.model
        if adapter is not None:
            model = add_adapter(model, adapter).to(self.device)
        self._use(model.eval(), processor, self.share_prefix)

    def _load_processor(self, adapter: str | None, max_pixels: int | None) -> Any:
        """An adapter's folder holds the processor it was trained with, pixel cap included."""
        if adapter is not None and (Path(adapter) / "processor_config.json").is_file():
            return load_processor(adapter, None, max_pixels)
        return load_processor(*self._checkpoint, max_pixels)

    @classmethod
    def around(cls, model: Any, processor: Any) -> LocalModel:
        """One that stands on a model in memory, with an adapter or without, whose weights must not change meanwhile."""
        local = cls.__new__(cls)
        local._use(model, processor, share_prefix=True)
        return local

    def _use(self, model: Any, processor: Any, share_prefix: bool) -> None:
        self.model, self.processor = model, processor
        self.model_type = model.config.model_type
        self.decoding = _greedy(self._base(), processor.tokenizer)
        self.revision = getattr(model.config, "_commit_hash", None)
        self.device = str(model.device)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.size = processor.image_processor.size
        self.share_prefix = share_prefix and self.model_type == "qwen3_vl"
        self._prefixes: dict[tuple[int, ...], Any] = {}  # token ids of a shared text -> its cache
        self._encoded: tuple[Any, Any] | None = None  # the pixels encoded last, and what came of them
        self._harmless: set[str] = set()  # texts without a special token
        self._scores = ScoreReader(model, self._base(), processor.tokenizer)
        self._lists = ListReader(model, self._base(), processor.tokenizer)
        size = model.get_output_embeddings().weight.shape[0]
        self._grammars = Grammars(processor.tokenizer, size, self.decoding["eos_token_id"])

    def forget(self) -> None:
        """Drop what is kept from one batch to the next: shared texts and encoded photos."""
        self._prefixes.clear()
        self._encoded = None

    def generate(
        self,
        rows: Sequence[tuple[Messages, Sequence[Image]]],
        max_new_tokens: int,
        lead_in: str | None = None,
        top_logprobs: int | None = None,
        structure: Structure | None = None,
    ) -> list[Generation]:
        """One answer to each (messages, images) row; a message's image parts stand where its images go, in order.

        Raises InputError where a row is one that the processor does not take.

        Args:
            lead_in: with it, how probable every score is after this text, such as ``{"score": ``, and every list that a
                structure has. An empty one stands for the answer's own text up to its score.
            top_logprobs: how many alternatives to each token of the answer to give.
            structure: the form that answers are held to. They end of themselves, whatever ``max_new_tokens`` is.
        """
        import torch

        held = None
        if structure is not None:
            held, max_new_tokens = self._grammars.hold(structure, len(rows)), structure.longest + 1
        inputs = self._inputs(rows)
        width = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            if self.share_prefix and all(len(images) == 1 and messages == rows[0][0] for messages, images in rows):
                inputs["cache"] = self._share_prefix(inputs)
            output = self._generate(
                **inputs,
                max_new_tokens=max_new_tokens,
                return_dict_in_generate=True,
                output_logits=top_logprobs is not None,
                logits_processor=[] if held is None else [held],
            )
            answers = output.sequences[:, width:].tolist()
            ends = set(self.decoding["eos_token_id"])
            texts = self.processor.batch_decode(answers, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            distributions: Sequence[dict[str, float] | None] = [None] * len(rows)
            lists: Sequence[dict[str, float] | None] = [None] * len(rows)
            if lead_in is not None:
                lead_ins = [lead_in or stated_lead_in(text) for text in texts]
                distributions = self._scores.distributions(inputs, output.cache, lead_ins)
                if structure is not None and structure.keys:
                    lists = self._lists.distributions(inputs, output.cache, structure.keys, texts)
            logprobs: Sequence[list[dict[str, Any]] | None] = [None] * len(rows)
            if top_logprobs is not None:
                lengths = [
                    next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids)) for ids in answers
                ]
                logprobs = self._top_logprobs(output.logits, answers, lengths, top_logprobs)
        willing = [None] * len(rows) if held is None else [math.exp(value) for value in held.log_willing]
        return [
            Generation(text, not ends.isdisjoint(ids), *probable, listed, share)
            for text, ids, probable, listed, share in zip(
                texts, answers, zip(distributions, lists, strict=True), logprobs, willing, strict=True
            )
        ]

    def _generate(self, **inputs: Any) -> Any:
        """``generate`` by ``decoding`` alone: what generation_config.json asks for besides is left out of account."""
        from transformers import GenerationConfig

        base = self._base()
        stated, base.generation_config = base.generation_config, GenerationConfig(**self.decoding)
        try:
            return base.generate(**inputs)
        finally:
            base.generation_config = stated

    def _top_logprobs(
        self, logits: Sequence[Any], answers: Sequence[Sequence[int]], lengths: Sequence[int], count: int
    ) -> list[list[dict[str, Any]]]:
        """For each row, its answer's tokens with the ``count`` most probable ones in their places.

        Args:
            logits: of each step, (rows, vocabulary).
            lengths: tokens of each row's answer, its end included; what follows is padding.
        """

        def text(token: int) -> str:
            return str(self.processor.tokenizer.decode([token]))

        entries: list[list[dict[str, Any]]] = [[] for _ in answers]
        for step, of_step in enumerate(logits):
            log_probabilities = of_step.float().log_softmax(-1)
            values, tokens = log_probabilities.topk(min(count, of_step.shape[-1]))
            for row, (answer, length) in enumerate(zip(answers, lengths, strict=True)):
                if step < length:
                    listed = zip(tokens[row].tolist(), values[row].tolist(), strict=True)
                    entries[row].append(
                        {
                            "token": text(answer[step]),
                            "logprob": float(log_probabilities[row, answer[step]]),
                            "top_logprobs": [{"token": text(token), "logprob": value} for token, value in listed],
                        }
                    )
        return entries

    def _inputs(self, rows: Sequence[tuple[Messages, Sequence[Image]]]) -> Any:
        """What the model is given for the rows, padded on the left; encoded photos in place of their pixels."""
        import torch

        processor = self.processor
        parts = [part for messages, _ in rows for message in messages for part in message["content"]]
        said = {part["text"] for part in parts if part["type"] == "text"}
        if (token := special_token(processor, said - self._harmless)) is not None:
            raise InputError(f"what is asked holds {token!r}, which the model takes for something else than text")
        self._harmless |= said
        texts = [
            processor.apply_chat_template(arrange(messages, self.model_type), add_generation_prompt=True)
            for messages, _ in rows
        ]
        images = [list(images) for _, images in rows] if any(images for _, images in rows) else None
        try:
            inputs = processor(
                text=texts,
                images=images,
                padding=True,
                add_special_tokens=False,  # the template wrote them
                return_tensors="pt",
            )
        except (ValueError, ArithmeticError, RuntimeError) as error:  # such as an aspect ratio above its limit
            raise InputError(f"the model's processor does not take it ({first_line(error)})") from error
        inputs = inputs.to(self.device, dtype=self.model.dtype)
        if self.share_prefix and "pixel_values" in inputs:
            pixels = inputs.pop("pixel_values")
            if self._encoded is None or not torch.equal(self._encoded[0], pixels):
                with torch.inference_mode():
                    features = self._base().model.get_image_features(pixels, inputs["image_grid_thw"], return_dict=True)
                self._encoded = pixels, features
            inputs["mm_encoder_outputs"] = {"image": self._encoded[1]}
        return inputs

    def _base(self) -> Any:
        """The model itself, an adapter or not."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def _share_prefix(self, inputs: Any) -> Any:
        """The cache of the text before the image, which is the same in every row.

        Rows change from [padding, prefix, rest] to [prefix, padding, rest] in place. The padding stays masked, and the
        model counts positions over what is not masked, so the answers are those of the plain way.
        """
        import torch

        from cprt.models.prefix_cache import compute_prefix, growing_cache

        base, mask_BL = self._base(), inputs["attention_mask"]
        rows, width = mask_BL.shape
        padding_B1 = width - mask_BL.sum(dim=1, keepdim=True)
        first = inputs["input_ids"][0, padding_B1[0, 0] :]
        length = int((first == base.config.vision_start_token_id).nonzero()[0, 0])
        place_BL = torch.arange(width, device=mask_BL.device).expand(rows, -1)
        source_BL = torch.where(place_BL < length, place_BL + padding_B1, place_BL)
        is_padding = (place_BL >= length) & (place_BL < length + padding_B1)
        source_BL = torch.where(is_padding, place_BL - length, source_BL)
        for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
            inputs[name] = inputs[name].gather(1, source_BL)

        prefix_1P = inputs["input_ids"][:1, :length]
        ids = tuple(prefix_1P[0].tolist())
        if ids not in self._prefixes:
            if len(self._prefixes) == _PREFIXES:
                del self._prefixes[next(iter(self._prefixes))]
            self._prefixes[ids], _ = compute_prefix(base, prefix_1P)
        return growing_cache(self._prefixes[ids], rows)


def _greedy(base: Any, tokenizer: Any) -> dict[str, Any]:
    """The settings of greedy decoding, whatever a model's generation_config.json asks for.

    Penalties, beams, least lengths and the like are not among them. Answers end where that file says, and at the
    tokenizer's own end. Raises InputError when there is no such token.
    """
    stated = base.generation_config.eos_token_id
    known = range(base.get_input_embeddings().num_embeddings)
    ends = [*(stated if isinstance(stated, list) else [stated]), tokenizer.eos_token_id]
    ends = sorted({end for end in ends if type(end) is int and end in known})
    if not ends:
        raise InputError(f"{base.name_or_path}: neither generation_config.json nor the tokenizer says how answers end")
    return {"do_sample": False, "eos_token_id": ends, "pad_token_id": tokenizer.pad_token_id}
