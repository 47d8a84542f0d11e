"""The taxonomy against the paper's tables, its worked examples, and extension."""

from __future__ import annotations

from pathlib import Path

import pytest

from cprt.errors import InputError
from cprt.prompts import build
from cprt.scoring import format_score, level_of, severity
from cprt.taxonomy import Taxonomy

PAPER_ORDER = (
    "biometrics gov_ids unique_body_markings contact_details full_legal_name non_unique_id medical_data financial_data "
    "beliefs nudity disability emotion_mental_health race_ethnicity age gender location activities lifestyle "
    "property_assets documents metadata background_people"
).split()


def test_attributes_levels_and_weights_are_the_papers():
    taxonomy = Taxonomy.default()
    assert list(taxonomy.keys) == PAPER_ORDER  # Table 5's order
    assert [attribute.level for attribute in taxonomy.attributes] == [1] * 3 + [2] * 10 + [3] * 5 + [4] * 4
    assert taxonomy.sizes == (3, 10, 5, 4)
    assert taxonomy.weights == (330, 30, 5, 1)  # Eq. 12
    assert taxonomy.lower_bounds == (0.711, 0.514, 0.292, 0.0)


@pytest.mark.parametrize(
    ("key", "question"),
    [
        ("nudity", "Is nudity or sexual content visible?"),
        ("full_legal_name", "Is a full legal name visible?"),
        ("race_ethnicity", "Is race or ethnicity inferable?"),
        ("background_people", "Are background individuals or crowds present?"),
    ],
)
def test_questions_stand_with_their_keys(key, question):
    attributes = {attribute.key: attribute for attribute in Taxonomy.default().attributes}
    assert attributes[key].question == question


@pytest.mark.parametrize(
    ("answers", "level"),
    [
        ((True, False, False, False), 1),  # B.1: passport number
        ((True, True, True, True), 1),  # the first yes decides
        ((False, True, False, False), 2),  # B.1: pregnancy status
        ((False, False, True, False), 3),  # B.1: hobbies
        ((False, False, False, True), 4),  # B.1: expensive watch
        ((False, False, False, False), None),
    ],
)
def test_the_decision_tree(answers, level):
    assert Taxonomy.decide(*answers) == level


def test_an_extension_rederives_sizes_weights_and_scores(tmp_path: Path):
    file = tmp_path / "more.yaml"
    file.write_text(
        "remove: [metadata]\nattributes:\n"
        "  - {key: voice_print, level: 1, question: 'Is a voice print visible?'}\n"
        "  - {key: pets, level: 4, question: 'Are pets visible?'}\n"
        "  - {key: habitat, level: 4, question: 'Is a habitat visible?'}\n"
    )
    taxonomy = Taxonomy.load(file)
    assert taxonomy.sizes == (4, 10, 5, 5)
    assert taxonomy.weights == (396, 36, 6, 1)  # by hand: 1, 1 + 5, 1 + 5 + 30, 1 + 5 + 30 + 360
    assert taxonomy.keys[3] == "voice_print" and taxonomy.keys[-2:] == ("pets", "habitat")
    assert severity((4, 10, 5, 5), taxonomy).score == 1.0
    with pytest.raises(ValueError, match="count 4 of level 1"):
        severity((4, 0, 0, 0))
    policy = build("taxonomy", "score", taxonomy).policy
    assert "voice_print: Is a voice print visible?" in policy and "metadata" not in policy
    assert taxonomy.digest != Taxonomy.default().digest


def test_bands_of_ones_own_move_scores_levels_and_what_answers_print(tmp_path: Path):
    file = tmp_path / "bands.yaml"
    file.write_text("bands: [0.8, 0.5, 0.1]\n")
    taxonomy = Taxonomy.load(file)
    assert taxonomy.lower_bounds == (0.8, 0.5, 0.1, 0.0) and taxonomy.keys == Taxonomy.default().keys
    for counts, low in (((1, 0, 0, 0), 0.8), ((0, 1, 0, 0), 0.5), ((0, 0, 1, 0), 0.1), ((0, 0, 0, 1), 0.0)):
        assert severity(counts, taxonomy).score == pytest.approx(low)
    top = severity((0, 10, 5, 4), taxonomy)
    assert top.level == 2 and 0.79 < top.score < 0.8 and format_score(top.score, taxonomy) == "0.799"
    assert [level_of(score, taxonomy) for score in (0.8, 0.799, 0.5, 0.1, 0.099)] == [1, 2, 2, 3, 4]
    # Eq. 20 by hand: 0.8 + 0.2 * sqrt(lexicographic score over the heaviest)
    expected = 0.8 + 0.2 * ((330 * 2 - 330) / (3 * 330 + 10 * 30 + 5 * 5 + 4 - 330)) ** 0.5
    assert severity((2, 0, 0, 0), taxonomy).score == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("attributes: [{key: age, level: 3, question: 'Again?'}]", "'age' is there twice"),
        (
            "attributes: [{key: pets, level: 5, question: 'Are there pets?'}]",
            "level': must be 1 to 4, not 5",
        ),
        ("attributes: [{key: Pets!, level: 4, question: 'Are there pets?'}]", "'Pets!' is not a lower_case_name"),
        ("attributes: [{key: pets, level: 4}]", "field 'attributes[23].question': is missing"),
        ("attributes: pets", "field 'attributes': 'pets' is not a list"),
        ("remove: [petz]", "'petz' is not in the published taxonomy"),
        ("bands: [0.7, 0.5]", "field 'bands': must be three numbers"),
        ("bands: [0.7, 0.5, '0.2']", "field 'bands': must be three numbers"),
        ("bands: [0.5, 0.7, 0.2]", "field 'bands': must fall"),
        ("bands: [1.0, 0.7, 0.2]", "field 'bands': must fall"),
        ("bands: [0.7, 0.5, 0.0]", "field 'bands': must fall"),
        ("bands: [0.7, 0.5, .nan]", "field 'bands': must be three numbers"),
        ("bands: [0.7123, 0.5, 0.2]", "at most three decimals"),
        ("removed: [age]", "field 'removed': unknown field"),
        ("- age", "must be a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_broken_extension_is_refused_with_its_name(tmp_path: Path, text: str, complaint: str):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match="broken.yaml") as caught:
        Taxonomy.load(file)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_attributes_have_names_in_words(tmp_path: Path):
    names = Taxonomy.default().names
    assert (names["gov_ids"], names["race_ethnicity"], names["age"]) == ("government ID", "race or ethnicity", "age")
    assert list(names) == list(Taxonomy.default().keys) and not any("_" in name for name in names.values())
    file = tmp_path / "own.yaml"
    rows = [
        "{key: voice_print, level: 1, question: Seen}",
        "{key: gait, level: 1, question: Seen, name: way of walking}",
    ]
    file.write_text(f"attributes: [{', '.join(rows)}]")
    own = Taxonomy.load(file)
    assert (own.names["voice_print"], own.names["gait"]) == ("voice print", "way of walking")
    file.write_text("attributes: [{key: gait, level: 1, question: Seen, name: 5}]")
    with pytest.raises(InputError, match="name': 5 is not a text"):
        Taxonomy.load(file)
