"""The bar chart of ``cprt mi-compare``. matplotlib is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cprt.pages.colors import LIGHT, Theme
from cprt.pages.plots import png


def accuracy_chart(rows: Sequence[Mapping[str, Any]], theme: Theme = LIGHT) -> bytes:
    """Attack accuracy under E and under every judge, by set-up, highest under E on top, as PNG. Lines: 95% intervals.

    A judge's bar is missing where it did not judge a set-up. Where judges matched different reconstructions, the bar
    of E is that of the first.
    """
    from matplotlib import rc_context

    with rc_context(theme.rc):
        return _draw(rows, theme)


def _draw(rows: Sequence[Mapping[str, Any]], theme: Theme) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    judges = list(dict.fromkeys(row["judge"] for row in rows))
    of_setup: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        of_setup.setdefault(row["setup"], {})[row["judge"]] = row
    setups = sorted(of_setup, key=lambda setup: next(iter(of_setup[setup].values()))["accuracy_standard"])
    bars = 1 + len(judges)
    height = 0.8 / bars
    figure = Figure(figsize=(9, 1.5 + 0.15 * bars * len(setups) + 0.12 * len(setups)), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    series = [("evaluation model E", theme.muted, "accuracy_standard", None)]
    series += [(name, theme.series[i % len(theme.series)], "accuracy_judge", name) for i, name in enumerate(judges)]
    for number, (label, color, key, judge) in enumerate(series):
        found = []
        for place, setup in enumerate(setups):
            row = next(iter(of_setup[setup].values())) if judge is None else of_setup[setup].get(judge)
            if row is not None:
                found.append((place + 0.4 - height * (number + 0.5), row[key], *row["ci"][key]))
        y, value, low, high = zip(*found, strict=True)
        below = [max(0.0, v - bound) for v, bound in zip(value, low, strict=True)]
        above = [max(0.0, bound - v) for v, bound in zip(value, high, strict=True)]
        panel.barh(y, value, height=height * 0.92, color=color, label=_plain(label))
        panel.errorbar(value, y, xerr=[below, above], fmt="none", ecolor=theme.ink, elinewidth=0.9, capsize=2)
    panel.set_yticks(range(len(setups)), [_plain(setup) for setup in setups], fontsize=9)
    panel.set_ylim(-0.6, len(setups) - 0.4)
    panel.set_xlim(0, 1.005)
    panel.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0%", "20%", "40%", "60%", "80%", "100%"])
    panel.set_xlabel("attack accuracy (line: 95% interval)")
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=min(bars, 3), frameon=False, fontsize=9)
    return png(figure)


def _plain(name: str) -> str:
    """A dollar sign would begin a formula, an underscore in front hides a name from the legend."""
    return f" {name}".replace("$", r"\$") if name.startswith("_") else name.replace("$", r"\$")
