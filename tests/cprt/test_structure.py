"""The form of structured answers against the answers that training teaches, and against the reader."""

from __future__ import annotations

import itertools
import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, hf
from transformers import AutoTokenizer

from cprt.answers import parse, render
from cprt.answers.structure import structure
from cprt.scoring import severity
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()
ATTRIBUTES = structure("attributes", TAXONOMY)
SCORE = structure("score", TAXONOMY)


def counted() -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(size + 1) for size in TAXONOMY.sizes)))


def drawn(counts: tuple[int, ...], seed: int) -> list[str]:
    """So many keys of every level, drawn at random."""
    rng = random.Random(seed)
    of_level = [[one.key for one in TAXONOMY.attributes if one.level == level] for level in (1, 2, 3, 4)]
    return [key for keys, count in zip(of_level, counts, strict=True) for key in rng.sample(keys, count)]


@cache
def tokenizer(base: Path) -> Any:
    return AutoTokenizer.from_pretrained(base)


@cache
def compiled(grammar: str, base: Path) -> LLMatcher:
    return LLMatcher(hf.from_tokenizer(tokenizer(base)), grammar)


def accepts(matcher: LLMatcher, text: str, base: Path) -> bool:
    ids = tokenizer(base)(text, add_special_tokens=False)["input_ids"]
    matcher.reset()
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def test_every_rendered_answer_of_all_1320_count_vectors_has_the_form(demo_base):
    """As an expression, for the library behind a tokenizer, and under the schema that endpoints are sent."""
    vectors = counted()
    assert len(vectors) == 1320
    held = compiled(LLMatcher.grammar_from_regex(ATTRIBUTES.regex), demo_base)
    scored = compiled(LLMatcher.grammar_from_regex(SCORE.regex), demo_base)
    schema = compiled(LLMatcher.grammar_from_json_schema(json.dumps(ATTRIBUTES.schema)), demo_base)
    for seed, counts in enumerate(vectors):
        truth, keys = severity(counts), drawn(counts, seed)
        text = render("attributes", score=truth.score, level=truth.level, attributes=keys)
        assert re.fullmatch(ATTRIBUTES.regex, text) and len(text) <= ATTRIBUTES.longest
        if seed % 4 == 0:
            assert accepts(held, text, demo_base) and accepts(schema, text, demo_base)
        answer = parse(text)
        assert (answer.status, answer.stated_level, set(answer.attributes or ())) == ("ok", truth.level, set(keys))
        alone = render("score", score=truth.score, level=truth.level)
        assert re.fullmatch(SCORE.regex, alone) and accepts(scored, alone, demo_base) and len(alone) <= SCORE.longest


@given(st.lists(st.sampled_from(TAXONOMY.keys)), st.integers(0, 1000))
def test_keys_again_and_in_any_order_are_of_the_looser_form_alone(keys: list[str], thousandths: int):
    text = f'{{"attributes": {json.dumps(keys)}, "level": 1, "score": {thousandths / 1000:.3f}}}'
    strict, loose = (structure("attributes", TAXONOMY, in_order=in_order).regex for in_order in (True, False))
    assert re.fullmatch(loose, text)
    assert bool(re.fullmatch(strict, text)) == (keys == [key for key in TAXONOMY.keys if key in keys])


@given(st.sets(st.sampled_from(TAXONOMY.keys)), st.sampled_from("1234"), st.integers(0, 1000))
def test_whatever_has_the_form_can_be_read(keys: set[str], level: str, thousandths: int):
    """Also where level, score and list contradict one another."""
    listed = json.dumps([key for key in TAXONOMY.keys if key in keys])
    text = f'{{"attributes": {listed}, "level": {level}, "score": {thousandths / 1000:.3f}}}'
    assert re.fullmatch(ATTRIBUTES.regex, text)
    answer = parse(text)
    assert (answer.status, answer.score, answer.stated_level) == ("ok", thousandths / 1000, int(level))
    assert answer.attributes == tuple(key for key in TAXONOMY.keys if key in keys)


@pytest.mark.parametrize(
    "text",
    [
        '{"attributes": ["age", "age"], "level": 3, "score": 0.300}',  # twice
        '{"attributes": ["gender", "age"], "level": 3, "score": 0.300}',  # not in order
        '{"attributes": ["height"], "level": 3, "score": 0.300}',  # no key
        '{"attributes": ["age",], "level": 3, "score": 0.300}',
        '{"attributes": ["age" "gender"], "level": 3, "score": 0.300}',
        '{"attributes": ["age"], "level": 0, "score": 0.300}',
        '{"attributes": ["age"], "level": 3, "score": 0.3}',
        '{"attributes": ["age"], "level": 3, "score": 1.001}',
        '{"attributes": ["age"], "level": 3, "score": 0.300} or so',
        '{"attributes": ["age"], "score": 0.300}',
        '{"level": 3, "attributes": ["age"], "score": 0.300}',
        "",
    ],
)
def test_what_has_another_form_is_refused(text: str, demo_base):
    assert not re.fullmatch(ATTRIBUTES.regex, text)
    assert not accepts(compiled(LLMatcher.grammar_from_regex(ATTRIBUTES.regex), demo_base), text, demo_base)


@pytest.mark.parametrize("text", ['{"score": 2}', '{"score": 0.3, "why": "a"}', '{"attributes": ["height"]}'])
def test_the_schema_refuses_other_objects(text: str, demo_base):
    for form in (SCORE, ATTRIBUTES):
        schema = compiled(LLMatcher.grammar_from_json_schema(json.dumps(form.schema)), demo_base)
        assert not accepts(schema, text, demo_base)


def test_the_form_follows_taxonomy_and_prompt(tmp_path):
    file = tmp_path / "taxonomy.yaml"
    added = '{key: voice_print, level: 1, question: "Is a voice print visible?"}'
    file.write_text(f"remove: [metadata]\nattributes: [{added}]")
    keys = Taxonomy.load(file).keys
    own = structure("attributes", Taxonomy.load(file), score_key="risk")
    text = f'{{"attributes": {json.dumps(list(keys))}, "level": 1, "risk": 1.000}}'
    assert re.fullmatch(own.regex, text) and len(text) <= own.longest and "voice_print" in keys
    assert own.schema["required"] == ["attributes", "level", "risk"]
    assert not re.fullmatch(own.regex, text.replace("risk", "score"))
    assert not re.fullmatch(own.regex, '{"attributes": ["metadata"], "level": 4, "risk": 0.000}')
