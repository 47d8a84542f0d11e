"""Every figure against scipy, scikit-learn or a loop over all pairs."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from growth import grows_linearly
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import paired_difference
from scipy import stats
from sklearn import metrics as sk

from cprt.errors import InputError
from cprt.metrics import severity as metrics
from cprt.metrics.bootstrap import weights_of
from cprt.metrics.breakdown import by_group
from cprt.metrics.pairs import sample_pairs, sampled_shares
from cprt.records import to_json
from cprt.scoring import levels_of, severities
from cprt.taxonomy import Taxonomy

KINDS = ("pairwise", "inter_level", "intra_level")
PAIR_FIGURES = [f"{kind}_accuracy{ties}" for kind in KINDS for ties in ("", "_no_ties")]
FIGURES = ["pearson", "spearman", "mae", "bias", "level_accuracy", *PAIR_FIGURES]

# Few distinct values, so that ties, constants and empty strata are common.
rows_with_ties = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.6, 0.711, 1.0]), st.integers(0, 4), st.integers(1, 4)), max_size=30
)


def unzip(rows):
    truth, prediction, levels = np.array(rows, dtype=float).reshape(-1, 3).T
    return truth, prediction / 4, levels.astype(int)


def pairs_by_loop(truth, prediction, levels):
    """Straight from the definition."""
    right, pairs, tied = ({"pairwise": 0, "inter_level": 0, "intra_level": 0} for _ in range(3))
    for i, j in itertools.combinations(range(len(truth)), 2):
        if truth[i] == truth[j]:
            continue
        for kind in ("pairwise", "intra_level" if levels[i] == levels[j] else "inter_level"):
            pairs[kind] += 1
            right[kind] += (truth[i] - truth[j]) * (prediction[i] - prediction[j]) > 0
            tied[kind] += prediction[i] == prediction[j]
    shares = {f"{kind}_accuracy": right[kind] / pairs[kind] if pairs[kind] else None for kind in pairs}
    for kind in pairs:
        untied = pairs[kind] - tied[kind]
        shares[f"{kind}_accuracy_no_ties"] = right[kind] / untied if untied else None
    return shares


def evaluated(*columns, **options):
    """What metrics.json holds of ``evaluate``."""
    return to_json(metrics.evaluate(*columns, **options))


def point_figures(truth, prediction, levels):
    return {
        "pearson": metrics.pearson(truth, prediction),
        "spearman": metrics.spearman(truth, prediction),
        "mae": metrics.mae(truth, prediction),
        "bias": metrics.bias(truth, prediction),
        "level_accuracy": metrics.level_accuracy(levels, levels_of(prediction)),
        **metrics.pairwise_accuracy(truth, prediction, levels),
    }


def drawn(n, seed=0, decimals=3):
    """n true scores of the taxonomy with their levels, and noisy predictions with ties."""
    rng = np.random.default_rng(seed)
    levels, truth = severities(rng.random((n, len(Taxonomy.default().attributes))) < rng.random((n, 1)) ** 3 / 2)
    return truth, np.round(np.clip(truth + rng.normal(0, 0.2, n), 0, 1), decimals), levels


@given(rows_with_ties)
def test_pairwise_equals_the_loop(rows):
    columns = unzip(rows)
    assert metrics.pairwise_accuracy(*columns) == pairs_by_loop(*columns)


@pytest.mark.parametrize("n", [127, 128, 129, 300])
def test_pairwise_equals_the_loop_on_drawn_images(n):
    columns = drawn(n, seed=n, decimals=2)
    assert metrics.pairwise_accuracy(*columns) == pairs_by_loop(*columns)


def test_pairwise_by_hand():
    # Pairs (0.9, 0.8) within level 1 right; (0.9, 0.6) tied; (0.8, 0.6) wrong.
    found = metrics.pairwise_accuracy([0.9, 0.8, 0.6], [0.5, 0.4, 0.5], [1, 1, 2])
    assert (found["pairwise_accuracy"], found["inter_level_accuracy"], found["intra_level_accuracy"]) == (1 / 3, 0, 1)
    assert (found["pairwise_accuracy_no_ties"], found["inter_level_accuracy_no_ties"]) == (1 / 2, 0)
    constant = metrics.pairwise_accuracy([0.9, 0.8, 0.6], [0.5, 0.5, 0.5], [1, 1, 2])
    assert (constant["pairwise_accuracy"], constant["pairwise_accuracy_no_ties"]) == (0, None)
    assert metrics.pairwise_accuracy([0.9, 0.6], [0.9, 0.6], [1, 2])["intra_level_accuracy"] is None


@given(rows_with_ties)
def test_correlations_equal_scipy(rows):
    truth, prediction, _ = unzip(rows)
    if len(set(truth)) < 2 or len(set(prediction)) < 2:
        assert metrics.pearson(truth, prediction) is None
        assert metrics.spearman(truth, prediction) is None
    else:
        assert metrics.pearson(truth, prediction) == pytest.approx(stats.pearsonr(truth, prediction)[0], abs=1e-12)
        assert metrics.spearman(truth, prediction) == pytest.approx(stats.spearmanr(truth, prediction)[0], abs=1e-12)


def test_correlation_survives_tiny_spreads_and_is_none_for_constants():
    assert metrics.pearson([0, 5e-324], [0, 1]) == pytest.approx(1)
    assert metrics.pearson([0.3, 0.3 + 1e-15, 0.3], [0.1, 0.9, 0.1]) == pytest.approx(1)
    assert metrics.pearson([0.1] * 3, [0.1, 0.2, 0.3]) is None  # three times 0.1 has a mean that is not 0.1
    assert metrics.spearman([0.1, 0.2, 0.3], [0.7] * 3) is None


def test_figures_equal_scipy_and_sklearn():
    truth, prediction, levels = drawn(2000)
    predicted_levels = levels_of(prediction)
    assert metrics.pearson(truth, prediction) == pytest.approx(stats.pearsonr(truth, prediction)[0], abs=1e-12)
    assert metrics.spearman(truth, prediction) == pytest.approx(stats.spearmanr(truth, prediction)[0], abs=1e-12)
    assert metrics.mae(truth, prediction) == pytest.approx(sk.mean_absolute_error(truth, prediction))
    assert metrics.bias(truth, prediction) == pytest.approx(np.mean(prediction) - np.mean(truth))
    assert metrics.level_accuracy(levels, predicted_levels) == pytest.approx(
        sk.accuracy_score(levels, predicted_levels)
    )
    expected = sk.confusion_matrix(levels, predicted_levels, labels=[1, 2, 3, 4])
    assert metrics.confusion(levels, predicted_levels).tolist() == expected.tolist()
    # With no tie in truth or prediction, Kendall's tau is 2 acc - 1.
    untied = np.random.default_rng(1).permutation(2000) / 2000, np.random.default_rng(2).random(2000)
    found = metrics.pairwise_accuracy(*untied, np.ones(2000))
    assert 2 * found["pairwise_accuracy"] - 1 == pytest.approx(stats.kendalltau(*untied)[0], abs=1e-12)


def test_nothing_is_none():
    assert set(point_figures([], [], []).values()) == {None}
    assert metrics.wilson_interval(0, 0) is None
    assert metrics.bias([0.2], [0.5]) == pytest.approx(0.3)  # overestimating is positive


@pytest.mark.parametrize("bad", [([0.1], [0.1, 0.2]), ([[0.1]], [[0.1]]), ([math.nan], [0.1]), ([0.1], [math.inf])])
def test_arrays_that_do_not_fit_raise(bad):
    for figure in (metrics.pearson, metrics.spearman, metrics.mae, metrics.bias):
        with pytest.raises(ValueError):
            figure(*bad)


@settings(deadline=None, max_examples=50)
@given(rows_with_ties.filter(bool), st.integers(0, 1000))
def test_each_bootstrap_resample_equals_the_figures_of_its_rows(rows, seed):
    truth, prediction, levels = unzip(rows)
    drawn_rows = np.random.default_rng(seed).integers(len(rows), size=(5, len(rows)))
    found = metrics.bootstrap(truth, prediction, levels, levels == levels_of(prediction), weights_of(drawn_rows))
    assert set(found) == set(FIGURES)
    for b, index in enumerate(drawn_rows):
        expected = point_figures(truth[index], prediction[index], levels[index])
        for name in FIGURES:
            value = None if np.isnan(found[name][b]) else found[name][b]
            assert value == pytest.approx(expected[name], abs=1e-12), name


def test_a_resample_that_is_constant_has_no_correlation_whatever_its_mean_rounds_to():
    for value in np.arange(1, 60) / 60:
        truth, prediction = np.array([0, value, value, value, 1]), np.array([0.1, 0.2, 0.3, 0.4, 0.5])
        rows = np.array([[1, 2, 3, 3, 2]])
        for pair in ((truth, prediction), (prediction, truth)):
            found = metrics.bootstrap(*pair, np.ones(5), np.ones(5), weights_of(rows))
            assert np.isnan(found["pearson"][0]) and np.isnan(found["spearman"][0])


def test_bootstrap_in_chunks_equals_the_resamples_one_by_one():
    truth, prediction, levels = drawn(5000)
    rows = np.random.default_rng(3).integers(5000, size=(163, 5000))
    found = metrics.bootstrap(truth, prediction, levels, levels == levels_of(prediction), weights_of(rows))
    for b in (0, 81, 162):
        expected = point_figures(truth[rows[b]], prediction[rows[b]], levels[rows[b]])
        assert {name: values[b] for name, values in found.items()} == pytest.approx(expected, abs=1e-12)


def as_rows(truth, prediction, levels):
    ids = [f"image_{i}" for i in range(len(truth))]
    labels = list(zip(ids, levels.tolist(), truth.tolist(), strict=True))
    return labels, [(key, "ok", score) for key, score in zip(ids, prediction.tolist(), strict=True)]


def test_evaluate_gives_every_key_and_is_json():
    truth, prediction, levels = drawn(400)
    labels, predictions = as_rows(truth, prediction, levels)
    found = evaluated(labels, predictions[::-1], resamples=200)  # joined by id, not by place
    assert {name: found[name] for name in FIGURES} == pytest.approx(point_figures(truth, prediction, levels))
    assert found["n"] == 400 and found["coverage"] == 1
    assert found["status_counts"] == {"ok": 400, "unparsed": 0, "refused": 0, "error": 0, "missing": 0}
    assert np.sum(found["confusion"]) == 400
    assert np.trace(found["confusion"]) / 400 == found["level_accuracy"]
    assert set(found["ci"]) == {"coverage", *FIGURES}
    for name in FIGURES:
        low, high = found["ci"][name]
        assert low < found[name] < high
    right = round(found["level_accuracy"] * 400)
    bounds = stats.binomtest(right, 400).proportion_ci(method="wilson")
    assert found["ci"]["level_accuracy"] == pytest.approx([bounds.low, bounds.high])
    assert found["ci_method"]["resamples"] == 200 and found["ci_method"]["undefined_resamples"] == {}
    json.dumps(found, allow_nan=False)
    assert found == evaluated(labels, predictions, resamples=200)
    assert found["ci"] != evaluated(labels, predictions, resamples=200, seed=1)["ci"]


def test_every_cell_of_the_confusion_has_an_interval_that_equals_its_resamples():
    truth, prediction, levels = drawn(60)
    found = evaluated(*as_rows(truth, prediction, levels), resamples=100)
    rows = np.random.default_rng(0).integers(60, size=(100, 60))
    counts = [sk.confusion_matrix(levels[row], levels_of(prediction)[row], labels=[1, 2, 3, 4]) for row in rows]
    expected = np.moveaxis(np.percentile(counts, [2.5, 97.5], axis=0), 0, -1).reshape(16, 2).tolist()
    for bounds, (low, high) in zip(itertools.chain(*found["confusion_ci"]), expected, strict=True):
        assert bounds is None if low == high else bounds == pytest.approx([low, high])


def test_resamples_that_all_say_the_same_are_no_interval():
    """A judge that is off by the same everywhere: nothing says how far off the next photo is."""
    truth = np.array([0.1, 0.3, 0.5, 0.8] * 3)
    labels, predictions = as_rows(truth, truth + 0.1, np.array([4, 3, 2, 1] * 3))
    found = evaluated(labels, predictions, resamples=50)
    assert found["mae"] == pytest.approx(0.1) and found["pearson"] == pytest.approx(1)
    assert [found["ci"][name] for name in ("mae", "bias", "pearson", "inter_level_accuracy")] == [None] * 4
    assert found["sampled_pairs"]["ci"]["pairwise_accuracy"] is None
    errors = by_group(truth, truth + 0.1, {"all": np.ones(12, dtype=bool)}, resamples=50)["all"]
    assert errors.bias == pytest.approx(0.1) and errors.bias_ci is errors.mae_ci is None


# --- A sample of pairs ---------------------------------------------------------------------------------------------


@given(rows_with_ties, st.integers(0, 99))
def test_sampled_pairs_differ_in_truth_and_their_accuracy_equals_the_loop(rows, seed):
    truth, prediction, levels = unzip(rows)
    pairs = sample_pairs(truth, 50, seed)
    assert len(pairs) == (50 if len(set(truth)) > 1 else 0)
    shares = sampled_shares(truth, prediction, levels, pairs, [np.ones((len(truth), 1))])
    for kind in ("pairwise", "inter_level", "intra_level"):
        chosen = [(i, j) for i, j in pairs if kind == "pairwise" or (levels[i] == levels[j]) == (kind == "intra_level")]
        right = [
            (truth[i] > truth[j]) == (prediction[i] > prediction[j]) and prediction[i] != prediction[j]
            for i, j in chosen
        ]
        untied = sum(prediction[i] != prediction[j] for i, j in chosen)
        for name, of in ((f"{kind}_accuracy", len(chosen)), (f"{kind}_accuracy_no_ties", untied)):
            expected = sum(right) / of if of else None
            assert (None if np.isnan(shares[name][0]) else shares[name][0]) == pytest.approx(expected)
    assert all(truth[i] != truth[j] for i, j in pairs)


def test_all_pairs_are_equally_probable_however_rare():
    truth = np.array([0.5] * 40 + [0.1, 0.9])
    pairs = sample_pairs(truth, 60_000, 0)
    counts = Counter(tuple(sorted((truth[i], truth[j]))) for i, j in pairs)
    assert counts[0.1, 0.9] / 60_000 == pytest.approx(1 / 81, rel=0.1)
    assert counts[0.1, 0.5] / 60_000 == pytest.approx(40 / 81, rel=0.02)
    assert len({tuple(pair) for pair in pairs.tolist()}) == 162


def test_the_sampled_accuracy_is_near_that_of_all_pairs_with_an_interval_of_its_own():
    truth, prediction, levels = drawn(2000)
    found = evaluated(*as_rows(truth, prediction, levels), resamples=100)
    sampled = found["sampled_pairs"]
    assert sampled["pairs"] == 10_000 and sampled["seed"] == 0
    for name in PAIR_FIGURES:
        assert sampled[name] == pytest.approx(found[name], abs=0.03) and sampled[name] != found[name]
        assert sampled["ci"][name][0] < sampled[name] < sampled["ci"][name][1]


def test_a_resample_of_sampled_pairs_counts_each_as_often_as_its_rows():
    truth, prediction, levels = drawn(30)
    pairs = sample_pairs(truth, 200, 1)
    rows = np.random.default_rng(2).integers(30, size=(1, 30))
    times = np.bincount(rows[0], minlength=30)
    repeated = np.repeat(pairs, times[pairs[:, 0]] * times[pairs[:, 1]], axis=0)
    expected = sampled_shares(truth, prediction, levels, repeated, [np.ones((30, 1))])
    for name, values in sampled_shares(truth, prediction, levels, pairs, weights_of(rows)).items():
        assert values == pytest.approx(expected[name], nan_ok=True)


# --- Two judges ----------------------------------------------------------------------------------------------------


def test_a_paired_difference_is_the_figures_difference_and_its_interval_that_of_the_same_resamples():
    truth, first, levels = drawn(200)
    second = np.clip(first + np.random.default_rng(5).normal(0.03, 0.1, 200), 0, 1)
    found = paired_difference(truth, first, second, levels, resamples=300, seed=4)
    one, other = point_figures(truth, first, levels), point_figures(truth, second, levels)
    rows = np.random.default_rng(4).integers(200, size=(300, 200))
    weights = weights_of(rows)
    resampled = [metrics.bootstrap(truth, x, levels, levels == levels_of(x), weights) for x in (first, second)]
    for name in FIGURES:
        assert found[name]["difference"] == pytest.approx(one[name] - other[name])
        differences = resampled[0][name] - resampled[1][name]
        assert found[name]["ci"] == pytest.approx(np.percentile(differences, [2.5, 97.5]).tolist())
        smaller = min((differences <= 0).sum(), (differences >= 0).sum())
        share = min(1, 2 * (smaller + 1) / 301)
        normal = 2 * stats.norm.sf(abs(differences.mean()) / differences.std())
        assert found[name]["p"] == pytest.approx(share if smaller >= 10 else min(share, normal))


def test_the_paired_test_sees_what_unpaired_intervals_hide_and_nothing_where_there_is_nothing():
    truth, first, levels = drawn(400)
    second = np.clip(first - 0.01, 0, 1)  # a hundredth lower for every image
    found = paired_difference(truth, first, second, levels, resamples=500)
    wide = evaluated(*as_rows(truth, first, levels), resamples=200)["ci"]["bias"]
    assert found["bias"]["p"] < 0.01 and 0 < found["bias"]["ci"][0] < found["bias"]["ci"][1] < wide[1] - wide[0]
    same = paired_difference(truth, first, first, levels, resamples=50)
    assert all(row == {"difference": 0, "ci": None, "p": 1} for row in same.values())


def test_p_of_a_paired_mean_agrees_with_scipy_and_is_even_under_no_difference():
    rng, ps = np.random.default_rng(0), []
    for _ in range(30):
        noise = rng.uniform(-0.3, 0.3, (2, 80))
        truth = rng.random(80) * 0.4 + 0.3
        columns = truth + noise[0], truth + noise[1]
        p = paired_difference(truth, *columns, np.ones(80), resamples=400)["bias"]["p"]
        assert p == pytest.approx(stats.ttest_rel(*columns).pvalue, abs=0.1)
        ps.append(p)
    assert 0.3 < np.mean(ps) < 0.7


def test_a_p_too_small_for_the_resamples_agrees_with_scipy():
    """A correction over thousands of tests needs p far below one in the number of resamples."""
    rng = np.random.default_rng(2)
    truth = 0.45 + 0.1 * rng.random(2000)
    first = truth + rng.uniform(-0.3, 0.3, 2000)
    for shift in (0.02, 0.03, 0.04):
        second = truth + shift + rng.uniform(-0.3, 0.3, 2000)
        p = paired_difference(truth, first, second, np.ones(2000), resamples=1000)["bias"]["p"]
        exact = stats.ttest_rel(first, second).pvalue
        assert p < 0.01 and np.log10(p) == pytest.approx(np.log10(exact), rel=0.15), shift


def test_many_judges_resampled_once_give_the_figures_of_each_pair():
    truth, first, levels = drawn(150)
    rng = np.random.default_rng(7)
    judges = {"a": first} | {name: np.clip(first + rng.normal(0, 0.1, 150), 0, 1) for name in "bcd"}
    pairs = [("a", "b"), ("c", "a"), ("b", "d")]
    found = metrics.paired_differences(truth, judges, levels, pairs, resamples=100, seed=3)
    for one, other in pairs:
        alone = paired_difference(truth, judges[one], judges[other], levels, resamples=100, seed=3)
        assert found[one, other] == alone


def test_a_paired_difference_of_what_is_undefined_is_null():
    constant = paired_difference([0.1, 0.5, 0.9], [0.5] * 3, [0.1, 0.2, 0.3], [4, 3, 1], resamples=50)
    assert constant["pearson"] == {"difference": None, "ci": None, "p": None}
    assert constant["mae"]["difference"] == pytest.approx(0.8 / 3 - 0.9 / 3)
    nothing = paired_difference([], [], [], [])
    assert all(row == {"difference": None, "ci": None, "p": None} for row in nothing.values())


def test_interval_agrees_with_scipy_bootstrap():
    truth, prediction, levels = drawn(300)
    found = evaluated(*as_rows(truth, prediction, levels))["ci"]["mae"]
    expected = stats.bootstrap(
        (np.abs(prediction - truth),), np.mean, method="percentile", n_resamples=2000, rng=np.random.default_rng(0)
    ).confidence_interval
    assert found == pytest.approx(list(expected), abs=0.002)


def test_missing_answers_count_against_coverage_only():
    truth, prediction, levels = drawn(10)
    labels, predictions = as_rows(truth, prediction, levels)
    holes = [("image_0", "refused", None), ("image_1", "unparsed", None), ("image_2", "error", None)]
    found = evaluated(labels, holes + predictions[4:])
    assert (found["n"], found["coverage"]) == (10, 0.6)
    assert found["status_counts"] == {"ok": 6, "unparsed": 1, "refused": 1, "error": 1, "missing": 1}
    assert found["mae"] == pytest.approx(np.abs(prediction[4:] - truth[4:]).mean())
    expected = stats.binomtest(6, 10).proportion_ci(0.95, method="wilson")
    assert found["ci"]["coverage"] == pytest.approx([expected.low, expected.high])


@pytest.mark.parametrize("predictions", [[], [("a", "refused", None), ("b", "error", None)]])
def test_without_any_score_every_figure_is_null(predictions):
    found = evaluated([("a", 1, 0.8), ("b", 4, 0.1)], predictions)
    assert found["coverage"] == 0
    assert {found[name] for name in FIGURES} == {None}
    assert evaluated([], [])["coverage"] is None


def test_a_constant_has_no_correlation_but_all_other_figures():
    truth, _, levels = drawn(50)
    found = evaluated(*as_rows(truth, np.full(50, 0.5), levels), resamples=100)
    assert (found["pearson"], found["spearman"], found["pairwise_accuracy_no_ties"]) == (None, None, None)
    assert found["pairwise_accuracy"] == 0 and found["mae"] > 0 and found["level_accuracy"] is not None
    assert found["ci"]["pearson"] is None and found["ci"]["mae"] is not None
    assert found["ci_method"]["undefined_resamples"]["pearson"] == 100


def test_resamples_without_the_figure_are_counted_and_too_many_leave_no_interval():
    # The one row that differs is missing from (1 - 1/n)^n of the resamples; any of four from about 1% of them.
    for differing, undefined, tolerance in ((1, 358, 60), (4, 11, 11)):
        prediction = np.where(np.arange(20) < differing, 0.9, 0.5)
        found = evaluated(*as_rows(np.linspace(0.1, 0.9, 20), prediction, np.ones(20, dtype=int)))
        assert found["pearson"] is not None
        assert found["ci_method"]["undefined_resamples"]["pearson"] == pytest.approx(undefined, abs=tolerance)
        assert (found["ci"]["pearson"] is None) is (differing == 1)


def test_levels_come_from_the_labels_not_from_their_scores():
    found = evaluated([("a", 2, 0.711), ("b", 4, 0.0)], [("a", "ok", 0.711), ("b", "ok", 0.0)])
    assert found["level_accuracy"] == 0.5
    assert found["confusion"] == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_a_prediction_without_a_label_is_an_input_error():
    with pytest.raises(InputError, match="'b' has no label"):
        evaluated([("a", 1, 0.8)], [("b", "ok", 0.5)])


def test_no_loop_over_all_pairs_of_photos():
    """The test split has 6,736 photos."""

    def all_figures(size: int) -> Callable[[], object]:
        rows = as_rows(*drawn(size))
        return lambda: evaluated(*rows)

    assert grows_linearly(lambda size: partial(metrics.pairwise_accuracy, *drawn(size)), 6736)
    assert grows_linearly(all_figures, 6736)


def test_import_stays_light():
    heavy = "{'torch', 'scipy', 'pandas', 'transformers'}"
    code = f"import sys, cprt.metrics.severity; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
