"""``cprt metrics``: from files alone, with the join checked and what is undefined left undefined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judged import paired_difference
from scipy import stats

from cprt.errors import InputError
from cprt.pages.words import show
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.metrics import main

TRUTH = [("a", 1, 0.8), ("b", 2, 0.6), ("c", 3, 0.4), ("d", 4, 0.1), ("e", 4, 0.0)]


def measure(folder: Path, predictions: list[dict[str, Any]], truth=TRUTH) -> dict[str, Any]:
    labels = [{"id": id, "level": level, "score": score} for id, level, score in truth]
    for name, rows in (("labels", labels), ("predictions", predictions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    main(
        [
            "--predictions",
            str(folder / "predictions.jsonl"),
            "--labels",
            str(folder / "labels.jsonl"),
            "--out",
            str(folder / "m.json"),
        ]
    )
    return json.loads((folder / "m.json").read_text())


def test_no_zero_is_negative_in_words():
    assert (show(-0.0001, [-0.0002, 0.1]), show(-0.0001, form="+.1%")) == ("0.000 [0.000, 0.100]", "+0.0%")
    assert (show(-0.0006), show(None), show(2)) == ("-0.001", "-", "2.000")


def test_figures_against_scipy_and_by_hand(tmp_path: Path):
    scores = [0.9, 0.55, 0.2, 0.3]
    metrics = measure(tmp_path, [{"id": id, "status": "ok", "score": s} for id, s in zip("abcd", scores, strict=True)])
    truth = [0.8, 0.6, 0.4, 0.1]
    assert metrics["pearson"] == pytest.approx(stats.pearsonr(truth, scores).statistic)
    assert metrics["spearman"] == pytest.approx(stats.spearmanr(truth, scores).statistic)
    assert metrics["mae"] == pytest.approx((0.1 + 0.05 + 0.2 + 0.2) / 4)
    assert metrics["bias"] == pytest.approx((0.1 - 0.05 - 0.2 + 0.2) / 4)
    assert metrics["level_accuracy"] == 0.5  # c is read as level 4, d as level 3
    assert metrics["inter_level_accuracy"] == pytest.approx(5 / 6)
    assert metrics["intra_level_accuracy"] is None
    assert (metrics["n"], metrics["coverage"]) == (5, 0.8)
    assert metrics["status_counts"] == {"ok": 4, "unparsed": 0, "refused": 0, "error": 0, "missing": 1}


def test_an_input_is_never_the_output(tmp_path: Path):
    measure(tmp_path, [{"id": "a", "status": "ok", "score": 0.5}])
    labels, before = tmp_path / "labels.jsonl", (tmp_path / "labels.jsonl").read_bytes()
    (tmp_path / "link.json").symlink_to(labels)
    for out in (labels, tmp_path / "link.json"):
        with pytest.raises(InputError, match="is what labels is read from; choose another file"):
            main(["--predictions", str(tmp_path / "predictions.jsonl"), "--labels", str(labels), "--out", str(out)])
    with pytest.raises(InputError, match="seed must not be negative, not -1"):
        main(["--predictions", "p", "--labels", "l", "--out", "o", "--seed", "-1"])
    assert labels.read_bytes() == before


def test_no_score_at_all_leaves_every_figure_undefined(tmp_path: Path, capsys):
    metrics = measure(tmp_path, [{"id": id, "status": "refused", "text": "No."} for id, _, _ in TRUTH])
    assert metrics["coverage"] == 0
    assert {metrics[name] for name in ("pearson", "spearman", "mae", "bias", "level_accuracy")} == {None}
    assert "Spearman -, MAE -" in capsys.readouterr().out


def test_a_constant_prediction_has_no_correlation_but_an_error(tmp_path: Path):
    metrics = measure(tmp_path, [{"id": id, "status": "ok", "score": 0.5} for id, _, _ in TRUTH])
    assert (metrics["pearson"], metrics["spearman"]) == (None, None)
    assert metrics["mae"] == pytest.approx((0.3 + 0.1 + 0.1 + 0.4 + 0.5) / 5)
    assert metrics["inter_level_accuracy"] == 0  # a tie is wrong


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"id": "z", "status": "ok", "score": 0.5}], "predictions.jsonl: .*z"),
        ([{"id": "a", "status": "ok", "score": 0.5}] * 2, "predictions.jsonl:2: field 'id'"),
        ([{"id": "a", "status": "ok"}], "predictions.jsonl:1: field 'score': is missing"),
        ([], "predictions.jsonl: has no rows"),
    ],
)
def test_bad_predictions_are_refused_and_nothing_is_written(tmp_path: Path, rows: list[dict], complaint: str):
    with pytest.raises(InputError, match=complaint):
        measure(tmp_path, rows)
    assert not (tmp_path / "m.json").exists()


# --- Other ways to a score, calibration, another judge -------------------------------------------------------------


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


LABELS = [{"id": id, "level": level, "score": score} for id, level, score in TRUTH]


def run_metrics(folder: Path, predictions: list[dict[str, Any]], *more: str, labels=LABELS) -> dict[str, Any]:
    main(
        [
            "--predictions",
            write(folder / "p.jsonl", predictions),
            "--labels",
            write(folder / "l.jsonl", labels),
            "--out",
            str(folder / "m.json"),
            *more,
        ]
    )
    return json.loads((folder / "m.json").read_text())


def test_each_way_to_a_score_has_its_own_figures_and_coverage_and_none_is_mixed(tmp_path: Path):
    rows: list[dict[str, Any]] = [
        {"id": "a", "status": "ok", "score": 0.9, "expected_score": 0.7, "median_score": 0.8, "label_mass": 0.9},
        {"id": "b", "status": "ok", "score": 0.5, "expected_score": 0.6, "median_score": 0.6, "label_mass": 0.5},
        {"id": "c", "status": "refused", "expected_score": 0.3, "median_score": 0.4},
        {"id": "d", "status": "unparsed"},
        {"id": "e", "status": "ok", "score": 0.2},
    ]
    metrics = run_metrics(tmp_path, rows, "--resamples", "50")
    assert metrics["coverage"] == 0.6 and metrics["mae"] == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert set(metrics["decodings"]) == {"expected", "median"}
    expected, median = metrics["decodings"]["expected"], metrics["decodings"]["median"]
    assert expected["coverage"] == 0.4 and expected["mae"] == pytest.approx((0.1 + 0.0) / 2)
    assert median["mae"] == pytest.approx(0.0) and median["bias"] == pytest.approx(0.0)
    assert expected["status_counts"] == {"ok": 2, "unparsed": 2, "refused": 1, "error": 0, "missing": 0}
    assert set(expected) >= {"pearson", "ci", "confusion", "sampled_pairs"}
    assert metrics["label_mass"] == {"n": 2, "mean": pytest.approx(0.7), "least": 0.5}
    assert "calibrated" not in metrics and "attributes" not in metrics and "against" not in metrics


def test_named_attributes_are_measured_where_labels_have_them(tmp_path: Path):
    keys = Taxonomy.default().keys
    labels = [
        {"id": "x", "level": 3, "score": 0.292, "labels": {key: float(key == "age") for key in keys}},
        {
            "id": "y",
            "level": 3,
            "score": 0.292,
            "labels": {key: 1 if key == "age" else 0.5 * (key == "gender") for key in keys},
        },
    ]
    rows = [
        {"id": "x", "status": "ok", "score": 0.3, "attributes": ["age", "gender"]},
        {"id": "y", "status": "ok", "score": 0.3, "attributes": ["gender"], "composed_score": 0.292},
    ]
    metrics = run_metrics(tmp_path, rows, "--resamples", "0", labels=labels)
    seen = metrics["attributes"]["per_attribute"]
    assert (seen["age"]["precision"], seen["age"]["recall"], seen["age"]["f1"]) == (1, 0.5, pytest.approx(2 / 3))
    assert (seen["gender"]["precision"], seen["gender"]["recall"], seen["gender"]["support"]) == (0, None, 0)
    assert metrics["decodings"]["composed"]["coverage"] == 0.5
    with pytest.raises(InputError, match="'pets' is not in the taxonomy"):
        run_metrics(tmp_path, [{**rows[0], "attributes": ["pets"]}], labels=labels)


def test_errors_by_level_number_of_attributes_and_attribute(tmp_path: Path):
    """By hand: photos of level 3 with one attribute and with two, one of level 4 without any, one without a score."""
    keys = Taxonomy.default().keys
    shown = {"x": ["age"], "y": ["age", "gender"], "z": [], "w": ["location"]}
    truth = {"x": (3, 0.3), "y": (3, 0.4), "z": (4, 0.0), "w": (3, 0.3)}
    labels = [
        {"id": id, "level": level, "score": score, "labels": {key: float(key in shown[id]) for key in keys}}
        for id, (level, score) in truth.items()
    ]
    rows = [{"id": id, "status": "ok", "score": score} for id, score in (("x", 0.2), ("y", 0.1), ("z", 0.1))]
    found = run_metrics(tmp_path, rows, "--resamples", "200", labels=labels)["errors_by"]
    three = found["level"]["3"]
    assert (three["n"], three["scored"]) == (3, 2)
    assert (three["mae"], three["bias"]) == (pytest.approx(0.2), pytest.approx(-0.2))
    low, high = three["bias_ci"]
    assert low == pytest.approx(-0.3) and high == pytest.approx(-0.1)
    assert found["level"]["1"] == {"n": 0, "scored": 0, "mae": None, "bias": None, "mae_ci": None, "bias_ci": None}
    assert [(name, group["n"], group["bias"]) for name, group in found["attributes"].items()] == [
        ("0", 1, pytest.approx(0.1)),
        ("1", 2, pytest.approx(-0.1)),
        ("2", 1, pytest.approx(-0.3)),
    ]
    assert found["attribute"]["gender"]["bias"] == pytest.approx(-0.3)
    assert found["attribute"]["age"]["mae"] == pytest.approx(0.2)
    assert (found["attribute"]["location"]["n"], found["attribute"]["location"]["mae"]) == (1, None)
    without = run_metrics(tmp_path, rows, labels=[{**row, "labels": None} for row in labels])["errors_by"]
    assert set(without) == {"level"}


def test_a_judge_that_is_blind_within_levels_is_at_chance_there(tmp_path: Path):
    rng = np.random.default_rng(1)
    levels = rng.integers(1, 5, 300)
    bounds = {1: (0.711, 1.0), 2: (0.514, 0.71), 3: (0.292, 0.51), 4: (0.0, 0.29)}
    truth = [float(rng.uniform(*bounds[level])) for level in levels]
    labels = [{"id": str(i), "level": int(level), "score": truth[i]} for i, level in enumerate(levels)]
    blind = [
        {"id": str(i), "status": "ok", "score": float(rng.uniform(*bounds[level]))} for i, level in enumerate(levels)
    ]
    seeing = [{**row, "score": 0.3 * row["score"] + 0.7 * truth[i]} for i, row in enumerate(blind)]
    for rows, sees in ((blind, False), (seeing, True)):
        metrics = run_metrics(tmp_path, rows, "--resamples", "300", labels=labels)
        assert metrics["inter_level_accuracy"] > 0.99
        assert (metrics["intra_level_against_chance"]["p"] < 0.01) is sees


def test_probabilities_of_attributes_are_measured_and_calibrated_on_the_hold_out(tmp_path: Path):
    """A judge that says half of how probable an attribute is."""
    rng, keys = np.random.default_rng(0), Taxonomy.default().keys

    def split(prefix: str, n: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        chances = rng.choice([0.0, 0.2, 0.6, 1.0], size=(n, len(keys)))
        present = rng.random(chances.shape) < chances
        labels = [
            {"id": f"{prefix}{i}", "level": 1, "score": 0.8, "labels": dict(zip(keys, map(int, row), strict=True))}
            for i, row in enumerate(present)
        ]
        rows = [
            {"id": f"{prefix}{i}", "status": "ok", "score": 0.8, "mean_score": 0.7, "score_deviation": 0.1}
            | {"score_band": [0.6, 0.9], "attribute_probabilities": dict(zip(keys, (row / 2).tolist(), strict=True))}
            for i, row in enumerate(chances)
        ]
        return labels, rows

    (held_labels, held), (labels, rows) = split("h", 60), split("t", 40)
    more = ["--calibrate", write(tmp_path / "h.jsonl", held), "--calibrate_labels"]
    metrics = run_metrics(
        tmp_path, rows, *more, write(tmp_path / "hl.jsonl", held_labels), "--resamples", "0", labels=labels
    )
    before, after = metrics["attribute_probabilities"]["all"], metrics["calibrated_probabilities"]["all"]
    said = [
        (row["attribute_probabilities"][key], label["labels"][key])
        for row, label in zip(rows, labels, strict=True)
        for key in keys
    ]
    assert before["brier"] == pytest.approx(np.mean([(value - truth) ** 2 for value, truth in said]))
    known = [
        (row["attribute_probabilities"][key], label["labels"][key])
        for row, label in zip(held, held_labels, strict=True)
        for key in keys
    ]
    share = {value: np.mean([truth for other, truth in known if other == value]) for value in (0.0, 0.1, 0.3, 0.5)}
    assert after["brier"] == pytest.approx(np.mean([(share[value] - truth) ** 2 for value, truth in said]))
    assert after["brier"] < before["brier"] and after["auc"] == pytest.approx(before["auc"])
    assert metrics["calibrated_probabilities"]["fitted"]["n"] == 60 * len(keys)
    assert metrics["decodings"]["mean"]["mae"] == pytest.approx(0.1) and metrics["certainty"]["band"]["holds"] == 1
    band = metrics["calibrated_band"]  # every truth lies 0.1 within its band's end, and at it after calibration
    assert band["fitted"] == {"n": 60, "margin": pytest.approx(-0.1)}
    assert band["holds"] == 1 and band["width"] == pytest.approx(0.1)


def test_an_answer_that_was_not_read_has_no_score_of_any_kind(tmp_path: Path):
    """What a refused answer says elsewhere counts nowhere: not as an answer, and not in a calibration."""
    no = {"status": "refused", "expected_score": 0.9, "mean_score": 0.9, "score_deviation": 0.1}
    no |= {"score_band": [0.8, 1.0], "willing": 0.5, "attributes": ["age"]}
    rows = [{"id": "a", "status": "ok", "score": 0.5, "expected_score": 0.6}, {"id": "b", **no}]
    held = [{"id": "h", "status": "ok", "score": 0.5, "expected_score": 0.2}, {"id": "i", **no}]
    held_labels = [{"id": id, "level": 4, "score": 0.1} for id in "hi"]
    given = ["--calibrate", write(tmp_path / "h.jsonl", held), "--resamples", "0", "--calibrate_labels"]
    metrics = run_metrics(tmp_path, rows, *given, write(tmp_path / "hl.jsonl", held_labels))
    expected = metrics["decodings"].pop("expected")
    assert expected["status_counts"]["refused"] == 1 and expected["coverage"] == metrics["coverage"] == 1 / 5
    assert metrics["decodings"] == {} and not metrics.keys() & {"certainty", "willing", "attributes", "calibrated_band"}
    assert metrics["calibrated"]["expected"]["affine"]["fitted"]["n"] == 1


@pytest.mark.slow
def test_calibration_is_learnt_on_the_hold_out_alone_and_reported_apart(tmp_path: Path):
    rng = np.random.default_rng(0)

    def split(prefix: str, n: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        truth = rng.random(n)
        said = np.clip(truth * 0.5 + rng.normal(0, 0.02, n), 0, 1)
        labels = [{"id": f"{prefix}{i}", "level": level_of(t), "score": t} for i, t in enumerate(truth.tolist())]
        answers = [
            {"id": f"{prefix}{i}", "status": "ok", "score": s, "expected_score": s / 2}
            for i, s in enumerate(said.tolist())
        ]
        return labels, answers

    (held_labels, held), (labels, rows) = split("h", 60), split("t", 40)
    more = [
        "--calibrate",
        write(tmp_path / "h.jsonl", held[:50]),
        "--calibrate_labels",
        write(tmp_path / "hl.jsonl", held_labels),
        "--resamples",
        "20",
    ]
    metrics = run_metrics(tmp_path, rows, *more, labels=labels)
    plain = run_metrics(tmp_path, rows, "--resamples", "20", labels=labels)
    assert {**metrics, "calibrated": None} == {**plain, "calibrated": None}
    assert set(metrics["calibrated"]) == {"stated", "expected"}
    truth = np.array([row["score"] for row in labels])
    for name, factor in (("stated", 1), ("expected", 0.5)):
        x, y = np.array([row["score"] for row in held[:50]]) * factor, [row["score"] for row in held_labels[:50]]
        line = np.polyfit(x, y, 1)
        mapped = np.clip(np.polyval(line, np.array([row["score"] for row in rows]) * factor), 0, 1)
        affine, isotonic = (metrics["calibrated"][name][kind] for kind in ("affine", "isotonic"))
        assert affine["mae"] == pytest.approx(np.abs(mapped - truth).mean()) and affine["mae"] < metrics["mae"] / 3
        assert affine["fitted"] == {"n": 50, "slope": pytest.approx(line[0]), "intercept": pytest.approx(line[1])}
        assert isotonic["mae"] < metrics["mae"] / 3 and isotonic["coverage"] == 1
        assert affine["ci"]["mae"][0] < affine["mae"] < affine["ci"]["mae"][1]
        assert affine["ci_method"]["bootstrap"] == "percentile, over rows and over refits"
    run_metrics(tmp_path, rows, *more, labels=labels)
    inputs = json.loads((tmp_path / "m.run.json").read_text())["inputs"]
    assert inputs.keys() == {"predictions", "labels", "calibrate", "calibrate_labels"}


def test_calibrating_on_what_is_measured_is_refused(tmp_path: Path):
    rows = [{"id": "a", "status": "ok", "score": 0.5}]
    with pytest.raises(InputError, match="'a' is measured as well"):
        run_metrics(
            tmp_path,
            rows,
            "--calibrate",
            write(tmp_path / "h.jsonl", rows),
            "--calibrate_labels",
            write(tmp_path / "hl.jsonl", LABELS[:1]),
        )
    with pytest.raises(InputError, match="calibrate and calibrate_labels go together"):
        run_metrics(tmp_path, rows, "--calibrate", "h.jsonl")
    held = [{"id": "h", "level": 4, "score": 0.1}]
    for name, other in (("model", "n"), ("prompt", "intuition")):
        mine = {**rows[0], "model": "m", "prompt": "taxonomy"}
        answers = write(tmp_path / "h.jsonl", [{**mine, "id": "h", name: other}])
        given = ["--calibrate", answers, "--calibrate_labels", write(tmp_path / "hl.jsonl", held)]
        with pytest.raises(InputError, match="h.jsonl: is of another judge: .*; what is measured is m, asked with tax"):
            run_metrics(tmp_path, [mine], *given)
    with pytest.raises(InputError, match="h.jsonl: prediction id 'z' has no label"):
        run_metrics(
            tmp_path,
            rows,
            "--calibrate",
            write(tmp_path / "h.jsonl", [{**rows[0], "id": "z"}]),
            "--calibrate_labels",
            write(tmp_path / "hl.jsonl", held),
        )


def test_another_judge_is_compared_on_the_photos_that_both_scored(tmp_path: Path, capsys):
    rows = [{"id": id, "status": "ok", "score": score} for id, score in zip("abcd", (0.8, 0.6, 0.4, 0.2), strict=True)]
    other = [{"id": id, "status": "ok", "score": score} for id, score in zip("bcde", (0.4, 0.2, 0.3, 0.1), strict=True)]
    metrics = run_metrics(tmp_path, rows, "--against", write(tmp_path / "o.jsonl", other), "--resamples", "40")
    assert metrics["against"]["n"] == 3
    truth, levels = [0.6, 0.4, 0.1], [2, 3, 4]
    expected = paired_difference(truth, [0.6, 0.4, 0.2], [0.4, 0.2, 0.3], levels, resamples=40)
    assert metrics["against"]["figures"] == expected
    assert expected["mae"]["difference"] == pytest.approx((0.1 - 0.6) / 3)
    assert "MAE -0.167 against" in capsys.readouterr().out
    with pytest.raises(InputError, match="o.jsonl: prediction id 'z' has no label"):
        run_metrics(tmp_path, rows, "--against", write(tmp_path / "o.jsonl", [{**other[0], "id": "z"}]))


def test_what_is_undefined_is_shown_as_a_dash():
    assert (show(None), show(0.0), show(-0.1234)) == ("-", "0.000", "-0.123")
    assert show(0.80534, [0.7, 0.9], ".1%") == "80.5% [70.0, 90.0]"
    assert show(0.5, [-0.1, 1], "+.2f") == "+0.50 [-0.10, +1.00]"
