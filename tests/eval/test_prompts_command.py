"""``cprt prompts`` prints what is sent, and a prompt from a file is asked as the file says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cprt.errors import InputError
from cprt.prompts import PROMPTS, assuming_faces_anonymised, build, digest, recall
from eval.prompts import main

OWN = """\
name: house_rules
policy: |
  Rate the photo between 0.0 and 1.0.
question: "How private is it?"
photo: first
score_key: privacy_score
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.yaml").write_text(OWN)
    return str(tmp_path / "own.yaml")


def test_every_prompt_is_printed_as_it_is_sent(own, capsys):
    main(["--prompt", own])
    printed = capsys.readouterr().out
    for name in PROMPTS:
        for anonymised in (False, True):
            prompt = build(name, faces_anonymised=anonymised)
            assert f"{prompt.policy}\n<photo>\n{prompt.question}\n" in printed
    assert "==== taxonomy-attributes" in printed and "==== annotation-stage2" in printed
    assert "<photo>\nRate the photo between 0.0 and 1.0.\n\nHow private is it?\n" in printed
    for name, shown in re.findall(r"==== (\S+) \(sha256 (\w+)\)", printed):
        if name in PROMPTS:
            assert build(name).digest.startswith(shown)
    main(["--only", "zero_shot"])
    only = capsys.readouterr().out
    assert only.count("====") == 1 and len(only) < 700
    with pytest.raises(InputError, match="no prompt is called 'pears'"):
        main(["--only", "pears"])


def test_a_prompt_of_ones_own_stands_as_a_whole_in_the_record(own):
    prompt = build(own)
    (message,) = prompt.messages()
    assert [part["type"] for part in message["content"]] == ["image", "text", "text"]
    record = prompt.identity()
    assert record["name"] == "house_rules" and record["score_key"] == "privacy_score"
    assert recall(record, None, "run.json") == prompt
    with pytest.raises(InputError, match=r"run.json: field 'prompt': asked with another prompt"):
        recall({**record, "question": "Another?"}, None, "run.json")
    changed = assuming_faces_anonymised(prompt, None)
    assert changed.policy.startswith(prompt.policy) and "anonymised" in changed.policy
    assert changed == build(own, faces_anonymised=True) and digest(changed.messages()) != prompt.digest
    for name in PROMPTS:
        assert recall(build(name).identity(), None, "run.json") == build(name)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("name: a\n", "field 'policy': is missing"),
        ("policy: a\n", "field 'name': is missing"),
        ("name: a\npolicy: ' '\n", "field 'policy': ' ' is not a non-empty text"),
        ("name: a\npolicy: [1]\n", "field 'policy': [1] is not a text"),
        ("name: taxonomy\npolicy: a\n", "field 'name': 'taxonomy' is not a name of its own"),
        ("name: ../a\npolicy: a\n", "field 'name': '../a' is not a name of its own"),
        ("name: a\npolicy: a\nphoto: middle\n", "field 'photo': 'middle' is not one of first, between, last"),
        ("name: a\npolicy: a\nscore_key: 'a b'\n", "field 'score_key': 'a b' is not a plain word"),
        ("name: a\npolicy: a\nanswer: b\n", "field 'answer': unknown field"),
        ("[]\n", "must be a mapping"),
    ],
)
def test_a_prompt_file_that_cannot_be_used_gets_one_line(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "p.yaml").write_text(content)
    with pytest.raises(InputError, match="p.yaml") as caught:
        build(str(tmp_path / "p.yaml"))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_prompt_is_refused_by_name():
    with pytest.raises(InputError, match="'pears' is neither one of zero_shot, .* nor a YAML file"):
        build("pears")


def test_an_answer_under_a_key_of_ones_own_is_read_and_taught():
    from cprt.answers import parse, render

    assert render("score", score=0.25, level=4, score_key="privacy_score") == '{"privacy_score": 0.250}'
    assert parse('{"privacy_score": 0.25}', score_key="privacy_score").score == 0.25
    assert parse('{"Privacy_Score": "0.25"}', score_key="privacy_score").score == 0.25
    for text in ('{"score": 0.25}', '{"privacy_score": 0.25, "score": 0.3}', '{"privacy_score": 2}'):
        assert parse(text, score_key="privacy_score").status == "unparsed", text
    assert parse('{"privacy_score": 0.25}').status == "unparsed"  # nobody asked for it under this name
