"""Verdicts: two claim nothing, form changes nothing; and how probable a yes was. The table is in tests/corpus."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cprt.answers.yes_no import read_verdict, yes_probability

WORDS = st.lists(st.sampled_from("they look alike and both wear glasses with brown hair . , \n same not".split(" ")))
MARKUP = st.sampled_from(["", "**", "*", "__", "`", '"', "“", " ", "\n"])


@given(WORDS, st.sampled_from(["yes", "no"]))
def test_words_without_a_verdict_claim_nothing_and_two_verdicts_claim_nothing(words: list[str], verdict: str):
    other = {"yes": "no", "no": "yes"}[verdict]
    assert read_verdict(" ".join(words)) == "unparsed"
    for text in (f"{verdict}. {' '.join(words)} {other}.", f"Answer: {verdict}. Answer: {other}"):
        assert read_verdict(text) == "unparsed"


@given(
    st.sampled_from(["yes", "no"]),
    MARKUP,
    MARKUP,
    st.sampled_from([str.upper, str.lower, str.title]),
    st.sampled_from(["", ".", "!", " ", "\n"]),
)
def test_case_blanks_and_markup_change_nothing(verdict: str, before: str, after: str, case, end: str):
    text = f"{before}{case(verdict)}{end}{after}"
    assert read_verdict(text) == verdict == read_verdict(f"<think>yes or no? {text}</think>{text}")
    assert read_verdict(json.dumps({"answer": text})) == verdict


# --- P(yes) ------------------------------------------------------------------------------------------------------


def token(text: str, **alternatives: float) -> dict:
    """As an endpoint gives it; an underscore stands for a blank."""
    listed = [{"token": name.replace("_", " "), "logprob": math.log(p)} for name, p in alternatives.items()]
    return {"token": text, "logprob": -0.1, "top_logprobs": listed}


def test_spellings_are_summed_and_what_is_missing_is_said():
    first = token("Yes", Yes=0.5, _yes=0.1, YES=0.1, No=0.1, no=0.05, Maybe=0.1)
    found = yes_probability([first, token(".", No=0.9)])
    assert found == pytest.approx({"p_yes": 0.7 / 0.85, "yes_mass": 0.7, "no_mass": 0.15, "missing_mass": 0.15})


def test_the_token_of_the_answer_is_the_first_after_thinking_and_markup():
    answer = token("No", Yes=0.2, No=0.7)
    for before in (["**"], ["\n"], ["<think>", "Yes", "</think>", "\n\n"], ["yes", "</", "think", ">", " "]):
        found = yes_probability([*(token(text, Yes=0.9) for text in before), answer])
        assert found is not None and found["yes_mass"] == pytest.approx(0.2), before
    assert yes_probability([token("<think>", Yes=1.0), token("Yes", Yes=1.0)]) is None


def test_nothing_is_made_up():
    assert yes_probability(None) is None and yes_probability([]) is None
    assert yes_probability([{"token": "Yes", "logprob": 0.0}]) is None
    assert yes_probability([token("I", I=0.9)]) == pytest.approx(
        {"p_yes": None, "yes_mass": 0.0, "no_mass": 0.0, "missing_mass": 1.0}
    )
