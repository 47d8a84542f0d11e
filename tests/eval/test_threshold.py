"""The score that photos are flagged from, learnt on a hold-out: values by hand, its precision elsewhere, from files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_endpoint import ANSWERS, by_width, rows_of
from loopback import Misbehaving

from cprt.answers import Answer
from cprt.errors import InputError
from cprt.guidance.advice import compose
from cprt.metrics.bootstrap import mean_interval, wilson_interval
from cprt.models.outcome import Outcome
from cprt.models.spec import Response
from cprt.records import Label, Prediction, write_jsonl
from cprt.scoring import format_score
from cprt.taxonomy import Taxonomy
from eval.score.abstention import abstain
from eval.score.options import ScoreArguments
from eval.score.page import page
from eval.score.photos import Photo
from eval.score.rows import abstains, beside, is_uncertain, score_row
from eval.score.run import main
from eval.score.table import show_table
from eval.score.threshold import choose, reweighted_precision


def label(id: str, level: int) -> Label:
    return Label(id, None, None, level, 0.5, None)


def prediction(id: str, score: float | None) -> Prediction:
    return Prediction(id, None, None, "ok" if score is not None else "refused", score=score)


def test_a_threshold_goes_by_the_mean_over_lists_where_there_is_one(tmp_path, capsys):
    labels = [Label(str(n), None, None, 1 if n < 5 else 4, 0.8 if n < 5 else 0.1, None) for n in range(10)]
    predictions = [
        Prediction(str(n), "m", "taxonomy", "ok", score=0.5, composed_score=0.5, mean_score=0.9 - n / 20)
        for n in range(10)
    ]
    write_jsonl(tmp_path / "l.jsonl", labels)
    write_jsonl(tmp_path / "p.jsonl", predictions)
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    main([*chosen, "--recall", "1"])
    assert "0.7" in capsys.readouterr().out.splitlines()[0]
    write_jsonl(tmp_path / "p.jsonl", [replace(row, mean_score=None) for row in predictions])
    with pytest.raises(InputError, match="mean_score.*is missing"):
        main([*chosen, "--flag_by", "expected"])


def test_the_threshold_is_chosen_by_the_score_that_flags(tmp_path, capsys):
    """The first photo states 0.4 and names what makes 0.9."""
    write_jsonl(tmp_path / "l.jsonl", [label("a", 1), label("b", 1), label("c", 3)])
    rows = [replace(prediction("a", 0.4), composed_score=0.9), prediction("b", 0.75), prediction("c", 0.5)]
    write_jsonl(tmp_path / "p.jsonl", rows)
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    main([*chosen, "--recall", "1"])
    assert capsys.readouterr().out.startswith("flag_above 0.75 by the severe score: recall of level 1 1.000")
    main([*chosen, "--recall", "1", "--flag_by", "stated"])
    assert capsys.readouterr().out.startswith("flag_above 0.4 by the stated score: recall of level 1 1.000")
    write_jsonl(tmp_path / "p.jsonl", [replace(rows[0], composed_score=0.6912783857681064), *rows[1:]])
    main([*chosen, "--recall", "1"])  # never above what was found, so that it flags the same photos
    assert capsys.readouterr().out.startswith("flag_above 0.691278 by the severe score: recall of level 1 1.000")
    write_jsonl(tmp_path / "p.jsonl", [replace(row, composed_score=None) for row in rows])
    main([*chosen, "--recall", "1"])
    said = capsys.readouterr()
    assert said.out.startswith("flag_above 0.4 by the stated score:") and "holds no composed score" in said.err
    with pytest.raises(InputError, match=r"p.jsonl: field 'composed_score': is missing: it takes cprt eval --target"):
        main([*chosen, "--flag_by", "composed"])


def test_photos_are_flagged_by_the_score_that_the_threshold_was_learnt_on(judge, folder, tmp_path, capsys):
    """The hold-out has stated scores alone, of another judge: photo 22 states 0.4 and names a passport."""
    write_jsonl(tmp_path / "l.jsonl", [label("a", 1), label("c", 3)])
    rows = [replace(prediction("a", 0.5), model="other", prompt="taxonomy"), prediction("c", 0.3)]
    write_jsonl(tmp_path / "p.jsonl", rows)
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    with Misbehaving(by_width({**ANSWERS, 22: {"attributes": ["gov_ids"], "level": 3, "score": 0.4}})) as server:
        main([str(folder), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), *chosen])
    found = {row["path"]: (row["flagged"], row["flag_score"]) for row in rows_of(tmp_path / "r.jsonl")}
    assert found["22.png"] == (False, 0.4) and found["21.png"][0] is True
    record = json.loads((tmp_path / "r.run.json").read_text())
    assert (record["config"]["flag_by"], record["threshold"]["by"]) == ("stated", "stated")
    assert "p.jsonl is of other, asked with taxonomy, not of " in capsys.readouterr().err


def test_a_threshold_by_hand():
    """Level 1: 0.9, 0.8, 0.4 and one without a score; others: 0.85, 0.1, and one without."""
    levels = [1, 1, 1, 1, 2, 4, 3]
    scores = [0.9, 0.8, 0.4, None, 0.85, 0.1, None]
    labels = [label(str(i), level) for i, level in enumerate(levels)]
    predictions = [prediction(str(i), score) for i, score in enumerate(scores[:-1])]
    found = choose(labels, predictions, 0.5, "p.jsonl")
    assert (found.score, found.recall, found.precision) == (0.8, 0.5, 2 / 3)
    assert (found.flagged, found.without_score, found.level_1_without_score) == (3, 2, 1)
    assert choose(labels, predictions, 0.75, "p.jsonl").score == 0.4
    with pytest.raises(
        InputError, match="p.jsonl: no threshold has recall 0.8: 1 of 4 photos of level 1 have no score"
    ):
        choose(labels, predictions, 0.8, "p.jsonl")
    with pytest.raises(InputError, match="p.jsonl: not one id of the labels is among its predictions"):
        choose(labels, [prediction("other", 0.9)], 0.8, "p.jsonl")
    with pytest.raises(InputError, match="no labelled photo is of level 1"):
        choose(labels[4:], predictions[4:], 0.5, "p.jsonl")
    without_first = choose(labels[1:], predictions, 0.3, "p.jsonl")  # only labelled photos count
    assert (without_first.score, without_first.rows, without_first.predictions_left_aside) == (0.8, 6, 1)
    assert "1 predictions are of other photos" in str(without_first)


def test_precision_is_reweighted_to_the_photos_to_come():
    """By hand: of level 1, 3 of 4 are flagged, of level 2, 1 of 2, of level 4, 1 of 4."""
    levels = [1, 1, 1, 1, 2, 2, 4, 4, 4, 4]
    scores = [0.9, 0.8, 0.7, 0.1, 0.75, 0.2, 0.8, 0.1, 0.1, 0.1]
    labels = [label(str(i), level) for i, level in enumerate(levels)]
    predictions = [prediction(str(i), score) for i, score in enumerate(scores)]
    plain = choose(labels, predictions, 0.75, "p.jsonl")
    assert (plain.score, plain.precision, plain.population) == (0.7, 3 / 5, [0.4, 0.2, 0, 0.4])
    rare = choose(labels, predictions, 0.75, "p.jsonl", [0.1, 0.1, 0, 0.8])
    flagged = 0.1 * 3 / 4, 0.1 / 2, 0.8 / 4
    assert rare.precision == pytest.approx(flagged[0] / sum(flagged)) and rare.score == plain.score
    assert rare.precision_interval[0] < rare.precision < rare.precision_interval[1]
    assert "where levels 1 to 4 are 10% / 10% / 0% / 80% of the photos" in str(rare)
    same = choose(labels, predictions, 0.75, "p.jsonl", [4, 2, 0, 4])
    assert same.precision == pytest.approx(plain.precision)
    with pytest.raises(InputError, match="no labelled photo is of level 3, whose share is given"):
        choose(labels, predictions, 0.75, "p.jsonl", [1, 1, 1, 1])


def test_no_false_alarm_is_not_certain_of_photos_to_come():
    """Of 80 of level 4 none is flagged: up to 4.6% may be (Wilson), as many as are flagged of a rare level 1."""
    precision, bounds = reweighted_precision([20, 0, 0, 0], [20, 20, 20, 80], [0.05, 0, 0, 0.95])
    least, most = wilson_interval(20, 20)[0], wilson_interval(0, 80)[1]
    assert precision == 1 and bounds[1] == 1
    assert 0.05 * least / (0.05 * least + 0.95 * most) < bounds[0] < 0.05 / (0.05 + 0.95 * most)
    assert reweighted_precision([1, 0, 0, 0], [2, 0, 0, 0], [1, 0, 0, 0]) == (1.0, None)
    assert reweighted_precision([1, 1, 0, 0], [2, 2, 0, 0], [0, 1, 0, 0]) == (0.0, None)


def test_the_interval_of_a_reweighted_precision_holds_it_95_times_in_100():
    counts, population, shares = [60, 40, 40, 80], [0.1, 0.1, 0.2, 0.6], np.array([0.9, 0.2, 0.05, 0.01])
    flagged = shares * population
    drawn = np.random.default_rng(0).binomial(counts, shares, size=(2000, 4))
    bounds = np.array([reweighted_precision(row, counts, population)[1] for row in drawn.tolist()])
    holds = (bounds[:, 0] <= flagged[0] / flagged.sum()) & (flagged[0] / flagged.sum() <= bounds[:, 1])
    assert 0.93 < holds.mean() < 0.98


@given(
    rows=st.lists(st.tuples(st.integers(1, 2), st.none() | st.sampled_from([0.1, 0.2, 0.7, 0.71, 0.9])), min_size=1),
    recall=st.floats(0.01, 1),
)
def test_the_threshold_is_the_highest_that_flags_enough(rows, recall):
    labels = [label(str(i), level) for i, (level, _) in enumerate(rows)]
    predictions = [prediction(str(i), score) for i, (_, score) in enumerate(rows)]
    severe = [score for level, score in rows if level == 1]

    def reaches(threshold: float) -> bool:
        return (
            bool(severe) and sum(score is not None and score >= threshold for score in severe) / len(severe) >= recall
        )

    enough = [score for score in (0.1, 0.2, 0.7, 0.71, 0.9) if reaches(score)]
    if not enough:
        with pytest.raises(InputError):
            choose(labels, predictions, recall, "p.jsonl")
        return
    found = choose(labels, predictions, recall, "p.jsonl")
    assert found.score == max(enough)
    flagged = [level for level, score in rows if score is not None and score >= found.score]
    assert (found.flagged, found.precision) == (len(flagged), flagged.count(1) / len(flagged))


def test_the_threshold_from_files_flags_the_photos(judge, folder, tmp_path, capsys):
    write_jsonl(tmp_path / "l.jsonl", [label("a", 1), label("b", 1), label("c", 3)])
    write_jsonl(tmp_path / "p.jsonl", [prediction("a", 0.9), prediction("b", 0.75), prediction("c", 0.3)])
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    main(chosen)
    line = capsys.readouterr().out
    assert line.startswith("flag_above 0.75 by the stated score: recall of level 1 1.000 [0.342, 1.000], ")
    assert "precision 1.000 [0.342, 1.000] where levels" in line
    assert "(2 of 3 labelled photos flagged, 2 are of level 1;" in line
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), *chosen, "--recall", "0.5"])
    assert [row["path"] for row in rows_of(tmp_path / "r.jsonl") if row["flagged"]] == []
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), *chosen])
    assert [row["path"] for row in rows_of(tmp_path / "r.jsonl") if row["flagged"]] == ["21.png", "26.png"]
    assert json.loads((tmp_path / "r.run.json").read_text())["threshold"]["score"] == 0.75


def uncertain(id: str, mean: float, deviation: float | None) -> Prediction:
    return replace(prediction(id, 0.5), mean_score=mean, score_deviation=deviation)


def test_abstention_by_hand():
    """Errors 0.0 to 0.4 of photos that are the less certain, the larger the error; one has no lists, one no label."""
    labels = [label(str(n), 3) for n in range(6)]
    rows = [uncertain(str(n), 0.5 + n / 10, n / 100) for n in (3, 0, 4, 2, 1)]
    rows += [prediction("5", 0.5), uncertain("6", 0.9, 0.0)]
    found = abstain(labels, rows, 0.2, "p.jsonl")
    assert (found.deviation, found.rows, found.left) == (0.03, 5, 1)
    assert (found.mae, found.mae_all) == (pytest.approx(0.15), pytest.approx(0.2))
    assert found.mae_interval == pytest.approx(mean_interval(np.array([0.3, 0.0, 0.2, 0.1])))
    assert abstain(labels, rows, 0.19, "p.jsonl").left == 0 and abstain(labels, rows, 0.8, "p.jsonl").left == 4
    tied = [replace(row, score_deviation=0.5) for row in rows]
    assert abstain(labels, tied, 0.5, "p.jsonl").left == 0  # photos of equal uncertainty stay together
    with pytest.raises(InputError, match="p.jsonl: abstain 1 leaves none of 5 labelled photos"):
        abstain(labels, rows, 1.0, "p.jsonl")
    with pytest.raises(InputError, match="p.jsonl: field 'score_deviation': is missing: it takes cprt eval --struct"):
        abstain(labels, [prediction("0", 0.5)], 0.2, "p.jsonl")


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 0.5)), min_size=2, max_size=20), st.floats(0.01, 0.9))
def test_never_more_than_the_share_are_left_and_none_is_more_certain_than_one_decided(photos, share):
    labels = [label(str(n), 3) for n in range(len(photos))]
    rows = [uncertain(str(n), 0.5 + error, step / 10) for n, (step, error) in enumerate(photos)]
    if int(share * len(photos) + 1e-9) == len(photos):
        return
    found = abstain(labels, rows, share, "p.jsonl")
    left = [row for row in rows if row.score_deviation is not None and row.score_deviation > found.deviation]
    assert found.left == len(left) <= share * len(photos) + 1e-6
    kept = [abs(row.mean_score - 0.5) for row in rows if row not in left]
    assert found.mae == pytest.approx(np.mean(kept), abs=1e-12)


def test_a_photo_that_is_too_uncertain_is_left_to_a_person(tmp_path, capsys):
    """One list that is sure, and two as probable as one another."""
    taxonomy, answer = Taxonomy.default(), Answer("ok", 0.711, 1, 1, ("gov_ids",))
    args = ScoreArguments(["x"], structured=True, flag_above=0.1, flag_by="expected")
    rows = []
    for name, lists in (("sure", {"gov_ids": 1.0}), ("torn", {"gov_ids": 0.5, "age,gender": 0.5})):
        outcome = Outcome("ok", "{}", answer, response=Response("{}", lists=lists))
        rows.append(score_row(Photo("p", f"{name}.png"), outcome, args, taxonomy, most_deviation=0.1))
    assert [abstains(row) for row in rows] == [False, True] and not any(map(is_uncertain, rows))
    assert rows[1]["probable"]["deviation"] == pytest.approx(abs(0.711 - compose(["age", "gender"]).score) / 2)
    assert "too uncertain: left to a person" in beside(rows[1], format_score)
    show_table(rows, taxonomy, flagging=True, full=True)
    assert "?     torn.png" in capsys.readouterr().out
    files = [tmp_path / "sure.png", tmp_path / "torn.png"]
    shown = page(tmp_path / "r.html", rows, files, taxonomy, {}, False, True)
    assert "1 photo of which the model is less certain than was asked for." in shown
    assert shown.index("torn.png") < shown.index("sure.png")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["x", "--abstain", "0.2"], "abstain goes with threshold_from"),
        (
            ["--threshold_from", "p", "--threshold_labels", "l", "--abstain", "0.2", "--flag_by", "stated"],
            "flag_by exp",
        ),
        (["--threshold_from", "p", "--threshold_labels", "l", "--abstain", "0"], "must be more than 0 and at most 1"),
        (["x", "--threshold_from", "p", "--threshold_labels", "l", "--abstain", "0.2"], "abstain needs --structured"),
    ],
)
def test_abstention_that_is_refused(words, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("p", "l"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=complaint):
        main(words)
