"""What the prompts tell and what they keep to themselves."""

from __future__ import annotations

import re

import pytest

from cprt.errors import InputError
from cprt.prompts import PROMPTS, arrange, build, digest
from cprt.taxonomy import Taxonomy

ALL = [
    ("zero_shot", "score"),
    ("zero_shot_hints", "score"),
    ("intuition", "score"),
    ("taxonomy", "score"),
    ("taxonomy", "attributes"),
]


@pytest.mark.parametrize(("name", "target"), ALL)
def test_no_prompt_reveals_bands_or_scoring_function(name, target):
    prompt = build(name, target)
    text = prompt.policy + prompt.question
    taxonomy = Taxonomy.default()
    for bound in taxonomy.lower_bounds[:-1]:
        assert f"{bound}"[1:] not in text
    for weight in ("330", "30", "square", "root", "weight ", "band", "bound", "normal"):
        assert weight not in text
    # The only numbers are the scale's ends, the levels, and those of the output format.
    assert set(re.findall(r"\d+(?:\.\d+)?", text)) <= {"0", "1", "2", "3", "4", "0.000", "1.000"}


def test_zero_shot_gives_no_guidance():
    """Paper 4.3: asked directly for a score in [0, 1], "without additional guidance"."""
    text = build("zero_shot").policy
    for hint in ("whole range", "gravest", "inferable,", "nothing private", "combine", "sensitive"):
        assert hint not in text
    assert "a number from 0 to 1" in text and "gravest" in build("zero_shot_hints").policy


@pytest.mark.parametrize("name", ["zero_shot", "zero_shot_hints", "intuition"])
def test_only_the_taxonomy_prompt_names_attributes_and_levels(name):
    prompt = build(name)
    text = (prompt.policy + prompt.question).lower()
    taxonomy = Taxonomy.default()
    for term in [
        *taxonomy.keys,
        *(key.replace("_", " ") for key in taxonomy.keys),
        "level",
        "identifier",
        *(level.name.lower() for level in taxonomy.levels),
    ]:
        assert term not in text


def test_the_taxonomy_prompt_holds_every_attribute_and_level_name():
    policy = build("taxonomy").policy
    for attribute in Taxonomy.default().attributes:
        assert f"- {attribute.key}: {attribute.question}\n" in policy
    for level in Taxonomy.default().levels:
        assert f"Level {level.level}, {level.name.lower()}" in policy


@pytest.mark.parametrize(("name", "target"), ALL)
def test_one_user_message_with_the_photo_where_the_family_wants_it(name, target):
    prompt = build(name, target)
    (message,) = arrange(prompt.messages(), "qwen3_vl")
    assert message["role"] == "user"
    assert [part["type"] for part in message["content"]] == ["text", "image", "text"]
    (llama,) = arrange(prompt.messages(), "mllama")
    assert [part["type"] for part in llama["content"]] == ["image", "text", "text"]
    wording = [part["text"] for part in message["content"] if part["type"] == "text"]
    assert wording == [part["text"] for part in llama["content"] if part["type"] == "text"]
    assert wording == [prompt.policy, prompt.question]


@pytest.mark.parametrize(("name", "target"), ALL)
def test_what_is_the_same_for_all_photos_stands_before_the_photo(name, target):
    """The policy is computed once and the question once a photo, so the question is kept short."""
    prompt = build(name, target)
    assert "Answer with one JSON object" in prompt.policy
    assert len(prompt.question.split()) < 25


def test_prompts_are_told_apart_by_their_digest():
    assert len({build(name, target).digest for name, target in ALL}) == len(ALL)
    messages = build("zero_shot").messages()
    for part in messages[0]["content"]:
        part.setdefault("text", None)  # as table formats do
    assert digest(messages) == build("zero_shot").digest


@pytest.mark.parametrize("arguments", [("few_shot", "score"), ("zero_shot", "level"), ("intuition", "attributes")])
def test_what_cannot_be_asked_is_refused(arguments):
    with pytest.raises(InputError):
        build(*arguments)
    assert PROMPTS == ("zero_shot", "zero_shot_hints", "intuition", "taxonomy")
