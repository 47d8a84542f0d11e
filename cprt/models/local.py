"""A vision-language model that runs here: transformers, with a PEFT adapter or without. Imports torch when used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from cprt.answers.structure import Structure
from cprt.errors import InputError
from cprt.models.adapter import add_adapter, read_config
from cprt.models.checkpoint import check_fit, find_device, first_line, load_model, load_processor, to_device
from cprt.models.decoding.grammar import Constrained, Drafted, Grammars
from cprt.models.decoding.lists import ListReader
from cprt.models.decoding.lookahead import KEEPING, Reading, TokenTree
from cprt.models.decoding.score_tree import ScoreLook, ScoreReader
from cprt.models.decoding.speculative import write
from cprt.models.inputs import Inputs, Row
from cprt.models.spec import Response

_LOOKS_LIKE = 0.05  # of the logits' spread: more than rounding moves them
_PREFIXES = 4  # shared texts kept at once: one for each prompt that is asked in turn


class LocalModel:
    """Greedy generation, batched and padded on the left.

    For Qwen3-VL the text that all rows of a batch begin with is computed once a run, and photos are not encoded anew
    for the next prompt. Neither changes an answer; ``share_prefix`` False leaves it out.
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
        self._checkpoint = model, revision
        processor = self._load_processor(adapter, max_pixels)
        loaded = load_model(model, revision, dtype=dtype)
        check_fit(model, loaded, processor)
        if adapter is not None:
            loaded = add_adapter(loaded, adapter)
        self._use(to_device(loaded, find_device(), dtype).eval(), processor, share_prefix)

    def change_adapter(self, adapter: str | None, max_pixels: int | None = None) -> None:
        """Put another adapter on the same weights, or none, with the processor that goes with it.

        Raises InputError for an adapter that does not fit; the model is of no use then.
        """
        from peft import PeftModel

        processor = self._load_processor(adapter, max_pixels)
        check_fit(adapter or self._checkpoint[0], self.model, processor)
        model = self.model.unload() if isinstance(self.model, PeftModel) else self.model
        if adapter is not None:
            model = add_adapter(model, adapter).to(self.device)
        self._use(model.eval(), processor, self.share_prefix)

    def _load_processor(self, adapter: str | None, max_pixels: int | None) -> Any:
        """An adapter's folder holds the processor it was trained with, pixel cap included."""
        if adapter is not None:
            read_config(adapter)
            if (Path(adapter) / "processor_config.json").is_file():
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
        self._looks = self.model_type in KEEPING  # tests hold what a look ahead says of these families
        self._reader = Inputs(processor, self.model_type)
        self._scores = ScoreReader(processor.tokenizer)
        self._lists = ListReader(self._scores.encode)
        size = model.get_output_embeddings().weight.shape[0]
        self._grammars = Grammars(processor.tokenizer, size, self.decoding["eos_token_id"])

    def forget(self) -> None:
        """Drop what is kept from one batch to the next: shared texts and encoded photos."""
        self._prefixes.clear()
        self._encoded = None

    def generate(
        self,
        rows: Sequence[Row],
        max_new_tokens: int,
        lead_in: str | None = None,
        top_logprobs: int | None = None,
        structure: Structure | None = None,
        guess: Structure | None = None,
        prepared: Any = None,
    ) -> list[Response]:
        """One answer to each row, special tokens left out.

        Raises InputError where a row is one that the processor does not take.

        Args:
            lead_in: with it, how probable every score is after this text, such as ``{"score": ``, and every list that a
                structure has. An empty one stands for the answer's own text up to its score.
            top_logprobs: how many alternatives to each token of the answer to give.
            structure: the form that answers are held to. They end of themselves, whatever ``max_new_tokens`` is.
            guess: the form that free answers most likely have, and then take fewer passes; no answer changes.
            prepared: what ``prepare`` made of the rows.
        """
        import torch

        form: Drafted | None = None
        if structure is not None:
            form, max_new_tokens = self._grammars.hold(structure, len(rows)), structure.longest + 1
        elif guess is not None:
            form = self._grammars.follow(guess, len(rows))
        inputs, cache = self._inputs(rows, prepared), None
        look = None if lead_in is None else ScoreLook(self._scores, lead_in)
        logprobs: list[list[dict[str, Any]]] = [[] for _ in rows]

        def keep(going: Sequence[int], tokens: Sequence[int], logits: Any) -> None:
            for row, entry in zip(going, self._top_logprobs(logits, tokens, top_logprobs or 0), strict=True):
                logprobs[row].append(entry)

        listen = None if top_logprobs is None else keep

        with torch.inference_mode():
            if self.share_prefix and all(len(images) == 1 and messages == rows[0][0] for messages, images in rows):
                cache = self._share_prefix(inputs)
            reading = Reading(self._base(), inputs, cache)
            ends = self.decoding["eos_token_id"]
            if self.model_type in KEEPING:
                answers = write(reading, len(rows), ends, max_new_tokens, form, look, listen)
            else:
                held = form if isinstance(form, Constrained) else None
                answers = self._generate(inputs, max_new_tokens, held, listen)
            texts = self.processor.batch_decode(answers, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            distributions = lists = cast("Sequence[dict[str, float] | None]", [None] * len(rows))
            if look is not None:
                distributions = look.distributions(reading, texts)
                if structure is not None and structure.keys:
                    lists = self._lists.distributions(reading, structure.keys, texts)
        return [
            Response(
                texts[row],
                complete=not set(ends).isdisjoint(answers[row]),
                logprobs=None if top_logprobs is None else logprobs[row],
                distribution=distributions[row],
                lists=lists[row],
                willing=math.exp(form.log_willing[row]) if isinstance(form, Constrained) else None,
            )
            for row in range(len(rows))
        ]

    def check_look_ahead(self, row: Row) -> None:
        """Raises InputError where the model cannot say in one pass how probable each of many texts is.

        A family that is not known here is asked about two tokens in branches and about the second alone. They differ
        where tokens see more than a mask shows them (linear attention), or other positions.
        """
        import torch

        if self._looks:
            return
        base, inputs = self._base(), self._inputs([row])
        first, second = (self._scores.encode(digit)[-1] for digit in "01")
        tree = TokenTree([(first,), (second,)])
        wide = {name: one for name, one in inputs.items() if one.shape == inputs["input_ids"].shape}
        tails = {"input_ids": second, "attention_mask": 1}
        longer = {name: torch.nn.functional.pad(one, (0, 1), value=tails.get(name, 0)) for name, one in wide.items()}
        why = ""
        try:
            with torch.inference_mode():
                logits, begun = Reading(base, inputs).read([tree])
                found = logits[0, tree.nodes[second,] - begun].float()
                known = base(**{**inputs, **longer}, logits_to_keep=1).logits[0, -1].float()
            self._looks = bool((found - known).abs().mean() <= _LOOKS_LIKE * known.std())
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            why = f" ({first_line(error)})"
        if not self._looks:
            raise InputError(
                f"{self._checkpoint[0]}: is {self.model_type}, whose probabilities of all scores and lists cannot be "
                f"had in one pass{why}; take --decoding greedy, in cprt score --structured false"
            )

    def _generate(
        self, inputs: Any, max_new_tokens: int, form: Constrained | None, listen: Callable[..., None] | None
    ) -> list[list[int]]:
        """As ``write`` does, by the library, which knows all families: a pass for each token.

        What generation_config.json asks for besides ``decoding`` is left out of account.
        """
        from transformers import GenerationConfig

        base, ends = self._base(), set(self.decoding["eos_token_id"])
        rows, width = inputs["input_ids"].shape

        def choose(ids: Any, logits: Any) -> Any:
            written = ids[:, width:].tolist()
            allowed = logits
            if form is not None:
                for row, tokens in enumerate(written):
                    if tokens:
                        form.take(row, tokens[-1])
                allowed = form.allow(range(rows), logits)
            if listen is not None:
                going = [row for row in range(rows) if ends.isdisjoint(written[row])]
                listen(going, allowed[going].argmax(-1).tolist(), logits[going])
            return allowed

        by_hand = None if form is None and listen is None else [choose]  # it waits for the card at each token
        stated, base.generation_config = base.generation_config, GenerationConfig(**self.decoding)
        try:
            ids = base.generate(**inputs, max_new_tokens=max_new_tokens, logits_processor=by_hand)
        finally:
            base.generation_config = stated
        return [of_row.tolist() for of_row in ids[:, width:]]

    def _top_logprobs(self, logits: Any, tokens: Sequence[int], count: int) -> list[dict[str, Any]]:
        """For each row of (rows, V) logits, the token that was chosen and the ``count`` most probable ones."""

        def text(token: int) -> str:
            return str(self.processor.tokenizer.decode([token]))

        log_probabilities = logits.float().log_softmax(-1)
        values, listed = (one.tolist() for one in log_probabilities.topk(min(count, logits.shape[-1])))
        chosen = log_probabilities[list(range(len(tokens))), tokens].tolist()
        return [
            {
                "token": text(token),
                "logprob": chosen[row],
                "top_logprobs": [
                    {"token": text(other), "logprob": value}
                    for other, value in zip(listed[row], values[row], strict=True)
                ],
            }
            for row, token in enumerate(tokens)
        ]

    def prepare(self, rows: Sequence[Row]) -> Any:
        """What ``generate`` makes of rows before the model sees them, for any thread; None where it will raise."""
        try:
            return self._made(rows)
        except InputError:
            return None

    def _made(self, rows: Sequence[Row]) -> Any:
        """A model on the processor takes whole photos: who reads them completes them too."""
        from cprt.images.patches import complete

        inputs = self._reader.make(rows)
        if self.device == "cpu":
            complete(inputs, self.processor.image_processor, self.model.dtype)
        return inputs

    def _inputs(self, rows: Sequence[Row], prepared: Any = None) -> Any:
        """What the model is given for the rows, padded on the left; encoded photos in place of their pixels."""
        import torch

        from cprt.images.patches import complete

        inputs = self._made(rows) if prepared is None else prepared
        inputs = inputs.to(self.device, dtype=self.model.dtype)
        complete(inputs, self.processor.image_processor, self.model.dtype)
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
