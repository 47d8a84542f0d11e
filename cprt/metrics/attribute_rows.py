"""How well attributes are seen, for pages and cards: a row an attribute, a row a level, and the costliest error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cprt.metrics.results import Metrics
from cprt.pages.words import show
from cprt.records import inside
from cprt.taxonomy import Taxonomy

# Head of the column: the part of ``metrics.json``, and the figure in it.
HEADS = {
    "Precision": ("seen", "precision"),
    "Recall": ("seen", "recall"),
    "ROC area": ("chances", "auc"),
    "Average precision": ("chances", "average_precision"),
    "Brier": ("chances", "brier"),
    "Cost of misses": ("costs", "missed"),
    "Cost of inventions": ("costs", "invented"),
}


@dataclass(frozen=True)
class AttributeRow:
    """One attribute, or all of one level. ``figures``: head -> value and interval, None where undefined or unknown."""

    name: str
    level: int
    support: int | None
    figures: dict[str, tuple[float | None, Any]]


def attribute_rows(metrics: Metrics, taxonomy: Taxonomy) -> list[AttributeRow]:
    """The attributes in the taxonomy's order, then the levels; none where no attribute was named."""
    places = [("per_attribute", one.key, taxonomy.names[one.key], one.level) for one in taxonomy.attributes]
    places += [("levels", str(one.level), f"level {one.level}", one.level) for one in taxonomy.levels]
    found = []
    for kind, key, name, level in places if metrics.attributes else []:
        parts = {
            "seen": inside(metrics.attributes, kind, key),
            "chances": inside(metrics.attribute_probabilities, kind, key),
            "costs": inside(metrics.attributes, "costs", key),
        }
        figures = {head: (parts[part].get(of), inside(parts[part], "ci").get(of)) for head, (part, of) in HEADS.items()}
        found.append(AttributeRow(name, level, parts["seen"].get("support"), figures))
    return found


def costliest(metrics: Metrics, taxonomy: Taxonomy) -> str | None:
    """The error that costs most severity, in a sentence; None where no attribute was named, or none wrongly."""
    one = inside(metrics.attributes, "costliest")
    if not one.get("cost") or one.get("attribute") not in taxonomy.names:
        return None
    wrong = "missed" if one["error"] == "missed" else "named where it is not there"
    cost = show(one["cost"], inside(metrics.attributes, "costs", one["attribute"], "ci").get(one["error"]))
    of_it = "takes" if one["error"] == "missed" else "adds"
    name = taxonomy.names[one["attribute"]]
    return f"The costliest error: {name} {wrong}, which {of_it} {cost} of severity a photo."
