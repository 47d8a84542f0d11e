"""The arithmetic against scikit-learn, scipy and simulation; what is undefined stays undefined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from eval.model_inversion.compare.statistics import agreement, effect, kendall_tau, ranking
from eval.model_inversion.metrics import rates

CELLS = st.lists(st.integers(0, 30), min_size=10, max_size=10)


def table(tp: int, tn: int, fp: int, fn: int, refused: tuple[int, int] = (0, 0)) -> np.ndarray:
    """(5, 2) counts."""
    return np.array([[fn, tp], [tn, fp], refused, [0, 0], [0, 0]])


def rows_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(5, 2) counts -> label index and E's verdict of every reconstruction."""
    labels, accepted = np.indices(counts.shape).reshape(2, -1)
    return np.repeat(labels, counts.ravel()), np.repeat(accepted, counts.ravel())


@given(CELLS, st.booleans())
def test_every_rate_equals_scikit_learns(cells: list[int], refused_as_no: bool):
    counts = np.array(cells).reshape(5, 2)
    figures, intervals = rates.measure(counts, refused_as_no=refused_as_no, resamples=0)
    label, accepted = rows_of(counts)
    n = len(label)
    assert figures["n"] == n
    assert figures["accuracy_judge"] == (pytest.approx((label == 0).mean()) if n else None)
    assert figures["accuracy_standard"] == (pytest.approx(accepted.mean()) if n else None)
    kept = label < (3 if refused_as_no else 2)
    truth, predicted = (label[kept] == 0).astype(int), accepted[kept]
    tn, fp, fn, tp = confusion_matrix(truth, predicted, labels=[0, 1]).ravel() if kept.any() else (0, 0, 0, 0)
    assert [figures[name] for name in ("tn", "fp", "fn", "tp")] == [tn, fp, fn, tp]
    for name, part, whole in (("fpr", fp, fp + tn), ("fnr", fn, fn + tp), ("tpr", tp, fn + tp), ("tnr", tn, fp + tn)):
        assert figures[name] == (pytest.approx(part / whole) if whole else None)  # fault 4: never 0 where undefined
        expected = stats.binomtest(int(part), int(whole)).proportion_ci(method="wilson") if whole else None
        assert intervals[name] == (pytest.approx(list(expected), abs=1e-9) if expected else None)
    one_answer = len(set(truth)) < 2 and len(set(predicted)) < 2 and (not kept.any() or truth[0] == predicted[0])
    assert figures["kappa"] == (None if one_answer else pytest.approx(cohen_kappa_score(truth, predicted), abs=1e-12))


def test_an_empty_denominator_is_undefined_not_zero():
    """Fault 4 of the public code."""
    figures, intervals = rates.measure(table(tp=3, tn=0, fp=0, fn=2))
    assert (figures["fpr"], figures["tnr"], intervals["fpr"], intervals["tnr"]) == (None,) * 4
    assert (figures["tpr"], figures["fnr"]) == (0.6, 0.4)
    figures, intervals = rates.measure(table(0, 0, 0, 0, refused=(2, 1)))
    assert (figures["n"], figures["accuracy_judge"], figures["kappa"]) == (3, 0.0, None)
    assert {figures[name] for name in ("fpr", "fnr", "tpr", "tnr")} == {None} and intervals["kappa"] is None


def test_bootstrap_intervals_equal_those_of_resampled_rows():
    counts = table(tp=120, tn=40, fp=60, fn=30, refused=(5, 9))
    figures, intervals = rates.measure(counts, resamples=4000, seed=3)
    label, accepted = rows_of(counts)
    rng = np.random.default_rng(0)
    kappas, gaps = [], []
    for _ in range(3000):
        drawn = rng.integers(len(label), size=len(label))
        kept = drawn[label[drawn] < 2]
        says, accepts = (label[kept] == 0), (accepted[kept] == 1)
        chance = says.mean() * accepts.mean() + (1 - says.mean()) * (1 - accepts.mean())
        kappas.append(((says == accepts).mean() - chance) / (1 - chance))
        gaps.append(accepted[drawn].mean() - (label[drawn] == 0).mean())
    assert intervals["kappa"] == pytest.approx(np.percentile(kappas, [2.5, 97.5]), abs=0.015)
    assert intervals["accuracy_gap"] == pytest.approx(np.percentile(gaps, [2.5, 97.5]), abs=0.01)
    assert figures["accuracy_gap"] == pytest.approx((120 + 60 + 9 - 150) / 264)
    assert rates.measure(counts, resamples=4000, seed=3)[1] == intervals  # the seed decides


def test_the_interval_of_kappa_needs_resamples_in_which_it_is_defined():
    figures, intervals = rates.measure(table(tp=50, tn=0, fp=1, fn=0))  # often all agree on yes: no kappa
    assert figures["kappa"] == 0 and intervals["kappa"] is None


# --- A judge's own errors ----------------------------------------------------------------------------------------


def controls(yes: int, no: int) -> dict[str, int]:
    return {"yes": yes, "no": no, "refused": 0, "unparsed": 0, "error": 0}


def test_correction_by_hand():
    # p = 0.5, hit rate 0.9, false alarms 0.1: (0.5 - 0.1) / (0.9 - 0.1)
    value, interval = rates.corrected(50, 100, controls(90, 10), controls(10, 90))
    assert value == pytest.approx(0.5) and interval is not None and interval[0] < 0.5 < interval[1]
    assert rates.corrected(5, 100, controls(90, 10), controls(10, 90))[0] == pytest.approx(-0.0625)  # not clipped here
    refusing = {**controls(80, 0), "refused": 20}  # a refusal is no yes, as in the accuracy
    assert rates.corrected(40, 100, refusing, controls(0, 50))[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        (controls(50, 50), controls(50, 50)),
        (controls(1, 2), controls(2, 4)),  # equal shares
        (controls(10, 90), controls(90, 10)),
        (controls(0, 0), controls(0, 10)),
        (controls(10, 0), controls(0, 0)),
    ],
)
def test_a_judge_that_knows_nothing_cannot_be_corrected(positive: dict[str, int], negative: dict[str, int]):
    assert rates.corrected(50, 100, positive, negative) == (None, None)


@pytest.mark.parametrize(
    ("share", "hit", "alarm", "n", "pairs"),
    [
        (0.5, 0.95, 0.05, 1500, 100),
        (0.1, 0.95, 0.02, 1500, 100),
        (0.9, 0.99, 0.01, 300, 50),
        (0.02, 0.9, 0.1, 600, 50),
        (0.66, 0.8, 0.3, 300, 30),
        (0.0, 0.95, 0.05, 500, 50),
        (1.0, 1.0, 0.0, 200, 40),
    ],
)
def test_its_interval_covers_the_truth(share: float, hit: float, alarm: float, n: int, pairs: int):
    rng = np.random.default_rng(7)
    rounds, covered = 1500, 0
    for yes, hits, alarms in zip(
        rng.binomial(n, share * hit + (1 - share) * alarm, rounds),
        rng.binomial(pairs, hit, rounds),
        rng.binomial(pairs, alarm, rounds),
        strict=True,
    ):
        _, interval = rates.corrected(int(yes), n, controls(hits, pairs - hits), controls(alarms, pairs - alarms))
        assert interval is not None
        covered += max(0.0, interval[0]) <= share <= min(1.0, interval[1])
    assert covered / rounds >= 0.94


def test_the_difference_of_shares_is_newcombes():
    """The worked example of Newcombe (1998, table II, method 10): 56/70 against 48/80."""
    value, interval = rates.difference((56, 70), (48, 80))
    assert value == pytest.approx(0.2) and interval == pytest.approx([0.0524, 0.3339], abs=5e-5)
    assert rates.difference((0, 0), (1, 2)) == (None, None)


# --- Several judges and set-ups ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_tau_equals_scipys(points: list[tuple[int, int]]):
    x, y = np.array(points).reshape(-1, 2).T
    expected = stats.kendalltau(x, y).statistic if len(points) > 1 else np.nan
    assert kendall_tau(x, y) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    assert kendall_tau(np.stack([x, x]), np.stack([y, x]))[0] == pytest.approx(expected, nan_ok=True, abs=1e-12)


def test_ranking_finds_who_changes_places_and_how_surely():
    counts = [table(tp=80, tn=5, fp=10, fn=5), table(tp=40, tn=5, fp=55, fn=0), table(tp=40, tn=29, fp=1, fn=30)]
    # Under E: 0.90, 0.95, 0.41. Under the judge: 0.85, 0.40, 0.70.
    found = ranking(["a", "b", "c"], counts, resamples=500, seed=0)
    assert found["order_standard"] == ["b", "a", "c"] and found["order_judge"] == ["a", "c", "b"]
    assert found["tau"] == pytest.approx(stats.kendalltau([0.90, 0.95, 0.41], [0.85, 0.40, 0.70]).statistic)
    first, second = found["swaps"]
    assert (first["higher_under_standard"], first["higher_under_judge"]) == ("b", "c")
    assert first["accuracy_standard"] == [0.95, 0.41] and first["accuracy_judge"] == [0.40, 0.70]
    assert first["support"] > 0.99
    assert (second["higher_under_standard"], second["higher_under_judge"]) == ("b", "a")
    # 95 against 90 of 100 under E: a normal approximation gives about 0.91.
    assert second["support"] == pytest.approx(0.9, abs=0.06)
    low, high = found["ci"]["tau"]
    assert -1 <= low <= found["tau"] <= high <= 1


def test_setups_that_are_equal_under_either_do_not_change_places():
    tied = [table(tp=6, tn=2, fp=2, fn=0), table(tp=3, tn=1, fp=5, fn=1), table(tp=2, tn=5, fp=1, fn=2)]
    # Under E: 0.8, 0.8, 0.3. Under the judge: 0.6, 0.4, 0.4.
    for order in (tied, tied[::-1]):
        assert ranking(["a", "b", "c"], order, resamples=0, seed=0)["swaps"] == []


def test_one_setup_or_equal_ones_have_no_tau():
    assert ranking(["a"], [table(1, 1, 1, 1)], resamples=10, seed=0)["tau"] is None
    assert ranking(["a", "b"], [table(1, 1, 1, 1)] * 2, resamples=10, seed=0)["tau"] is None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1)), max_size=40), st.booleans())
def test_agreement_and_effect_equal_those_of_the_rows(rows: list[tuple[int, int, int]], refused_as_no: bool):
    joint = np.zeros((5, 5, 2), dtype=np.int64)
    for row in rows:
        joint[row] += 1
    options = {"refused_as_no": refused_as_no, "resamples": 20, "seed": 0}
    answered = 3 if refused_as_no else 2
    both = [(a == 0, b == 0) for a, b, _ in rows if a < answered and b < answered]
    found = agreement(joint, **options)
    assert found["n"] == len(both)
    if len({value for pair in both for value in pair}) == 2:
        assert found["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)), abs=1e-12)
        assert found["agreement"] == pytest.approx(np.mean([a == b for a, b in both]))
    else:
        assert found["kappa"] is None
    change = effect(joint, **options)
    kept = [row for row in rows if row[0] < answered and row[1] < answered]
    assert (change["n"], change["left_out"]) == (len(kept), len(rows) - len(kept))
    if kept:
        first, second, _ = np.array(kept).T
        assert change["difference"] == pytest.approx((second == 0).mean() - (first == 0).mean())
        assert change["changed"] == pytest.approx((first != second).mean())
        assert change["accuracy_judge_from"] == pytest.approx((first == 0).mean())
    else:
        assert (change["difference"], change["changed"], change["fpr_to"], change["ci"]["difference"]) == (None,) * 4
    rejected = [accepted for _, b, accepted in kept if b in ((1, 2) if refused_as_no else (1,))]
    assert change["fpr_to"] == (pytest.approx(np.mean(rejected)) if rejected else None)
