"""Annotation: prompts follow from the taxonomy, labels are read strictly."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from cprt.annotation import consensus, stage1, stage2
from cprt.answers.labels import read_stage2
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()
LABELS = {key: (0, 0.5, 1)[number % 3] for number, key in enumerate(TAXONOMY.keys)}
GOOD = json.dumps(LABELS)


def test_every_question_of_the_taxonomy_is_asked_in_order_and_an_extension_changes_both_prompts(tmp_path: Path):
    file = tmp_path / "more.yaml"
    file.write_text("remove: [metadata]\nattributes:\n  - {key: voice_print, level: 1, question: 'A voice print?'}\n")
    extended = Taxonomy.load(file)
    for taxonomy in (TAXONOMY, extended):
        for messages in (stage1(taxonomy), stage2("age: yes", taxonomy)):
            text = "".join(part.get("text", "") for part in messages[0]["content"])
            places = [text.index(f"- {attribute.key}: {attribute.question}") for attribute in taxonomy.attributes]
            assert places == sorted(places) and len(places) == len(set(places))
    assert "22 questions" in str(stage1(TAXONOMY)) and "voice_print" not in str(stage1(TAXONOMY))
    assert "metadata" not in str(stage1(extended)) + str(stage2("", extended))


def test_only_stage_one_shows_the_photo_and_the_long_text_stands_before_it():
    assert [part["type"] for part in stage1(TAXONOMY)[0]["content"]] == ["text", "image", "text"]
    assert [part["type"] for part in stage2("age: yes - grey hair", TAXONOMY)[0]["content"]] == ["text"]
    assert "age: yes - grey hair" in stage2("age: yes - grey hair", TAXONOMY)[0]["content"][0]["text"]


def test_no_prompt_tells_levels_or_scores():
    text = (str(stage1(TAXONOMY)) + str(stage2("", TAXONOMY))).lower()
    assert not any(word in text for word in ("level", "severity", "0.711", "score", "weight"))


def changed(**values: object) -> str:
    return json.dumps({**LABELS, **values})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "biometrics: 1",
        "{}",
        "[]",
        json.dumps(list(LABELS.values())),
        json.dumps({key: value for key, value in LABELS.items() if key != "age"}),  # a key is missing
        changed(hair=1),  # an unknown one
        GOOD[:-1] + ', "age": 1}',  # twice
        changed(age=0.7),
        changed(age=2),
        changed(age=-1),
        changed(age="1"),
        changed(age=True),
        changed(age=None),
        changed(age=[1]),
        GOOD.replace('"age": 0.5', '"age": NaN'),
        GOOD[:-1],  # cut off
        GOOD[:40],
        f"{GOOD}\n{GOOD}",
        f"{GOOD} or {changed(age=1)}",
        f"{{{GOOD}}}",
        f"<think>{GOOD}",
        json.dumps({"labels": LABELS}),
        GOOD.replace('"', "'"),
    ],
)
def test_whatever_is_not_one_object_with_every_key_is_unparsed(text: str):
    assert read_stage2(text, TAXONOMY) == ("unparsed", None)


def test_consensus_is_one_only_where_all_say_one():
    for values in itertools.product((0.0, 0.5, 1.0), repeat=3):
        agreed = consensus([dict.fromkeys(TAXONOMY.keys, value) for value in values], TAXONOMY)
        assert set(agreed) == set(TAXONOMY.keys) and set(agreed.values()) == {int(values == (1.0, 1.0, 1.0))}
    first, second = LABELS, {**LABELS, "biometrics": 1, "gov_ids": 1, "unique_body_markings": 0.5}
    assert [LABELS[key] for key in TAXONOMY.keys[:6]] == [0, 0.5, 1, 0, 0.5, 1]
    agreed = consensus([first, second], TAXONOMY)
    assert [agreed[key] for key in TAXONOMY.keys[:6]] == [0, 0, 0, 0, 0, 1]
