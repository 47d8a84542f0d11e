"""From what is kept to a status: one rule for every stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cprt.errors import InputError
from cprt.models.outcome import Outcome, Status, find_outcome, with_status
from cprt.models.response_cache import ResponseCache, Shard
from cprt.models.spec import ModelSpec


def read(text: str) -> tuple[Status, float | None]:
    """A stage that wants a number."""
    if text == "No.":
        return "refused", None
    try:
        return "ok", float(text)
    except ValueError:
        return "unparsed", None


def find(rows: list[dict[str, Any]], folder: Path, limit: int | None = 9) -> Outcome[float]:
    """The outcome of a request that each of several processes has kept a row of."""
    for rank, row in enumerate(rows):
        with ResponseCache(folder / "answers.jsonl", Shard(rank, max(2, len(rows)))) as cache:
            cache.put([("k", row)])
    with ResponseCache(folder / "answers.jsonl") as cache:
        spec = ModelSpec("m", "m", base_url="http://localhost/v1", max_new_tokens=limit)
        return find_outcome("k", cache, read, spec)


OK = {"text": "0.5", "complete": True}


@pytest.mark.parametrize(
    ("row", "status", "value", "error"),
    [
        (None, "error", None, "not asked: the run stopped before"),
        ({"error": "HTTP 500"}, "error", None, "HTTP 500"),
        (OK, "ok", 0.5, None),
        ({"text": "half"}, "unparsed", None, None),
        ({"text": "No."}, "refused", None, None),
        ({"text": "0.5", "complete": False}, "unparsed", None, "cut off at 9 tokens"),
        ({"text": "", "refused": True, "finish": "SAFETY"}, "refused", None, "the endpoint refused (SAFETY)"),
        ({"text": "0.5", "refused": True, "complete": False}, "refused", None, "the endpoint refused (None)"),
    ],
)
def test_what_became_of_a_request(
    tmp_path: Path, row: dict[str, Any] | None, status: str, value: Any, error: str | None
):
    outcome = find([] if row is None else [row], tmp_path)
    assert (outcome.status, outcome.value, outcome.error) == (status, value, error)
    assert outcome.text == (row or {}).get("text") and (outcome.response is None) is (row is None)


def test_where_the_endpoint_sets_the_limit_no_number_is_named(tmp_path: Path):
    assert find([{"text": "0.5", "complete": False}], tmp_path, None).error == "cut off at the endpoint's limit"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"error": "HTTP 500"}, OK], "0.5"),
        ([{"text": "No."}, {"text": "half"}, {"error": "x"}], "half"),
        ([{"text": "No."}, {"text": "0.7"}, {"text": "half"}], "0.7"),
        ([{"text": "0.1"}, {"text": "0.2"}], "0.1"),
    ],
)
def test_of_several_answers_the_best_counts(tmp_path: Path, rows: list[dict[str, Any]], text: str):
    assert find(rows, tmp_path).text == text


def test_half_a_character_from_outside_is_text_that_utf_8_can_hold(tmp_path: Path):
    assert find([{"text": "0.5 \ud83d"}], tmp_path).text == "0.5 \\ud83d"
    assert find([{"error": "HTTP 500: \udc00"}], tmp_path / "e").error == "HTTP 500: \\udc00"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"text": 5}, "text"),
        ({"text": "a", "complete": "yes"}, "complete"),
        ({"text": "a", "logprobs": {"a": 1}}, "logprobs"),
        ({"text": "a", "logprobs": ["a"]}, "logprobs"),
        ({"text": "a", "dropped": "temperature"}, "dropped"),
        ({"text": "a", "usage": [1]}, "usage"),
        ({"error": ["x"]}, "error"),
        ({"words": "a"}, "words"),
    ],
)
def test_an_odd_row_of_ours_is_one_line_that_names_file_and_field(tmp_path: Path, row: dict[str, Any], field: str):
    with pytest.raises(InputError) as caught:
        find([row], tmp_path)
    assert str(caught.value) == f"{tmp_path}/answers.jsonl: field '{field}': is not as a kept answer has it"


def test_keys_by_status():
    outcomes = {"a": Outcome[int]("ok"), "b": Outcome[int]("refused"), "c": Outcome[int]("unparsed")}
    assert with_status(outcomes, ["refused", "unparsed"]) == {"b", "c"} and with_status(outcomes, []) == set()
