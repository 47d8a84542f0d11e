"""``cprt mi`` with real models: the tiny one here, in batches and behind a real server, and how sure it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import configure, describe, make
from judging import queries, rows
from loopback import Misbehaving, transformers_serve

from cprt.answers.yes_no import yes_probability
from cprt.images import load_image
from cprt.models.ask import answer_batch
from cprt.models.local import LocalModel
from cprt.models.response_cache import read_cache
from cprt.models.spec import Request, Response
from eval.model_inversion.judge.prompts import OURS, SUBJECTS
from eval.model_inversion.judge.run import main


def judge_with(models: list[dict[str, Any]], folder: Path, layout: str) -> list[list[str]]:
    """Raw answers of each judge to the four reconstructions and two control pairs of a small collection."""
    file = describe(folder, make(folder, classes=2, images=2))
    (folder / "mi.yaml").write_text(yaml.safe_dump({"models": models, "setups": str(file)}))
    out = folder / layout
    main(["--config", str(folder / "mi.yaml"), "--out", str(out), "--controls", "1", "--layout", layout, "--n", "2"])
    files = ("judge.csv", "controls.csv")
    return [[row["response"] for file in files for row in rows(out, model["name"], file)] for model in models]


def here(model: Path) -> dict[str, Any]:
    return {"name": "here", "model": str(model), "max_pixels": 9216, "dtype": "float32", "max_new_tokens": 8}


def test_logprobs_give_the_probability_of_yes(setups: Path, tmp_path: Path):
    def sure(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert body["logprobs"] is True and body["top_logprobs"] == 5
        alternatives = [
            {"token": token, "logprob": value} for token, value in (("Yes", -0.5), (" yes", -3.0), ("No", -1.2))
        ]
        content = [{"token": "Yes", "logprob": -0.5, "top_logprobs": alternatives}]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes"},
            "finish_reason": "stop",
            "logprobs": {"content": content},
        }
        return 200, {"id": "x", "model": "m", "choices": [choice]}

    with Misbehaving(sure) as server:
        main([*configure(tmp_path, setups, server.url, "one", top_logprobs=5), "--controls", "2"])
    found = rows(tmp_path / "out", "one", "probabilities.csv")
    assert len(found) == 12 + 4 and {row["kind"] for row in found} == {"reconstruction", "positive", "negative"}
    yes, no = 2.718281828459045**-0.5 + 2.718281828459045**-3, 2.718281828459045**-1.2
    for row in found:
        assert float(row["p_yes"]) == pytest.approx(yes / (yes + no))
        assert float(row["missing_mass"]) == pytest.approx(1 - yes - no)


@pytest.mark.parametrize("layout", ["panel", "separate"])
def test_a_local_model_judges_in_batches_as_one_by_one(demo_base: Path, tmp_path: Path, layout: str):
    """The tiny model knows nothing of the task: its words show that it saw the pictures."""
    (said,) = judge_with([here(demo_base)], tmp_path, layout)
    model = LocalModel(str(demo_base), dtype="float32", max_pixels=9216)
    for row, text in zip(queries(tmp_path / layout), said, strict=True):
        request = Request(
            OURS.messages(SUBJECTS["person"], False, layout, 2, True),
            tuple(tmp_path / layout / image for image in row["images"]),
        )
        ((_, response),) = answer_batch(model, [("key", request, [load_image(path) for path in request.images])], 8)
        assert response.text == text != ""
    assert len(said) == 6


def test_a_local_model_says_how_sure_it_is(demo_base: Path, tmp_path: Path):
    """With all alternatives listed nothing is missing but what is neither yes nor no."""
    judge_with([here(demo_base) | {"top_logprobs": 10**6}], tmp_path, "panel")
    sure = rows(tmp_path / "panel", "here", "probabilities.csv")
    kept = [Response.read(row) for row in read_cache(tmp_path / "panel" / "answers.jsonl").values()]
    expected = [yes_probability(response.logprobs) for response in kept]
    assert len(sure) == len(expected) == 6
    assert sorted(float(row["yes_mass"]) for row in sure) == sorted(row["yes_mass"] for row in expected)
    for row in sure:
        assert float(row["yes_mass"]) > 0
        assert sum(float(row[name]) for name in ("yes_mass", "no_mass", "missing_mass")) == pytest.approx(1)


@pytest.mark.soak
def test_a_real_server_and_the_same_model_here_say_the_same(demo_base: Path, tmp_path: Path):
    with transformers_serve([demo_base], tmp_path) as urls:
        # The server's own processor shrinks the pictures, to as many pixels.
        there = here(demo_base) | {
            "name": "served",
            "base_url": urls[demo_base],
            "max_pixels": None,
            "image_format": "png",
            "concurrency": 2,
        }
        del there["dtype"]
        for layout in ("panel", "separate"):
            served, local = judge_with([there, here(demo_base)], tmp_path, layout)
            assert len(served) == 6 and served == local and all(served)
