"""What values may be: numbers in plain ASCII decimals, nothing that only Python would take; rules of fields."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cprt.errors import InputError
from cprt.values import FILE_NAME, is_number, number, read_fields, ruled, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("-0.5", -0.5), ("+2", 2.0), (".5", 0.5), ("1.", 1.0), ("1e-5", 1e-5), ("2.5E3", 2500.0)],
)
def test_numbers(text: str, value: float):
    assert number(text) == value


NO_NUMBERS = [
    *"0_1 1_000 nan NaN -nan inf -inf Infinity 1e999 -1e999 ٣ １ 0x1 0b1 0o7 007 01.5 1,5 1e 1e+ e5 . +- 1.2.3".split(),
    *("1j", "½", "true", "None", "null", "", " ", " 1", "1 ", "1\n", "1\0", "1" * 401, "\u22121"),
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_no_numbers(text: str):
    for read in (number, whole):
        with pytest.raises(ValueError, match="is not a"):
            read(text)


@pytest.mark.parametrize("text", ["1.0", "1e3", ".5", "9223372036854775808", "-9223372036854775809", "9" * 5000])
def test_no_whole_numbers(text: str):
    with pytest.raises(ValueError, match="is not a whole number"):
        whole(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_whole_number_of_64_bits_reads_back(value: int):
    assert whole(str(value)) == value and number(str(value)) == float(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_reads_back(value: float):
    assert number(repr(value)) == value


@given(st.text(max_size=12))
def test_what_is_read_is_what_json_reads(text: str):
    """Where JSON reads a number, so do we, and the same one; what else we read differs in its sign or point alone."""
    try:
        value = number(text)
    except ValueError:
        value = None
    try:
        stated = json.loads(text) if text.strip() == text else None
    except ValueError:
        stated = None
    if is_number(stated) and len(text) < 300:
        assert value == float(stated)


def test_numbers_beyond_a_float_are_none():
    assert is_number(10**300) and is_number(-0.5) and not is_number(10**400) and not is_number(-(10**400))
    assert not is_number(True) and not is_number(float("inf")) and not is_number("1")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str = ruled(matches=FILE_NAME)
    count: int = ruled(2, least=1, most=5)
    share: float | None = ruled(None, above=0, most=1)
    mean: list[float] | None = None
    kinds: list[str] = dataclasses.field(default_factory=list, metadata={"among": ("a", "b")})
    key: str | None = ruled(None, one_line=True)


def test_a_mapping_becomes_a_dataclass_of_its_types():
    row = read_fields(Row, {"name": "a", "share": 1, "mean": [0, 1], "kinds": ["a"]}, "here")
    assert row == Row("a", 2, 1.0, [0.0, 1.0], ["a"])
    assert type(row.share) is float and type(row.mean[0]) is float


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([], "here:3: field 'row': must be a mapping of name, count, share, mean, kinds, key"),
        ({}, "here:3: field 'row.name': is missing"),
        ({"name": "a", "size": 1}, "here:3: field 'row.size': unknown field (there are name, count"),
        ({"name": "a/b"}, "here:3: field 'row.name': 'a/b' is not a name of letters"),
        ({"name": "a", "count": 6}, "here:3: field 'row.count': must be 1 to 5, not 6"),
        ({"name": "a", "count": 2.0}, "here:3: field 'row.count': 2.0 is not a whole number"),
        ({"name": "a", "share": 0}, "here:3: field 'row.share': must be more than 0 and at most 1, not 0"),
        ({"name": "a", "kinds": ["c"]}, "here:3: field 'row.kinds': 'c' is not one of a, b"),
        ({"name": "a", "key": "s3cret\n"}, "here:3: field 'row.key': must be one line of text"),
        ({"name": "a", "key": ["s3cret"]}, "here:3: field 'row.key': its value is not a text or null"),
    ],
)
def test_what_breaks_a_rule_is_named_with_its_place(row: object, said: str):
    with pytest.raises(InputError) as caught:
        read_fields(Row, row, "here", 3, "row.", hidden=("key",))
    assert str(caught.value).startswith(said) and "s3cret" not in str(caught.value)
