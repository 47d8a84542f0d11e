"""What ``cprt score`` says of a photo: the model's score, and beside it that of the attributes that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cprt.guidance.advice import compose, hide_in_order, without_each
from cprt.guidance.regulations import regulations_of
from cprt.scoring import Severity
from cprt.taxonomy import Taxonomy

# Which score photos are flagged and ordered by, in words.
FLAG_BY = {
    "severe": "the more severe of the score that the model states and that of the attributes it names",
    "stated": "the score that the model states",
    "composed": "the score of the attributes that the model names",
}


def flag_score(stated: float | None, composed: float | None, by: str) -> float | None:
    """The score to flag and order by, one of FLAG_BY; None where the answer gives none."""
    scores = {"stated": (stated,), "composed": (composed,), "severe": (stated, composed)}[by]
    return max((score for score in scores if score is not None), default=None)


def named(
    keys: Sequence[str], until_level: int | None, until_score: float | None, taxonomy: Taxonomy
) -> tuple[Severity, list[dict[str, Any]], dict[str, Any]]:
    """The score that the attributes ``keys`` make, and the row's ``attributes`` and ``advice``, all of that score."""
    composed = compose(keys, taxonomy)
    level_of_key = {attribute.key: attribute.level for attribute in taxonomy.attributes}
    attributes = [
        {
            "key": key,
            "name": taxonomy.names[key],
            "level": level_of_key[key],
            "regulations": regulations_of(key, taxonomy),
            "score_without": left.score,
            "level_without": left.level,
        }
        for key, left in without_each(keys, taxonomy).items()
    ]
    steps = hide_in_order(keys, until_level, until_score, taxonomy)
    advice = {
        "composed_score": composed.score,
        "composed_level": composed.level,
        "hide_first": attributes[0]["key"] if attributes else None,
        "order": [{"hide": step.key, "score": step.score, "level": step.level} for step in steps],
    }
    return composed, attributes, advice


def most_severe_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with a score, the most severe first."""
    return sorted((row for row in rows if row["score"] is not None), key=lambda row: -(row["flag_score"] or 0.0))


def contradiction(row: dict[str, Any], shown: Any) -> str:
    """In words, why a row contradicts itself. ``shown`` prints a score."""
    return (
        f"contradiction: states {shown(row['score'])}, level {row['level']}; its attributes make "
        f"{shown(row['advice']['composed_score'])}, level {row['advice']['composed_level']}"
    )
