"""Pages made of what others wrote, from the templates beside this file: each is one file that loads nothing.

What a template prints is escaped, and freed of characters that hide or turn text. What the script shows travels as JSON
and becomes text alone. The policy in a page's head allows our one style and one script by their digests, pictures that
are part of the page, and nothing else. Without scripts all figures are there; lists say where their rows are.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cprt.pages.colors import LEVEL_COLORS, LEVEL_COLORS_DARK
from cprt.pages.words import counted
from cprt.records import with_texts
from cprt.values import is_number

_HERE = Path(__file__).parent
# Control characters, what turns the direction of writing, and halves of surrogate pairs, which UTF-8 cannot hold.
_UNSEEMLY = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def render(template: str, **content: Any) -> str:
    """The whole HTML of ``templates/TEMPLATE.html.jinja``."""
    return _environment().get_template(f"{template}.html.jinja").render(content)


def seemly(value: object) -> Any:
    """What a template prints for ``value``: a text without characters that hide or turn it; markup stays markup."""
    if isinstance(value, Markup):
        return Markup(_UNSEEMLY.sub("\ufffd", value))
    return "" if value is None else _UNSEEMLY.sub("\ufffd", str(value))


def isolated(value: object) -> Markup:
    """A text from a file, kept from changing the direction of what stands beside it."""
    return Markup("<bdi>{}</bdi>").format(seemly(value))


def figure(value: object, sign: str = "") -> str:
    """Three decimals as in the paper; a dash for what is undefined."""
    return f"{value:{sign}z.3f}".replace("-", "−") if is_number(value) else "–"


def interval(bounds: object, sign: str = "") -> str:
    """``0.911 to 0.958``; empty where there is none."""
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2 or not all(map(is_number, bounds)):
        return ""
    return " to ".join(figure(bound, sign) for bound in bounds)


def script_json(data: object) -> Markup:
    """JSON in ASCII that cannot end the element it stands in, its texts as ``seemly`` leaves them."""
    if isinstance(data, (list, tuple)):  # of many rows only one at a time is there twice
        return Markup("[" + ",".join(map(_script_text, data)) + "]")
    return Markup(_script_text(data))


def _script_text(data: object) -> str:
    text = json.dumps(with_texts(data, seemly), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=seemly,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "isolated": isolated,
        "figure": figure,
        "interval": interval,
        "json": script_json,
        "thousands": lambda number: f"{number:,}",
        "counted": counted,
    }
    levels = "".join(
        f"--level-{level}: light-dark({light}, {dark}); "
        for level, (light, dark) in enumerate(zip(LEVEL_COLORS, LEVEL_COLORS_DARK, strict=True), start=1)
    )
    style = f":root {{ {levels}}}\n{(_HERE / 'page.css').read_text(encoding='utf-8')}"
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    environment.globals |= {
        "style": Markup(style),
        "script": Markup(script),
        "style_digest": _digest(style),
        "script_digest": _digest(script),
    }
    return environment


def _digest(text: str) -> Markup:
    return Markup(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
