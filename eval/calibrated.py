"""What is learnt from a judge's answers to hold-out photos alone, and the figures that follow for others.

Scores and attributes' probabilities are mapped, bands widened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cprt.guidance.risk import BAND
from cprt.metrics.attributes import evaluate_probabilities
from cprt.metrics.bootstrap import interval, weights_of
from cprt.metrics.calibration import CALIBRATIONS, Fit, Isotonic, band_margin, refits, widened
from cprt.metrics.certainty import evaluate_bands
from cprt.metrics.results import Figures
from cprt.metrics.severity import bootstrap
from cprt.records import Label, Prediction, column
from cprt.scoring import levels_of
from cprt.taxonomy import Taxonomy
from eval.measures import DECODINGS, STATED, figures_of, labels_of, present_in

REFITS = 200


def calibrated(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    held_out: Sequence[Label],
    answers: Sequence[Prediction],
    taxonomy: Taxonomy,
    file: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Figures]]:
    """Way to a score -> calibration -> figures, learnt from ``answers`` to the ``held_out`` labels alone.

    The intervals carry the uncertainty of the fit: hold-out and measured photos are resampled together, ``REFITS``
    times.
    """
    labelled = labels_of(answers, held_out, file)
    found: dict[str, dict[str, Figures]] = {}
    for name, of in {STATED: "score", **DECODINGS}.items():
        known = [(score, labelled[id].score) for id, score in column(answers, of).items()]
        scores = column(predictions, of)
        if not known or not scores:
            continue
        found[name] = {}
        for kind, fit in CALIBRATIONS.items():
            calibration = fit(*zip(*known, strict=True))
            mapped = dict(zip(scores, calibration(list(scores.values())).tolist(), strict=True))
            figures = figures_of(labels, predictions, mapped, taxonomy, file, seed=seed, resamples=0)
            if resamples:
                figures.ci.update(_refitted(fit, known, scores, labels, taxonomy, seed))
                figures.ci_method.update(bootstrap="percentile, over rows and over refits", resamples=REFITS)
            found[name][kind] = replace(figures, fitted={"n": len(known), **calibration.record()})
    return found


def calibrated_probabilities(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    held_out: Sequence[Label],
    answers: Sequence[Prediction],
    taxonomy: Taxonomy,
    **drawn: int,
) -> dict[str, Any] | None:
    """The figures of attributes' probabilities after one isotonic map for all attributes, learnt on the hold-out.

    Rare attributes have too few examples there for a map of their own. The intervals take the map as given.
    """
    known, truth = present_in(held_out, taxonomy), present_in(labels, taxonomy)
    probable = column(predictions, "attribute_probabilities")
    pairs = [
        (probability, float(key in known[id]))
        for id, of_keys in column(answers, "attribute_probabilities").items()
        if id in known
        for key, probability in of_keys.items()
    ]
    if not pairs or not truth or not probable:
        return None
    fit = Isotonic.fit(*zip(*pairs, strict=True))
    mapped = {id: dict(zip(of, fit([*of.values()]).tolist(), strict=True)) for id, of in probable.items()}
    return evaluate_probabilities(truth, mapped, taxonomy, **drawn) | {"fitted": {"n": len(pairs), **fit.record()}}


def calibrated_band(
    labels: Sequence[Label], predictions: Sequence[Prediction], held_out: Sequence[Label], answers: Sequence[Prediction]
) -> dict[str, Any] | None:
    """How often bands hold the truth, widened by what ``answers`` to the ``held_out`` labels say alone.

    None where there are no bands, or too few photos in the hold-out.
    """
    (bands, truth), (known, known_truth) = _bands(labels, predictions), _bands(held_out, answers)
    margin = band_margin(known, known_truth, BAND)
    if margin is None or not bands:
        return None
    return evaluate_bands(truth, widened(bands, margin)) | {"fitted": {"n": len(known), "margin": margin}}


def _bands(labels: Sequence[Label], predictions: Sequence[Prediction]) -> tuple[list[list[float]], list[float]]:
    """Bands, and the true scores of their photos."""
    truth, bands = {label.id: label.score for label in labels}, column(predictions, "score_band")
    ids = [id for id in bands if id in truth]
    return [bands[id] for id in ids], [truth[id] for id in ids]


def _refitted(
    fit: Fit,
    known: Sequence[tuple[float, float]],
    scores: Mapping[str, float],
    labels: Sequence[Label],
    taxonomy: Taxonomy,
    seed: int,
) -> dict[str, list[float] | None]:
    """Figure -> its interval, each resample of the photos under a fit to a resample of the hold-out."""
    rows = [label for label in labels if label.id in scores]
    truth, levels = np.asarray([row.score for row in rows]), np.asarray([row.level for row in rows])
    rng = np.random.default_rng(seed)
    resampled: dict[str, list[Any]] = {}
    held_scores, held_truth = zip(*known, strict=True)
    for mapped in refits(fit, held_scores, held_truth, [scores[row.id] for row in rows], REFITS, seed):
        draw = weights_of(rng.integers(len(rows), size=(1, len(rows))))
        for name, value in bootstrap(truth, mapped, levels, levels == levels_of(mapped, taxonomy), draw).items():
            resampled.setdefault(name, []).append(value)
    return {name: interval(np.concatenate(values)) for name, values in resampled.items()}
