"""What any stage asks and gets back: which model, a request (messages and photos), a response. Plain data, no I/O.

``Model`` in ``cprt.models.ask`` does the asking; what a text means is for the stage to read.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from cprt.answers.structure import Structure
from cprt.errors import InputError, one_line
from cprt.files import without_halves
from cprt.models.adapter import other_base, pixel_cap
from cprt.models.address import is_address
from cprt.models.checkpoint import DTYPES, identity, revision_of
from cprt.models.response_cache import cache_key
from cprt.prompts import Messages, digest
from cprt.provenance import digest_once, model_digest
from cprt.values import FILE_NAME, fits, read_fields, ruled

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One call: ``messages`` whose ``{"type": "image"}`` parts stand where ``images`` go, in order.

    ``lead_in``, ``structure`` and ``guess`` are as ``LocalModel.generate`` has them. An endpoint is asked for
    ``top_logprobs`` in place of a lead-in, and makes no use of a guess.
    """

    messages: Messages
    images: tuple[Path, ...] = ()
    lead_in: str | None = None
    structure: Structure | None = None
    guess: Structure | None = None

    def opened(self, read: Callable[[Path], T]) -> list[T]:
        """What ``read`` makes of each photo. Raises InputError as ``about`` has it."""
        found = []
        for path in self.images:
            try:
                found.append(read(path))
            except InputError as error:
                raise InputError(f"{path.name}: {error.reason}") from error
        return found

    def about(self, reason: str) -> str:
        """What is wrong with its photos, by their names alone: files that are shown hold it, and a path names users."""
        return one_line(": ".join([*(path.name for path in self.images), reason]))


@dataclass(frozen=True)
class Response:
    """What came back: a text, or an ``error`` and nothing else."""

    text: str | None = None
    complete: bool = True  # False when the model ran into the token limit
    refused: bool = False  # by the endpoint itself (content filter); a refusal in words is not seen here
    finish: str | None = None  # the endpoint's finish_reason
    usage: dict[str, int] | None = None  # tokens, as the endpoint counts them
    logprobs: list[dict[str, Any]] | None = None  # one entry a token in an endpoint's form, when they were asked for
    # Options that the endpoint refused: "temperature", "logprobs", "response_format" (or did not keep to its form).
    dropped: tuple[str, ...] = ()
    distribution: dict[str, float] | None = None  # score -> probability, behind a ``lead_in`` (``ScoreReader``)
    lists: dict[str, float] | None = None  # keys with commas between -> probability (``ListReader``)
    willing: float | None = None  # the share of a structured answer's probability that a free model gives it
    # How a local model ran. The shape of a batch alone can flip a near-tied token in bfloat16.
    made: dict[str, Any] | None = None
    error: str | None = None

    @property
    def is_free(self) -> bool:
        """Whether an endpoint was to hold this answer to a form, and did not."""
        return "response_format" in self.dropped

    def row(self) -> dict[str, Any]:
        """As it is stored: what says nothing is left out."""
        if self.error is not None:
            return {"error": self.error}
        row = {**vars(self), "refused": self.refused or None, "dropped": list(self.dropped) or None}
        return {name: value for name, value in row.items() if value is not None}

    @staticmethod
    def read(row: Mapping[str, Any], where: str | Path = "a kept answer") -> Response:
        """The response that ``row`` was made from; text from outside as UTF-8 can hold it.

        Raises InputError that begins with ``where`` for anything else.
        """
        for field, value in row.items():
            if field not in _FIELDS or not fits(value, _FIELDS[field]):
                raise InputError.at(where, "is not as a kept answer has it", field=field)
        said = {field: without_halves(row[field]) for field in ("text", "error") if row.get(field) is not None}
        return Response(**{**row, **said, "dropped": tuple(row.get("dropped", ()))})


_FIELDS = typing.get_type_hints(Response)


@dataclass(frozen=True)
class ModelSpec:
    """A model to ask and how. With ``base_url`` it is behind an OpenAI-compatible endpoint, otherwise it runs here."""

    name: str = ruled(matches=FILE_NAME)  # what files and rows call it
    model: str = ruled(one_line=True)  # the endpoint's name for it; for a local one a folder or a Hub name
    base_url: str | None = None  # the endpoint, such as http://127.0.0.1:8000/v1
    # The environment variable that holds the key. The key itself is never written anywhere.
    api_key_env: str | None = ruled(None, matches=(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable"))
    # Of a Hub model. For an endpoint: what it serves, in your words; then kept answers stay valid when the server moves
    # to another address, which otherwise counts as another model.
    revision: str | None = ruled(None, one_line=True)
    # LoRA folder to put on a local model. For an endpoint: that of the adapter which it serves as ``model``.
    adapter: str | None = ruled(None, one_line=True)
    max_new_tokens: int | None = ruled(4096, least=1)  # a longer answer is cut off; an endpoint may have its own limit
    temperature: float | None = ruled(0.0, least=0)  # null leaves it to the endpoint; a local model is always greedy
    top_logprobs: int | None = ruled(None, least=1)  # how many alternatives a token to ask for
    # Larger photos are shrunk to this many pixels. An adapter brings the cap that it was trained with.
    max_pixels: int | None = ruled(1024 * 1024, least=1)
    image_format: Literal["jpeg", "png"] = "jpeg"  # of quality 95, chroma in full; png is exact, several times larger
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a request, such as {reasoning_effort: low}
    concurrency: int = ruled(16, least=1, most=1000)  # requests in flight
    timeout: float = ruled(300.0, above=0)  # seconds for one call from start to end
    retries: int = ruled(5, least=0)  # after a fault, before the request counts as failed
    batch_size: int = ruled(8, least=1)  # of a local model, and so is its dtype
    dtype: str = ruled("auto", holds=(DTYPES.__contains__, f"one of {', '.join(DTYPES)}"))

    @staticmethod
    def read(row: Mapping[str, Any], where: str) -> ModelSpec:
        """From a mapping, as YAML gives it. Raises InputError that begins with ``where`` and names the field."""
        for field in ("api_key", "key", "token"):
            if field in row:  # its value must not be shown
                said = "a key is never read from a file; name its variable in api_key_env"
                raise InputError.at(where, said, field=field)
        spec = read_fields(ModelSpec, row, where, hidden=("api_key_env", "base_url", "extra"))
        if spec.adapter and "max_pixels" not in row:  # its processor caps here; for an endpoint the client does
            spec = dataclasses.replace(spec, max_pixels=pixel_cap(spec.adapter) if spec.base_url else None)
        if spec.base_url and "max_new_tokens" not in row:
            spec = dataclasses.replace(spec, max_new_tokens=None)
        spec._check(where)
        return spec

    def _check(self, where: str) -> None:
        def fail(field: str, message: str) -> InputError:
            return InputError.at(where, message, field=field)

        if self.base_url is None:
            if self.api_key_env is not None:
                raise fail("api_key_env", "needs a base_url")
            if self.temperature or self.extra:
                raise fail("temperature" if self.temperature else "extra", "a local model decodes greedily")
            if self.max_new_tokens is None:
                raise fail("max_new_tokens", "a local model needs a limit")
            return
        if not is_address(self.base_url):
            raise fail("base_url", "must be http(s)://HOST[:PORT]/PATH with no user, password, query or blank in it")
        try:
            json.dumps(self.extra, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise fail("extra", "holds what JSON cannot: only texts, finite numbers, lists and mappings") from None
        if secret := _secret_in(self.extra):
            raise fail("extra", f"holds {secret!r}, and run records show it; a key is named by api_key_env alone")
        taken = {"messages", "model", "stream"} & self.extra.keys()
        if taken:
            raise fail("extra", f"must not set {', '.join(sorted(taken))}")

    @property
    def loads(self) -> tuple[Any, ...]:
        """What a local model has in memory, but for its adapter."""
        return self.model, self.revision, self.dtype

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What tells this model and its decoding from another: all that an answer depends on besides the request.

        A model that is a folder on this machine counts by its content, behind an endpoint too.
        """
        common = {
            "model": identity(self.model, self.revision),
            "max_new_tokens": self.max_new_tokens,
            "max_pixels": self.max_pixels,
        }
        if self.base_url is None:
            listed = {} if self.top_logprobs is None else {"top_logprobs": self.top_logprobs}
            adapter = model_digest(self.adapter) if self.adapter else None
            return {**common, "adapter": adapter, "dtype": self.dtype, **listed}
        return common | {
            "endpoint": None if self.revision else self.base_url.rstrip("/"),
            "temperature": self.temperature,
            "top_logprobs": self.top_logprobs,
            "image_format": self.image_format,
            "extra": self.extra,
            **({"adapter": model_digest(self.adapter)} if self.adapter else {}),
        }

    def key(self, request: Request) -> str:
        """Under which the answer to ``request`` is kept."""
        images = [digest_once(image) for image in request.images]
        how: dict[str, Any] = {} if request.lead_in is None else {"lead_in": request.lead_in}
        if request.structure is not None:
            how["structure"] = request.structure.regex if self.base_url is None else request.structure.schema
        return cache_key(images=images, prompt=digest(request.messages), **how, **self.identity)

    @cached_property
    def other_base(self) -> str | None:
        """What to say where the adapter on a local model was trained on another base, as far as that can be told."""
        if self.adapter is None or self.base_url is not None:
            return None
        try:
            commit = revision_of(self.model, self.revision)
        except InputError:  # loading says what is wrong
            return None
        return other_base(self.adapter, identity(self.model, commit or self.revision))

    def record(self) -> dict[str, Any]:
        """For a run record: everything but where the endpoint is, which may name somebody's machine."""
        place = {} if self.base_url is None else {"base_url": "endpoint"}
        if self.other_base is not None:
            place["note"] = self.other_base
        return {**{name: value for name, value in dataclasses.asdict(self).items() if value is not None}, **place}


_SECRET = re.compile(
    r"key|token|(?:.*[_-])?(?:(?:api|access|auth|private|secret|subscription)[_-]?(?:key|token)|secret|password"
    r"|authorization|credentials?)",
    re.IGNORECASE,
)


def _secret_in(value: Any) -> str | None:
    """The first key in JSON, at any depth, that is called as a secret is."""
    if isinstance(value, Mapping):
        return next((key for key in value if _SECRET.fullmatch(str(key))), None) or _secret_in(list(value.values()))
    return next(filter(None, map(_secret_in, value)), None) if isinstance(value, list) else None


def read_specs(rows: Sequence[Mapping[str, Any]], option: str) -> list[ModelSpec]:
    """From the list that a YAML gives under ``option``. Raises InputError that names the place.

    Names become those of files, so that they differ by more than their capitals.
    """
    specs = [ModelSpec.read(row, f"{option}[{number}]") for number, row in enumerate(rows, start=1)]
    doubled = [name for name, count in Counter(spec.name.lower() for spec in specs).items() if count > 1]
    if doubled:
        raise InputError.at(option, f"{doubled[0]!r} is there twice", field="name")
    return specs
