"""Pairs on disk -> rows as TRL's trainer takes them -> batches with labels on the answer alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.adapter import recorded_digests
from cprt.models.checkpoint import special_token
from cprt.models.decoding.soft_scores import SoftScores
from cprt.prompts import Messages, arrange, digest
from cprt.records import Pair, inside, read_object
from cprt.taxonomy import Taxonomy

IGNORED = -100
_PADDING = {"labels": IGNORED, "attention_mask": 0, "mm_token_type_ids": 0, "cross_attention_mask": 0}


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


class PairCollator:
    """Rows -> a batch whose labels are the answer's tokens up to its end, and ``IGNORED`` elsewhere.

    The pairs of a run ask the same, or one of two: a prompt is tokenised once, and put around the tokens of each photo.
    Special tokens stand there, which cut a text apart, so that these are the tokens of the whole. What a template
    writes after an answer's end, such as Qwen's line break, is never generated.

    Args:
        score_width, taxonomy: of soft labels for the score's digits (``cprt.models.decoding.soft_scores``); None: none.
            What they change stands beside the labels, as ``softened``.
    """

    def __init__(self, processor: Any, score_width: float | None = None, taxonomy: Taxonomy | None = None):
        self.processor = processor
        taxonomy = taxonomy or Taxonomy.default()
        self.soft = None if score_width is None else SoftScores(self._encode, score_width, taxonomy)
        self._prompts: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # tokens before the photo, and behind it

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Raises InputError when the chat template ends an answer otherwise than generation does."""
        made = [self._row(row) for row in rows]  # one by one, in memory that is used again
        padding = _PADDING | {"input_ids": self.processor.tokenizer.pad_token_id}
        batch = {
            name: pad_sequence([one[name] for one in made], True, padding[name])
            if name in padding
            else _together([one[name] for one in made if name in one])
            for name in {name: None for one in made for name in one}
        }
        return batch | {"softened": self.softened(rows, batch["labels"])} if self.soft else batch

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

    def _row(self, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Of one pair: what has a place for each token, padded on the right in a batch, and the photo."""
        processor, eos = self.processor, self.processor.tokenizer.eos_token
        prompt = processor.apply_chat_template(row["prompt"], add_generation_prompt=True)
        full = processor.apply_chat_template(row["prompt"] + row["completion"])
        if not full.startswith(prompt):
            raise InputError("the chat template renders a prompt differently when an answer follows it")
        if eos not in full[len(prompt) :]:
            raise InputError(f"the chat template does not end an answer with {eos!r}")
        photo, before, behind = self._asked(prompt, row["images"])
        answer = self._tokens(full[len(prompt) :])
        ids = torch.cat([before, photo["input_ids"][0], behind, answer])
        start, from_photo = len(ids) - len(answer), len(ids) - len(before)
        said = int((answer == processor.tokenizer.eos_token_id).nonzero()[0, 0]) + 1
        labels = torch.full_like(ids, IGNORED)
        labels[start : start + said] = answer[:said]
        made = {**photo, "input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}
        if "mm_token_type_ids" in photo:
            made["mm_token_type_ids"] = (ids == processor.image_token_id).to(ids)
        if "cross_attention_mask" in photo:  # Mllama: every token from the photo on sees it
            seen = photo["cross_attention_mask"][0, -1:].expand(from_photo, -1, -1)
            made["cross_attention_mask"] = torch.cat([torch.zeros_like(seen[:1]).expand(len(before), -1, -1), seen])
        return made

    def _asked(self, prompt: str, images: Sequence[Any]) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        """What the processor makes of a row's photo, and the prompt's tokens before it and behind it.

        Raises InputError where they are not those of the prompt as a whole.
        """
        if len(images) != 1:  # never one of ``check_pairs``
            return self._process(prompt, images or None), self._tokens(""), self._tokens("")
        photo = self._process(self.processor.image_token, images)
        ids_1N = photo["input_ids"]
        photo["input_ids"] = ids_1N[:, ids_1N[0] == self.processor.image_token_id]  # Llama's processor adds a beginning
        if prompt not in self._prompts:
            before, behind = map(self._tokens, prompt.split(self.processor.image_token))
            whole = self._process(prompt, images)["input_ids"][0]
            if not torch.equal(torch.cat([before, photo["input_ids"][0], behind]), whole):
                raise InputError("the processor cuts a prompt otherwise than its texts before and behind the photo")
            self._prompts[prompt] = before, behind
        return photo, *self._prompts[prompt]

    def _tokens(self, text: str) -> torch.Tensor:
        return torch.tensor(self._encode(text), dtype=torch.long)

    def _encode(self, text: str) -> list[int]:
        return list(self.processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _process(self, text: str, images: Any) -> dict[str, torch.Tensor]:
        return dict(
            self.processor(text=[text], images=images and [images], add_special_tokens=False, return_tensors="pt")
        )


def _together(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tensors as one; in a process that reads ahead, in memory that the trainer's can see, without a further copy."""
    out = None
    if torch.utils.data.get_worker_info() is not None:  # as torch's own collator does
        numel = sum(part.numel() for part in parts)
        out = parts[0].new(parts[0]._typed_storage()._new_shared(numel, device=parts[0].device)).resize_(0)
    return torch.cat(list(parts), out=out)
