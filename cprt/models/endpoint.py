"""A client for any OpenAI-compatible endpoint: many requests in flight, its own back-off, no secret in any message."""

from __future__ import annotations

import asyncio
import base64
import io
import ipaddress
import itertools
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from cprt.errors import InputError
from cprt.images import load_image, read_bare_jpeg
from cprt.models.rate_limiter import (
    LONGEST_WAIT,
    RATE_LIMIT_RETRIES,
    RateLimiter,
    Stopped,
    delay,
    is_retried,
    retry_after,
)
from cprt.models.spec import ModelSpec, Request, Response

# Options that some endpoints refuse by name; a request is then asked again without. OpenAI's newer models know no
# max_tokens, take only their own temperature, and give no logprobs while they reason.
_YIELDING = ("max_tokens", "temperature", "logprobs")
_CALLS_A_POOL = 8
_REFUSALS = ("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation")


@dataclass(frozen=True)
class _Failure:
    """A call without an answer. ``status`` is None when none came; ``wait``: what Retry-After asks for."""

    reason: str
    status: int | None = None
    wait: float | None = None
    code: str | None = None
    about: str = ""  # the parameter and message that the endpoint names

    @property
    def retried(self) -> bool:
        return self.status is None or self.status == 200 or is_retried(self.status)


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
        # Without a variable of ours the library would send whatever is in OPENAI_API_KEY.
        self._key = os.environ.get(spec.api_key_env, "").strip() if spec.api_key_env else "none"
        if not self._key:
            raise InputError(f"{spec.name}: the environment variable {spec.api_key_env} with the key is not set")
        self._dropped: set[str] = set()
        host = urlsplit(spec.base_url).hostname or ""
        secrets = [part for part in (self._key, spec.base_url, urlsplit(spec.base_url).netloc, host) if len(part) > 4]
        self._secret = re.compile("|".join(map(re.escape, secrets)) + r"|[A-Za-z0-9+/=_-]{60,}|data:image\S+")

    async def __aenter__(self) -> Endpoint:
        import httpx2  # what the library itself stands on
        import openai

        certificates = httpx2.create_ssl_context(trust_env=self.is_remote)  # slow to load: once for all
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):  # they can log addresses and requests
            logging.getLogger(name).setLevel(logging.WARNING)
        # For every call the library looks through all connections of its pool, so that many calls share few pools.
        self._clients = [
            openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self.spec.base_url,
                max_retries=0,
                timeout=self.spec.timeout,
                # A redirect or a proxy would carry images on from an endpoint that is on this machine.
                http_client=openai.DefaultAsyncHttpxClient(
                    follow_redirects=False, trust_env=self.is_remote, verify=certificates
                ),
            )
            for _ in range(-(-self.spec.concurrency // _CALLS_A_POOL))
        ]
        self._turns = itertools.cycle(self._clients)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()

    async def ask_all(self, requests: Iterable[tuple[str, Request]], keep: Callable[[str, Response], None]) -> None:
        """Hand the response of every (key, request) to ``keep`` as it comes; at most ``concurrency`` are in flight.

        Raises Stopped when the key is refused and when the endpoint keeps failing; what is then in flight is dropped.
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
        while True:
            await self.limiter.enter()
            sent = self._options()
            try:
                outcome = await self._call(messages, sent)
            finally:
                self.limiter.leave()
            if isinstance(outcome, Response):
                self.limiter.answered()
                return replace(outcome, dropped=tuple(sorted(self._dropped - {"max_tokens"})))
            if outcome.status in (401, 403):
                source = f"the key in {self.spec.api_key_env}" if self.spec.api_key_env else "a call without a key"
                raise Stopped(f"{self.spec.name}: the endpoint refuses {source} (HTTP {outcome.status})")
            if outcome.status in (400, 422) and self._drop(outcome, sent):
                continue
            if outcome.code in _REFUSALS:
                self.limiter.answered()
                return Response(text="", refused=True, finish=outcome.code)
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
                if faults > self.spec.retries:
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
        urls = [await asyncio.to_thread(data_url, path, spec.max_pixels, spec.image_format) for path in request.images]
        images = iter(urls)

        def part(content: dict[str, Any]) -> dict[str, Any]:
            return {"type": "image_url", "image_url": {"url": next(images)}} if content["type"] == "image" else content

        return [
            {"role": message["role"], "content": [part(content) for content in message["content"]]}
            for message in request.messages
        ]

    def _options(self) -> dict[str, Any]:
        """What is sent beside the messages, less what this endpoint has refused."""
        spec = self.spec
        options: dict[str, Any] = {"model": spec.model}
        options["max_completion_tokens" if "max_tokens" in self._dropped else "max_tokens"] = spec.max_new_tokens
        if spec.temperature is not None and "temperature" not in self._dropped:
            options["temperature"] = spec.temperature
        if spec.top_logprobs is not None and "logprobs" not in self._dropped:
            options |= {"logprobs": True, "top_logprobs": spec.top_logprobs}
        return options

    def _drop(self, failure: _Failure, sent: dict[str, Any]) -> bool:
        """Whether the endpoint refused an option that the request can do without; it is not sent again."""
        refused = [name for name in _YIELDING if name in sent and re.search(rf"(?:\b|_){name}\b", failure.about)]
        self._dropped.update(refused[:1])
        return bool(refused)

    async def _call(self, messages: Any, options: dict[str, Any]) -> Response | _Failure:
        import openai

        try:
            async with asyncio.timeout(self.spec.timeout):  # the library's own is for one read, and a trickle passes it
                # Not chat.completions.create: a fifth of its time goes into copying the messages by their types, and
                # it reads a response more kindly than we want.
                body = {"messages": messages, **options, **self.spec.extra}
                return read_response(await next(self._turns).post("/chat/completions", body=body, cast_to=bytes))
        except openai.APIStatusError as error:
            return self._read_failure(error)
        except (TimeoutError, openai.APITimeoutError):
            return _Failure(f"no answer within {self.spec.timeout:g} s")
        except openai.APIConnectionError as error:
            return _Failure(f"the connection failed ({type(error.__cause__ or error).__name__})")
        except _Unusable as error:
            return _Failure(self._clean(str(error)), status=200)

    def _read_failure(self, error: Any) -> _Failure:
        """An HTTP status other than success, in words that can be written to a file."""
        body = error.body if isinstance(error.body, dict) else {}
        inner = body.get("error")
        body = inner if isinstance(inner, dict) else body  # some wrap it once more
        message, code = str(body.get("message") or body.get("detail") or ""), body.get("code")
        inner = body.get("innererror")
        if isinstance(inner, dict) and code not in _REFUSALS:
            code = inner.get("code", code)
        wait = retry_after(error.response.headers.get("retry-after"), time.time())
        reason = f"HTTP {error.status_code}" + (f": {self._clean(message)}" if message else "")
        return _Failure(reason, error.status_code, wait, str(code), f"{body.get('param')} {message}")

    def _clean(self, text: str) -> str:
        """An endpoint's own words without key, address and base64, in one short line."""
        return " ".join(self._secret.sub("[...]", text).split())[:200]


class _Unusable(Exception):
    """A response that came with status 200 and is no answer."""


def read_response(content: bytes) -> Response:
    """What the body of a chat completion says. Raises _Unusable for whatever is cut off, empty or something else."""
    if not content.strip():
        raise _Unusable("an empty response")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise _Unusable("a response that is not JSON, or cut off") from None
    try:
        if body.get("error"):  # some gateways answer 200 and put the fault inside
            raise _Unusable(f"an error in the response: {body['error']}")
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
        logprobs = (choice.get("logprobs") or {}).get("content")
        usage = {name: count for name, count in (body.get("usage") or {}).items() if type(count) is int}
    except (KeyError, IndexError, TypeError, AttributeError):
        raise _Unusable("a response without an answer in it") from None
    refused = bool(refusal) or finish in _REFUSALS
    text = text or refusal or ""
    if not isinstance(text, str):
        raise _Unusable("an answer that is not a text")
    if not text.strip() and not refused and finish != "length":
        raise _Unusable("an empty answer")
    return Response(text, finish != "length", refused, finish, usage or None, logprobs)


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


def is_loopback(url: str) -> bool:
    """Whether the endpoint is on this machine. A name other than localhost is not looked up and counts as remote."""
    host = (urlsplit(url).hostname or "").removesuffix(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
