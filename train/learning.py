"""What a run has learnt, step by step: a table and a picture of the loss and of the hold-out's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.files import write_bytes
from cprt.pages.colors import LIGHT
from cprt.pages.plots import png
from cprt.pages.words import aligned, show

# Column of the table: the name in learning.jsonl, its digits after the point.
_COLUMNS = {
    "loss": ("loss", 4),
    "coverage": ("coverage", 3),
    "willing": ("willing", 3),
    "MAE": ("mae", 3),
    "expected MAE": ("expected_mae", 3),
    "Spearman": ("spearman", 3),
    "bias": ("bias", 3),
}


def last_loss(log: Sequence[Mapping[str, Any]]) -> float | None:
    """The training loss logged last, the mean over ``logging_steps`` steps; None before the first."""
    return next((row["loss"] for row in reversed(log) if "loss" in row), None)


def learning_table(rows: Sequence[Mapping[str, Any]], shipped: int) -> str:
    """The rows of ``learning.jsonl`` as text, an arrow at the step whose adapter is saved; a dash is undefined."""
    shown = {name: column for name, column in _COLUMNS.items() if any(column[0] in row for row in rows)}
    table = [["step", *shown, ""]]
    for row in rows:
        figures = [show(row.get(name), form=f".{digits}f") for name, digits in shown.values()]
        table.append([str(row["step"]), *figures, "<- the adapter" if row["step"] == shipped else ""])
    return aligned(table)


def draw_learning(path: Path, log: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a PNG: the training loss of every logged step, and the hold-out's error with its 95% interval."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    losses = [(row["step"], row["loss"]) for row in log if "loss" in row]
    errors = [row for row in rows if row.get("mae") is not None]
    with rc_context(LIGHT.rc | {"axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        left.plot([step for step, _ in losses], [loss for _, loss in losses], color=LIGHT.series[0])
        left.set(title="training loss", xlabel="step")
        for row in errors:
            if row["mae_interval"] is None:  # one answer, or several that err alike
                continue
            right.plot([row["step"]] * 2, row["mae_interval"], color=LIGHT.series[1], linewidth=1)
        right.plot([row["step"] for row in errors], [row["mae"] for row in errors], "o-", color=LIGHT.series[1])
        right.set(title="mean absolute error on the hold-out", xlabel="step")
        right.set_ylim(bottom=0)
        write_bytes(path, png(figure))
