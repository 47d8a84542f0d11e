"""What ``cprt counterfactual`` found: means and shares of every run and group, with intervals, and their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.answers import STATUSES
from cprt.metrics.severity import wilson_interval
from eval.counterfactual.cases import GROUPS


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
    """Means and shares over the rows that have a score; null where there is none."""
    counts = Counter(row["status"] for row in rows)
    scored = [row for row in rows if row["after"] is not None]
    names = ("before", "after", "truth_before", "truth_after")
    before, after, truth_before, truth_after = (np.array([row[name] for row in scored], dtype=float) for name in names)
    means = {
        "before": before,
        "after": after,
        "change": after - before,
        "truth_change": truth_after - truth_before,
        "error_after": np.abs(after - truth_after),
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
        **{name: float(values.mean()) if n else None for name, values in means.items()},
        **{name: count / n if n else None for name, count in shares.items()},
        "ci": {name: _interval(values, resamples, seed) for name, values in means.items()}
        | {name: wilson_interval(count, n) for name, count in shares.items()},
    }


def _interval(values: NDArray[np.float64], resamples: int, seed: int) -> list[float] | None:
    """95% percentile bootstrap of a mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    return [float(bound) for bound in np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])]


def report(summary: Mapping[str, Any], out: Path) -> None:
    """The selection and a line for each run and group; a dash is undefined. The truth's figures stand in brackets."""
    selection = summary["selection"]
    taken = ", ".join(f"{count} {group}" for group, count in selection["taken"].items())
    print(
        f"{out}: {sum(selection['taken'].values())} photos ({taken}) of {selection['confident_in_every_run']} "
        "on which every run is confident"
    )
    if selection["unfilled"]:
        print(f"  {selection['unfilled']} fewer than asked for: there are {selection['available']}")
    width = max(len(name) for name in summary["runs"])
    heads = f"{'photos':<6} {'n':>4} {'before':>7} {'after':>6}  {'change':<32} {'level falls':<13} unmoved"
    print(f"\n{'run':<{width}}  {heads}")
    for name, figures in summary["runs"].items():
        for group in (group for group in ("all", *GROUPS) if figures[group]["n"]):
            part = figures[group]
            interval = " [{:+.3f}, {:+.3f}]".format(*part["ci"]["change"]) if part["ci"]["change"] else ""
            change = f"{_show(part['change'], '+')}{interval} ({_show(part['truth_change'], '+')})"
            falls = f"{_show(part['moved_down'])} ({_show(part['truth_moved_down'])})"
            print(
                f"{name if group == 'all' else '':<{width}}  {group:<6} {part['scored']:>4} "
                f"{_show(part['before']):>7} {_show(part['after']):>6}  {change:<32} {falls:<13} "
                f"{_show(part['unmoved']):>7}"
            )
    print("In brackets: what the truth does.")


def _show(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3f}"
