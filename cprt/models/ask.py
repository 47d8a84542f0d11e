"""One way to ask any model and keep what it says: a model that runs here, or one behind an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.endpoint import Endpoint
from cprt.models.local import LocalModel
from cprt.models.response_cache import AnswerStore, Keeper
from cprt.models.spec import ModelSpec, Question, Reply
from cprt.prompts import digest


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
                self._local = LocalModel(
                    spec.model, spec.adapter, revision=spec.revision, dtype=spec.dtype, max_pixels=spec.max_pixels
                )
            for key, reply in answer_batch(self._local, batch, spec.max_new_tokens, spec.top_logprobs):
                keeper.keep(key, reply.row())


def _batches(questions: Mapping[str, Question], size: int) -> Iterator[list[tuple[str, Question]]]:
    """Questions that differ only in their photo together, others with those of as many images; the largest first.

    All prompts about the same photos follow one another, so that a model encodes these photos once.
    """
    areas = {path: _pixels(path) for question in questions.values() for path in question.images}

    def length(item: tuple[str, Question]) -> int:
        return sum(areas[path] for path in item[1].images) or len(str(item[1].messages))

    ordered = sorted(questions.items(), key=lambda item: (-length(item), item[1].images, item[0]))
    groups: dict[tuple[int, str | None], list[tuple[str, Question]]] = {}
    for item in ordered:
        groups.setdefault((len(item[1].images), item[1].lead_in), []).append(item)
    for (count, _), group in groups.items():
        if count != 1:
            for start in range(0, len(group), size):
                yield group[start : start + size]
            continue
        photos = list(dict.fromkeys(question.images for _, question in group))
        chunk_of = {images: number // size for number, images in enumerate(photos)}
        batches: dict[tuple[int, str], list[tuple[str, Question]]] = {}
        for key, question in group:
            place = chunk_of[question.images], digest(question.messages)
            batches.setdefault(place, []).append((key, question))
        yield from (batches[place] for place in sorted(batches))


def _pixels(path: Path) -> int:
    """How large a photo is, from its header; 0 where there is none to read."""
    try:
        with Image.open(path) as image:
            return image.width * image.height
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return 0


def answer_batch(
    model: LocalModel, batch: list[tuple[str, Question]], max_new_tokens: int, top_logprobs: int | None = None
) -> list[tuple[str, Reply]]:
    """Replies of a local model to (key, question) rows. A photo that cannot be read gives an error, others go on."""
    replies: list[tuple[str, Reply]] = []
    readable: list[tuple[str, Question, list[Any]]] = []
    for key, question in batch:
        try:
            readable.append((key, question, [load_image(path) for path in question.images]))
        except InputError as error:
            replies.append((key, Reply(error=str(error))))
    if readable:
        rows = [(question.messages, images) for _, question, images in readable]
        made = {
            "batch": len(rows),
            "dtype": model.dtype,
            "device": model.device.split(":")[0],
            "image_size": {name: side for name, side in dict(model.size).items() if side is not None},
        }
        if model.revision:
            made["revision"] = model.revision
        generations = model.generate(rows, max_new_tokens, readable[0][1].lead_in, top_logprobs)
        for (key, _, _), generation in zip(readable, generations, strict=True):
            reply = Reply(
                generation.text,
                generation.complete,
                logprobs=generation.logprobs,
                distribution=generation.distribution,
                made=made,
            )
            replies.append((key, reply))
    return replies
