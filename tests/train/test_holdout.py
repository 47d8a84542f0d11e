"""Seeing it learn: the figures on the hold-out, the best checkpoint, and what Weights & Biases is told."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
import scipy.stats
from safetensors.torch import load_file
from wandb_file import find_run, read_run

import train.sft
from cprt.answers import parse
from cprt.answers.structure import structure
from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.local import LocalModel
from cprt.provenance import file_digest
from cprt.records import read_pairs
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from train.holdout import HoldOut, check_learnt
from train.learning import draw_learning, last_loss, learning_table


def start(demo, root, output: Path, *more: str) -> Path:
    """40 steps, watched every ten, with wandb."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.delenv("WANDB_API_KEY", raising=False)
        patch.delenv("WANDB_MODE", raising=False)
        patch.setattr(
            sys,
            "argv",
            [
                "train/sft.py",
                "--config",
                "configs/sft/demo.yaml",
                "--pairs",
                str(demo.short_pairs),
                "--images",
                str(demo.images),
                "--output_dir",
                str(output),
                "--max_steps",
                "40",
                "--warmup_steps",
                "4",
                "--eval_strategy",
                "steps",
                "--eval_steps",
                "10",
                "--save_strategy",
                "steps",
                "--save_steps",
                "10",
                "--logging_steps",
                "10",
                "--holdout_size",
                "8",
                "--max_new_tokens",
                "96",
                "--load_best_model_at_end",
                "true",
                "--metric_for_best_model",
                "mae",
                "--report_to",
                "wandb",
                *more,
            ],
        )
        train.sft.main()
    return output


@pytest.fixture(scope="module")
def learnt(demo, root, tmp_path_factory) -> Path:
    """A short training that learns the format and a little more."""
    return start(demo, root, tmp_path_factory.mktemp("learnt") / "adapter")


def rows_of(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "learning.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_figures_are_those_of_the_saved_adapter(learnt, demo, demo_base):
    """The same photos asked of the reopened adapter, the answers read one by one, scipy's correlations."""
    record = json.loads((learnt / "run.json").read_text())["result"]["holdout"]
    assert record in rows_of(learnt) and record["n"] == 8
    everyone = {pair.id: pair for pair in read_pairs(demo.short_pairs / "holdout.jsonl")}
    chosen = random.Random(0).sample(list(everyone.values()), 8)
    model = LocalModel(str(demo_base), str(learnt), dtype="float32")
    said = [
        parse(model.generate([(pair.prompt, [load_image(demo.images / pair.images[0])])], 96)[0].text)
        for pair in chosen
    ]
    both = [(pair, answer.score) for pair, answer in zip(chosen, said, strict=True) if answer.score is not None]
    assert len(both) >= 5, "the training no longer learns the format"
    truth, scores = [pair.score for pair, _ in both], [score for _, score in both]
    assert record["coverage"] == len(both) / 8
    assert record["distinct"] == len(set(scores)) > 1
    assert record["mae"] == pytest.approx(sum(abs(a - b) for a, b in zip(truth, scores, strict=True)) / len(both))
    assert record["bias"] == pytest.approx(sum(b - a for a, b in zip(truth, scores, strict=True)) / len(both))
    assert record["pearson"] == pytest.approx(scipy.stats.pearsonr(truth, scores).statistic)
    assert record["spearman"] == pytest.approx(scipy.stats.spearmanr(truth, scores).statistic)
    right = sum(level_of(score) == pair.level for pair, score in both)
    assert record["level_accuracy"] == pytest.approx(right / len(both))
    mean = sum(scores) / len(scores)
    assert record["spread"] == pytest.approx((sum((score - mean) ** 2 for score in scores) / len(scores)) ** 0.5)


@pytest.mark.slow
def test_the_best_checkpoint_is_kept(learnt):
    """By the stated metric, of which less is better here; what is published is that checkpoint's adapter."""
    rows = rows_of(learnt)
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    best = min((row for row in rows if row["mae"] is not None), key=lambda row: row["mae"])
    chosen, saved = (
        load_file(folder / "adapter_model.safetensors") for folder in (learnt / f"checkpoint-{best['step']}", learnt)
    )
    assert chosen.keys() == saved.keys() and all((chosen[name] == saved[name]).all() for name in saved)
    state = json.loads((learnt / "checkpoint-40" / "trainer_state.json").read_text())
    assert state["best_global_step"] == best["step"]
    assert Path(state["best_model_checkpoint"]) == learnt / f"checkpoint-{best['step']}"


@pytest.mark.slow
def test_wandb_holds_the_series_and_the_recipe_and_nothing_else(learnt, demo):
    run = read_run(find_run(learnt))
    series = {row["step"]: row for row in run.history if "holdout/coverage" in row}
    for row in rows_of(learnt):
        logged = series[row["step"]]
        for name in ("n", "coverage", "pearson", "spearman", "mae", "bias", "level_accuracy", "spread", "distinct"):
            assert logged.get(f"holdout/{name}") == pytest.approx(row[name]) if row[name] is not None else True
            assert row[name] is not None or f"holdout/{name}" not in logged
    losses = [row["train/loss"] for row in run.history if "train/loss" in row]
    assert len(losses) == 4 and losses[-1] < losses[0]
    recipe = run.config["recipe"]
    assert recipe["lora_r"] == 64 and recipe["pairs"] == file_digest(demo.short_pairs / "train.jsonl")
    assert run.config["base_model"] == "assets/demo_base" and len(recipe["base"]) == 64 and run.config["git"]
    sent = [find_run(learnt), *(find_run(learnt).parent / "files").rglob("*")]  # beside it lie logs that stay here
    everything = b"".join(path.read_bytes() for path in sent if path.is_file())
    for private in (str(Path.home()), str(demo.images), str(learnt), os.getcwd()):
        assert private.encode() not in everything, private
    assert b"\xff\xd8\xff" not in everything and b"PNG" not in everything  # no picture


@pytest.mark.slow
def test_training_that_resumes_goes_on_in_its_run(learnt, demo, root, tmp_path):
    """The same id, rows numbered on from the checkpoint, and of what both have done the same figures."""
    output = tmp_path / "adapter"
    shutil.copytree(learnt / "checkpoint-30", output / "checkpoint-30")
    shutil.copy(learnt / "learning.jsonl", output)
    start(demo, root, output, "--resume_from_checkpoint", "last")
    whole, resumed = read_run(find_run(learnt)), read_run(find_run(output))
    assert resumed.run.run_id == whole.run.run_id == json.loads((learnt / "run.json").read_text())["wandb"]
    steps = [row["_step"] for row in whole.history]
    assert steps == sorted(set(steps))
    before = [row for row in whole.history if row["step"] <= 30]
    assert [row["_step"] for row in before + resumed.history] == steps
    for name in ("holdout/mae", "train/learning_rate"):
        assert [row.get(name) for row in before + resumed.history] == [row.get(name) for row in whole.history]


@pytest.mark.slow
def test_the_saved_run_holds_no_photo(learnt):
    for path in learnt.rglob("*"):
        assert path.suffix not in (".jpg", ".jpeg", ".png", ".pkl", ".bin") or path == learnt / "learning.png", path


@pytest.mark.parametrize(
    "figures, reason",
    [
        ({"n": 64, "coverage": 0.0, "distinct": 0}, "no answer on the hold-out holds a score"),
        ({"n": 64, "coverage": 0.5, "distinct": 1}, "all 32 scores on the hold-out are the same"),
    ],
)
def test_a_judge_that_has_collapsed_is_an_error(figures, reason):
    with pytest.raises(InputError, match=f"{reason}.*It says: 'A beach.'; '{{x{{79}}\\.\\.\\.'$"):
        check_learnt(figures, ["A beach.", "{" + "x" * 99])


@pytest.mark.parametrize("expected", [False, True])
def test_structured_answers_of_an_untrained_base_can_all_be_read(demo, demo_base, expected):
    """Free it says nothing that can be; how willingly it keeps to the form stands beside."""
    judge, pairs = LocalModel(str(demo_base), dtype="float32"), read_pairs(demo.pairs / "holdout.jsonl")[:3]
    held, free = (
        HoldOut(pairs, demo.images, 2, 8, Taxonomy.default(), expected, structured) for structured in (True, False)
    )
    figures, others = (one.measure(judge.model, judge.processor) for one in (held, free))
    assert others["coverage"] == 0 and others["mae"] is None and "willing" not in others
    answer = pairs[0].completion[-1]["content"][0]["text"]
    form = structure("score" if answer.startswith('{"score"') else "attributes", Taxonomy.default())
    said = [
        judge.generate([(pair.prompt, [load_image(demo.images / pair.images[0])])], 8, structure=form)[0]
        for pair in pairs
    ]
    assert held.samples == [answer.text for answer in said]
    scores = [parse(answer.text).score for answer in said]
    assert figures["coverage"] == 1 and ("expected_mae" in figures) is expected
    assert figures["mae"] == pytest.approx(
        sum(abs(score - pair.score) for score, pair in zip(scores, pairs, strict=True)) / 3
    )
    assert figures["willing"] == pytest.approx(sum(answer.willing for answer in said) / 3, rel=1e-3)
    assert 0 < figures["willing"] < 0.5


def test_the_table_shows_what_was_measured_and_which_step_is_kept():
    rows = [
        {"step": 10, "loss": None, "coverage": 0.5, "mae": None, "spearman": None, "bias": None},
        {"step": 20, "loss": 1.23456, "coverage": 1.0, "mae": 0.04567, "spearman": 0.9, "bias": -0.01},
    ]
    assert [line.split() for line in learning_table(rows, 20).splitlines()] == [
        ["step", "loss", "coverage", "MAE", "Spearman", "bias"],
        ["10", "-", "0.500", "-", "-", "-"],
        ["20", "1.2346", "1.000", "0.046", "0.900", "-0.010", "<-", "the", "adapter"],
    ]


def test_the_loss_of_a_row_is_the_one_logged_last():
    log = [{"loss": 2.0, "step": 5}, {"loss": 1.5, "step": 10}, {"eval_mae": 0.1, "step": 10}]
    assert (last_loss(log), last_loss(log[2:])) == (1.5, None)


@pytest.mark.parametrize("n, distinct", [(7, 1), (64, 2)])
def test_few_or_different_scores_are_no_error(n, distinct):
    check_learnt({"n": n, "coverage": 1.0, "distinct": distinct})


def test_figures_without_an_interval_are_drawn_without_one(tmp_path):
    """One answer that could be read has an error and no interval."""
    rows = [
        {"step": 1, "mae": None, "mae_interval": None},
        {"step": 2, "mae": 0.2, "mae_interval": None},
        {"step": 3, "mae": 0.1, "mae_interval": [0.05, 0.2]},
    ]
    draw_learning(tmp_path / "learning.png", [{"step": 1, "loss": 2.0}], rows)
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
