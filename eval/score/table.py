"""The rows of ``cprt score`` on a terminal: the table on stdout, what could not be scored on stderr."""

from __future__ import annotations

import sys
import textwrap
from functools import partial
from typing import Any

from cprt.errors import printable
from cprt.pages.words import counted
from cprt.scoring import format_score
from cprt.taxonomy import Taxonomy
from eval.score.photos import Found
from eval.score.rows import (
    Rows,
    abstains,
    beside,
    contradiction,
    goes_by_lists,
    headline,
    is_uncertain,
    laws_met,
    most_severe_first,
    steps_to_hide,
)

MOST_ROWS = 20  # beside a file that holds them all
MOST_FAULTS = 20


def note(text: str) -> None:
    """One line on stderr."""
    print(f"note: {text}", file=sys.stderr)


def name_of(row: dict[str, Any], rows_have_one_root: bool) -> str:
    """What to call a photo: its path, behind the folder it was found in where there are several."""
    return printable(row["path"] if rows_have_one_root else f"{row['root'].rstrip('/')}/{row['path']}")


def has_one_root(rows: Rows) -> bool:
    return len({row["root"] for row in rows}) == 1


def show_table(rows: Rows, taxonomy: Taxonomy, flagging: bool, full: bool) -> None:
    """Score, level and name of every photo, most severe first, and under it what the score would be without each
    attribute and what to hide; where that is ``full``, also what the laws of Table 4 say about the attributes met.
    """
    scored = most_severe_first(rows)
    shown = scored if full else scored[:MOST_ROWS]
    if not shown:
        return
    one_root = has_one_root(rows)
    print("score  level  " + ("flag  " if flagging else "") + "photo")
    for row in shown:
        sign = "?" if is_uncertain(row) or abstains(row) else "*" if row["flagged"] else " "
        flag = f"{sign}     " if flagging else ""
        score, level = headline(row, taxonomy)
        first = "-    " if score is None else format_score(score, taxonomy)
        print(f"{first}  {level or '-'}      {flag}{name_of(row, one_root)}")
        for line in _details(row, taxonomy):
            print(textwrap.fill(line, 110, initial_indent=" " * 14, subsequent_indent=" " * 16))
    if len(shown) < len(scored):
        print(f"... and {len(scored) - len(shown)} less severe")
    if full:
        _show_laws(shown, taxonomy)


def _details(row: dict[str, Any], taxonomy: Taxonomy) -> list[str]:
    shown = partial(format_score, taxonomy=taxonomy)
    said = beside(row, shown)
    lines = ["; ".join(said)] if said else []
    if row["contradiction"]:
        lines.append(contradiction(row, shown))
    if goes_by_lists(row):
        most = row["probable"]["attributes"][:5]
        parts = [f"{one['key']} {one['probability']:.0%} {shown(one['score_without'])}" for one in most]
        if parts:
            lines.append(f"how probable what carries most is, and the score without it: {', '.join(parts)}")
    elif row["attributes"]:
        parts = [f"{one['key']} {shown(one['score_without'])}" for one in row["attributes"]]
        made = f"{shown(row['advice']['composed_score'])}, level {row['advice']['composed_level']}"
        lines.append(f"named attributes make {made}; without {', '.join(parts)}")
    elif row["attributes"] is not None:
        lines.append("no attribute named")
    elif "attributes" in (row["text"] or ""):
        lines.append("attributes: its list cannot be read (a doubled or unknown name)")
    if steps := steps_to_hide(row):
        keys = ", then ".join(step["hide"] for step in steps)
        mean, likeliest = ("mean ", "likeliest ") if goes_by_lists(row) else ("", "")
        lines.append(f"hide {keys}: {mean}{shown(steps[-1]['score'])}, {likeliest}level {steps[-1]['level']}")
    return lines


def _show_laws(rows: Rows, taxonomy: Taxonomy) -> None:
    if not (laws := laws_met(rows, taxonomy)):
        return
    print("\nWhat four privacy laws say (paper, Table 4: a summary, not legal advice):")
    for key, texts, notes in laws:
        print(f"  {key}" + ("" if texts else ": no row in Table 4"))
        lines = [f"{framework}: {text}" for framework, text in (texts or {}).items()] + [*notes]
        for line in lines:
            print(textwrap.fill(line, 110, initial_indent=" " * 4, subsequent_indent=" " * 6))
    print()


def show_faults(rows: Rows, found: Found) -> None:
    """What has no score and why, and what was passed over, on stderr."""
    faults = [row for row in rows if row["score"] is None]
    one_root = has_one_root(rows)
    for row in faults[:MOST_FAULTS]:
        why = row["error"] or (row["text"] or "")[:80]
        print(f"no score: {name_of(row, one_root)}: {row['status']}: {printable(why)}", file=sys.stderr)
    if len(faults) > MOST_FAULTS:
        print(f"no score: ... and {len(faults) - MOST_FAULTS} more", file=sys.stderr)
    passed = [f"{counted(found.other_files, 'file')} not named like a photo"] if found.other_files else []
    passed += [f"{counted(found.linked_folders, 'folder')} behind a link"] if found.linked_folders else []
    if passed:
        note(f"passed over {' and '.join(passed)}")
