"""A client for any OpenAI-compatible endpoint: many requests in flight, its own back-off, no secret in any message.

It speaks HTTP itself. OpenAI's library would send what its own environment variables hold (organisation, project,
headers) and what it finds out about this machine to whatever address it is given, and reads a response without bound.
"""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from cprt import __version__
from cprt.errors import InputError
from cprt.images import load_image, read_bare_jpeg
from cprt.models.address import is_loopback, read_key
from cprt.models.completion import Unusable, is_filtered, read_completion, read_error
from cprt.models.options import Options
from cprt.models.rate_limiter import (
    KEPT,
    LONGEST_WAIT,
    RATE_LIMIT_RETRIES,
    UNREACHED_TRIES,
    RateLimiter,
    Stopped,
    delay,
    is_retried,
    retry_after,
    root_cause,
    system_words,
)
from cprt.models.spec import ModelSpec, Request, Response

LONGEST_RESPONSE = 64 * 2**20  # bytes; 100,000 tokens with twenty alternatives each have less
_CALLS_A_POOL = 8
_FLAGGED = re.compile(
    r"violates usage guidelines|SAFETY_CHECK|was flagged"
)  # a filter that names itself in words alone


@dataclass(frozen=True)
class _Failure:
    """A call without an answer. ``status`` is None when none came; ``wait``: what Retry-After asks for."""

    reason: str
    status: int | None = None
    wait: float | None = None
    code: str = ""
    about: str = ""  # the parameter and message that the endpoint names
    connected: bool = True

    @property
    def retried(self) -> bool:
        return self.status is None or self.status == 200 or is_retried(self.status)

    @property
    def may_be_about_options(self) -> bool:
        return self.status in (400, 422)


class Endpoint:
    """Asks one endpoint. Use as ``async with``.

    Raises InputError at once when the endpoint is on another machine and ``allow_remote`` is not set, and when the
    environment variable with the key is not there.
    """

    def __init__(self, spec: ModelSpec, allow_remote: bool = False, first_delay: float = 0.5):
        assert spec.base_url is not None
        self.spec, self.limiter, self._first_delay = spec, RateLimiter(spec.concurrency), first_delay
        self.is_remote = not is_loopback(spec.base_url)
        if self.is_remote and not allow_remote:
            raise InputError(
                f"{spec.name}: its endpoint is on another machine, and images would leave this one; "
                "set --allow_remote true if they may"
            )
        self._key = read_key(spec.api_key_env, spec.name)
        self._options = Options(spec)
        self._reached = False  # whether anybody ever answered
        place = urlsplit(spec.base_url)
        secrets = [part for part in (self._key, spec.base_url, place.netloc, place.hostname) if part and len(part) > 4]
        self._secret = re.compile("|".join(map(re.escape, secrets)) + r"|[A-Za-z0-9+/=_-]{60,}|data:image\S+")

    async def __aenter__(self) -> Endpoint:
        import httpx2

        for name in ("httpx2", "httpcore2"):  # they can log addresses and requests
            logging.getLogger(name).setLevel(logging.WARNING)
        # A redirect or a proxy that the environment names would carry photos and key on; TLS alone hides them from it.
        by_environment = self.is_remote and str(self.spec.base_url).lower().startswith("https:")
        certificates = httpx2.create_ssl_context(trust_env=by_environment)  # slow to load: once for all
        headers = {"accept-encoding": "identity", "content-type": "application/json"}
        headers["user-agent"] = f"cprt/{__version__}"
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        # For every call the library looks through all connections of its pool, so that many calls share few pools.
        self._clients = [
            httpx2.AsyncClient(
                headers=headers,
                timeout=self.spec.timeout,
                limits=httpx2.Limits(max_keepalive_connections=2 * _CALLS_A_POOL),
                follow_redirects=False,
                trust_env=by_environment,
                verify=certificates,
            )
            for _ in range(-(-self.spec.concurrency // _CALLS_A_POOL))
        ]
        self._turns = itertools.cycle(self._clients)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.aclose()

    async def ask_all(self, requests: Iterable[tuple[str, Request]], keep: Callable[[str, Response], None]) -> None:
        """Hand the response of every (key, request) to ``keep`` as it comes; at most ``concurrency`` are in flight.

        Raises Stopped when nobody is there, the key is refused or the endpoint keeps failing; what is then in flight is
        dropped.
        """
        waiting = iter(requests)

        async def work() -> None:
            for key, request in waiting:  # all workers take from the same iterator
                keep(key, await self.ask(request))

        workers = [asyncio.create_task(work()) for _ in range(self.spec.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def ask(self, request: Request) -> Response:
        """The response to one request, with an ``error`` where none came after all retries. Raises Stopped."""
        try:
            messages = await self._render(request)
        except InputError as error:  # a photo that cannot be read says nothing about the endpoint
            return Response(error=str(error))
        faults = limited = 0
        retries = self.spec.retries
        without: Collection[str] = ()  # what is left out this once, since nobody says what the endpoint refuses
        while True:
            await self.limiter.enter()
            sent = self._options.to_send(request.structure, without)
            try:
                outcome = await self._call(messages, sent)
            finally:
                self.limiter.leave()
            self._reached |= isinstance(outcome, Response) or outcome.status is not None
            if isinstance(outcome, Response):
                self.limiter.answered()
                self._options.answered(outcome, sent, without)
                return replace(outcome, **self._options.differences(outcome, request.structure, sent))
            if is_filtered(outcome.code):
                self.limiter.answered()
                return Response(text="", refused=True, finish=outcome.code)
            if outcome.status == 401:  # 403 may be about this one photo, in words that nobody knows
                source = f"the key in {self.spec.api_key_env}" if self.spec.api_key_env else "a call without a key"
                raise Stopped(f"{self.spec.name}: the endpoint refuses {source} (HTTP 401)")
            if outcome.may_be_about_options:
                if self._options.refuse(outcome.about, sent):
                    continue
                if less := self._options.may_be_refused(sent):
                    without = {*without, *less}
                    continue
            # Under another status the words decide: at once where it would be final, after all retries where the fault
            # could have passed, whose words are perhaps an echo of the request.
            final = not outcome.retried or outcome.status == 501 or (outcome.status != 429 and faults == retries)
            if final and (less := self._options.may_be_refused(sent, outcome.about)):
                without = {*without, *less}
                continue
            wait = outcome.wait
            if not outcome.retried or (wait is not None and wait > LONGEST_WAIT):
                break
            if outcome.status == 429:
                limited += 1
                if limited > RATE_LIMIT_RETRIES:
                    break
                self.limiter.rate_limited(delay(limited, self._first_delay) if wait is None else wait)
            else:
                faults += 1
                unreached = not (self._reached or outcome.connected)
                if unreached and faults >= min(UNREACHED_TRIES, retries + 1):
                    place = "its base_url" if self.is_remote else urlsplit(str(self.spec.base_url)).netloc
                    raise Stopped(f"{self.spec.name}: no endpoint at {place}: {outcome.reason}; {KEPT}")
                if faults > retries:
                    break
                await asyncio.sleep(max(wait or 0.0, delay(faults, self._first_delay)))
        tries = f" (asked {faults + limited} times)" if faults + limited > 1 else ""
        try:
            self.limiter.failed(outcome.reason)
        except Stopped as stopped:
            raise Stopped(f"{self.spec.name}: {stopped}") from None
        return Response(error=outcome.reason + tries)

    async def _render(self, request: Request) -> list[dict[str, Any]]:
        """The messages as the endpoint wants them, photos as base64 data URLs."""
        spec = self.spec
        photo = partial(data_url, max_pixels=spec.max_pixels, image_format=spec.image_format)
        urls = await asyncio.to_thread(request.opened, photo)
        images = iter(urls)

        def part(content: dict[str, Any]) -> dict[str, Any]:
            return {"type": "image_url", "image_url": {"url": next(images)}} if content["type"] == "image" else content

        return [
            {"role": message["role"], "content": [part(content) for content in message["content"]]}
            for message in request.messages
        ]

    async def _call(self, messages: Any, options: dict[str, Any]) -> Response | _Failure:
        import httpx2

        url = str(self.spec.base_url).rstrip("/") + "/chat/completions"
        body = json.dumps({"messages": messages, **options, **self.spec.extra}).encode()
        try:
            async with (
                asyncio.timeout(self.spec.timeout),  # the library's own is for one read, and a trickle passes it
                next(self._turns).stream("POST", url, content=body) as response,
            ):
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > LONGEST_RESPONSE:
                        raise Unusable(f"a response of more than {LONGEST_RESPONSE // 2**20} MB")
            if response.is_success:
                return read_completion(bytes(content), self.spec.max_new_tokens)
            return self._read_failure(response.status_code, response.headers.get("retry-after"), bytes(content))
        except (TimeoutError, httpx2.TimeoutException):
            return _Failure(f"no answer within {self.spec.timeout:g} s")
        except httpx2.RequestError as error:
            connected = not isinstance(error, httpx2.ConnectError)
            why = self._clean(system_words(root_cause(error)) or type(error).__name__)
            what = "the connection failed" if connected else "no connection"
            return _Failure(f"{what} ({why})", connected=connected)
        except Unusable as error:
            return _Failure(self._clean(str(error)), status=200, about=str(error))

    def _read_failure(self, status: int, wait: str | None, content: bytes) -> _Failure:
        """An HTTP status other than success, in words that can be written to a file."""
        try:
            message, code, param = read_error(json.loads(content))
        except (ValueError, RecursionError):
            message = code = param = ""
        if status == 403 and _FLAGGED.search(message):
            code = "content_filter"
        reason = f"HTTP {status}" + (f": {self._clean(message)}" if message else "")
        return _Failure(reason, status, retry_after(wait, time.time()), code, f"{param} {message}")

    def _clean(self, text: str) -> str:
        """An endpoint's own words without key, address and base64, in one short line."""
        plain = "".join(char if char.isprintable() else " " for char in self._secret.sub("[...]", text))
        return " ".join(plain.split())[:200]


def data_url(path: Path, max_pixels: int | None, image_format: str) -> str:
    """A photo as a base64 data URL: upright, in RGB, shrunk to ``max_pixels``, and encoded anew from its pixels.

    Nothing but pixels goes along: no EXIF, position, comment or colour profile. A JPEG that holds nothing else and is
    small enough goes as it is. Raises InputError.
    """
    if image_format == "jpeg":
        content = read_bare_jpeg(path, max_pixels)
        if content is not None:
            return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
    image = load_image(path, max_pixels)
    buffer = io.BytesIO()
    if image_format == "png":
        image.save(buffer, "PNG", compress_level=1)
    else:
        image.save(buffer, "JPEG", quality=95, subsampling=0)
    return f"data:image/{image_format};base64,{base64.b64encode(buffer.getvalue()).decode()}"
