"""Rows of pairs -> batches with labels on the answer alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from cprt.errors import InputError
from cprt.models.checkpoint import AS_TENSORS
from cprt.models.decoding.soft_scores import SoftScores
from cprt.prompts import Messages
from cprt.records import Pair
from cprt.taxonomy import Taxonomy
from train.loading.transport import Packed

IGNORED = -100
_PADDING = {"labels": IGNORED, "attention_mask": 0, "mm_token_type_ids": 0, "cross_attention_mask": 0}


@dataclass(frozen=True)
class _Prompt:
    """As the template renders it, the tokens of its texts around photos, and those of answers, with their labels."""

    rendered: str
    texts: list[torch.Tensor]
    answers: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class PairCollator:
    """Rows -> a batch whose labels are the answer's tokens up to its end, and ``IGNORED`` elsewhere.

    The pairs of a run ask the same, or one of two: a prompt is rendered and tokenised once, and put around the tokens
    of each photo. Special tokens stand there, which cut a text apart, so that these are the tokens of the whole. So is
    an answer, which comes again in the next epoch if not before. What a template writes after an answer's end, such as
    Qwen's line break, is never generated.

    In a process that reads ahead the batch is ``Packed``.

    Args:
        processor: photos are what its image processor makes of them, such as bytes (``cprt.images.patches.in_bytes``).
        score_width, taxonomy: of soft labels for the score's digits (``cprt.models.decoding.soft_scores``); None: none.
            What they change stands beside the labels, as ``softened``.
    """

    def __init__(self, processor: Any, score_width: float | None = None, taxonomy: Taxonomy | None = None):
        self.processor = processor
        taxonomy = taxonomy or Taxonomy.default()
        self.soft = None if score_width is None else SoftScores(self._encode, score_width, taxonomy)
        self._prompts: dict[str, _Prompt] = {}

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Any:
        """Raises InputError when the chat template ends an answer otherwise than generation does."""
        photos, photo_ids = self._photos([image for row in rows for image in row["images"]])
        made = [self._row(row, photo_ids) for row in rows]
        if "cross_attention_mask" in photos:  # Mllama: every token from the photo on sees it
            for row, mask_LIT in zip(made, photos.pop("cross_attention_mask"), strict=True):
                before = int((row["input_ids"] == self.processor.image_token_id).nonzero()[0, 0])
                row["cross_attention_mask"] = mask_LIT[-1:].repeat(len(row["input_ids"]), 1, 1)
                row["cross_attention_mask"][:before] = 0
        padding = _PADDING | {"input_ids": self.processor.tokenizer.pad_token_id}
        batch = photos | {name: pad_sequence([row[name] for row in made], True, padding[name]) for name in made[0]}
        if self.soft:
            batch["softened"] = self.softened(rows, batch["labels"])
        return batch if torch.utils.data.get_worker_info() is None else Packed(batch)

    def check(self, pairs: Sequence[Pair]) -> None:
        """Raises InputError for a pair of whose score no soft label can be made."""
        for pair in pairs if self.soft is not None else []:
            if pair.score is None or pair.level is None:
                raise InputError(f"score_width: pair {pair.id!r} has no score or no level")
            try:
                self._softened(pair.completion, pair.score, pair.level)
            except InputError as error:
                raise InputError(f"score_width: pair {pair.id!r}: {error}") from error

    def softened(self, rows: Sequence[dict[str, Any]], labels_BL: torch.Tensor) -> dict[str, torch.Tensor]:
        """By what the loss of soft labels is more than that of ``labels_BL``: the sum of weight x logit.

        A cross-entropy is log sum exp of the logits less their mean under the label, so only that mean differs. Each
        of M terms has ``row`` and ``column`` of a label, a ``token``, and as ``weight`` what the label has of the token
        less what the soft one has.
        """
        terms: list[tuple[int, int, int, float]] = []
        for row, (content, labels) in enumerate(zip(rows, labels_BL, strict=True)):
            first = int((labels != IGNORED).nonzero()[0, 0])
            for place, chances in self._softened(content["completion"], *content["truth"]).items():
                column = first + place
                true = int(labels[column])
                terms += [(row, column, token, float(token == true) - chance) for token, chance in chances.items()]
        places = torch.tensor([term[:3] for term in terms], dtype=torch.long).reshape(-1, 3)
        softened = dict(zip(("row", "column", "token"), places.T, strict=True))
        return {**softened, "weight": torch.tensor([term[3] for term in terms], dtype=torch.float32)}

    def _softened(self, completion: Messages, score: float, level: int) -> dict[int, dict[int, float]]:
        assert self.soft
        return self.soft.labels(completion[0]["content"][0]["text"], score, level)

    def _row(self, row: dict[str, Any], photo_ids: Iterator[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Of one pair what has a place for each token; its photos' tokens are the next ones.

        Raises InputError where a new prompt's tokens around photos are not those of the prompt as a whole.
        """
        key = repr(row["prompt"])
        prompt = self._prompts.get(key) or self._prompt(row["prompt"])
        texts = zip(prompt.texts[1:], row["images"], strict=True)
        asked = torch.cat([prompt.texts[0], *(part for text, _ in texts for part in (next(photo_ids), text))])
        if key not in self._prompts:
            whole = self._process([prompt.rendered], [row["images"]] if row["images"] else None)["input_ids"][0]
            if not torch.equal(asked, whole):
                raise InputError("the processor cuts a prompt otherwise than its texts before and behind the photo")
            self._prompts[key] = prompt
        answer, labelled = prompt.answers.get(repr(row["completion"])) or self._answer(prompt, row)
        ids = torch.cat([asked, answer])
        labels = torch.cat([torch.full_like(asked, IGNORED), labelled])
        made = {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}
        if self.processor.return_mm_token_type_ids:
            made["mm_token_type_ids"] = (ids == self.processor.image_token_id).to(ids)
        return made

    def _prompt(self, messages: Messages) -> _Prompt:
        rendered = self.processor.apply_chat_template(messages, add_generation_prompt=True)
        return _Prompt(rendered, [self._tokens(text) for text in rendered.split(self.processor.image_token)])

    def _answer(self, prompt: _Prompt, row: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens behind the prompt, and of them those that are labels."""
        eos = self.processor.tokenizer.eos_token
        full = self.processor.apply_chat_template(row["prompt"] + row["completion"])
        if not full.startswith(prompt.rendered):
            raise InputError("the chat template renders a prompt differently when an answer follows it")
        if eos not in full[len(prompt.rendered) :]:
            raise InputError(f"the chat template does not end an answer with {eos!r}")
        answer = self._tokens(full[len(prompt.rendered) :])
        said = int((answer == self.processor.tokenizer.eos_token_id).nonzero()[0, 0]) + 1
        labels = torch.full_like(answer, IGNORED)
        labels[:said] = answer[:said]
        prompt.answers[repr(row["completion"])] = answer, labels
        return answer, labels

    def _photos(self, images: Sequence[Any]) -> tuple[dict[str, torch.Tensor], Iterator[torch.Tensor]]:
        """What the processor makes of photos, and the tokens of each."""
        if not images:
            return {}, iter(())
        made = self._process([self.processor.image_token] * len(images), [[image] for image in images])
        # Llama's has a beginning
        ids_of_each = [ids[ids == self.processor.image_token_id] for ids in made["input_ids"]]
        tokens = {"input_ids", "attention_mask", "mm_token_type_ids"}
        return {name: tensor for name, tensor in made.items() if name not in tokens}, iter(ids_of_each)

    def _tokens(self, text: str) -> torch.Tensor:
        return torch.tensor(self._encode(text), dtype=torch.long)

    def _encode(self, text: str) -> list[int]:
        return list(self.processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _process(self, texts: list[str], images: Any) -> dict[str, torch.Tensor]:
        return dict(self.processor(text=texts, images=images, **AS_TENSORS))
