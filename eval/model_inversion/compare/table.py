"""What ``cprt mi-compare`` found as a table in CSV, and in words and short tables for the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.pages.words import counted, show
from eval.model_inversion.compare.pictures import Gallery
from eval.model_inversion.metrics.show import FIGURES, assumptions, heads, percent, unmatched

_SAID = ("setup", "judge", "references", "order", "layout", "n", "tp", "tn", "fp", "fn")
_FIGURES = (
    *(*FIGURES, "refusal_rate", "control_hit_rate", "control_false_alarm_rate"),
    *("accuracy_judge_corrected_degraded", "fpr_corrected", "fnr_corrected"),
)


def table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Column names and cells of compare.csv: figures as fractions, each with its interval; empty where undefined."""
    columns = [*_SAID, *(f"{name}{end}" for name in _FIGURES for end in ("", "_low", "_high"))]
    cells = []
    for row in rows:
        figures = [cell for name in _FIGURES for cell in (row[name], *(row["ci"][name] or (None, None)))]
        cells.append([*(row[name] for name in _SAID), *figures])
    return columns, cells


def inert(cell: Any) -> Any:
    """A cell that a spreadsheet would take for a formula, led by an apostrophe; others as they are."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def print_report(result: Mapping[str, Any], wrong: int, gallery: Gallery | None, out: Path) -> None:
    """The table, what changes places, who agrees, what settings do; a dash where undefined.

    To fit a terminal, only three figures have their intervals here, and settings are shown over all set-ups.
    """
    rows = result["rows"]
    shown = heads(rows)
    lines = [["set-up", "judge", "n", *shown.values()]]
    for row in rows:
        intervals = {name: row["ci"][name] for name in ("accuracy_standard", "accuracy_judge", "fpr")}
        figures = [(show if name == "kappa" else percent)(row[name], intervals.get(name)) for name in shown]
        lines.append([row["setup"], row["judge"], str(row["n"]), *figures])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for judge in result["judges"]:
        lost: Counter[str] = Counter()
        for row in rows:
            lost.update(row["left_out_of_table"] if row["judge"] == judge else {})
        if lost.total():
            labels = ", ".join(f"{times} {label}" for label, times in lost.items() if times)
            print(f"  {judge}: {labels} are not in FPR, FNR and kappa; they stay in n and are no yes")
    for row in rows:
        for note in unmatched(row["join"]):
            print(f"  {row['setup']}, {row['judge']}: {note}")
    for number, row in enumerate(row for row in rows if row["accuracy_judge_corrected"] is not None):
        assumed, *ranges = assumptions(row)
        for note in ranges if number else [assumed, *ranges]:
            print(f"  {note}" if note == assumed else f"  {row['setup']}, {row['judge']}: {note}")
    for judge, found in result["rankings"].items():
        if found["setups"] > 1:
            swaps = counted(len(found["swaps"]), "pair of set-ups changes places", "pairs of set-ups change places")
            tau = show(found["tau"], found["ci"]["tau"])
            print(f"\nRanking under {judge} against E: Kendall's tau {tau}, {swaps}")
            for swap in found["swaps"][:5]:
                print(f"  {swap_line(swap)}")
    parts = {"Agreement of judges": (result["agreement"], agreement_line)}
    parts["Effects of settings"] = (result["effects"], effect_line)
    for title, (found, in_words) in parts.items():
        if found:
            print(f"\n{title}")
        totals = [(row.get("setting"), row["judges"]) for row in found if row["setup"] is None]
        for row in found:
            if row["setup"] is None or (row.get("setting"), row["judges"]) not in totals:
                print(f"  {in_words(row)}")
    print(f"\n{out / 'compare.html'}: everything, with {counted(wrong, 'false positive')} to browse")
    if gallery is not None:
        missing = sum(place is None for place in gallery.reconstructions.values())
        unseen = f"; {counted(missing, 'reconstruction')} not found or not readable" if missing else ""
        print(f"  the page holds {counted(len(gallery.urls), 'private picture')}: keep it where they may be{unseen}")


def swap_line(swap: Mapping[str, Any]) -> str:
    """One pair of set-ups that change places, in words."""
    first, second = swap["higher_under_standard"], swap["higher_under_judge"]
    support = "" if swap["support"] is None else f" (in {100 * swap['support']:.0f}% of resamples)"
    e, j = swap["accuracy_standard"], swap["accuracy_judge"]
    return (
        f"{first} before {second} under E ({percent(e[0])}, {percent(e[1])}), "
        f"after it under the judge ({percent(j[0])}, {percent(j[1])}){support}"
    )


def agreement_line(row: Mapping[str, Any]) -> str:
    """How far two judges agree, in words."""
    kappa, same = show(row["kappa"], row["ci"]["kappa"]), percent(row["agreement"], row["ci"]["agreement"])
    return f"{' and '.join(row['judges'])}: kappa {kappa}, same verdict {same} of {row['n']}"


def effect_line(row: Mapping[str, Any]) -> str:
    """What one setting does, in words."""
    where = row["setup"] or "all set-ups"
    interval = row["ci"]["difference"]
    shift = "-" if row["difference"] is None else f"{100 * row['difference']:+z.2f}"
    shift += f" [{100 * interval[0]:+z.2f}, {100 * interval[1]:+z.2f}]" if interval else ""
    return (
        f"{row['setting']} {json.dumps(row['from'])} to {json.dumps(row['to'])}, {row['judges'][0]}, {where}: "
        f"accuracy {percent(row['accuracy_judge_from'])} to {percent(row['accuracy_judge_to'])} ({shift} points), "
        f"{percent(row['changed'])} of verdicts change"
    )
