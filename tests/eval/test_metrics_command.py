"""``cprt metrics``: from files alone, with the join checked and what is undefined left undefined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from cprt.errors import InputError
from eval.metrics import main, show

TRUTH = [("a", 1, 0.8), ("b", 2, 0.6), ("c", 3, 0.4), ("d", 4, 0.1), ("e", 4, 0.0)]


def measure(folder: Path, predictions: list[dict[str, Any]], truth=TRUTH) -> dict[str, Any]:
    labels = [{"id": id, "level": level, "score": score} for id, level, score in truth]
    for name, rows in (("labels", labels), ("predictions", predictions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    main(["--predictions", str(folder / "predictions.jsonl"), "--labels", str(folder / "labels.jsonl"),
          "--out", str(folder / "m.json")])  # fmt: skip
    return json.loads((folder / "m.json").read_text())


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


def test_what_is_undefined_is_shown_as_a_dash():
    assert (show(None), show(0.0), show(-0.1234)) == ("-", "0.000", "-0.123")
