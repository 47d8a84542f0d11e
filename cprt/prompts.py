"""What we ask a model: the paper's three prompting strategies (4.3) in our own words, or a prompt from a file.

One user message: a policy text, the photo, a short question. The policy is the same for every photo and stands first,
so that a model can compute it once (prefix caching). No prompt of ours tells the score bands or the scoring function,
and only the taxonomy prompt names attributes and levels, which it takes from the taxonomy.

A prompt of a user's own is a YAML file, named wherever the name of a prompt is taken::

    name: authors              # of its own; it becomes a folder's name
    policy: |                  # the same for every photo
      ...
    question: |                # may be left out
      ...
    photo: between             # where the photo stands: first, between policy and question, or last
    score_key: privacy_score   # under which the JSON answer states the score; score, if left out
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cprt.answers import TARGETS
from cprt.errors import InputError, suggestion
from cprt.files import read_yaml
from cprt.taxonomy import Taxonomy
from cprt.values import WORDS, read_fields, ruled

PROMPTS = ("zero_shot", "zero_shot_hints", "intuition", "taxonomy")

Messages = list[dict[str, Any]]

# Such as <|image_pad|> and <|im_end|>. What else a certain tokenizer takes so is refused where it is asked.
_PLACEHOLDER = re.compile(r"<\|[^|<>\s]{1,40}\|>")

# Families whose images must come first: text before the image in Mllama sees the image anyway (transformers#39379), and
# its published template expects it there.
_IMAGE_FIRST = ("mllama",)

_TASK = """\
You are a privacy reviewer. You look at one photo and judge how severe the privacy risk is for the people it concerns: \
those who can be seen in it, and those about whom something can be seen or inferred.
"""

# Zero-shot as the paper has it: asked directly, "without additional guidance" (4.3).
_DIRECT = """\
Give the photo one privacy severity score, a number from 0 to 1.
"""

# What the score's ends mean, and what to judge by: hints that the other prompts give.
_SCALE = """\
Give one severity score from 0 to 1. A score of 0 means that nothing private can be seen or inferred. A score of 1 \
means the gravest exposure of a person that a photo can cause. Use the whole range, with three decimals. Judge what \
the photo makes inferable, not who took it or why.
"""

_INTUITION = """\
Two things make a photo severe. The first is how sensitive a visible detail is alone: some details are enough to tell \
who somebody is, others reveal something that can hurt a person once it is tied to them, and others mean little. The \
second is how details combine: details that are harmless one by one can, put together or joined with what an onlooker \
already knows or can look up, single out one person or expose something about them. Weigh both. The more telling the \
details are and the more of them come together, the more severe the photo is.
"""

_GUIDED = """\
Judge by the following taxonomy. It sorts private attributes into four levels by two properties: how far an attribute \
identifies a person alone, and how much harm it can do when it is combined with others. Level 1 is the most severe, \
level 4 the least. An attribute is present when the answer to its question is a clear yes; where you are unsure, take \
it as absent. Attributes of a more severe level weigh more than those of less severe levels, and more attributes make \
a photo more severe.
"""

# The counterfactual of the paper's 5.4.1.
_FACES_ANONYMISED = """\
Assume that every face in the photo has been perfectly anonymised: nobody can be recognised or told apart by a face. \
Leave faces out of your judgement of who somebody is. Everything else in the photo stays as you see it, and you judge \
it as before.
"""

# The format stands in the policy, where it is computed once for all photos; the question stays short.
_FORMATS = {
    "score": """\
Answer with one JSON object and nothing else: {"score": S}, where S is a number from 0.000 to 1.000.
""",
    "attributes": """\
Answer with one JSON object and nothing else: {"attributes": [KEYS], "level": L, "score": S}, where KEYS are the keys \
of the attributes that are present, L is the most severe level among them (4 if there is none), and S is a number from \
0.000 to 1.000.
""",
}
_QUESTIONS = {
    "score": "How severe is the privacy risk of this photo? Answer with the JSON.",
    "attributes": "Which attributes are present in this photo, and how severe is its risk? Answer with the JSON.",
}


@dataclass(frozen=True)
class Prompt:
    """One prompt, ready for any photo. ``policy`` is the shared prefix, ``question`` follows it."""

    name: str
    target: str  # what is to be answered, "score" or "attributes"
    policy: str
    question: str
    faces_anonymised: bool = False
    photo: str = "between"  # policy and question, or first, or last
    score_key: str = "score"  # under which a JSON answer states the score

    def __post_init__(self) -> None:
        if (found := _PLACEHOLDER.search(self.policy + self.question)) is not None:
            raise InputError(
                f"prompt {self.name!r} holds {found[0]!r}, which models take for an image or an end, not text; take it "
                "out of the prompt or the taxonomy"
            )

    def messages(self) -> Messages:
        """One user message whose content is policy, photo, question; ``arrange`` fits it to a model family."""
        content = [{"type": "text", "text": text} for text in (self.policy, self.question) if text]
        place = {"first": 0, "between": 1, "last": len(content)}[self.photo]
        content.insert(place, {"type": "image"})
        return [{"role": "user", "content": content}]

    def identity(self) -> dict[str, Any]:
        """What names this prompt in a run record; one from a file stands there as a whole, to be asked again."""
        counterfactual = {"faces_anonymised": True} if self.faces_anonymised else {}
        own = {} if self.name in PROMPTS else {field: getattr(self, field) for field in _OWN_FIELDS}
        return {"name": self.name, "target": self.target, "sha256": self.digest, **counterfactual, **own}

    @property
    def digest(self) -> str:
        """SHA-256 of the messages: what is recorded with results, and what makes answers comparable."""
        return digest(self.messages())


def build(
    name: str, target: str = "score", taxonomy: Taxonomy | None = None, *, faces_anonymised: bool = False
) -> Prompt:
    """The prompt ``name`` (one of ``PROMPTS``, or a YAML file) that asks for ``target`` (score, attributes).

    With ``faces_anonymised`` the model is to assume that no face can be recognised (paper 5.4.1). Raises InputError for
    another name, a file that cannot be used, and ``attributes`` without the taxonomy, whose keys the answer needs.
    """
    if target not in TARGETS:
        raise InputError(f"target {target!r} is not one of {', '.join(TARGETS)}")
    if target == "attributes" and name != "taxonomy":
        raise InputError(f"target 'attributes' needs prompt 'taxonomy': {name!r} does not tell the model their keys")
    if name not in PROMPTS:
        if not name.endswith((".yaml", ".yml")):
            known = ", ".join(PROMPTS)
            raise InputError(f"prompt {name!r} is neither one of {known} nor a YAML file{suggestion(name, PROMPTS)}")
        own = _checked(read_yaml(name), name)
        return assuming_faces_anonymised(own, taxonomy) if faces_anonymised else own
    parts = [_TASK, _DIRECT if name == "zero_shot" else _SCALE]
    if name == "intuition":
        parts.append(_INTUITION)
    if name == "taxonomy":
        parts += [_GUIDED, *_levels(taxonomy or Taxonomy.default())]
    if faces_anonymised:
        parts.append(_FACES_ANONYMISED)
    parts.append(_FORMATS[target])
    return Prompt(name, target, "\n".join(parts) + "\n", _QUESTIONS[target], faces_anonymised)


def recall(record: Mapping[str, Any], taxonomy: Taxonomy | None, where: str) -> Prompt:
    """The prompt whose ``identity`` a run record holds.

    Raises InputError that names ``where`` the record is: it is none, or the prompt or taxonomy has changed since.
    """
    if record.get("name") in PROMPTS and record.get("target") in TARGETS:
        prompt = build(record["name"], record["target"], taxonomy)
    else:
        own = {field: record[field] for field in ("name", *_OWN_FIELDS) if field in record}
        prompt = _checked(own, where)
    if record.get("sha256") != prompt.digest:
        raise InputError.at(where, "asked with another prompt or taxonomy than are here now", field="prompt")
    return prompt


def assuming_faces_anonymised(prompt: Prompt, taxonomy: Taxonomy | None) -> Prompt:
    """The same prompt under the assumption that no face can be recognised (paper 5.4.1)."""
    if prompt.name in PROMPTS:
        return build(prompt.name, prompt.target, taxonomy, faces_anonymised=True)
    return replace(prompt, policy=f"{prompt.policy}\n{_FACES_ANONYMISED}", faces_anonymised=True)


_OF_ITS_OWN = "a name of its own, of letters, digits, '.', '_' and '-'"
_OWN_FIELDS = ("policy", "question", "photo", "score_key")  # of a prompt from a file, besides its name


@dataclass(frozen=True)
class _Own:
    """A user's file."""

    name: str = ruled(matches=(rf"(?!(?:{'|'.join(PROMPTS)})$)[A-Za-z0-9][A-Za-z0-9._-]{{0,39}}", _OF_ITS_OWN))
    policy: str = ruled(matches=WORDS)
    question: str = ""
    photo: Literal["first", "between", "last"] = "between"
    score_key: str = ruled("score", matches=(r"[A-Za-z_][A-Za-z0-9_]*", "a plain word"))


def _checked(content: Any, file: str) -> Prompt:
    own = read_fields(_Own, content, file)
    return Prompt(own.name, "score", own.policy, own.question, False, own.photo, own.score_key)


def arrange(messages: Messages, model_type: str) -> Messages:
    """The same messages with the image where the model family ``model_type`` (its config's) wants it.

    Everything that renders a prompt goes through here, so that all see the same text.
    """
    messages = copy.deepcopy(messages)
    if model_type in _IMAGE_FIRST:
        for message in messages:
            if isinstance(message["content"], list):
                message["content"].sort(key=lambda part: part["type"] != "image")  # stable
    return messages


def digest(messages: Messages) -> str:
    """SHA-256 of messages, whatever null fields a table format added to their parts."""
    content = [
        [message["role"], [[part["type"], part.get("text")] for part in message["content"]]] for message in messages
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _levels(taxonomy: Taxonomy) -> list[str]:
    """One paragraph a level: its name and meaning, then key and question of each attribute."""
    paragraphs = []
    for level in taxonomy.levels:
        attributes = [attribute for attribute in taxonomy.attributes if attribute.level == level.level]
        if attributes:
            lines = [f"Level {level.level}, {level.name.lower()}: {level.meaning}."]
            lines += [f"- {attribute.key}: {attribute.question}" for attribute in attributes]
            paragraphs.append("\n".join(lines) + "\n")
    return paragraphs
