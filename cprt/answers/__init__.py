"""The one reader of what models say: a score, yes or no, or labels, and otherwise why there is none.

A wrong reading is worse than none, and a photo can carry text that asks for one. All kinds of answers are read alike:
what a model thinks (``thinking``) is no answer; one JSON object (``objects``), number or word answers where it stands
on a line of its own or ends the text, what stands next to it describes the photo or explains it (``beside``), and no
word around it quotes it, takes it back or belongs to another language (``prose``); a refusal (``refusal``) beside an
answer contradicts it. What is left has one meaning, or is unparsed. English alone is read.
"""

from cprt.answers.score import STATUSES, TARGETS, Answer, parse, render

__all__ = ["STATUSES", "TARGETS", "Answer", "parse", "render"]
