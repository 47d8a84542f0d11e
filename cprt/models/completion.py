"""One reader of a chat completion, in the wording of each engine and vendor: text, ending, probabilities, or a fault.

What an endpoint says beside its answer never costs the answer: figures that are none are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cprt.models.spec import Response
from cprt.records import inside

# How generation ended, whatever the capitals. Nothing else counts as whole: "0.71" may be the beginning of "0.719". An
# endpoint that gives no reason at all is believed, since some engines never do, unless its own count says otherwise.
WHOLE = {"stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete"}
CUT = {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
FILTERED = frozenset(
    """content_filter content_filtered content_policy_violation responsibleaipolicyviolation data_inspection_failed
    safety image_safety prohibited_content blocklist recitation spii sensitive refusal guardrail_intervened
    error_toxic""".split()
)
_THOUGHTS = ("thinking", "reasoning")
_IMPOSSIBLE = -9999.0  # for minus infinity, which JSON lacks; as OpenAI writes it


class Unusable(Exception):
    """A response that came with status 200 and is no answer."""


def read_completion(content: bytes, most: int | None = None) -> Response:
    """What the body of a chat completion says, of ``most`` tokens at most.

    Raises Unusable for whatever is cut off, empty or something else.
    """
    if not content.strip():
        raise Unusable("an empty response")
    body = _parse(content)
    try:
        choices = [] if body.get("error") else body["choices"]
        choice: Any = next((one for one in choices if not one.get("index")), {})
        fault = body.get("error") or choice.get("error")  # some gateways answer 200 and put the fault inside
        if fault:
            raise Unusable(f"an error in the response: {read_error(fault)[0] or fault}")
        message, finish = choice["message"], choice.get("finish_reason")
        said, refusal = message.get("content"), message.get("refusal")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Unusable("a response without an answer in it") from None
    usage = {name: count for name, count in inside(body, "usage").items() if type(count) is int and 0 <= count < 2**63}
    at_limit = not finish and most is not None and usage.get("completion_tokens", 0) >= most
    cut, filtered = at_limit or str(finish).lower() in CUT, is_filtered(finish)
    if finish and not (cut or filtered or str(finish).lower() in WHOLE):
        raise Unusable(f"an answer that ended with {finish!r}, which does not say that it is whole")
    try:
        text = said if isinstance(said, str) else _join(said or [])
    except RecursionError:
        raise Unusable("an answer that is not a text") from None
    refused = bool(refusal) or filtered
    if not text and isinstance(refusal, str):
        text = refusal
    if not text.strip() and not refused and not cut:
        raise Unusable("an empty answer")
    return Response(
        text,
        complete=not cut,
        refused=refused,
        finish=finish[:80] if finish else None,
        usage=usage or None,
        logprobs=read_logprobs(choice.get("logprobs")),
    )


def is_filtered(reason: Any) -> bool:
    """Whether a finish_reason or the code of an error says that a filter has kept the answer back."""
    return isinstance(reason, str) and reason.lower().partition(":")[0] in FILTERED


def read_error(body: Any) -> tuple[str, str, str]:
    """Message, code and parameter of an error, whatever it is wrapped in; empty texts for what it does not say."""
    code = param = ""
    for _ in range(6):
        if isinstance(body, list) and body:
            body = body[0]
        if isinstance(body, str):
            return body, code, param
        if not isinstance(body, dict):
            break
        if isinstance(body.get("code"), (str, int)) and not is_filtered(code):
            code = str(body["code"])
        param = body["param"] if isinstance(body.get("param"), str) else param
        inner = body.get("innererror")
        if isinstance(inner, dict) and is_filtered(inner.get("code")):
            code = inner["code"]
        if inside(body, "metadata").get("flagged_input"):  # OpenRouter
            code = "content_filter"
        body = next((body[name] for name in ("error", "message", "detail", "msg") if body.get(name)), None)
    return "", code, param


def read_logprobs(logprobs: Any) -> list[dict[str, Any]] | None:
    """One entry a token with its alternatives, every figure a number that JSON can hold.

    An alternative whose figure is none is left out. None where there are no probabilities, or none of a token itself.
    """
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    read = []
    for entry in entries if isinstance(entries, list) else ():
        if (token := _read_token(entry)) is None:
            return None
        listed = entry.get("top_logprobs")
        if isinstance(listed, list):
            token["top_logprobs"] = [option for option in map(_read_token, listed) if option is not None]
        read.append(token)
    return read or None


def _read_token(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
        return None
    value = entry.get("logprob")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value <= 0.001:  # rounding apart
        return None
    return {"token": entry["token"], "logprob": max(value, _IMPOSSIBLE)}


def _parse(content: bytes) -> Any:
    """JSON. A figure of thousands of digits costs nothing but itself."""
    try:
        try:
            return json.loads(content)
        except ValueError:
            return json.loads(content, parse_int=float)
    except (ValueError, RecursionError):
        raise Unusable("a response that is not JSON, or cut off") from None


def _join(parts: Any) -> str:
    """The text in a list of parts. Thoughts are marked as such, so that no reader takes them for the answer."""
    if not isinstance(parts, Sequence):
        raise Unusable("an answer that is not a text")
    texts = []
    for part in parts:
        if isinstance(part, Mapping):
            kind = part.get("type")
            inner = next((part[name] for name in ("text", *_THOUGHTS, "content") if part.get(name)), "")
            text = inner if isinstance(inner, str) else _join(inner)
            texts.append(f"<think>{text}</think>\n" if kind in _THOUGHTS and text else text)
        elif isinstance(part, str):
            texts.append(part)
        else:
            raise Unusable("an answer that is not a text")
    return "".join(texts)
