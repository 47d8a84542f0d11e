"""What a judge of reconstructions is asked about each kind of subject: in our own words, or in a user's.

The kind is stated by whoever describes the data, never guessed from a path. The text comes first and is the same for
every query of a subject, so that a model can compute it once. A prompt of somebody else's code is theirs and does not
come with ours; a YAML file brings it::

    person:                      # object, breed; own: subjects worded in the collection's YAML
      text: You compare faces ... Only answer yes or no.
      question: Does Image A show ...?   # drawn into the panel; without it our own
      control_text: ...          # of control pairs; without it the same as of reconstructions
      control_question: ...

The model gets ``text`` and then the pictures. Which prompt was asked is a setting as n is: two runs that differ in it
alone show its effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_yaml
from cprt.prompts import Messages
from cprt.provenance import file_digest
from cprt.values import read_fields, ruled

LAYOUTS = ("panel", "separate")
OWN = "own"  # subjects that no name stands for; also the name of our own prompt
_LONGEST = 200  # characters of a wording of the user's own
_WORDS = (r"(?=.*\S).{1,8000}", "a text of at most 8000 characters")


@dataclass(frozen=True)
class Subject:
    """What has to be the same in two pictures (``same``), and what may differ (``allow``); ``name`` of SUBJECTS."""

    same: str
    allow: str
    name: str = OWN

    @property
    def question(self) -> str:
        """The question, as it is also drawn into the panel."""
        return f"Does Image A show {self.same} as the Set of Images B?"


SUBJECTS = {
    "person": Subject(
        "the same person",
        "age, lighting, pose, expression, hair style, beard, make-up, glasses and other accessories, background or "
        "picture quality",
        "person",
    ),
    "object": Subject(
        "an object of the same class",
        "colour, size, number, make, viewpoint, lighting, background or picture quality",
        "object",
    ),
    "breed": Subject(
        "an animal of the same breed",
        "age, coat colour, grooming, pose, viewpoint, accessories, lighting, background or picture quality",
        "breed",
    ),
}
_KINDS = (*SUBJECTS, OWN)
_SHOWN = {
    "panel": "The picture below holds Image A and, beside it after a gap, the Set of Images B; a caption stands under "
    "each.",
    "separate": "You get Image A and the Set of Images B, each after its caption.",
}


def read_subject(value: Any) -> Subject:
    """A subject by name, or in the user's own wording as a mapping ``{same, allow}``. Raises ValueError."""
    if isinstance(value, str) and value in SUBJECTS:
        return SUBJECTS[value]
    if isinstance(value, Mapping) and set(value) == {"same", "allow"}:
        for name, text in value.items():
            if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > _LONGEST:
                raise ValueError(f"{name} must be one line of text, at most {_LONGEST} characters")
        return Subject(value["same"].strip(), value["allow"].strip())
    raise ValueError(
        f"{value!r} is not one of {', '.join(SUBJECTS)}, nor your own wording as {{same: ..., allow: ...}}"
    )


@dataclass(frozen=True)
class Wording:
    """What a file asks of one kind of subject."""

    text: str = ruled(matches=_WORDS)
    question: str | None = ruled(None, matches=_WORDS)
    control_text: str | None = ruled(None, matches=_WORDS)
    control_question: str | None = ruled(None, matches=_WORDS)


@dataclass(frozen=True)
class Prompt:
    """What a judge is asked, by the kind of subject. Without ``wordings`` our own words.

    ``name``: of the file, with the beginning of its digest.
    """

    name: str = OWN
    wordings: Mapping[str, Wording] = field(default_factory=dict, compare=False)

    @staticmethod
    def read(path: str, where: str) -> Prompt:
        """From a file. Raises InputError."""
        try:
            content = read_yaml(path)
        except InputError as error:
            raise InputError.at(where, str(error), field="prompt") from error
        if not isinstance(content, dict) or not content:
            raise InputError.at(path, f"must be a mapping of {', '.join(_KINDS)}")
        for kind in content:
            if kind not in _KINDS:
                raise InputError.at(path, f"is not one of {', '.join(_KINDS)}", field=kind)
        wordings = {kind: read_fields(Wording, row, path, within=f"{kind}.") for kind, row in content.items()}
        return Prompt(f"{Path(path).stem} {file_digest(path)[:8]}", wordings)

    def check(self, subject: Subject, setup: str) -> None:
        """Raises InputError where the file has nothing for the subject of a set-up."""
        if self.wordings and subject.name not in self.wordings:
            raise InputError(f"prompt {self.name}: has nothing for {subject.name!r}, which {setup} asks about")

    def question(self, subject: Subject, is_control: bool) -> str:
        """What stands in the panel."""
        return self._said(subject, "question", is_control) or subject.question

    def messages(self, subject: Subject, is_control: bool, layout: str, n: int, a_first: bool) -> Messages:
        """One user message about ``n`` references: with one image (a panel), or with n + 1 in the order shown."""
        image = {"type": "image"}
        a, b = [_text("Image A:"), image], [_text("Set of Images B:"), *[image] * n]
        pictures = [image] if layout == "panel" else a + b if a_first else b + a
        text = self._said(subject, "text", is_control)
        if text is not None:
            content = [_text(text), *pictures]
        else:
            task = (
                f"You compare pictures. {_SHOWN[layout]} The pictures of B all show the same subject. Decide whether "
                f"Image A shows {subject.same}. Differences in {subject.allow} do not count."
            )
            answer = f"{subject.question} Answer with one word and nothing else: yes or no."
            content = [_text(task), *pictures, _text(answer)]
        return [{"role": "user", "content": [dict(part) for part in content]}]

    def _said(self, subject: Subject, name: str, is_control: bool) -> str | None:
        wording = self.wordings.get(subject.name)
        found = getattr(wording, name, None)
        if is_control:
            found = getattr(wording, f"control_{name}", None) or found
        return None if found is None else found.strip()


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


OURS = Prompt()
