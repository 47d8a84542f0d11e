"""The client of an endpoint, against a server on this machine that misbehaves in every way we know."""

from __future__ import annotations

import asyncio
import gzip
import socket
from pathlib import Path
from typing import Any

import pytest
from endpoints import ask, ask_text, echo, spec
from loopback import FAULTS, Misbehaving, first_try_fails, identity

from cprt.models.ask import Model
from cprt.models.endpoint import Endpoint
from cprt.models.rate_limiter import (
    FAILED_IN_A_ROW,
    RateLimiter,
    Stopped,
)
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import Request, Response

SECRET = "sk-test-5Q9vXkW2mZ8"


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_asked_again_and_then_answered(fault: str):
    with Misbehaving(echo, lambda who, earlier: fault if earlier == 0 else None, stall=30) as server:
        (response,) = ask(server, [ask_text("a")], timeout=2 if fault == "stall" else 60)
    assert response.text == "A" and response.error is None and len(server.bodies) == 2
    waited = server.times[1] - server.times[0]
    assert waited >= {"429": 0.2, "stall": 1.0}.get(fault, 0.0)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("500", "HTTP 500: failed at [...]"),
        ("reset", "the connection failed"),
        ("stall", "no answer within 0.5 s"),
        ("empty", "an empty response"),
        ("cut", "a response that is not JSON, or cut off"),
        ("html", "a response that is not JSON, or cut off"),
        ("blank", "an empty answer"),
        ("no-choices", "a response without an answer in it"),
    ],
)
def test_retries_are_bounded_and_the_error_says_why_without_secrets(fault: str, reason: str, photo: Path):
    request = Request([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}], (photo,))
    with Misbehaving(echo, lambda who, earlier: fault, stall=30) as server:
        (response,) = ask(server, [request], retries=2, timeout=0.5 if fault == "stall" else 60)
    assert response.text is None and str(response.error).startswith(reason) and "(asked 3 times)" in str(response.error)
    assert (
        len(server.bodies) == 3 and str(server.port) not in str(response.error) and "base64" not in str(response.error)
    )
    assert "\n" not in str(response.error) and len(str(response.error)) < 300


def test_a_trickle_does_not_hold_a_request_for_ever():
    """Bytes that keep coming satisfy the read timeout of an HTTP library."""

    async def main() -> Response:
        async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n")
            for _ in range(100):
                writer.write(b" ")
                await asyncio.sleep(0.05)

        server = await asyncio.start_server(trickle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with Endpoint(spec(url, timeout=0.3, retries=0)) as endpoint:
            return await endpoint.ask(ask_text("a"))

    assert asyncio.run(main()).error == "no answer within 0.3 s"


def test_no_response_grows_without_bound(monkeypatch):
    """One that never ends, and one that is small only while it is packed."""
    monkeypatch.setattr("cprt.models.endpoint.LONGEST_RESPONSE", 2**20)

    async def flood(body: Any, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"10000\r\n" + b" " * 2**16 + b"\r\n")
            await writer.drain()

    async def bomb(body: Any, writer: Any) -> None:
        packed = gzip.compress(b" " * 2**26)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed)

    for respond in (flood, bomb):
        with Misbehaving(echo) as server:
            server._respond = respond  # type: ignore[method-assign]
            (response,) = ask(server, [ask_text("a")], retries=0)
        assert response.error == "a response of more than 1 MB"


@pytest.mark.parametrize("status", [400, 403, 404, 413])
def test_what_asking_again_cannot_mend_is_asked_once(status: int):
    with Misbehaving(lambda body: (status, {"error": {"message": "no such thing"}})) as server:
        assert ask(server, [ask_text("a")]) == [Response(error=f"HTTP {status}: no such thing")]
    assert len(server.bodies) == 1


def test_a_refused_key_stops_the_run_with_one_line_and_keeps_what_came(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    asked: list[str] = []

    def expire(body: dict[str, Any]) -> Any:
        asked.append(identity(body))
        return ("fine", "stop") if len(asked) <= 5 else (401, {"error": {"message": f"Incorrect API key: {SECRET}"}})

    requests = [ask_text(f"{n}") for n in range(200)]
    with Misbehaving(expire) as server, ResponseCache(tmp_path / "answers.jsonl") as cache:
        model = Model(spec(server.url, api_key_env="JUDGE_KEY", concurrency=4))
        with pytest.raises(Stopped) as caught:
            model.ask(requests, cache, "asking")
        assert str(caught.value) == "judge: the endpoint refuses the key in JUDGE_KEY (HTTP 401)"
        assert sum(model.spec.key(request) in cache for request in requests) == 5
    assert len(server.bodies) <= 5 + 4


def test_an_endpoint_that_keeps_failing_stops_the_run():
    with Misbehaving(echo, lambda who, earlier: "500") as server, pytest.raises(Stopped) as caught:
        ask(server, [ask_text(str(n)) for n in range(500)], retries=1, concurrency=8)
    assert str(caught.value).startswith(f"judge: the endpoint keeps failing: {FAILED_IN_A_ROW} requests in a row")
    assert 2 * FAILED_IN_A_ROW <= len(server.bodies) <= 2 * (FAILED_IN_A_ROW + 8)


@pytest.mark.parametrize(
    "name, place, reason",
    [("127.0.0.1", "127.0.0.1:9", "Connection refused"), ("nowhere.invalid", "its base_url", "no such name")],
)
def test_nobody_there_is_told_at_the_second_try(monkeypatch, name: str, place: str, reason: str):
    """The cause in the system's words; no name of another machine. One that answered before is borne with longer."""
    asked = 0

    async def lookup(*_: Any, **more: Any) -> Any:
        raise socket.gaierror(-2, reason)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", lookup)
    real = Endpoint._call

    async def counted(self: Endpoint, *args: Any) -> Any:
        nonlocal asked
        asked += 1
        return await real(self, *args)

    monkeypatch.setattr(Endpoint, "_call", counted)

    async def main(reached: bool) -> list[Response]:
        responses: list[Response] = []
        remote = Endpoint(spec(f"http://{name}:9/v1", concurrency=1, retries=3), True, first_delay=0.005)
        remote._reached = reached
        async with remote as endpoint:
            await endpoint.ask_all([("0", ask_text("a"))], lambda _, response: responses.append(response))
        return responses

    with pytest.raises(Stopped) as caught:
        asyncio.run(main(False))
    assert str(caught.value).startswith(f"judge: no endpoint at {place}: no connection ({reason}); what was answered")
    assert asked == 2
    assert asyncio.run(main(True)) == [Response(error=f"no connection ({reason}) (asked 4 times)")]


def test_the_breaker_counts_only_failures_in_a_row():
    limiter = RateLimiter(4)
    for _ in range(3):
        for _ in range(FAILED_IN_A_ROW - 1):
            limiter.failed("HTTP 500")
        limiter.answered()
    for _ in range(FAILED_IN_A_ROW - 1):
        limiter.failed("HTTP 500")
    with pytest.raises(Stopped, match="HTTP 502"):
        limiter.failed("HTTP 502")


def test_a_photo_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff not a photo")
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}]
    with Misbehaving(echo) as server:
        responses = ask(server, [Request(messages, (broken,))] * (FAILED_IN_A_ROW + 5) + [ask_text("b")])
    assert str(responses[0].error).startswith("broken.jpg: ") and responses[-1].text == "B" and len(server.bodies) == 1


@pytest.mark.slow
def test_many_requests_through_many_faults_give_every_answer_once(tmp_path: Path):
    requests = [ask_text(f"q{n}") for n in range(60)]
    with Misbehaving(echo, first_try_fails, stall=20) as server, ResponseCache(tmp_path / "answers.jsonl") as cache:
        model = Model(spec(server.url, timeout=2, retries=12, concurrency=32))
        model.ask(requests, cache, "asking")
        assert [cache.rows(model.spec.key(request))[0]["text"] for request in requests] == [f"Q{n}" for n in range(60)]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 60
    assert set(server.faulted) == set(FAULTS[:8])
