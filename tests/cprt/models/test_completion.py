"""The reader of a completion, on the wording of engines and vendors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cprt.answers import parse
from cprt.models.completion import Unusable, read_completion, read_error, read_logprobs
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import Response

SCORE = '{"score": 0.71}'


def body(finish: Any = "stop", content: Any = SCORE, **more: Any) -> bytes:
    """A completion. Keyword arguments go into the choice, those that end in ``_`` beside it."""
    beside = {name.removesuffix("_"): value for name, value in more.items() if name.endswith("_")}
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish}
    choice |= {name: value for name, value in more.items() if not name.endswith("_")}
    return json.dumps({"choices": [choice], **beside}).encode()


@pytest.mark.parametrize(
    ("finish", "engine"),
    [
        ("stop", "OpenAI, vLLM, SGLang, llama.cpp, Ollama"),
        ("STOP", "Gemini"),
        ("eos", "Together"),
        ("eos_token", "TGI"),
        ("stop_sequence", "TGI, Anthropic"),
        ("end_turn", "Anthropic, Bedrock"),
        ("COMPLETE", "Cohere"),
        (None, "engines that never say"),
        ("", "the same"),
    ],
)
def test_an_answer_that_ended_of_itself_is_whole(finish: str | None, engine: str):
    response = read_completion(body(finish))
    assert (response.text, response.complete, response.refused) == (SCORE, True, False), engine


def test_of_several_choices_the_first_by_its_index_counts():
    content = json.loads(body())
    other = {"message": {"content": '{"score": 0.9}'}, "finish_reason": "stop", "index": 1}
    content["choices"] = [other, content["choices"][0] | {"index": 0}]
    assert read_completion(json.dumps(content).encode()).text == SCORE


@pytest.mark.parametrize("finish", ["length", "MAX_TOKENS", "max_tokens", "model_length", "max_output_tokens"])
@pytest.mark.parametrize("text", [SCORE, ""])
def test_an_answer_at_the_limit_is_cut(finish: str, text: str):
    response = read_completion(body(finish, text))
    assert (response.text, response.complete, response.refused) == (text, False, False)


@pytest.mark.parametrize(
    ("finish", "tokens", "complete"),
    [(None, 8, False), (None, 7, True), ("", 9, False), ("stop", 8, True), (None, "8", True)],
)
def test_without_a_reason_the_endpoints_own_count_says_whether_it_is_whole(
    finish: str | None, tokens: Any, complete: bool
):
    assert read_completion(body(finish, usage_={"completion_tokens": tokens}), 8).complete is complete
    assert read_completion(body(finish, usage_={"completion_tokens": tokens})).complete


@pytest.mark.parametrize(
    "finish",
    [
        "content_filter",
        "SAFETY",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "BLOCKLIST",
        "SPII",
        "IMAGE_SAFETY",
        "content_filter: PROHIBITED_CONTENT",
        "content_filtered",
        "guardrail_intervened",
        "refusal",
        "ERROR_TOXIC",
    ],
)
@pytest.mark.parametrize("content", [SCORE, None])
def test_a_filter_is_a_refusal(finish: str, content: str | None):
    response = read_completion(body(finish, content))
    assert response.refused and response.finish == finish and response.text == (content or "")


@pytest.mark.parametrize(
    "finish",
    [
        "error",
        "abort",
        "cancelled",
        "timeout",
        "ERROR",
        "OTHER",
        "LANGUAGE",
        "tool_calls",
        "load",
        "new_reason",
        7,
        ["stop"],
    ],
)
def test_any_other_ending_is_no_answer_and_is_named(finish: Any):
    with pytest.raises(Unusable) as caught:
        read_completion(body(finish))
    assert repr(finish) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (body(error={"message": "CUDA out of memory"}), "an error in the response: CUDA out of memory"),
        (body(error="upstream is gone"), "an error in the response: upstream is gone"),
        (body(error_={"message": "overloaded", "code": 529}), "an error in the response: overloaded"),
        (json.dumps({"error": [{"message": "in a list"}]}).encode(), "an error in the response: in a list"),
        (b"", "an empty response"),
        (b"null", "a response without an answer in it"),
        (b"[]", "a response without an answer in it"),
        (b'{"choices": [null]}', "a response without an answer in it"),
        (b'{"choices": [{"message": null}]}', "a response without an answer in it"),
        (b"[" * 100_000, "a response that is not JSON"),
        (body(content={"text": SCORE}), "an answer that is not a text"),
        (body(content=5), "an answer that is not a text"),
        (body(content=[5]), "an answer that is not a text"),
        (body(content=[]), "an empty answer"),
        (body(content=[{"type": "text", "text": " "}]), "an empty answer"),
    ],
)
def test_what_is_no_answer_says_why(content: bytes, complaint: str):
    with pytest.raises(Unusable) as caught:
        read_completion(content)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"type": "text", "text": '{"score": '}, {"type": "text", "text": "0.71}"}], SCORE),
        ([{"type": "output_text", "text": SCORE}], SCORE),
        ([SCORE], SCORE),
        (
            [{"type": "thinking", "thinking": '{"score": 0.2}?'}, {"type": "text", "text": SCORE}],
            f'<think>{{"score": 0.2}}?</think>\n{SCORE}',
        ),
        (
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Perhaps 0.9."}]},
                {"type": "text", "text": SCORE},
            ],
            f"<think>Perhaps 0.9.</think>\n{SCORE}",
        ),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": SCORE}], f"<think>hm</think>\n{SCORE}"),
        ([{"type": "image", "url": "x"}, {"type": "text", "text": SCORE}], SCORE),
    ],
)
def test_parts_are_joined_and_thoughts_are_no_answer(parts: list[Any], text: str):
    response = read_completion(body(content=parts))
    assert response.text == text and parse(text).score == 0.71


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 11, "total_tokens": 18}, {"prompt_tokens": 11, "total_tokens": 18}),
        ({"prompt_tokens": 11, "cost": 0.5, "details": {"a": 1}, "x": None, "y": True}, {"prompt_tokens": 11}),
        ([1, 2], None),
        ("many", None),
        (7, None),
        ({}, None),
        ({"prompt_tokens": -1, "total_tokens": 2**70}, None),
    ],
)
def test_an_odd_usage_costs_no_answer(usage: Any, read: Any):
    assert read_completion(body(usage_=usage)) == Response(SCORE, finish="stop", usage=read)


def test_a_figure_of_thousands_of_digits_costs_no_answer():
    content = body(usage_={"total_tokens": 0}).replace(b'"total_tokens": 0', b'"total_tokens": ' + b"9" * 6000)
    assert read_completion(content) == Response(SCORE, finish="stop")


def token(logprob: str, *listed: str) -> str:
    options = ", ".join(f'{{"token": "t", "logprob": {value}, "bytes": [116]}}' for value in listed)
    return f'{{"token": "a", "logprob": {logprob}, "bytes": [97], "top_logprobs": [{options}]}}'


A = {"token": "a", "logprob": -0.5, "top_logprobs": []}


@pytest.mark.parametrize(
    ("logprobs", "read"),
    [
        (f'{{"content": [{token("-0.5", "-1.5")}]}}', [A | {"top_logprobs": [{"token": "t", "logprob": -1.5}]}]),
        (
            f'{{"content": [{token("-0.5", "-Infinity", "NaN", "-2", "1e999", "null", "true")}]}}',
            [A | {"top_logprobs": [{"token": "t", "logprob": -9999.0}, {"token": "t", "logprob": -2}]}],
        ),
        (f'{{"content": [{token("-Infinity")}]}}', [A | {"logprob": -9999.0}]),
        (f'{{"content": [{token("-" + "9" * 400)}]}}', [A | {"logprob": -9999.0}]),
        (f'{{"content": [{token("NaN")}]}}', None),
        (f'{{"content": [{token("9" * 400)}]}}', None),
        (f'{{"content": [{token("3.5")}]}}', None),
        (
            '{"content": [{"token": "a", "logprob": -0.5, "top_logprobs": {"a": -0.5}}]}',
            [{"token": "a", "logprob": -0.5}],
        ),
        ('{"content": [{"token": "a", "logprob": -0.5, "top_logprobs": [["a", -0.5]]}]}', [A]),
        ('{"content": [{"token": null, "logprob": -0.5}]}', None),
        ('{"content": ["a"]}', None),
        ('{"content": {}}', None),
        ('{"content": []}', None),
        ('{"tokens": ["a"], "token_logprobs": [-0.5]}', None),
        (f"[{token('-0.5')}]", None),
        ("[]", None),
        ('"none"', None),
        ("5", None),
        ("null", None),
    ],
)
def test_odd_probabilities_cost_no_answer_and_are_kept_as_json_can(logprobs: str, read: Any, tmp_path):
    content = body(logprobs="HERE").replace(b'"HERE"', logprobs.encode())
    response = read_completion(content)
    assert response == Response(SCORE, finish="stop", logprobs=read)
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        cache.put([("k", response.row())])
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        assert Response.read(cache.rows("k")[0]) == response


def test_the_reader_of_probabilities_is_given_what_is_asked_for():
    assert read_logprobs({"content": [{"token": "a", "logprob": 1e-7}]}) == [{"token": "a", "logprob": 1e-7}]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ({"error": {"message": "m", "code": "c", "param": "p"}}, ("m", "c", "p")),
        ([{"error": {"message": "m", "code": 400, "status": "INVALID_ARGUMENT"}}], ("m", "400", "")),  # Gemini
        ({"error": [{"message": "m"}]}, ("m", "", "")),
        ({"error": {"error": {"message": "m", "code": "c"}}}, ("m", "c", "")),
        ({"error": "m"}, ("m", "", "")),  # Ollama
        ({"message": "m", "object": "error", "code": 400}, ("m", "400", "")),  # vLLM
        ({"detail": "m"}, ("m", "", "")),
        ({"detail": [{"loc": ["body"], "msg": "m"}]}, ("m", "", "")),  # FastAPI
        ("m", ("m", "", "")),
        (
            {"error": {"message": "m", "code": "c", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            ("m", "ResponsibleAIPolicyViolation", ""),
        ),
        (
            {"error": {"message": "m", "code": 403, "metadata": {"reasons": ["sexual"], "flagged_input": "This"}}},
            ("m", "content_filter", ""),  # OpenRouter
        ),
        ({"error": {}}, ("", "", "")),
        ([], ("", "", "")),
        (None, ("", "", "")),
        (5, ("", "", "")),
        ({"error": {"message": {"message": {"message": {"message": {"message": {"message": "deep"}}}}}}}, ("", "", "")),
    ],
)
def test_an_error_keeps_its_message_whatever_it_is_wrapped_in(content: Any, read: tuple[str, str, str]):
    assert read_error(content) == read
