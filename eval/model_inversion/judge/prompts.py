"""What a judge of reconstructions is asked, in our own words, for each kind of subject.

The kind is stated by whoever describes the data, never guessed from a path. The text comes first and is the same for
every query of a subject, so that a model can compute it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cprt.prompts import Messages

LAYOUTS = ("panel", "separate")
LONGEST = 200  # characters of a wording of the user's own


@dataclass(frozen=True)
class Subject:
    """What has to be the same in two pictures (``same``), and what may differ (``allow``); ``name`` of SUBJECTS."""

    same: str
    allow: str
    name: str = "own"

    @property
    def question(self) -> str:
        """The question, as it is also drawn into the panel."""
        return f"Does Image A show {self.same} as the Set of Images B?"

    def messages(self, layout: str, n: int, a_first: bool) -> Messages:
        """One user message for ``n`` references: with one image (a panel), or with n + 1 in the order shown."""
        answer = f"{self.question} Answer with one word and nothing else: yes or no."
        task = self._task(_PANEL if layout == "panel" else _SEPARATE)
        return message(task, *pictures(layout, n, a_first), answer)

    def _task(self, shown: str) -> str:
        return (
            f"You compare pictures. {shown} The pictures of B all show the same subject. Decide whether Image A "
            f"shows {self.same}. Differences in {self.allow} do not count."
        )


_PANEL = "The picture below holds Image A and, beside it after a gap, the Set of Images B; a caption stands under each."
_SEPARATE = "You get Image A and the Set of Images B, each after its caption."

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


def read_subject(value: Any) -> Subject:
    """A subject by name, or in the user's own wording as a mapping ``{same, allow}``. Raises ValueError."""
    if isinstance(value, str) and value in SUBJECTS:
        return SUBJECTS[value]
    if isinstance(value, Mapping) and set(value) == {"same", "allow"}:
        for name, text in value.items():
            if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > LONGEST:
                raise ValueError(f"{name} must be one line of text, at most {LONGEST} characters")
        return Subject(value["same"].strip(), value["allow"].strip())
    raise ValueError(
        f"{value!r} is not one of {', '.join(SUBJECTS)}, nor your own wording as {{same: ..., allow: ...}}"
    )


def pictures(layout: str, n: int, a_first: bool) -> list[str | dict[str, str]]:
    """Where images stand in a message: one panel, or A and n of B after captions, in the order shown."""
    image = {"type": "image"}
    if layout == "panel":
        return [image]
    a: list[str | dict[str, str]] = ["Image A:", image]
    b: list[str | dict[str, str]] = ["Set of Images B:", *[image] * n]
    return a + b if a_first else b + a


def message(*parts: str | dict[str, str]) -> Messages:
    """One of the user."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else dict(part) for part in parts]
    return [{"role": "user", "content": content}]
