"""Answers in fewer passes: every text and distribution as without a guess, whatever was guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from PIL import Image

from cprt.answers.structure import Structure, structure
from cprt.models.decoding.scores import SCORE_LEAD_IN
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.taxonomy import Taxonomy

SIZES = [(96, 96), (64, 128), (128, 64), (64, 64)]  # rows of different length, so that some are padded
ASKED = [{"type": "text", "text": "Look."}, {"type": "image"}, {"type": "text", "text": "What is in each cell?"}]
MESSAGES = [{"role": "user", "content": ASKED}]
LONGEST = 24
SCORE = structure("score", Taxonomy.default())


def photos() -> list[Image.Image]:
    return [
        Image.effect_mandelbrot(size, (-3, -2.5, 2 - n / 2, 2.5), 100).convert("RGB") for n, size in enumerate(SIZES)
    ]


@contextmanager
def counted(model: LocalModel) -> Iterator[list[int]]:
    """The tokens of each row in every pass through the language model."""
    passes: list[int] = []
    language_model = model._base().model.language_model
    hook = language_model.register_forward_hook(
        lambda module, args, kwargs, output: passes.append(output.last_hidden_state.shape[1]), with_kwargs=True
    )
    try:
        yield passes
    finally:
        hook.remove()


def form(*answers: str) -> Structure:
    return replace(SCORE, regex="|".join(map(re.escape, answers)))


@pytest.fixture(scope="module", params=["shared", "plain", "mllama"])
def model(request: pytest.FixtureRequest) -> LocalModel:
    base = request.getfixturevalue("tiny_mllama" if request.param == "mllama" else "demo_base")
    model = LocalModel(str(base), dtype="float32", share_prefix=request.param == "shared")
    if request.param == "mllama":  # with random weights all photos would be the same to it
        model.model.model.multi_modal_projector.weight.data *= 30
    return model


def test_no_guess_changes_an_answer(model: LocalModel, monkeypatch: pytest.MonkeyPatch):
    """Wholly right, right at first, wrong from the start, for no row or for some, against the library's own loop."""
    rows = [(MESSAGES, [photo]) for photo in photos()]
    with monkeypatch.context() as patched, counted(model) as passes:
        patched.setattr("cprt.models.local.KEEPING", ())
        patched.setattr(model, "share_prefix", False)
        plain = model.generate(rows, LONGEST, top_logprobs=3)
        alone = len(passes)
        patched.setattr("torch.Tensor.argmax", lambda *_: pytest.fail("asked for a token that nobody listens to"))
        unheard = model.generate(rows, LONGEST, guess=SCORE)
    texts = [answer.text for answer in plain]
    assert [answer.text for answer in unheard] == texts
    assert len(set(texts)) > 1
    first, *_ = texts
    guesses = [None, form(first), form(*texts), form(first[:9] + "no"), form("no"), SCORE]
    taken = []
    for guess in guesses:
        model.forget()
        with counted(model) as passes:
            answers = model.generate(rows, LONGEST, top_logprobs=3, guess=guess)
        assert [answer.text for answer in answers] == texts
        assert [answer.complete for answer in answers] == [answer.complete for answer in plain]
        for one, other in zip(answers, plain, strict=True):
            assert one.logprobs is not None and other.logprobs is not None
            assert [entry["token"] for entry in one.logprobs] == [entry["token"] for entry in other.logprobs]
            assert [entry["logprob"] for entry in one.logprobs] == pytest.approx(
                [entry["logprob"] for entry in other.logprobs], abs=1e-4
            )
        taken.append(len(passes))
    shared = int(model.share_prefix)  # read in a pass of its own
    assert taken[0] == taken[4] == taken[5] == alone + shared > max(taken[1:4])
    for row, text in zip(rows, texts, strict=True):  # a row alone, of which all is guessed
        model.forget()
        with counted(model) as passes:
            (answer,) = model.generate([row], LONGEST, guess=form(text))
        assert answer.text == text
        assert len(passes) <= shared + 2 or model.model_type == "mllama"  # whose answers are not cut as a text is


@pytest.mark.parametrize("target", ["score", "attributes"])
def test_scores_are_looked_at_in_passing(model: LocalModel, target: str, monkeypatch: pytest.MonkeyPatch):
    """Held to the form of an answer: the same text, willingness and probabilities as in passes of their own."""
    form, messages = structure(target, Taxonomy.default()), build("zero_shot").messages()
    rows = [(messages, [photo]) for photo in photos()[:3]]
    for lead_in in (None, "", SCORE_LEAD_IN):
        with monkeypatch.context() as patched, counted(model) as plain:
            patched.setattr("cprt.models.local.KEEPING", ())
            patched.setattr("cprt.models.decoding.lookahead.KEEPING", ())
            patched.setattr(model, "share_prefix", False)
            expected = model.generate(rows, LONGEST, lead_in, structure=form)
        model.forget()
        with counted(model) as passes:
            answers = model.generate(rows, LONGEST, lead_in, structure=form)
        for one, other in zip(answers, expected, strict=True):
            assert one.text == other.text and one.complete
            assert one.willing == pytest.approx(other.willing, rel=1e-3)
            for found, known in ((one.distribution, other.distribution), (one.lists, other.lists)):
                assert (found is None) == (known is None) == (lead_in is None or (found is one.lists and not form.keys))
                assert found is None or found == pytest.approx(known, abs=1e-5)
        if target == "score":  # the prefix; the prompt with all that is known; digits, if none is known; the end
            recut = lead_in == "" and model.model_type == "mllama"  # the answer is not cut as its text is
            assert len(passes) <= model.share_prefix + (4 if lead_in is None else 2 + recut)
            assert len(plain) >= 8
        else:
            assert len(passes) < len(plain) * 2 / 3
