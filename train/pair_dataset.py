"""Pairs on disk -> rows as TRL's trainer takes them -> batches with labels on the answer alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from cprt.errors import InputError
from cprt.images import load_image
from cprt.prompts import arrange
from cprt.records import Pair

IGNORED = -100


def pair_dataset(pairs: Sequence[Pair], root: Path, model_type: str) -> Dataset:
    """A data set of ``prompt, completion, images`` rows that opens each photo when its row is read.

    Photos go through the same reader as in evaluation. Raises InputError for a photo that is gone.
    """
    for pair in pairs:
        if not os.path.isfile(root / pair.images[0]):
            raise InputError(f"{root / pair.images[0]}: no such image (pair {pair.id!r})")

    def rows(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        chosen = [pairs[index] for index in batch["index"]]
        return {
            "prompt": [arrange(pair.prompt, model_type) for pair in chosen],
            "completion": [pair.completion for pair in chosen],
            "images": [[load_image(root / image) for image in pair.images] for pair in chosen],
        }

    return Dataset.from_dict({"index": list(range(len(pairs)))}).with_transform(rows)


def pair_collator(processor: Any, model_type: str) -> Any:
    """Rows -> a batch whose labels are the answer's tokens and ``IGNORED`` elsewhere."""
    if model_type == "mllama":
        return MllamaCollator(processor)
    return DataCollatorForVisionLanguageModeling(processor, max_length=None, completion_only_loss=True)


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
