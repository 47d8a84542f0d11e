"""``cprt eval`` on the tiny model: batching and prefix sharing change no answer, and what is asked anew is said."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evaluation import options, texts

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models import prefix_cache
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.records import read_labels, read_predictions
from eval import metrics as metrics_command
from eval.run import main


def test_every_label_has_one_prediction_with_the_models_own_words(demo, demo_base, evaluated):
    labels = read_labels(demo.test_labels)
    predictions = read_predictions(evaluated / "predictions.jsonl")
    assert [prediction.id for prediction in predictions] == [label.id for label in labels]
    model = LocalModel(str(demo_base), dtype="float32")
    photo = load_image(demo.images / str(labels[3].image))
    (generation,) = model.generate([(build("zero_shot").messages(), [photo])], 24)
    assert predictions[3].text == generation.text
    assert len({prediction.text for prediction in predictions}) > 1  # it looks at the photos


def test_metrics_from_files_alone_are_the_same(demo, evaluated, tmp_path):
    metrics_command.main(
        [
            "--predictions",
            str(evaluated / "predictions.jsonl"),
            "--labels",
            str(demo.test_labels),
            "--out",
            str(tmp_path / "m.json"),
        ]
    )
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics == json.loads((evaluated / "metrics.json").read_text())
    assert metrics["n"] == 16 and sum(metrics["status_counts"].values()) == 16
    assert {
        "coverage",
        "pearson",
        "spearman",
        "mae",
        "bias",
        "level_accuracy",
        "inter_level_accuracy",
        "intra_level_accuracy",
    } <= metrics.keys()


def test_the_run_record_says_what_made_the_answers(demo, evaluated):
    record = json.loads((evaluated / "run.json").read_text())
    assert record["prompt"] == build("zero_shot").identity()
    assert record["decoding"]["max_new_tokens"] == 24 and record["dtype"] == "float32"
    assert len(record["model"]) == 64 and record["adapter"] is None
    assert os.uname().nodename not in json.dumps(record) and "user" not in record


def test_a_second_run_asks_nothing(demo, demo_base, evaluated, monkeypatch):
    before = (evaluated / "answers.jsonl").read_bytes()

    def refuse(*args, **kwargs):
        raise AssertionError("asked again")

    monkeypatch.setattr(LocalModel, "generate", refuse)
    main(options(demo, demo_base, evaluated))
    assert (evaluated / "answers.jsonl").read_bytes() == before


@pytest.mark.parametrize("prompt", ["zero_shot", "taxonomy"])
def test_batching_and_prefix_sharing_change_no_answer(mixed_demo, demo_base, prompt):
    """Photos of several sizes, so that rows are padded: alone and plain against batched and shared."""
    photos = [load_image(mixed_demo.images / str(label.image)) for label in read_labels(mixed_demo.test_labels)][:6]
    messages = build(prompt).messages()
    # Something that the base knows how to answer, so that its answers differ from photo to photo.
    messages[0]["content"][-1]["text"] = "List the things from A to Z. Use a list."
    rows = [(messages, [photo]) for photo in photos]
    shared, plain = (LocalModel(str(demo_base), dtype="float32", share_prefix=share) for share in (True, False))
    together, plain_together = shared.generate(rows, 20), plain.generate(rows, 20)
    shared_one_by_one = [shared.generate([row], 20)[0] for row in rows]
    plain_one_by_one = [plain.generate([row], 20)[0] for row in rows]
    assert together == shared_one_by_one == plain_together == plain_one_by_one
    assert len({generation.text for generation in together}) > 1


def test_an_adapter_gives_its_own_answers_and_shares_none(demo, demo_base, adapter, evaluated, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(evaluated, out)
    main(options(demo, demo_base, out, "--adapter", str(adapter)))
    assert len((out / "answers.jsonl").read_text().splitlines()) == 32
    changed = texts(out)
    assert changed != texts(evaluated)
    main(options(demo, demo_base, out))  # back to the base: all kept
    assert len((out / "answers.jsonl").read_text().splitlines()) == 32
    assert texts(out) == texts(evaluated)


def test_a_changed_photo_under_the_same_name_is_asked_anew(demo, demo_base, evaluated, tmp_path):
    images, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(demo.images, images)
    shutil.copytree(evaluated, out)
    first, second = (images / str(label.image) for label in read_labels(demo.test_labels)[:2])
    shutil.copy(second, first)
    main(options(demo, demo_base, out, "--images", str(images)))
    # The same bytes under another name need no new answer.
    assert len((out / "answers.jsonl").read_text().splitlines()) == 16
    answers = list(texts(out).values())
    assert answers[0] == answers[1]


def test_a_photo_that_breaks_off_is_an_error_and_the_others_go_on(demo, demo_base, evaluated, tmp_path):
    images, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(demo.images, images)
    broken = images / str(read_labels(demo.test_labels)[0].image)
    broken.write_bytes(broken.read_bytes()[:900])
    main(options(demo, demo_base, out, "--images", str(images)))
    predictions = read_predictions(out / "predictions.jsonl")
    assert (predictions[0].status, predictions[0].score, predictions[0].text) == ("error", None, None)
    assert broken.name in str(predictions[0].error)
    assert [prediction.text for prediction in predictions[1:]] == list(texts(evaluated).values())[1:]
    assert json.loads((out / "metrics.json").read_text())["status_counts"]["error"] == 1


def test_an_answer_cut_off_at_the_token_limit_is_unparsed(demo, demo_base, tmp_path):
    main(options(demo, demo_base, tmp_path, "--max_new_tokens", "2", "--limit", "3"))
    predictions = read_predictions(tmp_path / "predictions.jsonl")
    assert [prediction.status for prediction in predictions] == ["unparsed"] * 3
    assert predictions[0].error == "cut off at 2 tokens" and predictions[0].text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--model", "nowhere/at/all"], "nowhere/at/all: no such model folder"),
        (["--labels", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--labels", "nowhere.jsonl", "--model", "nobody/has-this-model"], "nowhere.jsonl: No such file"),
        (["--images", "nowhere", "--model", "nobody/has-this-model"], "nowhere: is not a folder of images"),
        (["--images", "nowhere"], "nowhere: is not a folder of images"),
        (["--adapter", "tests"], "tests: is not an adapter folder"),
        (["--batch_size", "0"], "batch_size must be at least 1"),
        (["--target", "attributes"], "target 'attributes' needs prompt 'taxonomy'"),
        (["--taxonomy", "nowhere.yaml"], "nowhere.yaml: No such file"),
    ],
)
def test_bad_input_gets_one_line(demo, demo_base, tmp_path, change, complaint):
    with pytest.raises(InputError) as caught:
        main(options(demo, demo_base, tmp_path / "out", *change))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_a_photo_that_is_none_stops_the_run_before_the_model_is_loaded(demo, tmp_path):
    images = tmp_path / "data"
    shutil.copytree(demo.images, images)
    broken = images / str(read_labels(demo.test_labels)[0].image)
    broken.write_text("not an image")
    with pytest.raises(InputError, match=f"{broken.name}: is not an image"):
        main(options(demo, Path("nowhere/at/all"), tmp_path / "out", "--images", str(images)))


@pytest.mark.slow
def test_photos_are_encoded_once_for_all_prompts_and_each_shared_text_once(demo, demo_base, tmp_path, monkeypatch):
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

    prompts, counts = ["zero_shot", "intuition", "taxonomy"], Counter[str]()

    def counted(place: Any, method: str, name: str) -> None:
        original = getattr(place, method)

        def count(*args: Any, **more: Any) -> Any:
            counts[name] += 1
            return original(*args, **more)

        monkeypatch.setattr(place, method, count)

    counted(Qwen3VLModel, "get_image_features", "photos")
    counted(prefix_cache, "compute_prefix", "shared text")
    main(options(demo, demo_base, tmp_path / "all", "--prompt", *prompts, "--batch_size", "8"))
    assert counts["photos"] == 2 and counts["shared text"] == 3  # 16 photos in batches of 8, three prompts
    for prompt in prompts:
        main(options(demo, demo_base, tmp_path / prompt, "--prompt", prompt, "--batch_size", "8"))
        assert texts(tmp_path / prompt) == texts(tmp_path / "all" / f"demo_base-{prompt}")
