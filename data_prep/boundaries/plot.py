"""The pictures of ``cprt boundaries`` (paper Figs 5 and 6). matplotlib is imported when one is drawn."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cprt.files import write_bytes
from cprt.pages.colors import LEVEL_COLORS
from cprt.pages.plots import png
from cprt.scoring import severities, severity
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.boundaries.vectors import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def principal_axes(embeddings: Floats, counts: Ints) -> tuple[Floats, list[float]]:
    """(U, 2) coordinates on the first two principal axes of all rows, and the share of variance of each.

    ``embeddings`` (U, d) stand for ``counts`` (U,) rows each. An axis points where its largest entry is positive.
    """
    centred = embeddings - np.average(embeddings, axis=0, weights=counts)
    variances, axes = np.linalg.eigh(centred.T * counts @ centred / counts.sum())
    axes = axes[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    coordinates = np.zeros((len(embeddings), 2))
    coordinates[:, : axes.shape[1]] = centred @ axes
    return coordinates, (variances[::-1][:2] / max(variances.sum(), 1e-300)).tolist()


def draw_embeddings(path: str | Path, embeddings: Floats, levels: Ints, counts: Ints) -> list[float]:
    """PCA of the embeddings, coloured by level, written as PNG (Fig. 5). Returns the shares of variance of both axes.

    A point is a distinct attribute vector; its area grows with the number of rows that have it.
    """
    coordinates, explained = principal_axes(embeddings, counts)
    figure, panel = _canvas(6.4, 5.2)
    for level, color in zip(LEVELS, LEVEL_COLORS, strict=True):
        chosen = levels == level
        if chosen.any():
            label, area = f"level {level}  ({counts[chosen].sum():,} rows)", 6 + 10 * np.log2(counts[chosen])
            x, y = coordinates[chosen].T
            panel.scatter(x, y, s=area, color=color, alpha=0.55, linewidths=0, label=label)
    shares = [*explained, 0.0][:2]
    panel.set_xlabel(f"first principal axis ({shares[0]:.0%} of the variance)")
    panel.set_ylabel(f"second principal axis ({shares[1]:.0%})")
    panel.set_title("Attribute vectors in the learned embedding", fontsize=11)
    legend = panel.legend(frameon=False, fontsize=9)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set(sizes=[30], alpha=1)
    write_bytes(path, png(figure))
    return explained


def draw_scores(
    path: str | Path, taxonomy: Taxonomy, learnt: Mapping[int, float], ranges: Mapping[int, tuple[float, float]]
) -> None:
    """Severity score over the lexicographic score of every combination of counts, written as PNG (Fig. 6).

    The band of each level is shaded; one attribute alone, the paper's worked examples and the maximum are named. Dashed
    lines show where bands ``learnt`` from labels begin, level -> lower end; the strip around one is its range over
    seeds and settings.
    """
    combinations = np.asarray(list(itertools.product(*(range(size + 1) for size in taxonomy.sizes))))
    lexicographic, levels, scores = scores_of(combinations, taxonomy)
    figure, panel = _canvas(7.4, 5.0)
    for level, (low, top), color in zip(LEVELS, taxonomy.bands, LEVEL_COLORS, strict=True):
        chosen = levels == level
        panel.axhspan(low, top, color=color, alpha=0.1, linewidth=0)
        name = f"level {level}  ({chosen.sum():,} combinations)"
        panel.scatter(lexicographic[chosen], scores[chosen], s=9, color=color, linewidths=0, label=name)
    for counts, above in _landmarks(taxonomy):
        x, y = int(np.dot(counts, taxonomy.weights)), severity(counts, taxonomy).score
        text = f"({', '.join(map(str, counts))})  {y:.3f}"
        place, side = ((-6, 5), "right") if above else ((9, -3), "left")
        panel.annotate(text, (x, y), place, textcoords="offset points", fontsize=8, ha=side)
        panel.scatter([x], [y], s=26, facecolors="none", edgecolors="black", linewidths=0.9)
    for number, (level, low) in enumerate(learnt.items()):
        color = LEVEL_COLORS[level - 1]
        label = None if number else "learnt from the labels, and its range"
        panel.axhline(low, color=color, linewidth=1, linestyle="--", label=label)
        panel.axhspan(*ranges[level], color=color, alpha=0.25, linewidth=0)
    panel.set_xscale("symlog", linthresh=1)  # 0 has its place, and levels 2 to 4 are more than a line at the left
    panel.set_xlim(-0.1, lexicographic.max() * 2)
    panel.set_ylim(-0.04, 1.05)
    panel.set_xlabel("lexicographic score (logarithmic above 1)")
    panel.set_ylabel("severity score")
    panel.set_title(f"All {len(combinations):,} combinations of attribute counts", fontsize=11)
    panel.legend(frameon=False, fontsize=9, loc="upper left")
    write_bytes(path, png(figure))


def scores_of(combinations: Ints, taxonomy: Taxonomy) -> tuple[Ints, Ints, Floats]:
    """(C, 4) counts -> (C,) lexicographic scores (Eq. 1), levels and severity scores."""
    position = np.concatenate([np.arange(size) for size in taxonomy.sizes])  # of an attribute within its level
    level = np.repeat(np.arange(len(taxonomy.sizes)), taxonomy.sizes)
    levels, scores = severities((position < combinations[:, level]).astype(np.float64), taxonomy)
    return combinations @ np.asarray(taxonomy.weights), levels, scores


def _landmarks(taxonomy: Taxonomy) -> list[tuple[tuple[int, ...], bool]]:
    """Counts worth a name, and whether the name stands above its point: (2,10,5,4) and (1,10,0,0) are the paper's."""
    one, two, three, four = taxonomy.sizes
    lone = [counts for counts, size in zip(np.eye(4, dtype=int).tolist(), taxonomy.sizes, strict=True) if size]
    named = [(tuple(counts), False) for counts in lone] + [((one, two, three, four), True)]
    return named + ([((1, two, 0, 0), True), ((2, two, three, four), True)] if one >= 2 else [])


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panel = figure.subplots()
    panel.spines[["top", "right"]].set_visible(False)
    return figure, panel
