"""What counts as a number in a text: plain ASCII decimals, finite, nothing that only Python would take."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cprt.numbers import is_number, number, whole


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
