"""What a judge's words mean: yes, no, refused, or unparsed. A wrong reading is worse than none.

A verdict is claimed by the word that the text begins with ("No, they differ."), by a word that has a line to itself, by
a label ("Answer: no"), or by JSON with an ``answer``. All claims must agree, and nothing else in the text may speak for
the other side, take the verdict back or refuse. Words such as "not the same" alone claim nothing: the question was yes
or no. Other languages are not read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cprt.answers import without_thinking

Verdict = Literal["yes", "no", "refused", "unparsed"]
LABELS = ("yes", "no", "refused", "unparsed", "error")
NOT_SHOWN = "not_shown"  # no answer of a judge: nobody was asked

# What may follow: an end, a pause, or a clause that explains. "No person", "no doubt", "No. 5" are no verdicts.
_PAUSE = r"(?=\s*(?:$|\n|[.!](?!\s*[0-9])|[,;:()—–]|- |because\b|since\b|as\b|(?:they|it|he|she|these|this|that)\b))"
_LEADING = re.compile(rf"(yes|no)\b{_PAUSE}")
_LABELLED = re.compile(rf"\b(?:answer|verdict)(?: is)? ?[:=]? ?(yes|no)\b{_PAUSE}")
_LINE = re.compile(r"^(yes|no) ?[.!]*$", re.MULTILINE)
_ANSWER_LIKE = re.compile(rf"\b(yes\b|no\b{_PAUSE})")  # "yes" is never a mere determiner
_HEDGED_LABEL = re.compile(r"\b(?:if|unless|whether|would|could|might|not|never)\b|n't\b")

_FOR_NO = re.compile(
    r"(?:\bnot|n't|\bnever|\bhardly) (?:\w+ ){0,4}same\b"
    r"|\bdifferent (?:person|people|individual|subject|breed|class|object|animal|dog|kind)"
)
_SAME = re.compile(r"\b(?:same|identical)\b")
_NEGATION = re.compile(
    r"\b(?:not|never|neither|nor|no|none|cannot|without|unlikely|doubt\w*|different|hardly|lacks?|fails?)\b|n't\b"
)
_UNSURE = re.compile(
    r"\b(?:not (?:\w+ )?(?:sure|certain|clear)|unsure|uncertain|unclear|maybe|perhaps|inconclusive|impossible to"
    r"|(?:hard|difficult) to (?:say|tell)|on second thought|yes i can\b|yes, i can\b)"
)

_CANNOT = (
    r"(?:can't|cannot|can not|cant|couldn't|could not|won't|will not|unable to|not able to|don't|do not|decline|refuse"
    r"|not going to|not allowed to|not comfortable|must not|not permitted to)"
)
_REFUSAL = re.compile(
    rf"\b(?:i|i'm|we|we're)\b[^.!?\n]{{0,40}}?\b{_CANNOT}\b[^.!?\n]{{0,30}}?\b(?:answer|assist|help|comply|fulfil|respond"
    r"|identify|recogni[sz]|compar|match|determin|verify|confirm|assess|evaluat|judg|process|analy[sz]|provid|giv"
    r"|engage|discuss|continue|mak(?:e|ing) (?:that|this|such|a|any|facial|identity|identification))"
    rf"|\b(?:sorry|apologi[sz]e|unfortunately)\b[^.!?\n]{{0,40}}?\b{_CANNOT}\b"
    r"|\b(?:against|violates?) (?:my|our|the) [a-z ]{0,20}(?:polic|guideline)"
)
_CHOICE = re.compile(r"\byes ?(?:or|nor|/) ?no\b")
_FENCE = re.compile(r"```[a-z]*")
_THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>|\[/think\]|◁/think▷", re.IGNORECASE)
_MARKUP = re.compile(r"[*_`#>\"“”]|</?(?:answer|verdict)>|\\boxed\{([a-z]*)\}")


def read_verdict(text: str) -> Verdict:
    """Read an answer. Any string gives a verdict, in time linear in its length."""
    shown = without_thinking(text)
    if shown is None:  # still thinking: the answer never came
        return "unparsed"
    if "{" in shown and "\\boxed" not in shown:
        return _read_json(shown)
    return _read_prose(shown)


def _read_json(text: str) -> Verdict:
    """One object with an ``answer``; what stands outside it must claim and refuse nothing."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key, value in pairs:
            if key.strip().lower() in content:
                raise ValueError("a key twice")
            content[key.strip().lower()] = value
        return content

    start = text.index("{")
    try:
        content, end = json.JSONDecoder(object_pairs_hook=once).raw_decode(text, start)
    except (ValueError, RecursionError):
        return "unparsed"
    outside = text[:start] + "\n" + text[end:]
    said = content.get("answer") if isinstance(content, dict) else None
    if not isinstance(said, str) or "{" in outside or _speaks(outside):
        return "unparsed"
    return _read_prose(said)


def _speaks(text: str) -> bool:
    plain = _plain(text)
    return re.search(r"\b(?:yes|no)\b", plain) is not None or _REFUSAL.search(plain) is not None


def _read_prose(text: str) -> Verdict:
    plain = _plain(text)
    claims = {match[1] for match in _LINE.finditer(plain)}
    leading = _LEADING.match(plain)
    if leading is not None:
        claims.add(leading[1])
    claims |= {match[1] for match in _LABELLED.finditer(plain) if not _is_hedged(plain, match.start())}
    refuses = _REFUSAL.search(" ".join(plain.split())) is not None
    if refuses:  # and says neither, but for naming what it was asked
        return "unparsed" if _ANSWER_LIKE.search(_CHOICE.sub("", plain)) else "refused"
    if len(claims) != 1:
        return "unparsed"
    verdict: Verdict = "yes" if "yes" in claims else "no"
    return "unparsed" if _takes_back(plain, verdict) else verdict


def _plain(text: str) -> str:
    """Lower case, no markup, no quotes but apostrophes; one blank at most, no empty lines."""
    text = re.sub(r"[‘’ʼ´]", "'", text.lower())
    text = re.sub(r"(?<![a-z])'|'(?![a-z])", "", _MARKUP.sub(r" \1 ", _FENCE.sub("\n", text)))
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)).strip(" \n(-•")


def _is_hedged(text: str, label: int) -> bool:
    """Whether the sentence before a label takes it back: "if the answer is yes"."""
    return _HEDGED_LABEL.search(re.split(r"[.!?\n]", text[max(0, label - 200) : label])[-1]) is not None


def _takes_back(text: str, verdict: Verdict) -> bool:
    if _UNSURE.search(text) or any(match[1] != verdict for match in _ANSWER_LIKE.finditer(text)):
        return True
    if verdict == "yes":
        return _FOR_NO.search(text) is not None
    # "No, they are the same": a sentence that says "same" must deny it somewhere, beside the verdict itself.
    for number, sentence in enumerate(re.split(r"[.!?\n]", text)):
        rest = re.sub(r"^ ?no\b", "", sentence) if number == 0 else sentence
        if _SAME.search(rest) and not _NEGATION.search(rest):
            return True
    return False


# --- How sure ----------------------------------------------------------------------------------------------------


def yes_probability(logprobs: Sequence[Mapping[str, Any]] | None) -> dict[str, float | None] | None:
    """P(yes) from the alternatives to the first token of the answer, as an endpoint gives them.

    Returns ``yes_mass`` and ``no_mass`` (summed over their spellings: "Yes", " yes", "YES"), ``missing_mass`` (what the
    endpoint did not list or what is neither), and ``p_yes`` = yes / (yes + no), null where neither is listed. None
    without usable logprobs.
    """
    token = _first_answer_token(logprobs or [])
    listed = (token or {}).get("top_logprobs")
    if not isinstance(listed, list) or not listed:
        return None
    mass = {"yes": 0.0, "no": 0.0}
    for alternative in {str(row.get("token")): row for row in listed if isinstance(row, Mapping)}.values():
        word, logprob = _word(str(alternative.get("token"))), alternative.get("logprob")
        if word in mass and isinstance(logprob, (int, float)) and logprob <= 0:
            mass[word] += math.exp(logprob)
    total = mass["yes"] + mass["no"]
    return {
        "p_yes": mass["yes"] / total if total else None,
        "yes_mass": mass["yes"],
        "no_mass": mass["no"],
        "missing_mass": max(0.0, 1 - total),
    }


def _first_answer_token(logprobs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first token after any thinking that is more than blanks and markup."""
    tokens = [str(row.get("token")) for row in logprobs]
    text = "".join(tokens)
    if without_thinking(text) is None:
        return None
    answer = max((tag.end() for tag in _THOUGHT.finditer(text)), default=0)
    start = 0
    for token, row in zip(tokens, logprobs, strict=True):
        if start >= answer and _word(token):
            return row
        start += len(token)
    return None


def _word(token: str) -> str:
    """A token without the marks for blanks that some vocabularies show, and without markup."""
    return re.sub(r"[▁ĠĊ\s*_`\"'.,!]+", "", token).lower()
