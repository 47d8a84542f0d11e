"""Prompts in a user's own words, from a YAML file: what is asked of each kind of subject, and of control pairs.

A prompt of somebody else's code is theirs and does not come with ours; a file brings it::

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

from cprt.errors import InputError
from cprt.files import read_yaml
from cprt.prompts import Messages
from cprt.provenance import file_digest
from cprt.values import read_fields, ruled
from eval.model_inversion.judge.prompts import SUBJECTS, Subject, message, pictures

OWN = "own"  # subjects that no name stands for; also the name of our own prompt
_WORDS = (r"(?=.*\S).{1,8000}", "a text of at most 8000 characters")


@dataclass(frozen=True)
class Wording:
    """What is asked of one kind of subject."""

    text: str = ruled(matches=_WORDS)
    question: str | None = ruled(None, matches=_WORDS)
    control_text: str | None = ruled(None, matches=_WORDS)
    control_question: str | None = ruled(None, matches=_WORDS)


@dataclass(frozen=True)
class Prompt:
    """What a judge is asked. Without ``wordings`` our own words.

    Attributes:
        name: of the file, with the beginning of its digest; ``own`` for our own words.
        wordings: by the kind of subject.
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
            raise InputError.at(path, f"must be a mapping of {', '.join((*SUBJECTS, OWN))}")
        for kind in content:
            if kind not in (*SUBJECTS, OWN):
                raise InputError.at(path, f"is not one of {', '.join((*SUBJECTS, OWN))}", field=kind)
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
        """One user message with as many images as the layout has."""
        text = self._said(subject, "text", is_control)
        if text is None:
            return subject.messages(layout, n, a_first)
        return message(text, *pictures(layout, n, a_first))

    def _said(self, subject: Subject, name: str, is_control: bool) -> str | None:
        wording = self.wordings.get(subject.name)
        found = getattr(wording, name, None)
        if is_control:
            found = getattr(wording, f"control_{name}", None) or found
        return None if found is None else found.strip()


OURS = Prompt()
