"""What must not leave with an adapter: secrets, which stop everything, and traces of people and machines."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from cprt.errors import InputError
from cprt.records import parse_json

_SECRETS = {
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "an API key (sk-...)": r"\bsk-[A-Za-z0-9_-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})",
    "a Google key": r"\bAIza[\w-]{35}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a bearer header": r"(?i:\bbearer)\s+[\w.~+/=-]{16,}",
    "a password in an address": r"\b\w+://[^/\s:@\"']+:[^/\s@\"']+@",
    # W&B's keys are 40 hex digits, as commits are: only the name beside them tells.
    "a key of 40 hex digits": r"(?i:key|wandb|token|secret|password)[\"'\s:=,]{1,6}[0-9a-fA-F]{40}\b",
    "a value under a secret's name": (
        r"(?i:hub_token|access_token|api_?key|password|secret)\"?\s*[:=]\s*\"?[^\s\"<*]{8,}"
    ),
}
_SECRET = re.compile("|".join(f"(?P<s{number}>{pattern})" for number, pattern in enumerate(_SECRETS.values())))
_SHORTEST = 12  # no pattern fits less; most of a vocabulary's 300,000 texts are shorter

# Options that say where a run took place or who ran it, and those that could hold a token.
_DROPPED = re.compile(
    r"output_dir|logging_dir|run_name|project|user|user_?name|host|host_?name|hub_\w+|trackio_\w+"
    r"|(\w+_)?(token|password|secret|key)"
)
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)([^/\\\s\"']+)")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def refuse_secrets(path: Path, name: str | Path) -> None:
    """Raise InputError if the text file ``path`` holds something like a secret.

    It says in which line or field, calling the file ``name``, and never shows the secret.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError.at(name, "is not text in UTF-8") from error
    find = secret_finder()
    if path.suffix == ".json":
        for field, piece in pieces(parse_json(text, name)):
            kind = find(piece)
            if kind:
                shown = None if find(field) else field
                raise InputError.at(name, f"holds what looks like {kind}; nothing was sent", field=shown)
    else:
        for number, line in enumerate(text.split("\n"), start=1):
            kind = find(line)
            if kind:
                raise InputError.at(name, f"holds what looks like {kind}; nothing was sent", line=number)


def secret_finder() -> Callable[[str], str | None]:
    """A function that says what kind of secret a text seems to hold, None if none.

    The values of HF_TOKEN and of whatever else the environment calls a token, key, secret or password count.
    """
    kinds = list(_SECRETS)
    own = {
        name: value
        for name, value in os.environ.items()
        if re.search(r"(TOKEN|KEY|SECRET|PASSWORD)$", name) and len(value) >= 8
    }

    def find(text: str) -> str | None:
        found = _SECRET.search(text) if len(text) >= _SHORTEST else None
        if found:
            return kinds[int(str(found.lastgroup)[1:])]
        return next((f"the value of {name}" for name, value in own.items() if value in text), None)

    return find


def pieces(content: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """(dotted field, text) for every text in JSON, each with the name or the list item before it."""
    if isinstance(content, dict):
        for key, value in content.items():
            below = f"{field}.{key}" if field else key
            yield (below, f'"{key}": "{value}"') if isinstance(value, str) else (below, key)
            if not isinstance(value, str):
                yield from pieces(value, below)
    elif isinstance(content, list):
        before = ""
        for number, value in enumerate(content):
            if isinstance(value, str):
                yield f"{field}[{number}]", f"{before} {value}"
                before = value
            else:
                yield from pieces(value, f"{field}[{number}]")
    elif isinstance(content, str):
        yield field, content


def strip_record(record: dict[str, Any], base: str, published_base: str) -> dict[str, Any]:
    """``run.json`` as it may be shown: paths become file names; where and by whom it was run is gone.

    Args:
        base: the base model as the run called it, perhaps a folder; it becomes ``published_base``.
    """
    people = _people(record)

    def text(value: str) -> str:
        if value in (base, published_base):
            return published_base
        if value.startswith(f"{published_base}@"):  # its digest: name and revision
            return value
        option, equals, rest = value.partition("=")
        if equals and option.startswith("--"):
            return f"{option}={text(rest)}"
        value = _file_name(value)
        for name in people:
            value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "***", value, flags=re.IGNORECASE)
        return value

    def strip(content: Any) -> Any:
        if isinstance(content, dict):
            return {text(key): strip(value) for key, value in content.items() if not _DROPPED.fullmatch(key.lower())}
        if isinstance(content, list):
            return [strip(value) for value in _without_dropped_options(content)]
        return text(content) if isinstance(content, str) else content

    return strip(record)


def _file_name(value: str) -> str:
    """``value`` with every path in it cut down to its last part."""
    if _DRIVE.match(value):
        return PureWindowsPath(value).name
    if re.match(r"/|~|\.{1,2}/|file:", value):  # a path as a whole, spaces included
        return value.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\s\"'=,;()|]*/[^\s\"'=,;()|]*", lambda found: found[0].rstrip("/").rpartition("/")[2], value)


def _without_dropped_options(words: list[Any]) -> list[Any]:
    """A command line without the options that are not shown, and without their values."""
    kept, dropping = [], False
    for word in words:
        if isinstance(word, str) and word.startswith("--"):
            name, equals, _ = word[2:].partition("=")
            dropping = bool(_DROPPED.fullmatch(name.lower().replace("-", "_")))
            if dropping and equals:
                dropping = False
                continue
        if not dropping:
            kept.append(word)
    return kept


def _people(record: Any) -> list[str]:
    """Names of users and hosts: of this machine, and those that home folders in the record give away."""
    names = {Path.home().name, socket.gethostname(), socket.gethostname().partition(".")[0]}
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container without a user list
        names.add(getpass.getuser())
    for _, piece in pieces(record):
        names |= set(_HOME.findall(piece))
    return sorted((name for name in names if len(name) >= 3 and name != "localhost"), key=len, reverse=True)
