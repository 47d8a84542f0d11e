"""No command replaces what it reads or what somebody else made: each one's ``--out``, in every way it could."""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from cprt.cli import COMMANDS
from cprt.errors import InputError
from cprt.provenance import check_output, made_by, run_path, sign, write_run

MODULES = {name: module for name, module, _ in COMMANDS}
# Options that let a command get as far as its output is looked at; X stands for a file that is there.
SINGLE: dict[str, dict[str, Any]] = {
    "labels": {"input": "X", "images": "."},
    "metrics": {"predictions": "X", "labels": "X"},
    "agreement": {"answers": ["X"]},
    "mi-metrics": {"judge": "X", "standard": "X"},
}
FOLDERS: dict[str, dict[str, Any]] = {
    "demo-data": {"val": 1, "test": 1},
    "select": {"vispr": ".", "split": "test"},
    "annotate": {"annotators": [{"name": "a", "model": "b"}], "images": ".", "input": "X"},
    "export": {"labels": "X"},
    "pairs": {"labels": "X", "images": "."},
    "boundaries": {"labels": "X"},
    "ablate": {"recipe": "X", "variants": [{"name": "a"}]},
    "eval": {"model": "m", "labels": "X", "images": "."},
    "compare": {"runs": ["."], "labels": "X"},
    "survey": {"labels": "X"},
    "counterfactual": {"runs": ["."], "labels": "X", "images": "."},
    "paper": {"labels": "X"},
    "mi": {"models": [{"name": "a", "model": "b"}], "setups": "X"},
    "mi-standard": {"classifier": {}, "images": "."},
    "mi-study": {"runs": "."},
    "mi-compare": {"setups": "X"},
}
ONLY_RECORDED: dict[str, dict[str, Any]] = {  # they go on in a folder that fills over hours, by records of their own
    "images": {"images": ".", "max_pixels": 1000},
    "download": {"labels": {"repo": "a/b", "revision": "main", "files": {"x.json": None}}, "dry_run": True},
}
# What a command makes, of each kind.
MADE = {
    "demo-data": ["images/val2017/a.jpg", "annotations/val2017/a.json", "val2017.txt", "cprt_train.json"],
    "select": ["candidates.jsonl", "candidates.txt", "report.json"],
    "annotate": ["answers/a.jsonl", "annotations.jsonl", "consensus.jsonl", "report.json"],
    "export": ["labels.json", "README.md"],
    "pairs": ["train.jsonl", "holdout.jsonl", "holdout_labels.jsonl", "card.json", "card.png"],
    "boundaries": ["boundaries.json", "taxonomy.yaml", "embeddings.png", "scores.png"],
    "ablate": ["eval.yaml"],
    "eval": ["answers.jsonl", "answers.0-of-4.jsonl", "predictions.jsonl", "metrics.json", "report.html", "scores.png"],
    "compare": ["compare.json", "report.html", "confusion.png"],
    "survey": ["sheets/person01.csv", "photos.csv", "questions.txt"],
    "counterfactual": ["answers.jsonl", "selection.jsonl", "counterfactual.jsonl", "summary.json", "change.png"],
    "paper": ["table1.csv", "table6.tex", "table6.md", "figure3.png", "figure12.txt"],
    "mi": ["answers.jsonl", "queries.jsonl", "setups.json", "judge/setup/judge.csv"],
    "mi-standard": ["prediction.csv", "standard.json"],
    "mi-study": ["sheets/rater01.csv", "key.csv", "instruction.txt", "raters/setups.json", "study.json"],
    "mi-compare": ["compare.json", "compare.csv", "compare.html", "compare.png", "false_positives.csv"],
}


def run(command: str, out: Path | str, folder: Path, **changed: Any) -> str:
    """What a command says that is given ``out``; nothing where it is content with it."""
    options = {**SINGLE, **FOLDERS, **ONLY_RECORDED}[command] | changed
    (folder / "input").write_text("what is read")
    options = json.loads(json.dumps(options).replace('"X"', json.dumps(str(folder / "input"))))
    options = json.loads(json.dumps(options).replace('"."', json.dumps(str(folder))))
    (folder / "c.yaml").write_text(yaml.safe_dump(options))
    try:
        import_module(MODULES[command]).main(["--config", str(folder / "c.yaml"), "--out", str(out)])
    except (InputError, OSError) as error:
        return str(error) if str(error).startswith("out: ") else ""
    return ""


def put(path: Path, text: str = "somebody's") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_every_command_with_an_output_is_looked_at():
    without = {"score", "merge"}  # below; takes no folder that is there
    assert {*SINGLE, *FOLDERS, *ONLY_RECORDED} == set(MODULES) - without - {
        name for name, module in MODULES.items() if not _has_out(module)
    }
    assert set(MADE) == set(FOLDERS)


def _has_out(module: str) -> bool:
    return any("out" in getattr(kind, "__dataclass_fields__", {}) for kind in vars(import_module(module)).values())


@pytest.mark.parametrize(("command", "name"), [(command, name) for command, names in MADE.items() for name in names])
def test_what_nobody_says_is_ours_stays(tmp_path: Path, command: str, name: str):
    """Any file in the place of one that the command would write."""
    file = put(tmp_path / "out" / name)
    said = run(command, tmp_path / "out", tmp_path)
    assert re.search(rf"is there, and no run.json says that cprt {command} made it; choose another folder", said), said
    assert file.read_text() == "somebody's"


@pytest.mark.parametrize("command", [*FOLDERS, *ONLY_RECORDED])
@pytest.mark.parametrize("maker", ["cprt eval", "cprt labels", "train/sft.py"])
def test_what_another_stage_made_stays(tmp_path: Path, command: str, maker: str):
    maker = "cprt mi" if maker == f"cprt {command}" else maker
    (tmp_path / "out").mkdir()
    write_run(maker, tmp_path / "out", {"seed": 3})
    before = (tmp_path / "out" / "run.json").read_bytes()
    said = run(command, tmp_path / "out", tmp_path)
    assert f"says that {maker} made what is there, not cprt {command}; choose another folder" in said
    assert (tmp_path / "out" / "run.json").read_bytes() == before and os.listdir(tmp_path / "out") == ["run.json"]


@pytest.mark.parametrize("command", FOLDERS)
def test_its_own_output_a_command_may_replace(tmp_path: Path, command: str):
    for name in MADE[command]:
        put(tmp_path / "out" / name)
    sign(f"cprt {command}", tmp_path / "out" / "run.json")  # as a run leaves it that is killed then
    assert run(command, tmp_path / "out", tmp_path) == ""


@pytest.mark.parametrize("command", [*FOLDERS, *ONLY_RECORDED])
def test_other_files_in_the_folder_do_not_matter(tmp_path: Path, command: str):
    for name in ("log.txt", "labels.jsonl", "labels.run.json", "other/run.json"):
        if command != "export" or name.endswith(("txt", "jsonl")):
            put(tmp_path / "out" / name)
    assert run(command, tmp_path / "out", tmp_path) == ""


@pytest.mark.parametrize("command", SINGLE)
def test_a_file_that_is_there_stays_unless_its_record_is_ours(tmp_path: Path, command: str):
    out = put(tmp_path / "out.json")
    assert f"no out.run.json says that cprt {command} made it; choose another file" in run(command, out, tmp_path)
    write_run("cprt eval", out, {})
    assert f"says that cprt eval made what is there, not cprt {command}" in run(command, out, tmp_path)
    write_run(f"cprt {command}", out, {})
    assert run(command, out, tmp_path) == ""
    assert out.read_text() == "somebody's"


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("pairs", "labels", "train.jsonl"),
        ("pairs", "exclude", "holdout.jsonl"),
        ("pairs", "taxonomy", "run.json"),
        ("annotate", "input", "consensus.jsonl"),
        ("annotate", "input", "annotations.jsonl"),
        ("boundaries", "labels", "boundaries.json"),
        ("boundaries", "taxonomy", "taxonomy.yaml"),
        ("eval", "labels", "predictions.jsonl"),
        ("select", "map", "candidates.txt"),
        ("select", "released", "report.json"),
        ("export", "labels", "labels.json"),
        ("compare", "labels", "compare.json"),
        ("counterfactual", "labels", "selection.jsonl"),
        ("survey", "labels", "photos.csv"),
        ("paper", "agreement", "table2.csv"),
        ("mi", "setups", "setups.json"),
        ("mi-compare", "setups", "compare.csv"),
    ],
)
@pytest.mark.parametrize("through", ["itself", "link", "hard link"])
def test_what_is_read_stays_even_in_an_output_of_ours(
    tmp_path: Path, command: str, option: str, name: str, through: str
):
    sign(f"cprt {command}", tmp_path / "out" / "run.json")
    file = put(tmp_path / "out" / name, (tmp_path / "out" / "run.json").read_text())
    given = file
    if through != "itself":
        given = tmp_path / "elsewhere"
        (given.symlink_to if through == "link" else given.hardlink_to)(file)
    value = [str(given)] if option == "exclude" else str(given)
    said = run(command, tmp_path / "out", tmp_path, **{option: value})
    assert said == f"out: {file} is what {option} is read from; choose another folder"


@pytest.mark.parametrize("command", SINGLE)
def test_a_single_file_is_never_what_is_read(tmp_path: Path, command: str):
    write_run(f"cprt {command}", tmp_path / "input", {})
    assert "is read from; choose another file" in run(command, tmp_path / "input", tmp_path)
    assert (tmp_path / "input").read_text() == "what is read"


def test_the_configuration_is_read_too(tmp_path: Path):
    (tmp_path / "c.run.json").write_text(json.dumps({"command": ["cprt", "metrics"]}))
    assert run("metrics", tmp_path / "c.yaml", tmp_path).endswith(
        "c.yaml is what config is read from; choose another file"
    )


@pytest.mark.parametrize("command", [*SINGLE, *FOLDERS])
def test_what_is_neither_file_nor_folder_is_no_output(tmp_path: Path, command: str):
    wanted = "a file" if command in SINGLE else "a folder"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for out, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/null"), "a device"), (put(tmp_path / "f"), "a file")):
        if kind != wanted:
            assert run(command, out, tmp_path) == f"out: {out} is {kind}, not {wanted}"
    if command in SINGLE:
        assert run(command, tmp_path / "folder", tmp_path).endswith("is a folder, not a file")
    assert run(command, "", tmp_path) == "out: is empty"


def test_table_and_page_of_scores_have_a_record_each(tmp_path: Path):
    write_run("cprt score", put(tmp_path / "r.jsonl"), {})
    check_output("cprt score", tmp_path / "r.jsonl", None)
    with pytest.raises(InputError, match="no r.html.run.json says that cprt score made it"):
        check_output("cprt score", put(tmp_path / "r.html"), None)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"command": "cprt eval"}', '{"command": []}', '{"command": [1]}', "x"]
)
def test_a_record_that_is_none_is_nobodys(tmp_path: Path, content: str):
    put(tmp_path / "run.json", content)
    with pytest.raises(InputError, match=r"run.json:?\d*: "):
        check_output("cprt eval", tmp_path, ())


@pytest.mark.parametrize("argv", [["/bin/cprt", "eval", "--limit", "3"], ["/x/run.py", "--limit", "3"], ["cprt"]])
def test_a_record_begins_with_its_stage_however_it_was_called(tmp_path: Path, monkeypatch, argv: list[str]):
    monkeypatch.setattr("sys.argv", argv)
    write_run("cprt eval", tmp_path, {})
    command = json.loads(run_path(tmp_path).read_text())["command"]
    assert command == ["cprt", "eval", *([] if len(argv) == 1 else ["--limit", "3"])]
    assert made_by(run_path(tmp_path)) == "cprt eval"
    monkeypatch.setattr("sys.argv", ["/x/train/sft.py", "--config", "c.yaml"])
    write_run("train/sft.py", tmp_path, {})
    assert json.loads(run_path(tmp_path).read_text())["command"] == ["train/sft.py", "--config", "c.yaml"]
    assert made_by(run_path(tmp_path)) == "train/sft.py"
