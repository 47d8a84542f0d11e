"""The words next to an answer: whether they describe the photo, or say why the answer is so."""

from __future__ import annotations

import re

from cprt.answers.english import any_of, words
from cprt.answers.prose import leads_in, sentences

# What the words next to an answer may be: statements about the photo, in full sentences after the answer, and labelled
# lines. Comments ("Hardly.", "I disagree."), phrases without a verb ("As seen on the mug.") and everything in another
# language are neither.
_OPENER = (
    r"(?:(?:so|thus|hence|therefore|overall|clearly|finally|also|too|additionally|moreover|furthermore|first|firstly"
    r"|second|secondly|third|next|then|note that|in (?:summary|conclusion|total|addition)"
    r"|(?:in|on) (?:the|this) (?:image|photo|picture|scene|foreground|background|left|right|cent(?:er|re))"
    r"|(?:based on|given|considering|looking at|since|because|as) [^,\n]{1,80},),? )*"
)
_CONCRETE, _VERB = rf"{any_of('concrete')}\b", any_of("verb")
_STATEMENT = re.compile(rf"{_OPENER}{_CONCRETE}", re.IGNORECASE)
_SENTENCE = re.compile(rf"{_OPENER}{_CONCRETE}.*?\b{_VERB}\b", re.IGNORECASE | re.DOTALL)
_LABELLED = re.compile(r"[a-z][a-z0-9 /_-]{0,40}(?:\([^()\n]{1,40}\))?: ?(?=\S)", re.IGNORECASE)
_RESERVATION = re.compile(
    r"i (?:can|do)(?:'t|n't| ?not) (?:\w+ )?(?:tell|identify|recogni[sz]e|see|read|infer|determine)\b.*", re.IGNORECASE
)
# A courtesy, a level, the score once more.
_NOTHING_NEW = re.compile(
    r"(?:sure|okay|ok|certainly|of course|absolutely|alright)[.!,]*|(?:.{0,40}\b)?level[ .,;|)]*"
    r"|(?:so,? |(?:the|final|overall) )*score ?(?:is|:)? ?[0-9.,/%]+",
    re.IGNORECASE,
)
# Of the answer itself, only why it is so.
_META = any_of("about_answers")
_SUBJECT = rf"{_OPENER}(?:the|this|my|his|her|their|an?|such|these|those|one|no|some|any|all) (?:[\w'-]+ ){{0,3}}"
_ABOUT_ANSWER = re.compile(
    rf"{_SUBJECT}(?:{_META}|scores?|ratings?|assessment|judge?ment|risk|severity)\b(?P<why>.*)",
    re.IGNORECASE | re.DOTALL,
)
_POINTS = re.compile(rf"\b(?:{_META}\b|(?:this|that|these|it|so)$)", re.IGNORECASE)
# Turns against the answer, or ends in a pronoun that can only mean it.
_TURNS = re.compile(r"\b(?:however|nevertheless|nonetheless)\b|\b(?:this|that|these|it)[.!]*$", re.IGNORECASE)
_WHY = re.compile(
    r"(?: (?:of|for) (?:this|the) (?:image|photo|picture))? (?:reflects?|(?:stems?|comes?|results?|follows?) from"
    r"|accounts? for|considers?|takes? into account|is (?:\w+ ){0,2}"
    r"(?:because|based on|due to|driven by|since|as|given))\b",
    re.IGNORECASE,
)
_MAIN_RISK = re.compile(
    r"the (?:main|primary|key|biggest|greatest) (?:\w+ )?(?:risk|concern|factor)s?\b", re.IGNORECASE
)
_BECAUSE = re.compile(
    r"(?:this is |i (?:\w+ )?(?:chose|gave|assigned|selected) (?:this|the|a) (?:\w+ )?(?:score|rating|value|number) )?"
    r"(?:because|since|as (?:an?|the|his|her|there|two)|due to|based on|given)\b",
    re.IGNORECASE,
)
_EXPLANATION = re.compile(
    r"(?:- )?(?:the |a |my |brief |short |detailed |key |visible |identified )*(?:explanations?|reason(?:ing|s)?"
    r"|rationale|justification|analysis|breakdown|details|summary|attributes(?: present| visible| found)?|findings?"
    r"|observations?|factors?|description|elements)"
    r"(?: (?:for|of|behind) (?:the|this|my) \w+)? ?:.*",
    re.IGNORECASE | re.DOTALL,
)
_BEARER = words("bearer")


def explains(before: str, after: str) -> bool:
    """Whether the words of a plain text next to an answer describe the photo or say why the answer is so.

    Before the answer its last sentence counts, which must not be of something that bears somebody else's words.
    """
    last = (sentences(before) or [""])[-1]
    if last and not leads_in(last) and (not _describes(last, _STATEMENT) or _points(last)):
        return False
    for sentence in sentences(after):
        if _EXPLANATION.fullmatch(sentence):
            return True
        if _BECAUSE.match(sentence) or _MAIN_RISK.match(sentence):
            continue
        about = _ABOUT_ANSWER.fullmatch(sentence)
        if not (_WHY.match(about["why"]) if about else _describes(sentence, _SENTENCE)) or _TURNS.search(sentence):
            return False
    return True


def _points(sentence: str) -> bool:
    """Whether a sentence may point to the answer that follows it as to something seen."""
    return _BEARER.search(sentence) is not None or _POINTS.search(sentence.rstrip(".!")) is not None


def _describes(sentence: str, form: re.Pattern[str]) -> bool:
    bare = re.sub(r"^[-–—,;|(] ?|[.!)|]+$", "", sentence)
    if _NOTHING_NEW.fullmatch(bare) or _BECAUSE.match(bare):
        return True
    label = _LABELLED.match(bare)
    if form is _STATEMENT:
        return label is not None or form.match(bare) is not None or _RESERVATION.match(bare) is not None
    in_brackets = sentence.startswith("(") and not _BEARER.search(sentence)
    return (_STATEMENT if in_brackets else form).match(bare[label.end() :] if label else bare) is not None
