"""The demo's picture: reconstructions of each kind beside the private person, and who accepts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cprt.files import write_bytes
from cprt.images import load_image
from cprt.pages.plots import png

_YES, _NO = "#1b7837", "#a50026"
_TITLES = {
    "true": "true:\nthe private person",
    "someone else": "adversarial:\nsomeone else",
    "nobody": "adversarial:\nnobody",
    "failure": "failure:\nsomeone else",
}
_COLUMNS = 6


def draw(path: Path, private: Path, images: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The first reconstruction of each kind of each of the first people, as PNG: not chosen by outcome.

    Args:
        private, images: folders of CLASS/FILE.
        rows: what is said of the reconstructions, as ``summary.verdicts`` has it.
    """
    from matplotlib.figure import Figure

    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        first.setdefault((row["kind"], row["class"]), row)
    of_kind = {kind: [row for (other, _), row in first.items() if other == kind][:_COLUMNS] for kind in _TITLES}
    columns = max(map(len, of_kind.values()))
    figure = Figure(figsize=(1.5 + 2.1 * columns, 1.55 * len(of_kind) + 0.6))
    grid = figure.subplots(len(of_kind), columns, squeeze=False)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(1.5 / width, 0.3 / height, 0.995, 1 - 0.55 / height, wspace=0.08, hspace=0.35)
    figure.suptitle("left: the private person; right: the reconstruction that claims to show them", fontsize=10)
    for axes, (kind, shown) in zip(grid, of_kind.items(), strict=True):
        for axis in axes:
            axis.axis("off")
        for axis, row in zip(axes, shown, strict=False):
            person = load_image(sorted((private / row["class"]).iterdir())[0])
            image = load_image(images / row["class"] / row["filename"])
            gap = np.full((image.height, 2, 3), 255, dtype=np.uint8)
            axis.imshow(np.hstack([np.asarray(person), gap, np.asarray(image)]))
            for place, who in ((0.17, "T"), (0.47, "E"), (0.8, "judge")):
                said, color = ("yes", _YES) if row[who] else ("no", _NO)
                style: dict[str, Any] = {"color": color, "ha": "center", "va": "top", "fontsize": 8}
                axis.text(place, -0.03, f"{who} {said}", transform=axis.transAxes, **style)
        axes[0].text(-0.08, 0.5, _TITLES[kind], transform=axes[0].transAxes, ha="right", va="center", fontsize=9)
    write_bytes(path, png(figure))
