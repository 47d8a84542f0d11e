"""What an answer means. The first table is the specification's; a wrong reading is worse than none."""

from __future__ import annotations

import itertools
import json
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cprt.answers import STATUSES, Answer, parse, render
from cprt.scoring import format_score, level_of, severity
from cprt.taxonomy import Taxonomy

KEYS = Taxonomy.default().keys

READ = [  # text, score
    ('{"score": 0.71}', 0.71),
    ('{"score": "0.71"}', 0.71),
    ('{"score": " 71% "}', 0.71),
    ('{"score": 1}', 1.0),
    ('{"score": 0}', 0.0),
    ('{"score": 7.1e-1}', 0.71),
    ('{"Score": 0.71}', 0.71),
    ('```json\n{"score": 0.71}\n```', 0.71),
    ('```json\n{"score": 0.71}', 0.71),  # only the fence is cut off
    ('Here is my answer: {"score": 0.71}. I hope this helps!', 0.71),
    ('{"score": 0.71,\n "reason": "a face, between 0.6 and 0.8;\nI cannot assess the age"}', 0.71),
    ('{"score": 0.71, "confidence": 0.9}', 0.71),
    ('{"result": {"score": 0.71}}', 0.71),
    ('[{"score": 0.71}]', 0.71),
    ('{"score": 0.71} and once more: {"score": 0.710}', 0.71),
    ('The score is 0.71. {"score": 0.71}', 0.71),
    ('1. A face is visible.\n2. It is level 1.\n{"score": 0.71}', 0.71),
    ('<think>0.3? {"score": 0.9}</think>{"score": 0.71}', 0.71),
    ("<think>\n\n</think>\n\n0.71", 0.71),
    ("perhaps 0.3</think>0.71", 0.71),  # the chat template opened the block
    ("0.3 <think>0.4</think> 0.5</think>0.71", 0.71),
    ("[THINK]0.3[/THINK]Score: 0.71", 0.71),
    ("0.71", 0.71),
    (" 0.71.\n", 0.71),
    ("**0.71**", 0.71),
    (".71", 0.71),
    ("1", 1.0),
    ("0", 0.0),
    ("7.1e-1", 0.71),
    ("about 0.7", 0.7),
    ("0.71\n\nA face is clearly visible.", 0.71),
    ("A face is clearly visible.\n\n0.71", 0.71),
    ("<answer>0.71</answer>", 0.71),
    ("```\n0.71\n```", 0.71),
    ("0,71", 0.71),
    ("71%", 0.71),
    ("71 percent", 0.71),
    ("70.9%", 0.709),
    ("100%", 1.0),
    ("0.71/1", 0.71),
    ("0.71 / 1.0", 0.71),
    ("0.71 out of 1", 0.71),
    ("Score: 0.71", 0.71),
    ("score=0.71", 0.71),
    ("Score:0.71", 0.71),
    ("**Score:** 0.71", 0.71),
    ("**Score: 0.71/1**", 0.71),
    ("## Score\n0.71", 0.71),
    ("Score - 0.71", 0.71),
    ("| Score | 0.71 |", 0.71),
    ("Score: 71%", 0.71),
    ("Score: 0,71", 0.71),
    ("Score (0-1): 0.71 (a face)", 0.71),
    ("Final answer: 0.71", 0.71),
    ("On a scale from 0 to 1, I would assign a privacy score of 0.71.", 0.71),
    ("The overall privacy severity score for this image is approximately 0.71, because a face is visible.", 0.71),
    ("I see 3 people. Score: 0.71", 0.71),  # 3 is no score
    ("Taken on 2017-01-03 at 10:01 in 2017, F22, the 2nd. Score: 0.71", 0.71),
    ("The score is 0.71. So, Score: 0.71", 0.71),
    ("Level: 2, Score: 0.62", 0.62),
    ("I can't tell who this is. Score: 0.71", 0.71),  # no refusal to assess
    ('I cannot identify the person, but a face is visible. {"score": 0.75}', 0.75),
]

UNPARSED = [
    "",
    " \n",
    # two numbers, ranges
    "0.71 or 0.9",
    "0.71\n0.9",
    "about 0.7 or 0.8",
    "between 0.71 and 0.9",
    "0.7-0.8",
    "0.7 – 0.8",
    "0.7 to 0.8",
    "Score: 0.7 to 0.8",
    "Score: 0.7-0.8",
    "Score: 0.71, or 0.8",
    "Score: 0.71. Or maybe 80%.",
    "Score: 0.71 ± 0.1",
    "Score: 0.71\nScore: 0.9",
    "Score: 0.71\nScore: 7",
    "0.71, 3 people",
    "I see 1 person. Score: 0.71",  # 1 lies in [0, 1]
    '{"score": 0.71} or {"score": 0.9}',
    '{"score": 0.71} or rather 0.9',
    'Score: 0.9. {"score": 0.71}',
    '{"score": 0.1, "score": 0.9}',
    '{"score": 0.1, "Score": 0.9}',
    '{"score": 0.7, "faces": [{"score": 0.9}]}',
    '{"score": 0.71} {"score": null}',
    '{"attributes": [], "score": 0.71} {"attributes": ["age"], "score": 0.71}',
    '{"score": 0.71, "level": 1, "level": 2}',
    # other scales
    "7/10",
    "71/100",
    "Score: 7/10",
    "Score: 0.71/10",
    "Score: 0.71 out of 10",
    "Score: 0.7 on a scale of 10",
    "Score: 0.7. The scale ends at 10.",
    '{"score": 0.7} (out of 10)',
    "On a scale of 0 to 10: Score: 0.71",
    "Rating: 1 star",
    "Score: 0.71%",  # literally 0.0071
    # outside [0, 1]
    "71",
    "1.5",
    "-0.71",
    "Score: -0.71",
    "Score: - 0.71",
    "Score: –0.71",
    "Score: −0.71",
    "150%",
    '{"score": 1.001}',
    '{"score": -0.1}',
    '{"score": 71}',
    '{"score": 1e999}',
    # no numbers
    '{"score": NaN}',
    '{"score": Infinity}',
    '{"score": true}',
    '{"score": null}',
    '{"score": "high"}',
    '{"score": "0.7 to 0.8"}',
    '{"score": [0.71]}',
    '{"score": {"value": 0.71}}',
    '{"score": ""}',
    "NaN",
    "high",
    "zero point seven",
    "Level 1",
    "Level 1.",
    "Level 2 (0.62)",
    # cut off or broken JSON
    '{"attributes": ["age"], "score": 0.7',
    '{"attributes": ["age"], "score": 0.7\n```',
    '```json\n{"attributes": ["biometrics", "age"], "level": 1, "score"',
    '{"score": 0.71',
    '"score": 0.71}',
    '"attributes": ["age"], "score": 0.7',
    "{'score': 0.71}",
    '{"score": 0.71} {"sco',
    '{"score": .71}',
    "Score: 0.",
    # JSON without a score
    '{"attributes": ["age"], "level": 3}',
    '{"privacy_score": 0.71}',
    '{"min_score": 0.6, "max_score": 0.8}',
    '{"level": 2} Score: 0.71',
    # thinking that never ends
    '<think>It is {"score": 0.71}',
    "<think>a</think> <think>Score: 0.71",
    "<THINK>0.71",
    # other digits
    "０.７１",
    "0.７1",
    "Score: ٠.٧١",
    "Score: 0.71 or ０.９",
    '{"score": "０.７１"}',
    '{"score": 0.71} ½',
    # a number, but not said to be the score
    "I am 90% sure.",
    "Confidence: 0.9",
    "Confidence:\n0.9",
    "Confidence score: 0.9",
    "Biometrics score: 0.9",
    "Level 1 score: 0.9",
    "The plate is 0.71 m wide.",
    "The score is not 0.71.",
    "Score: at least 0.71",
    "Score < 0.71",
    "> 0.71",
    "0.71+",
    "Score: 0.71 or higher",
    "If a face were visible, I would assign a score of 0.9.",
    "For example, a score of 0.9.",
    "The maximum score is 1.0",
    "Score: 0.35 * 2",
    "Score: 01",
    "1,000",
    # a refusal that scores contradicts itself
    'I cannot assess this image. {"score": 0.0}',
    "I'm sorry, but I can't provide a score. Score: 0.0",
    "I cannot assess this, maybe 0.3 or 0.9",
]

REFUSED = [
    "I can't assist with that.",
    "I can’t assist with that.",
    "I canʼt help with this request.",
    "I'm sorry, but I cannot assess this image.",
    "I am sorry, but I am unable to provide a privacy score for this image.",
    "I'm not able to rate photos of people.",
    "I won't evaluate this.",
    "I must decline to answer.",
    "I cannot answer yes or no",
    "I cannot assign a score between 0 and 1.",
    "I cannot rate this on a scale of 1 to 10.",
    "I'm sorry, but I can't identify people in photos.",
    "Sorry, I can't do that.",
    "As an AI, I don't rate people.",
    "This request violates our policies.",
    "<think>Is that 0.3?</think>I can't help with that.",
    'I cannot assess this image. {"score": null}',
    '{"score": null, "reason": "I cannot assess this image"}',
]


@pytest.mark.parametrize("text, score", READ)
def test_what_has_one_meaning_is_read(text, score):
    answer = parse(text)
    assert (answer.status, answer.score, answer.level) == ("ok", score, level_of(score))


@pytest.mark.parametrize("text", UNPARSED)
def test_what_has_not_is_unparsed(text):
    assert parse(text) == Answer("unparsed")


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text):
    assert parse(text) == Answer("refused")


@pytest.mark.parametrize(
    "text, stated_level",
    [
        ('{"level": 1, "score": 0.62}', 1),  # contradicts the score, which counts
        ('{"level": "2", "score": 0.62}', 2),
        ('{"level": 5, "score": 0.62}', None),
        ('{"level": 0, "score": 0.62}', None),
        ('{"level": 2.5, "score": 0.62}', None),
        ('{"level": true, "score": 0.62}', None),
        ('{"level": null, "score": 0.62}', None),
        ('{"level": "high", "score": 0.62}', None),
        ("Level: 2, Score: 0.62", 2),
        ("**Severity level:** 1\n**Score:** 0.62", 1),
        ("| Level | 2 |\n| Score | 0.62 |", 2),
        ("Score: 0.62. Level 2.", 2),
        ("Level: 7, Score: 0.62", None),
        ("Level: 1. Level: 2. Score: 0.62", None),
        ("Level 4 attributes are visible. Score: 0.62", None),  # says what it sees, not what the image is
        ("Levels 1 to 4 were considered. Score: 0.62", None),
        ("Score: 0.62", None),
    ],
)
def test_the_stated_level_is_kept_apart(text, stated_level):
    assert parse(text) == Answer("ok", 0.62, 2, stated_level)


@pytest.mark.parametrize(
    "attributes, expected",
    [
        ('["age", "biometrics"]', ("age", "biometrics")),
        ("[]", ()),
        ('["age", "hat"]', None),
        ('["age", "age"]', None),
        ('["Age"]', None),
        ('["age", 1]', None),
        ('["age", null]', None),
        ('["age", ["gender"]]', None),
        ('"age"', None),
        ('{"age": true}', None),
        ("null", None),
    ],
)
def test_attributes_are_read_whole_or_not_at_all(attributes, expected):
    answer = parse(f'{{"attributes": {attributes}, "score": 0.7}}')
    assert (answer.status, answer.score, answer.attributes) == ("ok", 0.7, expected)


def test_attributes_follow_the_taxonomy_in_use(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "remove: [age]\nattributes:\n  - {key: voice_print, level: 1, question: Voice prints}\n"
    )
    own = Taxonomy.load(tmp_path / "own.yaml")
    text = render("attributes", score=0.9, level=1, attributes=["gender", "voice_print"], taxonomy=own)
    assert text == '{"attributes": ["voice_print", "gender"], "level": 1, "score": 0.900}'
    assert parse(text, own).attributes == ("voice_print", "gender")
    assert parse(text).attributes is None
    with pytest.raises(ValueError, match="age"):
        render("attributes", score=0.9, level=1, attributes=["age"], taxonomy=own)


def test_render_by_hand():
    assert render("score", score=0.8124, level=1) == '{"score": 0.812}'
    text = render("attributes", score=0.8124, level=1, attributes={"age", "biometrics"})
    assert text == '{"attributes": ["biometrics", "age"], "level": 1, "score": 0.812}'
    assert render("attributes", score=0, level=4) == '{"attributes": [], "level": 4, "score": 0.000}'


@pytest.mark.parametrize(
    "arguments", [{"target": "both"}, {"level": 0}, {"level": 5}, {"attributes": ["hat"]}, {"score": 1.1}]
)
def test_render_refuses_what_no_answer_says(arguments):
    arguments = {"target": "attributes", "score": 0.8, "level": 1} | arguments
    with pytest.raises(ValueError):
        render(arguments.pop("target"), **arguments)


def test_every_combination_survives_the_round_trip():
    taxonomy = Taxonomy.default()
    by_level = [[a.key for a in taxonomy.attributes if a.level == level] for level in (1, 2, 3, 4)]
    combinations = list(itertools.product(*(range(size + 1) for size in taxonomy.sizes)))
    assert len(combinations) == 1320
    for counts in combinations:
        truth = severity(counts)
        keys = tuple(key for keys, count in zip(by_level, counts, strict=True) for key in keys[len(keys) - count :])
        printed = float(format_score(truth.score))
        text = render("attributes", score=truth.score, level=truth.level, attributes=keys[::-1])
        assert parse(text) == Answer("ok", printed, truth.level, truth.level, keys)
        assert json.loads(text) == {"attributes": list(keys), "level": truth.level, "score": printed}
        text = render("score", score=truth.score, level=truth.level)
        assert parse(text) == Answer("ok", printed, truth.level)
        assert re.fullmatch(r'\{"score": [01]\.[0-9]{3}\}', text)


# --- Properties --------------------------------------------------------------------------------------------------

PIECES = [
    *(
        "score",
        "Score: ",
        "level",
        "Level: 2",
        "0.71",
        "0.9",
        "71%",
        "0,71",
        "/1",
        "7/10",
        "1",
        "0",
        "-",
        " to ",
        " or ",
    ),
    *(
        "{",
        "}",
        '{"score": 0.71}',
        '{"score":',
        '"',
        "'",
        ":",
        ",",
        "[",
        "]",
        "(",
        ")",
        "\\",
        "\n",
        " ",
        "```json",
        "```",
    ),
    *(
        "<think>",
        "</think>",
        "I can't assess",
        "sorry",
        "NaN",
        "null",
        "true",
        "1e999",
        "９",
        "½",
        "\x00",
        "\ud800",
        ".",
    ),
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
@example("{" * 5000)
@example('{"a":' * 100_000)
@example('{"score": ' + "[" * 100_000)
@example('{"score": ' + "9" * 6000 + "}")
@example('{"score": 1e' + "9" * 6000 + "}")
@example('{"score": "' + "9" * 6000 + '"}')
@example("9" * 6000)
@example("Score: 0." + "9" * 6000)
def test_any_text_gives_a_consistent_answer(text):
    answer = parse(text)
    assert answer.status in STATUSES[:3]
    if answer.status == "ok":
        assert 0 <= answer.score <= 1 and answer.level == level_of(answer.score)
        assert answer.stated_level in (None, 1, 2, 3, 4)
    else:
        assert answer == Answer(answer.status)


FORMS = ["{:.3f}", "{:.3f}/1", "{:.3f} / 1.0", "Score: {:.3f}", "**Score:** {:.3f}", "The score is {:.3f}."]
FORMS += ['{{"score": {:.3f}}}', '{{"score": "{:.3f}"}}', 'Sure! ```json\n{{"score": {:.3f}}}\n```']
JOINTS = [" ", "\n", ", ", " or ", " to ", "-", " - ", "–", "; maybe ", "\n\nOr perhaps: ", " and ", ". ", " (not) "]
thousandths = st.integers(0, 1000)


@given(thousandths, st.sampled_from(FORMS))
def test_one_number_in_a_known_form_is_read(score, form):
    assert parse(form.format(score / 1000)).score == pytest.approx(score / 1000, abs=1e-12)


@given(st.tuples(thousandths, thousandths).filter(lambda pair: pair[0] != pair[1]), st.data())
def test_a_second_number_is_never_overlooked(pair, data):
    forms = st.sampled_from([*FORMS, "{:.1%}", "{:g}", "{:.3f}?"])
    first, second = (data.draw(forms).format(number / 1000) for number in pair)
    assert parse(first + data.draw(st.sampled_from(JOINTS)) + second).status != "ok"


@given(st.sampled_from(FORMS[-3:]), st.integers(1, 999), st.sets(st.sampled_from(KEYS)), st.data())
def test_cut_off_json_is_never_salvaged(form, score, keys, data):
    text = render("attributes", score=score / 1000, level=1, attributes=keys)
    for whole in (text, form.format(score / 1000)):
        start, end = whole.index("{"), whole.rindex("}")
        assert parse(whole[: data.draw(st.integers(start + 1, end))]).status == "unparsed"


LONG = [
    "(",
    "0)",
    '"score',
    "score:",
    "i can't ",
    "{",
    "9",
    "0-1",
    "level 1, ",
    "0.71 ",
    "0.5\n",
    "the privacy ",
    "of ",
]
LONG += ["score of ", "<think>", " ", "\n", "- ", "'", "1. ", "(a ", ": ", "sorry ", "[0, 1] ", "0 to ", "`", "|", "_"]


@pytest.mark.parametrize("piece", LONG)
def test_long_answers_take_linear_time(piece):
    text = "Score: " + piece * (100_000 // len(piece))
    start = time.process_time()
    parse(text)
    assert time.process_time() - start < 5  # takes 0.1 to 0.5 s
