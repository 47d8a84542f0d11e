"""What ``cprt counterfactual`` found: means and shares of every run and group, with intervals, and their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.answers import STATUSES
from cprt.metrics.bootstrap import mean_interval, wilson_interval
from cprt.pages.words import aligned, show
from eval.counterfactual.cases import GROUPS
from eval.tables import Cell, Table, rounded


def summarise(rows: Sequence[dict[str, Any]], resamples: int, seed: int) -> dict[str, Any]:
    """Figures of every run in ``rows``, over all photos and in each group, ready for JSON."""
    figures = {}
    for run in dict.fromkeys(row["run"] for row in rows):
        own = [row for row in rows if row["run"] == run]
        groups = {"all": own, **{group: [row for row in own if row["group"] == group] for group in GROUPS}}
        figures[run] = {name: own[0][name] for name in ("model", "prompt", "target")}
        figures[run] |= {name: _figures(part, resamples, seed) for name, part in groups.items()}
    method = {
        "confidence": 0.95,
        "means": "percentile bootstrap over photos with a score",
        "shares": "Wilson",
        "resamples": resamples,
        "seed": seed,
    }
    return {"runs": figures, "ci_method": method}


def _figures(rows: Sequence[dict[str, Any]], resamples: int, seed: int) -> dict[str, Any]:
    """Means and shares over the rows that have a score before and after; null where there is none.

    Those of the control are over the rows that have one as well when the plain question is asked again.
    """
    counts = Counter(row["status"] for row in rows)
    scored = [row for row in rows if row["before"] is not None and row["after"] is not None]
    control = [row for row in scored if row["again"] is not None]

    def column(name: str, of: Sequence[dict[str, Any]] = scored) -> NDArray[np.float64]:
        return np.array([row[name] for row in of], dtype=float)

    means = {name: column(name) for name in ("before", "after", "truth_before", "truth_after")}
    again, by_itself = column("again", control), column("again", control) - column("before", control)
    means |= {
        "change": means["after"] - means["before"],
        "truth_change": means["truth_after"] - means["truth_before"],
        "error_after": np.abs(means["after"] - means["truth_after"]),
        "again": again,
        "self_change": by_itself,
        "self_difference": np.abs(by_itself),
        "net_change": column("after", control) - again,
    }
    shares = {
        "moved_down": sum(row["level_after"] > row["level_before"] for row in scored),
        "truth_moved_down": sum(row["truth_level_after"] > row["truth_level_before"] for row in scored),
        "unmoved": sum(row["after"] == row["before"] for row in scored),
    }
    n = len(scored)
    return {
        "n": len(rows),
        "scored": n,
        "status_counts": {status: counts[status] for status in STATUSES},
        "asked_again": len(control),
        **{name: float(values.mean()) if len(values) else None for name, values in means.items()},
        **{name: count / n if n else None for name, count in shares.items()},
        "ci": {name: mean_interval(values, resamples, seed) for name, values in means.items()}
        | {name: wilson_interval(count, n) for name, count in shares.items()},
    }


def parts(summary: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(run, group, figures) of every run and group that has photos."""
    runs = summary["runs"].items()
    return [(run, group, of[group]) for run, of in runs for group in ("all", *GROUPS) if of[group]["n"]]


def summary_table(summary: Mapping[str, Any]) -> Table:
    """A row for each run and group that has photos."""
    heads, rows = ["run", "prompt", "photos", "n"], list[list[Cell]]()
    for name, head in _COLUMNS.items():
        heads += [head, f"{head} low", f"{head} high"] if name in _WITH_INTERVAL else [head]
    for run, group, part in parts(summary):
        row: list[Cell] = [run, summary["runs"][run]["prompt"], group, part["scored"]]
        for name in _COLUMNS:
            ends = (part["ci"].get(name) or (None, None)) if name in _WITH_INTERVAL else ()
            row += [rounded(value, 3) for value in (part[name], *ends)]
        rows.append(row)
    return Table("counterfactual", "scores as if all faces were anonymised (paper 5.4.1)", heads, rows)


_COLUMNS = {
    "before": "before",
    "again": "asked again",
    "after": "faces anonymised",
    "truth_before": "truth before",
    "truth_after": "truth after",
    "change": "change",
    "truth_change": "truth's change",
    "self_change": "change by itself",
    "self_difference": "difference to itself",
    "net_change": "net change",
    "moved_down": "level falls",
    "truth_moved_down": "truth's level falls",
}
_WITH_INTERVAL = ("change", "self_change", "net_change")


def report(summary: Mapping[str, Any], out: Path) -> None:
    """The selection and a line for each run and group; a dash is undefined. The truth's figures stand in brackets."""
    selection = summary["selection"]
    taken = ", ".join(f"{count} {group}" for group, count in selection["taken"].items())
    print(
        f"{out}: {sum(selection['taken'].values())} photos ({taken}) of {selection['confident_in_every_run']} "
        "on which every judge is confident"
    )
    for name, count in selection["confident_alone"].items():
        print(f"  {name}: confident on {count} of {selection['labels']}")
    if selection["unfilled"]:
        there = ", ".join(f"{count} {group}" for group, count in selection["available"].items())
        share = f"of 'other' no more than {selection['wanted']['other']} are taken (--share)"
        print(f"  {selection['unfilled']} fewer than asked for: there are {there}, and {share}")
    rows = [["run", "photos", "n", "before", "again", "after", "change (truth)", "net change", "level falls (truth)"]]
    for name, group, part in parts(summary):
        change = f"{_interval_of(part, 'change')} ({show(part['truth_change'], form='+.3f')})"
        falls = f"{show(part['moved_down'])} ({show(part['truth_moved_down'])})"
        scores = (show(part[when]) for when in ("before", "again", "after"))
        rows.append([name, group, str(part["scored"]), *scores, change, _interval_of(part, "net_change"), falls])
    print(f"\n{aligned(rows)}")
    print("In brackets: what the truth does. Again: the same question a second time; net: after minus again.")


def _interval_of(part: Mapping[str, Any], name: str) -> str:
    return show(part[name], part["ci"][name], "+.3f")
