"""What a model-inversion judge's words mean: yes, no, refused, or unparsed; and how probable its yes was.

A verdict is claimed by the word that the text begins with ("No, they differ."), by a word that has a line to itself, by
a label or a conclusion at the head of a line or the end of the text ("Answer: no", "Based on the images, no."), or by
JSON with an ``answer``. All claims must agree, and nothing else in the text may speak for the other side, be unsure,
take the verdict back or refuse. "Not the same" alone claims nothing: the question was yes or no.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cprt.answers.english import words
from cprt.answers.objects import OBJECT, explanations, object_stands_alone, split_object
from cprt.answers.prose import claims, plain, spell_out, takes_back
from cprt.answers.refusal import refuses
from cprt.answers.thinking import answered, without_thinking

Verdict = Literal["yes", "no", "refused", "unparsed"]
LABELS = ("yes", "no", "refused", "unparsed", "error")  # of a judge's file; "error": no answer came
NOT_SHOWN = "not_shown"  # there, too: nobody was asked

# What may follow: an end, a pause, or a clause that explains. "No person", "no doubt", "No. 5" are no verdicts.
_PAUSE = r"(?=\s*(?:$|\n|[.!](?!\s*[0-9])|[,;:()—–]|- |because\b|since\b|as\b|(?:they|it|he|she|these|this|that)\b))"
_LEADING = re.compile(rf"[(•–—-]? ?(yes|no)\b{_PAUSE}", re.IGNORECASE)
_LINE = re.compile(r"[(-]? ?(yes|no) ?[.!)]*", re.IGNORECASE)
_OPENING = (
    r"(?:(?:so|thus|therefore|hence|overall|finally|in conclusion|in short|in summary|in my opinion"
    r"|(?:based on|judging (?:by|from)|looking at|considering|comparing|given|after comparing) [^,.:!?\n]{1,80}),? )"
)
_LABEL = (
    r"(?:(?:the|my|final|short|overall|one-word) ){0,3}(?:answer|verdict|conclusion|response|judge?ment|decision)"
    r"(?: is)? ?[:=-]? ?"
)
_CLAIM = rf"(?:{_OPENING}?{_LABEL}|{_OPENING})(yes|no)\b{_PAUSE}"
_HEAD, _LAST = re.compile(_CLAIM, re.IGNORECASE), re.compile(rf"(?<=[.!?] ){_CLAIM}", re.IGNORECASE)
_ANSWER_LIKE = re.compile(rf"\b(yes\b|no\b{_PAUSE})", re.IGNORECASE)  # "yes" is never a mere determiner
_CHOICE = re.compile(r"\byes ?(?:or|nor|/) ?no\b", re.IGNORECASE)
_ONE_WORD = re.compile(r"[\"'\s]*(yes|no)[.!\"'\s]*", re.IGNORECASE)  # quoted or not, there is nobody else to quote
_CAPTION = re.compile(r"\"((?:image|set)[a-z ]{0,15} [ab])\"", re.IGNORECASE)  # as the panel names its halves
_ASKED = re.compile(r"\bquestion: ?[^?\n]{1,200}\?", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\{(?:\\text\{)?([a-z]*)\}{1,2}", re.IGNORECASE)
_IS_DIFFERENT, _IS_NOT_DIFFERENT, _IS_SAME = words("different"), words("not_different"), words("same")
_DENIES, _IS_UNSURE = words("negation"), words("unsure")
_IS_TOPICAL, _IS_OPINION = words("topic"), words("opinion")
_SPEAKS = re.compile(r"\bi(?:'m|'ve|'ll|'d)?\b", re.IGNORECASE)


def read_verdict(text: str) -> Verdict:
    """Read an answer. Any string gives a verdict, in time linear in its length."""
    shown = without_thinking(text)
    if shown is None:
        return "unparsed"
    try:
        content, prose = split_object(_BOXED.sub(r"\n\1\n", shown))
        if content is None:
            return _read(plain(prose), "")
        said, around = content.get("answer"), plain(prose)
        if not isinstance(said, str):
            return _read("", plain(shown))
        beside = explanations(content, ("answer",))
    except ValueError:
        return "unparsed"
    if not object_stands_alone(around):
        return "unparsed"
    return _read(plain(said), f"{around.replace(OBJECT, '')}\n{plain(beside)}")


def _read(said: str, around: str) -> Verdict:
    """The verdict of an answer, given what stands around it."""
    said, around = _CAPTION.sub(r"\1", said), _CAPTION.sub(r"\1", around)
    if word := _ONE_WORD.fullmatch(said):
        said = word[1]
    claimed, rest = _claims(said)
    if refuses(f"{said}\n{around}"):  # and says neither, but for naming what it was asked
        return "unparsed" if _ANSWER_LIKE.search(_CHOICE.sub("", f"{said}\n{around}")) else "refused"
    if len(claimed) != 1:
        return "unparsed"
    verdict: Verdict = "yes" if "yes" in claimed else "no"
    return "unparsed" if _contradicts(f"{rest}\n{around}", verdict) else verdict


def _claims(said: str) -> tuple[set[str], str]:
    """Every verdict that is claimed, and what else is said."""
    lines, rest, claimed = said.split("\n"), list[str](), set[str]()
    for line, claim in zip(lines, claims(lines, _HEAD, _LINE, _LAST), strict=True):
        claim = (None if rest else _LEADING.match(line)) or claim
        if claim is not None:
            claimed.add(claim[claim.lastindex or 0].lower())
            line = f"{line[: claim.start()]} {line[claim.end() :]}"
        rest.append(line)
    return claimed, "\n".join(rest)


def _contradicts(rest: str, verdict: Verdict) -> bool:
    """Whether the words around a verdict speak for the other, are unsure, or take it back."""
    rest = spell_out(_ASKED.sub("", rest))
    sentences = [sentence for sentence in re.split(r"[.!?\n]", rest) if re.search(r"\w", sentence)]
    if takes_back(rest) or _IS_UNSURE.search(rest) or "?" in rest or ".." in rest or "…" in rest:
        return True
    if any(not (_IS_OPINION if _SPEAKS.search(words) else _IS_TOPICAL).search(words) for words in sentences):
        return True
    if any(match[1].lower() != verdict for match in _ANSWER_LIKE.finditer(rest)):
        return True
    if verdict == "yes":
        return _IS_DIFFERENT.search(rest) is not None
    # "No, they are the same": a sentence that claims identity must deny it somewhere.
    return _IS_NOT_DIFFERENT.search(rest) is not None or any(
        _IS_SAME.search(words) and not _DENIES.search(words) for words in sentences
    )


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
    spans = answered("".join(tokens))
    if spans is None:
        return None
    answer, start = spans[-1][0], 0
    for token, row in zip(tokens, logprobs, strict=True):
        if start >= answer and _word(token):
            return row
        start += len(token)
    return None


def _word(token: str) -> str:
    """A token without the marks for blanks that some vocabularies show, and without markup."""
    return re.sub(r"[▁ĠĊ\s*_`\"'.,!]+", "", token).lower()
