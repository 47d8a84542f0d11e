"""The measurements that wait for a card: on an imagined one nothing is left on the processor or of another dtype."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from train.fit.card import imagined_card


@pytest.fixture
def scripts(root, monkeypatch) -> tuple[Any, Any, Any]:
    monkeypatch.syspath_prepend(root / "benchmarks")
    import gpu_eval
    import gpu_sft
    import on_card

    return gpu_sft, gpu_eval, on_card


@pytest.fixture
def recipe(root, scripts, tmp_path) -> tuple[Any, ...]:
    """The 2B's, of the tiny shape, its arguments pointing at the imagined card."""
    recipe = scripts[2].read(str(root / "configs" / "sft" / "qwen3_vl_2b.yaml"), True, str(tmp_path), on_card=False)
    vars(recipe[3])["_setup_devices"] = torch.device("cuda", 0)
    return recipe


@pytest.mark.slow
def test_training_is_measured_on_a_card(scripts, recipe, tmp_path):
    """Ours and stock TRL's, with the options that the recipe has."""
    with imagined_card() as card:
        figures = scripts[0].measure(recipe, tmp_path)
    assert card.flops > 0 and card.peak > 0
    assert figures["ours"]["plain_reason"] is None
    assert figures["ours"]["micro_batch"] == figures["stock"]["micro_batch"] == 2
    assert all(figures[variant]["seconds"] > 0 for variant in figures)


@pytest.mark.slow
def test_evaluation_is_measured_on_a_card(scripts, recipe):
    """Greedy and with the expected score, plain and with the shared prefix."""
    with imagined_card() as card:
        figures = scripts[1].measure(recipe, 4)
    assert card.flops > 0
    assert all(figures[decoding][way] > 0 for decoding in ("greedy", "expected") for way in ("plain", "shared"))


def test_a_recipe_is_read_as_it_is_trained(root, scripts, tmp_path):
    """Nothing of a step differs from what train/sft.py makes of the file."""
    from train.fit.run import read_recipe

    path = str(root / "configs" / "sft" / "qwen3_vl_8b.yaml")
    config, data, model_args, args, lengths = scripts[2].read(path, False, str(tmp_path), on_card=False)
    _, (expected, *others) = read_recipe(["--config", path])
    assert config.to_dict() == expected.to_dict() and lengths == others[3]
    assert data == others[0] and model_args == others[1]
    ours, theirs = args.to_dict(), others[2].to_dict()
    different = {name for name in ours if ours[name] != theirs[name]}
    assert different <= {"output_dir", "logging_dir", "eval_strategy", "save_strategy", "do_eval"}, different


@pytest.mark.slow
@pytest.mark.parametrize("script", ["gpu_sft", "gpu_eval"])
def test_the_scripts_run_here_in_their_tiny_shape(script, root, tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, f"benchmarks/{script}.py", "--tiny", "--json", str(figures)]
    command += ["--recipes", "configs/sft/qwen3_vl_2b.yaml"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=850, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout and len(done.stdout.splitlines()) == 4
    written = json.loads(figures.read_text())
    assert written["card"] == "CPU" and len(written["rows"]) == 2


def test_where_memory_is_short_one_line_says_so(scripts, monkeypatch, capsys):
    _, _, on_card = scripts
    monkeypatch.setattr(on_card, "memory", lambda tiny: ("a small card", 8e9))
    monkeypatch.setattr(on_card, "start", lambda script, task, recipe, tiny: task)
    monkeypatch.setattr(on_card, "finish", {"need": {"bytes": 2.5e10}}.__getitem__)  # nothing is measured
    args = on_card.parser(None).parse_args(["--recipes", "configs/sft/qwen3_vl_8b.yaml"])
    with pytest.raises(SystemExit):
        on_card.run("gpu_sft.py", args, lambda *_: [])
    assert capsys.readouterr().out.splitlines()[1:] == ["qwen3_vl_8b: needs 25.0 GB, 8.0 are free: left out"]
