"""One way to ask any model and keep what it says: a model that runs here, or one behind an endpoint."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import image_size, load_image
from cprt.models.adapter import read_config
from cprt.models.endpoint import Endpoint
from cprt.models.local import LocalModel
from cprt.models.response_cache import CacheWriter, ResponseCache
from cprt.models.spec import ModelSpec, Request, Response
from cprt.prompts import digest


class Model:
    """A model that answers requests. A local one is loaded at the first request and stays loaded.

    Raises InputError for an endpoint on another machine without ``allow_remote``, or whose key is not there.
    """

    def __init__(self, spec: ModelSpec, allow_remote: bool = False):
        self.spec = spec
        self._endpoint = Endpoint(spec, allow_remote) if spec.base_url else None
        self._local: LocalModel | None = None
        if spec.adapter is not None:
            read_config(spec.adapter)
            if spec.other_base is not None:
                print(f"note: {spec.other_base}", file=sys.stderr)

    @property
    def is_remote(self) -> bool:
        """Whether photos leave this machine."""
        return self._endpoint is not None and self._endpoint.is_remote

    def ask(self, requests: Mapping[str, Request], cache: ResponseCache, label: str) -> None:
        """Put the response to every request (by its key) into ``cache``, each durable as soon as it has come.

        Responses are rows of ``Response``, errors among them. Raises Stopped (an InputError) when the run cannot go on;
        what has come until then is kept.
        """
        progress = tqdm(total=len(requests), desc=label, unit="call")
        with closing(progress), CacheWriter(cache, progress.update) as writer:
            if self._endpoint is None:
                self._ask_local(requests, writer)
            else:
                asyncio.run(self._ask_endpoint(self._endpoint, requests, writer))
        cut = sum(key in cache and cache[key].get("complete") is False for key in requests)
        if cut:
            print(
                f"note: {label}: {cut} of {len(requests)} answers ran into max_new_tokens {self.spec.max_new_tokens} "
                "and are cut off",
                file=sys.stderr,
            )

    @staticmethod
    async def _ask_endpoint(endpoint: Endpoint, requests: Mapping[str, Request], writer: CacheWriter) -> None:
        async with endpoint:
            await endpoint.ask_all(requests.items(), lambda key, response: writer.keep(key, response.row()))

    def _ask_local(self, requests: Mapping[str, Request], writer: CacheWriter) -> None:
        spec = self.spec
        for batch in _batches(requests, spec.batch_size):
            if self._local is None:
                self._local = LocalModel(
                    spec.model, spec.adapter, revision=spec.revision, dtype=spec.dtype, max_pixels=spec.max_pixels
                )
            for key, response in answer_batch(self._local, batch, spec.max_new_tokens, spec.top_logprobs):
                writer.keep(key, response.row())


def _batches(requests: Mapping[str, Request], size: int) -> Iterator[list[tuple[str, Request]]]:
    """Requests that differ only in their photo together, others with those of as many images; the largest first.

    All prompts about the same photos follow one another, so that a model encodes these photos once.
    """
    areas = {path: _pixels(path) for request in requests.values() for path in request.images}

    def length(item: tuple[str, Request]) -> int:
        return sum(areas[path] for path in item[1].images) or len(str(item[1].messages))

    ordered = sorted(requests.items(), key=lambda item: (-length(item), item[1].images, item[0]))
    groups: dict[tuple[int, str | None], list[tuple[str, Request]]] = {}
    for item in ordered:
        groups.setdefault((len(item[1].images), item[1].lead_in), []).append(item)
    for (count, _), group in groups.items():
        if count != 1:
            for start in range(0, len(group), size):
                yield group[start : start + size]
            continue
        photos = list(dict.fromkeys(request.images for _, request in group))
        chunk_of = {images: number // size for number, images in enumerate(photos)}
        batches: dict[tuple[int, str], list[tuple[str, Request]]] = {}
        for key, request in group:
            place = chunk_of[request.images], digest(request.messages)
            batches.setdefault(place, []).append((key, request))
        yield from (batches[place] for place in sorted(batches))


def _pixels(path: Path) -> int:
    """How large a photo is, from its header; 0 where there is none to read."""
    try:
        return math.prod(image_size(path))
    except InputError:
        return 0


def answer_batch(
    model: LocalModel, batch: list[tuple[str, Request]], max_new_tokens: int, top_logprobs: int | None = None
) -> list[tuple[str, Response]]:
    """Responses of a local model to (key, request) rows. A photo that cannot be read gives an error, others go on."""
    responses: list[tuple[str, Response]] = []
    readable: list[tuple[str, Request, list[Any]]] = []
    for key, request in batch:
        try:
            readable.append((key, request, [load_image(path) for path in request.images]))
        except InputError as error:
            responses.append((key, Response(error=str(error))))
    if readable:
        rows = [(request.messages, images) for _, request, images in readable]
        made = {
            "batch": len(rows),
            "dtype": model.dtype,
            "device": model.device.split(":")[0],
            "image_size": {name: side for name, side in dict(model.size).items() if side is not None},
            "decoding": model.decoding,
        }
        if model.revision:
            made["revision"] = model.revision
        generations = model.generate(rows, max_new_tokens, readable[0][1].lead_in, top_logprobs)
        for (key, _, _), generation in zip(readable, generations, strict=True):
            response = Response(
                generation.text,
                generation.complete,
                logprobs=generation.logprobs,
                distribution=generation.distribution,
                made=made,
            )
            responses.append((key, response))
    return responses
