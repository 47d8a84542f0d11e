"""What is taken out of a record, and what counts as a secret, beyond the cases that ``cprt publish`` is tested with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.publish.disclosure import secret_finder, strip_record

# Names that stand nowhere in what strip_record adds or keeps.
FOLDERS = st.lists(st.from_regex(r"dir_[a-z0-9]{3,8}(\.[a-z]{1,3})?", fullmatch=True), min_size=1, max_size=4)
ROOTS = st.sampled_from(["/", "~/", "./", "../../", "", "C:\\", "\\\\server\\", "file:///"])
PLACES = st.sampled_from(["{}", "--pairs={}", "see {} and {}", "'{}'", "[{}]", "a={};b", "({})"])


@given(FOLDERS, ROOTS, PLACES, st.booleans())
def test_no_folder_of_a_path_survives(folders: list[str], root: str, place: str, spaced: bool):
    """Whatever the root, the place in a text and the depth in the record; the file's own name stays."""
    if spaced and root in ("/", "~/", "./"):
        folders = [f"{name} copy" for name in folders]
        place = "{}" if place not in ("{}", "--pairs={}") else place
    if "\\" in root:  # within a sentence a backslash is taken for what it is in a regular expression
        place = "{}" if place not in ("{}", "--pairs={}") else place
    separator = "\\" if "\\" in root else "/"
    path = root + separator.join([*folders, "file_name.jsonl"])
    value = place.replace("{}", path)
    record: dict[str, Any] = {"a": value, "b": [{"c": [value]}], value: 1}
    text = json.dumps(strip_record(record, "the/base", "ORG/base"))
    assert "file_name.jsonl" in text
    for part in (*folders, "/", "~", "server", "C:"):
        assert part not in text, text


def test_what_is_no_path_stays():
    record = {
        "base": "ORG/base",
        "digest": "ORG/base@0123",
        "regex": r".*language_model\..*\.(q|k|v)_proj",
        "number": 1e-5,
        "none": None,
        "list": ["--learning_rate", "1e-5", True],
        "text": "5.0 GiB at 3 it/s",
    }
    stripped = strip_record(record, "/models/base", "ORG/base")
    assert stripped == {**record, "text": "5.0 GiB at 3 s"}  # a slash is cut, whatever it means: the safe side


def test_the_base_gets_its_public_name_wherever_it_stands_alone():
    record = {"command": ["--model_name_or_path", "/models/base", "--model=/models/base"], "base_model": "/models/base"}
    assert strip_record(record, "/models/base", "ORG/base") == {
        "command": ["--model_name_or_path", "ORG/base", "--model=ORG/base"],
        "base_model": "ORG/base",
    }


@pytest.mark.parametrize(
    "text",
    [
        "risk-score-of-the-whole-photo-album-number-one",  # "sk-" inside a word
        '"git": "0123456789abcdef0123456789abcdef01234567"',
        '"tokenizer_revision": "0123456789abcdef0123456789abcdef01234567"',
        '"prompt_sha256": "' + "ab" * 32 + '"',
        '"hub_token": "<HUB_TOKEN>"',
        "--hub_token ***",
        '"eos_token": "<|endoftext|>"',
        "https://huggingface.co/ORG/NAME",
    ],
)
def test_what_is_no_secret(text: str):
    assert secret_finder()(text) is None
