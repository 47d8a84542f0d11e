"""Asking an endpoint in tests, with delays a hundredth of the usual."""

from __future__ import annotations

import asyncio
from typing import Any

from loopback import Misbehaving

from cprt.models.endpoint import Endpoint
from cprt.models.spec import ModelSpec, Request, Response


def spec(url: str, **more: Any) -> ModelSpec:
    return ModelSpec.read({"name": "judge", "model": "some/model", "base_url": url, **more}, "spec")


def ask_text(text: str) -> Request:
    return Request([{"role": "user", "content": [{"type": "text", "text": text}]}])


def ask(server: Misbehaving, requests: list[Request], **more: Any) -> list[Response]:
    """The responses in the order of the requests, with delays a hundredth of the usual."""
    responses: dict[str, Response] = {}

    async def main() -> None:
        async with Endpoint(spec(server.url, **more), first_delay=0.005) as endpoint:
            await endpoint.ask_all([(str(n), request) for n, request in enumerate(requests)], responses.__setitem__)

    asyncio.run(main())
    return [responses[str(number)] for number in range(len(requests))]


def echo(body: dict[str, Any]) -> tuple[str, str]:
    return body["messages"][0]["content"][-1]["text"].upper(), "stop"
