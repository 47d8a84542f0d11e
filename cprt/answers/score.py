"""What a privacy judge's answer looks like, and what it means: text -> status, score, stated level, attributes.

An answer is one JSON object with a ``score`` at its top level, a number that has a line to itself, or one named as the
score at the head of a line or the end of the text ("Score: 0.71"). Everything else in the text must name no other
score and no other scale.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from cprt.answers.beside import explains
from cprt.answers.english import any_of, words
from cprt.answers.objects import OBJECT, explanations, object_stands_alone, split_object
from cprt.answers.prose import claims, plain, takes_back
from cprt.answers.refusal import refuses, refuses_task
from cprt.answers.thinking import without_thinking
from cprt.scoring import format_score, level_of
from cprt.taxonomy import LEVELS, Taxonomy

STATUSES = ("ok", "unparsed", "refused", "error")  # of a prediction; "error" (no answer came) is the engine's to give
TARGETS = ("score", "attributes")


@dataclass(frozen=True)
class Answer:
    """One answer as read. All but ``status`` are None unless it is ``ok``.

    ``score`` lies in [0, 1], ``level`` is level_of(score), ``stated_level`` (1 to 4) is what the text claims, which may
    differ. ``attributes`` are taxonomy keys in the text's order, ``()`` where it says that none is present, and None
    where it says nothing or anything in its list is unreadable (an unknown key, a repeated one, not a text): a score
    composed from part of a claim would be a wrong one.
    """

    status: Literal["ok", "unparsed", "refused"]
    score: float | None = None
    level: int | None = None
    stated_level: int | None = None
    attributes: tuple[str, ...] | None = None


def render(
    target: str,
    *,
    score: float,
    level: int,
    attributes: Collection[str] = (),
    taxonomy: Taxonomy | None = None,
    score_key: str = "score",
) -> str:
    """The answer that training teaches: ``{"score": 0.812}``, or with the attributes seen and the level before it.

    The score is printed with three decimals that stay in its band, attributes in taxonomy order. Raises ValueError on
    an unknown target, level or key.
    """
    taxonomy = taxonomy or Taxonomy.default()
    if target not in TARGETS:
        raise ValueError(f"target {target!r} is not one of {', '.join(TARGETS)}")
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is not one of 1, 2, 3, 4")
    unknown = set(attributes) - set(taxonomy.keys)
    if unknown:
        raise ValueError(f"attribute {min(unknown)!r} is not in the taxonomy")
    number = format_score(score, taxonomy)
    if target == "score":
        return f'{{"{score_key}": {number}}}'
    present = json.dumps([key for key in taxonomy.keys if key in attributes])
    return f'{{"attributes": {present}, "level": {level}, "{score_key}": {number}}}'


def parse(text: str, taxonomy: Taxonomy | None = None, score_key: str = "score") -> Answer:
    """Read an answer, whose object states the score under ``score_key``.

    Any string gives an Answer, in time linear in its length.
    """
    taxonomy = taxonomy or Taxonomy.default()
    shown = without_thinking(text)
    if shown is None:
        return Answer("unparsed")
    try:
        content, prose = split_object(shown)
    except ValueError:
        return Answer("unparsed")
    if content is not None and score_key.lower() != "score":
        if "score" in content:  # two scores, of which one was not asked for
            return Answer("unparsed")
        content = {"score" if key == score_key.lower() else key: value for key, value in content.items()}
    said, stated_level = _clean(prose)
    attributes, beside = None, ""
    if content is None:
        score, said = _score_of_prose(said)
    else:
        score = _score_of(content.get("score"))
    if score is None:
        has_number = any(number.value not in (None, 0, 1) for number in _numbers(said))
        has_number |= content is not None and re.search("[0-9]", shown) is not None
        return Answer("refused") if refuses(shown) and not has_number else Answer("unparsed")

    if content is not None:
        try:
            stated_level, attributes, beside = _read_object(content, taxonomy)
        except ValueError:
            return Answer("unparsed")
        if not object_stands_alone(said):
            return Answer("unparsed")
    before, _, after = said.partition(OBJECT)
    if not explains(before, after.rpartition(OBJECT)[2]):
        return Answer("unparsed")
    said = f"{said.replace(OBJECT, ' ')}\n{_clean(beside)[0]}"
    taken_back = _other_digits(prose + beside) or _SCALE.search(said) or takes_back(said) or refuses_task(said)
    taken_back = taken_back or _contradicts(said, score)
    if taken_back or any(number.rivals(score) for number in _numbers(said)):
        return Answer("unparsed")
    return Answer("ok", score, level_of(score, taxonomy), stated_level, attributes)


# --- JSON --------------------------------------------------------------------------------------------------------


def _score_of(value: Any) -> float | None:
    if isinstance(value, str):
        return _value(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    return None


def _read_object(content: dict[str, Any], taxonomy: Taxonomy) -> tuple[int | None, tuple[str, ...] | None, str]:
    """Stated level, attributes, and all else that the object says. Raises ValueError for what may be another score."""
    level, listed = content.get("level"), content.get("attributes")
    if isinstance(listed, dict):
        parts = [*listed, *listed.values()]
    else:
        parts = listed if isinstance(listed, list) else [listed]
    texts = [part for part in [*parts, level] if isinstance(part, str)]
    others = [part for part in parts if not isinstance(part, str)]
    fraction = isinstance(level, float) and 0 < level < 1
    if fraction or isinstance(level, dict | list) or isinstance(listed, int | float):
        raise ValueError("is another score, or one may hide in it")
    if any(part not in (None, 0, 0.5, 1) for part in others):
        raise ValueError("another score may hide in it")
    keys = tuple(parts) if isinstance(listed, list) and not others and set(parts) <= set(taxonomy.keys) else None
    return (
        int(level) if isinstance(level, int | str) and str(level) in ("1", "2", "3", "4") else None,
        keys if keys is None or len(set(keys)) == len(keys) else None,
        "\n".join(
            [text for text in texts if text not in taxonomy.keys and text not in ("1", "2", "3", "4")]
            + [explanations(content, ("score", "level", "attributes"))]
        ),
    )


# --- Numbers -----------------------------------------------------------------------------------------------------

_POINT = re.compile(r"((?:0|[1-9][0-9]*)?\.[0-9]+|0|[1-9][0-9]*)(e[-+]?[0-9]{1,4})?(?:/1(?:\.0+)?)?", re.IGNORECASE)
_COMMA = re.compile(r"(0,[0-9]+|1,00?)(?:/1(?:[.,]0+)?)?")  # 1,000 may be a thousand
_PERCENT = re.compile(r"([0-9]{1,3}(?:[.,][0-9]{1,9})?)%")
# Counts, years, times, dates and names such as covid-19: nothing that anyone would take for a score in [0, 1].
_NO_SCORE = re.compile(
    r"0*(?:[2-9]|[1-9][0-9]+)(?:s|st|nd|rd|th)?|[0-9]{1,2}:[0-9]{2}|[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}"
    r"|[a-z]{1,20}-?[0-9]{1,9}",
    re.IGNORECASE,
)
_OPENERS, _CLOSERS = "([_~≈", ")]_"


def _value(text: str) -> float | None:
    """The number in [0, 1] that a word is, or None: 0.71, .71, 7.1e-1, 0,71, 0.71/1, 71%."""
    if match := _POINT.fullmatch(text):
        value = float(match[1] + (match[2] or ""))
    elif match := _COMMA.fullmatch(text):
        value = float(match[1].replace(",", "."))
    elif match := _PERCENT.fullmatch(text):
        value = float(match[1].replace(",", ".") + "e-2")
        if 0 < value < 0.01:  # "0.71%" is literally 0.0071 and hardly meant so
            return None
    else:
        return None
    return value if value <= 1 else None


def _other_digits(text: str) -> bool:
    """Digits other than 0 to 9, fractions, superscripts: numbers that would be overlooked."""
    return any(char > "\x7f" and unicodedata.category(char)[0] == "N" for char in text)


@dataclass(frozen=True)
class _Number:
    """A word with a digit in it. ``named``: the words around it call it a score."""

    text: str
    value: float | None
    named: bool

    def rivals(self, score: float) -> bool:
        """Whether this could be another score than ``score``.

        A count or a date beside one named score is no rival ("I see 3 people. Score: 0.71"), since it cannot lie in
        [0, 1]. A bare 0 or 1 always can.
        """
        return self.value != score if self.value is not None else self.named or not _NO_SCORE.fullmatch(self.text)


def _numbers(prose: str) -> list[_Number]:
    named = {match.start("number") for match in _NAMED.finditer(prose)}
    numbers = []
    for word in re.finditer(r"\S+", prose):
        if re.search("[0-9]", word[0]):
            text = word[0].lstrip(_OPENERS)
            start = word.end() - len(text)
            text = re.sub(r"(?<!^[01])[.,]$|[;:!]$", "", text.rstrip(_CLOSERS)).rstrip(_CLOSERS)  # "0." may be cut off
            numbers.append(_Number(text, _value(text), start in named))
    return numbers


# --- Prose -------------------------------------------------------------------------------------------------------

_ZERO, _ONE = r"(?<![-0-9.,/])0(?:\.0+)?", r"1(?:\.0+)?(?![-.,]?[0-9]| ?[%/])"
_DIGIT = r"[0-9](?![0-9%]|[.,/][0-9])"
_LEVELS = (
    rf"\b(?:(?:severity|risk|privacy) ){{0,2}}levels?(?: is| of)? ?[:=|-]? ?{_DIGIT}"
    rf"(?:(?:,| and| or| to|, and|-|–) ?{_DIGIT})*"
)
_STATED_LEVEL = re.compile(  # "Level: 2, ..." but not "Level 2 attributes: ..."
    r"(?:^|[\n,;(|.]) ?(?:(?:the|final|overall|severity|risk|privacy) ){0,4}level(?: is)? ?[:=|-]? ?"
    rf"({_DIGIT}) ?(?=$|[\n,;.)|])",
    re.IGNORECASE,
)
_SPACING = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"->|→", ":"),
        (r"(?<![0-9]):|:(?![0-9])|[=|]", r" \g<0> "),
        (r"[^\S\n]+", " "),
        (r"\( ?out of 1(?:\.0)? ?\)", " "),
        (  # "on a scale from 0 to 1", "[0, 1]"
            r"(?:(?:on|in) )?(?:(?:a|the) )?(?:(?:scale|range) )?(?:(?:of|from) )?"
            rf"(?:[\[(]{_ZERO}, ?{_ONE}[\])]|{_ZERO} ?(?:to|-|–|—) ?{_ONE}|between {_ZERO} and {_ONE})(?:[ -]scale)?",
            " ",
        ),
        (r"\( *\)", " "),
        (r"(?<=[0-9]) ?(?:/| out of ) ?(?=[0-9])", "/"),
        (r"(?<=[0-9]) ?(?:%| percent\b)", "%"),
        (r" {2,}", " "),
        (r" (?=[:,;\n]|\.(?![0-9]))|(?<=\n) ", ""),
    )
]
_UNNUMBERED = [
    (re.compile(_LEVELS, re.IGNORECASE), " Level "),
    (re.compile(r"^\(?[1-9][0-9]?[.)] (?=\S)", re.MULTILINE), "- "),
    (re.compile(r"^step [1-9][0-9]?(?=:)", re.MULTILINE | re.IGNORECASE), "Step"),
    (re.compile(r"(?<=\n) | (?=\n)"), ""),
]

_ROUGHLY = r"(?:about|approximately|around|roughly|~|≈)"
_WORD = (
    rf"[{re.escape(_OPENERS)}]{{0,4}}(?P<number>(?=[^\s0-9]{{0,9}}[0-9])[^\s{re.escape(_OPENERS)}]\S{{0,99}}?)"
    rf"[{re.escape(_CLOSERS)}]{{0,4}}"
)
_ALONE = re.compile(rf"(?:{_ROUGHLY} )?{_WORD}[.!]?", re.IGNORECASE)
# "the overall privacy score for this image is 0.71": nothing but links may part the label from the number, so that
# "score below 0.71" is none.
_LABELLED = (
    r"(?:(?:privacy|overall|final|estimated|predicted|numeric|numerical|severity|risk|answer)[ _]"
    r"|(?:final )?answer: ){0,6}"
    r"(?:score|severity|rating|risk|answer)\b"
    r"(?: [-–—] |(?: ?(?:(?:is|of|for|this|the|that|image|photo|picture|i|assign|give|to|as|at|a)\b"
    rf"|[:=|]|{_ROUGHLY})){{0,12}} ?)"
    rf"{_WORD}(?=$|\n|[.;:!](?:\s|$)|, (?!or\b)| [|(]| [-–—] ?[a-z]| (?:because|since|due|as|based|given)\b)"
)
# The label follows a break or an article, so that a "confidence score" is none.
_NAMED = re.compile(rf"(?:^|[\n.,;!|(]|\b(?:a|an|the|my|this|its)\b) ?{_LABELLED}", re.IGNORECASE)
_HEAD = re.compile(rf"(?:- |\| ?)?(?:level ?[,;|.] ?)?(?:(?:the|my|a) )?{_LABELLED}", re.IGNORECASE)
_LAST = re.compile(rf"(?<=[.!?]) (?:(?:the|my|a) )?{_LABELLED}", re.IGNORECASE)
_SCALE, _LOW_WORDS = words("scale"), words("low_risk")
_HIGH_WORDS = re.compile(rf"(?<!not )(?<!no )\b{any_of('high_risk')}\b", re.IGNORECASE)


def _contradicts(said: str, score: float) -> bool:
    """Whether words put the risk at the other end than the score does."""
    low, high = _LOW_WORDS.search(said), _HIGH_WORDS.search(said)
    return (low is not None and score >= 0.6) or (high is not None and score <= 0.3)


def _clean(prose: str) -> tuple[str, int | None]:
    """Prose without markdown, scales, levels and list numbers (their digits are no scores), and the level it states."""
    text = plain(prose)
    for pattern, replacement in _SPACING:
        text = pattern.sub(replacement, text)
    text = text.strip()
    levels = {int(level) for level in _STATED_LEVEL.findall(text)}
    level = levels.pop() if len(levels) == 1 else None
    for pattern, replacement in _UNNUMBERED:
        text = pattern.sub(replacement, text)
    return text.strip(), level if level in LEVELS else None


def _score_of_prose(said: str) -> tuple[float | None, str]:
    """The one score that is claimed, and what else is said."""
    lines, rest, named = said.split("\n"), [], False
    values: set[float | None] = set()
    for line, claim in zip(lines, claims(lines, _HEAD, _ALONE, _LAST), strict=True):
        if claim is not None:
            cut_off = claim["number"] in ("0", "1") and line.startswith(".", claim.end("number"))  # "Score: 0."
            values.add(None if cut_off else _value(claim["number"]))
            named |= claim.re is not _ALONE
            line = f"{line[: claim.start()]} {OBJECT} {line[claim.end() :]}"
        rest.append(line)
    others = "\n".join(rest)
    score = values.pop() if len(values) == 1 else None
    alone = not named and any(number.value != score for number in _numbers(others))  # beside it no number may stand
    return (None if alone else score), others
