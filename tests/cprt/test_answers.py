"""What an answer means: the table in tests/corpus/answers.py, and what holds for every text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable

import pytest
from corpus import answers as corpus
from growth import grows_linearly
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cprt.answers import STATUSES, Answer, parse, render
from cprt.answers.labels import read_stage1, read_stage2
from cprt.answers.thinking import without_thinking
from cprt.answers.yes_no import LABELS, read_verdict
from cprt.scoring import format_score, level_of, severity
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()
KEYS = TAXONOMY.keys
OBJECTS = [json.dumps({key: value[n % len(value)] for n, key in enumerate(KEYS)}) for value in ((0, 0.5, 1), (0,))]


# --- The table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, score", corpus.SCORE)
def test_a_score_with_one_meaning_is_read(text, score):
    answer = parse(text)
    assert (answer.status, answer.score, answer.level) == ("ok", score, level_of(score))


@pytest.mark.parametrize("text", corpus.NO_SCORE)
def test_a_score_without_is_unparsed(text):
    assert parse(text) == Answer("unparsed")


ANSWERS = ['{"score": 0.0}', '{"attributes": [], "level": 4, "score": 0.000}', "Score: 0.0", *OBJECTS]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", ["not_an_answer", "thoughts"])
def test_what_is_said_about_an_answer_or_only_thought_is_heeded(name, answer):
    texts = corpus.lines_of(name, answer)
    read = [text for text in texts if parse(text).status == "ok" or read_stage2(text, TAXONOMY)[1] is not None]
    assert len(texts) > 100 and read == []


@pytest.mark.parametrize(
    "answer", ['{"score": 0.8}', '```json\n{"level": 1, "score": 0.8}\n```', "Score: 0.8", "0.8/1"]
)
def test_an_answer_whose_prose_describes_the_photo_is_read(answer):
    texts = corpus.lines_of("explained", answer)
    assert len(texts) > 50 and [text for text in texts if parse(text).score != 0.8] == []


def test_texts_without_one_meaning():
    scores, verdicts = corpus.lines_of("no_score"), corpus.lines_of("no_verdict")
    assert [text for text in scores if parse(text).status == "ok"] == []
    assert [text for text in verdicts if read_verdict(text) in ("yes", "no")] == []
    assert len(scores) > 300 and len(verdicts) > 300


def test_explained_verdicts_are_read():
    rows = [line.split("|", 1) for line in corpus.lines_of("verdicts")]
    assert len(rows) > 40 and [text for verdict, text in rows if read_verdict(text) != verdict] == []


@pytest.mark.parametrize("text", [*corpus.REFUSED, *corpus.SCORE_REFUSED])
def test_a_refusal_to_score(text):
    assert parse(text) == Answer("refused")


@pytest.mark.parametrize("text", corpus.REFUSED)
def test_a_refusal_is_one_for_every_reader(text):
    read = (read_verdict(text), read_stage1(text, TAXONOMY), read_stage2(text, TAXONOMY))
    assert read == ("refused", "refused", ("refused", None))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (text, verdict)
        for verdict, texts in (
            ("yes", corpus.YES),
            ("no", corpus.NO),
            ("unparsed", corpus.NO_VERDICT),
            ("refused", corpus.VERDICT_REFUSED),
        )
        for text in texts
    ],
)
def test_verdicts(text, verdict):
    assert read_verdict(text) == verdict


@pytest.mark.parametrize("labels", OBJECTS)
@pytest.mark.parametrize("text", corpus.LABELLED)
def test_labels_are_read(text, labels):
    status, read = read_stage2(text.replace("@", labels), TAXONOMY)
    assert (status, read) == ("ok", json.loads(labels)) and list(read or {}) == list(KEYS)


@pytest.mark.parametrize("labels", OBJECTS)
@pytest.mark.parametrize("text", corpus.NOT_LABELLED)
def test_labels_that_are_quoted_or_taken_back_are_not(text, labels):
    assert read_stage2(text.replace("@", labels), TAXONOMY) == ("unparsed", None)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (text, status)
        for status, texts in (
            ("ok", corpus.DESCRIBED),
            ("unparsed", corpus.NOT_DESCRIBED),
            ("refused", corpus.DESCRIPTION_REFUSED),
        )
        for text in texts
    ],
)
def test_descriptions_of_stage_one(text, status):
    assert read_stage1(text, TAXONOMY) == status


# --- Scores: what else is read -----------------------------------------------------------------------------------


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


# --- What holds for every text -----------------------------------------------------------------------------------

ROWS = [
    *(text for text, _ in corpus.SCORE),
    *corpus.NO_SCORE,
    *corpus.REFUSED,
    *corpus.YES,
    *corpus.NO,
    *corpus.NO_VERDICT,
    *(text.replace("@", OBJECTS[0]) for text in corpus.LABELLED + corpus.NOT_LABELLED),
]
CHARS = st.text(st.characters() | st.sampled_from("{}[]\"':,.<>|/\\\n 019%\ufffc\ud800½９"), max_size=3)


@st.composite
def mutations(draw):
    """Rows of the table, cut, spliced and sprinkled with characters."""
    text = draw(st.sampled_from(ROWS))
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        other = draw(CHARS | st.sampled_from(ROWS) | st.just(text[start:end] * 2))
        text = text[:start] + other + text[draw(st.sampled_from([start, end])) :]
    return text


@settings(deadline=None)
@given(st.text() | mutations())
@example("{" * 5000)
@example('{"a":' * 100_000)
@example('{"score": ' + "[" * 100_000)
@example('{"score": ' + "9" * 6000 + "}")
@example('{"score": 1e' + "9" * 6000 + "}")
@example('{"score": "' + "9" * 6000 + '"}')
@example('{"score": 0.5, "reason": ' + "[" * 900 + "]" * 900 + "}")
@example("9" * 6000)
@example("Score: 0." + "9" * 6000)
def test_any_text_gives_a_consistent_outcome(text):
    answer = parse(text)
    assert answer.status in STATUSES[:3]
    if answer.status == "ok":
        assert 0 <= answer.score <= 1 and answer.level == level_of(answer.score)
        assert answer.stated_level in (None, 1, 2, 3, 4)
    else:
        assert answer == Answer(answer.status)
    verdict = read_verdict(text)
    assert verdict in LABELS[:4] and (verdict not in ("yes", "no") or verdict in text.lower())
    status, labels = read_stage2(text, TAXONOMY)
    assert (status == "ok") == (labels is not None) and read_stage1(text, TAXONOMY) in STATUSES[:3]
    if without_thinking(text) is None:
        assert (answer.status, verdict, status, read_stage1(text, TAXONOMY)) == ("unparsed",) * 4


FORMS = ["{:.3f}", "{:.3f}/1", "{:.3f} / 1.0", "Score: {:.3f}", "**Score:** {:.3f}", "The score is {:.3f}."]
FORMS += ['{{"score": {:.3f}}}', '{{"score": "{:.3f}"}}', 'Sure! ```json\n{{"score": {:.3f}}}\n```']
FENCED = '```json\n{{"score": {:.3f}}}\n```'
JOINTS = [" ", "\n", ", ", " or ", " to ", "-", " - ", "–", "; maybe ", "\n\nOr perhaps: ", " and ", ". ", " (not) "]
thousandths = st.integers(0, 1000)


@given(thousandths, st.sampled_from(FORMS))
def test_one_number_in_a_known_form_is_read(score, form):
    assert parse(form.format(score / 1000)).score == pytest.approx(score / 1000, abs=1e-12)


QUOTED = [
    *('"{}"', "“{}”", "«{}»", "'{}'", "> {}", '"\n{}\n"', "The sign says {}", "The sign says:\n{}", "Caption: {}"),
    *("{} is printed on the sign.", "{}\nis what the note says.", "A note in the photo reads as follows.\n{}"),
    *("The text in the photo:\n\n{}\n\nA face is clearly visible.", "Printed on the card: {}. A face is visible."),
    *("For example: {}", "For example:\n{}", "e.g. {}", "{}\nThis is only an example.", "The format:\n{}"),
    *(
        "If it were blurred, {}",
        "If it were blurred:\n{}",
        "I would answer {}",
        "I would answer:\n{}",
        "{}\nif blurred.",
    ),
    *("{}\nThis would hold for a blurred face.", "Unless it matters: {}", "{}, unless it matters", "{} if blurred"),
    *("It is not {}", "Not {}", "Never:\n{}", "My answer is not\n{}", "{}\nThis is not my answer.", "{} is wrong."),
    *("Do not answer {}", "Instead of {}, think.", "{}\nWait, that is wrong.", "Unable to assess the image.\n{}"),
]


@given(thousandths, st.sampled_from([*FORMS[:-1], FENCED]), st.sampled_from(QUOTED))
def test_what_is_quoted_conditioned_or_denied_is_never_read(score, form, quotation):
    assert parse(quotation.format(form.format(score / 1000))).status != "ok"


@given(
    st.sampled_from(["Yes", "No", "Yes.", "Answer: yes", "**No**", "The answer is no.", '{"answer": "yes"}']),
    st.sampled_from([quotation for quotation in QUOTED if quotation not in ('"{}"', "“{}”", "'{}'", '"\n{}\n"')]),
)
def test_a_quoted_verdict_is_never_read(verdict, quotation):
    assert read_verdict(quotation.format(verdict)) in ("unparsed", "refused")


@given(st.sampled_from(OBJECTS), st.sampled_from(QUOTED))
def test_quoted_labels_are_never_read(labels, quotation):
    assert read_stage2(quotation.format(labels), TAXONOMY)[1] is None


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
LONG += [
    "yes ",
    "no, ",
    "not ",
    "no. ",
    "answer: ",
    "a",
    "*",
    "so, ",
    "based on the ",
    "the same ",
    "they are ",
    "'a ' ",
]
LONG += [
    "[think]",
    "</think>",
    "<|channel|>",
    "<|start|>assistant<|channel|>",
    "analysisA",
    "<think a",
    "<a:",
    "<|begin_of_",
]
LONG += [
    "here is the ",
    "sure, ",
    "the answer ",
    "not a ",
    "a score may ",
    "- a\n",
    "age: ",
    "i hope this helps ",
    "let me know",
]
LONG += [
    "my final ",
    "too a to ",
    "no no to ",
    "```",
    "```a",
    '{"a": 1} ',
    "\u2028",
    "\u200b",
    "Ж",
    "score: 0.5.\n",
    "我",
    "i'm ",
]


def test_every_list_of_phrases_is_used(root):
    text = (root / "cprt" / "answers" / "english.yaml").read_text()
    code = "".join(path.read_text() for path in (root / "cprt" / "answers").glob("*.py"))
    named = {*re.findall(r"\$([a-z_]+)", text), *re.findall(r"[\"']([a-z_]+)[\"']", code)}
    assert set(re.findall(r"^([a-z_]+): \|$", text, re.MULTILINE)) <= named


@pytest.mark.parametrize("piece", LONG)
def test_long_answers_take_linear_time(piece):
    def read(size: int) -> Callable[[], None]:
        many = piece * (size // len(piece))
        texts = f"Score: {many}", json.dumps({"score": 0.5, "reason": many})

        def work() -> None:
            for text in texts:
                parse(text), read_verdict(text), read_stage1(text, TAXONOMY), read_stage2(text, TAXONOMY)

        return work

    assert grows_linearly(read, 30_000)
