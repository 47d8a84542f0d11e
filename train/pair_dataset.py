"""Pairs on disk -> rows as TRL's trainer takes them -> batches with labels on the answer alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.adapter import recorded_digests
from cprt.models.checkpoint import special_token
from cprt.models.decoding.soft_scores import SoftScores
from cprt.prompts import Messages, arrange, digest
from cprt.records import Pair, inside, read_object
from cprt.taxonomy import Taxonomy

IGNORED = -100


def pair_dataset(pairs: Sequence[Pair], root: Path, model_type: str) -> Dataset:
    """A data set of ``prompt, completion, images`` rows that opens each photo when its row is read.

    Photos go through the same reader as in evaluation. Raises InputError for a photo that is gone.
    """
    for pair in pairs:
        if not os.path.isfile(root / pair.images[0]):
            raise InputError(f"{root / pair.images[0]}: no such image (pair {pair.id!r})")

    return Dataset.from_dict({"index": list(range(len(pairs)))}).with_transform(PairRows(pairs, root, model_type))


@dataclass(frozen=True)
class PairRows:
    """Numbers of pairs -> their rows. A class, so that it can be sent to the processes that load ahead."""

    pairs: Sequence[Pair]
    root: Path
    model_type: str

    def __call__(self, batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        chosen = [self.pairs[index] for index in batch["index"]]
        return {
            "prompt": [arrange(pair.prompt, self.model_type) for pair in chosen],
            "completion": [pair.completion for pair in chosen],
            "images": [[load_image(self.root / image) for image in pair.images] for pair in chosen],
            "truth": [(pair.score, pair.level) for pair in chosen],
        }


def check_pairs(pairs: Sequence[Pair], file: Path, processor: Any, at_least: int) -> None:
    """Raises InputError for a pair that is no question about one photo with one answer, or asks another prompt.

    One run trains one prompt, or the two of mixed pairs, which it records, in steps of ``at_least`` pairs.
    """
    recorded, first = recorded_digests(_record_beside(file)), digest(pairs[0].prompt) if pairs else ""
    known = recorded if first in recorded else [first]
    if len(pairs) < at_least:
        raise InputError.at(file, f"{len(pairs)} pairs make no step of global_batch_size {at_least}")
    for pair in pairs:
        name = f"pair {pair.id!r}"
        prompt, completion = _texts_and_images(pair.prompt), _texts_and_images(pair.completion)
        if prompt is None or prompt[1] != 1:
            raise InputError.at(file, f"{name} is not made of texts and one image", field="prompt")
        if completion is None or completion[1] or [message["role"] for message in pair.completion] != ["assistant"]:
            raise InputError.at(file, f"{name} has another completion than one text of the assistant")
        if (token := special_token(processor, prompt[0] + completion[0])) is not None:
            raise InputError.at(file, f"{name} holds {token!r}, which a model takes for something else than text")
        if not "".join(completion[0]).strip():
            raise InputError.at(file, f"{name} has an empty answer", field="completion")
        if digest(pair.prompt) not in known:
            raise InputError.at(file, f"{name} is asked otherwise than {pairs[0].id!r}", field="prompt")


def prompt_of(pairs: Sequence[Pair], file: Path) -> dict[str, Any]:
    """What names the prompts of the pairs: as ``cprt pairs`` recorded them beside them, else a digest alone."""
    asked, record = digests(pairs), _record_beside(file)
    if sorted(recorded_digests(record)) == asked:
        return inside(record, "prompt")
    beside = file.parent / "run.json"
    print(f"note: {beside} does not name the prompt of these pairs; cprt eval will not know how to ask the adapter")
    return {"name": None, "target": None, "sha256": asked[0]}


def digests(pairs: Sequence[Pair]) -> list[str]:
    """What names the prompts that pairs ask, each once."""
    return sorted({digest(pair.prompt) for pair in pairs})


def _record_beside(file: Path) -> dict[str, Any]:
    beside = file.parent / "run.json"
    return read_object(beside) if beside.is_file() else {}


def _texts_and_images(messages: Messages) -> tuple[list[str], int] | None:
    """The texts of messages and the number of their images; None where a part is something else."""
    texts, images = [], 0
    for message in messages:
        for part in message["content"] if isinstance(message["content"], list) else [None]:
            match part:
                case {"type": "text", "text": str(text)}:
                    texts.append(text)
                case {"type": "image"}:
                    images += 1
                case _:
                    return None
    return texts, images


def pair_collator(
    processor: Any, model_type: str, score_width: float | None = None, taxonomy: Taxonomy | None = None
) -> PairCollator:
    """Rows -> a batch whose labels are the answer's tokens and the end of the turn, and ``IGNORED`` elsewhere.

    With ``score_width``, beside them what soft labels of the score's digits differ in (``PairCollator.softened``).
    """
    stock = DataCollatorForVisionLanguageModeling(processor, max_length=None, completion_only_loss=True)
    soft = (
        SoftScores(partial(_tokens, processor.tokenizer), score_width, taxonomy) if score_width and taxonomy else None
    )
    return PairCollator(MllamaCollator(processor) if model_type == "mllama" else stock, processor.tokenizer, soft)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


class PairCollator:
    """A collator whose labels stop at the token that ends the answer.

    What a template writes after it, such as Qwen's line break, is never generated: the end token stops generation.
    """

    def __init__(self, collate: Any, tokenizer: Any, soft: SoftScores | None = None):
        self.collate, self.tokenizer, self.soft = collate, tokenizer, soft

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Raises InputError when the chat template ends an answer otherwise than generation does."""
        batch = self.collate(rows)
        labels_BL = batch["labels"]
        is_end = labels_BL == self.tokenizer.eos_token_id
        if not is_end.any(dim=1).all():
            raise InputError(f"the chat template does not end an answer with {self.tokenizer.eos_token!r}")
        batch["labels"] = labels_BL.masked_fill(is_end.cumsum(dim=1) - is_end.long() > 0, IGNORED)
        if self.soft is not None:
            batch["softened"] = self.softened(rows, batch["labels"])
        return batch

    def check(self, pairs: Sequence[Pair]) -> None:
        """Raises InputError for a pair of whose score no soft label can be made."""
        for pair in pairs:
            if self.soft is None:
                return
            if pair.score is None or pair.level is None:
                raise InputError(f"score_width: pair {pair.id!r} has no score or no level")
            try:
                self.soft.labels(pair.completion[0]["content"][0]["text"], pair.score, pair.level)
            except InputError as error:
                raise InputError(f"score_width: pair {pair.id!r}: {error}") from error

    def softened(self, rows: Sequence[dict[str, Any]], labels_BL: torch.Tensor) -> dict[str, torch.Tensor]:
        """By what the loss of soft labels is more than that of ``labels_BL``: the sum of weight x logit.

        A cross-entropy is log sum exp of the logits less their mean under the label, so only that mean differs. Each
        of M terms has ``row`` and ``column`` of a label, a ``token``, and as ``weight`` what the label has of the token
        less what the soft one has.
        """
        assert self.soft is not None
        terms: list[tuple[int, int, int, float]] = []
        for row, (content, labels) in enumerate(zip(rows, labels_BL, strict=True)):
            first = int((labels != IGNORED).nonzero()[0, 0])
            answer = content["completion"][0]["content"][0]["text"]
            for place, chances in self.soft.labels(answer, *content["truth"]).items():
                true = int(labels[first + place])
                weights = {true: 1.0, **{token: -chance for token, chance in chances.items() if token != true}}
                weights[true] -= chances[true]
                terms += [(row, first + place, token, weight) for token, weight in weights.items()]
        places = torch.tensor([term[:3] for term in terms], dtype=torch.long).reshape(-1, 3)
        softened = dict(zip(("row", "column", "token"), places.T, strict=True))
        return {**softened, "weight": torch.tensor([term[3] for term in terms], dtype=torch.float32)}


class MllamaCollator:
    """Batches for Llama 3.2 Vision, where TRL's collator goes wrong.

    There the processor puts a start token before the answer, which it takes for a text of its own, and the
    cross-attention mask ends with the prompt, so that the answer would not see the photo.
    """

    def __init__(self, processor: Any):
        self.processor = processor

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        prompts = [self.processor.apply_chat_template(row["prompt"], add_generation_prompt=True) for row in rows]
        fulls = [self.processor.apply_chat_template(row["prompt"] + row["completion"]) for row in rows]
        for prompt, full in zip(prompts, fulls, strict=True):
            if not full.startswith(prompt):
                raise InputError("the chat template renders a prompt differently when an answer follows it")
        tokenizer = self.processor.tokenizer
        batch = self.processor(
            text=prompts,
            images=[row["images"] for row in rows],
            padding=True,
            padding_side="right",
            add_special_tokens=False,
            return_tensors="pt",
        )
        asked = [ids[mask.bool()] for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
        answers = [
            torch.tensor(tokenizer(full[len(prompt) :], add_special_tokens=False)["input_ids"])
            for prompt, full in zip(prompts, fulls, strict=True)
        ]
        length = max(len(prompt) + len(answer) for prompt, answer in zip(asked, answers, strict=True))
        shape = (len(rows), length)
        input_ids = torch.full(shape, tokenizer.pad_token_id)
        labels = torch.full(shape, IGNORED)
        attention_mask = torch.zeros(shape, dtype=torch.long)
        for row, (prompt, answer) in enumerate(zip(asked, answers, strict=True)):
            end = len(prompt) + len(answer)
            input_ids[row, :end] = torch.cat([prompt, answer])
            labels[row, len(prompt) : end] = answer
            attention_mask[row, :end] = 1
        seen = batch[
            "cross_attention_mask"
        ]  # (rows, prompt length, images, tiles): every token after the photo sees it
        more = seen[:, -1:].expand(-1, max(0, length - seen.shape[1]), -1, -1)
        batch.update(
            input_ids=input_ids,
            labels=labels,
            attention_mask=attention_mask,
            cross_attention_mask=torch.cat([seen, more], dim=1)[:, :length],
        )
        return batch
