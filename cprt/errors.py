"""The one exception that means "the user gave us something we cannot use"."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path

_HEAD, _TAIL = 400, 200  # characters kept of a message that is longer than both


class InputError(ValueError):
    """Bad input or configuration. Its message is one line for the user; commands print it and exit with status 2.

    ``reason`` is the message without the place: a path can name a user or a machine.
    """

    def __init__(self, message: str, reason: str | None = None):
        super().__init__(one_line(message))
        self.reason = one_line(message if reason is None else reason)

    @classmethod
    def at(cls, file: str | Path, message: str, line: int | None = None, field: str | None = None) -> InputError:
        """An error that says where: ``FILE:LINE: field 'FIELD': MESSAGE``."""
        place = str(file) if line is None else f"{file}:{line}"
        return cls(f"{place}: field '{field}': {message}" if field else f"{place}: {message}", message)


def printable(text: str) -> str:
    """A text of any origin as one line that changes nothing on a terminal or page.

    Line breaks, escape sequences, direction marks and halves of surrogate pairs show as ``\\n``, ``\\x1b``, ...
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def one_line(text: str) -> str:
    """As ``printable``, and its middle left out if it is long."""
    return printable(text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} [...] {text[-_TAIL:]}")


def suggestion(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`` (did you mean NAME?)``, with ``prefix`` before the known name that is nearest; nothing where none is near.

    A name that the word begins with, such as eval of evaluate, is nearer than any that is spelt alike.
    """
    word, names = word.lower(), {name.lower(): name for name in known}
    near = sorted((name for name in names if len(name) > 2 and word.startswith(name)), key=len)[-1:]
    near = near or difflib.get_close_matches(word, names, n=1)
    return f" (did you mean {prefix}{names[near[0]]}?)" if near else ""


def check_name(option: str, what: str, name: str, known: Collection[str]) -> None:
    """Raises InputError where an option names none of those that there are."""
    if name not in known:
        near = suggestion(name, known) or f" (there are {', '.join(known)})"
        raise InputError(f"{option}: no {what} is called {name!r}{near}")
