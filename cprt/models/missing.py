"""Which requests are still to be asked, in what order and batches: found out as they are asked, not before.

A photo is hashed shortly before its turn, so that the first question waits for the first few of them alone, and memory
holds little more than a key for each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, TypeVar

from cprt.errors import InputError
from cprt.images import image_size, in_order, in_parallel
from cprt.models.outcome import Outcome, Reader, find_outcome
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import digest
from cprt.provenance import digest_once

T = TypeVar("T")
Keyed = tuple[str, Request]
WINDOW = 1024  # requests to a local model that are put in order together


def keyed(
    spec: ModelSpec, requests: Iterable[Request] | Mapping[str, Request]
) -> Iterator[tuple[str | OSError, Request]]:
    """Requests with their keys, or why a photo cannot be read; photos are hashed a little ahead, on all cores.

    Those of a mapping have their keys.
    """
    if isinstance(requests, Mapping):
        return iter(requests.items())

    def key(request: Request) -> tuple[str | OSError, Request]:
        try:
            return spec.key(request), request
        except OSError as error:
            return error, request

    _ = spec.identity  # once, not in every thread: it may read all weights
    return in_order(key, requests)


class Missing:
    """Those of a stream of requests that this process is to ask, once each, with their keys (see ``ask``)."""

    def __init__(self, spec: ModelSpec, cache: ResponseCache, again: Collection[str] = (), errors: bool = True):
        self.passed = 0  # how many others there were so far
        self._spec, self._cache, self._again = spec, cache, again
        self._is_done = cache.__contains__ if errors else cache.is_kept
        self._asked: set[str] = set()

    def __call__(self, requests: Iterable[Request] | Mapping[str, Request]) -> Iterator[Keyed]:
        for key, request in keyed(self._spec, requests):
            if isinstance(key, OSError) or key in self._asked or not self._cache.shard.has(key):
                self.passed += 1
            elif key in self._again or not self._is_done(key):
                self._asked.add(key)
                yield key, request
            else:
                self.passed += 1


def read_outcomes(
    spec: ModelSpec, requests: Iterable[Request], cache: ResponseCache, read: Reader[T]
) -> Iterator[tuple[str | OSError, Outcome[T]]]:
    """What became of each request, in order and read from the disk as it is wanted, and under which key it is kept."""
    for key, request in keyed(spec, requests):
        if isinstance(key, OSError):
            yield key, Outcome("error", error=request.about(f"cannot be read ({key.strerror})"))
        else:
            yield key, find_outcome(key, cache, read, spec)


def in_batches(
    requests: Iterable[Request] | Mapping[str, Request], missing: Missing, size: int
) -> Generator[list[Keyed], None, None]:
    """Requests that differ only in their photo together, others with those of as many images; the largest first.

    All prompts about the same photos follow one another, so that a model encodes these once. ``WINDOW`` requests are
    ordered at a time.
    """
    for window in _in_lists(missing(requests), WINDOW):
        areas = {path: _pixels(path) for _, request in window for path in request.images}

        def length(item: Keyed, areas: Mapping[Path, int] = areas) -> int:
            return sum(areas[path] for path in item[1].images) or len(str(item[1].messages))

        ordered = sorted(window, key=lambda item: (-length(item), item[1].images, item[0]))
        groups: dict[tuple[Any, ...], list[Keyed]] = {}
        for key, request in ordered:
            form = request.structure and request.structure.regex
            groups.setdefault((len(request.images), request.lead_in, form), []).append((key, request))
        for (count, *_), group in groups.items():
            if count != 1:
                yield from _in_lists(group, size)
                continue
            of_photo = (list(rows) for _, rows in groupby(group, key=lambda item: item[1].images))
            for photos in _in_lists(of_photo, size):
                of_prompt: dict[str, list[Keyed]] = {}
                for key, request in chain.from_iterable(photos):
                    of_prompt.setdefault(digest(request.messages), []).append((key, request))
                yield from (of_prompt[prompt] for prompt in sorted(of_prompt))


def _in_lists(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` items, the last one perhaps shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _pixels(path: Path) -> int:
    """How large a photo is, from its header; 0 where there is none to read."""
    try:
        return math.prod(image_size(path))
    except InputError:
        return 0


def hash_photos(photos: Iterable[Path]) -> None:
    """Work out photos' digests on all cores, so that keys of requests take no time; one that cannot be read is left."""

    def work(path: Path) -> None:
        with suppress(OSError):
            digest_once(path)

    deque(in_parallel(work, list(dict.fromkeys(photos)), "photos"), maxlen=0)
