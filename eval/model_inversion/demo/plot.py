"""The demo's picture: reconstructions of each kind beside the private person, and who accepts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cprt.files import write_bytes
from cprt.pages.plots import png

_YES, _NO = "#1b7837", "#a50026"
_TITLES = {
    "true": "true:\nthe private person",
    "someone else": "adversarial:\nsomeone else",
    "nobody": "adversarial:\nnobody",
    "failure": "failure:\nsomeone else",
}


@dataclass(frozen=True)
class Shown:
    """A reconstruction beside a picture of the private person, and whether T, E and the judge accept it."""

    private: Image.Image
    image: Image.Image
    target: bool
    standard: bool
    judge: bool


def draw(path: Path, rows: Sequence[Sequence[Shown]], kinds: Sequence[str]) -> None:
    """A row of pairs for each kind, written as PNG."""
    from matplotlib.figure import Figure

    columns = max(map(len, rows))
    figure = Figure(figsize=(1.5 + 2.1 * columns, 1.55 * len(rows) + 0.6))
    grid = figure.subplots(len(rows), columns, squeeze=False)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(1.5 / width, 0.3 / height, 0.995, 1 - 0.55 / height, wspace=0.08, hspace=0.35)
    figure.suptitle("left: the private person; right: the reconstruction that claims to show them", fontsize=10)
    for axes, pairs, kind in zip(grid, rows, kinds, strict=True):
        for axis in axes:
            axis.axis("off")
        for axis, pair in zip(axes, pairs, strict=False):
            gap = np.full((pair.image.height, 2, 3), 255, dtype=np.uint8)
            axis.imshow(np.hstack([np.asarray(pair.private), gap, np.asarray(pair.image)]))
            said = ((0.17, "T", pair.target), (0.47, "E", pair.standard), (0.8, "judge", pair.judge))
            for place, who, accepts in said:
                style: dict[str, Any] = {"color": _YES if accepts else _NO, "ha": "center", "va": "top", "fontsize": 8}
                axis.text(place, -0.03, f"{who} {'yes' if accepts else 'no'}", transform=axis.transAxes, **style)
        axes[0].text(-0.08, 0.5, _TITLES[kind], transform=axes[0].transAxes, ha="right", va="center", fontsize=9)
    write_bytes(path, png(figure))
