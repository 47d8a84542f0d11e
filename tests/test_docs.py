"""Every command that README and docs show can be typed: it exists, and its configuration and options are there."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from cprt.cli import COMMANDS
from cprt.errors import InputError
from cprt.metrics.results import Metrics
from cprt.models.outcome import Outcome
from cprt.records import Label, Pair, Prediction
from cprt.taxonomy import Taxonomy
from data_prep.selection import Candidate
from eval.counterfactual.cases import Case
from eval.model_inversion.compare.table import table
from eval.model_inversion.metrics.join import COLUMNS
from eval.model_inversion.standard.run import HEADER
from eval.score.options import ScoreArguments
from eval.score.photos import Photo
from eval.score.rows import score_row

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = {name: module for name, module, _ in COMMANDS}
PLACEHOLDER = "no_such_option"
CLASSIFIERS = ("T.yaml", "E.yaml")  # a reader's own configurations of a target and an evaluation model


def shown(page: Path) -> list[str]:
    """The command lines in a page's bash blocks, continued lines joined."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


CPRT = [
    pytest.param(line, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, line in enumerate(shown(page))
    if line.startswith("cprt ")
]


def test_the_pages_show_commands():
    assert len(CPRT) > 25
    kinds = {line.split()[0] for page in PAGES for line in shown(page)}
    assert kinds <= {"cprt", "make", "accelerate", "source", "hf", "vllm"}, kinds


@pytest.mark.parametrize("line", CPRT)
def test_a_command_has_the_options_that_a_page_gives_it(line: str, monkeypatch):
    """Everything is parsed and checked up to one option too many, which is what is refused."""
    monkeypatch.chdir(ROOT)
    _, name, *words = shlex.split(line, comments=True)
    words = ["configs/mi/standard.yaml" if word in CLASSIFIERS else word for word in words]
    with pytest.raises(InputError) as caught:
        import_module(MODULES[name]).main([*words, f"--{PLACEHOLDER}", "x"])
    assert str(caught.value) == f"unknown argument --{PLACEHOLDER}"  # and nothing else is wrong


def test_launch_lines_and_targets_are_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for line in shown(page):
            words = shlex.split(line, comments=True)
            if words[0] == "make":
                assert words[1] in targets, line
            if words[0] == "accelerate":
                for option in ("--config_file", "--config"):
                    assert (ROOT / words[words.index(option) + 1]).is_file(), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_repository_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?://|#)([^)]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


def figures_of_compare() -> list[str]:
    return [name for name in table([])[0] if not name.endswith(("_low", "_high"))]


def columns_of_score() -> list[str]:
    args = ScoreArguments(paths=["a"])
    return list(score_row(Photo("a", "b.jpg"), Outcome("error", error="?"), args, Taxonomy.default()))


@pytest.mark.parametrize(
    "heading, columns",
    [
        ("labels.jsonl", names(Label)),
        ("train.jsonl, holdout.jsonl", names(Pair)),
        ("candidates.jsonl", names(Candidate)),
        ("predictions.jsonl", names(Prediction)),
        ("metrics.json", names(Metrics)),
        ("report.jsonl of cprt score", columns_of_score()),
        ("selection.jsonl and counterfactual.jsonl", names(Case)),
        ("judge.csv", COLUMNS),
        ("prediction.csv", HEADER),
        ("compare.csv and false_positives.csv", figures_of_compare()),
    ],
)
def test_the_page_of_files_has_every_column(heading: str, columns: list[str]):
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    section = page.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    described = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(described[: len(columns)]) == sorted(columns)
