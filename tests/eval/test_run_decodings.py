"""The ways to a score of ``cprt eval``: expected over digits, composed of attributes, structured, over lists."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from evaluation import options, rows, served, with_models
from loopback import Misbehaving

from cprt.guidance.advice import compose
from cprt.images import load_image
from cprt.models.decoding.scores import summarise
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.records import read_labels, read_predictions
from cprt.scoring import severity
from cprt.taxonomy import Taxonomy
from eval.compare import run as compare_command
from eval.run import main


def test_expected_decoding_of_a_local_model_is_the_mean_of_its_distribution(demo, demo_base, tmp_path):
    """Under the prompt's own key, where the answer states a score; one that states none gets no expectation."""
    own = tmp_path / "own.yaml"
    own.write_text("name: own\npolicy: Look.\nquestion: Rate the brightness. Answer as JSON.\nscore_key: brightness\n")
    more = ("--decoding", "expected", "--limit", "4", "--batch_size", "3")
    main([*options(demo, demo_base, tmp_path / "own", *more), "--prompt", str(own)])
    found, labels = rows(tmp_path / "own"), read_labels(demo.test_labels)
    model = LocalModel(str(demo_base), dtype="float32")
    photo = load_image(demo.images / str(labels[2].image))
    (generation,) = model.generate([(build(str(own)).messages(), [photo])], 24, '{"brightness": ')
    expected = summarise(generation.distribution)
    row = found[2]
    assert row["status"] == "ok" and row["text"] == generation.text
    assert (row["expected_score"], row["median_score"], row["label_mass"]) == (
        pytest.approx(expected.mean, abs=1e-4),
        pytest.approx(expected.median, abs=2e-3),
        pytest.approx(expected.mass, rel=1e-3),
    )
    metrics = json.loads((tmp_path / "own" / "metrics.json").read_text())
    assert set(metrics["decodings"]) == {"expected", "median"} and metrics["decodings"]["expected"]["coverage"] == 1
    truth = [label.score for label in labels[:4]]
    errors = [abs(row["expected_score"] - score) for row, score in zip(found, truth, strict=True)]
    assert metrics["decodings"]["expected"]["mae"] == pytest.approx(sum(errors) / 4)
    record = json.loads((tmp_path / "own" / "run.json").read_text())
    assert record["decoding"]["expected"] == "the tree of all scores" and record["dtype"] == "float32"
    assert sum(way["count"] for way in record["answers_made"]) == 4
    assert {way["batch"] for way in record["answers_made"]} == {1, 3}
    main(options(demo, demo_base, tmp_path / "none", *more))  # the base knows no severity score
    assert [row["status"] for row in rows(tmp_path / "none")] == ["unparsed"] * 4
    assert {(row["expected_score"], row["label_mass"]) for row in rows(tmp_path / "none")} == {(None, None)}


def test_attributes_compose_a_score_beside_the_stated_one(demo, tmp_path):
    answer = '{"attributes": ["age", "biometrics"], "level": 2, "score": 0.4}'
    with Misbehaving(lambda body: (answer, "stop")) as server:
        main(with_models(demo, tmp_path, [served(server.url, "one", target="attributes")], limit=3))
    row = rows(tmp_path / "out")[0]
    assert (row["score"], row["level"], row["stated_level"], row["attributes"]) == (0.4, 3, 2, ["age", "biometrics"])
    assert row["composed_score"] == severity((1, 0, 1, 0)).score
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["decodings"]["composed"]["coverage"] == 1
    assert metrics["attributes"]["per_attribute"]["biometrics"]["precision"] is not None


def test_an_endpoints_alternatives_give_the_expectation_and_one_without_is_asked_without(demo, tmp_path, capsys):
    def certain(token: str) -> dict[str, Any]:
        return {"token": token, "logprob": 0.0, "top_logprobs": [{"token": token, "logprob": 0.0}]}

    last = [{"token": "2", "logprob": math.log(0.6)}, {"token": "8", "logprob": math.log(0.3)}]
    content = [certain('{"score": '), certain("0.71"), {**last[0], "top_logprobs": last}, certain("}")]

    def judge(body: dict[str, Any]) -> Any:
        if body["model"] == "model-without" and "logprobs" in body:
            message = "Unsupported parameter: 'logprobs' is not supported with this model."
            return 400, {"error": {"message": message, "param": "logprobs"}}
        choice = {"message": {"content": '{"score": 0.712}'}, "finish_reason": "stop"}
        if body.get("logprobs"):
            assert body["top_logprobs"] == 20
            choice["logprobs"] = {"content": content}
        return 200, {"choices": [choice]}

    with Misbehaving(judge) as server:
        models = [served(server.url, name, concurrency=1) for name in ("with", "without")]
        main(with_models(demo, tmp_path, models, decoding="expected", limit=3))
    row, without = rows(tmp_path / "out" / "with")[0], rows(tmp_path / "out" / "without")[0]
    assert row["score"] == without["score"] == 0.712
    assert row["expected_score"] == pytest.approx((0.6 * 0.712 + 0.3 * 0.718) / 0.9)
    assert (row["median_score"], row["label_mass"]) == (0.712, pytest.approx(0.9))
    assert (without["expected_score"], without["label_mass"]) == (None, None)
    notes = [line for line in capsys.readouterr().out.splitlines() if "without an expected score" in line]
    assert len(notes) == 1 and notes[0].startswith(f"note: {tmp_path / 'out' / 'without'}: 3 answers without")
    records = [json.loads((tmp_path / "out" / name / "run.json").read_text()) for name in ("with", "without")]
    assert records[0]["decoding"]["expected"] == "top_logprobs 20" and records[0]["answers_made"] == []
    assert records[1]["answers_made"] == [{"without": ["logprobs"], "count": 3}]


def test_structured_answers_of_a_base_can_all_be_read_and_are_told_apart(demo, demo_base, evaluated, tmp_path):
    """What answers nothing that can be read when it is free, beside it in one comparison."""
    held = tmp_path / "held"
    main(options(demo, demo_base, held, "--structured", "true"))
    free = read_predictions(evaluated / "predictions.jsonl")
    assert {row.status for row in free} == {"unparsed"} and "willing" not in rows(evaluated)[0]
    found = rows(held)
    assert {row["status"] for row in found} == {"ok"} and all(0 < row["willing"] < 0.01 for row in found)
    metrics = json.loads((held / "metrics.json").read_text())
    assert metrics["coverage"] == 1 and metrics["willing"]["n"] == 16
    assert metrics["willing"]["mean"] == pytest.approx(sum(row["willing"] for row in found) / 16)
    record = json.loads((held / "run.json").read_text())
    assert record["decoding"]["structured"] == "a grammar" and record["config"]["structured"] is True
    assert "structured" not in json.loads((evaluated / "run.json").read_text())["decoding"]
    compare_command.main(
        ["--runs", str(evaluated), str(held), "--labels", str(demo.test_labels), "--out", str(tmp_path / "compare")]
    )
    page = (tmp_path / "compare" / "report.html").read_text()
    assert page.count("structured answers") == 1 and "structured, by a grammar" in page


def test_structured_lists_have_probabilities_and_scores_of_their_own(demo, demo_base, tmp_path):
    how = ["--prompt", "taxonomy", "--target", "attributes", "--structured", "true", "--decoding", "expected"]
    main(options(demo, demo_base, tmp_path, *how, "--limit", "4"))
    taxonomy = Taxonomy.default()
    for row in rows(tmp_path):
        assert tuple(row["attribute_probabilities"]) == taxonomy.keys
        best = row["lists"][0]
        assert row["likeliest_score"] == best["score"] == compose(best["attributes"]).score
        assert best["probability"] == max(one["probability"] for one in row["lists"]) and len(row["lists"]) <= 5
        named = sum(one["probability"] for one in row["lists"] if "age" in one["attributes"]) / row["list_mass"]
        assert row["attribute_probabilities"]["age"] >= named - 1e-9
        low, high = row["score_band"]
        assert low <= high and 0 < row["list_mass"] <= 1
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    for way in ("likeliest", "level_mean", "mean"):
        assert metrics["decodings"][way]["coverage"] == 1
    decoding = json.loads((tmp_path / "run.json").read_text())["decoding"]
    assert decoding["lists"] == "the most probable lists of attributes"
    read = read_predictions(tmp_path / "predictions.jsonl")
    assert [(row.lists, row.score_band, row.attribute_probabilities) for row in read] == [
        (row["lists"], row["score_band"], row["attribute_probabilities"]) for row in rows(tmp_path)
    ]


NAMES = "with", "without", "deaf"


def test_an_endpoint_is_sent_the_schema_and_one_without_answers_freely(demo, tmp_path, capsys):
    def judge(body: dict[str, Any]) -> Any:
        if body["model"] == "model-deaf" or "response_format" not in body:
            return "The score is low.", "stop"
        if body["model"] == "model-without":
            return 400, {"error": {"message": "response_format is not supported"}}
        assert body["response_format"]["json_schema"]["schema"]["required"] == ["attributes", "level", "score"]
        return '{"attributes": ["age"], "level": 3, "score": 0.292}', "stop"

    with Misbehaving(judge) as server:
        models = [served(server.url, name, target="attributes", concurrency=1) for name in NAMES]
        main(with_models(demo, tmp_path, models, structured=True, limit=3))
    row, *others = (rows(tmp_path / "out" / name)[0] for name in NAMES)
    assert (row["score"], row["attributes"], [other["status"] for other in others]) == (
        0.292,
        ["age"],
        ["unparsed"] * 2,
    )
    assert "willing" not in row
    records = [json.loads((tmp_path / "out" / name / "run.json").read_text()) for name in NAMES]
    assert [record["decoding"].get("structured") for record in records] == ["a JSON schema", None, None]
    assert records[0]["answers_made"] == []
    notes = [line for line in capsys.readouterr().out.splitlines() if "free ones" in line]
    for name, record, note in zip(NAMES[1:], records[1:], notes, strict=True):
        assert record["answers_made"] == [{"without": ["response_format"], "count": 3}]
        assert note.startswith(f"note: {tmp_path / 'out' / name}: 3 of 3 answers are free ones: the endpoint takes no")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("free: 3 of 3 answers do not keep to the JSON schema") == 2
    assert page.count("structured, by a JSON schema") == 1
