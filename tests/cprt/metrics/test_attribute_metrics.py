"""Per-attribute figures against scikit-learn, with what is undefined left undefined."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    precision_recall_fscore_support,
    roc_auc_score,
)

from cprt.guidance.advice import compose
from cprt.metrics.attributes import FIGURES, evaluate_attributes, evaluate_probabilities
from cprt.metrics.bootstrap import ClusteredShare
from cprt.taxonomy import Taxonomy

KEYS = Taxonomy.default().keys


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 22) present and named; the last attribute is never present, the one before never named."""
    rng = np.random.default_rng(seed)
    present = rng.random((n, len(KEYS))) < rng.random(len(KEYS)) / 2
    named = np.where(rng.random(present.shape) < 0.8, present, rng.random(present.shape) < 0.2)
    present[:, -1], named[:, -2] = False, False
    return present, named


def as_sets(matrix: np.ndarray) -> dict[str, list[str]]:
    return {
        str(row): [key for key, is_there in zip(KEYS, flags, strict=True) if is_there]
        for row, flags in enumerate(matrix)
    }


def none_where_nan(value: float) -> float | None:
    return None if np.isnan(value) else pytest.approx(value)


def test_figures_equal_scikit_learns():
    present, named = drawn(80)
    found = evaluate_attributes(as_sets(present), as_sets(named), resamples=0)
    assert found["n"] == 80 and found["coverage"] == 1
    by_key = precision_recall_fscore_support(present, named, average=None, zero_division=np.nan)
    for column, key in enumerate(KEYS):
        entry = found["per_attribute"][key]
        assert entry["support"] == by_key[3][column] and entry["ci"] == {}
        for name, values in zip(FIGURES, by_key, strict=False):
            assert entry[name] == none_where_nan(values[column]), (key, name)
    assert found["per_attribute"][KEYS[-1]]["recall"] is None and found["per_attribute"][KEYS[-2]]["precision"] is None
    micro = precision_recall_fscore_support(present, named, average="micro")
    assert [found["micro"][name] for name in FIGURES] == pytest.approx(micro[:3])
    for name, values in zip(FIGURES, by_key, strict=False):
        assert found["macro"][name] == pytest.approx(np.nanmean(values))


def test_intervals_are_wilsons_and_those_of_the_resampled_images():
    present, named = drawn(40)
    found = evaluate_attributes(as_sets(present), as_sets(named), resamples=100, seed=3)
    rows = np.random.default_rng(3).integers(40, size=(100, 40))
    f1 = [precision_recall_fscore_support(present[row], named[row], average="micro")[2] for row in rows]
    assert found["micro"]["ci"]["f1"] == pytest.approx(np.percentile(f1, [2.5, 97.5]).tolist())
    both = (present * named).astype(int)
    for name, whole in (("precision", named), ("recall", present)):
        bounds = binomtest(both[:, 0].sum(), int(whole[:, 0].sum())).proportion_ci(method="wilson")
        assert found["per_attribute"][KEYS[0]]["ci"][name] == pytest.approx([bounds.low, bounds.high])
        pooled = ClusteredShare.of(both.sum(axis=1), whole.sum(axis=1)).interval
        assert found["micro"]["ci"][name] == pytest.approx(pooled)
    assert found["per_attribute"][KEYS[-1]]["ci"]["recall"] is None


def test_three_of_three_is_not_certain():
    sets = {str(image): {KEYS[0]} for image in range(3)}
    found = evaluate_attributes(sets, sets)["per_attribute"][KEYS[0]]
    assert found["precision"] == found["recall"] == found["f1"] == 1
    low, high = binomtest(3, 3).proportion_ci(method="wilson")
    assert found["ci"] == {"precision": pytest.approx([low, high]), "recall": pytest.approx([low, high]), "f1": None}


def test_images_without_named_attributes_count_against_coverage_only():
    present, named = drawn(10)
    said = as_sets(named)
    part = {id: said[id] for id in ("1", "4", "7")}
    found = evaluate_attributes(as_sets(present), part, resamples=0)
    alone = evaluate_attributes(as_sets(present[[1, 4, 7]]), as_sets(named[[1, 4, 7]]), resamples=0)
    assert found["n"] == 10 and found["coverage"] == 0.3
    assert {name: found[name] for name in ("per_attribute", "micro", "macro")} == {
        name: alone[name] for name in ("per_attribute", "micro", "macro")
    }
    nothing = evaluate_attributes(as_sets(present), {})
    assert nothing["coverage"] == 0 and nothing["micro"]["f1"] is None and nothing["macro"]["f1"] is None


def test_levels_are_over_the_counts_of_their_attributes():
    present, named = drawn(60)
    found = evaluate_attributes(as_sets(present), as_sets(named), resamples=0)
    for level in (1, 2, 3, 4):
        columns = [column for column, one in enumerate(Taxonomy.default().attributes) if one.level == level]
        expected = precision_recall_fscore_support(present[:, columns], named[:, columns], average="micro")
        assert [found["levels"][str(level)][name] for name in FIGURES] == pytest.approx(expected[:3])


def test_what_an_error_costs_is_the_severity_that_it_changes():
    """A missed passport in one of two photos, an invented age in the other."""
    truth, named = {"a": ["gov_ids", "age"], "b": ["location"]}, {"a": ["age"], "b": ["location", "age"]}
    found = evaluate_attributes(truth, named, resamples=50)
    missed = (compose(["gov_ids", "age"]).score - compose(["age"]).score) / 2
    invented = (compose(["location", "age"]).score - compose(["location"]).score) / 2
    assert found["costs"]["gov_ids"]["missed"] == pytest.approx(missed) and found["costs"]["gov_ids"]["invented"] == 0
    assert found["costs"]["age"]["invented"] == pytest.approx(invented) and found["costs"]["age"]["missed"] == 0
    assert found["costliest"] == {"attribute": "gov_ids", "error": "missed", "cost": pytest.approx(missed)}
    assert found["costs"]["gov_ids"]["ci"]["missed"] == pytest.approx([0, 2 * missed])
    assert sum(found["costs"][key][error] > 0 for key in KEYS for error in ("missed", "invented")) == 2


# --- Probabilities -------------------------------------------------------------------------------------------------


def guessed(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, 22) present and probabilities with ties; the last attribute is never present."""
    rng = np.random.default_rng(1)
    present = rng.random((n, len(KEYS))) < rng.uniform(0.1, 0.5, len(KEYS))
    present[:, -1], noise = False, rng.random(present.shape)
    return present, np.round(np.clip(0.4 * present + 0.6 * noise, 0, 1), 1)


def as_probabilities(matrix: np.ndarray) -> dict[str, dict[str, float]]:
    return {str(row): dict(zip(KEYS, values.tolist(), strict=True)) for row, values in enumerate(matrix)}


def test_figures_of_probabilities_equal_scikit_learns():
    present, said = guessed(80)
    found = evaluate_probabilities(as_sets(present), as_probabilities(said), resamples=0)
    for column, key in enumerate(KEYS[:-1]):
        entry = found["per_attribute"][key]
        assert entry["auc"] == pytest.approx(roc_auc_score(present[:, column], said[:, column]))
        assert entry["average_precision"] == pytest.approx(average_precision_score(present[:, column], said[:, column]))
        assert entry["brier"] == pytest.approx(brier_score_loss(present[:, column], said[:, column]))
    never = found["per_attribute"][KEYS[-1]]
    assert never["auc"] is None and never["average_precision"] is None and never["brier"] is not None
    assert found["all"]["auc"] == pytest.approx(roc_auc_score(present.ravel(), said.ravel()))
    level_2 = [column for column, one in enumerate(Taxonomy.default().attributes) if one.level == 2]
    expected = average_precision_score(present[:, level_2].ravel(), said[:, level_2].ravel())
    assert found["levels"]["2"]["average_precision"] == pytest.approx(expected)
    for row in found["reliability"]:
        low, high = row["bin"]
        inside = (said >= low) & ((said < high) | (high == 1))
        assert row["n"] == inside.sum()
        assert row["present"] == pytest.approx(present[inside].mean())
        assert row["mean_probability"] == pytest.approx(said[inside].mean())


def test_intervals_of_probabilities_are_those_of_the_resampled_images():
    present, said = guessed(40)
    found = evaluate_probabilities(as_sets(present), as_probabilities(said), resamples=100, seed=3)
    rows = np.random.default_rng(3).integers(40, size=(100, 40))
    for name, figure in (("auc", roc_auc_score), ("average_precision", average_precision_score)):
        resampled = [figure(present[row].ravel(), said[row].ravel()) for row in rows]
        assert found["all"]["ci"][name] == pytest.approx(np.percentile(resampled, [2.5, 97.5]).tolist())
    assert found["per_attribute"][KEYS[-1]]["ci"]["auc"] is None
