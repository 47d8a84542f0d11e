"""The page of ``cprt mi-compare``: every figure with its interval, and every false positive to judge by eye."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cprt.pages.listing import Cell, Column, Columns, Listing, Part, cell, listing
from cprt.pages.plots import in_both_themes
from cprt.pages.render import figure, interval, render
from cprt.values import number
from eval.model_inversion.compare.chart import accuracy_chart
from eval.model_inversion.compare.pictures import FalsePositive, Gallery
from eval.model_inversion.metrics.show import heads

Row = Mapping[str, Any]
_ROW = ("row", "rows")


def page(result: Row, rows: Sequence[FalsePositive], gallery: Gallery) -> str:
    """The whole HTML. ``result`` as in compare.json."""
    rankings = {judge: found for judge, found in result["rankings"].items() if found["setups"] > 1}
    swaps = [{"judge": judge, **swap} for judge, found in rankings.items() for swap in found["swaps"]]
    return render(
        "model_inversion",
        title="Model inversion: judges beside evaluation models",
        setups=len(result["setups"]),
        judges=len(result["judges"]),
        main=_main(result["rows"]),
        assumes=sorted({row["correction_assumes"]["accuracy"] for row in result["rows"] if row["correction_assumes"]}),
        controls=any(row["control_hit_rate"] is not None for row in result["rows"]),
        transfers=any(row["type_i_transfer"] is not None for row in result["rows"]),
        chart=in_both_themes(partial(accuracy_chart, result["rows"])),
        rankings=rankings,
        swaps=listing("swaps", swaps, _SWAPS, noun=("pair", "pairs"), size=10),
        agreements=listing("agreement", _totals_first(result["agreement"]), _AGREEMENTS, noun=_ROW, size=10),
        effects=listing("effects", _totals_first(result["effects"]), _EFFECTS, noun=_ROW, size=10),
        wrong=_false_positives(rows, gallery),
        pictures=gallery.urls,
        shows_pictures=True,
    )


def _totals_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["setup"] is not None)


# --- Cells -------------------------------------------------------------------------------------------------------


def _share(value: float | None, bounds: Sequence[float] | None, sign: str = "", head: str = "") -> list[list[Part]]:
    """A share in percent, its interval below."""
    if value is None:
        return []

    def shown(share: float) -> str:
        return f"{100 * share:{sign}.2f}".replace("-", "−")

    lines: list[list[Part]] = [[*([(head, "quiet")] if head else []), f"{shown(value)}%"]]
    return lines + ([[(f"{shown(bounds[0])} to {shown(bounds[1])}", "quiet")]] if bounds else [])


def _of(name: str, sign: str = "") -> Callable[[Row], Cell]:
    """A figure of a row with its interval, a share or kappa, and what stands beside it."""

    def shown(row: Row) -> Cell:
        value, bounds = row[name], row["ci"][name] if "ci" in row else None
        if value is None:
            return "–"
        if name == "kappa":
            return cell(figure(value), [figure(value)], *([[(interval(bounds), "quiet")]] if bounds else []))
        lines = _share(value, bounds, sign)
        for head, other in _BESIDE.get(name, ()):
            lines += _share(row[other], row["ci"][other], head=head)
        if name == "type_i_transfer":
            for other, to in list(row["type_i_transfer_to"].items())[1:]:
                lines += _share(to["transfer"], to["ci"], head=f"to {other}")
                lines += _share(to["natural_rate"], to["natural_ci"], head="naturals")
        if name == "accuracy_judge_corrected" and row["accuracy_judge_corrected_range"]:
            low, high = row["accuracy_judge_corrected_range"]
            lines.append([("if off:", "quiet"), f"{100 * low:.2f} to {100 * high:.2f}"])
        return cell(f"{100 * value:{sign}.2f}", *lines)

    return shown


# In the cell of a figure: (head, another figure).
_BESIDE = {
    "accuracy_judge_corrected": [("degraded", "accuracy_judge_corrected_degraded")],
    "fpr": [("corrected", "fpr_corrected")],
    "fnr": [("corrected", "fnr_corrected")],
    "type_i_transfer": [("naturals", "natural_rate")],
}


def _two(values: Sequence[float | None], between: str = "to") -> str:
    return f" {between} ".join("–" if value is None else f"{100 * value:.2f}%" for value in values)


def _setup(row: Row) -> str:
    return row["setup"] or "all set-ups"


# --- Lists -------------------------------------------------------------------------------------------------------

_SWAPS: Columns = (
    (Column("Judge", choose=True), lambda row: row["judge"]),
    (Column("Higher under E"), lambda row: row["higher_under_standard"]),
    (Column("Higher under the judge"), lambda row: row["higher_under_judge"]),
    (Column("Under E"), lambda row: _two(row["accuracy_standard"], "and")),
    (Column("Under the judge"), lambda row: _two(row["accuracy_judge"], "and")),
    (Column("In resamples", "number"), _of("support")),
)
_AGREEMENTS: Columns = (
    (Column("Judges", choose=True), lambda row: " and ".join(row["judges"])),
    (Column("Set-up", choose=True), _setup),
    (Column("n", "number"), lambda row: f"{row['n']:,}"),
    (Column("Same verdict", "number"), _of("agreement")),
    (Column("Kappa", "number"), _of("kappa")),
)
_EFFECTS: Columns = (
    (
        Column("Setting", choose=True),
        lambda row: f"{row['setting']} {json.dumps(row['from'])} to {json.dumps(row['to'])}",
    ),
    (Column("Judges", choose=True), lambda row: " to ".join(row["judges"])),
    (Column("Set-up", choose=True), _setup),
    (Column("n", "number"), lambda row: f"{row['n']:,}"),
    (Column("Accuracy under the judge"), lambda row: _two((row["accuracy_judge_from"], row["accuracy_judge_to"]))),
    (Column("Difference", "number"), _of("difference", "+")),
    (Column("Verdicts changed", "number"), _of("changed")),
    (Column("FPR"), lambda row: _two((row["fpr_from"], row["fpr_to"]))),
)


def _main(rows: Sequence[Row]) -> Listing:
    """Every judge on every set-up, with what its controls say of it and what it gave no verdict on."""
    shown = heads(rows)
    shown.pop("natural_rate", None)  # stands below the transfer that it is held against
    controls = any(row["control_hit_rate"] is not None for row in rows)
    columns: Columns = [
        (Column("Set-up", "id", choose=True), lambda row: row["setup"]),
        (Column("Judge", choose=True), lambda row: row["judge"]),
        (Column("n", "number"), _counts),
        *((Column(head[0].upper() + head[1:], "number"), _of(name)) for name, head in shown.items()),
        *([(Column("Controls", "number"), _controls)] if controls else []),
        (Column("No verdict", "number"), _no_verdict),
    ]
    return listing("setups", rows, columns, noun=_ROW, size=30)


def _counts(row: Row) -> Cell:
    table = (f"TP {row['tp']:,} · FP {row['fp']:,}", f"FN {row['fn']:,} · TN {row['tn']:,}")
    return cell(str(row["n"]), [f"{row['n']:,}"], *([(line, "quiet")] for line in table))


def _controls(row: Row) -> Cell:
    hit, alarm = "control_hit_rate", "control_false_alarm_rate"
    lines = _share(row[hit], row["ci"][hit], head="hit") + _share(row[alarm], row["ci"][alarm], head="alarm")
    return cell("" if row[hit] is None else f"{100 * row[hit]:.2f}", *lines) if lines else None


def _no_verdict(row: Row) -> Cell:
    """Refusals with their share, and what else is no yes or no."""
    refused = row["judge_labels"]["refused"]
    others = {name: row["judge_labels"][name] for name in ("unparsed", "error")}
    lines: list[list[Part]] = [[f"{refused:,} refused"]]
    if refused:
        lines += _share(row["refusal_rate"], row["ci"]["refusal_rate"])
    lines += [[(f"{count:,} {name}", "quiet")] for name, count in others.items() if count]
    return cell(str(refused + sum(others.values())), *lines)


def _false_positives(rows: Sequence[FalsePositive], gallery: Gallery) -> Listing:
    """Reconstruction, references and E's confidence side by side, in the order of the files."""
    pictured: Columns = [
        (Column("Reconstruction", "pictures"), lambda row: gallery.reconstructions[row.picture]),
        (Column("References", "pictures"), lambda row: gallery.references[row] or None),
    ]
    columns: Columns = [
        *(pictured if gallery.urls else []),
        (Column("Set-up", choose=True), lambda row: row.setup),
        (Column("Judge", choose=True), lambda row: row.judge),
        (Column("Class", choose=True), lambda row: row.claims),
        (Column("File"), lambda row: row.file),
        (Column("E's confidence", "number"), lambda row: _confidence(row.confidence)),
        (Column("What the judge said"), lambda row: row.response),
    ]
    return listing("list", rows, columns, noun=("false positive", "false positives"))


def _confidence(stated: str) -> Cell:
    try:
        return figure(number(stated))
    except ValueError:  # no such column, or a word
        return stated or None
