"""One way to ask any model and keep what it says: a model that runs here, or one behind an endpoint.

``open_models`` checks the models of a run before anything slow starts; ``ask`` has those requests answered that have no
answer yet, found by ``cprt.models.missing``. What became of each says ``cprt.models.outcome``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.adapter import read_config
from cprt.models.checkpoint import revision_of
from cprt.models.completion import read_logprobs
from cprt.models.endpoint import Endpoint
from cprt.models.inputs import Row, read_ahead
from cprt.models.local import LocalModel
from cprt.models.missing import Keyed, Missing, in_batches
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import CacheWriter, ResponseCache
from cprt.models.spec import ModelSpec, Request, Response

T = TypeVar("T")
Keep = Callable[[str, Response], None]


class Model:
    """A model that answers requests. A local one is loaded at the first request that can be answered.

    Raises InputError for an endpoint on another machine without ``allow_remote``, or whose key is not there.
    """

    def __init__(self, spec: ModelSpec, allow_remote: bool = False, memory: Memory | None = None):
        self.spec = spec
        self.stopped: Stopped | None = None  # why it is asked no more: a key refused, an endpoint that kept failing
        self._endpoint = Endpoint(spec, allow_remote) if spec.base_url else None
        self._memory = memory or Memory()
        if spec.adapter is not None:
            read_config(spec.adapter)
            if spec.other_base is not None:
                print(f"note: {spec.other_base}", file=sys.stderr)

    @property
    def is_remote(self) -> bool:
        """Whether photos leave this machine."""
        return self._endpoint is not None and self._endpoint.is_remote

    def check(self) -> None:
        """Raises InputError, within seconds and without loading it, for a model that the Hub does not have or give."""
        if self._endpoint is None and self.spec.model.count("/") == 1:
            revision_of(self.spec.model, self.spec.revision)

    def ask(
        self,
        requests: Collection[Request] | Mapping[str, Request],
        cache: ResponseCache,
        label: str,
        again: Collection[str] = (),
        errors: bool = True,
    ) -> None:
        """Put the responses to the requests that are ``Missing`` into ``cache``, each durable as soon as it has come.

        They are found as they are asked: memory and the wait for the first do not grow with the number of requests.
        Raises Stopped (an InputError) when the run cannot go on; what has come until then is kept.
        """
        missing = Missing(self.spec, cache, again, errors)
        if self._endpoint is None:
            batches = in_batches(requests, missing, self.spec.batch_size)
        else:
            batches = ([one] for one in missing(requests))
        with closing(batches):
            first = next(batches, None)
            if first is None:
                return
            self.check()
            wanted = requests.values() if isinstance(requests, Mapping) else requests
            photos = sum(len(request.images) for request in wanted)
            if self.is_remote and photos:
                leave = "1 image leaves" if photos == 1 else f"up to {photos} images leave"
                print(f"note: {self.spec.name} is on another machine: {leave} this one", file=sys.stderr)
            progress = tqdm(total=len(requests), initial=missing.passed, desc=label, unit="call")
            asked = Counter[str]()

            def kept(count: int) -> None:
                asked["kept"] += count
                progress.update(asked["kept"] + missing.passed - progress.n)

            with closing(progress), CacheWriter(cache, kept) as writer:

                def keep(key: str, response: Response) -> None:
                    asked.update(all=1, cut=not response.complete)
                    writer.keep(key, response.row())

                if self._endpoint is None:
                    self._ask_local(chain([first], batches), keep)
                else:
                    asyncio.run(self._ask_endpoint(self._endpoint, chain.from_iterable(chain([first], batches)), keep))
        if asked["cut"]:
            most = self.spec.max_new_tokens
            limit = "the endpoint's limit" if most is None else f"max_new_tokens {most}"
            cut = f"{asked['cut']} of {asked['all']} answers ran into {limit} and are cut off"
            print(f"note: {label}: {cut}", file=sys.stderr)

    @staticmethod
    async def _ask_endpoint(endpoint: Endpoint, requests: Iterable[Keyed], keep: Keep) -> None:
        async with endpoint:
            await endpoint.ask_all(requests, keep)

    def _ask_local(self, batches: Iterable[Sequence[Keyed]], keep: Keep) -> None:
        spec = self.spec
        assert spec.max_new_tokens is not None  # a local model has a limit
        local: LocalModel | None = None

        def prepare(batch: Sequence[Keyed]) -> tuple[list[Loaded], list[tuple[str, Response]], Any]:
            """Requests with their photos, an error for those whose photos cannot be read, and the model's inputs."""
            readable, errors = list[Loaded](), list[tuple[str, Response]]()
            for key, request in batch:
                try:
                    readable.append((key, request, request.opened(load_image)))
                except InputError as error:
                    errors.append((key, Response(error=str(error))))
            return readable, errors, local.prepare(_rows(readable)) if readable and local is not None else None

        with closing(read_ahead(prepare, batches)) as loaded:
            for readable, responses, prepared in loaded:
                if readable:
                    local = self._memory.load(spec)
                    if readable[0][1].lead_in is not None:
                        local.check_look_ahead(_rows(readable)[0])
                    responses += answer_batch(local, readable, spec.max_new_tokens, spec.top_logprobs, prepared)
                for key, response in responses:
                    keep(key, response)


class Memory:
    """Room for one local model. One with the same weights, but for the adapter, is not loaded anew."""

    def __init__(self) -> None:
        self._spec: ModelSpec | None = None
        self._local: LocalModel | None = None

    def load(self, spec: ModelSpec) -> LocalModel:
        """The model that ``spec`` describes. Raises InputError where there is none."""
        if self._local is None or self._spec is None or self._spec.loads != spec.loads:
            self._local = None  # leaves before the next comes
            self._local = LocalModel(
                spec.model, spec.adapter, revision=spec.revision, dtype=spec.dtype, max_pixels=spec.max_pixels
            )
            print(f"{spec.model} on {self._local.device.upper()}, {self._local.dtype}", flush=True)
        elif (self._spec.adapter, self._spec.max_pixels) != (spec.adapter, spec.max_pixels):
            local, self._local = self._local, None  # of no use where the adapter does not fit
            local.change_adapter(spec.adapter, spec.max_pixels)
            self._local = local
        self._spec = spec
        return self._local


def open_models(specs: Iterable[ModelSpec], allow_remote: bool, kept: str | Path | None) -> list[Model]:
    """The models of a run, with one room in memory for all. Raises InputError for one that cannot be asked.

    Where there are answers in ``kept`` already, whether a model of the Hub can be had matters only once it is asked.
    """
    memory = Memory()
    models = [Model(spec, allow_remote, memory) for spec in specs]
    if kept is None or not os.path.exists(kept):
        for model in models:
            model.check()
    return models


def by_weights(items: Iterable[T], spec: Callable[[T], ModelSpec]) -> list[T]:
    """Items whose local models have the same weights one after the other, so that these are loaded once."""
    groups: dict[tuple[Any, ...], list[T]] = {}
    for item in items:
        groups.setdefault(spec(item).loads, []).append(item)
    return [item for group in groups.values() for item in group]


def ask(
    model: Model,
    requests: Collection[Request] | Mapping[str, Request],
    cache: ResponseCache,
    again: Collection[str] = (),
    label: str | None = None,
    errors: bool = True,
) -> None:
    """Have this process's part of what is missing answered in ``cache``, where ``read_outcomes`` finds it.

    Where the run cannot go on, ``model.stopped`` says why; what came until then is kept, and it is asked no more.

    Args:
        requests: in the order in which they are asked; by their keys where ``ModelSpec.key`` gives others.
        again: keys to ask for although they have an answer; errors: ask again what ended in one.
        label: of the progress bar; None: the model's name.
    """
    shard = cache.shard
    if model.stopped is None:
        part = f", part {shard.rank + 1} of {shard.world}" if shard.world > 1 else ""
        try:
            model.ask(requests, cache, (label or model.spec.name) + part, again, errors)
        except Stopped as reason:  # what there is is of use all the same
            model.stopped = reason
    if shard.world > 1:
        cache.refresh()  # other processes have gone on meanwhile


def raise_first(faults: Iterable[InputError | None]) -> None:
    """End a run with the first of its faults, if there are any; the others get a note."""
    found = [fault for fault in faults if fault is not None]
    for other in found[1:]:
        print(f"note: {other}", file=sys.stderr)
    if found:
        raise found[0]


Loaded = tuple[str, Request, list[Any]]  # key, request, its photos


def _rows(batch: Sequence[Loaded]) -> list[Row]:
    return [(request.messages, images) for _, request, images in batch]


def answer_batch(
    model: LocalModel,
    batch: Sequence[Loaded],
    max_new_tokens: int,
    top_logprobs: int | None = None,
    prepared: Any = None,
) -> list[tuple[str, Response]]:
    """Responses of a local model to requests with one ``lead_in`` and ``structure``.

    What it cannot take is an error, others go on. ``prepared``: what the model's ``prepare`` made of the batch.
    """
    import torch

    made = {"batch": len(batch), "dtype": model.dtype, "device": model.device.split(":")[0]}
    made["image_size"] = {name: side for name, side in dict(model.size).items() if side is not None}
    made["decoding"] = model.decoding
    if model.revision:
        made["revision"] = model.revision
    first, fault = batch[0][1], None
    try:
        responses = model.generate(
            _rows(batch), max_new_tokens, first.lead_in, top_logprobs, first.structure, first.guess, prepared
        )
    except InputError as error:
        fault = error.reason
    except torch.OutOfMemoryError:
        fault = "takes more memory than the card has; take a smaller max_pixels"
        model.forget()
    if fault is not None:  # out of the except block, whose traceback would keep what is on the card
        if len(batch) == 1:
            key, request, _ = batch[0]
            return [(key, Response(error=request.about(fault)))]
        halves = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        return [row for half in halves for row in answer_batch(model, half, max_new_tokens, top_logprobs)]
    return [
        (key, replace(one, logprobs=one.logprobs and read_logprobs({"content": one.logprobs}), made=made))
        for (key, _, _), one in zip(batch, responses, strict=True)
    ]
