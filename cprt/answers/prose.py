"""The words around an answer: whether they lead to it, quote it, or take it back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cprt.answers.english import words

# --- Plain text --------------------------------------------------------------------------------------------------

_BREAKS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n")
_INVISIBLE = dict.fromkeys([0xAD, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)])
_PLAIN = str.maketrans("‘’ʼ´`：，。．！？（）；“”„‟＂", "''''`:,..!?();" + '"' * 5) | _BREAKS | _INVISIBLE
_MARKUP = [
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"```(?:json[5cl]?|text|txt|plain(?:text)?|markdown|md|output|answer)?(?![a-z])", "\n"),
        # wrappers of an answer in many a chat template; any other tag stays and parts the answer from its line
        (
            r"</?(?:final_?|the_)?(?:answer|output|response|result|solution|conclusion|verdict|json)>"
            r"|<\|(?:begin|end|start)_of_(?:box|solution|answer|response)\|>|<\|(?:start|end)_response\|>"
            r"|<\|(?:im_end|eot_id|endoftext|end|return)\|>|</s>|<end_of_turn>|<br ?/?>",
            "\n",
        ),
        (r"^[ \t]{0,40}[*•+–—][ \t]", "- "),
        (r"[*`#]|(?<!\w)_{1,3}|_{1,3}(?!\w)", " "),
        # courtesies, which are no part of the answer and hold an "if"
        (r"\b(?:i )?hope (?:this|that|it) helps[.!]?", " "),
        (r"\b(?:please )?let me know(?: if (?:you|there)[^.!?\n0-9]{0,99})?[.!]?", " "),
        (r"[^\S\n]+", " "),
        (r" ?\n[ \n]*", "\n"),
    )
]


def plain(text: str) -> str:
    """The text without markup, typographic variants and invisible characters, one blank at most, no empty lines."""
    text = text.translate(_PLAIN)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


# --- Where an answer stands --------------------------------------------------------------------------------------

# A line that introduces the answer: "Here is my final assessment in JSON:", "## Score". Any other unfinished line
# ("The sign says", "Required format:") flows into what follows and makes it part of its sentence.
_LEAD_IN = re.compile(
    r"(?:(?:sure|okay|ok|certainly|of course|absolutely|alright)[,.!:]? )*"
    r"(?:(?:so|therefore|thus|overall|finally|in conclusion),? )?"
    r"(?:based on (?:the|this|my) (?:image|photo|picture|analysis|assessment)s?, )?"
    r"(?:(?:(?:here|this|below) (?:is|are)|here's|i conclude with) )?(?:(?:the|my|an?|final|overall|requested|complete"
    r"|resulting|corresponding|numeric|numerical|estimated|privacy|severity|risk|json|structured|brief|short) )*"
    r"(?:answer|score|severity|rating|risk|results?|assessment|evaluation|judge?ment|analysis|json|output|response"
    r"|verdict|labels?|annotations?|conclusion)(?: object)?(?: (?:in|as) (?:an? )?(?:valid )?json(?: object)?)?"
    r"(?: (?:for|of) (?:this|the) (?:image|photo|picture))?(?: (?:is|are))?(?: as follows)? ?:?",
    re.IGNORECASE,
)


# A sentence, an item, "Level: 2".
_FINISHED = re.compile(r".*(?:[.!?)|]|\bLevel)|- .*|[^:]{1,40}: ?[^: ][^:]*", re.DOTALL)
_CONTINUATIONS = tuple(",;:)]}\"'>=/&")  # at the head of a line


def leads_in(words: str) -> bool:
    """Whether words introduce an answer and say nothing else."""
    return _LEAD_IN.fullmatch(words) is not None


def stands_alone(lines: Sequence[str], number: int) -> bool:
    """Whether a line of a plain text is no part of a sentence with the lines around it."""
    before = lines[number - 1] if number else ""
    after = lines[number + 1] if number + 1 < len(lines) else ""
    finished = not before or leads_in(before) or _FINISHED.fullmatch(before) is not None
    return finished and not after.lstrip("(- ")[:1].islower() and not after.startswith(_CONTINUATIONS)


def claims(
    lines: Sequence[str], head: re.Pattern[str], alone: re.Pattern[str], last: re.Pattern[str]
) -> Iterator[re.Match[str] | None]:
    """For each line of a plain text, what claims an answer in it.

    That is its ``head``, or all of it (``alone``), where it is no part of a sentence; or the text's end (``last``).
    """
    for number, line in enumerate(lines):
        claim = head.match(line) or alone.fullmatch(line)
        if claim is not None and not stands_alone(lines, number):
            claim = None
        if claim is None and number == len(lines) - 1:
            claim = next((match for match in last.finditer(line) if match.end() >= len(line.rstrip(" .!"))), None)
        yield claim


# --- What takes an answer back -----------------------------------------------------------------------------------

_FAILS = words("failure")
_TAKEN_BACK = re.compile(
    rf"{words('example', 'quotation', 'second_thoughts', 'failure').pattern}"
    r"|[\"«»‹›「」『』]|(?<!\w)'[^'\n]{1,100}'(?!\w)|(?<!\w)>"
)
_NOT = re.compile(r"\b(can)(?:not|'t)\b|n't\b", re.IGNORECASE)
_IS = re.compile(r"(?<=\w)'(?:re\b|s (?=(?:not?|the|an?|him|her|hard|different|impossible)\b))", re.IGNORECASE)
# Other languages: words that could take anything back, and that are not read. Those of other scripts by their letters,
# those of Latin script by their small words, in a sentence without any of English.
_FOREIGN = re.compile(r"[\u0370-\u1dff\u2c00-\ud7ff\uf900-\ufaff\uff21-\uffdc]")
_FOREIGN_WORD, _ENGLISH_WORD = words("foreign"), words("english")


def sentences(text: str) -> list[str]:
    """The sentences and lines of a plain text, empty ones left out."""
    parts = re.split(r"(?<=[.!?])\s+|\n", text)
    return [" ".join(part.split()) for part in parts if part.strip(" |") not in ("", ".", "!")]


def spell_out(prose: str) -> str:
    """Negations and verbs as words of their own: "can't" and "cannot" become "can not", "they're" "they are"."""
    prose = _IS.sub(lambda match: " are" if match[0] == "'re" else " is ", prose)
    return _NOT.sub(lambda match: f"{match[1] or ''} not", prose)


def fails(prose: str) -> bool:
    """Whether a text without an answer says that something went wrong."""
    return _FAILS.search(spell_out(plain(prose))) is not None


def takes_back(prose: str) -> bool:
    """Whether the words around an answer quote it, condition it, correct it, call it a failure, or cannot be read.

    Lines that lead in are left out: "Here is the JSON:" says nothing about it.
    """
    lines = [line for line in prose.split("\n") if not leads_in(line)]
    said = spell_out("\n".join(lines)).lower()
    return _TAKEN_BACK.search(said) is not None or _is_foreign(said)


def _is_foreign(said: str) -> bool:
    return _FOREIGN.search(said) is not None or any(
        _FOREIGN_WORD.search(sentence) and not _ENGLISH_WORD.search(sentence) for sentence in sentences(said)
    )
