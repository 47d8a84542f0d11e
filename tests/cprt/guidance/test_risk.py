"""What probabilities of lists come to: by hand, and by a loop over every list and attribute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cprt.guidance.advice import compose
from cprt.guidance.risk import Risk
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()
LISTS = {"gov_ids,age": 0.4, "age": 0.3, "age,gender": 0.16, "": 0.04}  # 0.9 of the probability


def risk(lists: dict[str, float] = LISTS) -> Risk:
    return Risk.read(lists, TAXONOMY)


def score(keys: str) -> float:
    return compose([key for key in keys.split(",") if key]).score


def test_attributes_and_scores_by_hand():
    found = risk()
    assert found.mass == pytest.approx(0.9)
    assert found.attributes["age"] == pytest.approx(0.86 / 0.9)
    assert found.attributes["gov_ids"] == pytest.approx(0.4 / 0.9) and found.attributes["location"] == 0
    mean = sum(probability * score(keys) for keys, probability in LISTS.items()) / 0.9
    assert found.mean == pytest.approx(mean)
    spread = sum(probability * (score(keys) - mean) ** 2 for keys, probability in LISTS.items()) / 0.9
    assert found.deviation == pytest.approx(spread**0.5)
    assert found.likeliest[0] == (("gov_ids", "age"), 0.4, pytest.approx(score("gov_ids,age")))
    assert [keys for keys, _, _ in found.likeliest] == [("gov_ids", "age"), ("age",), ("age", "gender"), ()]


def test_the_score_of_the_most_probable_level_is_not_that_of_the_most_probable_list():
    """Level 3 has 0.46, though the most probable list is of level 1."""
    found = risk()
    level_3 = (0.3 * score("age") + 0.16 * score("age,gender")) / 0.46
    assert found.level_mean == pytest.approx(level_3) and 0.292 <= found.level_mean < 0.514
    assert found.likeliest[0][2] >= 0.711 and found.level == 3
    assert found.levels == pytest.approx({1: 0.4 / 0.9, 2: 0, 3: 0.46 / 0.9, 4: 0.04 / 0.9})


def test_hiding_an_attribute_takes_it_from_every_list():
    left = (0.4 * score("age") + 0.3 * score("age") + 0.16 * score("age,gender")) / 0.9
    assert risk().hiding("gov_ids").mean == pytest.approx(left)
    assert risk().hiding("location").mean == pytest.approx(risk().mean)


def test_what_to_hide_first_leaves_least():
    """Without gov_ids level 3 is the most probable, without age too level 4."""
    found = risk({"gov_ids,age": 0.5, "age,gender": 0.2, "age,metadata": 0.2, "gov_ids": 0.1})
    first, second = found.hide_in_order(until_level=4)
    left = (0.5 * score("age") + 0.2 * score("age,gender") + 0.2 * score("age,metadata")) / 1.0
    assert (first.key, first.level, first.score) == ("gov_ids", 3, pytest.approx(left))
    left = 0.2 * score("gender") + 0.2 * score("metadata")
    assert (second.key, second.level, second.score) == ("age", 4, pytest.approx(left))
    assert found.hide_in_order() == [first]  # milder by one, or by more
    assert [step.key for step in found.hide_in_order(until_score=0.05)] == ["gov_ids", "age", "gender"]
    assert risk({"": 1.0}).hide_in_order(until_score=0.1) == []


def test_a_band_holds_what_is_probable():
    found = risk()
    assert found.band == (score("age"), score("gov_ids,age"))  # below it are 4.4%
    assert risk({"age": 0.7}).band == (score("age"), score("age"))
    many = {",".join(keys): 1 / 22 for keys in itertools.combinations(TAXONOMY.keys, 1)}
    low, high = risk(many).band
    scores = np.sort([score(key) for key in many])
    assert ((scores >= low) & (scores <= high)).mean() >= 0.9
    assert low == scores[1] and high == scores[20]


def test_how_probable_a_score_or_more_is():
    assert risk().exceeds(0.711) == pytest.approx(0.4 / 0.9)
    assert risk().exceeds(0.0) == 1 and risk().exceeds(1.0) == 0
