"""One way to ask any model and keep what it says: a model that runs here, or one behind an endpoint.

``open_models`` checks the models of a run before anything slow starts; ``ask`` has those requests answered that have no
answer yet. What became of each says ``cprt.models.outcome``.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import image_size, load_image
from cprt.models.adapter import read_config
from cprt.models.checkpoint import revision_of
from cprt.models.completion import read_logprobs
from cprt.models.endpoint import Endpoint
from cprt.models.inputs import Row, read_ahead
from cprt.models.local import LocalModel
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import CacheWriter, ResponseCache
from cprt.models.spec import ModelSpec, Request, Response, image_digest
from cprt.prompts import digest

T = TypeVar("T")


class Model:
    """A model that answers requests. A local one is loaded at the first request that can be answered.

    Attributes:
        stopped: why it is asked no more, once an endpoint has refused the key or kept failing.

    Raises InputError for an endpoint on another machine without ``allow_remote``, or whose key is not there.
    """

    def __init__(self, spec: ModelSpec, allow_remote: bool = False, memory: Memory | None = None):
        self.spec = spec
        self.stopped: Stopped | None = None
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
        cut = sum((cache.get(key) or {}).get("complete") is False for key in requests)
        if cut:
            most = self.spec.max_new_tokens
            limit = "the endpoint's limit" if most is None else f"max_new_tokens {most}"
            print(f"note: {label}: {cut} of {len(requests)} answers ran into {limit} and are cut off", file=sys.stderr)

    @staticmethod
    async def _ask_endpoint(endpoint: Endpoint, requests: Mapping[str, Request], writer: CacheWriter) -> None:
        async with endpoint:
            await endpoint.ask_all(requests.items(), lambda key, response: writer.keep(key, response.row()))

    def _ask_local(self, requests: Mapping[str, Request], writer: CacheWriter) -> None:
        spec = self.spec
        assert spec.max_new_tokens is not None  # a local model has a limit
        local: LocalModel | None = None

        def prepare(batch: Sequence[tuple[str, Request]]) -> tuple[list[Loaded], list[tuple[str, Response]], Any]:
            readable, errors = _load_photos(batch)
            return readable, errors, local.prepare(_rows(readable)) if readable and local is not None else None

        with closing(read_ahead(prepare, _batches(requests, spec.batch_size))) as batches:
            for readable, responses, prepared in batches:
                if readable:
                    local = self._memory.load(spec)
                    responses += answer_batch(local, readable, spec.max_new_tokens, spec.top_logprobs, prepared)
                for key, response in responses:
                    writer.keep(key, response.row())


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
    requests: Mapping[str, Request],
    cache: ResponseCache,
    again: Collection[str] = (),
    label: str | None = None,
) -> None:
    """Have this process's part of what is missing answered in ``cache``, where ``find_outcomes`` finds it.

    Missing is what has no answer yet, or is to be asked ``again``. Where the run cannot go on, ``model.stopped`` says
    why; what came until then is kept, and such a model is asked no more.

    Args:
        requests: by their keys.
        again: keys to ask for although they have an answer.
        label: of the progress bar; None: the model's name.
    """
    missing = find_missing(requests, cache, again)
    if missing and model.stopped is None:
        name, shard = label or model.spec.name, cache.shard
        photos = sum(len(request.images) for request in missing.values())
        if model.is_remote and photos:
            leave = "1 image leaves" if photos == 1 else f"{photos} images leave"
            print(f"note: {model.spec.name} is on another machine: {leave} this one", file=sys.stderr)
        part = f", part {shard.rank + 1} of {shard.world}" if shard.world > 1 else ""
        model.check()
        try:
            model.ask(missing, cache, name + part)
        except Stopped as reason:  # what there is is of use all the same
            model.stopped = reason
    if cache.shard.world > 1:
        cache.refresh()  # other processes have gone on meanwhile


def find_missing(
    requests: Mapping[str, Request], cache: ResponseCache, again: Collection[str] = ()
) -> dict[str, Request]:
    """The requests, by key, that this process is to ask."""
    mine = {key: request for key, request in requests.items() if cache.shard.has(key)}
    return {key: request for key, request in mine.items() if key in again or key not in cache}


def hash_photos(photos: Iterable[Path]) -> None:
    """Work out the digests of photos on all cores, so that the keys of requests about them take no time.

    One that cannot be read is passed over; its key says so.
    """

    def work(path: Path) -> None:
        with suppress(OSError):
            image_digest(path)

    paths = list(dict.fromkeys(photos))
    with ThreadPoolExecutor() as pool:  # both reading and hashing release the interpreter lock
        for _ in tqdm(pool.map(work, paths), total=len(paths), desc="photos", unit="photo", leave=False, delay=1):
            pass


def raise_first(faults: Iterable[InputError | None]) -> None:
    """End a run with the first of its faults, if there are any; the others get a note."""
    found = [fault for fault in faults if fault is not None]
    for other in found[1:]:
        print(f"note: {other}", file=sys.stderr)
    if found:
        raise found[0]


def _batches(requests: Mapping[str, Request], size: int) -> Iterator[list[tuple[str, Request]]]:
    """Requests that differ only in their photo together, others with those of as many images; the largest first.

    All prompts about the same photos follow one another, so that a model encodes these photos once.
    """
    areas = {path: _pixels(path) for request in requests.values() for path in request.images}

    def length(item: tuple[str, Request]) -> int:
        return sum(areas[path] for path in item[1].images) or len(str(item[1].messages))

    ordered = sorted(requests.items(), key=lambda item: (-length(item), item[1].images, item[0]))
    groups: dict[tuple[Any, ...], list[tuple[str, Request]]] = {}
    for key, request in ordered:
        form = request.structure and request.structure.regex
        groups.setdefault((len(request.images), request.lead_in, form), []).append((key, request))
    for (count, *_), group in groups.items():
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


Loaded = tuple[str, Request, list[Any]]  # key, request, its photos


def _load_photos(batch: Sequence[tuple[str, Request]]) -> tuple[list[Loaded], list[tuple[str, Response]]]:
    """Those of (key, request) rows whose photos can be read, and an error for the others."""
    loaded, errors = list[Loaded](), list[tuple[str, Response]]()
    for key, request in batch:
        try:
            loaded.append((key, request, [load_image(path) for path in request.images]))
        except InputError as error:
            errors.append((key, Response(error=str(error))))
    return loaded, errors


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
    made = {
        "batch": len(batch),
        "dtype": model.dtype,
        "device": model.device.split(":")[0],
        "image_size": {name: side for name, side in dict(model.size).items() if side is not None},
        "decoding": model.decoding,
    }
    if model.revision:
        made["revision"] = model.revision
    first = batch[0][1]
    try:
        generations = model.generate(
            _rows(batch), max_new_tokens, first.lead_in, top_logprobs, first.structure, first.guess, prepared
        )
    except InputError as error:
        if len(batch) == 1:
            key, request, _ = batch[0]
            return [(key, Response(error=str(InputError(": ".join([*map(str, request.images), str(error)])))))]
        halves = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        return [row for half in halves for row in answer_batch(model, half, max_new_tokens, top_logprobs)]
    return [
        (
            key,
            Response(
                generation.text,
                generation.complete,
                logprobs=generation.logprobs and read_logprobs({"content": generation.logprobs}),
                distribution=generation.distribution,
                lists=generation.lists,
                willing=generation.willing,
                made=made,
            ),
        )
        for (key, _, _), generation in zip(batch, generations, strict=True)
    ]
