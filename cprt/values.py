"""What a value from outside may be: a finite number in plain ASCII decimals, of its field's type, within its rules.

A dataclass's field has ``RULES`` in its metadata: of a number ``least`` and ``most``, which are allowed, and ``above``,
which is not; of a text ``matches``, a pattern with what it stands for, and ``one_line``; of a list ``among``, what may
be in it, and ``filled``, that it must not be empty; of any ``holds``, what must be true of it and how that is said.
Null is allowed by the type alone.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from cprt.errors import InputError

T = TypeVar("T")
RULES = ("least", "most", "above", "matches", "one_line", "among", "filled", "holds")
# Names of files, of our own making: a rule that texts may match.
FILE_NAME = (r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", "a name of letters, digits, '.', '_' and '-'")
WORDS = (r".*\S.*", "a non-empty text")
SHA256 = ("[0-9a-f]{64}", "64 hex digits, or null")
_WHOLE = r"[+-]?(?:0|[1-9][0-9]*)"
_NUMBER = re.compile(rf"(?:{_WHOLE}(?:\.[0-9]*)?|[+-]?\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAMED = 8  # fields, in a message about what should have had them
_MOST_DIGITS, _LONGEST = 19, 400  # of a whole number in 64 bits; of any number


def number(text: str) -> float:
    """The number that a text states, such as 3, -0.5, .5 or 1e-5.

    Raises ValueError for what ``float`` would take too: 0_1, nan, inf, other scripts' digits, and what is too large.
    """
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def whole(text: str) -> int:
    """The whole number of at most 64 bits that a text states. Raises ValueError, also for 1.0, 007, 0_1 and 0x1."""
    if len(text) > _MOST_DIGITS + 1 or not re.fullmatch(_WHOLE, text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def is_number(value: Any) -> bool:
    """A finite JSON number; true and false are none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1023  # as far as a float goes
    return isinstance(value, float) and math.isfinite(value)


# Types as they are called, and what is of one.
_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    type(None): ("null", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a number", is_number),
    str: ("a text", lambda value: isinstance(value, str)),
}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from YAML has the type that a dataclass field declares."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is typing.Annotated:  # a list of so many
        return fits(value, arguments[0]) and all(len(value) == n for n in hint.__metadata__ if isinstance(n, int))
    if origin is typing.Literal:
        return value in arguments
    if hint in _PLAIN:
        return _PLAIN[hint][1](value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    if (origin or hint) in (list, tuple):
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value if arguments)
    if (origin or hint) is dict:
        return isinstance(value, dict)
    return True  # a class of a library: its own __post_init__ decides


def describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if hint in _PLAIN:
        return _PLAIN[hint][0]
    if origin is typing.Annotated:
        return f"{describe(arguments[0])} of {hint.__metadata__[0]}"
    if (origin or hint) in (list, tuple):
        return "a list"
    return "a mapping" if (origin or hint) is dict else str(getattr(hint, "__name__", hint))


def ruled(default: Any = dataclasses.MISSING, **rules: Any) -> Any:
    """A field of a dataclass with rules."""
    return dataclasses.field(default=default, metadata=rules)


def complaint(value: Any, rules: Mapping[str, Any]) -> str | None:
    """What is wrong with a value of the right type by the rules of its field, None where nothing is."""
    if value is not None and "holds" in rules:
        is_so, what = rules["holds"]
        return None if is_so(value) else f"{_short(value)} is not {what}"
    least, above, most = (rules.get(name) for name in ("least", "above", "most"))
    if isinstance(value, list):
        odd = next((item for item in value if item not in rules.get("among", value)), None)
        if odd is not None:
            return f"{odd!r} is not one of {', '.join(rules['among'])}"
        return "the list is empty" if rules.get("filled") and not value else None
    if isinstance(value, str):
        pattern, what = rules.get("matches", (".*", ""))
        if not re.fullmatch(pattern, value, re.DOTALL):
            return f"{value!r} is not {what}"
        return "must be one line of text" if rules.get("one_line") and not value.isprintable() else None
    low = least if above is None else above
    if value is None or low is None:
        return None
    if (value < low if above is None else not value > above) or (most is not None and value > most):
        if above is not None:
            rule = f"be more than {above:g}" + (f" and at most {most:,}" if most is not None else "")
        elif most is not None:
            rule = f"be {least:,} to {most:,}"
        else:
            rule = f"be at least {least:,}" if least else "not be negative"
        return f"must {rule}, not {value}"
    return None


_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))


def read_fields(
    kind: type[T],
    row: Any,
    where: str | Path,
    line: int | None = None,
    within: str = "",
    hidden: tuple[str, ...] = (),
    loose: bool = False,
) -> T:
    """A dataclass, and those inside it, from a mapping as YAML and JSON have them; a whole number may be a float.

    Args:
        where, line, within: what errors, and names of fields in them, begin with.
        hidden: fields whose values are not shown.
        loose: fields that are not known are left alone, and one that may be null may be missing.

    Raises InputError that names the field: one that is not known or missing, another type, a rule that is broken.
    """
    hints, values = _hints(kind), dict[str, Any]()

    def fail(name: str, message: str) -> InputError:
        return InputError.at(where, message, line, f"{within}{name}")

    def read(value: Any, hint: Any, name: str) -> Any:
        """A value, once it fits, with the dataclasses in it."""
        origin, inner = typing.get_origin(hint), [one for one in typing.get_args(hint) if one is not type(None)]
        if origin in (typing.Union, types.UnionType) and len(inner) == 1:
            return None if value is None else read(value, inner[0], name)
        if dataclasses.is_dataclass(hint):
            return read_fields(hint, value, where, line, f"{within}{name}.", hidden, loose)  # type: ignore[arg-type]
        if not fits(value, hint):
            shown = "its value" if name in hidden else _short(value)
            raise fail(name, "is null" if value is None else f"{shown} is not {describe(hints.get(name, hint))}")
        if origin is dict and inner and inner[1] is not Any:
            return {key: read(item, inner[1], f"{name}.{key}") for key, item in value.items()}
        if origin is list and dataclasses.is_dataclass(inner[0]):
            return [read(item, inner[0], name) for item in value]
        return value

    if not isinstance(row, Mapping):
        names = ", ".join([*hints][:_NAMED]) + (", ..." if len(hints) > _NAMED else "")
        raise InputError.at(where, f"must be a mapping of {names}", line, within.rstrip(".") or None)
    for name in () if loose else row:
        if name not in hints:
            raise fail(str(name), f"unknown field (there are {', '.join(hints)})")
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        if one.name not in row:
            if one.default is one.default_factory is dataclasses.MISSING:
                if not (loose and fits(None, hints[one.name])):
                    raise fail(one.name, "is missing")
                values[one.name] = None
            continue
        value = read(row[one.name], hints[one.name], one.name)
        if (wrong := complaint(value, one.metadata)) is not None:
            if one.name in hidden:
                wrong = wrong.replace(repr(value), "its value").replace(_short(value), "its value")
            raise fail(one.name, wrong)
        values[one.name] = _widened(value, (hints[one.name], *typing.get_args(hints[one.name])))
    return kind(**values)


def _widened(value: Any, kinds: tuple[Any, ...]) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
        return float(value)
    return [*map(float, value)] if isinstance(value, list) and list[float] in kinds else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
