"""Plots as files and in pages, there in a light and a dark version."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from cprt.pages.colors import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def png(figure: Figure, dpi: int = 130) -> bytes:
    """A matplotlib figure as a PNG; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def in_both_themes(draw: Callable[[Theme], bytes]) -> dict[str, str]:
    """What ``draw`` makes of each theme, as data URIs, by the name that pages have for it."""
    return {
        name: "data:image/png;base64," + base64.b64encode(draw(theme)).decode()
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
