"""The severity score against the paper's numbers and an independent re-derivation of it with exact fractions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from cprt.scoring import format_score, level_of, levels_of, severities, severity
from cprt.taxonomy import Taxonomy

SIZES = (3, 10, 5, 4)
COMBINATIONS = list(itertools.product(*(range(size + 1) for size in SIZES)))
PAPER_BANDS = {1: (0.711, 1.0), 2: (0.514, 0.711), 3: (0.292, 0.514), 4: (0.0, 0.292)}


def paper_score(counts: tuple[int, ...]) -> tuple[int, float]:
    """A.3 and A.4 step by step, in fractions up to the square root, with the weights as the paper prints them."""
    weights = {1: 330, 2: 30, 3: 5, 4: 1}
    level = min(i for i in (1, 2, 3, 4) if counts[i - 1] > 0)
    lexicographic = sum(counts[k - 1] * weights[k] for k in range(level, 5))
    largest = sum(SIZES[k - 1] * weights[k] for k in range(level, 5))
    r, r_min = Fraction(lexicographic, largest), Fraction(weights[level], largest)
    low, high = PAPER_BANDS[level]
    return level, low + (high - low) * math.sqrt((r - r_min) / (1 - r_min))


def test_every_combination_has_the_papers_level_and_score():
    assert len(COMBINATIONS) == 1320
    for counts in COMBINATIONS[1:]:
        level, score = paper_score(counts)
        got = severity(counts)
        assert got.level == level
        assert got.score == pytest.approx(score, abs=1e-12)
        low, high = PAPER_BANDS[level]
        assert low <= got.score < high or (level == 1 and got.score <= 1.0)
        assert level_of(got.score) == level


def test_scores_are_strictly_ordered_over_all_non_empty_combinations():
    scores = [severity(counts).score for counts in COMBINATIONS[1:]]  # itertools.product counts lexicographically
    assert all(lower < higher for lower, higher in itertools.pairwise(scores))


@pytest.mark.parametrize(
    ("counts", "level", "printed"),
    [
        ((2, 10, 5, 4), 1, "0.947"),  # A.6
        ((1, 10, 0, 0), 1, "0.870"),  # A.6
        ((3, 10, 5, 4), 1, "1.000"),
        ((1, 0, 0, 0), 1, "0.711"),
        ((0, 10, 5, 4), 2, "0.710"),  # rounding would print 0.711, a level-1 score
        ((0, 10, 5, 3), 2, "0.710"),
        ((0, 1, 0, 0), 2, "0.514"),
        ((0, 0, 5, 4), 3, "0.513"),
        ((0, 0, 1, 0), 3, "0.292"),
        ((0, 0, 0, 4), 4, "0.291"),
        ((0, 0, 0, 1), 4, "0.000"),
        ((0, 0, 0, 0), 4, "0.000"),
    ],
)
def test_golden_values(counts, level, printed):
    got = severity(counts)
    assert (got.level, format_score(got.score)) == (level, printed)


def test_a_printed_score_never_leaves_its_band():
    for counts in COMBINATIONS:
        got = severity(counts)
        printed = float(format_score(got.score))
        assert level_of(printed) == got.level
        assert abs(printed - got.score) < 1e-3


def test_a_printed_score_never_reaches_the_band_above_wherever_that_begins():
    default = Taxonomy.default()
    for thousandths in range(2, 999):
        low = thousandths / 1000
        levels = [replace(one, lower_bound=b) for one, b in zip(default.levels, (0.9995, 0.999, low, 0), strict=True)]
        printed = format_score(np.nextafter(low, 0), replace(default, levels=tuple(levels)))
        assert printed == f"0.{thousandths - 1:03}"


@pytest.mark.parametrize(
    "counts", [(4, 0, 0, 0), (0, 11, 0, 0), (0, 0, 0, -1), (0, 0, 0, 0.5), (1, 2, 3), (1, 2, 3, 4, 5)]
)
def test_counts_outside_the_taxonomy_are_refused(counts):
    with pytest.raises(ValueError, match="count"):
        severity(counts)


def test_the_matrix_form_agrees_with_the_counts_whatever_attributes_make_them():
    rng = np.random.default_rng(0)
    taxonomy = Taxonomy.default()
    levels_of_columns = np.array([attribute.level for attribute in taxonomy.attributes])
    matrix = rng.choice([0, 0.5, 1], size=(2000, 22), p=[0.6, 0.1, 0.3])
    levels, scores = severities(matrix)
    for row, level, score in zip(matrix, levels, scores, strict=True):
        counts = [int(((row == 1) & (levels_of_columns == k)).sum()) for k in (1, 2, 3, 4)]
        assert (level, score) == (severity(counts).level, severity(counts).score)


def test_an_ambiguous_label_counts_as_absent():
    row = np.zeros((1, 22))
    row[0, 0] = 0.5  # biometrics, perhaps
    row[0, 13] = 1  # age
    levels, scores = severities(row)
    assert (levels[0], scores[0]) == (3, 0.292)


@pytest.mark.parametrize(
    "matrix", [np.full((2, 22), 0.7), np.full((2, 22), np.nan), np.full((2, 21), 1.0), np.ones(22)]
)
def test_other_labels_and_shapes_are_refused(matrix):
    with pytest.raises(ValueError, match="labels must"):
        severities(matrix)


@pytest.mark.parametrize(
    ("score", "level"),
    [(0, 4), (0.2919999, 4), (0.292, 3), (0.5139, 3), (0.514, 2), (0.7109, 2), (0.711, 1), (1, 1)],
)
def test_bands_are_half_open(score, level):
    assert level_of(score) == level
    assert levels_of([score]).tolist() == [level]


@pytest.mark.parametrize("score", [-0.001, 1.001, math.nan, math.inf])
def test_a_score_outside_the_unit_interval_has_no_level(score):
    with pytest.raises(ValueError, match="score"):
        level_of(score)
