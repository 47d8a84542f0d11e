"""What the report is made of, worked out from labels and predictions: no markup, no picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cprt.metrics.bootstrap import mean_interval
from cprt.metrics.results import Figures, Metrics
from cprt.records import Label, Prediction, column, inside
from cprt.taxonomy import LEVELS, Taxonomy
from eval.measures import HEADS
from eval.tables import Cell, Table

BINS = 10
LISTED = 100  # rows of each run in either list
FEWEST_SCORES = 5  # a judge that uses fewer distinct ones tells photos of one level hardly apart


@dataclass(frozen=True)
class ListedRow:
    """One photo as one run judged it."""

    run: str
    label: Label
    prediction: Prediction | None  # None where the run has no row for the photo

    @property
    def score(self) -> float | None:
        return None if self.prediction is None else self.prediction.score

    @property
    def error(self) -> float | None:
        """Prediction minus truth."""
        return None if self.score is None else self.score - self.label.score

    @property
    def size(self) -> float:
        """Of the error, 0 where there is none."""
        return abs(self.error or 0.0)

    @property
    def status(self) -> str:
        return "missing" if self.prediction is None else self.prediction.status

    @property
    def named(self) -> list[str] | None:
        """The attributes that the judge named."""
        return None if self.prediction is None else self.prediction.attributes

    @property
    def said(self) -> str:
        """What the judge answered, or why there is no answer."""
        return "" if self.prediction is None else self.prediction.text or self.prediction.error or ""


def judged(labels: Sequence[Label], runs: Mapping[str, Sequence[Prediction]]) -> list[list[ListedRow]]:
    """For every label, a row of each run."""
    by_id = {name: {prediction.id: prediction for prediction in predictions} for name, predictions in runs.items()}
    return [[ListedRow(name, label, found.get(label.id)) for name, found in by_id.items()] for label in labels]


def largest_errors(rows: Sequence[Sequence[ListedRow]], count: int = LISTED) -> list[ListedRow]:
    """The ``count`` largest absolute errors of each run, the largest first. ``rows`` as ``judged`` gives them."""
    runs = ([row for row in of_run if row.error is not None] for of_run in zip(*rows, strict=True))
    found = chain(*(sorted(of_run, key=lambda row: -row.size)[:count] for of_run in runs))
    return sorted(found, key=lambda row: -row.size)


def without_score(rows: Sequence[Sequence[ListedRow]], count: int = LISTED) -> list[ListedRow]:
    """Up to ``count`` rows of each run that have no score, the most severe photos first."""
    runs = ([row for row in of_run if row.error is None] for of_run in zip(*rows, strict=True))
    return [row for of_run in runs for row in sorted(of_run, key=lambda row: -row.label.score)[:count]]


def by_largest_error(rows: Sequence[Sequence[ListedRow]]) -> list[Sequence[ListedRow]]:
    """The photos of ``judged``, those that some run judged worst first."""
    return sorted(rows, key=lambda of_photo: -max(row.size for row in of_photo))


def unscored_by_level(labels: Sequence[Label], predictions: Sequence[Prediction]) -> list[int]:
    """How many photos of true levels 1 to 4 have no score."""
    scored = column(predictions, "score")
    return [sum(label.level == level and label.id not in scored for label in labels) for level in LEVELS]


def few_scores(predictions: Sequence[Prediction]) -> list[tuple[float, int]]:
    """The distinct scores of a judge that uses fewer than FEWEST_SCORES, with their counts, the most used first.

    Empty where it uses more, or has not scored enough photos to tell.
    """
    counts = Counter(column(predictions, "score").values())
    told = counts.total() >= 2 * FEWEST_SCORES and len(counts) < FEWEST_SCORES
    return counts.most_common() if told else []


def reliability(prediction: ArrayLike, truth: ArrayLike, bins: int = BINS, seed: int = 0) -> list[dict[str, Any]]:
    """Mean true score of the photos whose predicted score falls in each of ``bins`` equal parts of [0, 1].

    A bin takes its lower end, the last one both. Each is ``bin`` [low, high], ``n``, ``mean_prediction``,
    ``mean_truth`` and ``ci``, the 95% bootstrap interval of the latter; None where no photo falls in it, and ``ci``
    where their true scores are all the same.
    """
    p, t = np.asarray(prediction, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    edges = np.arange(bins + 1) / bins
    place = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, bins - 1)
    rows = []
    for number, ends in enumerate(pairwise(edges.tolist())):
        predicted, true = p[place == number], t[place == number]
        n = len(true)
        row = {
            "bin": [*ends],
            "n": n,
            "mean_prediction": float(predicted.mean()) if n else None,
            "mean_truth": float(true.mean()) if n else None,
            "ci": mean_interval(true, seed=seed),
        }
        rows.append(row)
    return rows


def response_of(labels: Sequence[Label], predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The other way about: mean predicted score of the photos whose true score falls in each bin, under ``mean_truth``.

    A judge that takes privacy as nearly binary (paper 5.3) pulls the middle to the ends.
    """
    return reliability(*scored(labels, predictions)[::-1])


def scored(labels: Sequence[Label], predictions: Sequence[Prediction]) -> tuple[list[float], list[float]]:
    """Predicted and true scores of the photos that have one."""
    truth, scores = {label.id: label.score for label in labels}, column(predictions, "score")
    return list(scores.values()), [truth[id] for id in scores]


def error_groups(metrics: Mapping[str, Metrics], taxonomy: Taxonomy) -> dict[str, list[dict[str, Any]]]:
    """What photos are grouped by, in words -> its groups that have photos (paper 5.3).

    Each is ``name``, ``n`` photos, and the errors ``of_runs``, None for a run that has no such group.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, head in _GROUPINGS.items():
        of_kind = [figures.errors_by.get(kind, {}) for figures in metrics.values()]
        for key in dict.fromkeys(chain(*of_kind)):
            of_runs = [groups.get(key) for groups in of_kind]
            n = max(errors.n for errors in of_runs if errors is not None)
            name = taxonomy.names.get(key, key) if kind == "attribute" else key
            if n:
                found.setdefault(head, []).append({"name": name, "n": n, "of_runs": of_runs})
    return found


_GROUPINGS = {"level": "true level", "attributes": "number of attributes", "attribute": "attribute present"}


# --- Tables ------------------------------------------------------------------------------------------------------


def other_ways(metrics: Metrics) -> list[tuple[str, Figures]]:
    """The other ways to a score, each with its figures."""
    ways = [(f"{name} score", figures) for name, figures in metrics.decodings.items()]
    for name, kinds in (metrics.calibrated or {}).items():
        ways += [(f"{name} score, {kind} calibration", figures) for kind, figures in kinds.items()]
    return [(name.replace("_", " "), figures) for name, figures in ways]


def ways_met(runs: Sequence[Metrics]) -> dict[str, str]:
    """The other ways to a score that some run has -> what each is, in words."""
    met = {name for figures in runs for name in (*figures.decodings, *(figures.calibrated or {}))}
    words = {f"{name.replace('_', ' ')} score": said for name, said in _WAYS.items() if name in met}
    return words | ({"calibration": _CALIBRATED} if any(figures.calibrated for figures in runs) else {})


_WAYS = {
    "expected": "mean over the probabilities of all scores from 0.000 to 1.000",
    "median": "their median",
    "composed": "the exact score of the attributes that the answer names",
    "likeliest": "the exact score of the list of attributes that the model finds most probable",
    "level_mean": "mean of the exact scores of all such lists in the most probable level",
    "mean": "mean of the exact scores of all such lists",
}
_CALIBRATED = "a map from scores to the truth, learnt on a hold-out"


def results_table(metrics: Mapping[str, Figures]) -> Table:
    """The figures of every run, in the paper's order of columns."""
    rows: list[list[Cell]] = [
        [run, *(None if (value := figures.figure(name)) is None else f"{value:.3f}" for name in HEADS)]
        for run, figures in metrics.items()
    ]
    return Table("results", "figures of every run", ["Run", *HEADS.values()], rows)


def provenance(record: Mapping[str, Any]) -> dict[str, str]:
    """What made a run, in words, from its run.json, which may come from anywhere."""

    def said(*keys: str) -> str:
        found = inside(record, *keys[:-1]).get(keys[-1])
        return str(found) if isinstance(found, (str, int, float)) else ""

    asked = [said("prompt", "name"), said("prompt", "target")]
    held, free = said("decoding", "structured"), said("decoding", "not_structured")
    facts = {
        "Model": said("config", "judge", "model"),
        "Adapter": said("config", "judge", "adapter"),
        "Revision": said("config", "judge", "revision"),
        "Asked with": " prompt for ".join(filter(None, asked)),
        "Answers": f"structured, by {held}" if held else f"free: {free}" if free else "",
        "Precision": said("dtype"),
        "On": said("created").partition("T")[0],
        "Labels": f"{said('inputs', 'labels', 'path')} {said('inputs', 'labels', 'sha256')[:12]}".strip(),
        "Code": f"cprt {said('cprt')} {said('git')[:12]}".strip(),
    }
    return facts if record else {}
