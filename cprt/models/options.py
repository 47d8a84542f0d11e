"""What an endpoint is asked beside the messages, and what it takes of it: some options are refused by name."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from cprt.answers.structure import Structure
from cprt.models.spec import ModelSpec, Response

# A request that is refused for one of these is asked again without. OpenAI's newer models know no max_tokens, take only
# their own temperature, and give no logprobs while they reason; some servers know no JSON schema.
_YIELDING = ("max_tokens", "temperature", "logprobs", "response_format")
# How a refusal speaks of them, by name or not. A schema has as many names as there are engines.
_SPOKEN_OF = {
    "response_format": r"response_?format|json.?(?:schema|mode|object)|structured.?(?:outputs?|decoding|generation)"
    r"|guided.?(?:decoding|json|generation)|constrained.?(?:decoding|generation)|\bgrammars?\b|\bschemas?\b",
    "logprobs": r"logprobs",
}


class Options:
    """The options of one endpoint's requests. What it has refused is not sent again."""

    def __init__(self, spec: ModelSpec):
        self._spec = spec
        self._refused: set[str] = set()
        self._top_logprobs = spec.top_logprobs  # fewer where the endpoint allows fewer
        self._takes: set[str] = set()  # what has come through of those that a refusal may be about

    def to_send(self, structure: Structure | None = None, without: Collection[str] = ()) -> dict[str, Any]:
        """Fields of a request, ``without`` some of them this once."""
        spec, left_out = self._spec, self._refused.union(without)
        options: dict[str, Any] = {"model": spec.model}
        if spec.max_new_tokens is not None:
            options["max_completion_tokens" if "max_tokens" in left_out else "max_tokens"] = spec.max_new_tokens
        if spec.temperature is not None and "temperature" not in left_out:
            options["temperature"] = spec.temperature
        if self._top_logprobs is not None and "logprobs" not in left_out:
            options |= {"logprobs": True, "top_logprobs": self._top_logprobs}
        if structure is not None and "response_format" not in left_out:
            schema = {"name": "answer", "strict": True, "schema": structure.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        return options

    def refuse(self, about: str, sent: dict[str, Any]) -> bool:
        """Whether the endpoint's words name an option that a request can do without, or with less of it."""
        named = [name for name in _YIELDING if name in sent and re.search(rf"(?:\b|_){name}\b", about, re.IGNORECASE)]
        if not named:
            return False
        if named[0] == "logprobs" and (fewer := fewer_logprobs(about, sent["top_logprobs"])):
            self._top_logprobs = min(self._top_logprobs or fewer, fewer)
        else:
            self._refused.add(named[0])
        return True

    def may_be_refused(self, sent: dict[str, Any], about: str | None = None) -> Collection[str]:
        """What to try without, once, where a refusal names nothing: what has never come through.

        Of that only what the words ``about`` it speak of, where they are given.
        """
        doubtful = [name for name in _SPOKEN_OF if name in sent and name not in self._takes]
        if about is not None:
            doubtful = [name for name in doubtful if re.search(_SPOKEN_OF[name], about, re.IGNORECASE)]
        return doubtful[:1]

    def answered(self, response: Response, sent: dict[str, Any], without: Collection[str]) -> None:
        """A request was answered, perhaps for being asked ``without`` something."""
        self._takes.update(("logprobs",) if response.logprobs is not None else ())
        self._takes.update(("response_format",) if "response_format" in sent else ())
        self._refused.update(name for name in without if name not in self._takes)

    def differences(self, response: Response, structure: Structure | None, sent: dict[str, Any]) -> dict[str, Any]:
        """How a request differed from what was wanted, as fields of its response.

        A whole answer that is not as the schema says shows that the endpoint took it and left it out of account.
        """
        spec = self._spec
        wanted = {"temperature": spec.temperature, "logprobs": spec.top_logprobs, "response_format": structure}
        without = {name for name, value in wanted.items() if value is not None and name not in sent}
        if structure is not None and response.complete and not response.refused:
            without |= set() if structure.holds(response.text or "") else {"response_format"}
        listed = sent.get("top_logprobs", spec.top_logprobs)
        made = None if listed == spec.top_logprobs else {"top_logprobs": listed}
        return {"dropped": tuple(sorted(without)), "made": made}


def fewer_logprobs(about: str, asked: int) -> int | None:
    """How many alternatives a token to ask for instead, from an endpoint's refusal of ``asked``; None: none at all.

    The largest smaller number that stands alone in the message ("max allowed: 5", "between 0 and 5"); 5, which most
    services give, where it speaks of the number without saying which is allowed.
    """
    named = [int(number) for number in re.findall(r"(?<![\w.-])\d{1,4}(?![\w-]|\.\d)", about)]
    allowed = [number for number in named if 1 <= number < asked]
    if allowed:
        return max(allowed)
    speaks_of_it = asked in named or re.search(r"\btop_logprobs\b", about, re.IGNORECASE)
    return 5 if asked > 5 and speaks_of_it else None
