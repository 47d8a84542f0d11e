"""Refusals: a model says that it will not or must not do what it is asked to."""

from __future__ import annotations

import re

from cprt.answers.english import any_of, words
from cprt.answers.prose import plain

_CANNOT, _APOLOGY = words("cannot"), words("apology")
# Whose inability it is: the model's own, or nobody's at the head of a sentence ("Unable to assess the image.").
_OWN = re.compile(
    r".*\b(?:i|i'm|i'd|i'll|we|we're|ai|assistant|model)\b.*"
    r"| ?(?:(?:sorry|unfortunately|apologies),? )?(?:but )?(?:it is |it's )?",
    re.DOTALL,
)
_VERBS = {
    people: re.compile(rf"[^.!?]{{0,30}}?\b{any_of(*verbs)}")
    for people, verbs in ((False, ["task"]), (True, ["task", "about_people"]))
}
_SET, _BARE = re.compile(any_of("refusal")), re.compile(any_of("bare_refusal"))


def refuses(text: str) -> bool:
    """Whether a text without an answer is a refusal, also one that only says what it will not tell about people."""
    return _refuses(text, people=True)


def refuses_task(text: str) -> bool:
    """Whether the words beside an answer refuse to give it. "I can't identify her" is a reservation about a person."""
    return _refuses(text, people=False)


def _refuses(text: str, people: bool) -> bool:
    line = " ".join(plain(text).lower().split())
    if _SET.search(line) or (people and _BARE.search(line)):
        return True
    for cannot in _CANNOT.finditer(line):
        before = re.split(r"[.!?;:]", line[max(0, cannot.start() - 60) : cannot.start()])[-1]
        if people and _APOLOGY.search(before):
            return True
        if _OWN.fullmatch(before) and _VERBS[people].match(line, cannot.end()):
            return True
    return False
