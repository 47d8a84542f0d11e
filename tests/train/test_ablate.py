"""``cprt ablate``: what it would run, going on after a kill, and a set that is really trained, asked and compared."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from trl import ModelConfig, SFTConfig

from cprt.cli import COMMANDS
from cprt.config import parse
from cprt.errors import InputError
from cprt.records import read_json, write_json
from train.ablations.run import AblateArguments, main, trainings
from train.options import DataArguments

MODULES = {name: module for name, module, _ in COMMANDS}
VARIANTS: list[dict[str, Any]] = [{"name": "plain"}, {"name": "rank-4", "lora_r": 4, "lora_alpha": 8}]


def configured(folder: Path, **more: Any) -> list[str]:
    content = {"recipe": "configs/sft/demo.yaml", "out": str(folder / "out"), "variants": VARIANTS, **more}
    (folder / "ablate.yaml").write_text(yaml.safe_dump(content))
    return ["--config", str(folder / "ablate.yaml")]


def commands(said: str) -> list[list[str]]:
    return [shlex.split(line[2:]) for line in said.splitlines() if line.startswith("$ ")]


def test_the_papers_set_varies_what_it_should_and_each_training_is_one_of_the_recipe(root: Path, monkeypatch, capsys):
    monkeypatch.chdir(root)
    config = ["--config", "configs/ablations/qwen3_vl_8b.yaml"]
    (args,) = parse(AblateArguments, config)
    varied = {key for row in args.variants for key in row}
    assert varied >= {"lora_r", "lora_target_modules", "learning_rate", "max_steps"} and len(args.seeds) >= 3
    main([*config, "--dry_run", "true"])
    planned = commands(capsys.readouterr().out)
    *trained, evaluated, compared = planned
    assert len(trained) == len(args.variants) * len(args.seeds) and not (root / "outputs/ablations").exists()
    for command, training in zip(trained, trainings(args), strict=True):
        words = command[command.index("train/sft.py") + 1 :]
        values = dict(zip(words[::2], words[1::2], strict=True))
        assert values["--output_dir"] == f"outputs/ablations/{training.name.replace('-seed-', '/seed-')}"
        wanted = {f"--{key}": value for key, value in training.options.items()}
        assert values.keys() == {"--config", "--output_dir", *wanted}
        kinds = (DataArguments, ModelConfig, SFTConfig)
        data, model, sft = parse(kinds, [*words, "--bf16", "false", "--use_cpu", "true"])
        for key, value in training.options.items():
            found = next(getattr(one, key) for one in (data, model, sft) if hasattr(one, key))
            assert found == (value if not isinstance(value, list) or isinstance(found, list) else value[0])
    assert evaluated[:2] == ["cprt", "eval"] and compared[:2] == ["cprt", "compare"]


def test_what_is_trained_is_left_and_what_was_killed_goes_on(root: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(root)
    done = tmp_path / "out" / "plain" / "seed-0" / "run.json"
    trained(done, "--seed", "0", "--resume_from_checkpoint", "last")
    (tmp_path / "out" / "plain" / "seed-1" / "checkpoint-20").mkdir(parents=True)
    main([*configured(tmp_path, seeds=[0, 1]), "--dry_run", "true"])
    said = capsys.readouterr().out
    assert f"{tmp_path}/out/plain/seed-0: is trained" in said
    killed, *others = commands(said)
    assert killed[-2:] == ["--resume_from_checkpoint", "last"] and "--lora_r" in others[0]
    assert len(others) == 2 and not any("--resume_from_checkpoint" in command for command in others)
    trained(done, "--seed", "0", "--lora_r", "4")
    with pytest.raises(InputError, match=r"plain/seed-0: was trained with other options .*; choose another --out"):
        main([*configured(tmp_path, seeds=[0, 1]), "--dry_run", "true"])


def trained(record: Path, *options: str) -> None:
    """Leaves the record of a finished training."""
    command = ["train/sft.py", "--config", "configs/sft/demo.yaml", *options, "--output_dir", "moved/since"]
    write_json(record, {"command": command, "result": {"steps": 2}})


def test_a_variant_that_learns_nothing_stops_no_other(root: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(root)
    options = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
    started: list[list[str]] = []

    def start(command: list[str]) -> int:
        started.append(command)
        folder = Path(command[command.index("--output_dir") + 1])
        write_json(folder / "run.json", {"command": command[2:], "result": {"steps": 2}})
        return 2

    main(configured(tmp_path, variants=[{"name": "odd", **options}], seeds=[0, 1]), start)
    assert len(started) == 2 and capsys.readouterr().out.count("the others go on") == 2
    given = started[0][started[0].index("train/sft.py") + 1 :]
    _, _, args = parse((DataArguments, ModelConfig, SFTConfig), [*given, "--bf16", "false", "--use_cpu", "true"])
    assert args.gradient_checkpointing_kwargs == options["gradient_checkpointing_kwargs"]


@pytest.mark.slow
def test_a_set_is_trained_asked_and_compared_by_one_command(root: Path, demo: Any, tmp_path: Path, monkeypatch, capsys):
    """Every command really runs, though in this process; a second time nothing is trained again."""
    import train.sft

    monkeypatch.chdir(root)
    started: list[str] = []

    def start(command: list[str]) -> int:
        started.append(command[0])
        if command[0] == "cprt":
            import_module(MODULES[command[1]]).main(command[2:])
        else:
            monkeypatch.setattr(sys, "argv", command[command.index("train/sft.py") :])
            train.sft.main()
        return 0

    few = {
        "max_steps": 1,
        "eval_strategy": "no",
        "warmup_steps": 0,
        "pairs": str(demo.pairs),
        "images": str(demo.images),
    }
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(demo.test_labels.read_text().splitlines(keepends=True)[:4]))
    asked = {"max_new_tokens": 4, "dtype": "float32", "max_pixels": 9216}
    data = {"labels": str(labels), "images": str(demo.images), "evaluation": asked}
    options = configured(tmp_path, variants=[{"name": "short", **few}], seeds=[3, 4], **data)
    main(options, start)
    assert started == ["accelerate", "accelerate", "cprt", "cprt"]
    for seed in (3, 4):
        assert read_json(tmp_path / "out" / "short" / f"seed-{seed}" / "run.json")["seed"] == seed
    comparison = read_json(tmp_path / "out" / "compare" / "compare.json")
    assert list(comparison["runs"]) == ["short-seed-3", "short-seed-4"]
    assert (comparison["seeds"]["short"]["seeds"], comparison["seeds"]["short"]["runs"]) == (
        [3, 4],
        ["short-seed-3", "short-seed-4"],
    )
    main(options, start)
    assert started[4:] == ["cprt", "cprt"] and "seed-4: is trained" in capsys.readouterr().out


def test_a_step_that_fails_ends_the_set(root: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(root)
    with pytest.raises(SystemExit, match="2"):
        main(configured(tmp_path), lambda command: 2)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"variants": []}, "variants: the list is empty"),
        ({"variants": [{"lora_r": 4}]}, "variants: name None is not a name"),
        ({"variants": [{"name": "../up"}]}, "variants: name '../up' is not a name"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "variants: 'a' is there twice"),
        ({"variants": [{"name": "a", "seed": 3}]}, "variants: seed is set for each training here"),
        ({"variants": [{"name": "a", "lora_rank": 3}]}, "variants: a: field 'lora_rank': unknown option"),
        ({"variants": [{"name": "a", "lora_r": "x"}]}, "variants: a: field 'lora_r': 'x' is not a whole number"),
        ({"seeds": [0, 0]}, "seeds must be different"),
        ({"seeds": [1], "variants": [{"name": "a"}]}, "leaves nothing to compare"),
        ({"labels": "x"}, "labels and images go together"),
        ({"recipe": "configs/eval/demo.yaml"}, "is not a recipe of train/sft.py"),
    ],
)
def test_a_set_that_cannot_be_run_gets_one_line(root: Path, tmp_path: Path, monkeypatch, change: Any, complaint: str):
    monkeypatch.chdir(root)
    with pytest.raises(InputError) as caught:
        main(configured(tmp_path, **change), lambda command: 0)
    assert complaint in str(caught.value) and not (tmp_path / "out").exists()
