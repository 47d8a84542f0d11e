"""The page of ``cprt mi-compare``: one file that loads nothing, with every false positive to browse.

File names, classes and what judges said come from outside. They reach the page as escaped HTML or as JSON that the
script writes with ``textContent``; the policy in the head allows our own script and style by their digests, pictures
that are part of the page, and nothing else.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.pages.markup import digest, script_json, text
from eval.model_inversion.metrics.show import figure, heads, percent

_THUMBNAIL = 96  # pixels, the longer side


@dataclass(frozen=True)
class FalsePositive:
    """What E accepts as class ``claims`` and the judge rejects. ``images``: folder of the set-up's images, if known."""

    setup: str
    judge: str
    claims: str
    file: str
    response: str
    images: Path | None = None

    @property
    def picture(self) -> tuple[str, str, str]:
        """The same image for all judges."""
        return self.setup, self.claims, self.file


def thumbnails(rows: Sequence[FalsePositive], images: str | None) -> dict[tuple[str, str, str], str | None]:
    """Small pictures as data URIs by ``FalsePositive.picture``; None where there is none or it cannot be read."""
    wanted = {row.picture: row for row in rows}
    return {
        key: _thumbnail(row, None if images is None else Path(images))
        for key, row in tqdm(wanted.items(), desc="thumbnails", unit="image", disable=None)
    }


def _thumbnail(row: FalsePositive, images: Path | None) -> str | None:
    inside = (f"{row.claims}/{row.file}", row.file)
    places = [(row.images, name) for name in inside] if row.images is not None else []
    if images is not None:
        places += [(images, f"{row.setup}/{folder}{name}") for folder in ("all-images/", "") for name in inside]
    for root, name in places:
        try:
            # Names come from a CSV: neither they nor a link may lead out of the folder.
            if (path := root / name).is_file() and path.resolve().is_relative_to(root.resolve()):
                image = load_image(path)
                image.thumbnail((_THUMBNAIL, _THUMBNAIL))
                buffer = io.BytesIO()
                image.save(buffer, format="JPEG", quality=80)
                return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        except (InputError, OSError):  # no image; a name too long for the file system
            return None
    return None


def page(
    result: Mapping[str, Any],
    rows: Sequence[FalsePositive],
    pictures: Mapping[tuple[str, str, str], str | None],
    chart: bytes,
) -> str:
    """The whole HTML. ``result`` as in compare.json, ``chart`` a PNG."""
    setups, judges = result["setups"], result["judges"]
    keys = {key: number for number, key in enumerate(key for key, picture in pictures.items() if picture)}
    data = {
        "setups": setups,
        "judges": judges,
        "pictures": [pictures[key] for key in keys],
        "rows": [
            [
                setups.index(row.setup),
                judges.index(row.judge),
                row.claims,
                row.file,
                row.response,
                keys.get(row.picture, -1),
            ]
            for row in rows
        ],
    }
    policy = f"default-src 'none'; img-src data:; style-src {digest(_STYLE)}; script-src {digest(_SCRIPT)}; "
    policy += "base-uri 'none'; form-action 'none'"
    drawn = base64.b64encode(chart).decode()
    private = "<p class=private>This page holds private pictures.</p>" if keys else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Model inversion: judges beside evaluation models</title>
<style>{_STYLE}</style></head><body>
<h1>Model inversion: judges beside evaluation models</h1>
{private}<p>{len(setups)} set-ups, {len(judges)} judges. The judge is the truth: FPR is the share of what it rejects
that the evaluation model E accepts, FNR the share of what it accepts that E rejects. Brackets: 95% intervals. A dash:
undefined.</p>
{_main_table(result["rows"])}
<p><img class=chart alt="Attack accuracy under E beside that under the judges" src="data:image/png;base64,{drawn}"></p>
{_rankings(result["rankings"])}{_agreements(result["agreement"])}{_effects(result["effects"])}
<h2>False positives</h2>
<p>What E accepts and the judge rejects. <noscript>Without scripts, see false_positives.csv.</noscript></p>
<p class=filters><label>set-up <select id=setup></select></label> <label>judge <select id=judge></select></label>
<label>class <select id=class></select></label> <span id=count></span></p>
<table id=list><thead><tr></tr></thead><tbody></tbody></table>
<p><button id=more type=button hidden>show more</button></p>
<script type="application/json" id=data>{script_json(data)}</script>
<script>{_SCRIPT}</script>
</body></html>
"""


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Everything is escaped here."""
    head = "".join(f"<th>{text(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"


def _main_table(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = heads(rows)
    cells = []
    for row in rows:
        counts = (row[name] for name in ("setup", "judge", "n", "tp", "tn", "fp", "fn"))
        lost = sum(row["left_out_of_table"].values())
        figures = ((figure if name == "kappa" else percent)(row[name], row["ci"][name]) for name in shown)
        cells.append([*counts, lost, *figures])
    return _table(["set-up", "judge", "n", "TP", "TN", "FP", "FN", "no verdict", *shown.values()], cells)


def _rankings(rankings: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for judge, found in rankings.items():
        if found["setups"] < 2:
            continue
        tau = figure(found["tau"], found["ci"]["tau"])
        parts.append(f"<p><b>{text(judge)}</b>: Kendall's tau {tau} over {found['setups']} set-ups.</p>")
        cells = [
            [
                swap["higher_under_standard"],
                swap["higher_under_judge"],
                " / ".join(map(percent, swap["accuracy_standard"])),
                " / ".join(map(percent, swap["accuracy_judge"])),
                percent(swap["support"]),
            ]
            for swap in found["swaps"]
        ]
        if cells:
            names = ["higher under E", "higher under the judge", "under E", "under the judge", "in resamples"]
            parts.append(_folded(f"{len(cells)} pairs of set-ups change places", _table(names, cells)))
    return "<h2>Rankings that change</h2>" + "".join(parts) if parts else ""


def _agreements(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    names = ["judges", "set-up", "n", "same verdict", "kappa"]
    cells = [
        [
            " and ".join(row["judges"]),
            row["setup"] or "all",
            row["n"],
            percent(row["agreement"], row["ci"]["agreement"]),
            figure(row["kappa"], row["ci"]["kappa"]),
        ]
        for row in rows
    ]
    return "<h2>Agreement of judges</h2>" + _by_setup(names, cells)


def _effects(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    cells = [
        [
            f"{row['setting']} {json.dumps(row['from'])} to {json.dumps(row['to'])}",
            " to ".join(row["judges"]),
            row["setup"] or "all",
            row["n"],
            f"{percent(row['accuracy_judge_from'])} to {percent(row['accuracy_judge_to'])}",
            percent(row["difference"], row["ci"]["difference"]),
            percent(row["changed"], row["ci"]["changed"]),
            f"{percent(row['fpr_from'])} to {percent(row['fpr_to'])}",
        ]
        for row in rows
    ]
    names = ["setting", "runs", "set-up", "n", "accuracy under the judge", "difference", "verdicts changed", "FPR"]
    return "<h2>Effects of n, order and layout</h2>" + _by_setup(names, cells)


def _by_setup(names: Sequence[str], cells: Sequence[Sequence[Any]]) -> str:
    """Rows over all set-ups, and those of single ones folded away."""
    place = names.index("set-up")
    pooled = [row for row in cells if row[place] == "all"]
    single = [row for row in cells if row[place] != "all"]
    if not pooled or not single:
        return _table(names, cells)
    return _table(names, pooled) + _folded("by set-up", _table(names, single))


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 112rem; padding: 0 1rem; color: #1a1a1a;
  background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } details { margin: 0.6rem 0; } summary { cursor: pointer; }
table { border-collapse: collapse; font-size: 0.87rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.25rem 0.8rem 0.25rem 0; border-bottom: 1px solid #e3e3e3; vertical-align: top; }
.wide td { white-space: nowrap; }
#list td { overflow-wrap: anywhere; max-width: 30rem; }
.chart { max-width: min(100%, 60rem); height: auto; }
.filters label { margin-right: 1rem; } select { max-width: 24rem; font: inherit; }
.private { color: #a50026; font-weight: 600; }
"""

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 200;
const setup = document.getElementById("setup"), judge = document.getElementById("judge");
const claims = document.getElementById("class"), more = document.getElementById("more");
const body = document.querySelector("#list tbody");
let chosen = [], shown = 0;

function add(parent, tag, text) {
  const element = parent.appendChild(document.createElement(tag));
  if (text !== undefined) element.textContent = text;
  return element;
}
function fill(select, names) {
  const kept = select.selectedOptions.length ? select.value : "";
  select.replaceChildren();
  for (const [value, name] of [["", "all"], ...names]) add(select, "option", name).value = value;
  select.value = kept;
  if (select.selectedIndex < 0) select.value = "";
}
function fits(row) {
  return (setup.value === "" || row[0] === +setup.value) && (judge.value === "" || row[1] === +judge.value);
}
function classes() {
  const names = [...new Set(data.rows.filter(fits).map(row => row[2]))];
  names.sort((a, b) => a.localeCompare(b, undefined, {numeric: true}));
  fill(claims, names.map(name => ["=" + name, name]));
  list();
}
function list() {
  chosen = data.rows.filter(row => fits(row) && (claims.value === "" || "=" + row[2] === claims.value));
  document.getElementById("count").textContent = chosen.length.toLocaleString("en") + " false positives";
  body.replaceChildren();
  shown = 0;
  next();
}
function next() {
  for (const row of chosen.slice(shown, shown + PAGE)) {
    const line = add(body, "tr");
    if (data.pictures.length) {
      const cell = add(line, "td");
      if (row[5] >= 0) {
        const picture = add(cell, "img");
        picture.alt = "";
        picture.src = data.pictures[row[5]];
      }
    }
    for (const text of [data.setups[row[0]], data.judges[row[1]], row[2], row[3], row[4]]) add(line, "td", text);
  }
  shown += PAGE;
  more.hidden = shown >= chosen.length;
}
const heads = ["set-up", "judge", "class", "file", "what the judge said"];
const top_row = document.querySelector("#list thead tr");
for (const head of data.pictures.length ? ["", ...heads] : heads) add(top_row, "th", head);
fill(setup, data.setups.map((name, index) => [String(index), name]));
fill(judge, data.judges.map((name, index) => [String(index), name]));
setup.addEventListener("change", classes);
judge.addEventListener("change", classes);
claims.addEventListener("change", list);
more.addEventListener("click", next);
classes();
"""
