"""Calibration against scikit-learn and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from cprt.metrics.calibration import Affine, Isotonic, Rising, band_margin, refits, widened
from cprt.metrics.severity import pairwise_accuracy
from cprt.scoring import levels_of

tenths = st.integers(0, 10).map(lambda number: number / 10)
rows = st.lists(st.tuples(tenths, tenths), min_size=1, max_size=40)


@given(rows, st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_isotonic_equals_scikit_learn_between_and_beyond_the_points(rows, queries):
    scores, truth = np.array(rows).T
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores, truth)
    found = Isotonic.fit(scores, truth)
    assert found(scores) == pytest.approx(expected.predict(scores))
    assert found(queries) == pytest.approx(expected.predict(queries), abs=1e-6)
    assert (np.diff(found(np.linspace(0, 1, 50))) >= -1e-12).all()


@given(rows)
def test_affine_is_the_least_squares_line_kept_in_the_range(rows):
    scores, truth = np.array(rows).T
    found = Affine.fit(scores, truth)
    if len(set(scores)) > 1:
        assert (found.slope, found.intercept) == pytest.approx(tuple(np.polyfit(scores, truth, 1)), abs=1e-9)
    else:
        assert (found.slope, found.intercept) == (0, pytest.approx(truth.mean()))
    assert ((found([0, 0.5, 1]) >= 0) & (found([0, 0.5, 1]) <= 1)).all()


def test_a_biased_judge_is_mended_on_photos_it_was_not_fitted_on():
    rng = np.random.default_rng(0)
    truth = rng.random((2, 500))
    scores = np.clip(truth**2 * 0.5 + rng.normal(0, 0.02, truth.shape), 0, 1)
    raw = np.abs(scores[1] - truth[1]).mean()
    for kind, at_most in ((Affine, 0.08), (Isotonic, 0.06)):
        assert np.abs(kind.fit(scores[0], truth[0])(scores[1]) - truth[1]).mean() < at_most < raw


def test_the_rising_map_keeps_every_order_and_what_ties_cost():
    """Isotonic ties cost pairs; a hundredth of the score itself gives them back, and moves no score by more."""
    rng = np.random.default_rng(3)
    truth = rng.random((2, 1500))
    scores = np.clip(truth + rng.normal(0, 0.25, truth.shape), 0, 1).round(3)
    step, rising = Isotonic.fit(scores[0], truth[0]), Rising.fit(scores[0], truth[0])
    queries = np.unique(scores[1])
    assert (np.diff(rising(queries)) > 0).all() and np.abs(rising(queries) - step(queries)).max() <= 0.01
    levels = levels_of(truth[1])
    raw, tied, kept = (
        pairwise_accuracy(truth[1], mapped, levels)["pairwise_accuracy"]
        for mapped in (scores[1], step(scores[1]), rising(scores[1]))
    )
    assert kept == raw and tied < raw - 0.01


def test_refits_spread_as_theory_says():
    """The calibrated mean varies with the fit: the line at its centre has the variance of a mean of m errors."""
    rng = np.random.default_rng(5)
    truth = rng.uniform(0.3, 0.7, 60)
    scores = truth + rng.normal(0, 0.1, 60)
    middle = [float(scores.mean())]
    means = np.concatenate(list(refits(Affine.fit, scores, truth, middle, 2000, 0)))
    fit = Affine.fit(scores, truth)
    residual = np.std(truth - fit(scores))
    assert np.std(means) == pytest.approx(residual / np.sqrt(60), rel=0.1)
    assert np.mean(means) == pytest.approx(fit(middle)[0], abs=0.005)


def test_nothing_to_fit_raises():
    for kind in (Affine, Isotonic, Rising):
        with pytest.raises(ValueError):
            kind.fit([], [])


@given(st.lists(st.tuples(tenths, tenths, tenths), min_size=1, max_size=40), st.sampled_from([0.5, 0.8, 0.9]))
def test_the_margin_is_the_least_that_holds_one_more_share_of_the_hold_out(
    found: list[tuple[float, float, float]], share: float
):
    """By trying every distance of a truth from its band: the least within which enough of them lie."""
    bands, truth = [sorted(ends) for *ends, _ in found], [score for *_, score in found]
    outside = [max(low - score, score - high) for (low, high), score in zip(bands, truth, strict=True)]
    enough = [
        margin for margin in outside if sum(other <= margin for other in outside) >= share * (len(found) + 1) - 1e-9
    ]
    margin = band_margin(bands, truth, share)
    assert margin == (pytest.approx(min(enough)) if enough else None)
    if margin is not None and margin >= 0:
        wide = widened(bands, margin)
        held = (wide[:, 0] - 1e-9 <= truth) & (np.array(truth) <= wide[:, 1] + 1e-9)
        assert held.mean() >= share and (wide >= 0).all() and (wide <= 1).all()


def test_a_band_that_vanishes_is_its_middle():
    assert widened([[0.2, 0.4], [0.0, 1.0]], -0.2).tolist() == [pytest.approx([0.3, 0.3]), pytest.approx([0.2, 0.8])]


@pytest.mark.parametrize(("photos", "own"), [(19, 0.4), (100, 0.4), (100, 0.02)])
def test_widened_bands_keep_their_promise_whatever_the_models_own(photos: int, own: float):
    """Fresh hold-outs and photos with normal errors of 0.1; 0.4 is too wide and 0.02 too narrow by far.

    The scores are distinct, so that the coverage is ceil(0.9 (n + 1)) / (n + 1), within binomial error.
    """
    rng, rounds = np.random.default_rng(0), 4000
    truth = 0.5 + 0.1 * rng.standard_normal((rounds, photos + 1))
    bands = np.stack([np.full_like(truth, 0.5 - own), np.full_like(truth, 0.5 + own)], axis=-1)
    holds = 0
    for of_round, scores in zip(bands, truth, strict=True):
        margin = band_margin(of_round[1:], scores[1:], 0.9)
        assert margin is not None and (margin < 0) is (own > 0.3)
        ((low, high),) = widened(of_round[0], margin)
        holds += low <= scores[0] <= high
    exact = np.ceil(0.9 * (photos + 1)) / (photos + 1)
    assert abs(holds / rounds - exact) < 4 * np.sqrt(exact * (1 - exact) / rounds)
    assert band_margin([[0.4, 0.6]] * 8, [0.5] * 8, 0.9) is None  # of nine photos, one is outside in one of ten cases
