"""Options from the command line and YAML: what is wrong gets one line that names file, line and field."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from cprt.config import parse, run
from cprt.errors import InputError


@dataclass
class Options:
    labels: str = field(metadata={"help": "labels"})
    rank: int = 3
    rate: float = 1e-5
    target: str = field(default="score", metadata={"choices": ["score", "attributes"]})
    mode: Literal["a", "b"] = "a"
    names: list[str] = field(default_factory=list)
    limit: int | None = None
    flag: bool = False

    def __post_init__(self) -> None:
        if self.rank > 100:
            raise ValueError("rank must be at most 100")


def parse_yaml(tmp_path: Path, text: str, *argv: str) -> Options:
    (tmp_path / "c.yaml").write_text(text)
    return parse(Options, ["--config", str(tmp_path / "c.yaml"), *argv])[0]


def test_yaml_gives_values_and_the_command_line_wins(tmp_path: Path):
    options = parse_yaml(tmp_path, "labels: a\nrate: 1e-4\nrank: 5\nnames: [x, y]\nflag: true\n", "--rank", "7")
    assert options == Options("a", rank=7, rate=1e-4, names=["x", "y"], flag=True)
    assert parse(Options, [f"--config={tmp_path / 'c.yaml'}"])[0].rank == 5


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("rank: 16.5", "field 'rank': 16.5 is not a whole number"),
        ("rank: true", "field 'rank': True is not a whole number"),
        ("rank: null", "field 'rank': None is not a whole number"),
        ("rate: fast", "field 'rate': 'fast' is not a number"),
        ("target: level", "field 'target': 'level' is not one of score, attributes"),
        ("mode: c", "field 'mode': 'c' is not one of a, b"),
        ("names: x", "field 'names': 'x' is not a list"),
        ("names: [1]", "field 'names': [1] is not a list"),
        ("limit: many", "field 'limit': 'many' is not a whole number or null"),
        ("flag: 1", "field 'flag': 1 is not true or false"),
        ("lables: b", "field 'lables': unknown option (did you mean labels?)"),
        ("labels: c", "field 'labels': is there twice"),
        ("env: {A: b}", "field 'env': unknown option"),  # TrlParser would set environment variables
    ],
)
def test_a_bad_yaml_value_is_named_with_its_line(tmp_path: Path, line: str, complaint: str):
    with pytest.raises(InputError) as caught:
        parse_yaml(tmp_path, f"# comment\nlabels: a\n{line}\n")
    assert str(caught.value) == f"{tmp_path / 'c.yaml'}:3: {complaint}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "c.yaml:1: not valid YAML"),
        ("- a", "must be a YAML mapping"),
        ("", "must be a YAML mapping"),
        ("labels: a\nrank: 101", "c.yaml: rank must be at most 100"),
    ],
)
def test_a_bad_yaml_file_is_named(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError, match="c.yaml") as caught:
        parse_yaml(tmp_path, text)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--config"], "--config needs the name"),
        (["--config", "--labels"], "--config needs the name"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["--config=a", "--config=b"], "only once"),
        ([], "required: --labels"),
        (["--labels", "a", "--rank", "1.5"], "'1.5' is not a whole number"),
        (["--labels", "a", "--target", "level"], "invalid choice: 'level'"),
        (["--labels", "a", "--lables", "b"], "unknown argument --lables (did you mean --labels?)"),
        (["--labels", "a", "stray"], "unknown argument stray"),
        (["--lab", "a"], "required: --labels"),  # no guessing of abbreviated names
    ],
)
def test_a_bad_command_line_gets_one_line(argv: list[str], complaint: str):
    with pytest.raises(InputError) as caught:
        parse(Options, argv)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


@dataclass
class Words:
    paths: list[str] = field(default_factory=list, metadata={"positional": True, "metavar": "PATH", "help": "photos"})
    out: str | None = None
    rate: float = 0.5


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Words()),
        (["a", "b"], Words(["a", "b"])),
        (["a", "b", "--out", "c"], Words(["a", "b"], "c")),
        (["--out", "c", "a", "b"], Words(["a", "b"], "c")),
        (["--out", "c", "a", "--rate", "0.1"], Words(["a"], "c", 0.1)),
        (["--out", "c", "--", "-a.jpg", "--b"], Words(["-a.jpg", "--b"], "c")),
        (["a\nb", "ü", ""], Words(["a\nb", "ü", ""])),
    ],
)
def test_a_positional_list_is_given_as_bare_words(argv: list[str], expected: Words):
    assert parse(Words, argv) == (expected,)


def test_a_positional_list_may_stand_in_the_yaml_and_the_command_line_wins(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("paths: [a, b]\nout: c\n")
    config = ["--config", str(tmp_path / "c.yaml")]
    assert parse(Words, config) == (Words(["a", "b"], "c"),)
    assert parse(Words, [*config, "d"]) == parse(Words, ["d", *config]) == (Words(["d"], "c"),)
    (tmp_path / "c.yaml").write_text("paths: a\n")
    with pytest.raises(InputError, match="field 'paths': 'a' is not a list"):
        parse(Words, config)


def test_words_apart_from_the_others_and_positionals_as_options_are_refused():
    with pytest.raises(InputError, match="unknown argument b"):
        parse(Words, ["a", "--out", "c", "b"])
    with pytest.raises(InputError, match="unknown argument --paths"):
        parse(Words, ["--paths", "a"])


def disk_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "outputs/a.jsonl")


def bad_input() -> None:
    raise InputError("a.jsonl:3: field 'id': is missing")


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("main", "status", "line"),
    [
        (lambda: None, 0, ""),
        (bad_input, 2, "cprt x: error: a.jsonl:3: field 'id': is missing\n"),
        (disk_full, 2, "cprt x: error: outputs/a.jsonl: No space left on device\n"),
        (interrupted, 130, "cprt x: interrupted; finished work is kept, run the same command again to go on\n"),
    ],
)
def test_exit_status_and_the_one_line(capsys, main, status: int, line: str):
    with pytest.raises(SystemExit) as caught:
        run(main, "cprt x")
    assert caught.value.code == status
    assert capsys.readouterr().err == line
