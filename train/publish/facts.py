"""What a card is written from beside the adapter itself: what was measured, the paper's rows, data sets, the prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import read_yaml
from cprt.metrics.attribute_rows import attribute_rows, costliest
from cprt.metrics.results import Metrics
from cprt.paper import TUNED, table6
from cprt.provenance import model_digest, run_path
from cprt.records import inside, read_json
from cprt.taxonomy import Taxonomy
from cprt.values import is_number

# The paper's figures in its order (Table 3), as metrics.json names them.
FIGURES = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mae": "MAE",
    "bias": "Bias",
    "level_accuracy": "Level accuracy",
    "inter_level_accuracy": "Inter-level pairwise accuracy",
    "intra_level_accuracy": "Intra-level pairwise accuracy",
    "coverage": "Coverage",
}
DATA = ("vispr", "drawings", "other")


@cache
def facts() -> dict[str, Any]:
    """``facts.yaml``: data sets, licences, and the paper's rows with their figures."""
    content = dict(read_yaml(Path(__file__).with_name("facts.yaml")))
    tuned = {row["model"]: row for row in table6() if row["prompting"] == TUNED}
    content["paper"] = {name: {**tuned[row["row"]], **row} for name, row in content["paper"].items()}
    return content


@dataclass(frozen=True)
class Measured:
    """``metrics.json`` as ``cprt eval`` or ``cprt metrics`` writes it, and what is known of how it came about.

    ``is_own`` says whether its run record names this very adapter; None where there is no such record. ``attributes``:
    the rows of ``cprt.metrics.attribute_rows``, none where the judge named no attributes.
    """

    figures: dict[str, float | None]
    intervals: dict[str, list[float] | None]
    n: int
    statuses: dict[str, int]
    is_own: bool | None
    prompt: str | None
    attributes: list[dict[str, Any]]
    costliest: str | None

    @staticmethod
    def read(file: Path, adapter: Path, taxonomy: Taxonomy) -> Measured:
        """Raises InputError for a file that is none, and for the metrics of another model."""
        metrics = Metrics.read(file)
        for name in ("n", "coverage"):
            if not metrics.n or metrics.figure(name) is None:
                raise InputError.at(file, "says that no photo was asked about", field=name)
        figures = {name: metrics.figure(name) for name in FIGURES}
        record = next((read_json(path) for path in (run_path(file), file.parent / "run.json") if path.is_file()), None)
        record = record if isinstance(record, dict) else None
        measured = record.get("adapter", "") if record else ""  # only cprt eval records it, null for a base alone
        if measured != "" and measured != model_digest(adapter):
            raise InputError(f"{file}: was not measured on {adapter}, but on another model (see its run.json)")
        return Measured(
            figures,
            metrics.ci,
            metrics.n,
            metrics.status_counts,
            True if measured else None,
            inside(record or {}, "prompt").get("sha256"),
            [vars(row) for row in attribute_rows(metrics, taxonomy)],
            costliest(metrics, taxonomy),
        )


def find_paper_row(base: str, steps: Any) -> str | None:
    """The paper's row for a base, of two the one with the nearer number of steps; None if it has none."""
    fitting = {key: row for key, row in facts()["paper"].items() if re.match(row["base"], base.partition("/")[2])}
    if not fitting:
        return None
    return min(fitting, key=lambda key: abs(fitting[key]["steps"] - (steps if is_number(steps) else 0)))
