"""Soft labels of a score against the Gaussian over all answers, written out, in tokenizers of several kinds."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from cprt.answers import render
from cprt.errors import InputError
from cprt.models.checkpoint import load_processor
from cprt.models.decoding.soft_scores import SoftScores, near
from cprt.scoring import level_of, severity
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()
COUNTS = [
    (3, 10, 5, 4),
    (1, 0, 0, 0),
    (1, 2, 0, 1),
    (0, 10, 5, 4),
    (0, 3, 1, 0),
    (0, 0, 2, 1),
    (0, 0, 0, 1),
    (0, 0, 0, 0),
]


def pieces(pattern: str):
    """A tokenizer that cuts a text by a regular expression, and numbers what it finds by its text."""
    return lambda text: [int.from_bytes(piece.encode(), "big") for piece in re.findall(pattern, text, re.DOTALL)]


TOKENIZERS = {
    "single digits": pieces(r"[0-9]|[^0-9]+"),
    "three digits": pieces(r"[0-9]{1,3}|[^0-9]+"),
    "a blank with its digit": pieces(r" ?[0-9]|[^0-9 ]+| "),
    "whole numbers": pieces(r"[0-9]\.[0-9]+|[^0-9]+|[0-9]"),
}


@pytest.fixture(params=[*TOKENIZERS, "demo_base"])
def encode(request):
    if request.param in TOKENIZERS:
        return TOKENIZERS[request.param]
    tokenizer = load_processor(str(request.getfixturevalue("demo_base"))).tokenizer
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("target", ["score", "attributes"])
@pytest.mark.parametrize("width", [0.004, 0.03, 0.5])
def test_labels_are_the_gaussian_given_what_stands_before(encode, width, target):
    soft = SoftScores(encode, width, TAXONOMY)
    for counts in COUNTS:
        truth = severity(counts)
        answer = render(target, score=truth.score, level=truth.level, attributes=["age"] if counts[2] else [])
        tokens, weights = encode(answer), {}
        for thousandths in range(1001):
            value = thousandths / 1000
            if level_of(value) == truth.level:
                text = answer[:-6] + f"{value:.3f}}}"
                weights[tuple(encode(text))] = np.exp(-(((value - truth.score) / width) ** 2) / 2)
        expected = {}
        for place in range(len(tokens)):
            following = Counter()
            for other, weight in weights.items():
                if other[:place] == tuple(tokens[:place]):
                    following[other[place]] += weight
            if len([one for one in following.values() if one > 0]) > 1:
                total = sum(following.values())
                expected[place] = {token: weight / total for token, weight in following.items() if weight > 0}
        found = soft.labels(answer, truth.score, truth.level)
        assert found.keys() == expected.keys()
        for place, chances in found.items():
            assert tokens[place] in chances and sum(chances.values()) == pytest.approx(1)
            assert {one: chance for one, chance in chances.items() if chance > 1e-12} == {
                one: pytest.approx(chance, rel=1e-9) for one, chance in expected[place].items() if chance > 1e-12
            }


def test_the_gaussian_keeps_to_its_level():
    values = np.arange(1001) / 1000
    for counts in COUNTS:
        truth = severity(counts)
        chances = near(truth.score, truth.level, 0.02, TAXONOMY)
        assert chances.sum() == pytest.approx(1) and np.argmax(chances) in (
            round(truth.score * 1000),
            int(truth.score * 1000),
        )
        assert {level_of(value) for value in values[chances > 0]} == {truth.level}
    middle = near(0.6, 2, 0.02, TAXONOMY)
    assert middle @ values == pytest.approx(0.6, abs=1e-4)
    assert np.sqrt(middle @ (values - 0.6) ** 2) == pytest.approx(0.02, rel=1e-3)


@pytest.mark.parametrize(
    ("answer", "score", "complaint"),
    [
        ('{"score": 0.71}', 0.71, "does not end with a score of three decimals"),
        ('{"score": 0.600, "level": 2}', 0.6, "does not end with a score"),
        ('{"score": 0.800}', 0.6, "says 0.800, which does not fit score 0.6 of level 2"),
    ],
)
def test_an_answer_of_another_kind_is_refused(answer, score, complaint):
    with pytest.raises(InputError, match=complaint):
        SoftScores(TOKENIZERS["single digits"], 0.02, TAXONOMY).labels(answer, score, 2)
