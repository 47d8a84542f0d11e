"""A comparison in Weights & Biases: figures, differences and confusion matrices as tables, figures over training steps.

Names of runs and numbers are all that is sent: no photo, no picture, no answer, no id and no path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cprt.services.tracking import finish, log_table, start_run
from cprt.taxonomy import LEVELS
from eval.compare.results import Comparison
from eval.measures import HEADS

STEP = "training_step"


def log(comparison: Comparison, project: str | None, directory: str | Path) -> str:
    """Log what ``compare.json`` holds; returns a line that says where it is."""
    config = {"photos": comparison.n, "runs": list(comparison.runs), **vars(comparison.correction)}
    tracked = start_run(project, "compare", config, directory)
    tracked.define_metric(STEP, hidden=True)
    tracked.define_metric("over_training/*", step_metric=STEP)
    points = [(point.step, series, point) for series, rows in comparison.curves.items() for point in rows]
    for step, series, point in sorted(points, key=lambda entry: entry[0]):
        drawn = {f"over_training/{name}/{series}": getattr(point, name) for name in HEADS}
        tracked.log({STEP: step} | {name: value for name, value in drawn.items() if value is not None})

    bounds = [f"{name} {end}" for name in HEADS for end in ("low", "high")]
    rows = [
        [run, *(getattr(row, name) for name in HEADS), *(end for name in HEADS for end in _ends(row.ci.get(name)))]
        for run, row in comparison.runs.items()
    ]
    log_table(tracked, "figures", ["run", *HEADS, *bounds], rows)
    tests = [
        [pair.run, pair.against, pair.n, name, one.difference, *_ends(one.ci), one.p, one.p_holm, one.beyond_noise]
        for pair in comparison.differences
        for name, one in pair.figures.items()
    ]
    columns = ["run", "against", "photos", "figure", "difference", "low", "high", "p", "p after Holm", "beyond noise"]
    log_table(tracked, "differences", columns, tests)
    spreads = [
        [recipe, len(group.seeds), name, spread.mean, spread.sd, spread.lowest, spread.highest]
        for recipe, group in comparison.seeds.items()
        for name, spread in group.figures.items()
        if spread is not None
    ]
    if spreads:
        log_table(tracked, "seeds", ["recipe", "seeds", "figure", "mean", "sd", "lowest", "highest"], spreads)
    cells = [
        [run, level, *counts]
        for run, figures in comparison.runs.items()
        for level, counts in zip(LEVELS, figures.confusion, strict=True)
    ]
    log_table(tracked, "confusion", ["run", "true level", *(f"predicted {level}" for level in LEVELS)], cells)
    for run, figures in comparison.runs.items():
        for name in HEADS:
            if getattr(figures, name) is not None:
                tracked.summary[f"{run}/{name}"] = getattr(figures, name)
    return finish(tracked)


def _ends(bounds: Any) -> list[Any]:
    return list(bounds) if bounds else [None, None]
