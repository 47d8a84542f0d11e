"""What a model and a request are, and what tells the answers to two requests apart."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from endpoints import ask_text, spec
from PIL import Image

from cprt.errors import InputError
from cprt.models.spec import ModelSpec, Request

SECRET = "sk-test-5Q9vXkW2mZ8"
SERVED = {"name": "a", "model": "m", "base_url": "http://localhost/v1"}


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


@pytest.mark.parametrize(
    ("given", "sent"), [({}, None), ({"max_new_tokens": 12}, 12), ({"max_new_tokens": None}, None)]
)
def test_an_endpoint_is_sent_a_limit_where_one_is_given(given: dict[str, Any], sent: int | None):
    spec = ModelSpec.read({"name": "a", "model": "m", "base_url": "http://127.0.0.1:1/v1", **given}, "x")
    assert spec.max_new_tokens == sent
    assert ModelSpec.read({"name": "a", "model": "m"}, "x").max_new_tokens == 4096  # a local model needs one
