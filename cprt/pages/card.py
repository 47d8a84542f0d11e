"""The data card of a set of pairs: how many photos show each level and attribute (paper Fig. 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cprt.pages.colors import LEVEL_COLORS
from cprt.pages.plots import png
from cprt.records import Label
from cprt.taxonomy import LEVELS, Taxonomy


def data_card(parts: Mapping[str, Sequence[Label]], taxonomy: Taxonomy) -> dict[str, Any]:
    """Part -> ``{pairs, levels{level: n}, attributes{key: n}, without_attribute}``, ready for JSON."""
    card: dict[str, Any] = {}
    for name, labels in parts.items():
        levels = Counter(label.level for label in labels)
        attributes = Counter(key for label in labels for key in label.present(taxonomy))
        card[name] = {
            "pairs": len(labels),
            "levels": {str(level): levels[level] for level in LEVELS},
            "attributes": {key: attributes[key] for key in taxonomy.keys},
            "without_attribute": sum(not label.present(taxonomy) for label in labels),
        }
    return card


def card_picture(card: Mapping[str, Any], taxonomy: Taxonomy) -> bytes:
    """The card as a PNG: photos a level on the left, photos an attribute on the right, one row of panels a part."""
    from matplotlib.figure import Figure

    parts = [name for name, part in card.items() if isinstance(part, dict) and part["pairs"]]
    figure = Figure(figsize=(11, 0.4 + 3.4 * len(parts)), layout="constrained")
    panels = figure.subplots(len(parts), 2, squeeze=False, width_ratios=[1, 4])
    color_of = dict(zip(LEVELS, LEVEL_COLORS, strict=True))
    for (levels, attributes), name in zip(panels, parts, strict=True):
        part = card[name]
        bars = levels.bar(
            [f"L{level}" for level in LEVELS], [part["levels"][str(level)] for level in LEVELS], color=LEVEL_COLORS
        )
        levels.bar_label(bars, fontsize=8)
        levels.set_ylabel("photos")
        levels.set_title(f"{name}: {part['pairs']} photos by level", fontsize=10)
        bars = attributes.bar(
            list(taxonomy.keys),
            [part["attributes"][key] for key in taxonomy.keys],
            color=[color_of[attribute.level] for attribute in taxonomy.attributes],
        )
        attributes.bar_label(bars, fontsize=8)
        attributes.set_title(f"{name}: photos by attribute ({part['without_attribute']} show none)", fontsize=10)
        attributes.tick_params(axis="x", labelrotation=60, labelsize=8)
        for label in attributes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
        for panel in (levels, attributes):
            panel.spines[["top", "right"]].set_visible(False)
    return png(figure, 110)
