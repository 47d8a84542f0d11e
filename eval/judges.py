"""What ``cprt eval`` asks: which judges, each a model with a prompt, and where their results go."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cprt.answers.structure import Structure, structure
from cprt.errors import InputError, check_name
from cprt.models.adapter import read_record, recorded_digests, recorded_prompt
from cprt.models.spec import ModelSpec, Request, read_specs
from cprt.prompts import PROMPTS, TARGETS, Messages, Prompt, build
from cprt.taxonomy import Taxonomy
from cprt.values import read_fields, ruled
from eval.runs import unique_names

TOP_LOGPROBS = 20  # the most that OpenAI's interface gives


@dataclass(frozen=True)
class Judge:
    """A model asked with one prompt. ``name`` is that of its folder, ``model`` what its rows call the model.

    ``structure``: the form that its answers are held to; None: they are free. ``guess``: that which they likely have.
    """

    name: str
    spec: ModelSpec
    prompt: Prompt
    expected: bool
    structure: Structure | None = None
    guess: Structure | None = None

    @classmethod
    def of(
        cls, name: str, spec: ModelSpec, prompt: Prompt, taxonomy: Taxonomy, structured: bool, expected: bool = False
    ) -> Judge:
        form = structure(prompt.target, taxonomy, prompt.score_key) if structured else None
        guess = structure(prompt.target, taxonomy, prompt.score_key, in_order=False)
        return cls(name, spec, prompt, expected, form, guess)

    @property
    def model(self) -> str:
        stacked = self.spec.adapter is not None and self.spec.base_url is None
        return f"{self.spec.model}+{self.spec.adapter}" if stacked else self.spec.model

    def request(self, photo: Path) -> Request:
        lead_in = None
        if self.expected and self.spec.base_url is None:
            lead_in = f'{{"{self.prompt.score_key}": ' if self.prompt.target == "score" else ""
        return Request(self._messages, (photo,), lead_in, self.structure, self.guess)

    @cached_property
    def _messages(self) -> Messages:  # the same for every photo, in memory too
        return self.prompt.messages()

    def record(self, free: int, answers: int) -> dict[str, Any]:
        """How its answers were decoded, for the run record. They count as structured where none of them is ``free``."""
        decoding: dict[str, Any] = {
            "greedy": self.spec.temperature == 0,
            "max_new_tokens": self.spec.max_new_tokens,
            "dtype": self.spec.dtype,
            "max_pixels": self.spec.max_pixels,
        }
        if self.expected:
            local = "the tree of all scores"
            decoding["expected"] = local if self.spec.base_url is None else f"top_logprobs {self.spec.top_logprobs}"
        if self.structure is not None:
            if self.expected and self.structure.keys and self.spec.base_url is None:
                decoding["lists"] = "the most probable lists of attributes"
            if free:
                decoding["not_structured"] = f"{free} of {answers} answers do not keep to the JSON schema"
            else:
                decoding["structured"] = "a grammar" if self.spec.base_url is None else "a JSON schema"
        return decoding


def shared(args: Any) -> dict[str, Any]:
    """The fields of ModelSpec that a command's options have too, but for name, model, adapter and photo size."""
    same = ("base_url", "api_key_env", "batch_size", "concurrency", "dtype", "max_new_tokens")
    return {name: getattr(args, name) for name in same if name in vars(args)} | {"revision": args.model_revision}


def from_options(
    model: str,
    adapters: Sequence[str],
    prompts: Sequence[str],
    target: str | None,
    decoding: str,
    structured: bool,
    taxonomy: Taxonomy,
    **options: Any,
) -> list[Judge]:
    """Judges for one model, with each adapter or none, and every prompt. ``options`` are fields of ModelSpec.

    Without ``target`` an adapter is asked as it was trained, anything else for the score.
    """
    stacked: Sequence[str | None] = adapters or [None]
    paths = [Path(os.path.abspath(adapter or model)) for adapter in stacked]
    path, count = Counter(paths).most_common(1)[0]
    if count > 1:
        raise InputError(f"adapter: {stacked[paths.index(path)]!r} is there twice")
    names = unique_names(paths, _folder_name)
    rows = [
        {"name": name, "model": model, "adapter": adapter, **options}
        for name, adapter in zip(names, stacked, strict=True)
    ]
    asked = [(ModelSpec.read(row, "options"), prompts, target) for row in rows]
    return _judges(asked, decoding, structured, taxonomy)


def _are_prompts(names: Sequence[Any]) -> bool:
    """Whether there are any, and all are names of prompts or of files."""
    files = [name for name in names if name not in PROMPTS]
    return len(names) > 0 and all(isinstance(name, str) and name.endswith((".yaml", ".yml")) for name in files)


@dataclass(frozen=True)
class _How:
    """What a row of ``models`` says besides the fields of ModelSpec, where it differs from the options."""

    prompts: list[str] | None = ruled(None, holds=(_are_prompts, f"a list of {', '.join(PROMPTS)} and YAML files"))
    target: str | None = ruled(None, holds=(TARGETS.__contains__, f"one of {', '.join(TARGETS)}"))
    optional: bool = False


_OWN = [field.name for field in fields(_How)]


def _read_how(rows: Sequence[Mapping[str, Any]], **given: Any) -> list[_How]:
    own = [given | {name: row[name] for name in _OWN if name in row} for row in rows]
    return [read_fields(_How, row, f"models[{number}]") for number, row in enumerate(own, start=1)]


def from_rows(
    rows: Sequence[Mapping[str, Any]],
    prompts: Sequence[str],
    target: str | None,
    decoding: str,
    structured: bool,
    taxonomy: Taxonomy,
) -> list[Judge]:
    """Judges from the ``models`` of a YAML, as ``rows_at_hand`` leaves them. Raises InputError."""
    hows = _read_how(rows, prompts=[*prompts] or None, target=target)
    specs = read_specs([{field: row[field] for field in row if field not in _OWN} for row in rows], "models")
    asked = [(spec, how.prompts or [], how.target) for spec, how in zip(specs, hows, strict=True)]
    return _judges(asked, decoding, structured, taxonomy)


def rows_at_hand(rows: Sequence[dict[str, Any]], only: Sequence[str]) -> list[dict[str, Any]]:
    """The ``models`` of a YAML without those that are ``optional`` and whose prompt file is not there.

    Each that is left out is printed. One that ``only`` names stays: asking it says what is missing.
    """
    kept, names = [], [str(row.get("name")) for row in rows]
    for name in only:
        check_name("only", "model", name, names)
    for row, how in zip(rows, _read_how(rows), strict=True):
        missing = [name for name in how.prompts or () if name not in PROMPTS and not Path(name).is_file()]
        if not (how.optional and missing):
            kept.append(row)
        elif row.get("name") in only:
            raise InputError.at(missing[0], "is not there; docs/evaluating.md says what goes into it")
        elif not only:
            print(f"note: {row.get('name')} is left out: its prompt {missing[0]} is not there")
    if rows and not kept:
        raise InputError("models: no row is left to ask")
    return kept


def choose_prompt(
    name: str | None, target: str | None, trained: Prompt | None, taxonomy: Taxonomy, otherwise: str = "score"
) -> Prompt:
    """The prompt that is asked for, as an adapter was ``trained`` where nothing says otherwise.

    A target that is asked for decides the prompt too: the adapter's may not name the attributes. ``otherwise`` is the
    target of the taxonomy prompt where neither says one.
    """
    if trained is not None and target in (None, trained.target) and name in (None, trained.name):
        return trained
    name = name or "taxonomy"
    return build(name, target or (otherwise if name == "taxonomy" else "score"), taxonomy)


def _judges(
    asked: Sequence[tuple[ModelSpec, Sequence[str], str | None]], decoding: str, structured: bool, taxonomy: Taxonomy
) -> list[Judge]:
    """Every model with each of its prompts, or without any with the one that the model itself suggests."""
    several = any(len(set(prompts)) > 1 for _, prompts, _ in asked)  # of one model: then all names tell theirs
    expected = decoding == "expected"
    judges = []
    for spec, prompts, target in asked:
        trained = None if spec.adapter is None else trained_prompt(spec.adapter, taxonomy)
        if expected and spec.base_url is not None and spec.top_logprobs is None:
            spec = replace(spec, top_logprobs=TOP_LOGPROBS)
        asked_with: list[str | None] = [*dict.fromkeys(prompts)] or [None]
        for name in asked_with:
            prompt = choose_prompt(name, target, trained, taxonomy)
            folder = f"{spec.name}-{prompt.name}" if several else spec.name
            judges.append(Judge.of(folder, spec, prompt, taxonomy, structured, expected))
    doubled = [name for name, count in Counter(judge.name for judge in judges).items() if count > 1]
    if doubled:
        raise InputError(f"prompt: two prompts would write to {doubled[0]!r}: give each file a name of its own")
    return judges


def only_asked(judges: Sequence[Judge], only: Sequence[str], taxonomy: Taxonomy) -> list[Judge]:
    """Those of the models that ``only`` names, or all; says of which an adapter is not asked as it was trained."""
    asked = [judge for judge in judges if not only or judge.spec.name in only]
    notes = [asked_otherwise(judge.spec.adapter, judge.prompt, taxonomy) for judge in asked]
    for note in dict.fromkeys(filter(None, notes)):
        print(f"note: {note}")
    return asked


def _folder_name(parts: Sequence[str]) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts)).lstrip("._-")[:80] or "model"


def trained_prompt(adapter: str, taxonomy: Taxonomy) -> Prompt | None:
    """The prompt that the adapter's run record names; None where there is none, or it is not the same here."""
    return recorded_prompt(read_record(adapter), taxonomy)


def asked_otherwise(adapter: str | None, prompt: Prompt, taxonomy: Taxonomy) -> str | None:
    """What to say where an adapter is not asked what it was trained on; None where it is, or there is no record."""
    if adapter is None or not (Path(adapter) / "run.json").is_file():
        return None
    record, trained = read_record(adapter), trained_prompt(adapter, taxonomy)
    if record.get("taxonomy") not in (None, taxonomy.digest):
        return (
            f"{adapter} was trained on another taxonomy than it is asked with (attributes, questions or bands): its "
            "scores and levels are those of the other"
        )
    if trained is not None and prompt.digest in recorded_digests(record):
        return None
    if trained is None:
        return f"{adapter} was trained with a prompt or taxonomy that is not known here; its answers may be worse"
    return (
        f"{adapter} was trained with --prompt {trained.name} --target {trained.target}: asked otherwise, its "
        "answers may be worse"
    )
