"""Yes, no, refused, unparsed: what a judge's words are taken for, and what they are never taken for."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.model_inversion.judge.verdicts import read_verdict, yes_probability

YES = [
    "yes",
    "Yes",
    "yes ",
    "\n YES.\n",
    "Yes!!!",
    "**Yes**",
    "__yes__",
    "`yes`",
    '"Yes."',
    "'yes'",
    "“Yes”",
    "(yes)",
    "- Yes",
    "Answer: yes",
    "**Answer:** Yes",
    "The answer is yes.",
    "Final answer: Yes",
    "<answer>Yes</answer>",
    "\\boxed{yes}",
    "```\nyes\n```",
    '{"answer": "yes"}',
    '```json\n{"Answer": "Yes."}\n```',
    '{"reason": "same nose, no glasses", "answer": "yes"}',
    "Yes, they are the same person.",
    "Yes - the nose matches",
    "Yes. There is no doubt.",
    "Yes, although no glasses are worn in B.",
    "Yes, it depicts the same breed",
    "<think>No beard... perhaps no.</think>Yes",
    "no, wait</think>\n\nyes",
    "They share the jaw and the eyes.\n\nYes",
    "Image A has short hair. Answer: yes",
    "Yes (the eyes match).",
    "Yes because the ears match",
    "Sure. The answer: **yes**.",
]
NO = [
    "no",
    "No",
    " NO \n",
    "No.",
    "**No**",
    "Answer: no",
    "*Answer*: **No**",
    "The answer is no.",
    '{"answer": "no"}',
    "No, they are not the same individual.",
    "No, Image A does not depict the same individual as Set B.",
    "No. The person in A is different.",
    "No they are not",
    "No — different noses.",
    "no\n",
    "No, it isn't the same dog.",
    "No, I don't think they are the same person.",
    "Both wear glasses, but the noses differ.\nNo.",
    "<thinking>Yes?</thinking>\n**No**",
    '{"answer": "No, they are not the same."}',
]
REFUSED = [
    "I cannot answer yes or no.",
    "I can’t answer yes or no",
    "I'm sorry, but I can't help with that.",
    "I'm sorry, I cannot identify people in images.",
    "I am not able to compare the faces of real people.",
    "I'm unable to determine whether Image A shows the same person.",
    "I won't identify individuals.",
    "As an AI, I do not identify people.",
    "Sorry, I can't.",
    "This is against my guidelines.",
    '{"answer": "I cannot answer yes or no."}',
    "<think>hm</think>I can't assist with identifying people.",
    "We are unable to verify the identity.",
    "Unfortunately, I am not able to do so.",
]
UNPARSED = [
    "",
    " ",
    "yes and no",
    "Yes and no.",
    "yes or no",
    "Yes/No",
    "yes-no",
    "Yes, no",
    "No. Yes.",
    "Yes... wait, no.",
    "Yes\nNo",
    "not sure",
    "I'm not sure.",
    "Maybe",
    "Yes, but I am not sure",
    "No, perhaps",
    "Not the same",
    "They are the same person.",
    "The same!",
    "Yes?",
    "no?",
    "Possibly yes",
    "No doubt it is the same person",
    "No person can be seen",
    "No. 5 is the closest",
    "No question",
    "yesterday",
    "nope",
    "Yess",
    "Nein",
    "Oui",
    "Sí",
    "はい",
    "是",
    "いいえ",
    "Да",
    "No sé",
    "Y",
    "N",
    "1",
    "true",
    "<think>Yes",
    "<think>yes</think>",
    "If the answer is yes",
    "Yes, they are not the same person.",
    "No, they are the same person.",
    "Yes, it is a different person.",
    '{"answer": "yes"',
    '{"answer": true}',
    '{"answer": "yes", "answer": "no"}',
    '{"verdict_of_a": "yes"}',
    '{"answer": "yes"} {"answer": "no"}',
    '{"answer": "yes"}\nNo.',
    "['yes']",
    "Answer: yes\nAnswer: no",
    "The answer is not yes.",
    "I cannot answer, but no",
    "No, I can't help with that.",
    "Yes, I can help with that.",
    "yes no yes",
    "Either yes or no.",
    "I would say no",
]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (text, verdict)
        for verdict, texts in (("yes", YES), ("no", NO), ("refused", REFUSED), ("unparsed", UNPARSED))
        for text in texts
    ],
)
def test_readings(text: str, verdict: str):
    assert read_verdict(text) == verdict


WORDS = st.lists(st.sampled_from("they look alike and both wear glasses with brown hair . , \n same not".split(" ")))
MARKUP = st.sampled_from(["", "**", "*", "__", "`", '"', "“", " ", "\n"])


@given(st.text(st.sampled_from("yesno YESNO,.\n*{}\"':<>/thinkcannotanswer!?")))
def test_any_text_has_a_reading_and_never_yes_or_no_without_the_word(text: str):
    verdict = read_verdict(text)
    assert verdict in ("yes", "no", "refused", "unparsed")
    if verdict in ("yes", "no"):
        assert verdict in text.lower()


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


@pytest.mark.parametrize(
    "part", ["yes ", "no, ", "not ", "I cannot ", "{", "answer: ", "\n ", "a", "<think>", "*", "'"]
)
def test_long_texts_are_read_in_linear_time(part: str):
    start = time.process_time()
    read_verdict(part * (400_000 // len(part)))
    assert time.process_time() - start < 5


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
