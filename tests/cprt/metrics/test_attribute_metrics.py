"""Per-attribute figures against scikit-learn, with what is undefined left undefined."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from cprt.metrics.attributes import FIGURES, evaluate_attributes
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


def test_intervals_are_those_of_the_resampled_images():
    present, named = drawn(40)
    found = evaluate_attributes(as_sets(present), as_sets(named), resamples=100, seed=3)
    rows = np.random.default_rng(3).integers(40, size=(100, 40))
    resampled = [precision_recall_fscore_support(present[row], named[row], average="micro")[:3] for row in rows]
    for name, values in zip(FIGURES, np.transpose(resampled), strict=True):
        assert found["micro"]["ci"][name] == pytest.approx(np.percentile(values, [2.5, 97.5]).tolist())
    first = [
        precision_recall_fscore_support(present[row, 0], named[row, 0], average="binary", zero_division=np.nan)[0]
        for row in rows
    ]
    assert found["per_attribute"][KEYS[0]]["ci"]["precision"] == pytest.approx(
        np.nanpercentile(first, [2.5, 97.5]).tolist()
    )
    assert found["per_attribute"][KEYS[-1]]["ci"]["recall"] is None


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
