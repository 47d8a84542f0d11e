"""Command-line options and YAML files -> checked dataclasses. One parser for every command.

TRL's ``TrlParser`` does the work. This wrapper turns whatever can be wrong with it into one line that names the file,
line and field, and checks the types of YAML values, which TrlParser takes over unseen.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import io
import itertools
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TextIO

from tqdm import tqdm

import cprt.quiet  # noqa: F401 - before a command imports what speaks
from cprt.errors import InputError, one_line, suggestion
from cprt.files import read_yaml_lines, without_halves
from cprt.provenance import check_output
from cprt.values import RULES, complaint, describe, fits, number, whole


def option(
    help: str, default: Any = dataclasses.MISSING, *, factory: Any = dataclasses.MISSING, **metadata: Any
) -> Any:
    """A field of an options dataclass: its line in ``--help``, its default (none: required), ``choices``.

    Its value keeps the rules that stand in ``metadata``, such as ``least`` (``cprt.values``).
    ``made_by`` says which command makes the files that it names, for whoever has not run it yet.
    An option ``out`` that names a folder says by ``writes`` what the command leaves there (``check_output``).
    """
    about = {"help": help, **metadata}
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata=about)
    return dataclasses.field(default=default, metadata=about)


def parse(
    dataclass_types: type | Sequence[type],
    argv: Sequence[str] | None = None,
    *,
    prog: str | None = None,
    description: str | None = None,
) -> tuple[Any, ...]:
    """Instances of ``dataclass_types`` from ``argv`` and the YAML named by its ``--config``; options win over the YAML.

    A list field with ``metadata={"positional": True}`` is given as bare words, all in one place of the command line.
    Raises InputError for anything that cannot be used. A ``__post_init__`` raises ValueError for cross-field rules.
    """
    from trl import TrlParser  # half a second: only when a command really runs

    class Usage(Exception):
        """What is wrong with the command line itself."""

    class Formatter(argparse.ArgumentDefaultsHelpFormatter):
        def _get_help_string(self, action: argparse.Action) -> str | None:
            silent = action.default in (None, []) or action.nargs == 0  # such as --no_control
            return action.help if silent else super()._get_help_string(action)

    class Parser(TrlParser):
        def error(self, message: str) -> NoReturn:  # argparse would print the whole usage first
            raise Usage(f"{_unknown_option(self, argv or ())}{message} (see --help)")

        def add_argument(self, *names: str, positional: bool = False, **options: Any) -> argparse.Action:
            options = {name: value for name, value in options.items() if name not in _OURS}
            if options.get("action") == "store_false":  # added beside each option that is true by default
                options["help"] = f"the same as --{options['dest']} false"
            if positional:
                names, options = (names[0].removeprefix("--"),), {**options, "nargs": "*"}
            kind = getattr(options.get("type"), "__name__", None)  # where null is allowed, TRL wraps int and float
            if kind in _STRICT:
                options["type"] = _strict(options["type"], _STRICT[kind])
            return super().add_argument(*names, **options)

    kinds: list[Any] = [dataclass_types] if isinstance(dataclass_types, type) else list(dataclass_types)
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = Parser(
        kinds,
        prog=prog,
        description=description and description.replace("``", ""),
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    parser.add_argument("--config", metavar="YAML", help="values for any of the options; options given here win")
    config, argv = _take_config(argv)
    if config is not None:
        values = _read_yaml(config)
        check_values(values, kinds, config)
        parser.set_defaults_with_config(**{key: value for key, (value, _) in values.items()})
    if "-h" in argv or "--help" in argv:
        parser.print_help()
        raise SystemExit(0)
    try:
        *parsed, _, unknown = parser.parse_args_into_dataclasses(
            args=argv, look_for_args_file=False, return_remaining_strings=True
        )
        for row in parsed:
            for field in dataclasses.fields(row):
                if (wrong := complaint(getattr(row, field.name), field.metadata)) is not None:
                    raise ValueError(f"{field.name}{'' if wrong.startswith('must') else ':'} {wrong}")
    except Usage as error:
        raise InputError(str(error)) from error
    except (ValueError, TypeError, ImportError) as error:  # a __post_init__ that refuses, or lacks a package
        where = f"{config}: " if config else ""
        raise InputError(_unknown_option(parser, argv) + where + " ".join(str(error).split())) from error
    if unknown:
        raise InputError(f"unknown argument {unknown[0]}{_near_option(unknown[0], _options(kinds))}")
    for row in parsed:
        for field in dataclasses.fields(row):
            value = getattr(row, field.name)
            if not field.metadata.get("positional") and not _is_text(value):  # names of photos may be any bytes
                raise InputError(f"{field.name}: {value!r} holds a NUL character, or is not UTF-8")
            if value == "" and field.default != "":  # a variable of the shell that is not set
                raise InputError(f"{field.name}: is empty")
            for path in (value if isinstance(value, list) else [value]) if "made_by" in field.metadata else ():
                if path is not None and not os.path.exists(path):
                    raise InputError.at(path, f"{os.strerror(errno.ENOENT)}; {field.metadata['made_by']} makes it")
            if field.name == "out" and row.out is not None:
                read = {name: value for name, value in vars(row).items() if name != "out"}
                check_output(prog or "", row.out, field.metadata.get("writes"), {**read, "config": config})
    return tuple(parsed)


def _unknown_option(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str:
    """The first option of a command line that there is none of, to stand before what else is wrong; or nothing.

    Most often it is what was meant: a name misspelt is a required one missing.
    """
    known = parser._option_string_actions
    names = (word.partition("=")[0] for word in itertools.takewhile(lambda word: word != "--", argv))
    name = next((one for one in names if one.startswith("--") and " " not in one and one not in known), None)
    return f"unknown argument {name}{_near_option(name, {one.lstrip('-') for one in known})}; " if name else ""


def _near_option(word: str, options: Iterable[str]) -> str:
    given = word.partition("=")[0].lstrip("-").replace("-", "_")
    return suggestion(given, [name for name in options if "-" not in name], "--")


_OURS = ("writes", "made_by", *RULES)  # of a field's metadata, and no business of argparse


_STRICT: dict[str, Callable[[str], Any]] = {"int": whole, "float": number}


def _strict(loose: Callable[[str], Any], strict: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type for argparse: what ``strict`` takes, and null where ``loose`` takes it."""

    def read(text: str) -> Any:
        try:
            return strict(text)
        except ValueError as error:
            if text.lower() in ("none", "null"):
                with contextlib.suppress(ValueError):
                    return loose(text)
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _is_text(value: Any) -> bool:
    """Whether every text in an option's value is one that file names, run records and models can hold."""
    if isinstance(value, str):
        return "\0" not in value and without_halves(value) == value
    if isinstance(value, dict):
        return all(_is_text(key) and _is_text(item) for key, item in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_is_text, value))


# What a user can mend: a path that is wrong, a disk that is full. Any other fault of the system is shown whole.
_USERS_FAULTS = "ENOENT EACCES EPERM ENOSPC EDQUOT EROFS EISDIR ENOTDIR EEXIST ENAMETOOLONG ELOOP EFBIG EIO".split()


def run(main: Callable[[], None], name: str) -> NoReturn:
    """Run a command and exit: 0 done, 2 bad input (one line on stderr), 130 interrupted, 1 a fault of ours."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed: the next file opened would take its place, and get what is printed
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # a name or an answer that a terminal's encoding lacks
    with faults_told(name):
        main()
        sys.stdout.flush()
    sys.exit(0)


@contextlib.contextmanager
def faults_told(name: str) -> Iterator[None]:
    """What ends a command is told in its line, with the status of ``run``."""
    try:
        yield
    except InputError as error:
        _exit(f"{name}: error: {error}", 2)
    except KeyboardInterrupt:
        _exit(f"{name}: interrupted; finished work is kept, run the same command again to go on", 130)
    except (MemoryError, getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)):  # of a card
        _exit(f"{name}: error: takes more memory than there is; take smaller numbers, or fewer rows", 2)
    except BrokenPipeError:  # the reader of our output is gone, as in `cprt --help | head -1`
        _silence(sys.stdout)
        sys.exit(0)
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in _USERS_FAULTS:
            raise
        _exit(f"{name}: error: {error.filename or 'output'}: {error.strerror}", 2)


def _exit(line: str, status: int) -> NoReturn:
    """Print the one line on a line of its own, and exit with ``status`` whatever becomes of the streams."""
    for bar in list(tqdm._instances):  # type: ignore[attr-defined] # those that are open
        bar.close()
    for stream, text in ((sys.stdout, ""), (sys.stderr, f"{one_line(line)}\n")):
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            _silence(stream)
    sys.exit(status)


def _silence(stream: TextIO) -> None:
    """Let what is still to be written to a stream that takes nothing any more go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def check_config(argv: Sequence[str]) -> None:
    """Before a command imports for seconds: InputError where the YAML that a command line names cannot be read."""
    config, _ = _take_config(list(argv))
    if config is not None:
        _read_yaml(config)


def _take_config(argv: list[str]) -> tuple[str | None, list[str]]:
    """The value of --config (both spellings) and the other arguments. Raises InputError."""
    rest, found = [], []
    words = iter(argv)
    for word in words:
        if word == "--config":
            value = next(words, None)
            if value is None or value.startswith("--"):
                raise InputError("--config needs the name of a YAML file")
            found.append(value)
        elif word.startswith("--config="):
            found.append(word.removeprefix("--config="))
        else:
            rest.append(word)
        if word.endswith("=--"):  # argparse takes it for no value at all
            raise InputError(f"{word.removesuffix('=--')}: -- is no value")
    if len(found) > 1:
        raise InputError("--config may be given only once")
    return (found[0] if found else None), rest


def _read_yaml(path: str) -> dict[str, tuple[Any, int | None]]:
    """Top-level key -> (value, line number)."""
    content, lines = read_yaml_lines(path)
    if not isinstance(content, dict):
        raise InputError.at(path, "must be a YAML mapping of options to values")
    return {key: (value, lines.get(key, 1)) for key, value in content.items()}


def check_values(values: Mapping[str, tuple[Any, int | None]], kinds: Sequence[type], path: str) -> None:
    """Every key from YAML is an option of ``kinds``, and every value, with the number of its line, has its type."""
    options = _options(kinds)
    for key, (value, line) in values.items():
        if key not in options:
            raise InputError.at(path, f"unknown option{suggestion(key, options)}", line=line, field=key)
        hint, choices = options[key]
        if not _is_text(value):
            raise InputError.at(path, f"{value!r} holds a NUL character", line=line, field=key)
        if not fits(value, hint):
            raise InputError.at(path, f"{value!r} is not {describe(hint)}", line=line, field=key)
        if choices and any(item not in choices for item in (value if isinstance(value, list) else [value])):
            raise InputError.at(path, f"{value!r} is not one of {', '.join(map(str, choices))}", line=line, field=key)


def _options(kinds: Sequence[type]) -> dict[str, tuple[Any, Any]]:
    """Option name -> (type hint, choices or None)."""
    return {
        field.name: (hints[field.name], field.metadata.get("choices"))
        for kind, hints in ((kind, typing.get_type_hints(kind)) for kind in kinds)
        for field in dataclasses.fields(kind)
        if field.init
    }
