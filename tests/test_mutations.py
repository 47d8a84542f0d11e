"""A file of any content gives its values or an InputError, from every reader: random mutations of files that are right.

``make soak`` runs far more of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import READERS, make_neighbours

from cprt.errors import InputError

# What files of these forms are made of, and what breaks them.
TOKENS = [
    *(token.encode() for token in "{}[](),:;\"'\\/&*!|>%@`#?-=<~ \t\n\r\0\x0b\x1c\x85\ufeff\u2028٣é😀"),
    *b"\\u0000 \\ud800 \\udc00 null true NaN -0 1e999 0_1 0x1 9999999999999999999 <<: *x &x !!set ---".split(),
    *(
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"[" * 3000,
        b'{"a":' * 3000,
        b"x" * 300,
        b"x" * 200_000,
    ),
]
PIECES = st.one_of(st.sampled_from(TOKENS), st.binary(max_size=4))
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES)
EDITS = st.lists(EDIT, min_size=1, max_size=5)


def mutate(content: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for place, gone, piece in edits:
        start = round(place * len(content))
        content = content[:start] + piece + content[start + gone :]
    return content


def read(name: str, folder: Path, content: bytes) -> None:
    reader = READERS[name]
    make_neighbours(folder)
    file = folder / f"mutated{reader.suffix}"
    file.write_bytes(content)
    try:
        reader.read(file)
    except InputError as error:
        assert str(error).isprintable() and len(str(error)) < 700


@pytest.mark.parametrize("name", READERS)
def test_the_file_itself_is_read(tmp_path: Path, name: str):
    make_neighbours(tmp_path)
    file = tmp_path / f"whole{READERS[name].suffix}"
    file.write_bytes(READERS[name].content)
    READERS[name].read(file)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=EDITS)
def test_only_an_input_error_may_come_out(tmp_path_factory, name: str, edits: list[tuple[float, int, bytes]]):
    read(name, tmp_path_factory.getbasetemp(), mutate(READERS[name].content, edits))


OTHERS: list[Any] = [
    None,
    True,
    0,
    -1,
    0.5,
    1e308,
    10**30,
    "",
    "x",
    "\ud800",
    "a\0b",
    "../x",
    [],
    [[]],
    [1],
    ["x"],
    [{}],
    {},
    {"x": 1},
]


def other_values(content: Any) -> Iterator[Any]:
    """A value with another one of every kind in each of its places in turn, and with each place left out."""
    yield from OTHERS
    places = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for place in places:
        for other in other_values(content[place]):
            changed = content.copy()
            changed[place] = other
            yield changed
        changed = content.copy()
        del changed[place]
        yield changed


def structure(content: bytes) -> Any:
    """What a file holds, if it has a structure beyond lines."""
    try:
        if content.lstrip().startswith(b"{") and content.count(b"\n") > 0:
            return [json.loads(line) for line in content.split(b"\n") if line.strip()], "jsonl"
        return yaml.safe_load(content), "yaml"  # JSON too
    except (ValueError, yaml.YAMLError):
        return None, ""


STRUCTURED = [name for name in READERS if isinstance(structure(READERS[name].content)[0], dict | list)]


def read_others(name: str, folder: Path, most: int | None = None) -> None:
    """Read the file of ``name`` with other values in it; at most so many contents, from all places."""
    content, form = structure(READERS[name].content)
    others = list(other_values(content))
    for other in others if most is None else random.Random(0).sample(others, min(most, len(others))):
        rows = other if isinstance(other, list) else [other]
        text = "\n".join(map(json.dumps, rows)) if form == "jsonl" else json.dumps(other)
        read(name, folder, text.encode())


@pytest.mark.parametrize("name", STRUCTURED)
def test_another_value_in_any_place_gives_values_or_one_line(tmp_path: Path, name: str):
    read_others(name, tmp_path, most=60)


@pytest.mark.soak
@pytest.mark.parametrize("name", STRUCTURED)
def test_every_other_value_in_every_place_gives_values_or_one_line(tmp_path: Path, name: str):
    read_others(name, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=EDITS)
def test_only_an_input_error_may_come_out_of_thousands(tmp_path_factory, name: str, edits):
    read(name, tmp_path_factory.getbasetemp(), mutate(READERS[name].content, edits))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"[]",
        b"{}",
        b"null",
        b'"a"',
        b"1",
        b"true",
        b"[[]]",
        b"[1]",
        b"[null]",
        b'{"a": []}',
        b"- a\n",
        b"a: b\n",
    ],
)
def test_another_content_gives_its_values_or_one_line(tmp_path: Path, name: str, content: bytes):
    read(name, tmp_path, content)
