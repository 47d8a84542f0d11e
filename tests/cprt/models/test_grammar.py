"""Answers held to a form by the tiny model: readable, and told apart from willing ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brute_force import log_probabilities
from PIL import Image

from cprt.answers import parse
from cprt.answers.structure import structure
from cprt.models.decoding.scores import SCORES
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()


def photos() -> list[Image.Image]:
    """Of different size, so that some rows are padded."""
    sizes = [(96, 96), (64, 128), (128, 64)]
    return [
        Image.effect_mandelbrot(size, (-3, -2.5, 2 - n / 2, 2.5), 100).convert("RGB") for n, size in enumerate(sizes)
    ]


def share_that_the_form_allows(model: LocalModel, messages: Any, photo: Image.Image, answer: str) -> float:
    """At each token of ``answer``, how probable those are with which one of the 1,001 answers goes on, multiplied."""
    tokenizer = model.processor.tokenizer
    possible = [tokenizer(f'{{"score": {score}}}', add_special_tokens=False)["input_ids"] for score in SCORES]
    ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    assert ids in possible
    probabilities = np.exp(log_probabilities(model, messages, photo, [ids])[0])
    share = float(probabilities[-1, model.decoding["eos_token_id"]].sum())
    for step in range(len(ids)):
        allowed = {other[step] for other in possible if other[:step] == ids[:step]}
        share *= float(probabilities[step, list(allowed)].sum())
    return share


def test_the_base_answers_in_the_form_and_says_how_unwillingly(demo_base: Path):
    model, prompt = LocalModel(str(demo_base), dtype="float32"), build("zero_shot")
    rows, form = [(prompt.messages(), [photo]) for photo in photos()], structure("score", TAXONOMY)
    free = model.generate(rows, 8)
    held = model.generate(rows, 8, structure=form)
    assert {parse(answer.text).status for answer in free} == {"unparsed"} and free[0].willing is None
    assert {parse(answer.text).status for answer in held} == {"ok"} and all(answer.complete for answer in held)
    assert [answer.text for answer in model.generate(rows, 8)] == [answer.text for answer in free]
    for row in (0, 1):
        expected = share_that_the_form_allows(model, prompt.messages(), photos()[row], held[row].text)
        assert held[row].willing == pytest.approx(expected, rel=1e-3, abs=0) and 0 < expected < 1


@pytest.mark.parametrize("target", ["score", "attributes"])
def test_a_form_of_any_length_is_kept_to_whatever_the_limit_of_tokens(target: str, tiny_mllama: Path):
    """Another family, with random weights and a tokenizer of its own."""
    model, prompt = LocalModel(str(tiny_mllama), dtype="float32"), build("taxonomy", target)
    rows = [(prompt.messages(), [photo]) for photo in photos()[:2]]
    for answer in model.generate(rows, 2, structure=structure(target, TAXONOMY)):
        assert parse(answer.text).status == "ok" and answer.complete
        assert answer.willing is not None and 0 <= answer.willing < 0.1 and math.isfinite(answer.willing)
