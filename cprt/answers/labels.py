"""What the annotators of ``cprt annotate`` say: whether stage one answered, and the labels of stage two."""

from __future__ import annotations

import re
from typing import Literal

from cprt.answers.beside import explains
from cprt.answers.objects import OBJECT, object_stands_alone, split_object
from cprt.answers.prose import fails, plain, takes_back
from cprt.answers.refusal import refuses
from cprt.answers.thinking import without_thinking
from cprt.taxonomy import Taxonomy

Status = Literal["ok", "unparsed", "refused"]


def read_stage1(text: str, taxonomy: Taxonomy) -> Status:
    """Whether stage one answered. Its words (without thinking) are for stage two to judge.

    A text that answers no key by name and says that it will not do the task is a refusal; nothing, thinking alone, or
    words of a failure are ``unparsed``.
    """
    shown = (without_thinking(text) or "").strip()
    if any(re.search(rf"\b{key}\b\W{{0,4}}:", shown) for key in taxonomy.keys):
        return "ok"
    if refuses(shown):
        return "refused"
    return "ok" if shown and not fails(shown) else "unparsed"


def read_stage2(text: str, taxonomy: Taxonomy) -> tuple[Status, dict[str, float] | None]:
    """The labels in stage two's answer: one JSON object that gives every key once and nothing else, each 0, 0.5 or 1 as
    a number. Anything less is ``unparsed`` and gives no labels, and so is an object beside other labels or a refusal.
    """
    shown = without_thinking(text)
    if shown is None:
        return "unparsed", None
    try:
        content, prose = split_object(shown)
    except ValueError:
        return "unparsed", None
    if content is None:
        return ("refused" if refuses(shown) else "unparsed"), None
    around = plain(prose)
    if set(content) != set(taxonomy.keys) or any(
        isinstance(value, bool) or value not in (0, 0.5, 1) for value in content.values()
    ):
        return "unparsed", None
    before, _, after = around.partition(OBJECT)
    said = f"{before} {after}"
    if not (object_stands_alone(around) and explains(before, after)):
        return "unparsed", None
    if takes_back(said) or refuses(said) or _LABEL.search(said):
        return "unparsed", None
    return "ok", {key: float(content[key]) for key in taxonomy.keys}


_LABEL = re.compile(r"(?<![\w.])(?:0|0?\.5|1)(?![\w.]*\w)")
