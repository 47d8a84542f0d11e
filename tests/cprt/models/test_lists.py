"""Probabilities of lists of attributes: the search against brute force over all lists of a small taxonomy."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brute_force import log_probabilities
from PIL import Image

from cprt.answers.structure import structure
from cprt.models.decoding import lists
from cprt.models.decoding.lists import ListTokens, Search
from cprt.models.local import LocalModel
from cprt.taxonomy import Taxonomy

KEPT = ("gov_ids", "financial_data", "age", "activities")  # one that is a token or two, others of more
CONTENT = [{"type": "text", "text": "Look."}, {"type": "image"}, {"type": "text", "text": "What?"}]
MESSAGES = [{"role": "user", "content": CONTENT}]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Taxonomy:
    file = tmp_path_factory.mktemp("small") / "taxonomy.yaml"
    file.write_text(f"remove: {[key for key in Taxonomy.default().keys if key not in KEPT]}")
    taxonomy = Taxonomy.load(str(file))
    assert set(taxonomy.keys) == set(KEPT)
    return taxonomy


def photos() -> list[Image.Image]:
    """Of different size, so that some rows are padded."""
    sizes = [(96, 96), (64, 128), (128, 64)]
    return [
        Image.effect_mandelbrot(size, (-3, -2.5, 2 - n / 2, 2.5), 100).convert("RGB") for n, size in enumerate(sizes)
    ]


def all_lists(keys: Sequence[str]) -> list[tuple[str, ...]]:
    return [some for count in range(len(keys) + 1) for some in itertools.combinations(keys, count)]


def same(tokens: list[list[int]]) -> list[int]:
    columns = zip(*tokens, strict=False)
    return [column[0] for column in itertools.takewhile(lambda column: len(set(column)) == 1, columns)]


def by_brute_force(model: LocalModel, photo: Image.Image, keys: Sequence[str]) -> dict[str, float]:
    """Every list as whole answers, a sequence each, nothing shared; and a product over its decisions.

    The tokens of a beginning are those that all whole answers which begin so have in common, and one that goes on as no
    list can (so that the last key has no end in its tokens).
    """
    tokenizer, end = model.processor.tokenizer, "end"
    whole = {
        (some, level): tokenizer(
            f'{{"attributes": {json.dumps(list(some))}, "level": {level}, "score": 0.000}}', add_special_tokens=False
        )["input_ids"]
        for some in all_lists(keys)
        for level in (1, 2, 3, 4)
    }
    steps: dict[tuple[int, ...], float] = {}  # tokens of the answer -> log probability of the last of them
    of_level_1 = [whole[some, 1] for some in all_lists(keys)]
    for ids, of_answer in zip(of_level_1, log_probabilities(model, MESSAGES, photo, of_level_1), strict=True):
        for place, token in enumerate(ids):
            steps[tuple(ids[: place + 1])] = float(of_answer[place, token])

    def tokens(beginning: tuple[str, ...]) -> list[int]:
        going_on = f'{{"attributes": {json.dumps([*beginning, keys[0]])}'
        cut = tokenizer(going_on[:-1], add_special_tokens=False)["input_ids"]
        return same([cut, *(ids for (some, _), ids in whole.items() if some[: len(beginning)] == beginning)])

    found = {}
    for some in all_lists(keys):
        probability = 1.0
        for place in range(len(some) + 1):
            before = some[:place]
            later = keys[keys.index(before[-1]) + 1 :] if before else keys
            options = {key: tokens((*before, key)) for key in later}
            options[end] = same([whole[before, level] for level in (1, 2, 3, 4)])
            start = len(tokens(before))
            shares = {
                option: math.exp(sum(steps[tuple(ids[: step + 1])] for step in range(start, len(ids))))
                for option, ids in options.items()
            }
            probability *= shares[some[place] if place < len(some) else end] / sum(shares.values())
        found[",".join(some)] = probability
    return found


@pytest.mark.parametrize("base", ["demo_base", "tiny_mllama"])
def test_every_list_of_a_small_taxonomy_is_as_probable_as_by_brute_force(
    base: str, small: Taxonomy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """A model of each family; with the shared prefix, padded or not, beside its answers that no look ahead changes."""
    monkeypatch.setattr(lists, "ENOUGH", 2.0)
    monkeypatch.setattr(lists, "LEAST", 0.0)
    model = LocalModel(str(request.getfixturevalue(base)), dtype="float32")
    rows, form = [(MESSAGES, [photo]) for photo in photos()], structure("attributes", small)
    answers = model.generate(rows, 8, "", structure=form)
    assert [answer.text for answer in answers] == [answer.text for answer in model.generate(rows, 8, structure=form)]
    found, expected = answers[1].lists, by_brute_force(model, photos()[1], small.keys)  # one that was padded
    assert found is not None and len(expected) == 16 and sum(expected.values()) == pytest.approx(1)
    assert found == pytest.approx(expected, rel=2e-3, abs=1e-10)
    assert all(",".join(json.loads(answer.text)["attributes"]) in (answer.lists or {}) for answer in answers)
    assert model.generate(rows, 8, "")[0].lists is None  # a free answer


# --- The search alone ----------------------------------------------------------------------------------------------


def characters(text: str) -> list[int]:
    return list(map(ord, text))


def looked_up(search: Search, rng: np.random.Generator, known: dict[Any, float], chosen: Any) -> None:
    """Log probabilities of steps that nobody has asked about before: a random model."""
    for before, token in search.wanted(chosen):
        known.setdefault((before, token), float(np.log(rng.uniform(0.01, 1))))
    for one in chosen:
        search.take(one, known)


def test_what_a_short_search_finds_is_what_a_whole_one_finds_most_probable():
    keys, known, rng = [f"k{n}x" for n in range(6)], dict[Any, float](), np.random.default_rng(3)
    whole = Search(ListTokens(keys, characters))
    while whole.open:
        looked_up(whole, rng, known, list(whole.open))
    assert len(whole.found) == 2**6 and sum(whole.found.values()) == pytest.approx(1)
    short = Search(ListTokens(keys, characters))
    for _ in range(4):
        looked_up(short, rng, known, short.next)
    assert 0 < len(short.found) < 40
    assert all(short.found[one] == pytest.approx(whole.found[one]) for one in short.found)
    assert sum(short.found.values()) + sum(short.open.values()) == pytest.approx(1)
    surest = {one for one in short.found if short.found[one] > max(short.open.values())}
    assert surest
    assert surest == set(sorted(whole.found, key=lambda one: -whole.found[one])[: len(surest)])


def words(text: str) -> list[str]:
    """Tokens of a vocabulary that draws a closing quote together with what follows it."""
    return re.findall(r'"[],]+|[a-z]+|.', text)


def test_a_key_that_another_begins_with_is_not_that_other():
    """Of 0.6 that go on with "age", 0.45 are "age_group"."""
    tokens = ListTokens(["age", "age_group", "face"], words)  # type: ignore[arg-type]
    assert [tokens.steps(())[option] for option in range(3)] == [
        ('"', "age"),
        ('"', "age", "_", "group"),
        ('"', "face"),
    ]
    search = Search(tokens)
    known = dict.fromkeys(search.wanted([()]), 0.0)
    known[(), '"'] = math.log(0.9)
    known[(), tokens.steps(())[3][0]] = math.log(0.1)
    known[('"',), "age"], known[('"',), "face"] = math.log(6 / 9), math.log(3 / 9)
    known[('"', "age"), "_"] = math.log(0.75)
    search.take((), known)
    assert search.open == pytest.approx({(0,): 0.15, (1,): 0.45, (2,): 0.3})
    assert search.found == pytest.approx({(): 0.1})


def test_what_a_model_finds_all_but_impossible_has_probabilities_all_the_same():
    """A thousand nats below anything else that it could write; and one list at least is kept."""
    search = Search(ListTokens(["age", "face"], characters))
    search.take((), dict.fromkeys(search.wanted([()]), -1000.0))
    assert sum(search.found.values()) + sum(search.open.values()) == pytest.approx(1)
    search = Search(ListTokens(["age", "face"], characters), found={(0,): 1e-9, (1,): 1e-7})
    assert search.probable(["age", "face"]) == {"face": 1e-7}


def test_tokens_of_whole_lists_are_put_together_from_those_of_pairs(demo_base: Path, tiny_mllama: Path):
    """What the steps rest on: how a key is cut depends on the key before it alone."""
    from transformers import AutoTokenizer

    keys = Taxonomy.default().keys
    rng = np.random.default_rng(0)
    for folder in (demo_base, tiny_mllama):
        tokenizer = AutoTokenizer.from_pretrained(folder)

        def encode(text: str, tokenizer: Any = tokenizer) -> list[int]:
            return tokenizer(text, add_special_tokens=False)["input_ids"]

        tokens = ListTokens(keys, encode)
        for _ in range(30):
            some = tuple(np.flatnonzero(rng.random(len(keys)) < rng.random()).tolist())
            put = [*tokens.lead, *tokens.path(some), *tokens.steps(some)[tokens.end]]
            text = f'{{"attributes": {json.dumps([keys[one] for one in some])}, "level": 1, "score": 0.711}}'
            assert encode(text)[: len(put)] == put and len(put) > len(tokens.lead)
