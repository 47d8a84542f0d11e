"""Pairs on disk -> rows as TRL's trainer takes them; ``train/loading/collator.py`` makes batches of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.adapter import recorded_digests
from cprt.models.checkpoint import special_token
from cprt.prompts import Messages, arrange, digest
from cprt.provenance import read_record
from cprt.records import Pair, inside


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


def taxonomy_of(file: Path) -> str | None:
    """Digest of the taxonomy that ``cprt pairs`` recorded beside the pairs; None where nothing names one."""
    digest = _record_beside(file).get("taxonomy")
    return digest if isinstance(digest, str) else None


def digests(pairs: Sequence[Pair]) -> list[str]:
    """What names the prompts that pairs ask, each once."""
    return sorted({digest(pair.prompt) for pair in pairs})


def _record_beside(file: Path) -> dict[str, Any]:
    beside = file.parent / "run.json"
    return read_record(beside) if beside.is_file() else {}


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
