"""The words around an answer: whether they lead to it, quote it, or take it back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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

_ANSWER = (
    r"(?:scores?|answers?|rating|number|values?|assessment|estimate|result|verdict|output|response|judge?ment|labels?)"
)
_TASK = (
    r"(?:assess|evaluat|rat(?:e|ing)\b|scor|judg|analy[sz]|process|grad(?:e|ing)\b|load|open|read\b|display|annotat)\w*"
)
_PHOTO = r"(?:(?:the|this|that|an?|any|your|access|to) ){0,3}(?:image|photo|picture|attachment)s?"
_EXAMPLE = r"""
    (?:for|of) (?:a|the) (?:blurred|cropped|redacted|masked|anonymi[sz]ed) | examples? | e\.g\b | for instance
    | samples? | templates? | placeholders? | dummy | schema | formats? | syntax | hypothetical\w* | pretend\w*
    | imagine | suppos\w+ | assum\w+ | if | unless | would | otherwise | in case | provided (?:that|the)
    | defaults? | drafts? | tentative\w* | preliminary | arbitrar\w+ | random\w* | guess\w* | fill in | replace\w*
    | is a number | to be filled | initiali[sz]ed | zeros? | todo | tbd """
_CARRIER = (
    r"(?:sign|poster|paper|card|note|screen|wall|board|whiteboard|page|document|banner|shirt|sticker|form|letter|monitor"
    r"|image|photo|picture)"
)
_QUOTATION = rf"""
    says? | said | saying | reads | written | writes? | wrote | prints? | printed | texts? | captions? | captioned
    | inscri\w+ | transcri\w+ | ocr | quot(?:e|es|ed|ation) | words? | worded | wording | lettering | handwrit\w+
    | typed | subtitles? | watermarks? | prompt\w* | instruct\w+ | inject\w+ | commands? | told | tells | claims?
    | claimed | asks? | asked | (?:as an?|for|by way of) illustrat\w+ | illustrative | requests? | requested
    | copied | verbatim | wants | according to | labell?ed | titled | messages? | json | stat(?:es|ed|ing)
    | demand\w* | attack\w* | manipulat\w+ | trick\w* | i read
    | the following(?! (?:attributes|details|elements|information|people|things|items|objects|factors|reasons))
    | (?:shows?|contains?|displays?|has|holds?|bears?|puts?) (?:this|that|these|it)
    | (?:shows?|contains?|displays?|has|holds?|bears?|puts?) the (?:score|answer|value|object|line)
    | (?:this|that|it) (?:is|was|appears|stands|stood) (?:\w+ )?(?:on|in|at|under|from) \w+ (?:\w+ )?{_CARRIER} """
_SECOND_THOUGHTS = rf"""
    compl(?:y|ied) | not (?:\w+ )?(?:counted|considered|included|taken into account) | left out | (?:is|was) meant
    | (?:so|much|far|bit|even|it is) more(?! \w) | (?:a|one) (?:lie|trap|copy|riddle|exercise|echo)
    | (?:that|this|it) can not be | wait | actually | correction | corrected | (?:scratch|strike|scrap) that
    | on (?:second thought|reflection) | oops | hold on | hmm? | let me | sorry | apolog\w+ | in fact
    | re-?(?:evaluat|assess|think|check)\w* | (?:or|but) rather | instead | on the contrary | by no means
    | disagree\w* | not (?:\w+ )?(?:agree|follow|obey)\w* | obey\w* | reject\w* | retract\w* | false | untrue
    | fictional | fictitious | meaningless | nonsense | unreliable | inaccurate | mistake\w* | the above
    | (?:none|nothing) of (?:this|that) | (?:previous|earlier|first|old) {_ANSWER} | ignor\w+ | disregard\w*
    | discard\w* | never ?mind | kidding | jok(?:e|ing) | made[- ]up | made (?:this|that|it) up | invented
    | wrong\w* | incorrect | invalid | void | reconsider\w* | revis\w+ | changed my mind
    | take (?:that|it|this) back | edit | update[ds]? | amend\w* | (?:look|check)\w* again
    | (?:closer|second) (?:look|inspection) | (?<![^\n.!?] )(?<![^\n ])no(?=[,.!?])
    | too (?:high|low|severe|strict|harsh|lenient|much|little) | or (?:higher|lower|more|less)
    | (?:so|it|much|far|slightly|bit|even|probably|maybe|perhaps) (?:higher|lower)(?! \w)
    | not (?:\w+ )?(?:right|true|correct|mine|real|final|valid|serious|meant|intended|what|to be (?:used|trusted|taken))
    | not (?:trust|rely|use|take|count|believe (?:this|that|it)) | (?:not|never|no)(?: \w+){{0,3}} {_ANSWER}
    | {_ANSWER}(?: \w+){{0,2}} (?:not|never|could|might|may|should|none|unknown|impossible)
    | (?:should|could|might|may|ought to)(?: \w+){{0,2}} (?:higher|lower|different|other|more|less) """
_FAILURE = rf"""
    nothing (?:is |was )?(?:attached|loads?|there|here)(?! \w) | there is nothing(?! \w)
    | no (?:data|content|input|attachments?|results?|comment|idea|opinion|way)(?! \w) | not enough to go on
    | (?:image|photo|picture|attachment) (?:has|did|does) not
    | (?:image|photo|picture|attachment) (?:is|was) (?:\w+ )?not (?:been |be )?(?:there|sent|given|here)
    | (?:image|photo|picture|attachment) (?:is|was|seems|appears|looks) (?:\w+ )?(?:gone|unclear|unusable|unreadable)
    | (?:image|photo|picture|attachment) (?:is|was|seems|appears|looks) (?:\w+ )?(?:censored|blocked|restricted)
    | (?:image|photo|picture|attachment) (?:is|was|seems|appears|looks) (?:\w+ )?(?:broken|damaged)
    | (?:service|server|system|network|api|quota|request) (?:is|was|has|did)
    | (?:fault|problem|crash|issue) occurred | score (?:is|was) (?:missing|pending|unknown)
    | not (?:\w+ )?look(?! \w) | errors? | failed | failure | n/a | null | nan | undefined | exception | timed out
    | time-?out | skipped | abort\w* | cancel\w+ | refused | declined | content filter\w* | please | insufficient
    | inadequate | inconclusive | unavailable | (?:no|without|lack\w*) (?:\w+ )?(?:vision|capabilit\w+|ability)
    | (?:can|could) not (?:determine|estimate|decide|tell)(?! \w)
    | (?:can|could) not (?:determine|estimate|decide)(?: \w+){{0,2}} (?:risk|score|severity|level)
    | (?:missing|blank|empty|broken|invalid|unreadable) (?:image|photo|picture)s? | see nothing(?! \w) | fallback
    | nothing (?:is |was )?visible(?! \w) | refusals? | (?:safety|content|usage) (?:polic\w+|filters?|system)
    | un(?:rated|assessed|assessable|ratable) | no (?:assessment|evaluation|judge?ment)
    | not (?:\w+ )?(?:rated|assessed|evaluated|scored|judged)
    | (?:(?<![^\n])|(?<=: ))(?:none|unknown|unclear|policy|blocked|filtered|nothing|nil)\.?(?![^\n])
    | corrupt(?:ed)? | no {_PHOTO} | (?:no|without) (?:\w+ )?access | not see anything(?! \w) | not load
    | (?:risk|severity|image|photo|picture|it|this) (?:can|could) not be
    | not (?:see|view|access|open|load|find|have) {_PHOTO}
    | not (?:\w+ )?(?:given|provided|attached|received|uploaded|supplied|loaded|available|accessible|applicable|found)
    | not (?:\w+ )?(?:shown|included|displayed) | nothing to (?:see|go|assess|rate|score|judge)
    | (?:can not|could not|unable to|not able to|impossible to|not possible to|too \w+ to|fails? to) (?:be )?{_TASK}
    | (?:insufficient|not enough|no) (?:\w+ ){{1,2}}to {_TASK}
    | (?:image|photo|picture|text|answer) (?:(?:is|was) )?(?:\w+ )?(?:blank|empty|missing|black(?! and)) """


def any_of(*phrases: str) -> str:
    """One alternation of phrases, which stand in texts parted by " | " and line breaks."""
    return "|".join(" ".join(phrase.split()) for text in phrases for phrase in text.split("| "))


_FAILS = re.compile(rf"\b(?:{any_of(_FAILURE)})(?!\w)", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    rf"\b(?:{any_of(_EXAMPLE, _QUOTATION, _SECOND_THOUGHTS, _FAILURE)})(?!\w)"
    r"|[\"«»‹›「」『』]|(?<!\w)'[^'\n]{1,100}'(?!\w)|(?<!\w)>"
)
_NOT = re.compile(r"\b(can)(?:not|'t)\b|n't\b", re.IGNORECASE)
_IS = re.compile(r"(?<=\w)'(?:re\b|s (?=(?:not?|the|an?|him|her|hard|different|impossible)\b))", re.IGNORECASE)
# Other languages: words that could take anything back, and that are not read. Those of other scripts by their letters,
# those of Latin script by their small words, in a sentence without any of English.
_FOREIGN = re.compile(r"[\u0370-\u1dff\u2c00-\ud7ff\uf900-\ufaff\uff21-\uffdc]")

_FOREIGN_WORD = re.compile(
    r"\b(?:ist|nicht|kein\w*|das|der|dem|den|und|auf|ein\w{0,2}|mit|für|sind|wird|nein|falsch|es|la|las|los|el|una?|que|por"
    r"|para|con|del|está|son|pero|sin|foto|falso|le|les|une|est|pas|dans|sur|avec|cette|il|et|du|des|faux|sans|di|che"
    r"|non|sono|della?|nella?|per|è|não|em|da|do|na|no|uma|het|een|van|niet|op|te|dat|geen|och|är|inte|på|att|en|det"
    r"|jest|nie|się|na|bu|değil|ve|tidak|ini|yang|không|là)\b"
)
_ENGLISH_WORD = re.compile(
    r"\b(?:the|an?|of|and|is|are|was|were|be|been|it|its|this|that|these|those|there|with|which|who|whose|from|but|not|can"
    r"|could|may|might|has|have|his|her|their|he|she|they|i|you|we|to|in|on|at|by|as|or|so|for|if|visible|people|person"
    r"|face|faces|photo|image|score|level|one|two|some|any|all|no)\b"
)


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
