"""The bar chart of ``cprt mi-compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cprt.pages.colors import LIGHT, Theme
from eval.report.plots import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def accuracy_chart(rows: Sequence[Mapping[str, Any]], theme: Theme = LIGHT) -> bytes:
    """Attack accuracy under E and under every judge, by set-up, highest under E on top, as PNG. Lines: 95% intervals.

    A judge's bar is missing where it did not judge a set-up. Where judges matched different reconstructions, the bar
    of E is that of the first.
    """
    judges = list(dict.fromkeys(row["judge"] for row in rows))
    of_setup: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        of_setup.setdefault(row["setup"], {})[row["judge"]] = row
    setups = sorted(of_setup, key=lambda setup: next(iter(of_setup[setup].values()))["accuracy_standard"])
    bars = 1 + len(judges)
    height = 0.8 / bars
    series = [("evaluation model E", theme.muted, "accuracy_standard", None)]
    series += [(name, theme.series[i % len(theme.series)], "accuracy_judge", name) for i, name in enumerate(judges)]

    def panel(axes: Axes, theme: Theme) -> None:
        for number, (label, color, key, judge) in enumerate(series):
            found = []
            for place, setup in enumerate(setups):
                row = next(iter(of_setup[setup].values())) if judge is None else of_setup[setup].get(judge)
                if row is not None:
                    found.append((place + 0.4 - height * (number + 0.5), row[key], *row["ci"][key]))
            y, value, low, high = zip(*found, strict=True)
            below = [max(0.0, v - bound) for v, bound in zip(value, low, strict=True)]
            above = [max(0.0, bound - v) for v, bound in zip(value, high, strict=True)]
            shown = f" {label}" if label.startswith("_") else label  # else it hides from the legend
            axes.barh(y, value, height=height * 0.92, color=color, label=shown)
            axes.errorbar(value, y, xerr=[below, above], fmt="none", ecolor=theme.ink, elinewidth=0.9, capsize=2)
        axes.set_yticks(range(len(setups)), setups, fontsize=9)
        axes.set_ylim(-0.6, len(setups) - 0.4)
        axes.set_xlim(0, 1.005)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0%", "20%", "40%", "60%", "80%", "100%"])
        axes.set_xlabel("attack accuracy (line: 95% interval)")
        axes.figure.legend(loc="outside upper center", ncols=min(bars, 3), frameon=False, fontsize=9)

    return draw({"": panel}, theme, (9, 1.5 + 0.15 * bars * len(setups) + 0.12 * len(setups)))
