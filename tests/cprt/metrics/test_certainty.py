"""Bands and the risk-coverage curve: by hand, and by a loop."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from cprt.metrics.certainty import evaluate_certainty


def test_the_most_certain_come_first():
    """Errors of 0.1 to 0.5, of which the judge is less certain the larger they are, but for one."""
    truth, uncertainty = np.full(5, 0.5), np.array([0.1, 0.2, 0.9, 0.4, 0.5])
    scores = truth + np.array([0.1, -0.2, 0.3, -0.4, 0.5])
    bands = np.stack([scores - 0.25, np.minimum(scores + 0.25, 1)], axis=1)
    found = evaluate_certainty(truth, scores, uncertainty, bands, resamples=200)
    by_coverage = {row["coverage"]: row["mae"] for row in found["risk_coverage"]}
    assert by_coverage[0.2] == pytest.approx(0.1) and by_coverage[0.4] == pytest.approx(0.15)
    assert by_coverage[0.8] == pytest.approx((0.1 + 0.2 + 0.4 + 0.5) / 4) and by_coverage[1.0] == pytest.approx(0.3)
    cumulative = [0.1, 0.3 / 2, 0.7 / 3, 1.2 / 4, 1.5 / 5]
    assert found["area"] == pytest.approx(np.mean(cumulative)) and found["at_random"] == pytest.approx(0.3)
    assert found["least"] == pytest.approx(np.mean([0.1, 0.15, 0.2, 0.25, 0.3]))
    assert found["band"]["holds"] == pytest.approx(2 / 5)
    assert found["band"]["width"] == pytest.approx(np.mean(bands[:, 1] - bands[:, 0]))
    low, high = found["risk_coverage"][-1]["ci"]
    assert low < 0.3 < high


def test_photos_equally_uncertain_count_alike_whatever_their_order():
    """Against the mean over all orders of the file."""
    errors, uncertainty, cumulative = np.array([0.1, 0.5, 0.3, 0.2]), np.array([1, 2, 2, 2]), []
    for order in permutations(range(4)):
        rows = list(order)
        found = evaluate_certainty(np.zeros(4), errors[rows], uncertainty[rows], np.zeros((4, 2)), resamples=0)
        maes = [row["mae"] for row in found["risk_coverage"]]
        assert maes[2] == pytest.approx(0.1) and maes[9] == pytest.approx(1.1 / 4)
        assert maes[4] == pytest.approx((0.1 + 1 / 3) / 2) and maes[7] == pytest.approx((0.1 + 2 / 3) / 3)
        by_file = errors[rows][np.argsort(uncertainty[rows], kind="stable")]
        cumulative.append((np.cumsum(by_file) / np.arange(1, 5)).mean())
    assert found["area"] == pytest.approx(np.mean(cumulative))


def test_intervals_are_those_of_the_resampled_photos():
    rng = np.random.default_rng(0)
    truth, scores, uncertainty = rng.random(30), rng.random(30), rng.random(30)
    found = evaluate_certainty(truth, scores, uncertainty, np.stack([scores, scores], axis=1), resamples=80, seed=4)
    errors, chosen = np.abs(scores - truth), set(np.argsort(uncertainty)[:15].tolist())
    means = []
    for drawn in np.random.default_rng(4).integers(30, size=(80, 30)):
        inside = [row for row in drawn.tolist() if row in chosen]
        means.append(errors[inside].mean())
    assert found["risk_coverage"][4]["ci"] == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist())
    assert found["band"]["holds"] == 0
