"""The page of ``cprt mi-compare``: every figure with its interval, and every false positive to judge by eye."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cprt.numbers import number
from cprt.pages.listing import Cell, Column, Listing, Part, cell
from cprt.pages.render import figure, interval, render
from eval.model_inversion.compare.pictures import FalsePositive, Gallery
from eval.model_inversion.metrics.show import heads

_SETUPS = ("set-up", "set-ups")


def page(
    result: Mapping[str, Any], rows: Sequence[FalsePositive], gallery: Gallery, charts: Mapping[str, bytes]
) -> str:
    """The whole HTML. ``result`` as in compare.json, ``charts`` PNGs for the themes light and dark."""
    return render(
        "model_inversion",
        title="Model inversion: judges beside evaluation models",
        setups=len(result["setups"]),
        judges=len(result["judges"]),
        main=_main(result["rows"]),
        assumes=sorted({row["correction_assumes"]["accuracy"] for row in result["rows"] if row["correction_assumes"]}),
        chart={theme: f"data:image/png;base64,{base64.b64encode(png).decode()}" for theme, png in charts.items()},
        rankings=[
            {
                "judge": judge,
                "tau": figure(found["tau"]),
                "interval": interval(found["ci"]["tau"]),
                "setups": found["setups"],
                "swaps": len(found["swaps"]),
            }
            for judge, found in result["rankings"].items()
            if found["setups"] > 1
        ],
        swaps=_swaps(result["rankings"]),
        agreements=_agreements(result["agreement"]),
        effects=_effects(result["effects"]),
        wrong=_false_positives(rows, gallery),
        pictures=gallery.urls,
        shows_pictures=True,
    )


# --- Cells -------------------------------------------------------------------------------------------------------


def _percent(value: float | None, bounds: Sequence[float] | None = None, sign: str = "", head: str = "") -> Cell:
    """A share in percent with its interval below; its value sorts."""
    if value is None:
        return "–"
    return cell(f"{100 * value:{sign}.2f}", *_share(value, bounds, sign, head))


def _share(
    value: float | None, bounds: Sequence[float] | None = None, sign: str = "", head: str = ""
) -> list[list[Part]]:
    if value is None:
        return []
    lines: list[list[Part]] = [[*([(head, "quiet")] if head else []), f"{100 * value:{sign}.2f}%".replace("-", "−")]]
    if bounds:
        low, high = (f"{100 * bound:{sign}.2f}".replace("-", "−") for bound in bounds)
        lines.append([(f"{low} to {high}", "quiet")])
    return lines


def _figure(value: float | None, bounds: Sequence[float] | None) -> Cell:
    if value is None:
        return "–"
    return cell(figure(value), [figure(value)], *([[(interval(bounds), "quiet")]] if bounds else []))


# --- Lists -------------------------------------------------------------------------------------------------------


def _main(rows: Sequence[Mapping[str, Any]]) -> Listing:
    """Every judge on every set-up, with what its controls say of it and what it gave no verdict on."""
    shown = heads(rows)
    natural = shown.pop("natural_rate", None)  # stands below the transfer that it is held against
    controls = any(row["control_hit_rate"] is not None for row in rows)
    columns = [
        Column("Set-up", "id", choose=True),
        Column("Judge", choose=True),
        Column("n", "number"),
        *(Column(head[0].upper() + head[1:], "number") for head in shown.values()),
        *([Column("Controls", "number")] if controls else []),
        Column("No verdict", "number"),
    ]
    content = []
    for row in rows:
        counts: list[list[Part]] = [[f"{row['n']:,}"]]
        counts += [
            [(f"{first.upper()} {row[first]:,} · {second.upper()} {row[second]:,}", "quiet")]
            for first, second in (("tp", "fp"), ("fn", "tn"))
        ]
        figures = []
        for name in shown:
            value = (_figure if name == "kappa" else _percent)(row[name], row["ci"][name])
            if name == "type_i_transfer" and natural and isinstance(value, dict):
                value["lines"] += _share(row["natural_rate"], row["ci"]["natural_rate"], head="naturals")
            if name == "type_i_transfer" and isinstance(value, dict):
                for other, to in list(row["type_i_transfer_to"].items())[1:]:
                    value["lines"] += _share(to["transfer"], to["ci"], head=f"to {other}")
            if name == "accuracy_judge_corrected" and row["accuracy_judge_corrected_range"] and isinstance(value, dict):
                low, high = row["accuracy_judge_corrected_range"]
                value["lines"].append([("if off:", "quiet"), f"{100 * low:.2f} to {100 * high:.2f}"])
            figures.append(value)
        content.append(
            [
                row["setup"],
                row["judge"],
                cell(str(row["n"]), *counts),
                *figures,
                *([_controls(row)] if controls else []),
                _no_verdict(row),
            ]
        )
    return Listing("setups", columns, content, ("row", "rows"), size=30)


def _controls(row: Mapping[str, Any]) -> Cell:
    hit, alarm = row["control_hit_rate"], row["control_false_alarm_rate"]
    lines = _share(hit, row["ci"]["control_hit_rate"], head="hit")
    lines += _share(alarm, row["ci"]["control_false_alarm_rate"], head="alarm")
    return cell(f"{100 * hit:.2f}" if hit is not None else "", *lines) if lines else None


def _no_verdict(row: Mapping[str, Any]) -> Cell:
    """Refusals with their share, and what else is no yes or no."""
    labels = row["judge_labels"]
    refused, others = labels["refused"], {name: labels[name] for name in ("unparsed", "error") if labels[name]}
    lines: list[list[Part]] = [[f"{refused:,} refused"]]
    if refused:
        lines += _share(row["refusal_rate"], row["ci"]["refusal_rate"])
    lines += [[(f"{count:,} {name}", "quiet")] for name, count in others.items()]
    return cell(str(refused + sum(others.values())), *lines)


def _swaps(rankings: Mapping[str, Mapping[str, Any]]) -> Listing:
    columns = [
        Column("Judge", choose=True),
        Column("Higher under E"),
        Column("Higher under the judge"),
        Column("Under E"),
        Column("Under the judge"),
        Column("In resamples", "number"),
    ]
    content = [
        [
            judge,
            swap["higher_under_standard"],
            swap["higher_under_judge"],
            " and ".join(f"{100 * value:.2f}%" for value in swap["accuracy_standard"]),
            " and ".join(f"{100 * value:.2f}%" for value in swap["accuracy_judge"]),
            _percent(swap["support"]),
        ]
        for judge, found in rankings.items()
        for swap in found["swaps"]
    ]
    return Listing("swaps", columns, content, ("pair", "pairs"), size=10)


def _agreements(rows: Sequence[Mapping[str, Any]]) -> Listing:
    columns = [
        Column("Judges", choose=True),
        Column("Set-up", choose=True),
        Column("n", "number"),
        Column("Same verdict", "number"),
        Column("Kappa", "number"),
    ]
    content = [
        [
            " and ".join(row["judges"]),
            row["setup"] or "all set-ups",
            f"{row['n']:,}",
            _percent(row["agreement"], row["ci"]["agreement"]),
            _figure(row["kappa"], row["ci"]["kappa"]),
        ]
        for row in sorted(rows, key=lambda row: row["setup"] is not None)
    ]
    return Listing("agreement", columns, content, ("row", "rows"), size=10)


def _effects(rows: Sequence[Mapping[str, Any]]) -> Listing:
    columns = [
        Column("Setting", choose=True),
        Column("Judges", choose=True),
        Column("Set-up", choose=True),
        Column("n", "number"),
        Column("Accuracy under the judge"),
        Column("Difference", "number"),
        Column("Verdicts changed", "number"),
        Column("FPR"),
    ]
    content = [
        [
            f"{row['setting']} {json.dumps(row['from'])} to {json.dumps(row['to'])}",
            " to ".join(row["judges"]),
            row["setup"] or "all set-ups",
            f"{row['n']:,}",
            _from_to(row["accuracy_judge_from"], row["accuracy_judge_to"]),
            _percent(row["difference"], row["ci"]["difference"], "+"),
            _percent(row["changed"], row["ci"]["changed"]),
            _from_to(row["fpr_from"], row["fpr_to"]),
        ]
        for row in sorted(rows, key=lambda row: row["setup"] is not None)
    ]
    return Listing("effects", columns, content, ("row", "rows"), size=10)


def _from_to(first: float | None, second: float | None) -> str:
    return " to ".join("–" if value is None else f"{100 * value:.2f}%" for value in (first, second))


def _false_positives(rows: Sequence[FalsePositive], gallery: Gallery) -> Listing:
    """Reconstruction, references and E's confidence side by side, in the order of the files."""
    pictured = [Column("Reconstruction", "pictures"), Column("References", "pictures")] if gallery.urls else []
    columns = [
        *pictured,
        Column("Set-up", choose=True),
        Column("Judge", choose=True),
        Column("Class", choose=True),
        Column("File"),
        Column("E's confidence", "number"),
        Column("What the judge said"),
    ]
    content: list[list[Cell]] = [
        [
            *([gallery.reconstructions[row.picture], gallery.references[row] or None] if pictured else []),
            row.setup,
            row.judge,
            row.claims,
            row.file,
            _confidence(row.confidence),
            row.response,
        ]
        for row in rows
    ]
    return Listing("list", columns, content, ("false positive", "false positives"), size=50)


def _confidence(stated: str) -> Cell:
    try:
        return figure(number(stated))
    except ValueError:  # no such column, or a word
        return stated or None
