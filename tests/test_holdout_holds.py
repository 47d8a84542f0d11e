"""What is learnt on the hold-out holds on new photos: a threshold's precision and recall, and a calibration's bias."""

from __future__ import annotations

import numpy as np
import pytest

from cprt.metrics.calibration import Affine
from cprt.records import Label, Prediction
from cprt.scoring import severity
from data_prep.pairs.split import draw_balanced, draw_holdout
from eval.score.threshold import choose

TABLE_1 = (2860, 1025, 1363, 1488)  # photos of levels 1 to 4 in the paper's Table 1
SIZES = (3, 10, 5, 4)


def collection(total: int, rng: np.random.Generator) -> list[Label]:
    """Labels in the proportions of Table 1, with attributes at random."""
    labels = []
    for number, level in enumerate(rng.choice(4, size=total, p=np.asarray(TABLE_1) / sum(TABLE_1))):
        counts = [int(rng.integers(place == level, size + 1)) * (place >= level) for place, size in enumerate(SIZES)]
        found = severity((counts[0], counts[1], counts[2], counts[3]))
        labels.append(Label(str(number), None, None, found.level, found.score, None))
    return labels


def judged(labels: list[Label], rng: np.random.Generator) -> list[Prediction]:
    """A judge that is noisy, and says too little of severe photos: its errors depend on the level."""
    said = [np.clip(0.15 + 0.6 * label.score + rng.normal(0, 0.12), 0, 1).round(3) for label in labels]
    return [Prediction(row.id, None, None, "ok", score=float(score)) for row, score in zip(labels, said, strict=True)]


@pytest.mark.slow
def test_what_a_threshold_promises_is_delivered():
    """In 100 collections: intervals of precision (95%) hold the figure on new photos, up to the noise of both."""
    pool = collection(6000, np.random.default_rng(0))
    kept = {"precision": 0, "recall": 0}
    biases, old_biases = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(pool))
        labels, new = ([pool[i] for i in part] for part in (order[:1200], order[1200:3200]))
        holdout, _ = draw_holdout(labels, 240, seed)
        promised = choose(holdout, judged(holdout, rng), 0.8, "p.jsonl")
        scores = np.asarray([row.score for row in judged(new, rng)])
        levels, truth = np.asarray([row.level for row in new]), np.asarray([row.score for row in new])
        flagged = scores >= promised.score
        for name, bounds, delivered in (
            ("precision", promised.precision_interval, (levels[flagged] == 1).mean()),
            ("recall", promised.recall_interval, flagged[levels == 1].mean()),
        ):
            kept[name] += bounds is not None and bounds[0] <= delivered <= bounds[1]
        _, left_over = draw_balanced(labels, 677, seed)  # as the paper's 2,048 of 3,630: what such a draw would leave
        for found, part in ((biases, holdout), (old_biases, left_over)):
            fit = Affine.fit([row.score for row in judged(part, rng)], [row.score for row in part])
            found.append(float((fit(scores) - truth).mean()))
    assert kept["precision"] >= 95 and kept["recall"] >= 90, kept
    assert abs(np.mean(biases)) < 0.005 < 0.015 < abs(np.mean(old_biases)), (np.mean(biases), np.mean(old_biases))
