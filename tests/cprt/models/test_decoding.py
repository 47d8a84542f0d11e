"""The distribution over scores: the tree in one pass against a pass for each number, and the figures of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from brute_force import log_probabilities
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cprt.models.checkpoint import load_processor
from cprt.models.decoding.score_tree import NUMBERS, ScoreReader, ScoreTree, widest
from cprt.models.decoding.scores import SCORES, from_top_logprobs, stated_lead_in, summarise
from cprt.models.local import LocalModel

LEAD_IN = '{"score": '
SIZES = [(96, 96), (64, 128), (128, 64)]  # rows of different length, so that some are padded


def photos() -> list[Image.Image]:
    return [
        Image.effect_mandelbrot(size, (-3, -2.5, 2 - n / 2, 2.5), 100).convert("RGB") for n, size in enumerate(SIZES)
    ]


def by_brute_force(
    model: LocalModel, messages: Any, photo: Image.Image, lead_in: str, numbers: Sequence[str] = NUMBERS
) -> np.ndarray:
    """(1001,) probabilities of the scores: each number behind prompt and lead-in, a sequence each, nothing shared.

    What comes after a number of fewer than three decimals is looked at token by token: a digit or a point goes on with
    it, anything else ends it.
    """
    tokenizer, found = model.processor.tokenizer, np.zeros(len(SCORES))
    size = model.model.get_output_embeddings().out_features
    goes_on = [tokenizer.decode([token])[:1] in set("0123456789.") for token in range(size)]
    columns = zip(
        *tokenizer([lead_in + number for number in NUMBERS], add_special_tokens=False)["input_ids"], strict=False
    )
    start = next(place for place, tokens in enumerate(columns) if len(set(tokens)) > 1)  # where the numbers part
    for first in range(0, len(numbers), 91):
        some = numbers[first : first + 91]
        answers = [tokenizer(lead_in + number, add_special_tokens=False)["input_ids"] for number in some]
        for number, ids, of_answer in zip(
            some, answers, log_probabilities(model, messages, photo, answers), strict=True
        ):
            written = sum(of_answer[place, ids[place]] for place in range(start, len(ids)))
            ends = 1 - np.exp(of_answer[len(ids), goes_on]).sum() if len(number) < 5 else 1.0
            found[round(float(number) * 1000)] += math.exp(written) * ends
    return found


@pytest.mark.slow
def test_one_pass_over_the_tree_equals_one_for_each_of_the_1115_numbers(demo_base: Path):
    """Shared prefix or not, padded or not: a short question, so that the loop over 1,115 sequences ends."""
    content = [{"type": "text", "text": "Look."}, {"type": "image"}, {"type": "text", "text": "Score?"}]
    messages = [{"role": "user", "content": content}]
    rows = [(messages, [photo]) for photo in photos()]
    found = {}
    for share in (True, False):
        model = LocalModel(str(demo_base), dtype="float32", share_prefix=share)
        answers = model.generate(rows, 8, LEAD_IN)
        (alone,) = model.generate(rows[1:2], 8, LEAD_IN)
        assert alone.text == answers[1].text
        assert alone.distribution == pytest.approx(answers[1].distribution, rel=1e-3, abs=1e-8)
        assert [answer.text for answer in answers] == [answer.text for answer in model.generate(rows, 8)]
        found[share] = [np.array([answer.distribution.get(score, 0.0) for score in SCORES]) for answer in answers]
    expected = by_brute_force(model, messages, photos()[1], LEAD_IN)  # one that was padded
    assert expected.sum() > 1e-4 and len(np.unique(expected)) > 500
    for share in (True, False):
        assert np.abs(found[share][1] - expected).max() < 1e-6
        likely = expected > 1e-7
        assert found[share][1][likely] == pytest.approx(expected[likely], rel=2e-3)


def test_a_model_of_another_family_gives_the_same_distribution_as_brute_force(
    tiny_mllama: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cprt.models.decoding.scores.LEAST", 0.0)  # nothing is probable to a random model
    content = [{"type": "text", "text": "Look."}, {"type": "image"}, {"type": "text", "text": "Score?"}]
    messages = [{"role": "user", "content": content}]
    longer = [{"role": "user", "content": [*content, {"type": "text", "text": "Say it in one number."}]}]
    model = LocalModel(str(tiny_mllama), dtype="float32")
    answers = model.generate([(messages, photos()[:1]), (longer, photos()[1:2])], 4, LEAD_IN)
    some = [number for number in NUMBERS if round(float(number) * 1000) in (350, 404, 710)]  # 00 is one token here
    expected = by_brute_force(model, messages, photos()[0], LEAD_IN, some)
    assert some == ["0.35", "0.71", "0.350", "0.404", "0.710"] and np.count_nonzero(expected) == 3
    for place in np.flatnonzero(expected):
        assert answers[0].distribution[SCORES[place]] == pytest.approx(expected[place], rel=1e-3, abs=0)
    assert answers[1].distribution != answers[0].distribution


# --- Trees of other tokenizers -------------------------------------------------------------------------------------


def pieces(width: int, merges_space: bool):
    """A tokenizer that takes ``width`` digits at once and may draw the space before a number into its token."""
    import re

    pattern = (r" ?" if merges_space else "") + rf"[0-9]{{1,{width}}}|[\s\S]"
    numbers: dict[str, int] = {}
    return lambda text: [numbers.setdefault(piece, len(numbers)) for piece in re.findall(pattern, text)]


@pytest.mark.parametrize("merges_space", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_whatever_a_tokenizer_makes_of_the_numbers_their_probabilities_are_those_of_the_whole_strings(
    width: int, merges_space: bool
):
    """Against a walk over each number's tokens, with a random model behind every beginning."""
    encode = pieces(width, merges_space)
    tree = ScoreTree.build(encode, LEAD_IN)
    longer = '{"attributes": ["age"], "level": 3, "score": '
    lead = tree.lead(encode, longer)
    assert [*lead, *tree.paths[NUMBERS.index("0.712")]] == encode(longer + "0.712")
    vocabulary = max(token for path in tree.paths for token in path) + 5
    logits = np.random.default_rng(width).normal(0, 2, (len(tree.tree.nodes), vocabulary))
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    continues = np.random.default_rng(0).random(vocabulary) < 0.3
    place, of_node = {(): 0}, [()]
    for token, parent, depth in zip(tree.tree.tokens, tree.tree.parents, tree.tree.depths, strict=True):
        of_node.append((*of_node[parent], token))
        place[of_node[-1]] = len(of_node) - 1
        assert len(of_node[-1]) == depth
    shared, expected = len(encode(LEAD_IN + "0")) - len(tree.paths[0]), np.zeros(len(SCORES))
    for number in NUMBERS:
        path = tuple(encode(LEAD_IN + number)[shared:])
        written = math.prod(math.exp(log_probabilities[place[path[:at]], token]) for at, token in enumerate(path))
        ends = 1 - np.exp(log_probabilities[place[path], continues]).sum() if len(number) < 5 else 1
        expected[round(float(number) * 1000)] += written * ends
    nodes, tokens, _ = tree.steps
    found = tree.probabilities(log_probabilities[nodes, tokens], np.exp(log_probabilities[:, continues]).sum(axis=1))
    assert found == pytest.approx(expected) and 0 < found.sum() < 1
    assert len(tree.tree.tokens) == 116


def test_a_model_that_writes_few_decimals_is_believed(demo_base: Path, monkeypatch):
    """An answer of 0 has all of the mass, not what a model that hardly ever goes on leaves for 0.000."""
    tokenizer = load_processor(str(demo_base)).tokenizer
    reader = ScoreReader(tokenizer)
    (_, tree), zero, end = reader.lead(LEAD_IN), reader.encode("0")[0], reader.encode("}")[0]
    logits = torch.full((len(tree.tree.nodes), len(tokenizer) + 3), -20.0)  # a model may have more than the tokenizer
    logits[0, zero], logits[tree.tree.nodes[(zero,)], end] = math.log(0.98), math.log(0.99)
    found = summarise(first := reader.distribution(tree, logits))
    assert found.mass == pytest.approx(1, abs=0.01) and found.mean == pytest.approx(0.0, abs=1e-3)
    monkeypatch.setattr(type(tokenizer), "convert_ids_to_tokens", lambda *_: pytest.fail("the vocabulary once more"))
    assert reader.distribution(tree, logits) == first


def test_a_device_without_doubles_gives_the_same_distribution(demo_base: Path, monkeypatch):
    tokenizer = load_processor(str(demo_base)).tokenizer
    reader = ScoreReader(tokenizer)
    _, tree = reader.lead(LEAD_IN)
    logits = torch.randn(len(tree.tree.nodes), len(tokenizer), generator=torch.Generator().manual_seed(0))
    expected = reader.distribution(tree, logits)
    assert widest(torch.device("mps")) == torch.float32 and widest(torch.device("cpu")) == torch.float64
    monkeypatch.setattr("cprt.models.decoding.score_tree.widest", lambda device: torch.float32)
    assert reader.distribution(tree, logits) == pytest.approx(expected, rel=1e-5)


# --- From an endpoint ----------------------------------------------------------------------------------------------


def entries(*steps: dict[str, float]) -> list[dict[str, Any]]:
    """Log-probabilities as an endpoint gives them; the first of each step is what it wrote."""
    found = []
    for step in steps:
        options = [{"token": token, "logprob": math.log(probability)} for token, probability in step.items()]
        found.append({**options[0], "top_logprobs": options})
    return found


START = [{'{"': 1.0}, {"score": 1.0}, {'":': 0.9, "'": 0.1}, {" ": 1.0}]


def test_alternatives_along_the_answer_become_a_distribution_and_what_is_not_listed_is_missing():
    found = from_top_logprobs(
        entries(
            *START,
            {"0": 0.9, "1": 0.05, "none": 0.05},
            {".": 1.0},
            {"7": 0.6, "2": 0.3},
            {"1": 0.5, "0": 0.5},
            {"2": 0.8, "9": 0.1, "}": 0.1},
            {"}": 1.0},
        )
    )
    way = 0.9 * 0.6 * 0.5  # conditional on the text before the number: the 0.9 of its quote does not count
    assert found is not None
    assert found["0.712"] == pytest.approx(way * 0.8) and found["0.719"] == pytest.approx(way * 0.1)
    assert found["0.710"] == pytest.approx(way * 0.1)  # "0.71}" is a whole number
    assert found["1.000"] == pytest.approx(0.05)
    assert found["0.250"] == pytest.approx(0.9 * 0.3 / 100) and found["0.705"] == pytest.approx(0.9 * 0.6 * 0.5 / 10)
    assert summarise(found).mass == pytest.approx(0.05 + 0.9 * (0.3 + 0.6))


def test_tokens_of_several_characters_and_short_numbers():
    found = from_top_logprobs(
        entries(
            {'{"score":': 1.0},
            {" 0": 0.8, " 1": 0.2},
            {".": 1.0},
            {"72": 0.5, "719": 0.25, "7": 0.25},
            {"}": 0.9, "5": 0.1},
        )
    )
    assert found is not None
    assert found["0.720"] == pytest.approx(0.8 * (0.5 * 0.9 + 0.25 / 100))
    assert found["0.725"] == pytest.approx(0.8 * (0.5 * 0.1 + 0.25 / 100))
    assert found["0.719"] == pytest.approx(0.8 * (0.25 + 0.25 / 100)) and found["1.000"] == pytest.approx(0.2)
    assert summarise(found).mass == pytest.approx(1)


@pytest.mark.parametrize(
    "given",
    [
        [],
        entries({"I cannot": 1.0}),
        [{"token": "a"}],
        [{"token": '{"score": 0.5}', "logprob": "x"}],
        entries({"Score: ": 1.0}, {"0": 1.0}),
    ],
)
def test_without_a_stated_score_there_is_no_distribution(given: list[dict[str, Any]]):
    assert from_top_logprobs(given) is None


def test_numbers_that_are_no_scores_have_no_mass():
    found = from_top_logprobs(entries({'{"score": ': 1.0}, {"1": 0.5, "0": 0.5}, {"5": 0.7, "}": 0.2, ".5": 0.1}))
    assert found == pytest.approx({"1.000": 0.5 * 0.2} | {f"0.{n:03}": 0.5 / 1000 for n in range(1000)})


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"7": 0.9, "x": 0.1}, {"12": 1.0}, {"59": 0.6, "}": 0.4}, {"}": 1.0}], {"0.712": 0.9}),
        (
            [{"7125": 0.7, "7129": 0.2, "71": 0.1}, {"}": 1.0}],
            {f"0.71{n}": 0.01 for n in range(10)} | {"0.712": 0.7 + 0.2 + 0.01},
        ),
        ([{"7": 0.8, ".": 0.2}], {"0.700": 0.8}),  # the answer ends with its number
        ([{"7": 0.8, "}": 0.2}, {"}": 1.0}], {"0.700": 0.8}),  # "0.}" is no number
    ],
)
def test_more_or_fewer_decimals_than_three(steps: list[dict[str, float]], expected: dict[str, float]):
    assert from_top_logprobs(entries({'{"score": 0.': 1.0}, *steps)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"attributes": ["age"], "level": 3, "score": 0.4}', '{"attributes": ["age"], "level": 3, "score": '),
        ('{"score":0.4}', '{"score":'),
        ('{"score": 0.1} no, {"score": .2}', '{"score": 0.1} no, {"score": '),
        ('{"score": null}', None),
        ("0.4", None),
    ],
)
def test_the_lead_in_is_the_answers_own_text_up_to_its_score(text: str, expected: str | None):
    assert stated_lead_in(text) == expected
    own = text.replace('"score"', '"privacy_score"')
    assert stated_lead_in(own) is None
    assert stated_lead_in(own, "privacy_score") == (expected and expected.replace('"score"', '"privacy_score"'))


# --- Figures of a distribution -------------------------------------------------------------------------------------


def test_mean_median_and_mass_by_hand():
    found = summarise({"0.100": 0.2, "0.900": 0.1, "0.300": 0.1})
    assert found.mean == pytest.approx((0.02 + 0.09 + 0.03) / 0.4) and found.median == 0.1
    assert found.mass == pytest.approx(0.4)
    assert summarise({"0.100": 0.2, "0.900": 0.3}).median == 0.9
    assert summarise({}) == summarise({"0.100": 0.0})
    assert (summarise({}).mean, summarise({}).median, summarise({}).mass) == (None, None, 0.0)


@given(st.dictionaries(st.sampled_from(SCORES), st.floats(1e-6, 1), min_size=1))
def test_the_median_has_the_least_expected_error_of_all_scores(weights: dict[str, float]):
    total = sum(weights.values())
    distribution = {score: weight / total for score, weight in weights.items()}
    found = summarise(distribution)

    def error(guess: float) -> float:
        return sum(weight * abs(float(score) - guess) for score, weight in distribution.items())

    assert found.median is not None and error(found.median) <= min(map(error, map(float, distribution))) + 1e-9
    values = [float(score) for score in distribution]
    assert found.mean == pytest.approx(np.average(values, weights=list(distribution.values())))
