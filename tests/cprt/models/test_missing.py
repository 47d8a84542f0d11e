"""What is still to be asked is found while it is asked: the first question waits for few photos, memory for none."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from loopback import Misbehaving
from PIL import Image

from cprt import provenance
from cprt.images import AHEAD, in_order
from cprt.models.ask import Model, ask
from cprt.models.missing import WINDOW, Missing, in_batches, read_outcomes
from cprt.models.response_cache import ResponseCache, Shard
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import build

MESSAGES = build("zero_shot").messages()


def draw(folder: Path, count: int) -> list[Request]:
    """A question about each of ``count`` photos that differ, the later ones larger."""
    folder.mkdir(exist_ok=True)
    content = []
    for width in (8, 16):
        Image.new("RGB", (width, 8)).save(folder / "x.jpg")
        content.append((folder / "x.jpg").read_bytes())
    requests = []
    for number in range(count):
        path = folder / f"{number:05}.jpg"
        path.write_bytes(content[number >= count // 2] + number.to_bytes(4, "big"))  # behind the picture's end
        requests.append(Request(MESSAGES, (path,)))
    return requests


def spec(url: str = "http://127.0.0.1:9/v1", **more: Any) -> ModelSpec:
    return ModelSpec.read({"name": "m", "model": "m", "base_url": url, "retries": 0, **more}, "test")


def test_no_more_than_a_few_results_are_worked_out_before_they_are_wanted():
    taken: list[int] = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    results = in_order(lambda number: number**2, items())
    assert [next(results) for _ in range(10)] == [number**2 for number in range(10)]
    assert len(taken) == 10 + AHEAD
    assert list(results) == [number**2 for number in range(10, 1000)]


def test_the_first_question_is_asked_before_the_last_photo_is_hashed(tmp_path: Path):
    """The last photo is edited when the first question comes: its answer is kept for what it then is."""
    requests = draw(tmp_path, AHEAD + 60)
    (last,) = requests[-1].images

    def answer(body: dict[str, Any]) -> tuple[str, str]:
        if len(server.bodies) == 1:
            last.write_bytes(last.read_bytes() + b"edited")
        return "0.5", "stop"

    with Misbehaving(answer) as server:
        for asked in (len(requests), len(requests)):
            with ResponseCache(tmp_path / "answers.jsonl") as cache:
                ask(Model(spec(server.url, concurrency=2)), requests, cache)
            assert len(server.bodies) == asked
        last.write_bytes(last.read_bytes() + b"again")  # and asked anew once it is edited
        with ResponseCache(tmp_path / "answers.jsonl") as cache:
            ask(Model(spec(server.url)), requests, cache)
    assert len(server.bodies) == len(requests) + 1


def test_a_local_model_waits_for_a_window_alone_and_takes_its_largest_photos_first(tmp_path: Path):
    requests = draw(tmp_path, WINDOW + AHEAD + 200)
    before = provenance._digest.cache_info().currsize
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        batches = in_batches(requests, Missing(spec(), cache), 7)
        first = next(batches)
        hashed = provenance._digest.cache_info().currsize - before
        assert WINDOW <= hashed <= WINDOW + AHEAD + 1 < len(requests)
        found = [first, *batches]
    assert {len(batch) for batch in found[:-1]} <= {7, WINDOW % 7}
    order = [request.images[0].name for batch in found for _, request in batch]
    assert sorted(order) == [request.images[0].name for request in requests]
    large = [number >= len(requests) // 2 for number in map(int, (name[:5] for name in order[:WINDOW]))]
    assert large == sorted(large, reverse=True) and 0 < sum(large) < WINDOW


def test_each_is_missing_once_and_only_where_it_is_to_be_asked(tmp_path: Path):
    requests = draw(tmp_path / "photos", 40)
    asked = spec()
    keys = [asked.key(request) for request in requests]
    gone = Request(MESSAGES, (tmp_path / "gone.jpg",))
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        cache.put([(keys[0], {"text": "1"}), (keys[1], {"error": "HTTP 500"}), (keys[2], {"text": "2"})])
        given = [gone, *requests, requests[5]]

        def found(**more: Any) -> list[str]:
            missing = Missing(asked, cache, **more)
            keyed = [key for key, _ in missing(given)]
            assert missing.passed == len(given) - len(keyed)
            return keyed

        assert found() == [keys[1], *keys[3:]]
        assert found(errors=False) == keys[3:]
        assert found(again={keys[2]}) == keys[1:]
        outcomes = list(read_outcomes(asked, given, cache, lambda text: ("ok", text)))
    assert [key for key, _ in outcomes[1:]] == [*keys, keys[5]]
    assert [outcome.status for _, outcome in outcomes[:5]] == ["error", "ok", "error", "ok", "error"]
    assert outcomes[0][1].error == "gone.jpg: cannot be read (No such file or directory)"
    parts = []
    for rank in range(3):
        with ResponseCache(tmp_path / "answers.jsonl", Shard(rank, 3)) as cache:
            parts.append([key for key, _ in Missing(asked, cache)(given)])
    assert sorted(key for part in parts for key in part) == sorted([keys[1], *keys[3:]]) and all(parts)


def test_memory_does_not_grow_with_what_answers_hold(tmp_path: Path):
    """Of answers of 100 kB each, a run that finds them all there has a few hundred bytes a photo in memory."""
    row = {"text": "0.5" + 100_000 * "."}

    def peak(count: int) -> int:
        requests, model = draw(tmp_path / str(count), count), Model(spec())
        tracemalloc.start()
        with ResponseCache(tmp_path / f"{count}.jsonl") as cache:
            cache.put((model.spec.key(request), row) for request in requests[: count // 2])
        with ResponseCache(tmp_path / f"{count}.jsonl") as cache:
            for request in requests[count // 2 :]:
                cache.put([(model.spec.key(request), row)])
            ask(model, requests, cache)  # nobody listens there: nothing is asked
            read = (outcome for _, outcome in read_outcomes(model.spec, requests, cache, lambda text: ("ok", text)))
            assert sum(outcome.status == "ok" for outcome in read) == count
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(20)  # imports
    small, large = peak(20), peak(120)
    assert (tmp_path / "120.jsonl").stat().st_size > 120 * 100_000
    assert (large - small) / 100 < 5_000


@pytest.mark.parametrize("number", [1, 0])
def test_nothing_missing_shows_no_bar(tmp_path: Path, capsys, number: int):
    requests, asked = draw(tmp_path, 1), spec()
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        cache.put([(asked.key(requests[0]), {"text": "1"})])
        ask(Model(asked), requests[:number], cache)
    assert capsys.readouterr().err == ""
