"""``cprt eval`` of several models and of endpoints: a folder each and one store, faults, photos that leave."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from typing import Any

import pytest
from evaluation import REPORT, judge_like, options, rows, served, texts, with_models
from loopback import REFUSAL, Misbehaving, first_try_fails, identity
from safetensors.torch import load_file, save_file

from cprt.errors import InputError
from cprt.prompts import build
from eval.run import main


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
