"""What the paper publishes (arXiv:2603.21573v1), as data: every page, card and table takes it from here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cprt.files import read_yaml

_PUBLISHED = Path(__file__).with_name("paper.yaml")
TUNED = "SFT"  # the prompting of Table 6 under which the fine-tuned models stand
# Prompting of Table 6 -> our prompt.
PROMPTINGS = {"Zero-Shot": "zero_shot", "Intuition": "intuition", "Taxonomy": "taxonomy", TUNED: "taxonomy"}


@cache
def _published() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(_PUBLISHED)
    return content


def table1() -> dict[int, int]:
    """Level -> test photos."""
    return {int(level): count for level, count in _published()["table1"].items()}


def table2() -> list[dict[str, Any]]:
    """Rows of ``comparison``, ``between`` (two names), ``agreement_percent`` and ``kappa``, in the paper's order."""
    return [dict(row) for row in _published()["table2"]]


def human_agreement_by_level() -> dict[int, float]:
    """Level -> agreement among people in per cent (4.1); none is given for level 4."""
    return {int(level): percent for level, percent in _published()["human_agreement_percent_by_level"].items()}


def model_agreement_by_level() -> dict[str, dict[int, float | str]]:
    """``model_human`` and ``model_model`` -> level -> average agreement in per cent, or a range in words (4.1)."""
    found = _published()["model_agreement_percent_by_level"]
    return {name: {int(level): percent for level, percent in levels.items()} for name, levels in found.items()}


def figure6() -> dict[str, Any]:
    """``examples`` of counts, lexicographic score and severity score (A.6), and how many ``combinations`` there are."""
    found: dict[str, Any] = _published()["figure6"]
    return found


def figure7() -> dict[str, dict[str, int]]:
    """Split -> ``all`` photos and, of the evaluation split, those of each level (Table 1, C.2)."""
    levels = {str(level): count for level, count in table1().items()}
    return {"evaluation": {"all": sum(levels.values()), **levels}, "SFT": {"all": _published()["sft_photos"]}}


def table6() -> list[dict[str, Any]]:
    """Rows of ``prompting``, ``model`` and figures under the names of metrics.json, in the paper's order."""
    table = _published()["table6"]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def families() -> list[dict[str, str]]:
    """What Figures 8 and 10, and 9 and 11, show: model of Table 6 -> what configs/eval/table6.yaml calls it."""
    return [dict(family) for family in _published()["families"]]


def table3() -> list[dict[str, Any]]:
    """The rows of Table 6 that the main text shows: all but the fine-tuned models after the first."""
    rows = table6()
    tuned = [row for row in rows if row["prompting"] == TUNED]
    return [row for row in rows if row not in tuned[1:]]
