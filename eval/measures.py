"""What predictions are worth against labels: the figures of every way to a score, of attributes, and of certainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cprt.errors import InputError
from cprt.metrics.attributes import evaluate_attributes, evaluate_probabilities
from cprt.metrics.breakdown import by_group, groups_of
from cprt.metrics.certainty import evaluate_certainty
from cprt.metrics.results import Figures, Metrics
from cprt.metrics.severity import evaluate, paired_differences
from cprt.pages.words import show
from cprt.records import Label, Prediction, column
from cprt.taxonomy import Taxonomy

# Column heads of every table, in the paper's order (Table 3).
HEADS = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mae": "MAE",
    "bias": "Bias",
    "level_accuracy": "Level Acc",
    "inter_level_accuracy": "Inter-Acc",
    "intra_level_accuracy": "Intra-Acc",
    "coverage": "Coverage",
}
# Name in metrics.json -> column of predictions.jsonl.
DECODINGS = {
    "expected": "expected_score",
    "median": "median_score",
    "composed": "composed_score",
    "likeliest": "likeliest_score",
    "level_mean": "level_mean_score",
    "mean": "mean_score",
}
STATED = "stated"


def measure(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    taxonomy: Taxonomy,
    file: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Metrics:
    """Metrics of prediction rows against label rows. Raises InputError that names ``file``."""
    drawn = {"resamples": resamples, "seed": seed}
    stated = column(predictions, "score")
    figures = figures_of(labels, predictions, stated, taxonomy, file, **drawn)
    decodings = {
        name: figures_of(labels, predictions, scores, taxonomy, file, **drawn)
        for name, of in DECODINGS.items()
        if (scores := column(predictions, of))
    }
    truth, named = present_in(labels, taxonomy), column(predictions, "attributes")
    unknown = next((key for keys in named.values() for key in keys if key not in taxonomy.keys), None)
    if unknown is not None:
        raise InputError.at(file, f"{unknown!r} is not in the taxonomy", field="attributes")
    probable = column(predictions, "attribute_probabilities")
    chances = evaluate_probabilities(truth, probable, taxonomy, **drawn) if truth and probable else None
    score, predicted = [label.score for label in labels], [stated.get(label.id, math.nan) for label in labels]
    present = {row: truth[label.id] for row, label in enumerate(labels) if label.id in truth}
    groupings = groups_of([label.level for label in labels], present, taxonomy)
    return Metrics(
        **vars(figures),
        decodings=decodings,
        label_mass=_share(column(predictions, "label_mass")),
        willing=_share(column(predictions, "willing")),
        attributes=evaluate_attributes(truth, named, taxonomy, **drawn) if truth and named else None,
        attribute_probabilities=chances,
        certainty=_certainty(labels, predictions, **drawn),
        errors_by={kind: by_group(score, predicted, groups, **drawn) for kind, groups in groupings.items()},
    )


def _certainty(labels: Sequence[Label], predictions: Sequence[Prediction], **drawn: int) -> dict[str, Any] | None:
    """Of the mean over lists, over the photos that have one."""
    truth = {label.id: label.score for label in labels}
    parts = [truth, *(column(predictions, name) for name in ("mean_score", "score_deviation", "score_band"))]
    rows = [[part[row.id] for part in parts] for row in predictions if all(row.id in part for part in parts[1:])]
    return evaluate_certainty(*zip(*rows, strict=True), **drawn) if rows else None


def _share(shares: Mapping[str, float]) -> dict[str, Any] | None:
    """How large a share of probability is over the rows that have one."""
    values = list(shares.values())
    return {"n": len(values), "mean": float(np.mean(values)), "least": min(values)} if values else None


def present_in(labels: Sequence[Label], taxonomy: Taxonomy) -> dict[str, list[str]]:
    """Id -> attributes that are present, of the labels that say."""
    return {label.id: label.present(taxonomy) for label in labels if label.labels is not None}


def figures_of(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    scores: Mapping[str, float],
    taxonomy: Taxonomy,
    file: str,
    **drawn: int,
) -> Figures:
    """The figures of one way to a score. A row whose answer is fine but that has no such score counts as unparsed."""

    def answer(row: Prediction) -> tuple[str, str, float | None]:
        score = scores.get(row.id)
        status = "ok" if score is not None else "unparsed" if row.status == "ok" else row.status
        return row.id, status, score

    truth = [(label.id, label.level, label.score) for label in labels]
    try:
        return evaluate(truth, map(answer, predictions), taxonomy, **drawn)
    except InputError as error:
        raise InputError.at(file, str(error)) from error


def labels_of(rows: Sequence[Prediction], labels: Sequence[Label], file: str) -> dict[str, Label]:
    """Id -> label. Raises InputError where a row of ``file`` has none."""
    by_id = {label.id: label for label in labels}
    unknown = next((row.id for row in rows if row.id not in by_id), None)
    if unknown is not None:
        raise InputError.at(file, f"prediction id {unknown!r} has no label")
    return by_id


def judge_name(model: str | None, prompt: str | None) -> str:
    """A judge in words."""
    return f"{model}, asked with {prompt}"


def another_judge(rows: Sequence[Prediction], than: set[str]) -> str | None:
    """A judge of ``rows`` that is none of ``than``, in words; None where there is none, or one side does not say."""
    others = {judge_name(row.model, row.prompt) for row in rows if row.model is not None} - than
    return min(others, default=None) if than else None


def against(
    labels: Sequence[Label], first: Mapping[str, float], second: Mapping[str, float], taxonomy: Taxonomy, **drawn: Any
) -> dict[str, Any]:
    """The difference of the figures of two judges' scores by id, on the photos that both have scored."""
    by_id = {label.id: label for label in labels}
    rows = [(by_id[id].score, first[id], second[id], by_id[id].level) for id in first if id in second]
    truth, mine, theirs, levels = np.asarray(rows, dtype=np.float64).reshape(-1, 4).T.copy()
    pair = ("first", "second")
    found = paired_differences(truth, {"first": mine, "second": theirs}, levels, [pair], taxonomy, **drawn)
    return {"n": len(rows), "figures": found[pair]}


_LOW_MASS = 0.5  # below, most of what a model could have written is no score


def summary_line(metrics: Metrics) -> str:
    """The figures of one run in a line."""
    figures = ", ".join(f"{head} {show(metrics.figure(name))}" for name, head in HEADS.items())
    counts = ", ".join(f"{status} {count}" for status, count in metrics.status_counts.items() if count)
    line = f"n {metrics.n} ({counts}), {figures}"
    if metrics.label_mass is not None:
        mass = metrics.label_mass["mean"]
        line += f"; scores hold {mass:.2f} of the probability"
        line += ", which is LITTLE: expected and median scores say hardly anything" if mass < _LOW_MASS else ""
    if metrics.willing is not None:
        line += f"; structured, willing {metrics.willing['mean']:.2f}"
    return line
