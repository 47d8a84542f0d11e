"""Colours of every picture and page, told apart by colour-blind readers too. Nothing is said by colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Levels 1 to 4, one hue a level: on white, and on a dark ground.
LEVEL_COLORS = ("#a50026", "#e08214", "#4393c3", "#878787")
LEVEL_COLORS_DARK = ("#ff7080", "#f2a33c", "#6bb8ec", "#a8a8a8")

# Series in one chart, after Okabe and Ito (2008).
SERIES_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
SERIES_COLORS_DARK = ("#56b4e9", "#e69f00", "#35c79b", "#e29cc4", "#f0e442", "#ff8f4d")


@dataclass(frozen=True)
class Theme:
    """Colours of a picture: of text and axes, of what matters less, of the ground, of levels and of series."""

    ink: str
    muted: str
    ground: str
    levels: tuple[str, ...]
    series: tuple[str, ...]

    @property
    def rc(self) -> Any:
        """For matplotlib's ``rc_context``."""
        inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        return dict.fromkeys(inked, self.ink) | dict.fromkeys(("figure.facecolor", "axes.facecolor"), self.ground)


LIGHT = Theme("#1c1c1c", "#6a6a6a", "#ffffff", LEVEL_COLORS, SERIES_COLORS)
DARK = Theme("#e6e7e9", "#a2a8b0", "#15171a", LEVEL_COLORS_DARK, SERIES_COLORS_DARK)  # as page.css has it
