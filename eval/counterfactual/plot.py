"""The picture of ``cprt counterfactual``: every score before and after, and the means beside the truth's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.files import write_bytes
from cprt.pages.colors import LEVEL_COLORS
from cprt.pages.plots import png
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import GROUPS

_COLORS = {"face": "#d6604d", "id": "#762a83", "other": "#1b7837"}
_TITLES = {"face": "face, no ID", "id": "government ID", "other": "neither"}


def draw(path: Path, rows: Sequence[dict[str, Any]], summary: Mapping[str, Any], taxonomy: Taxonomy) -> None:
    """A panel for each run and group, written as PNG.

    A thin line is one photo, the thick one the run's mean, the dotted one its mean where the plain question was asked
    again, the dashed black one the truth's mean over the same photos. The bands of the levels are shaded. A photo
    without a score before and after cannot be drawn; each panel says how many.
    """
    from matplotlib.figure import Figure

    groups = [group for group in GROUPS if any(row["group"] == group for row in rows)]
    figure = Figure(figsize=(1.4 + 2.5 * len(groups), 0.9 + 3.0 * len(summary["runs"])), layout="constrained")
    grid = figure.subplots(len(summary["runs"]), len(groups), sharex=True, sharey=True, squeeze=False)
    for panels, (run, of_run) in zip(grid, summary["runs"].items(), strict=True):
        for panel, group in zip(panels, groups, strict=True):
            own = [row for row in rows if row["run"] == run and row["group"] == group]
            scored = [row for row in own if row["before"] is not None and row["after"] is not None]
            part, color = of_run[group], _COLORS[group]
            for (low, top), shade in zip(taxonomy.bands, LEVEL_COLORS, strict=True):
                panel.axhspan(low, top, color=shade, alpha=0.10, linewidth=0)
            for row in scored:
                panel.plot([0, 1], [row["before"], row["after"]], color=color, alpha=0.3, linewidth=0.8)
            if scored:
                panel.plot([0, 1], [part["before"], part["after"]], color=color, linewidth=3, label="mean of the run")
                if part["self_change"] is not None:
                    again = [part["before"], part["before"] + part["self_change"]]
                    panel.plot([0, 1], again, color=color, linestyle=":", linewidth=2, label="asked again")
                truth = [part["truth_before"], part["truth_after"]]
                panel.plot([0, 1], truth, color="black", linestyle="--", linewidth=1.6, label="truth")
            lost = f", {len(own) - len(scored)} without a score" if len(scored) < len(own) else ""
            panel.set_title(f"{_TITLES[group]} (n = {len(scored)}{lost})", fontsize=9)
            panel.set(xlim=(-0.25, 1.25), ylim=(0, 1))
            panel.set_xticks([0, 1], ["as it is", "faces\nanonymised"])
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel(f"{run}\nseverity score", fontsize=9)
    handles = [panel for row in grid for panel in row if panel.get_legend_handles_labels()[0]]
    if handles:
        handles[0].legend(loc="lower left", fontsize=8, frameon=False)
    write_bytes(path, png(figure))
