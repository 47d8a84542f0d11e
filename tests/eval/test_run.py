"""``cprt eval`` on the tiny model: batching and prefix sharing change no answer, and kills lose nothing."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback import REFUSAL, Misbehaving, first_try_fails, identity
from PIL import Image
from safetensors.torch import load_file, save_file

from cprt.errors import InputError
from cprt.guidance.advice import compose
from cprt.images import load_image
from cprt.models import prefix_cache
from cprt.models.adapter import pixel_cap
from cprt.models.decoding.scores import summarise
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.provenance import model_digest
from cprt.records import read_labels, read_predictions
from cprt.scoring import severity
from cprt.taxonomy import Taxonomy
from eval import metrics as metrics_command
from eval.compare import run as compare_command
from eval.judges import from_options, only_asked
from eval.run import main

REPORT = ("run.json", "report.html", "scores.png", "confusion.png", "calibration.png")  # one for all judges of a run


def options(demo: Any, base: Path, out: Path, *more: str) -> list[str]:
    return [
        "--model",
        str(base),
        "--labels",
        str(demo.test_labels),
        "--images",
        str(demo.images),
        "--out",
        str(out),
        "--dtype",
        "float32",
        "--max_new_tokens",
        "24",
        "--prompt",
        "zero_shot",
        *more,
    ]


def texts(out: Path) -> dict[str, str | None]:
    return {prediction.id: prediction.text for prediction in read_predictions(out / "predictions.jsonl")}


@pytest.fixture(scope="module")
def evaluated(demo: Any, demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluated")
    main(options(demo, demo_base, out))
    return out


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


# --- Endpoints, several judges, several processes ------------------------------------------------------------------


def judge_like(body: dict[str, Any]) -> tuple[str, str]:
    """A served judge: its score follows from model, prompt and photo; every fifth photo is refused."""
    digest = hashlib.sha256(f"{identity(body)} {body['model']}".encode()).digest()
    if digest[0] % 5 == 0:
        return REFUSAL, "stop"
    return json.dumps({"score": round(digest[1] / 255, 3)}), "stop"


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def with_models(demo: Any, folder: Path, models: list[dict[str, Any]], *more: str, **options: Any) -> list[str]:
    """Arguments for a YAML with ``models``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "models": models,
        "labels": str(demo.test_labels),
        "images": str(demo.images),
        "out": str(folder / "out"),
        **options,
    }
    (folder / "eval.yaml").write_text(yaml.safe_dump(content))
    return ["--config", str(folder / "eval.yaml"), *more]


def served(url: str, name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": f"model-{name}", "base_url": url, **more}


def test_an_endpoint_is_judged_from_the_command_line(demo, tmp_path):
    with Misbehaving(judge_like, first_try_fails, stall=0.5) as server:
        arguments = [
            "--model",
            "some/model",
            "--base_url",
            server.url,
            "--labels",
            str(demo.test_labels),
            "--images",
            str(demo.images),
            "--out",
            str(tmp_path),
        ]
        main([*arguments, "--prompt", "intuition"])
        asked = len(server.bodies)
        main([*arguments, "--prompt", "intuition"])
        assert len(server.bodies) == asked
    body = server.bodies[0]
    text = "".join(part["text"] for part in body["messages"][0]["content"] if part["type"] == "text")
    assert text == "".join(part.get("text", "") for part in build("intuition").messages()[0]["content"])
    assert body["temperature"] == 0 and "logprobs" not in body
    found = rows(tmp_path)
    assert {row["status"] for row in found} == {"ok", "refused"} and len(found) == 16
    assert {row["model"] for row in found} == {"some/model"} and {row["prompt"] for row in found} == {"intuition"}
    written = "".join(path.read_text(errors="replace") for path in tmp_path.iterdir())
    assert str(server.port) not in written and "127.0.0.1" not in written


@pytest.mark.slow
def test_several_models_and_prompts_have_a_folder_each_and_one_store(demo, demo_base, adapter, tmp_path):
    local = {
        "name": "tiny",
        "model": str(demo_base),
        "max_new_tokens": 12,
        "dtype": "float32",
        "prompts": ["zero_shot"],
    }
    with Misbehaving(judge_like) as server:
        models = [
            served(server.url, "one"),
            served(server.url, "two", target="attributes", prompts=["taxonomy"]),
            local,
            {**local, "name": "tuned", "adapter": str(adapter)},
        ]
        arguments = with_models(demo, tmp_path, models, prompt=["zero_shot", "taxonomy"], limit=6)
        main(arguments)
        assert len(server.bodies) == 18
        main([*arguments, "--only", "one", "tuned"])
        assert len(server.bodies) == 18
    out = tmp_path / "out"
    folders = ["one-taxonomy", "one-zero_shot", "tuned-zero_shot", "two-taxonomy", "tiny-zero_shot"]
    assert sorted(path.name for path in out.iterdir()) == sorted(["answers.jsonl", *REPORT, *folders])
    assert len((out / "answers.jsonl").read_text().splitlines()) == 30
    for name in folders:
        assert {path.name for path in (out / name).iterdir()} == {"predictions.jsonl", "metrics.json", "run.json"}
        record = json.loads((out / name / "run.json").read_text())
        assert record["prompt"]["name"] == name.split("-")[1] == rows(out / name)[0]["prompt"]
        assert record["config"]["judge"]["name"] == name.split("-")[0] and record["config"]["models"] == []
    assert json.loads((out / "two-taxonomy" / "run.json").read_text())["prompt"]["target"] == "attributes"
    assert json.loads((out / "tuned-zero_shot" / "run.json").read_text())["adapter"] is not None
    assert texts(out / "tuned-zero_shot") != texts(out / "tiny-zero_shot")
    assert [row["text"] for row in rows(out / "one-taxonomy")] != [row["text"] for row in rows(out / "one-zero_shot")]


@pytest.mark.slow
def test_a_whole_folder_of_checkpoints_is_judged_each_apart(demo, demo_base, adapter, tmp_path):
    folders = [tmp_path / "run" / f"checkpoint-{step}" for step in (20, 40)] + [tmp_path / "other" / "checkpoint-20"]
    for folder in folders:
        shutil.copytree(adapter, folder)
    changed = load_file(folders[1] / "adapter_model.safetensors")
    save_file({name: weight * 1.7 for name, weight in changed.items()}, folders[1] / "adapter_model.safetensors")
    main(options(demo, demo_base, tmp_path / "two", "--limit", "5", "--adapter", *map(str, folders[:2])))
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        "answers.jsonl",
        *REPORT,
        "checkpoint-20",
        "checkpoint-40",
    }
    assert texts(tmp_path / "two" / "checkpoint-20") != texts(tmp_path / "two" / "checkpoint-40")
    main(options(demo, demo_base, tmp_path / "three", "--limit", "5", "--adapter", *map(str, folders)))
    named = {"run-checkpoint-20", "run-checkpoint-40", "other-checkpoint-20"}
    assert {path.name for path in (tmp_path / "three").iterdir()} == {"answers.jsonl", *REPORT, *named}
    # The same weights in another folder are the same judge.
    assert len((tmp_path / "three" / "answers.jsonl").read_text().splitlines()) == 10
    assert texts(tmp_path / "three" / "run-checkpoint-20") == texts(tmp_path / "three" / "other-checkpoint-20")
    with pytest.raises(InputError, match="is there twice"):
        main(options(demo, demo_base, tmp_path / "x", "--adapter", str(adapter), str(adapter)))


@pytest.mark.parametrize(
    ("choice", "beside", "status", "text"),
    [
        ({"message": {"content": '{"score": 0.5} \ud83d'}}, {}, "unparsed", '{"score": 0.5} \\ud83d'),
        ({"message": {"content": "x" * 200_000}}, {}, "unparsed", "x" * 200_000),
        ({"message": {"content": '{"score": 0.5}'}}, {"usage": [[1], {"a": -1}]}, "ok", '{"score": 0.5}'),
        (
            {
                "message": {"content": [{"type": "thinking", "thinking": "0.9?"}, {"text": '{"score": 0.5}'}]},
                "logprobs": {"content": [{"token": "\udc00", "logprob": -math.inf, "top_logprobs": [[math.nan]]}]},
            },
            {"usage": "many"},
            "ok",
            '<think>0.9?</think>\n{"score": 0.5}',
        ),
        ({"message": {"content": '{"score": 0.5}'}, "finish_reason": "abort \ud83d"}, {}, "error", None),
    ],
)
def test_an_odd_completion_costs_neither_its_answer_nor_a_rerun(demo, tmp_path, choice, beside, status, text):
    with Misbehaving(lambda body: (200, {"choices": [{"finish_reason": "stop"} | choice], **beside})) as server:
        model = served(server.url, "one", retries=0)
        arguments = with_models(demo, tmp_path, [model], limit=2, decoding="expected")
        for _ in range(2):
            with contextlib.suppress(InputError) if status == "error" else contextlib.nullcontext():
                main(arguments)
            assert [(row["status"], row["text"]) for row in rows(tmp_path / "out")] == [(status, text)] * 2
        assert len(server.bodies) == (4 if status == "error" else 2)


@pytest.mark.slow
def test_only_one_model_writes_where_all_do_and_leaves_the_others_on_the_page(demo, tmp_path):
    with Misbehaving(judge_like) as server:
        models = [served(server.url, name) for name in ("one", "two")]
        models.append(served(server.url, "three", prompts=["zero_shot", "taxonomy"]))
        arguments = with_models(demo, tmp_path, models, prompt=["zero_shot"])
        main([*arguments, "--only", "one"])
        out = tmp_path / "out"
        assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["one-zero_shot"]
        main(arguments)
        folders = ["one-zero_shot", "three-taxonomy", "three-zero_shot", "two-zero_shot"]
        before = {name: (out / name / "predictions.jsonl").read_bytes() for name in folders}
        page = (out / "report.html").read_text()
        main([*arguments, "--only", "two"])
        assert sorted(path.name for path in out.iterdir() if path.is_dir()) == folders
        assert {name: (out / name / "predictions.jsonl").read_bytes() for name in folders} == before
        assert all(name in page and name in (out / "report.html").read_text() for name in folders)
        # Results of an earlier run about other photos are none of this one's.
        main([*arguments, "--only", "two", "--limit", "5"])
        shown = (out / "report.html").read_text()
        assert "two-zero_shot" in shown and not any(name in shown for name in ("one-zero_shot", "three-taxonomy"))


def test_a_server_that_always_fails_gives_errors_no_figure_and_no_success(demo, tmp_path):
    models = [served("", "bad", retries=0), served("", "good", retries=0)]

    def fault(who: str, earlier: int) -> str | None:
        return "500"

    with Misbehaving(judge_like, fault) as bad, Misbehaving(judge_like) as good:
        models[0]["base_url"], models[1]["base_url"] = bad.url, good.url
        arguments = with_models(demo, tmp_path, models, prompt=["zero_shot"])
        with pytest.raises(InputError, match="bad: every photo ended in an error .the first: HTTP 500"):
            main(arguments)
    found = rows(tmp_path / "out" / "bad")
    assert [row["status"] for row in found] == ["error"] * 16 and not any(row["score"] for row in found)
    metrics = json.loads((tmp_path / "out" / "bad" / "metrics.json").read_text())
    assert metrics["coverage"] == 0 and metrics["status_counts"]["error"] == 16
    assert {metrics[name] for name in ("pearson", "spearman", "mae", "bias", "level_accuracy")} == {None}
    assert {row["status"] for row in rows(tmp_path / "out" / "good")} == {"ok", "refused"}  # the next one was asked


def test_a_dead_endpoint_is_one_line_and_no_figure(demo, tmp_path, capsys):
    """What was never asked is no error of a photo, and no page shows it."""
    arguments = with_models(demo, tmp_path, [served("http://127.0.0.1:9/v1", "one", concurrency=1)])
    with pytest.raises(InputError, match=r"^one: no endpoint at 127.0.0.1:9: no connection \(Connection refused\); "):
        main(arguments)
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'out'}: stopped with 16 not asked\n" and "note:" not in err
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_refused_key_is_one_line_and_the_rest_is_kept(demo, tmp_path, monkeypatch):
    asked = 0

    def expires(body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return judge_like(body) if asked <= 5 else (401, {"error": {"message": "Incorrect API key sk-secret-1234"}})

    monkeypatch.setenv("JUDGE_KEY", "sk-secret-1234")
    with Misbehaving(expires) as server:
        arguments = with_models(demo, tmp_path, [served(server.url, "one", api_key_env="JUDGE_KEY", concurrency=1)])
        with pytest.raises(InputError, match="the endpoint refuses the key in JUDGE_KEY"):
            main(arguments)
    found = rows(tmp_path / "out")
    assert len(found) == 16 and sum(row["status"] == "error" for row in found) == 11
    assert {row["error"] for row in found if row["status"] == "error"} == {"not asked: the run stopped before"}
    assert not any(b"sk-secret" in path.read_bytes() for path in (tmp_path / "out").iterdir())


def test_photos_leave_the_machine_only_when_told(demo, tmp_path):
    arguments = with_models(demo, tmp_path, [served("https://api.example.com/v1", "far")])
    with pytest.raises(InputError, match="set --allow_remote true"):
        main(arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_refusals_are_asked_again_only_when_told_and_errors_always(demo, tmp_path):
    better = False

    def learns(body: dict[str, Any]) -> Any:
        answer = judge_like(body)
        if better and answer[0] == REFUSAL:
            return '{"score": 0.5}', "stop"
        return answer if better or int(identity(body)[:2], 16) % 3 else (400, {"error": {"message": "no"}})

    with Misbehaving(learns) as server:
        arguments = with_models(demo, tmp_path, [served(server.url, "one")])
        main(arguments)
        first = rows(tmp_path / "out")
        better = True
        calls = []
        for retry in ([], [], ["--retry", "refused"], ["--retry", "refused"]):
            before = len(server.bodies)
            main([*arguments, *retry])
            calls.append(len(server.bodies) - before)
            if not calls[1:]:
                second = rows(tmp_path / "out")
    errors, refused = (
        sum(row["status"] == status for row in table) for status, table in (("error", first), ("refused", second))
    )
    assert errors and refused and calls == [errors, 0, refused, 0]
    last = rows(tmp_path / "out")
    assert {row["status"] for row in last} == {"ok"}
    assert [row for row in first if row["status"] == "ok"] == [
        row for row, old in zip(last, first, strict=True) if old["status"] == "ok"
    ]


@pytest.mark.parametrize(
    ("models", "more", "complaint"),
    [
        (
            [{"name": "a", "model": "m", "prompts": ["clever"]}],
            [],
            "models[1]: field 'prompts': ['clever'] is not a list of zero",
        ),
        ([{"name": "a", "model": "m", "target": "x"}], [], "models[1]: field 'target': 'x' is not one of"),
        ([{"name": "a", "model": "m"}, {"name": "A", "model": "n"}], [], "'a' is there twice"),
        ([{"name": "a", "model": "m"}], ["--only", "b"], "only: no model is called 'b' (there are a)"),
        ([{"name": "a", "model": "m"}], ["--model", "n"], "needs model, or models in the YAML, and not both"),
        ([{"name": "a", "model": "m"}], ["--adapter", "n"], "adapter goes with model"),
        ([{"name": "a", "model": "m", "adapter": "tests"}], [], "tests: is not an adapter folder"),
        ([{"name": "a", "model": "m"}], ["--prompt", "clever"], "['clever'] is not a list of zero_shot"),
        ([{"name": "a", "model": "m"}], ["--retry", "error"], "retry: 'error' is not one of refused, unparsed"),
    ],
)
def test_bad_models_get_one_line(demo, tmp_path, models, more, complaint):
    with pytest.raises(InputError) as caught:
        main(with_models(demo, tmp_path, models, *more))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def shard(monkeypatch):
    """Runs one process's part in this process."""

    def run(arguments: list[str], rank: int, world: int) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("RANK", str(rank))
            patch.setenv("WORLD_SIZE", str(world))
            main(arguments)

    return run


@pytest.mark.slow
def test_several_processes_answer_a_part_each_and_the_last_writes(demo, tmp_path, shard, capsys):
    with Misbehaving(judge_like, delay=0.05) as server:
        alone = with_models(demo, tmp_path / "alone", [served(server.url, "one")], prompt=["zero_shot", "taxonomy"])
        main(alone)
        assert len(server.bodies) == 32
        parts = with_models(demo, tmp_path / "parts", [served(server.url, "one")], prompt=["zero_shot", "taxonomy"])
        out = tmp_path / "parts" / "out"
        shard(parts, 0, 2)
        assert "answers are still missing" in capsys.readouterr().out and not (out / "one-taxonomy").exists()
        shard(parts, 1, 2)
        for name in ("one-taxonomy", "one-zero_shot"):
            assert rows(out / name) == rows(tmp_path / "alone" / "out" / name)
        assert len(server.bodies) == 64
        stores = [out / f"answers.{rank}-of-2.jsonl" for rank in (0, 1)]
        counts = [len(store.read_text().splitlines()) for store in stores]
        assert sum(counts) == 32 and min(counts) > 5
        # One process, and another number of them, ask nothing that is kept.
        shutil.rmtree(out / "one-taxonomy")
        main(parts)
        for rank in range(3):
            shard(parts, rank, 3)
        assert len(server.bodies) == 64 and rows(out / "one-taxonomy") == rows(tmp_path / "alone/out/one-taxonomy")


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, 2])
def test_accelerate_launch_shards_a_local_model_with_the_answers_of_one_process(
    demo, demo_base, evaluated, tmp_path, root, machines: int
):
    """Two processes of one machine, and one on each of two, as docs/evaluating.md starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    launch += ["--config_file", "configs/accelerate/multi_gpu.yaml"]
    running = []
    for rank in range(machines):
        place = ["--num_machines", str(machines), "--machine_rank", str(rank), "--num_processes", "2"]
        place += ["--main_process_ip", "127.0.0.1", "--main_process_port", port]
        command = [*launch, *place, "-m", "eval.run", *options(demo, demo_base, tmp_path)]
        running.append(subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for process in running:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said[-2000:]
    assert texts(tmp_path) == texts(evaluated)
    assert {path.name for path in tmp_path.glob("answers*")} == {f"answers.{rank}-of-2.jsonl" for rank in (0, 1)}


def test_a_refusal_asked_again_by_another_process_gives_way_to_its_answer(demo, tmp_path, shard):
    refusing = True

    def judge(body: dict[str, Any]) -> tuple[str, str]:
        return (REFUSAL, "stop") if refusing else ('{"score": 0.5}', "stop")

    with Misbehaving(judge) as server:
        arguments = with_models(demo, tmp_path, [served(server.url, "one")], limit=4)
        for rank in (0, 1):
            shard(arguments, rank, 2)
        refusing = False
        main([*arguments, "--retry", "refused"])
        assert {row["status"] for row in rows(tmp_path / "out")} == {"ok"}
        for rank in (0, 1):
            shard(arguments, rank, 2)
    assert {row["status"] for row in rows(tmp_path / "out")} == {"ok"} and len(server.bodies) == 8


@pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("x", "2"), ("-1", "2"), ("0", "")])
def test_an_odd_environment_is_one_line(demo, tmp_path, monkeypatch, rank, world):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(InputError, match="RANK=.* and WORLD_SIZE=.* in the environment do not fit together"):
        main(with_models(demo, tmp_path, [served("http://127.0.0.1:1/v1", "one")]))


# --- Kills ---------------------------------------------------------------------------------------------------------


def kill_at_random(command: list[str], out: Path, answers: int, kills: int, seed: int) -> None:
    """Start the command and kill it after a random number of kept answers, again and again; then let it end."""
    rng = random.Random(seed)
    kept = out / "answers.jsonl"
    for target in sorted(rng.choices(range(answers - 2), k=kills)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < target):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "ended before the kill: it proves nothing"
    subprocess.run(command, check=True, capture_output=True)
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines() if '"error"' not in line]
    assert len(keys) == len(set(keys)) == answers
    assert not [path for path in out.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_random_kills_lose_and_double_nothing(demo, tmp_path, kills):
    """Killed at any moment, amid faults too, and run again, the predictions are those of an undisturbed run."""
    with Misbehaving(judge_like) as server:
        main(with_models(demo, tmp_path / "calm", [served(server.url, "one")], prompt=["zero_shot", "taxonomy"]))
    with Misbehaving(judge_like, first_try_fails, delay=0.05, stall=20) as server:
        model = served(server.url, "one", timeout=2, retries=12, concurrency=2)
        arguments = with_models(demo, tmp_path / "killed", [model], prompt=["zero_shot", "taxonomy"])
        command = [sys.executable, "-m", "eval.run", *arguments]
        kill_at_random(command, tmp_path / "killed" / "out", 32, kills, seed=kills)
    for name in ("one-zero_shot", "one-taxonomy"):
        assert rows(tmp_path / "killed" / "out" / name) == rows(tmp_path / "calm" / "out" / name)


@pytest.mark.soak
def test_random_kills_of_a_local_model_change_no_answer(demo, demo_base, evaluated, tmp_path):
    command = [sys.executable, "-m", "eval.run", *options(demo, demo_base, tmp_path, "--batch_size", "1")]
    kill_at_random(command, tmp_path, 16, 5, seed=0)
    assert texts(tmp_path) == texts(evaluated)


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


# --- Decodings -----------------------------------------------------------------------------------------------------


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


def test_an_adapter_is_asked_as_it_was_trained_unless_told(adapter, tmp_path, capsys):
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    trained = build("taxonomy", "attributes")
    (folder / "run.json").write_text(json.dumps({"prompt": trained.identity()}))
    taxonomy = Taxonomy.default()

    def asked(adapters: list[str], target: str | None, *prompts: str) -> Any:
        judges = from_options("m", adapters, prompts, target, "greedy", False, taxonomy)
        return only_asked(judges, [], taxonomy)[0].prompt

    assert asked([str(folder)], None) == asked([str(folder)], None, "taxonomy") == trained
    assert asked([], None) == asked([str(folder)], "score") == build("taxonomy", "score")
    assert "was trained with --prompt taxonomy --target attributes: asked otherwise" in capsys.readouterr().out
    mixed = {**trained.identity(), "also": build("taxonomy", "score").identity()}
    (folder / "run.json").write_text(json.dumps({"prompt": mixed}))
    assert asked([str(folder)], None) == trained
    assert asked([str(folder)], "score") == build("taxonomy", "score")
    assert capsys.readouterr().out == ""  # it was trained so too
    assert asked([str(folder)], None, "zero_shot") == build("zero_shot", "score")
    assert "asked otherwise" in capsys.readouterr().out
    own = tmp_path / "own.yaml"
    own.write_text("name: own\npolicy: How bad is it?\nphoto: first\n")
    (folder / "run.json").write_text(json.dumps({"prompt": build(str(own)).identity()}))
    assert asked([str(folder)], None) == build(str(own))
    (folder / "run.json").write_text(json.dumps({"prompt": {"name": None, "target": None, "sha256": "0"}}))
    assert asked([str(folder)], None) == build("taxonomy", "score")
    assert f"{folder} was trained with a prompt or taxonomy that is not known here" in capsys.readouterr().out
    for digest, said in ((taxonomy.digest, ""), ("0", f"note: {folder} was trained on another taxonomy than it is")):
        (folder / "run.json").write_text(json.dumps({"prompt": trained.identity(), "taxonomy": digest}))
        asked([str(folder)], None, "taxonomy", "zero_shot")
        lines = [line for line in capsys.readouterr().out.splitlines() if "on another taxonomy" in line]
        assert len(lines) == bool(said) and all(line.startswith(said) for line in lines)


def test_a_served_adapter_is_asked_as_it_was_trained(demo, adapter, tmp_path):
    """Prompt, target and pixel cap come from its folder, and another adapter under its name is another judge."""
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    (folder / "run.json").write_text(json.dumps({"prompt": build("taxonomy", "attributes").identity()}))
    processor = {"image_processor": {"size": {"shortest_edge": 1024, "longest_edge": 2304}}}
    (folder / "processor_config.json").write_text(json.dumps(processor))
    answer = '{"attributes": ["age"], "level": 4, "score": 0.1}'
    with Misbehaving(lambda body: (answer, "stop")) as server:
        data = ["--labels", str(demo.test_labels), "--images", str(demo.images), "--limit", "2"]
        served = [
            "--base_url",
            server.url,
            "--model",
            "judge",
            "--adapter",
            str(folder),
            "--out",
            str(tmp_path / "out"),
        ]
        main([*data, *served])
        assert len(server.bodies) == 2
        main([*data, *served])
        assert len(server.bodies) == 2
        weights = load_file(folder / "adapter_model.safetensors")
        save_file({name: 2 * weight for name, weight in weights.items()}, folder / "adapter_model.safetensors")
        main([*data, *served])
        assert len(server.bodies) == 4
        with pytest.raises(InputError, match="adapter: an endpoint serves one as model"):
            main([*data, *served, "--adapter", str(folder), str(adapter)])
    text, photo, question = server.bodies[0]["messages"][0]["content"]
    assert [text, {"type": "image"}, question] == build("taxonomy", "attributes").messages()[0]["content"]
    with Image.open(io.BytesIO(base64.b64decode(photo["image_url"]["url"].partition(",")[2]))) as image:
        assert image.size == (48, 48)
    row, record = rows(tmp_path / "out")[0], json.loads((tmp_path / "out" / "run.json").read_text())
    assert (row["model"], row["attributes"]) == ("judge", ["age"]) and record["adapter"] == model_digest(folder)


@pytest.mark.slow
def test_a_served_adapter_is_checked_against_the_same_one_here(demo, adapter, demo_base, tmp_path):
    """One photo is asked about in both places, and the endpoint's answer is not asked for again."""
    data = ["--labels", str(demo.test_labels), "--images", str(demo.images), "--limit", "2", "--max_new_tokens", "12"]
    main([*data, "--model", str(demo_base), "--adapter", str(adapter), "--out", str(tmp_path / "here")])
    said = rows(tmp_path / "here")[0]["text"]
    for answer, fits in ((said, True), (said + " 0.1", False)):
        with Misbehaving(lambda body, answer=answer: (answer, "stop")) as server:
            served = ["--base_url", server.url, "--model", "judge", "--adapter", str(adapter), "--check_served", "true"]
            if fits:
                main([*data, *served, "--out", str(tmp_path / "served")])
            else:
                with pytest.raises(InputError, match="about .*jpg the endpoint says .* 0.1', .*adapter.* here "):
                    main([*data, *served, "--out", str(tmp_path / "other")])
            assert len(server.bodies) == (2 if fits else 1)


@pytest.mark.parametrize(
    ("processor", "cap"),
    [
        ({"image_processor": {"size": {"shortest_edge": 1024, "longest_edge": 2304}}}, 2304),
        ({"image_processor": {"size": {"height": 560, "width": 560}}}, None),  # tiles: Mllama
        ({"image_processor": {"size": {"longest_edge": 2304}}}, None),
        ({"image_processor": {"size": {"shortest_edge": 1, "longest_edge": "2304"}}}, None),
        ({"image_processor": {"size": 5}}, None),
        ({"image_processor": []}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_pixel_cap_of_an_adapter(adapter, tmp_path, processor, cap):
    shutil.copytree(adapter, tmp_path, dirs_exist_ok=True)
    if processor is not None:
        (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    assert pixel_cap(str(tmp_path)) == cap
