"""The arithmetic against scikit-learn, scipy and simulation; what is undefined stays undefined."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from cprt.metrics.bootstrap import ClusteredShare, resample_clusters
from eval.model_inversion.compare.statistics import Judged, agreement, effect, kendall_tau, pooled, ranking, stacked
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.correction import correct

CELLS = st.lists(st.integers(0, 30), min_size=10, max_size=10)


def measure(counts: np.ndarray, counting: rates.Counting) -> SimpleNamespace:
    """Figures, intervals and design effects."""
    measured, shares = rates.measure(
        counts, counting, resample_clusters(len(counts), counting.resamples, counting.seed)
    )
    figures, intervals = rates.split(measured)
    effects = {name: share.design_effect for name, share in shares.items()}
    return SimpleNamespace(figures=figures, intervals=intervals, design_effects=effects, shares=shares)


def table(tp: int, tn: int, fp: int, fn: int, refused: tuple[int, int] = (0, 0)) -> np.ndarray:
    """(5, 2) counts."""
    return np.array([[fn, tp], [tn, fp], refused, [0, 0], [0, 0]])


def rows_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(5, 2) counts -> label index and E's verdict of every reconstruction."""
    labels, accepted = np.indices(counts.shape).reshape(2, -1)
    return np.repeat(labels, counts.ravel()), np.repeat(accepted, counts.ravel())


def spread_out(counts: np.ndarray, classes: int = 25) -> np.ndarray:
    """(5, 2) counts -> (classes, 5, 2): every row in turn to the next class."""
    label, accepted = rows_of(counts)
    by_class = np.zeros((classes, 5, 2), dtype=np.int64)
    np.add.at(by_class, (np.arange(len(label)) % classes, label, accepted), 1)
    return by_class


@given(CELLS, st.booleans(), st.integers(1, 6))
def test_every_rate_equals_scikit_learns(cells: list[int], refused_as_no: bool, classes: int):
    counts = np.array(cells).reshape(5, 2)
    by_class = spread_out(counts, classes)
    measured = measure(by_class, rates.Counting(refused_as_no=refused_as_no, resamples=0))
    figures = measured.figures
    label, accepted = rows_of(counts)
    n = len(label)
    assert (figures["n"], figures["classes"]) == (n, classes)
    assert figures["accuracy_judge"] == (pytest.approx((label == 0).mean()) if n else None)
    assert figures["accuracy_standard"] == (pytest.approx(accepted.mean()) if n else None)
    kept = label < (3 if refused_as_no else 2)
    truth, predicted = (label[kept] == 0).astype(int), accepted[kept]
    tn, fp, fn, tp = confusion_matrix(truth, predicted, labels=[0, 1]).ravel() if kept.any() else (0, 0, 0, 0)
    assert [figures[name] for name in ("tn", "fp", "fn", "tp")] == [tn, fp, fn, tp]
    parts = rates.fractions(by_class, refused_as_no)
    for name, part, whole in (("fpr", fp, fp + tn), ("fnr", fn, fn + tp), ("tpr", tp, fn + tp), ("tnr", tn, fp + tn)):
        assert figures[name] == (pytest.approx(part / whole) if whole else None)  # fault 4: never 0 where undefined
        assert measured.intervals[name] == ClusteredShare.of(*parts[name]).interval
        assert (measured.intervals[name] is None) == (measured.design_effects[name] is None) == (whole == 0)
    one_answer = len(set(truth)) < 2 and len(set(predicted)) < 2 and (not kept.any() or truth[0] == predicted[0])
    assert figures["kappa"] == (None if one_answer else pytest.approx(cohen_kappa_score(truth, predicted), abs=1e-12))


def test_an_empty_denominator_is_undefined_not_zero():
    """Fault 4 of the public code."""
    measured = measure(spread_out(table(tp=3, tn=0, fp=0, fn=2)), rates.Counting())
    figures, intervals = measured.figures, measured.intervals
    assert (figures["fpr"], figures["tnr"], intervals["fpr"], intervals["tnr"]) == (None,) * 4
    assert (figures["tpr"], figures["fnr"]) == (0.6, 0.4)
    measured = measure(spread_out(table(0, 0, 0, 0, refused=(2, 1))), rates.Counting())
    figures = measured.figures
    assert (figures["n"], figures["accuracy_judge"], figures["kappa"]) == (3, 0.0, None)
    assert {figures[name] for name in ("fpr", "fnr", "tpr", "tnr")} == {None} and measured.intervals["kappa"] is None


def test_bootstrap_intervals_equal_those_of_resampled_classes():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet([4, 1, 1.5, 2], 60)
    by_class = np.zeros((60, 5, 2), dtype=np.int64)
    by_class[:, :2] = np.stack([rng.multinomial(7, chance) for chance in chances]).reshape(60, 2, 2)
    counting = rates.Counting(resamples=4000, seed=3)
    measured = measure(by_class, counting)
    kappas, gaps = [], []
    for _ in range(3000):
        (fn, tp), (tn, fp) = by_class[rng.integers(60, size=60)].sum(axis=0)[:2]
        n = fn + tp + tn + fp
        chance = ((tp + fn) * (tp + fp) + (tn + fp) * (tn + fn)) / n**2
        kappas.append(((tp + tn) / n - chance) / (1 - chance))
        gaps.append((fp - fn) / n)
    for name, values in (("kappa", kappas), ("accuracy_gap", gaps)):
        low, high = measured.intervals[name]
        middle, half = np.mean(np.percentile(values, [2.5, 97.5])), np.ptp(np.percentile(values, [2.5, 97.5])) / 2
        assert (low + high) / 2 == pytest.approx(middle, abs=0.1 * half)
        assert 0.97 * half < (high - low) / 2 < 1.12 * half  # moved outwards, as 60 classes are few
    assert measure(by_class, counting).intervals == measured.intervals  # the seed decides
    again = measure(np.repeat(by_class, 4, axis=0), counting)
    assert measured.intervals.pop("refusal_rate")[0] == 0  # nobody refused
    for name, (low, high) in measured.intervals.items():
        assert np.ptp(again.intervals[name]) == pytest.approx((high - low) / 2, rel=0.1)  # four times the classes


def test_the_interval_of_kappa_needs_resamples_in_which_it_is_defined():
    measured = measure(spread_out(table(tp=50, tn=0, fp=1, fn=0)), rates.Counting())  # often all agree on yes: no kappa
    assert measured.figures["kappa"] == 0 and measured.intervals["kappa"] is None


# --- A judge's own errors ----------------------------------------------------------------------------------------


def of(yes: int, n: int) -> ClusteredShare:
    """So many of n, each in a class of its own."""
    return ClusteredShare.of([1] * yes + [0] * (n - yes), [1] * n)


def test_correction_by_hand():
    # p = 0.5, hit rate 0.9, false alarms 0.1: (0.5 - 0.1) / (0.9 - 0.1)
    value, interval = rates.corrected(of(50, 100), of(90, 100), of(10, 100))
    assert value == pytest.approx(0.5) and interval is not None and interval[0] < 0.5 < interval[1]
    assert rates.corrected(of(5, 100), of(90, 100), of(10, 100))[0] == pytest.approx(-0.0625)  # not clipped here
    assert rates.corrected(of(40, 100), of(80, 100), of(0, 50))[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        ((50, 100), (50, 100)),
        ((1, 3), (2, 6)),  # equal shares
        ((10, 100), (90, 100)),
        ((0, 0), (0, 10)),
        ((10, 10), (0, 0)),
    ],
)
def test_a_judge_that_knows_nothing_cannot_be_corrected(positive: tuple[int, int], negative: tuple[int, int]):
    assert rates.corrected(of(50, 100), of(*positive), of(*negative)) == (None, None)


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
        _, interval = rates.corrected(of(yes, n), of(hits, pairs), of(alarms, pairs))
        assert interval is not None
        covered += max(0.0, interval[0]) <= share <= min(1.0, interval[1])
    assert covered / rounds >= 0.94


def controls(hits: int, alarms: int, pairs: int = 200) -> dict[str, dict[str, Counter[str]]]:
    """A judge's answers to so many pairs of each kind, each of a class of its own; degraded ones were not asked."""
    answers = {
        kind: {str(i): Counter({"yes" if i < yes else "no": 1}) for i in range(pairs)}
        for kind, yes in (("positive", hits), ("negative", alarms))
    }
    return answers | {"positive_degraded": {}, "negative_degraded": {}}


def corrected(by_class: np.ndarray, answers: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    shares = measure(by_class, rates.Counting(resamples=0)).shares
    weights = resample_clusters(len(by_class), 1000, 0)
    return rates.split(correct(by_class, shares, answers, rates.Counting(**options), weights))


def test_resamples_that_all_say_the_same_give_no_interval():
    """Two who never differ, and no false negative: the share has an interval, the others would be a point."""
    both = np.zeros((40, 5, 5, 2), dtype=np.int64)
    both[:, 0, 0], both[:, 1, 1] = 3, 4
    found = agreement(both, rates.Counting(resamples=200))
    assert (found["kappa"], found["ci"]["kappa"], found["agreement"]) == (1.0, None, 1.0)
    assert found["ci"]["agreement"][0] < 1
    changed = effect(both, rates.Counting(resamples=200))
    assert (changed["difference"], changed["ci"]["difference"]) == (0.0, None) and changed["ci"]["changed"][1] > 0
    by_class = spread_out(table(tp=120, fn=0, fp=60, tn=80), 40)
    figures, intervals = corrected(by_class, controls(180, 20))
    assert (figures["fnr_corrected"], intervals["fnr_corrected"]) == (0.0, None)
    assert intervals["fpr_corrected"][0] < figures["fpr_corrected"] < intervals["fpr_corrected"][1]
    assert measure(by_class, rates.Counting(resamples=0)).intervals["fnr"][1] > 0.01


def test_corrected_rates_are_those_of_the_truth_where_the_assumption_holds():
    """Truth: of 10,000, E accepts 8 of 10 true and 6 of 10 false ones; the judge hits 0.9 and is fooled by 0.2."""
    true, false, h, f = 4000, 6000, 0.9, 0.2
    accepted, rejected = (true * 0.8, false * 0.6), (true * 0.2, false * 0.4)
    tp, fn = (round(t * h + u * f) for t, u in (accepted, rejected))
    by_class = spread_out(table(tp=tp, fn=fn, fp=round(sum(accepted) - tp), tn=round(sum(rejected) - fn)), 50)
    measured = measure(by_class, rates.Counting(resamples=0))
    assert abs(measured.figures["fpr"] - 0.6) > 0.01 and abs(measured.figures["fnr"] - 0.2) > 0.04  # the judge's errors
    figures, intervals = corrected(by_class, controls(180, 40))
    assert figures["accuracy_judge_corrected"] == pytest.approx(0.4, abs=1e-3)
    assert figures["fpr_corrected"] == pytest.approx(0.6, abs=1e-3)
    assert figures["fnr_corrected"] == pytest.approx(0.2, abs=1e-3)
    for name in ("fpr_corrected", "fnr_corrected"):
        low, high = intervals[name]
        assert low < figures[name] < high and high - low < 0.25
    assert intervals["fnr_corrected"][1] - intervals["fnr_corrected"][0] > 0.02  # the controls are few
    assert "errs on reconstructions as often as on its control pairs" in figures["correction_assumes"]["accuracy"]


def test_the_range_is_that_of_a_judge_who_errs_more_on_reconstructions():
    """Of 1,000 the judge says yes to 500; on controls it hits 0.9 and is fooled by 0.1."""
    by_class = spread_out(table(tp=400, fn=100, fp=300, tn=200), 40)
    figures, _ = corrected(by_class, controls(180, 20))
    # Hits 0.9 or 0.8, false alarms 0.1 or 0.2: from (0.5 - 0.2) / (0.9 - 0.2) to (0.5 - 0.1) / (0.8 - 0.1).
    assert figures["accuracy_judge_corrected"] == pytest.approx(0.5)
    assert figures["accuracy_judge_corrected_range"] == pytest.approx([3 / 7, 4 / 7])
    none, _ = corrected(by_class, controls(180, 20), error_margin=0.0)
    assert none["accuracy_judge_corrected_range"] == pytest.approx([0.5, 0.5])
    wide, _ = corrected(by_class, controls(180, 20), error_margin=0.5)
    assert wide["accuracy_judge_corrected_range"] is None  # then its yes might say nothing


def test_degraded_controls_correct_for_what_clean_ones_do_not_show():
    """A judge that hits 0.95 of clean pairs but 0.6 of degraded ones: of 1,000 all true it says yes to 600."""
    by_class = spread_out(table(tp=500, fn=100, fp=300, tn=100), 40)
    clean, degraded = controls(190, 0), controls(120, 0)
    both = clean | {f"{kind}_degraded": degraded[kind] for kind in ("positive", "negative")}
    figures, intervals = corrected(by_class, both)
    assert figures["accuracy_judge_corrected"] == pytest.approx(0.6 / 0.95)
    assert figures["accuracy_judge_corrected_degraded"] == pytest.approx(1.0)
    assert (figures["control_hit_rate"], figures["degraded_hit_rate"]) == (0.95, 0.6)
    assert intervals["accuracy_judge_corrected_degraded"][1] == 1.0
    without, _ = corrected(by_class, clean)
    assert without["accuracy_judge_corrected_degraded"] is without["degraded_hit_rate"] is None


@pytest.mark.parametrize("answers", [None, controls(50, 50), controls(20, 120)])
def test_without_controls_that_say_something_nothing_is_corrected(answers: Any):
    figures, intervals = corrected(spread_out(table(tp=40, fn=10, fp=30, tn=20)), answers)
    names = ("accuracy_judge_corrected", "fpr_corrected", "fnr_corrected", "accuracy_judge_corrected_range")
    assert {figures[name] for name in names} == {None}
    assert {intervals[name] for name in names[:3]} == {None}


def test_the_difference_of_shares_is_newcombes():
    """The worked example of Newcombe (1998, table II, method 10): 56/70 against 48/80."""
    independent = [ClusteredShare(part, whole, whole, 1e9) for part, whole in ((56, 70), (48, 80))]
    value, interval = rates.difference(*independent)
    assert value == pytest.approx(0.2) and interval == pytest.approx([0.0524, 0.3339], abs=5e-5)
    assert rates.difference(of(0, 0), of(1, 2)) == (None, None)


# --- Several judges and set-ups ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_tau_equals_scipys(points: list[tuple[int, int]]):
    x, y = np.array(points).reshape(-1, 2).T
    expected = stats.kendalltau(x, y).statistic if len(points) > 1 else np.nan
    assert kendall_tau(x, y) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    assert kendall_tau(np.stack([x, x]), np.stack([y, x]))[0] == pytest.approx(expected, nan_ok=True, abs=1e-12)


def judged(*counts: np.ndarray, private: str | None = None) -> list[Judged]:
    """Set-ups a, b, ... of so many (5, 2) counts in 25 classes, each on its own private data unless told."""
    return [
        Judged(name, private or name, {str(i): part for i, part in enumerate(spread_out(table))})
        for name, table in zip("abcdef", counts, strict=False)
    ]


def test_setups_on_the_same_private_data_are_drawn_together():
    """Two set-ups whose classes are equally hard: drawn apart they often change places, drawn together never."""
    rng = np.random.default_rng(0)
    hard = rng.beta(0.5, 0.5, 25)
    first, second = np.zeros((25, 5, 2), dtype=np.int64), np.zeros((25, 5, 2), dtype=np.int64)
    for row, chance in enumerate(hard):
        yes = round(40 * chance)
        first[row, 0, 1], first[row, 1, 1] = yes, 40 - yes
        second[row, 0, 0] = min(yes + 1, 40)  # E rejects all, the judge accepts one more in nearly every class
        second[row, 1, 0] = 40 - second[row, 0, 0]
    supports = {}
    for private in ("one", None):
        both = [
            Judged(name, private or name, {str(i): part for i, part in enumerate(counts)})
            for name, counts in (("a", first), ("b", second))
        ]
        (swap,) = ranking(both, rates.Counting(resamples=1000))["swaps"]
        supports[private] = swap["support"]
    assert supports["one"] == 1.0 and 0.4 < supports[None] < 0.75


def test_a_class_of_several_setups_is_one_class():
    ones = np.ones((5, 5, 2), dtype=np.int64)
    private = {"CelebA/PPA/x/y": "faces", "mine": "faces", "Dogs/PPA/x/y": "Dogs"}
    total = pooled(
        {"CelebA/PPA/x/y": {"1": ones, "2": ones}, "mine": {"1": ones}, "Dogs/PPA/x/y": {"1": ones}}, private
    )
    assert {name: int(table[0, 0, 0]) for name, table in total.items()} == {"faces/1": 2, "faces/2": 1, "Dogs/1": 1}
    assert stacked(total).shape == (3, 5, 5, 2) and stacked({}).shape == (1, 5, 5, 2)


def test_ranking_finds_who_changes_places_and_how_surely():
    counts = [table(tp=80, tn=5, fp=10, fn=5), table(tp=40, tn=5, fp=55, fn=0), table(tp=40, tn=29, fp=1, fn=30)]
    # Under E: 0.90, 0.95, 0.41. Under the judge: 0.85, 0.40, 0.70.
    found = ranking(judged(*counts), rates.Counting(resamples=500))
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
        assert ranking(judged(*order), rates.Counting(resamples=0))["swaps"] == []


def test_one_setup_or_equal_ones_have_no_tau():
    assert ranking(judged(table(1, 1, 1, 1)), rates.Counting(resamples=10))["tau"] is None
    assert ranking(judged(*[table(1, 1, 1, 1)] * 2), rates.Counting(resamples=10))["tau"] is None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1)), max_size=40), st.booleans())
def test_agreement_and_effect_equal_those_of_the_rows(rows: list[tuple[int, int, int]], refused_as_no: bool):
    joint = np.zeros((3, 5, 5, 2), dtype=np.int64)
    for number, row in enumerate(rows):
        joint[(number % 3, *row)] += 1
    counting = rates.Counting(refused_as_no, resamples=20)
    answered = 3 if refused_as_no else 2
    both = [(a == 0, b == 0) for a, b, _ in rows if a < answered and b < answered]
    found = agreement(joint, counting)
    assert found["n"] == len(both)
    if len({value for pair in both for value in pair}) == 2:
        assert found["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)), abs=1e-12)
        assert found["agreement"] == pytest.approx(np.mean([a == b for a, b in both]))
    else:
        assert found["kappa"] is None
    change = effect(joint, counting)
    kept = [row for row in rows if row[0] < answered and row[1] < answered]
    assert (change["n"], change["left_out"]) == (len(kept), len(rows) - len(kept))
    if kept:
        first, second, _ = np.array(kept).T
        assert change["difference"] == pytest.approx((second == 0).mean() - (first == 0).mean())
        assert change["changed"] == pytest.approx(((first == 0) != (second == 0)).mean())
        assert change["accuracy_judge_from"] == pytest.approx((first == 0).mean())
    else:
        assert (change["difference"], change["changed"], change["fpr_to"], change["ci"]["difference"]) == (None,) * 4
    rejected = [accepted for _, b, accepted in kept if b in ((1, 2) if refused_as_no else (1,))]
    assert change["fpr_to"] == (pytest.approx(np.mean(rejected)) if rejected else None)
