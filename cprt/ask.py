"""One way to ask any model and keep what it says: a model that runs here, or one behind an endpoint."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from tqdm import tqdm

from cprt.endpoint import Endpoint
from cprt.errors import InputError
from cprt.images import load_image
from cprt.local import Generation, LocalModel
from cprt.prompts import arrange, digest
from cprt.questions import ModelSpec, Question, Reply
from cprt.store import AnswerStore, Keeper


class Model:
    """A model that answers questions. A local one is loaded at the first question and stays loaded.

    Raises InputError for an endpoint on another machine without ``allow_remote``, or whose key is not there.
    """

    def __init__(self, spec: ModelSpec, allow_remote: bool = False):
        self.spec = spec
        self._endpoint = Endpoint(spec, allow_remote) if spec.base_url else None
        self._local: LocalModel | None = None

    @property
    def is_remote(self) -> bool:
        """Whether photos leave this machine."""
        return self._endpoint is not None and self._endpoint.is_remote

    def ask(self, questions: Mapping[str, Question], store: AnswerStore, label: str) -> None:
        """Put the reply to every question (by its key) into ``store``, each durable as soon as it has come.

        Replies are rows of ``Reply``, errors among them. Raises Stopped (an InputError) when the run cannot go on; what
        has come until then is kept.
        """
        progress = tqdm(total=len(questions), desc=label, unit="call")
        with closing(progress), Keeper(store, progress.update) as keeper:
            if self._endpoint is None:
                self._ask_local(questions, keeper)
            else:
                asyncio.run(self._ask_endpoint(self._endpoint, questions, keeper))

    @staticmethod
    async def _ask_endpoint(endpoint: Endpoint, questions: Mapping[str, Question], keeper: Keeper) -> None:
        async with endpoint:
            await endpoint.ask_all(questions.items(), lambda key, reply: keeper.keep(key, reply.row()))

    def _ask_local(self, questions: Mapping[str, Question], keeper: Keeper) -> None:
        spec = self.spec
        for batch in _batches(questions, spec.batch_size):
            if self._local is None:
                self._local = LocalModel(spec.model, spec.adapter, revision=spec.revision, dtype=spec.dtype,
                                         max_pixels=spec.max_pixels)  # fmt: skip
            for key, reply in answer_batch(self._local, batch, spec.max_new_tokens):
                keeper.keep(key, reply.row())


def _batches(questions: Mapping[str, Question], size: int) -> Iterator[list[tuple[str, Question]]]:
    """Questions that differ only in their photo together, others with those of as many images; the longest first."""

    def kind(item: tuple[str, Question]) -> str:
        question = item[1]
        return digest(question.messages) if len(question.images) == 1 else str(len(question.images))

    def length(item: tuple[str, Question]) -> int:
        return sum(path.stat().st_size for path in item[1].images) or len(str(item[1].messages))

    ordered = sorted(questions.items(), key=lambda item: (kind(item), -length(item), item[0]))
    for _, group in itertools.groupby(ordered, key=kind):
        while batch := list(itertools.islice(group, size)):
            yield batch


def answer_batch(model: LocalModel, batch: list[tuple[str, Question]], max_new_tokens: int) -> list[tuple[str, Reply]]:
    """Replies of a local model to (key, question) rows. A photo that cannot be read gives an error, others go on."""
    replies: list[tuple[str, Reply]] = []
    readable: list[tuple[str, Question, list[Any]]] = []
    for key, question in batch:
        try:
            readable.append((key, question, [load_image(path) for path in question.images]))
        except InputError as error:
            replies.append((key, Reply(error=str(error))))
    if readable:
        first = readable[0][1]
        if all(len(images) == 1 and question.messages == first.messages for _, question, images in readable):
            photos = [images[0] for _, _, images in readable]
            generations = model.generate(photos, first.messages, max_new_tokens)  # computes the shared text once
        else:
            generations = _generate(model, [(question, images) for _, question, images in readable], max_new_tokens)
        for (key, _, _), generation in zip(readable, generations, strict=True):
            replies.append((key, Reply(generation.text, generation.complete)))
    return replies


def _generate(model: LocalModel, rows: list[tuple[Question, list[Any]]], max_new_tokens: int) -> list[Generation]:
    """As ``LocalModel.generate``, for questions that share nothing, with any number of images, none included."""
    import torch

    processor = model.processor
    texts = [processor.apply_chat_template(arrange(question.messages, model.model_type), add_generation_prompt=True)
             for question, _ in rows]  # fmt: skip
    images = [images for _, images in rows] if any(images for _, images in rows) else None
    inputs = processor(text=texts, images=images, padding=True, add_special_tokens=False, return_tensors="pt")
    inputs = inputs.to(model.device, dtype=model.model.dtype)
    with torch.inference_mode():
        output = model.model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    answers = output[:, inputs["input_ids"].shape[1] :].tolist()
    ends = model.model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    decoded = processor.batch_decode(answers, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return [Generation(text, not ends.isdisjoint(ids)) for text, ids in zip(decoded, answers, strict=True)]
