"""What a model only thinks, for all families of models: it is no part of the answer."""

from __future__ import annotations

import re

_WORDS = (
    r"(?:think(?:ing)?|(?:inner_)?thoughts?|(?:chain|train)_of_thoughts?|cot|reason(?:ing)?|reflect(?:ion)?|analysis"
    r"|rationale|scratch_?pad|(?:inner_|internal_)?monologue|ponder(?:ing)?|deliberation|contemplat(?:e|ion|or)|planning"
    r"|internal|draft)"
)
_BLOCK = re.compile(
    # <think>, <seed:think>, <thinking budget="9">, [THINK], ◁think▷
    rf"<(?:\w{{1,20}}:)?{_WORDS}(?: [^<>\n]{{0,200}})?>|\[{_WORDS}\]|◁{_WORDS}▷"
    # <|begin_of_thought|>, <|START_THINKING|>, <|think|>, <|channel>thought, <unused94>thought
    rf"|<\|(?:(?:begin|start)_?(?:of_?)?)?{_WORDS}(?:_start|_begin)?\|>|<\|channel>thought|<unused94>thought"
    rf"|(?P<end></(?:\w{{1,20}}:)?{_WORDS}>|\[/{_WORDS}\]|◁/{_WORDS}▷|<\|(?:(?:end_?(?:of_?)?|/){_WORDS}|{_WORDS}_end)\|>|<channel\|>"
    r"|<unused95>)",
    re.IGNORECASE,
)
# OpenAI's harmony: <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>0.71<|return|>
_CHANNEL = re.compile(r"<\|channel\|>")
_MESSAGE = re.compile(r"(?:\A|<\|start\|>assistant)\s{0,9}<\|channel\|>(\w{1,20})[^<>]{0,100}(?:<\|message\|>|\Z)")
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start)\|>|\Z")
# The same where a decoder drops the marks.
_STRIPPED_CHANNELS = re.compile(r"\A(?:analysis|commentary)(?=[A-Za-z\"'{])(?:.*assistantfinal)?", re.DOTALL)


def answered(text: str) -> list[tuple[int, int]] | None:
    """Spans of the text outside thinking: the answer. None where thinking never ends, so that nothing was answered.

    Some chat templates open the block in the prompt, so an end alone closes one that began before the text.
    """
    if _CHANNEL.search(text):
        return _final_message(text)
    if stripped := _STRIPPED_CHANNELS.match(text):
        return [(stripped.end(), len(text))] if stripped[0].endswith("final") else None
    spans: list[tuple[int, int]] = []
    depth = position = 0
    for mark in _BLOCK.finditer(text):
        if depth == 0:
            if mark["end"]:
                spans.clear()
            else:
                spans.append((position, mark.start()))
        depth = max(0, depth - 1) if mark["end"] else depth + 1
        position = mark.end()
    return None if depth else [*spans, (position, len(text))]


def without_thinking(text: str) -> str | None:
    """The answer without what was thought, None where nothing was answered."""
    spans = answered(text)
    return None if spans is None else "\n".join(text[start:end] for start, end in spans)


def _final_message(text: str) -> list[tuple[int, int]] | None:
    """The one message of the channel "final". A mark elsewhere than at the head of a message may be a quotation."""
    messages = list(_MESSAGE.finditer(text))
    finals = [message for message in messages if message[1] == "final"]
    if len(finals) != 1 or len(messages) != len(_CHANNEL.findall(text)):
        return None
    end = _MESSAGE_END.search(text, finals[0].end())
    return [(finals[0].end(), end.start() if end else len(text))]
