"""Calibration against scikit-learn and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from cprt.metrics.calibration import Affine, Isotonic

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


def test_nothing_to_fit_raises():
    for kind in (Affine, Isotonic):
        with pytest.raises(ValueError):
            kind.fit([], [])
