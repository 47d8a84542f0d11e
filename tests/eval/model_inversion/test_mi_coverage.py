"""The intervals hold the truth, at a reduced size of benchmarks/mi_coverage.py with a fixed seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.mi_coverage import GOLDEN, SETUPS, coverage, draw, truths

ROUNDS = 250
SLACK = 3 * np.sqrt(0.95 * 0.05 / ROUNDS)  # of a coverage that is known from so many rounds


@pytest.mark.parametrize(
    ("classes", "images", "correlation", "plain"), [(30, 5, 0.0, 0.9), (100, 50, 0.3, 0.2), (300, 5, 0.3, 0.75)]
)
def test_intervals_hold_the_truth_where_classes_resemble_themselves(
    classes: int, images: int, correlation: float, plain: float
):
    found = coverage(classes, images, correlation, rounds=ROUNDS, resamples=200)
    effect = found.pop("design_effect")
    assert effect == pytest.approx(1 + (images - 1) * correlation, rel=0.1)
    assert plain <= found.pop("plain") <= plain + 0.25  # what it is without classes: far too low
    assert found.pop("tau") >= 0.93 - 3 * np.sqrt(0.95 * 0.05 / (ROUNDS / 10))
    assert len(found) == 8
    for name, share in found.items():
        assert 0.93 - SLACK <= share <= 0.97 + SLACK, name


def test_the_simulation_has_the_correlation_and_the_truth_that_it_says():
    rng = np.random.default_rng(0)
    counts = draw(GOLDEN, 20_000, 2, 0.3, rng)
    yes = counts[:, 0].sum(axis=1)
    assert counts.sum(axis=0) / 40_000 == pytest.approx(GOLDEN, abs=0.01)
    p = yes.mean() / 2
    both = (yes == 2).mean()  # of two images: p^2 + correlation x p (1 - p)
    assert (both - p * p) / (p * (1 - p)) == pytest.approx(0.3, abs=0.02)
    truth = truths()
    assert round(truth["fpr"], 4) == 0.7840 and round(truth["fnr"], 4) == 0.1836
    assert len(set(SETUPS)) == 27 and truth["tau"] == pytest.approx(
        stats.kendalltau(*zip(*SETUPS, strict=True)).statistic
    )
    assert truth["difference"] == pytest.approx(-0.02)
