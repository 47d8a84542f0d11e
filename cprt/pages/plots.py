"""Plots as files and in pages."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def png(figure: Figure, dpi: int = 130) -> bytes:
    """A matplotlib figure as a PNG; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
