"""Pictures of results, as PNG: for files, and for pages in a light and a dark version. matplotlib is imported late."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from cprt.files import write_bytes
from cprt.pages.colors import LIGHT, Theme
from cprt.pages.plots import png
from cprt.pages.words import cut
from cprt.records import Label, Prediction, column
from cprt.taxonomy import LEVELS, Taxonomy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Panel = Callable[["Axes", Theme], None]  # draws into one set of axes
Bins = Sequence[Mapping[str, Any]]  # as ``eval.report.rows.reliability`` makes them
_MARKERS = "osD^vP"
_LONGEST = 48  # characters of a name
_FEW = 10  # rows below which a mean is drawn hollow


def draw(
    panels: Mapping[str, Panel],
    theme: Theme = LIGHT,
    size: tuple[float, float] = (4.2, 3.9),
    columns: int = 4,
    note: str = "",
) -> bytes:
    """Panels side by side, each under its name (none where the name is empty), as the bytes of a PNG.

    Args:
        size: width and height of a panel in inches.
        columns: panels in a row, at most.
        note: a line or two under them all.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    style = theme.rc | {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    style |= {"text.parse_math": False}  # a name with dollar signs is no formula
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in letters that the font lacks: boxes
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        for number, (name, panel) in enumerate(panels.items(), start=1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(cut(name, _LONGEST), fontsize=11)
            panel(axes, theme)
        if note:
            figure.supxlabel(fill(note, int(15 * size[0] * columns)), fontsize=9, color=theme.muted)
        return png(figure, 140)


# --- Scores by level (paper Figs 3, 10 and 11) -------------------------------------------------------------------


def scores_by_level(
    path: str | Path,
    labels: Sequence[Label],
    runs: Mapping[str, Sequence[Prediction]],
    taxonomy: Taxonomy | None = None,
) -> None:
    """Predicted score of every photo by its true level, one panel a run, written as PNG."""
    panels: dict[str, Panel] = {}
    for name, predictions in runs.items():
        missing = len(labels) - len(column(predictions, "score"))
        title = name + (f"  ({missing} of {len(labels)} without a score)" if missing else "")
        panels[title] = score_panel(labels, predictions, taxonomy)
    note = "shaded: the band of scores that belongs to a true level; line: median"
    write_bytes(path, draw(panels, size=(4.4, 4.4), note=note))


def score_panel(labels: Sequence[Label], predictions: Sequence[Prediction], taxonomy: Taxonomy | None = None) -> Panel:
    """Points jittered by true level. A point inside the shaded band of its level has the right level."""
    bands = (taxonomy or Taxonomy.default()).bands
    score_of = column(predictions, "score")
    size = 9 if len(labels) < 1500 else 3

    def panel(axes: Axes, theme: Theme) -> None:
        rng = np.random.default_rng(0)  # jitter, so that points do not hide one another
        for level, (low, top), color in zip(LEVELS, bands, theme.levels, strict=True):
            axes.fill_between([level - 0.42, level + 0.42], low, top, color=color, alpha=0.16, linewidth=0)
            scores = [score_of[label.id] for label in labels if label.level == level and label.id in score_of]
            if scores:
                jitter = rng.uniform(-0.3, 0.3, len(scores))
                axes.scatter(level + jitter, scores, s=size, color=color, alpha=0.6, linewidths=0)
                axes.hlines(np.median(scores), level - 0.36, level + 0.36, color=theme.ink, linewidth=1.4)
        if not score_of:
            counts = Counter(prediction.status for prediction in predictions).most_common()
            statuses = (f"{count:,} {status}" for status, count in counts)
            _say(axes, theme, "\n".join(["no photo has a score", *statuses]))
        axes.set_xticks(LEVELS, [f"level {level}" for level in LEVELS])
        axes.set(xlim=(0.5, 4.5), ylim=(-0.02, 1.02), xlabel="true level", ylabel="predicted score")

    return panel


def _say(axes: Axes, theme: Theme, why: str) -> None:
    """Why there is nothing to draw."""
    box = {"facecolor": theme.ground, "edgecolor": theme.muted, "boxstyle": "round,pad=0.6"}
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=theme.ink, bbox=box)


# --- Confusion matrices (paper Figs 8 and 9) ---------------------------------------------------------------------


def confusion_panel(counts: Sequence[Sequence[int]]) -> Panel:
    """(4, 4) counts, rows true levels; shaded by the share of the row."""

    def panel(axes: Axes, theme: Theme) -> None:
        table = np.asarray(counts, dtype=float)
        shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.15, aspect="equal")
        for row, level in np.ndindex(table.shape):
            color = "white" if shares[row, level] > 0.6 else "#1c1c1c"
            axes.text(level, row - 0.1, f"{table[row, level]:.0f}", ha="center", va="center", color=color)
            share = f"{shares[row, level]:.3f}" if table[row].sum() else "–"
            axes.text(level, row + 0.24, share, ha="center", va="center", color=color, fontsize=8)
        axes.set(xticks=range(4), xticklabels=LEVELS, yticks=range(4), yticklabels=LEVELS)
        axes.set(xlabel="predicted level", ylabel="true level")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    return panel


# --- Calibration -------------------------------------------------------------------------------------------------


def calibration_panel(bins: Bins, across: str = "predicted score", up: str = "mean true score") -> Panel:
    """Mean true score over mean predicted score in bins of ``reliability``, and how many fall in each.

    The names of the axes change where bins are of the true score.
    """

    def panel(axes: Axes, theme: Theme) -> None:
        axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
        color = theme.series[0]
        filled = [row for row in bins if row["n"]]
        if not filled:
            _say(axes, theme, "no photo has a score")
        most = max((row["n"] for row in filled), default=1)
        for row in filled:
            low, high = row["bin"]
            middle, height = (low + high) / 2, 0.16 * row["n"] / most
            axes.bar(middle, height, (high - low) * 0.9, -0.22, color=theme.muted, alpha=0.35, linewidth=0)
            axes.text(middle, height - 0.21, f"{row['n']:,}", ha="center", va="bottom", fontsize=7, color=theme.muted)
        points = [(row["mean_prediction"], row["mean_truth"]) for row in filled]
        axes.plot(*zip(*points, strict=True), color=color, linewidth=1.2, alpha=0.7)
        for row, (x, y) in zip(filled, points, strict=True):
            if row["ci"]:
                axes.vlines(x, *row["ci"], color=color, linewidth=1.2)
            face = color if row["n"] >= _FEW else theme.ground
            axes.plot(x, y, "o", markersize=5, color=color, markerfacecolor=face)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.24, 1.02), yticks=(0, 0.25, 0.5, 0.75, 1), xlabel=across, ylabel=up)

    return panel


# --- A figure against the training step --------------------------------------------------------------------------


def curve_panel(curves: Mapping[str, Sequence[tuple[int, float | None, Sequence[float] | None]]]) -> Panel:
    """Lines over training steps: name of the series -> (step, figure, interval) rising in step."""

    def panel(axes: Axes, theme: Theme) -> None:
        for number, (name, points) in enumerate(curves.items()):
            color, marker = theme.series[number % len(theme.series)], _MARKERS[number % len(_MARKERS)]
            known = [(step, value) for step, value, _ in points if value is not None]
            if known:
                label = cut(name, _LONGEST).lstrip("_")  # else it hides from the legend
                axes.plot(
                    *zip(*known, strict=True), color=color, marker=marker, markersize=5, linewidth=1.4, label=label
                )
            for step, value, interval in points:
                if value is not None and interval is not None:
                    axes.vlines(step, interval[0], interval[1], color=color, linewidth=1, alpha=0.7)
        if all(value is None for points in curves.values() for _, value, _ in points):
            _say(axes, theme, "undefined at every step")
        steps = sorted({step for points in curves.values() for step, _, _ in points})
        axes.set_xticks(steps if len(steps) <= 8 else steps[:: math.ceil(len(steps) / 8)])
        axes.set_xlabel("training step")
        axes.grid(axis="y", color=theme.muted, alpha=0.2, linewidth=0.6)
        if len(curves) > 1 and axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)

    return panel
