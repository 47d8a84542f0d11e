"""Advice on what to hide against brute force over all subsets, and against values of the paper's formula by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cprt.guidance.advice import Step, compose, hide_in_order, without_each
from cprt.scoring import severities
from cprt.taxonomy import Taxonomy

KEYS = Taxonomy.default().keys


def exact(keys: set[str]) -> tuple[float, int]:
    """Score and level by way of the label matrix, which is another path through the scoring module."""
    levels, scores = severities([[float(key in keys) for key in KEYS]])
    return float(scores[0]), int(levels[0])


def test_values_by_hand():
    """One of level 1 and one of level 3: Eq. 17-20 with S = 330 + 5, S_max = 330*3 + 30*10 + 5*5 + 4 = 1319."""
    both = compose({"biometrics", "age"})
    assert both.level == 1
    assert both.score == pytest.approx(0.711 + 0.289 * math.sqrt(5 / (1319 - 330)), abs=1e-12)
    assert {key: (one.score, one.level) for key, one in without_each({"age", "biometrics"}).items()} == {
        "biometrics": (0.292, 3),
        "age": (0.711, 1),
    }
    assert hide_in_order({"age", "biometrics"}) == [Step("biometrics", 0.292, 3)]
    assert hide_in_order({"age", "biometrics"}, until_level=4) == [Step("biometrics", 0.292, 3), Step("age", 0.0, 4)]
    assert hide_in_order({"age", "biometrics"}, until_score=0.712) == [Step("biometrics", 0.292, 3)]
    assert hide_in_order({"age", "biometrics"}, until_score=0.292) == hide_in_order({"age", "biometrics"}, 4)


def test_nothing_to_hide():
    assert without_each(()) == {} and hide_in_order(()) == []
    assert hide_in_order({"metadata", "documents"}) == []  # there is no milder level than 4
    assert compose(()).score == 0 and compose(()).level == 4


def test_two_of_the_most_severe_level_must_both_go_before_the_level_falls():
    steps = hide_in_order({"gov_ids", "biometrics", "beliefs"})
    assert [(step.key, step.level) for step in steps] == [("biometrics", 1), ("gov_ids", 2)]


@settings(max_examples=60, deadline=None)
@given(
    keys=st.sets(st.sampled_from(KEYS), max_size=7),
    until_level=st.none() | st.sampled_from([1, 2, 3, 4]),
    until_score=st.none() | st.floats(0.01, 1),
)
def test_the_advice_is_the_best_of_all_subsets(keys, until_level, until_score):
    steps = hide_in_order(keys, until_level, until_score)
    goal_level = min(exact(keys)[1] + 1, 4) if until_level is None and until_score is None else until_level

    def meets(left: set[str]) -> bool:
        score, level = exact(left)
        return (goal_level is None or level >= goal_level) and (until_score is None or score < until_score)

    hidden: set[str] = set()
    for step in steps:
        assert not meets(keys - hidden)  # no step too many
        hidden.add(step.key)
        assert (step.score, step.level) == exact(keys - hidden)
        rivals = [exact(keys - set(some))[0] for some in itertools.combinations(keys, len(hidden))]
        assert step.score == min(rivals)
    assert meets(keys - hidden)
    fewest = min(
        n for n in range(len(keys) + 1) if any(meets(keys - set(some)) for some in itertools.combinations(keys, n))
    )
    assert len(steps) == fewest
    assert {key: (one.score, one.level) for key, one in without_each(keys).items()} == {
        key: exact(keys - {key}) for key in keys
    }


def test_an_extended_taxonomy_brings_its_own_order_and_weights(tmp_path):
    (tmp_path / "t.yaml").write_text(
        "attributes:\n  - {key: voice_print, level: 1, question: 'Is a voice print visible?'}\nremove: [gov_ids]\n"
    )
    taxonomy = Taxonomy.load(tmp_path / "t.yaml")
    steps = hide_in_order({"voice_print", "age"}, taxonomy=taxonomy)
    assert [(step.key, step.level) for step in steps] == [("voice_print", 3)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (({"face"},), "attribute 'face' is not in the taxonomy"),
        (({"age"}, 5), "until_level must be 1, 2, 3 or 4"),
        (({"age"}, None, 0.0), "until_score must be more than 0"),
        (({"age"}, None, math.nan), "until_score must be more than 0"),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        hide_in_order(*arguments)
