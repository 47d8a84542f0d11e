"""Pictures of results. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cprt.colors import LEVEL_COLORS
from cprt.records import Label, Prediction
from cprt.taxonomy import LEVELS, Taxonomy


def scores_by_level(
    path: str | Path,
    labels: Sequence[Label],
    runs: Mapping[str, Sequence[Prediction]],
    taxonomy: Taxonomy | None = None,
) -> None:
    """Predicted score of every photo by its true level, one panel a run (as paper Figs 10 and 11), written as PNG.

    The band of each level is shaded behind its points: a point inside it has the right level. The short line is the
    median. Photos without a score cannot be drawn; each panel says how many there are.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bounds = (taxonomy or Taxonomy.default()).lower_bounds
    tops = (1.0, *bounds[:-1])
    figure = Figure(figsize=(1.2 + 4.2 * len(runs), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    rng = np.random.default_rng(0)  # jitter, so that points do not hide one another
    for panel, (name, predictions) in zip(panels, runs.items(), strict=True):
        score_of = {prediction.id: prediction.score for prediction in predictions}
        for level, low, top, color in zip(LEVELS, bounds, tops, LEVEL_COLORS, strict=True):
            x = 5 - level  # level 4, the least severe, on the left
            panel.fill_between([x - 0.42, x + 0.42], low, top, color=color, alpha=0.15, linewidth=0)
            of_level = [score_of.get(label.id) for label in labels if label.level == level]
            scores = np.asarray([score for score in of_level if score is not None], dtype=float)
            if len(scores):
                jitter = rng.uniform(-0.3, 0.3, len(scores))
                panel.scatter(x + jitter, scores, s=9, color=color, alpha=0.6, linewidths=0)
                panel.hlines(np.median(scores), x - 0.36, x + 0.36, color="black", linewidth=1.4)
        missing = sum(score_of.get(label.id) is None for label in labels)
        panel.set_title(name + (f"  ({missing} of {len(labels)} without a score)" if missing else ""), fontsize=11)
        panel.set_xticks([5 - level for level in LEVELS], [f"level {level}" for level in LEVELS])
        panel.set_xlim(0.5, 4.5)
        panel.set_ylim(-0.02, 1.02)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("predicted severity score")
    figure.supxlabel("true level (shaded: the band of scores that belongs to it; line: median)", fontsize=9)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
