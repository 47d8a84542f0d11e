"""What an endpoint is asked and what it answers, in every way that a server on this machine knows."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from endpoints import ask, ask_text, echo
from loopback import Misbehaving
from PIL import Image

from cprt.answers.structure import structure
from cprt.models.spec import Request, Response
from cprt.taxonomy import Taxonomy


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
