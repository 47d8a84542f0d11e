"""The client of an endpoint, against a server on this machine that misbehaves in every way we know."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import logging
import math
import socket
import time
from dataclasses import replace
from datetime import date
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from loopback import FAULTS, Misbehaving, first_try_fails, identity
from PIL import Image, PngImagePlugin

from cprt.answers.structure import structure
from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.ask import Model
from cprt.models.endpoint import Endpoint, data_url, is_loopback
from cprt.models.rate_limiter import (
    FAILED_IN_A_ROW,
    RATE_LIMIT_RETRIES,
    RateLimiter,
    Stopped,
    delay,
    is_retried,
    retry_after,
)
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request, Response
from cprt.taxonomy import Taxonomy

SECRET = "sk-test-5Q9vXkW2mZ8"
SERVED = {"name": "a", "model": "m", "base_url": "http://localhost/v1"}


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


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A JPEG on its side with a position, a comment, a profile and a camera's name in it."""
    pixels = np.random.default_rng(0).integers(0, 255, (12, 20, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    exif[0x0110] = "SecretCamera"
    exif.get_ifd(0x8825)[2] = (48.0, 51.0, 30.0)
    file = tmp_path / "photo.jpg"
    image.save(file, quality=95, exif=exif, comment=b"SecretComment", icc_profile=b"SecretProfile" * 20, dpi=(91, 91))
    return file


# --- Answers -----------------------------------------------------------------------------------------------------


def test_responses_carry_text_finish_and_usage_and_concurrency_is_bounded():
    with Misbehaving(echo, delay=0.05) as server:
        responses = ask(server, [ask_text(f"request {n}") for n in range(30)], concurrency=7)
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    assert responses == [Response(f"REQUEST {n}", True, False, "stop", usage) for n in range(30)]
    assert server.most_in_flight == 7 and len(server.bodies) == 30


def test_the_request_is_what_was_asked(photo: Path):
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image"},
                {"type": "image"},
                {"type": "text", "text": "b"},
            ],
        },
    ]
    plain = photo.with_name("plain.png")
    Image.new("RGB", (5, 4), "red").save(plain)
    with Misbehaving(lambda body: ("fine", "stop")) as server:
        ask(
            server,
            [Request(messages, (photo, plain))],
            image_format="png",
            max_new_tokens=9,
            top_logprobs=3,
            extra={"reasoning_effort": "low"},
        )
    (body,) = server.bodies
    content = body["messages"][1]["content"]
    assert body["messages"][0] == messages[0] and [part["type"] for part in content] == ["text", "image_url"] * 1 + [
        "image_url",
        "text",
    ]
    sizes = [
        Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].split(",")[1]))).size
        for part in content
        if part["type"] == "image_url"
    ]
    assert sizes == [(96, 160), (5, 4)]
    assert {name: body[name] for name in body if name != "messages"} == {
        "model": "some/model",
        "max_tokens": 9,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": 3,
        "reasoning_effort": "low",
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"message": {"content": "0.7"}, "finish_reason": "length"}, Response("0.7", complete=False, finish="length")),
        ({"message": {"content": ""}, "finish_reason": "length"}, Response("", complete=False, finish="length")),
        (
            {"message": {"content": None}, "finish_reason": "content_filter"},
            Response("", refused=True, finish="content_filter"),
        ),
        (
            {"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"},
            Response("No.", refused=True, finish="stop"),
        ),
        (
            {"message": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": -0.1}]}},
            Response("a", logprobs=[{"token": "a", "logprob": -0.1}]),
        ),
    ],
)
def test_endings_are_told_apart(choice: dict[str, Any], expected: Response):
    with Misbehaving(lambda body: (200, {"choices": [choice]})) as server:
        (response,) = ask(server, [ask_text("?")])
    assert response == expected and Response.read(json.loads(json.dumps(response.row()))) == response


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "filtered", "code": "content_filter", "param": "prompt"}}),
        (403, {"error": {"message": "moderated", "code": 403, "metadata": {"flagged_input": "A photo"}}}),  # OpenRouter
        (403, {"error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_CSAM"}),  # xAI
    ],
)
def test_a_content_filter_that_answers_with_an_error_is_a_refusal(status: int, body: dict[str, Any]):
    with Misbehaving(lambda _: (status, body)) as server:
        assert ask(server, [ask_text("?")]) == [Response("", refused=True, finish="content_filter")]


def test_options_that_the_endpoint_refuses_are_left_out_and_recorded():
    """OpenAI's reasoning models, in their own words."""

    def strict(body: dict[str, Any]) -> Any:
        for name, advice in (
            ("max_tokens", "Use 'max_completion_tokens' instead."),
            ("temperature", ""),
            ("logprobs", ""),
        ):
            if name in body:
                message = f"Unsupported parameter: '{name}' is not supported with this model. {advice}"
                return 400, {"error": {"message": message, "param": name, "code": "unsupported_parameter"}}
        return "fine", "stop"

    with Misbehaving(strict) as server:
        responses = ask(server, [ask_text(str(n)) for n in range(3)], top_logprobs=5, concurrency=1, max_new_tokens=7)
    assert [(response.text, response.dropped) for response in responses] == [("fine", ("logprobs", "temperature"))] * 3
    assert len(server.bodies) == 3 + 3 and server.bodies[-1].keys() == {"model", "messages", "max_completion_tokens"}
    assert server.bodies[-1]["max_completion_tokens"] == 7


VLLM = "Requested sample logprobs of 20, which is greater than max allowed: 5"


@pytest.mark.parametrize(
    ("most", "message", "status", "tried"),
    [
        (None, "Unsupported parameter: 'logprobs' is not supported with this model.", 400, [20, None]),
        (None, "Logprobs is not enabled for models/gemini-2.5-pro", 400, [20, None]),
        (None, "LOGPROBS are not available", 422, [20, None]),
        (None, "", 400, [20, None]),
        (None, "Request contains an invalid argument.", 400, [20, None]),
        (5, VLLM, 400, [20, 5]),
        (8, "'top_logprobs' must be between 0 and 8", 422, [20, 8]),
        (5, "Input should be less than or equal to 5 (body.top_logprobs)", 422, [20, 5]),
        (5, "top_logprobs: at most 5 for gpt-4.1-mini-2025, you sent 20", 400, [20, 5]),
        (5, "top_logprobs is too large", 400, [20, 5]),
        (19, "logprobs must be in the range [0, 20)", 400, [20, 5]),
        (3, "top_logprobs is too large: 5 is more than 3", 400, [20, 5, 3]),
    ],
)
def test_logprobs_that_are_refused_become_fewer_or_none(most: int | None, message: str, status: int, tried: list):
    def limited(body: dict[str, Any]) -> Any:
        if body.get("top_logprobs", 0) > (most or 0):
            return status, {"error": {"message": message}} if message else {}
        logprobs = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]} if "logprobs" in body else None
        return 200, {"choices": [{"message": {"content": "a"}, "finish_reason": "stop", "logprobs": logprobs}]}

    with Misbehaving(limited) as server:
        responses = ask(server, [ask_text(str(n)) for n in range(3)], top_logprobs=20, concurrency=1)
    assert [body.get("top_logprobs") for body in server.bodies] == [*tried, tried[-1], tried[-1]]
    for response in responses:
        assert response.text == "a" and response.dropped == (() if tried[-1] else ("logprobs",))
        assert response.made == ({"top_logprobs": tried[-1]} if tried[-1] else None)
        assert (response.logprobs is None) is (tried[-1] is None)


def test_a_bare_400_that_is_not_about_logprobs_costs_one_more_call_and_drops_nothing():
    def picky(body: dict[str, Any]) -> Any:
        if body["messages"][0]["content"][0]["text"] == "bad":
            return 400, {}
        logprobs = {"content": [{"token": "a", "logprob": -0.5}]} if "logprobs" in body else None
        return 200, {"choices": [{"message": {"content": "a"}, "finish_reason": "stop", "logprobs": logprobs}]}

    with Misbehaving(picky) as server:
        asked = [ask_text("bad"), ask_text("good"), ask_text("bad")]
        responses = ask(server, asked, top_logprobs=20, concurrency=1)
    assert [response.error for response in responses] == ["HTTP 400", None, "HTTP 400"]
    assert responses[1].dropped == () and responses[1].logprobs and len(server.bodies) == 2 + 1 + 1


FORM = structure("score", Taxonomy.default())
LLAMA_CPP = "failed to parse grammar"
OPENAI = "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."


@pytest.mark.parametrize(
    ("refuses", "message", "top_logprobs", "calls", "dropped"),
    [
        ((), "", None, 3, ()),
        (("response_format",), OPENAI, None, 1 + 3, ("response_format",)),
        (("response_format",), "This response_format type is unavailable now", 2, 1 + 3, ("response_format",)),
        (("response_format",), LLAMA_CPP, None, 1 + 3, ("response_format",)),
        (("response_format",), "", 2, 1 + 3, ("response_format",)),
        (("response_format", "logprobs"), "", 2, 2 + 3, ("logprobs", "response_format")),
        (("logprobs",), "'logprobs' is not supported with this model", 2, 1 + 3, ("logprobs",)),
    ],
)
def test_a_form_is_asked_for_as_a_schema_and_where_that_is_refused_not(
    refuses: tuple[str, ...], message: str, top_logprobs: int | None, calls: int, dropped: tuple[str, ...]
):
    """Endpoints that take it, refuse it by name, in other words, or in none."""

    def server_of_some(body: dict[str, Any]) -> Any:
        if any(name in body for name in refuses):
            return 400, {"error": {"message": message}} if message else {}
        logprobs = {"content": [{"token": "a", "logprob": -0.5}]} if "logprobs" in body else None
        choice = {"message": {"content": "0.7"}, "finish_reason": "stop", "logprobs": logprobs}
        if "response_format" in body:
            schema = body["response_format"]["json_schema"]["schema"]
            choice["message"]["content"] = json.dumps(dict.fromkeys(schema["required"], 0.7))
        return 200, {"choices": [choice]}

    asked = [replace(ask_text(str(n)), structure=FORM) for n in range(3)]
    with Misbehaving(server_of_some) as server:
        responses = ask(server, asked, top_logprobs=top_logprobs, concurrency=1)
    said = "0.7" if "response_format" in dropped else '{"score": 0.7}'
    assert [(response.text, response.dropped) for response in responses] == [(said, dropped)] * 3
    assert len(server.bodies) == calls
    first = server.bodies[0]["response_format"]
    assert first["type"] == "json_schema" and first["json_schema"]["strict"] is True
    assert first["json_schema"]["schema"]["required"] == ["score"]
    kept = Response.read(json.loads(json.dumps(responses[0].row())))
    assert kept.dropped == dropped


@pytest.mark.parametrize(
    ("status", "message", "calls", "dropped"),
    [
        (404, "No endpoints found that support response_format", 1 + 3, True),
        (403, "Structured outputs are not part of this plan", 1 + 3, True),
        (415, "json_schema is not supported", 1 + 3, True),
        (501, "guided decoding is not implemented", 1 + 3, True),
        (500, "failed to initialise the grammar", 2 + 1 + 3, True),  # it could have passed
        (200, "Unsupported JSON schema", 2 + 1 + 3, True),
        (404, "The model does not exist", 3, False),
        (500, "CUDA error", 3 * 3, False),
        (500, "", 3 * 3, False),
    ],
)
def test_a_schema_is_refused_under_any_status_in_words(status: int, message: str, calls: int, dropped: bool):
    def refusing(body: dict[str, Any]) -> Any:
        if "response_format" in body or not dropped:
            return status, {"error": {"message": message}}
        return "0.7", "stop"

    asked = [replace(ask_text(str(n)), structure=FORM) for n in range(3)]
    with Misbehaving(refusing) as server:
        responses = ask(server, asked, concurrency=1, retries=2)
    assert [response.text for response in responses] == ["0.7" if dropped else None] * 3
    assert {response.dropped for response in responses} == {("response_format",) if dropped else ()}
    assert len(server.bodies) == calls


def test_a_fault_that_passes_costs_no_option_though_its_words_are_an_echo():
    """Nor does one that comes once the schema has come through, however long it lasts."""
    down = {"0": 1, "2": 9}  # question -> requests that fail

    def failing(body: dict[str, Any]) -> Any:
        question = body["messages"][0]["content"][0]["text"]
        if down.get(question):
            down[question] -= 1
            return 500, {"error": {"message": f"failed with {json.dumps(body)}"}}
        return '{"score": 0.7}', "stop"

    asked = [replace(ask_text(str(n)), structure=FORM) for n in range(4)]
    with Misbehaving(failing) as server:
        responses = ask(server, asked, concurrency=1, retries=2)
    assert [response.text and response.dropped for response in responses] == [(), (), None, ()]
    assert all("response_format" in body for body in server.bodies) and len(server.bodies) == 2 + 1 + 3 + 1


HELD = '{"attributes": ["age", "gender"], "level": 3, "score": 0.31}'


@pytest.mark.parametrize(
    ("said", "finish", "free"),
    [
        (HELD, "stop", False),
        (HELD.replace(" ", ""), "stop", False),
        ("\n" + HELD.replace(", ", ",\n  "), "stop", False),
        (f"<think>A face.</think>\n{HELD}", "stop", False),
        (HELD.replace("0.31", "7"), "stop", False),  # not every engine holds to a number's bounds; the reader does
        (f"```json\n{HELD}\n```", "stop", True),
        (f"Here it is: {HELD}", "stop", True),
        ("Privacy risk: 0.31", "stop", True),
        ("0.31", "stop", True),
        (HELD.replace("gender", "sex"), "stop", True),
        (HELD.replace("3,", "5,"), "stop", True),
        (HELD.replace("3,", '"3",'), "stop", True),
        (HELD.replace("3,", "true,"), "stop", True),
        (HELD.replace('["age", "gender"]', '"age"'), "stop", True),
        (HELD.replace("0.31", '"0.31"'), "stop", True),
        (HELD.replace("}", ', "why": "a face"}'), "stop", True),
        (HELD.replace('"level": 3, ', ""), "stop", True),
        (HELD[:30], "length", False),  # cut off: nobody knows
        ("", "content_filter", False),
    ],
)
def test_an_endpoint_that_ignores_the_schema_is_found_out_by_its_answer(said: str, finish: str, free: bool):
    form = structure("attributes", Taxonomy.default())
    with Misbehaving(lambda body: (said, finish)) as server:
        (response,) = ask(server, [replace(ask_text("?"), structure=form)])
        (plain,) = ask(server, [ask_text("?")])
    assert response.is_free is free and response.text == said
    assert response.dropped == (("response_format",) if free else ()) and plain.dropped == ()


def test_a_photo_that_is_refused_does_not_cost_the_form():
    def picky(body: dict[str, Any]) -> Any:
        return (400, {}) if body["messages"][0]["content"][0]["text"] == "bad" else ('{"score": 0.7}', "stop")

    with Misbehaving(picky) as server:
        asked = [replace(ask_text(text), structure=FORM) for text in ("bad", "good", "bad")]
        responses = ask(server, asked, concurrency=1)
    assert [response.error for response in responses] == ["HTTP 400", None, "HTTP 400"]
    assert responses[1].dropped == () and len(server.bodies) == 2 + 1 + 1


def test_an_ending_that_is_none_is_asked_again_and_named_in_the_end():
    with Misbehaving(lambda body: ("0.71", "abort")) as server:
        (response,) = ask(server, [ask_text("a")], retries=1)
    assert response.text is None and str(response.error).startswith("an answer that ended with 'abort'")
    assert len(server.bodies) == 2


def test_a_limit_may_be_left_to_the_endpoint():
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")], max_new_tokens=None)
    assert server.bodies[0].keys() == {"model", "messages", "temperature"}


# --- Faults ------------------------------------------------------------------------------------------------------


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


# --- Waiting -----------------------------------------------------------------------------------------------------


def test_retry_after_is_read_as_seconds_or_date():
    now = 1_800_000_000.0
    assert retry_after(None, now) is None and retry_after("soon", now) is None and retry_after("nan", now) is None
    assert retry_after("7", now) == 7 and retry_after("0.25", now) == 0.25 and retry_after("-3", now) == 0
    assert retry_after(formatdate(now + 90, usegmt=True), now) == pytest.approx(90)
    assert retry_after(formatdate(now - 90, usegmt=True), now) == 0


def test_delays_double_with_jitter_up_to_a_limit():
    for failures, full in ((1, 0.5), (2, 1.0), (5, 8.0), (9, 30.0), (10_000, 30.0)):
        delays = [delay(failures) for _ in range(200)]
        assert full / 2 <= min(delays) < max(delays) <= full and len(set(delays)) > 100


def test_which_statuses_are_asked_again():
    assert [status for status in range(300, 600) if is_retried(status)] == [408, 409, 429, *range(500, 600)]


def test_an_endpoint_that_wants_a_day_is_not_waited_for():
    with Misbehaving(echo, lambda who, earlier: "429") as server:
        server_respond = server._respond

        async def tomorrow(body: Any, writer: Any) -> None:
            content = b'{"error": {"message": "daily quota"}}'
            writer.write(
                b"HTTP/1.1 429 X\r\nretry-after: 86400\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
            )

        server._respond = tomorrow  # type: ignore[method-assign]
        assert ask(server, [ask_text("a")]) == [Response(error="HTTP 429: daily quota")]
        server._respond = server_respond  # type: ignore[method-assign]


def test_a_rate_limit_closes_the_gate_for_all_and_halves_the_flight():
    async def main() -> list[float]:
        limiter, limits = RateLimiter(64), []
        for _ in range(5):
            limiter.rate_limited(0.05)  # many at once: one closing
        limits.append(limiter.limit)
        start = time.monotonic()
        await limiter.enter()
        assert time.monotonic() - start >= 0.05
        limiter.leave()
        for _ in range(8):
            limiter.rate_limited(0.0)
            limiter._open_at = 0.0
        limits.append(limiter.limit)
        for _ in range(32):
            limiter.answered()
        limits.append(limiter.limit)
        return limits

    halved, least, grown = asyncio.run(main())
    assert (halved, least) == (32.0, 1.0) and 7 < grown < 9  # 1 -> n takes about n (n + 1) / 2 answers


def test_an_endpoint_that_takes_three_at_once_answers_all_forty():
    """Sixteen ask it: without fewer in flight the retries of some would run out."""

    def crowded(body: dict[str, Any]) -> Any:
        if server.in_flight > 3:
            return 429, {"error": {"message": "too many"}}
        return echo(body)

    with Misbehaving(crowded, delay=0.02) as server:
        responses = ask(server, [ask_text(f"q{n}") for n in range(40)])
    assert [response.text for response in responses] == [f"Q{n}" for n in range(40)]


def test_rate_limits_without_end_become_an_error():
    with Misbehaving(lambda body: (429, {"error": {"message": "never"}})) as server:
        (response,) = ask(server, [ask_text("a")])
    assert str(response.error).startswith("HTTP 429: never") and len(server.bodies) == RATE_LIMIT_RETRIES + 1


# --- Privacy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
def test_a_photo_travels_as_pixels_alone(photo: Path, image_format: str):
    assert b"SecretCamera" in photo.read_bytes() and b"SecretComment" in photo.read_bytes()
    sent = base64.b64decode(data_url(photo, None, image_format).split(",")[1])
    assert b"Secret" not in sent and b"Exif" not in sent and b"ICC_PROFILE" not in sent and b"iCCP" not in sent
    with Image.open(io.BytesIO(sent)) as image:
        assert image.size == (96, 160) and not image.getexif() and "dpi" not in image.info
        difference = np.abs(np.asarray(image.convert("RGB"), int) - np.asarray(load_image(photo), int))
    assert difference.mean() < 3 and (image_format == "jpeg" or difference.max() == 0)


def test_a_jpeg_of_nothing_but_pixels_goes_as_it_is(photo: Path, tmp_path: Path):
    load_image(photo).save(tmp_path / "a.jpg", quality=95)
    content = (tmp_path / "a.jpg").read_bytes()
    assert base64.b64decode(data_url(tmp_path / "a.jpg", 96 * 160, "jpeg").split(",")[1]) == content
    for smaller, image_format in ((96 * 160 - 1, "jpeg"), (None, "png")):
        sent = base64.b64decode(data_url(tmp_path / "a.jpg", smaller, image_format).split(",")[1])
        with Image.open(io.BytesIO(sent)) as image:
            assert image.width * image.height <= (smaller or 96 * 160) and image.format == image_format.upper()


def test_text_chunks_of_a_png_stay_here_and_large_photos_are_shrunk(tmp_path: Path):
    note = PngImagePlugin.PngInfo()
    note.add_text("Author", "SecretName")
    Image.new("RGBA", (300, 200), (10, 20, 30, 255)).save(tmp_path / "a.png", pnginfo=note)
    sent = base64.b64decode(data_url(tmp_path / "a.png", 15_000, "png").split(",")[1])
    with Image.open(io.BytesIO(sent)) as image:
        assert image.size == (150, 100) and image.mode == "RGB" and image.getpixel((7, 7)) == (10, 20, 30)
    assert b"SecretName" not in sent


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:8/v1", True),
        ("http://localhost:8/v1", True),
        ("http://LocalHost./v1", True),
        ("http://evil.localhost/v1", False),
        ("http://0.0.0.0:8/v1", False),
        ("http://10.0.0.7:8/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
        ("http://localhost.example.com/v1", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_what_is_on_this_machine(url: str, local: bool):
    assert is_loopback(url) is local
    if local:
        assert not Endpoint(spec(url)).is_remote
    else:
        with pytest.raises(InputError, match="images would leave this one; set --allow_remote true") as caught:
            Endpoint(spec(url))
        assert "example" not in str(caught.value)
        assert Endpoint(spec(url), allow_remote=True).is_remote


def test_neither_a_proxy_nor_a_redirect_carries_photos_away(monkeypatch):
    with Misbehaving(echo) as elsewhere, Misbehaving(echo) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere.port}")
        assert ask(server, [ask_text("a")])[0].text == "A"
        elsewhere_too = spec(server.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"), api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", SECRET)

        async def by_plain_http() -> Response:
            async with Endpoint(elsewhere_too, allow_remote=True) as endpoint:
                return await endpoint.ask(ask_text("b"))

        assert asyncio.run(by_plain_http()).text == "B"  # a proxy would see the key

        async def redirect(body: Any, writer: Any) -> None:
            location = elsewhere.url.encode()
            writer.write(b"HTTP/1.1 307 X\r\nlocation: %b/chat/completions\r\ncontent-length: 0\r\n\r\n" % location)

        server._respond = redirect  # type: ignore[method-assign]
        assert ask(server, [ask_text("c")]) == [Response(error="HTTP 307")]
    assert elsewhere.bodies == []


def test_only_the_named_key_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")])
        assert SECRET not in server.headers[0]
        monkeypatch.setenv("JUDGE_KEY", "sk-other-key-8421")
        ask(server, [ask_text("b")], api_key_env="JUDGE_KEY")
        assert (
            "authorization: bearer sk-other-key-8421" in server.headers[1].lower() and SECRET not in server.headers[1]
        )
    monkeypatch.delenv("JUDGE_KEY")
    with pytest.raises(InputError, match="the environment variable JUDGE_KEY with the key is not set"):
        Endpoint(spec("http://127.0.0.1:1/v1", api_key_env="JUDGE_KEY"))


def test_nothing_of_openais_environment_or_of_this_machine_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: team-secret\nAuthorization: Bearer header-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")])
        (head,) = server.headers
    names = {line.partition(":")[0].lower() for line in head.splitlines()[1:] if line}
    assert names == {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"}
    assert "secret" not in head


@pytest.mark.parametrize("key", ["sk-1\nX-Evil: 1", "sk-1\rx", "sk 1", "sk-\u00e9", "sk-\x7f", "sk-\x01"])
def test_a_key_that_no_header_takes_is_one_line_without_it(monkeypatch, key: str):
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(InputError) as caught:
        Endpoint(spec("http://127.0.0.1:1/v1", api_key_env="JUDGE_KEY"))
    assert str(caught.value).startswith("judge: what is in the environment variable JUDGE_KEY is no key")
    assert "sk" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_key_from_a_file_may_end_in_a_line_break(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-1234\n")
    with Misbehaving(echo) as server:
        ask(server, [ask_text("a")], api_key_env="JUDGE_KEY")
    assert "authorization: bearer sk-1234\r\n" in server.headers[0].lower()


ADDRESSES = {
    True: (
        "http://127.0.0.1:8000/v1 http://localhost http://[::1]:8000/v1 https://api.example.com:443/v1/ HTTP://a_b.c:1 "
        "http://example.com./v1 http://[::ffff:10.0.0.1]/v1 https://x.example/openai/deployments/a-b/%41"
    ).split(),
    False: [
        *"http:// http://[::1 http://[::1]x http://[zz]:1/ http://a:99999/v1 http://a:0/v1 http://a:b/v1 http://a:-1".split(),
        *"http://a..b/v1 http://.a/v1 http://-a/v1 //a/v1 a:1/v1 ftp://a/v1 file:///etc http://u@a/v1 http://u:p@a".split(),
        *"http://a/v1?k=v http://a/v1#f http://a\\b/v1 http://[fe80::1%eth0]/v1 http://a:１/v1 http://ä.example/".split(),
        *("http://a b/v1", "http://a/v 1", " http://a/v1", "http://a/v1\n", "http://a\t/v1", "http://a/\x00", ""),
    ],
}


@pytest.mark.parametrize(("good", "url"), [(good, url) for good, urls in ADDRESSES.items() for url in urls])
def test_addresses(good: bool, url: str):
    if good:
        assert httpx2.URL(spec(url).base_url).host
    else:
        with pytest.raises(InputError, match=r"^spec: field 'base_url': must be http\(s\)://[^\n]*$"):
            spec(url)


def test_nothing_secret_is_logged_or_kept(photo: Path, tmp_path: Path, monkeypatch, caplog, capfd):
    """The server sends the whole request back in its error, key and photo included."""
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}]

    def fails(who: str, earlier: int) -> str | None:
        return "500" if earlier < 2 else None

    with Misbehaving(echo, fails) as server, ResponseCache(tmp_path / "answers.jsonl") as cache:
        for retries in (0, 1):
            model = Model(spec(server.url, api_key_env="JUDGE_KEY", retries=retries))
            model.ask([Request(messages, (photo,))], cache, "asking")
    captured = capfd.readouterr()
    written = (tmp_path / "answers.jsonl").read_text()
    assert '"error": "HTTP 500: failed at [...]' in written and '"text": "A"' in written
    for text in (written, captured.out, captured.err, caplog.text):
        for secret in (SECRET, "base64", "/9j/", "127.0.0.1", str(server.port)):
            assert secret not in text


# --- Specifications and keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"model": "m"}, "field 'name': is missing"),
        ({"name": "a"}, "field 'model': is missing"),
        ({"name": "../a", "model": "m"}, "field 'name': '../a' is not a name of letters"),
        ({"name": "a", "model": "m", "api_key": SECRET}, "field 'api_key': a key is never read from a file"),
        (
            {"name": "a", "model": "m", "base_url": "http://localhost/v1", "api_key_env": SECRET},
            "is not the name of an",
        ),
        ({"name": "a", "model": "m", "base_url": f"http://u:{SECRET}@localhost/v1"}, "field 'base_url': must be http"),
        (
            {"name": "a", "model": "m", "base_url": f"http://localhost/v1?key={SECRET}"},
            "field 'base_url': must be http",
        ),
        ({"name": "a", "model": "m", "base_url": "localhost:8000"}, "field 'base_url': must be http"),
        ({"name": "a", "model": "m", "api_key_env": "KEY"}, "field 'api_key_env': needs a base_url"),
        ({"name": "a", "model": "m", "top_logprobs": 0}, "field 'top_logprobs': must be at least 1, not 0"),
        ({"name": "a", "model": "m", "temperature": 0.7}, "a local model decodes greedily"),
        ({"name": "a", "model": "m", "concurrency": 0}, "field 'concurrency': must be 1 to 1,000"),
        ({"name": "a", "model": "m", "concurrency": 2.5}, "field 'concurrency': 2.5 is not a whole number"),
        ({"name": "a", "model": "m", "retries": -1}, "field 'retries': must not be negative"),
        ({"name": "a", "model": "m", "timeout": 0}, "field 'timeout': must be more than 0"),
        ({"name": "a", "model": "m", "image_format": "gif"}, "field 'image_format'"),
        ({"name": "a", "model": "m", "modle": "x"}, "field 'modle': unknown field"),
        ({"name": "a", "model": "m", "timeout": math.inf}, "field 'timeout': inf is not a number"),
        ({"name": "a", "model": "m", "timeout": math.nan}, "field 'timeout': nan is not a number"),
        ({**SERVED, "temperature": -1}, "field 'temperature': must not be negative"),
        ({**SERVED, "temperature": math.nan}, "field 'temperature': nan is not a number or null"),
        ({**SERVED, "extra": {"day": date(2025, 1, 1)}}, "field 'extra': holds what JSON cannot"),
        ({**SERVED, "extra": {"a": math.nan}}, "field 'extra': holds what JSON cannot"),
        ({**SERVED, "extra": {"a": 1, 2: 3}}, "field 'extra': holds what JSON cannot"),
        ({**SERVED, "extra": {"stream": True}}, "field 'extra': must not set stream"),
        ({**SERVED, "extra": {"api_key": "sk-1"}}, "field 'extra': holds 'api_key', and run records show it"),
        ({**SERVED, "extra": {"extra_headers": [{"Authorization": "sk-1"}]}}, "field 'extra': holds 'Authorization'"),
        (
            {"name": "a", "model": "m", "dtype": "fp8"},
            "field 'dtype': 'fp8' is not one of auto, float32, bfloat16",
        ),
        ({"name": "a", "model": "m\0"}, "field 'model': must be one line"),
        ({"name": "a", "model": "m", "adapter": "x\ny"}, "field 'adapter': must be one line"),
        ({"name": "a", "model": "m", "max_new_tokens": None}, "field 'max_new_tokens': a local model needs a limit"),
    ],
)
def test_bad_specifications_get_one_line_without_the_key(row: dict[str, Any], complaint: str):
    with pytest.raises(InputError) as caught:
        ModelSpec.read(row, "annotators[1]")
    message = str(caught.value)
    assert (
        message.startswith("annotators[1]: ") and complaint in message and SECRET not in message and "\n" not in message
    )


def test_one_temperature_has_one_key():
    keys = {spec("http://localhost/v1", temperature=zero).key(ask_text("a")) for zero in (0, 0.0)}
    assert len(keys) == 1


def test_every_part_of_a_request_tells_its_answer_apart(photo: Path):
    url, other = "http://127.0.0.1:8000/v1", photo.with_name("other.jpg")
    Image.open(photo).save(other, quality=90)

    def messages(text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]

    base, request = spec(url), Request(messages("a"), (photo,))
    changes: list[dict[str, Any]] = [
        {"model": "m2"},
        {"base_url": "http://127.0.0.1:8001/v1"},
        {"revision": "2"},
        {"max_new_tokens": 5},
        {"temperature": 0.5},
        {"temperature": None},
        {"top_logprobs": 2},
        {"max_pixels": 99},
        {"image_format": "png"},
        {"extra": {"seed": 1, "prompt_cache_key": "a", "max_tokens": 3, "stop_token_ids": [1]}},
        {"base_url": None},
    ]
    requests = [request, Request(messages("b"), (photo,))]
    requests += [Request(messages("a"), images) for images in ((other,), (photo, other), (other, photo))]
    keys = [base.key(request) for request in requests]
    keys += [replace(base, **change).key(request) for change in changes]
    assert len(set(keys)) == 5 + len(changes)
    same = {"name": "other", "concurrency": 3, "timeout": 9.0, "retries": 0, "api_key_env": "KEY", "batch_size": 2}
    assert replace(base, **same).key(request) == keys[0]
    renamed = photo.with_name("renamed.jpg")
    renamed.write_bytes(photo.read_bytes())
    assert base.key(Request(messages("a"), (renamed,))) == keys[0]
    # With a stated revision a server may move.
    assert spec(url, revision="v1").key(request) == spec("http://127.0.0.1:9/v1", revision="v1").key(request)


def test_a_served_folder_counts_by_its_content(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    before = spec("http://localhost/v1", model=str(tmp_path)).key(ask_text("a"))
    (tmp_path / "config.json").write_text('{"changed": true}')
    assert spec("http://localhost/v1", model=str(tmp_path)).key(ask_text("a")) != before


def test_the_record_says_not_where_the_endpoint_is():
    assert "example" not in json.dumps(spec("https://api.example.com/v1", api_key_env="KEY").record())


@pytest.mark.slow
def test_many_requests_through_many_faults_give_every_answer_once(tmp_path: Path):
    requests = [ask_text(f"q{n}") for n in range(60)]
    with Misbehaving(echo, first_try_fails, stall=20) as server, ResponseCache(tmp_path / "answers.jsonl") as cache:
        model = Model(spec(server.url, timeout=2, retries=12, concurrency=32))
        model.ask(requests, cache, "asking")
        assert [cache.rows(model.spec.key(request))[0]["text"] for request in requests] == [f"Q{n}" for n in range(60)]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 60
    assert set(server.faulted) == set(FAULTS[:8])


@pytest.mark.parametrize(
    ("given", "sent"), [({}, None), ({"max_new_tokens": 12}, 12), ({"max_new_tokens": None}, None)]
)
def test_an_endpoint_is_sent_a_limit_where_one_is_given(given: dict[str, Any], sent: int | None):
    spec = ModelSpec.read({"name": "a", "model": "m", "base_url": "http://127.0.0.1:1/v1", **given}, "x")
    assert spec.max_new_tokens == sent
    assert ModelSpec.read({"name": "a", "model": "m"}, "x").max_new_tokens == 4096  # a local model needs one
