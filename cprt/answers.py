"""What a judge's answer looks like, and what it means: text -> status, score, stated level, attributes.

A wrong reading is worse than none, so ``parse`` reads what has one meaning and calls the rest unparsed:

* JSON first. Every object that carries a ``score``, at any depth, must give the same reading. Text outside the objects
  must name no other score. JSON that does not decode (cut off, single quotes) is never searched for a number.
* Without JSON, a number that is named as the score ("Score: 0.71"), or one that has a line to itself.
* A refusal beside a score contradicts itself: unparsed.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

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
    target: str, *, score: float, level: int, attributes: Collection[str] = (), taxonomy: Taxonomy | None = None
) -> str:
    """The answer that training teaches: ``{"score": 0.812}``, or with the attributes seen and the level before it.

    Args:
        target: "score" or "attributes".
        score: in [0, 1]; printed with three decimals that stay in its band.
        level: 1 to 4, from the attribute counts. Only the "attributes" target shows it.
        attributes: keys of the attributes present; written in taxonomy order.

    Raises ValueError on an unknown target, level or key.
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
        return f'{{"score": {number}}}'
    present = json.dumps([key for key in taxonomy.keys if key in attributes])
    return f'{{"attributes": {present}, "level": {level}, "score": {number}}}'


def parse(text: str, taxonomy: Taxonomy | None = None) -> Answer:
    """Read an answer. Any string gives an Answer, in time linear in its length."""
    taxonomy = taxonomy or Taxonomy.default()
    unparsed = Answer("unparsed")
    shown = without_thinking(text)
    if shown is None:
        return unparsed
    try:
        claims, prose = _split_json(shown)
    except (ValueError, RecursionError):  # cut off, contradictory or absurdly nested
        return unparsed
    if any(char > "\x7f" and unicodedata.category(char)[0] == "N" for char in prose):
        return unparsed  # other digits than 0 to 9, fractions, superscripts: a number that would be overlooked
    prose, stated_level = _clean(prose)
    numbers = _numbers(prose)
    readings = {_read_claim(claim, taxonomy) for claim in claims}
    if "{" not in shown:
        readings = {(_score_of_prose(numbers), stated_level, None)}
    # An object without a score leaves nothing to read, whatever stands beside it.
    score, stated_level, attributes = next(iter(readings)) if len(readings) == 1 else (None, None, None)
    scaled = re.search(r"\b(?:scale|out of|points?|stars?)\b", prose) is not None
    if score is not None and any(number.rivals(score, scaled) for number in numbers):
        score = None

    refuses = _refuses(prose, shown, scored=score is not None)
    if score is not None and not refuses:
        return Answer("ok", score, level_of(score, taxonomy), stated_level, attributes)
    hints = [reading[0] for reading in readings] + [number.value for number in numbers if number.value not in (0, 1)]
    return Answer("refused") if refuses and not any(hint is not None for hint in hints) else unparsed


# --- Thinking blocks ---------------------------------------------------------------------------------------------

_THINKING = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>|\[(/?)think\]|◁(/?)think▷", re.IGNORECASE)


def without_thinking(text: str) -> str | None:
    """The text outside thinking blocks, None when one is still open (the answer never came).

    Some chat templates open the block in the prompt, so a closing tag alone ends one that began before the text.
    """
    kept: list[str] = []
    depth = position = 0
    for tag in _THINKING.finditer(text):
        closing = any(tag.groups())
        if depth == 0 and closing:
            kept.clear()
        elif depth == 0:
            kept.append(text[position : tag.start()])
        depth = max(0, depth - 1) if closing else depth + 1
        position = tag.end()
    return None if depth else "\n".join([*kept, text[position:]])


# --- JSON --------------------------------------------------------------------------------------------------------

_JSON_FRAGMENT = re.compile(r"""["']\s{0,9}:|[{}]""")  # `"score": 0.7` whose braces were lost


def _split_json(text: str) -> tuple[list[dict[str, Any]], str]:
    """Every JSON object with a score, nested ones too, and the text outside. Raises ValueError, RecursionError."""
    claims: list[dict[str, Any]] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key, value in pairs:
            name = key.strip().lower()
            if content.setdefault(name, value) != value and name in ("score", "level", "attributes"):
                raise ValueError(f"two values for {name}")
        if "score" in content:
            claims.append(content)
        return content

    # Numbers stay text: no integer is too long, no exponent too large, and they read as numbers in prose do.
    decoder = json.JSONDecoder(
        object_pairs_hook=collect, parse_int=str, parse_float=str, parse_constant=lambda _: None, strict=False
    )
    prose, position = [], 0
    while (start := text.find("{", position)) >= 0:
        prose.append(text[position:start])
        _, position = decoder.raw_decode(text, start)
    prose.append(text[position:])
    outside = "\n".join(prose)
    if _JSON_FRAGMENT.search(outside):
        raise ValueError("broken JSON")
    return claims, outside


def _read_claim(claim: dict[str, Any], taxonomy: Taxonomy) -> tuple[float | None, int | None, tuple[str, ...] | None]:
    score, level, keys = claim["score"], claim.get("level"), claim.get("attributes")
    return (
        _value(score.strip()) if isinstance(score, str) else None,
        int(level) if isinstance(level, str) and level in ("1", "2", "3", "4") else None,
        tuple(keys) if isinstance(keys, list) and _are_attributes(keys, taxonomy) else None,
    )


def _are_attributes(keys: list[Any], taxonomy: Taxonomy) -> bool:
    return all(isinstance(key, str) and key in taxonomy.keys for key in keys) and len(set(keys)) == len(keys)


# --- Numbers -----------------------------------------------------------------------------------------------------

_POINT = re.compile(r"((?:0|[1-9][0-9]*)?\.[0-9]+|0|[1-9][0-9]*)(e[-+]?[0-9]{1,4})?(?:/1(?:\.0+)?)?", re.IGNORECASE)
_COMMA = re.compile(r"(0,[0-9]+|1,00?)(?:/1(?:[.,]0+)?)?")  # 1,000 may be a thousand
_PERCENT = re.compile(r"([0-9]{1,3}(?:[.,][0-9]{1,9})?)%")
# Counts, years, times, dates and names such as covid-19: nothing that anyone would take for a score in [0, 1].
_NO_SCORE = re.compile(
    r"0*(?:[2-9]|[1-9][0-9]+)(?:s|st|nd|rd|th)?|[0-9]{1,2}:[0-9]{2}|[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}"
    r"|[a-z]{1,20}-?[0-9]{1,9}"
)
_OPENERS, _CLOSERS = "\"'([_~≈", "\"')]_"


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


@dataclass(frozen=True)
class _Number:
    """A word with a digit in it. ``named``: the words around it call it the score. ``alone``: it has its line."""

    text: str
    value: float | None
    named: bool
    alone: bool

    def rivals(self, score: float, scaled: bool) -> bool:
        """Whether this could be another score than ``score``.

        A count or a date beside one named score is no rival ("I see 3 people. Score: 0.71"), since it cannot lie in
        [0, 1]; where the text speaks of a scale, it can. A bare 0 or 1 always can.
        """
        if self.value is not None:
            return self.value != score
        return self.named or scaled or not _NO_SCORE.fullmatch(self.text)


def _numbers(prose: str) -> list[_Number]:
    alone = {match.start("number") for match in _ALONE.finditer(prose)}
    named = {match.start("number") for match in _NAMED.finditer(prose) if not _is_hedged(prose, match.start())}
    numbers = []
    for word in re.finditer(r"\S+", prose):
        if re.search("[0-9]", word[0]):
            text = word[0].lstrip(_OPENERS)
            start = word.end() - len(text)
            text = re.sub(r"(?<!^[01])[.,]$|[;:!]$", "", text.rstrip(_CLOSERS)).rstrip(_CLOSERS)  # "0." may be cut off
            numbers.append(_Number(text, _value(text), start in named, start in alone))
    return numbers


# --- Prose -------------------------------------------------------------------------------------------------------

_ZERO, _ONE = r"(?<![-0-9.,/])0(?:\.0+)?", r"1(?:\.0+)?(?![-.,]?[0-9]| ?[%/])"
_DIGIT = r"[0-9](?![0-9%]|[.,/][0-9])"
_CLEANING = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"```[a-z]*|[*`#]", " "),
        (r"->|→", ":"),
        (r"</?answer>", "\n"),
        (r"(?<![0-9]):|:(?![0-9])|[=|]", r" \g<0> "),
        (r"[^\S\n]+", " "),
        (r"\([^()0-9]{0,200}\)|\( ?out of 1(?:\.0)? ?\)", " "),
        (  # "on a scale from 0 to 1", "[0, 1]"
            r"(?:(?:on|in) )?(?:(?:a|the) )?(?:(?:scale|range) )?(?:(?:of|from) )?"
            rf"(?:[\[(]{_ZERO}, ?{_ONE}[\])]|{_ZERO} ?(?:to|-|–|—) ?{_ONE}|between {_ZERO} and {_ONE})(?:[ -]scale)?",
            " ",
        ),
        (r"\( *\)", " "),
        (r"(?<=[0-9]) ?(?:/| out of ) ?(?=[0-9])", "/"),
        (r"(?<=[0-9]) ?(?:%| percent\b)", "%"),
        (r" {2,}", " "),
        (r" (?=[:,;.\n])|(?<=\n) ", ""),
        (r"\n{2,}", "\n"),
    )
]
_LEVELS = re.compile(
    rf"\b(?:(?:severity|risk|privacy) ){{0,2}}levels?(?: is| of)? ?[:=|-]? ?{_DIGIT}"
    rf"(?:(?:,| and| or| to|, and|-|–) ?{_DIGIT})*"
)
_STATED_LEVEL = re.compile(  # "Level: 2, ..." but not "Level 2 attributes: ..."
    r"(?:^|[\n,;(|.]) ?(?:(?:the|final|overall|severity|risk|privacy) ){0,4}level(?: is)? ?[:=|-]? ?"
    rf"({_DIGIT}) ?(?=$|[\n,;.)|])"
)
_LIST_MARKER = re.compile(r"^\(?[1-9][0-9]?[.)] (?=\S)", re.MULTILINE)

_ROUGHLY = r"(?:about|approximately|around|roughly|~|≈)"
_WORD = (
    rf"[{re.escape(_OPENERS)}]{{0,4}}(?P<number>[^\s{re.escape(_OPENERS)}]\S{{0,99}}?)[{re.escape(_CLOSERS)}]{{0,4}}"
)
_ALONE = re.compile(rf"(?:^|(?<!:)\n)(?:{_ROUGHLY} )?{_WORD}(?=\n|$)")
# "the overall privacy score for this image is 0.71". The label follows a break or an article, so that a "confidence
# score" is none; nothing but links may part it from the number, so that "score below 0.71" is none.
_NAMED = re.compile(
    r"(?:^|[\n.,;!|(\"]|\b(?:a|an|the|my|this|its)\b) ?"
    r"(?:(?:privacy|overall|final|estimated|predicted|numeric|numerical|severity|risk|answer)[ _]|(?:final )?answer: )*"
    r"(?:score|severity|rating|risk|answer)\b"
    r"(?: [-–—] |(?:[ \n]?(?:(?:is|of|for|this|the|that|image|photo|picture|i|assign|give|to|as|at|a)\b"
    rf"|[:=|]|{_ROUGHLY}))*[ \n]?)"
    rf"{_WORD}(?=$|\n|[.;:!](?:\s|$)|, (?!or\b)| [|(]| [-–—] ?[a-z]| (?:because|since|due|as|based|given)\b)"
)
_HEDGE = re.compile(
    r"\b(?:if|unless|were|not|never|no|without|example|e\.g|assuming|suppose|cannot|max|min|maximum|minimum)\b|n't\b"
)


def _plain(text: str) -> str:
    return re.sub(r"[‘’ʼ´]", "'", text.lower())


def _clean(prose: str) -> tuple[str, int | None]:
    """Prose without markdown, scales, levels and list numbers (their digits are no scores), and the level it states."""
    text = _plain(prose)
    for pattern, replacement in _CLEANING:
        text = pattern.sub(replacement, text)
    text = text.strip()
    levels = {int(level) for level in _STATED_LEVEL.findall(text)}
    level = levels.pop() if len(levels) == 1 else None
    return _LIST_MARKER.sub("", _LEVELS.sub(" level ", text)), level if level in LEVELS else None


def _is_hedged(prose: str, label: int) -> bool:
    """Whether the sentence before a label takes the score back: "if ...", "not", "for example"."""
    return _HEDGE.search(re.split(r"[.!?\n]", prose[max(0, label - 200) : label + 1])[-1]) is not None


def _score_of_prose(numbers: list[_Number]) -> float | None:
    named = [number.value for number in numbers if number.named]
    if named:
        return named[0]  # the caller holds all others against it
    same = len({number.value for number in numbers}) == 1
    return numbers[0].value if same and any(number.alone for number in numbers) else None


# --- Refusals ----------------------------------------------------------------------------------------------------

_CANNOT = (
    r"(?:can't|cannot|can not|cant|could not|couldn't|won't|will not|unable to|not able to|not comfortable"
    r"|not allowed to|don't|do not|decline|refuse|not going to)"
)
_REFUSAL = re.compile(
    rf"\b(?:i|i'm|we)\b[^.!?\n]{{0,40}}?\b{_CANNOT}\b[^.!?\n]{{0,25}}?\b(?:assist|help|comply|fulfil|assess|answer"
    r"|evaluat|rate\b|rating|scor|judg|assign|provid|giv|analy[sz]|respond|process|engage|discuss|comment|continue"
    r"|(?:see|view) (?:the |this |any )?(?:image|photo|picture)"
    r"|(?:determin|estimat)[a-z]* (?:the |a |an |this |its )?(?:image|photo|picture|privacy|severity|risk|score|level))"
    r"|\b(?:against|violates?) (?:my|our|the) [a-z ]{0,20}(?:polic|guideline)"
)
# An apology for not doing something means as much, but only where no score is given.
_APOLOGY = re.compile(rf"\b(?:sorry|apologi[sz]e|unfortunately)\b[^.!?\n]{{0,40}}?\b{_CANNOT}\b")


def _refuses(prose: str, whole: str, scored: bool) -> bool:
    """Beside a score only a refusal in the prose counts: within the object "I cannot assess the age" is a rationale."""
    if scored:
        return _REFUSAL.search(prose) is not None
    text = re.sub(r"\s+", " ", _plain(whole))
    return _REFUSAL.search(text) is not None or _APOLOGY.search(text) is not None
