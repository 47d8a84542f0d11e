"""Clusters: resamples by weights against drawn rows, the design effect against its formula, intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cprt.metrics.bootstrap import (
    ClusteredShare,
    cluster_interval,
    jackknife,
    leave_one_out,
    mean_interval,
    paired_interval,
    resample,
    resample_clusters,
    student,
    totals,
    weights_of,
    wilson_interval,
)


def test_resampled_totals_are_those_of_drawn_clusters():
    sums = np.random.default_rng(0).integers(0, 9, (7, 2, 3))
    weights = resample_clusters(7, 50, 3)
    assert weights.shape == (50, 7) and set(weights.sum(axis=1)) == {7.0}
    for row, total in zip(weights, totals(sums, weights), strict=True):
        drawn = [cluster for cluster, times in enumerate(row) for _ in range(int(times))]
        assert np.array_equal(total, sum(sums[cluster] for cluster in drawn))
    assert np.array_equal(resample_clusters(7, 50, 3), weights)
    assert resample_clusters(7, 5000, 4).var(axis=0) == pytest.approx([6 / 7] * 7, abs=0.06)  # chance 1/7 for each


def test_the_interval_of_a_mean_is_over_drawn_rows_and_no_single_point():
    values = np.random.default_rng(1).normal(size=30)
    rng = np.random.default_rng(5)
    means = [values[rng.integers(30, size=30)].mean() for _ in range(200)]
    assert mean_interval(values, 200, 5) == pytest.approx(np.percentile(means, [2.5, 97.5]))
    for told in ([], [0.3], [0.1] * 7, [1 / 3] * 30):  # nothing, or the same whatever is drawn, but for rounding
        assert mean_interval(told) is None
    assert mean_interval(values, 0) is None


def test_without_a_cluster_is_the_sum_of_the_others():
    sums = np.arange(12).reshape(4, 3)
    for cluster, total in enumerate(leave_one_out(sums)):
        assert np.array_equal(total, np.delete(sums, cluster, axis=0).sum(axis=0))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_the_spread_of_a_mean_is_its_variance(values: list[float]):
    array = np.array(values)
    n = len(array)
    variance, freedom = jackknife((array.sum() - array) / (n - 1))
    assert variance == pytest.approx(array.var(ddof=1) / n, abs=1e-9)
    assert 1 <= freedom <= max(n - 1, 1)


def test_few_clusters_that_decide_leave_few_degrees_of_freedom():
    rng = np.random.default_rng(0)
    assert jackknife(rng.normal(size=200))[1] > 150  # kurtosis 3: as many as there are
    lone = np.zeros(200)
    lone[0] = 1
    assert jackknife(lone)[1] == pytest.approx(2, abs=0.1)  # kurtosis near 200: one cluster has all
    assert jackknife(np.array([0.4]))[1] == 1 and np.isnan(jackknife(np.array([0.4]))[0])
    assert student(1) == pytest.approx(12.706, abs=1e-3) and student(29) == pytest.approx(2.045, abs=1e-3)


def test_a_share_of_single_rows_is_wilsons():
    """Clusters of one row: no design effect but n / (n - 1)."""
    rows = np.array([1] * 130 + [0] * 270)
    share = ClusteredShare.of(rows, np.ones(400))
    assert (share.part, share.whole, share.share) == (130, 400, 0.325)
    assert share.design_effect == pytest.approx(400 / 399)
    wilson = stats.binomtest(130, 400).proportion_ci(method="wilson")
    assert share.interval == pytest.approx([*wilson], abs=1e-3)


@pytest.mark.parametrize(("size", "correlation"), [(5, 0.0), (5, 0.3), (50, 0.02), (50, 0.3)])
def test_the_design_effect_is_that_of_equal_clusters(size: int, correlation: float):
    """1 + (size - 1) x correlation (Kish)."""
    rng = np.random.default_rng(1)
    a = 0.4 * (1 - correlation) / correlation if correlation else np.inf
    chances = rng.beta(a, 1.5 * a, 4000) if correlation else np.full(4000, 0.4)
    share = ClusteredShare.of(rng.binomial(size, chances), np.full(4000, size))
    assert share.design_effect == pytest.approx(1 + (size - 1) * correlation, rel=0.06)
    assert share.effective_n == pytest.approx(share.whole / share.design_effect)


def test_all_or_none_count_each_cluster_once():
    share = ClusteredShare.of(np.zeros(40), np.full(40, 25))
    assert share.effective_n == 40 and share.interval == wilson_interval(0, 40, student(39))
    assert share.interval is not None and share.interval[1] > wilson_interval(0, 1000)[1]
    uneven = ClusteredShare.of(np.array([90, 5, 5]), np.array([90, 5, 5]))
    assert uneven.effective_n == pytest.approx(100**2 / (90**2 + 2 * 5**2))


@pytest.mark.parametrize("parts", [[1, 1, 1], [3] * 7, [4] * 49])
def test_clusters_of_one_share_count_each_once(parts: list[int]):
    """Values without each cluster that are equal but for rounding have no spread and leave every freedom."""
    share = ClusteredShare.of(parts, np.full(len(parts), 5))
    assert share.effective_n == pytest.approx(len(parts)) and share.freedom == len(parts) - 1
    low, high = share.interval or [0.0, 0.0]
    assert high - low > 0.2 and low < parts[0] / 5 < high


def test_one_cluster_says_next_to_nothing_and_none_says_nothing():
    alone = ClusteredShare.of([30], [100])
    assert alone.interval is not None and alone.interval[0] < 0.02 and alone.interval[1] > 0.97
    assert ClusteredShare.of([1, 0, 3, 0], [2, 0, 5, 4]) == ClusteredShare.of([1, 3, 0], [2, 5, 4])
    nothing = ClusteredShare.of([0, 0], [0, 0])
    assert (nothing.share, nothing.interval, nothing.design_effect) == (None, None, None)
    assert cluster_interval(np.ones((1, 2)), lambda sums: sums[..., 0], resample_clusters(1, 100, 0)) is None


def test_percentiles_move_outwards_with_few_clusters():
    """Of a mean of K normal values the interval is Student's, where the bare percentiles are too narrow."""
    rng = np.random.default_rng(4)
    for clusters in (8, 300):
        values = rng.normal(size=clusters)
        found = cluster_interval(values, lambda total, k=clusters: total / k, resample_clusters(clusters, 20_000, 0))
        half = stats.t.ppf(0.975, clusters - 1) * values.std(ddof=1) / np.sqrt(clusters)
        assert found is not None
        assert (found[1] - found[0]) / 2 == pytest.approx(half, rel=0.12 if clusters == 8 else 0.03)


def test_a_figure_that_is_often_undefined_has_no_interval():
    sums = np.array([[0, 1]] * 9 + [[5, 1]])

    def ratio(total: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(total[..., 0] > 0, total[..., 1] / total[..., 0], np.nan)

    assert cluster_interval(sums, ratio, resample_clusters(10, 500, 0)) is None  # a third never draw the tenth


@pytest.mark.parametrize("rows", [1, 7, 3000])
def test_weights_in_chunks_are_those_of_all_rows_drawn_at_once_and_small(rows: int):
    drawn = np.random.default_rng(5).integers(rows, size=(500, rows))
    expected = np.stack([np.bincount(row, minlength=rows) for row in drawn], axis=1)
    for weights in (resample(rows, 500, 5), weights_of(drawn)):
        assert len(weights) == max(1, 500 * rows // 400_000)
        for _ in range(2):  # as often as one likes
            assert (np.concatenate(list(weights), axis=1) == expected).all()
        assert sum(chunk.nbytes for chunk in weights._chunks) == expected.size  # a byte for each
    assert len(resample(rows, 0, 5)) == len(resample(0, 500, 5)) == 0


def test_the_interval_of_a_paired_difference_by_hand_and_by_drawing():
    """Method 10 of Newcombe (1998) with phi 0, of two shares of 1 and 0; and what it holds at a known difference."""
    (low, _), (_, high) = wilson_interval(20, 20), wilson_interval(0, 20)
    assert paired_interval(0, 20, 0, 20) == pytest.approx([1 - np.hypot(1 - low, high), 1.0])
    assert paired_interval(20, 0, 0, 20) == pytest.approx([low - 1, 1 - low])  # no row differs, and yet not certain
    chances = np.array([0.8, 0.12, 0.03, 0.05])  # in both, in one alone, in neither
    drawn = np.random.default_rng(0).multinomial(60, chances, size=2000)
    bounds = np.array([paired_interval(*row[:3], 60) for row in drawn.tolist()])
    holds = (bounds[:, 0] <= 0.09) & (bounds[:, 1] >= 0.09)
    assert 0.93 < holds.mean() < 0.98


@given(st.lists(st.integers(0, 30), min_size=4, max_size=4).filter(any))
def test_the_interval_of_a_paired_difference_is_no_point_and_turns_with_the_rows(counts: list[int]):
    both, first, second, neither = counts
    low, high = paired_interval(both, first, second, sum(counts))
    assert -1 - 1e-9 <= low <= (first - second) / sum(counts) <= high <= 1 + 1e-9 and high - low > 0.01
    assert paired_interval(both, second, first, sum(counts)) == pytest.approx([-high, -low])
    assert paired_interval(neither, first, second, sum(counts)) == pytest.approx([low, high])  # of the rows without
