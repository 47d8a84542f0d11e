"""The rows of ``cprt score`` as one HTML file that asks nothing of the network.

Names, errors and answers come from outside: all of them are escaped, and the page's policy allows no script or style
but its own two, by their digests, and no request at all. Pictures are in it only where they were asked for.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.guidance.regulations import Regulations, notes_of, regulations_of
from cprt.images import load_image
from cprt.pages.colors import LEVEL_COLORS
from cprt.scoring import format_score
from cprt.taxonomy import Taxonomy
from eval.score.photos import printable
from eval.score.table import by_score, has_one_root, name_of

THUMBNAIL_PIXELS = 160 * 120

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5rem .6rem; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #999; white-space: nowrap; }
th button { font: inherit; font-weight: bold; border: 0; background: none; padding: 0; cursor: pointer; }
th button::after { content: " \\2195"; color: #999; }
th[aria-sort=ascending] button::after { content: " \\2191"; color: #222; }
th[aria-sort=descending] button::after { content: " \\2193"; color: #222; }
td.name { overflow-wrap: anywhere; min-width: 10rem; width: 22%; } td.number { font-variant-numeric: tabular-nums; }
img { display: block; max-width: 160px; max-height: 160px; margin-top: .3rem; }
.level { border-radius: .7rem; color: #fff; padding: 0 .55rem; white-space: nowrap; }
.flag { color: #a50026; font-weight: bold; white-space: nowrap; } .quiet { color: #666; font-size: 87%; }
li .quiet { white-space: nowrap; }
ul { list-style: none; margin: 0; padding: 0; } a { color: inherit; }
li { border-left: .3rem solid; padding-left: .4rem; margin: .15rem 0; }
.laws td { font-size: 87%; }
"""
_SCRIPT = """
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const column = head.cellIndex, down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const of = row => row.cells[column].dataset.sort;
    const compare = head.dataset.kind === "number"
      ? (a, b) => Number(of(a)) - Number(of(b)) : (a, b) => of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0;
    const rows = [...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b));
    body.append(...rows);
  });
}
"""


def page(rows: Sequence[dict[str, Any]], files: Sequence[Path], taxonomy: Taxonomy, thumbnails: bool) -> str:
    """The whole page. ``files`` are where the photos of ``rows`` lie, read only for thumbnails."""
    colors = "".join(
        f".level-{level} {{ background: {color}; border-color: {color}; }}\n"
        for level, color in enumerate(LEVEL_COLORS, start=1)
    )
    style = _STYLE + colors + "li[class] { background: none; }\n"
    pictures = "data:" if thumbnails else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(_SCRIPT)}'; "
        f"img-src {pictures}; base-uri 'none'; form-action 'none'"
    )
    file_of = {id(row): file for row, file in zip(rows, files, strict=True)}
    scored, faults = by_score(rows), [row for row in rows if row["score"] is None]
    one_root = has_one_root(rows)
    flagged = [row for row in scored if row["flagged"]]
    flags = f", {len(flagged)} flagged" if scored and scored[0]["flagged"] is not None else ""
    body = [
        f"<p>{len(rows)} photos, {len(scored)} with a score{flags}. "
        "Level 1 is the most severe; a score lies between 0 and 1.</p>"
    ]
    if scored:
        heads = (
            _head("score", "number", "descending")
            + _head("level", "number")
            + _head("photo", "text")
            + "<th scope=col>attributes, and the score without each</th>"
            + "<th scope=col>hide, in this order</th>"
        )
        body.append(f"<table><thead><tr>{heads}</tr></thead><tbody>")
        body += [_row(row, one_root, taxonomy, file_of[id(row)] if thumbnails else None) for row in scored]
        body.append("</tbody></table>")
    if faults:
        body.append("<h2>Without a score: a person should look at these</h2><table><tbody>")
        body += [_fault(row, one_root) for row in faults]
        body.append("</tbody></table>")
    body += _laws(scored, taxonomy)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">\n'
        f"<title>Privacy risk of {len(rows)} photos</title>\n<style>{style}</style></head>\n"
        f"<body><h1>Privacy risk of {len(rows)} photos</h1>\n"
        + "\n".join(body)
        + f"\n<script>{_SCRIPT}</script></body></html>\n"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _head(name: str, kind: str, order: str | None = None) -> str:
    sort = f' aria-sort="{order}"' if order else ""
    return f'<th scope=col data-kind="{kind}"{sort}><button type="button">{name}</button></th>'


def _row(row: dict[str, Any], one_root: bool, taxonomy: Taxonomy, file: Path | None) -> str:
    name = escape(name_of(row, one_root))
    flag = '<br><span class="flag">flagged</span>' if row["flagged"] else ""
    picture = "" if file is None else _thumbnail(file)
    return (
        f'<tr><td class="number" data-sort="{row["score"]!r}">{format_score(row["score"], taxonomy)}{flag}</td>'
        f'<td data-sort="{row["level"]}">{_level(row["level"])}</td>'
        f'<td class="name" data-sort="{name}">{name}{picture}</td>'
        f"<td>{_attributes(row, taxonomy)}</td><td>{_advice(row, taxonomy)}</td></tr>"
    )


def _level(level: int) -> str:
    return f'<span class="level level-{level}">level {level}</span>'


def _attributes(row: dict[str, Any], taxonomy: Taxonomy) -> str:
    if row["attributes"] is None:
        return '<span class="quiet">not asked for, or not readable</span>'
    if not row["attributes"]:
        return '<span class="quiet">none named</span>'
    items = []
    for one in row["attributes"]:
        name = escape(one["name"])
        link = f'<a href="#law-{escape(one["key"])}">{name}</a>' if one["regulations"] else name
        left = format_score(one["score_without"], taxonomy)
        items.append(
            f'<li class="level-{one["level"]}">{link} <span class="quiet">level {one["level"]}; without it '
            f"{left}, level {one['level_without']}</span></li>"
        )
    return f"<ul>{''.join(items)}</ul>"


def _advice(row: dict[str, Any], taxonomy: Taxonomy) -> str:
    advice = row["advice"]
    if advice is None:
        return ""
    lines = []
    for step in advice["order"]:
        left = f"{format_score(step['score'], taxonomy)}, level {step['level']}"
        lines.append(f'{escape(step["hide"].replace("_", " "))} <span class="quiet">&rarr; {left}</span>')
    composed = format_score(advice["composed_score"], taxonomy)
    if row["attributes"] and composed != format_score(row["score"], taxonomy):
        lines.append(
            f'<span class="quiet">these attributes together make {composed}, level {advice["composed_level"]}</span>'
        )
    return "<br>".join(lines)


def _thumbnail(file: Path) -> str:
    try:
        image = load_image(file, THUMBNAIL_PIXELS)
    except InputError:  # gone since it was scored
        return ""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)  # pixels alone: no EXIF, no position
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _fault(row: dict[str, Any], one_root: bool) -> str:
    why = printable(row["error"] or (row["text"] or "")[:200])
    return (
        f'<tr><td class="name">{escape(name_of(row, one_root))}</td><td>{row["status"]}</td><td>{escape(why)}</td></tr>'
    )


def _laws(rows: Sequence[dict[str, Any]], taxonomy: Taxonomy) -> list[str]:
    met = {one["key"] for row in rows for one in row["attributes"] or []}
    if not met:
        return []
    frameworks = Regulations.published().frameworks
    heads = "".join(f"<th scope=col>{escape(framework)}</th>" for framework in frameworks)
    lines = [
        "<h2>What four privacy laws say about these attributes</h2>",
        '<p class="quiet">From the paper (arXiv:2603.21573, Table 4): a summary, not legal advice. An attribute '
        "without a row there has none here.</p>",
        f'<table class="laws"><thead><tr><th scope=col>attribute</th>{heads}</tr></thead><tbody>',
    ]
    for key in (key for key in taxonomy.keys if key in met):
        texts = regulations_of(key, taxonomy)
        notes = "".join(f'<br><span class="quiet">{escape(note)}</span>' for note in notes_of(key, taxonomy))
        cells = (
            f"<td colspan={len(frameworks)} class=quiet>no row</td>"
            if texts is None
            else "".join(f"<td>{escape(texts[framework])}</td>" for framework in frameworks)
        )
        name = escape(key.replace("_", " "))
        lines.append(f'<tr id="law-{escape(key)}"><td>{name}{notes}</td>{cells}</tr>')
    return [*lines, "</tbody></table>"]
