"""The report of ``cprt mi-metrics`` on a terminal, and which figures stand in tables, under which heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cprt.pages.words import show

# Figure -> its head in a report, and in tables of several judges and set-ups, where it stands in those.
_HEADS = {
    "accuracy_standard": ("attack accuracy under E", "accuracy under E"),
    "accuracy_judge": ("attack accuracy under the judge", "under the judge"),
    "accuracy_judge_corrected": ("  corrected by its controls", "corrected by controls"),
    "accuracy_judge_corrected_degraded": ("  corrected by degraded ones", None),
    "accuracy_gap": ("  E minus judge", None),
    "fpr": ("FPR of E", "FPR"),
    "fpr_corrected": ("  corrected by its controls", None),
    "fnr": ("FNR of E", "FNR"),
    "fnr_corrected": ("  corrected by its controls", None),
    "tpr": ("TPR of E", None),
    "tnr": ("TNR of E", None),
    "kappa": ("kappa of E and judge", "kappa"),
    "type_i_transfer": ("Type-I transfer to E", "Type-I transfer"),
    "natural_rate": ("  natural images E accepts", "naturals E accepts"),
    "refusal_rate": ("refused by the judge", None),
}
FIGURES = {name: head for name, (_, head) in _HEADS.items() if head is not None}
# Which of them are shown where they are undefined: those that were asked for.
_ASKED = {"accuracy_judge_corrected": "controls", "natural_rate": "naturals", "type_i_transfer": "type_i"}
_OPTIONAL = ("accuracy_judge_corrected_degraded", "fpr_corrected", "fnr_corrected")


def print_report(figures: Mapping[str, Any], out: str) -> None:
    """Every figure with its interval; then what they assume, and everything that is not in the table or not matched."""
    cells = ", ".join(f"{cell.upper()} {figures[cell]}" for cell in ("tp", "tn", "fp", "fn"))
    print(f"{out}: n {figures['n']}, {cells}")
    for name, (head, _) in _HEADS.items():
        asked = name not in _OPTIONAL and figures[_ASKED.get(name, "n")] is not None
        if figures[name] is not None or asked:
            shown = (show if name == "kappa" else percent)(figures[name], figures["ci"][name])
            print(f"  {head:<32} {shown}")
    for name, row in list(figures["type_i_transfer_to"].items())[1:]:
        print(f"  {f'Type-I transfer to {name}':<32} {percent(row['transfer'], row['ci'])}")
        if row["natural_rate"] is not None:
            print(f"  {f'  natural images {name} accepts':<32} {percent(row['natural_rate'], row['natural_ci'])}")
    of = figures["design_effect"]
    e, judge = (show(of[name], form=".2f") for name in ("accuracy_standard", "accuracy_judge"))
    effects = f"design effect of the accuracy {e} under E, {judge} under the judge"
    print(f"  intervals over {figures['classes']} classes; {effects}")
    for line in assumptions(figures):
        print(f"  {line}")
    lost = ", ".join(f"{times} {label}" for label, times in figures["left_out_of_table"].items() if times)
    if lost:
        print(f"  not in the 2x2 table: {lost}; they stay in n and are no yes")
    elif figures["refused_as_no"] and figures["judge_labels"]["refused"]:
        print(f"  {figures['judge_labels']['refused']} refusals count as no in the 2x2 table")
    if figures["not_shown"]:
        print(f"  {figures['not_shown']} reconstructions could not be shown to the judge and are in no figure")
    for line in unmatched(figures["join"]):
        print(f"  {line}")


def assumptions(figures: Mapping[str, Any]) -> list[str]:
    """What the corrected figures assume, and how much hangs on it; nothing without controls."""
    if figures["accuracy_judge_corrected"] is None:
        return []
    lines = [f"corrected assumes {figures['correction_assumes']['accuracy']}"]
    if figures["accuracy_judge_corrected_range"] is not None:
        low, high = figures["accuracy_judge_corrected_range"]
        lines.append(f"if it errs more there, the corrected accuracy lies from {percent(low)} to {percent(high)}")
    return lines


def unmatched(join: Mapping[str, Any]) -> list[str]:
    """A line for everything that the join left over."""
    lines = []
    for side, name in (("judge", "the judge's file"), ("standard", "E's file")):
        if join[f"only_{side}"]:
            examples = ", ".join(join[f"only_{side}_examples"][:2])
            lines.append(f"left out: {join[f'only_{side}']} reconstructions only in {name}, as {examples}")
    missing = join.get("target", {}).get("without_target", 0)
    return lines + ([f"{missing} reconstructions have no verdict of T"] if missing else [])


def heads(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Those of FIGURES that are defined in any row."""
    return {name: head for name, head in FIGURES.items() if any(row[name] is not None for row in rows)}


percent = partial(show, form=".2%")
