"""Options from the command line and YAML: what is wrong gets one line that names file, line and field."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from tqdm import tqdm

from cprt.config import option, parse, run
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


@dataclass
class Made:
    truth: str = option("what `they` say", made_by="cprt labels")
    runs: list[str] = option("none: all", factory=list, made_by="cprt eval")
    size: int = option("how many", 3)


def test_what_is_not_there_says_which_command_makes_it(tmp_path: Path):
    there = str(tmp_path)
    for words, said in (
        (["--truth", "gone.jsonl"], "gone.jsonl: No such file or directory; cprt labels makes it"),
        (["--truth", there, "--runs", there, "gone"], "gone: No such file or directory; cprt eval makes it"),
    ):
        with pytest.raises(InputError) as caught:
            parse(Made, words)
        assert str(caught.value) == said
    assert parse(Made, ["--truth", there])[0] == Made(there)


def test_help_shows_neither_marks_nor_defaults_that_say_nothing(capsys):
    with pytest.raises(SystemExit):
        parse(Made, ["--help"], description="``cprt x``: about ``this``.")
    said = capsys.readouterr().out
    assert "cprt x: about this." in said and "(default: 3)" in said
    assert not any(mark in said for mark in ("``", "(default: None)", "(default: [])"))


@dataclass
class Words:
    paths: list[str] = field(default_factory=list, metadata={"positional": True, "metavar": "PATH", "help": "photos"})
    out: str | None = None
    rate: float = 0.5


NO_NUMBERS = "0_1 1_000 .nan .inf -.inf nan inf 1e999 ٣ 0x1f 0o7 010 12:30:45".split()


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
    ("line", "complaint"),
    [
        *((f"rate: {value}", f"field 'rate': '{value}' is not a number") for value in NO_NUMBERS),
        *((f"rank: {value}", f"field 'rank': '{value}' is not a whole number") for value in NO_NUMBERS),
        ("rate: '1e-4'", "field 'rate': '1e-4' is not a number"),
        ("rank: 99999999999999999999", "field 'rank': 1e+20 is not a whole number"),
        ("rate: 2024-01-01", "field 'rate': '2024-01-01' is not a number"),
        ("rank: {1: a, b: c}", "field 'rank': {'1': 'a', 'b': 'c'} is not a whole number"),
        ("names: [[a]]", "field 'names': [['a']] is not a list"),
        ("names: {a: b}", "field 'names': {'a': 'b'} is not a list"),
        ("target: [score]", "field 'target': ['score'] is not a text"),
        ("names: !!set {a}", "not valid YAML: the tag"),
        ("1: a", "field '1': unknown option"),
        ("2024-01-01: a", "field '2024-01-01': unknown option"),
        ("names: [a, b: {c: 1, c: 2}]", "field 'c': is there twice"),
        ('names: ["a\\0b"]', "field 'names': ['a\\x00b'] holds a NUL character"),
        ('target: "a\\0b"', "field 'target': 'a\\x00b' holds a NUL character"),
        ("rank: &a [[[[[[[[[[*a]]]]]]]]]]", "not valid YAML: nested too deeply"),
    ],
)
def test_hostile_yaml_gets_one_line_with_its_place(tmp_path: Path, line: str, complaint: str):
    with pytest.raises(InputError) as caught:
        parse_yaml(tmp_path, f"labels: a\n\n{line}\n")
    assert str(caught.value) == f"{tmp_path / 'c.yaml'}:3: {complaint}" or (
        str(caught.value).startswith(f"{tmp_path / 'c.yaml'}:3: {complaint}") and complaint.startswith("not valid")
    )


def test_a_value_of_megabytes_and_one_of_billions_are_named(tmp_path: Path):
    laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    laughs += "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefghi"))
    for text in (f"labels: {'x' * 3_000_000!r}\nrank: x\n", f"rank: {'1' * 3_000_000}\n", laughs):
        with pytest.raises(InputError) as caught:
            parse_yaml(tmp_path, text)
        assert len(str(caught.value)) < 700 and str(caught.value).isprintable()


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_configuration_in_another_encoding_is_named(tmp_path: Path, encoding: str):
    (tmp_path / "c.yaml").write_bytes("labels: ä\n".encode(encoding))
    with pytest.raises(InputError, match="c.yaml: is not text in UTF-8"):
        parse(Options, ["--config", str(tmp_path / "c.yaml")])


def test_a_configuration_that_is_no_file_is_named(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path, complaint in ((tmp_path, "is a folder"), (tmp_path / "pipe", "is a pipe"), ("/dev/zero", "is a device")):
        with pytest.raises(InputError, match=f"{complaint}, not a file"):
            parse(Options, ["--config", str(path)])


@pytest.mark.parametrize("option", ["--rank", "--rate", "--limit"])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_only_plain_numbers_are_numbers_on_the_command_line(option: str, value: str):
    with pytest.raises(InputError, match=rf"{option}: '{re.escape(value)}' is not a (whole )?number"):
        parse(Options, ["--labels", "a", f"{option}={value}"])


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--out", ""], "out: is empty"),
        (["--out="], "out: is empty"),
        (["--out=--"], "--out: -- is no value"),
        (["--rate=--"], "--rate: -- is no value"),
    ],
)
def test_options_that_nothing_can_be_made_of(argv: list[str], complaint: str):
    """An unset variable of the shell, a slip of the keyboard."""
    with pytest.raises(InputError, match=f"^{complaint}$"):
        parse(Words, argv)


def test_null_is_taken_where_it_is_allowed():
    assert parse(Options, ["--labels", "a", "--limit", "null"])[0].limit is None
    with pytest.raises(InputError, match="--rank: 'none' is not a whole number"):
        parse(Options, ["--labels", "a", "--rank", "none"])


@pytest.mark.parametrize("value", ["a\0b", "\udcff", "\ud83d"])
def test_an_option_that_no_file_could_hold_is_named(value: str):
    with pytest.raises(InputError, match="labels: .* holds a NUL character, or is not UTF-8"):
        parse(Options, ["--labels", value])
    assert parse(Words, ["\udcff.jpg"])[0].paths == ["\udcff.jpg"]  # photos may have any name: the command reports it


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
        (["--lables", "a"], "unknown argument --lables (did you mean --labels?); the following arguments are required"),
        (
            ["--rakn=3"],
            "unknown argument --rakn (did you mean --rank?); the following arguments are required: --labels",
        ),
        (
            ["--labels", "a", "--rnak", "3", "--rank", "101"],
            "unknown argument --rnak (did you mean --rank?); rank must",
        ),
        (["--labels", "a", "--RANK", "3"], "unknown argument --RANK (did you mean --rank?)"),
        (["--lab", "a"], "required: --labels"),  # no guessing of abbreviated names
    ],
)
def test_a_bad_command_line_gets_one_line(argv: list[str], complaint: str):
    with pytest.raises(InputError) as caught:
        parse(Options, argv)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


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


def too_much() -> None:
    np.zeros(10**15)


def card_too_small() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("main", "status", "line"),
    [
        (lambda: None, 0, ""),
        (bad_input, 2, "cprt x: error: a.jsonl:3: field 'id': is missing\n"),
        (disk_full, 2, "cprt x: error: outputs/a.jsonl: No space left on device\n"),
        (too_much, 2, "cprt x: error: takes more memory than there is; take smaller numbers, or fewer rows\n"),
        (card_too_small, 2, "cprt x: error: takes more memory than there is; take smaller numbers, or fewer rows\n"),
        (interrupted, 130, "cprt x: interrupted; finished work is kept, run the same command again to go on\n"),
    ],
)
def test_exit_status_and_the_one_line(capsys, main, status: int, line: str):
    with pytest.raises(SystemExit) as caught:
        run(main, "cprt x")
    assert caught.value.code == status
    assert capsys.readouterr().err == line


def test_the_line_stands_apart_from_an_open_bar(capsys):
    def stops_half_way() -> None:
        for number in tqdm(range(5), desc="working", mininterval=0):
            if number == 3:
                raise InputError("a.jsonl:3: is no row\x1b[2J")

    with pytest.raises(SystemExit) as caught:
        run(stops_half_way, "cprt x")
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith("\ncprt x: error: a.jsonl:3: is no row\\x1b[2J\n") and "working:  60%" in said


COMMAND = """
import sys
from cprt.config import run
from cprt.errors import InputError

def main():
    if sys.argv[1] == "prints": print("\\udcff" * 10)
    elif sys.argv[1] == "refuses": raise InputError("no\\nway")
    else: raise OSError(28, "No space left on device", "a")

run(main, "cprt x")
"""


@pytest.mark.parametrize(
    ("does", "streams", "status", "said"),
    [
        ("prints", "", 0, ""),
        ("prints", ">&-", 0, ""),
        ("prints", "2>&-", 0, ""),
        ("prints", ">&- 2>&- <&-", 0, ""),
        ("prints", ">/dev/full", 2, "cprt x: error: output: No space left on device\n"),
        ("refuses", "", 2, "cprt x: error: no\\nway\n"),
        ("refuses", "2>&-", 2, ""),
        ("refuses", ">&- 2>&- <&-", 2, ""),
        ("refuses", "2>/dev/full", 2, ""),
        ("refuses", ">/dev/full", 2, "cprt x: error: no\\nway\n"),
        ("fills", "2>/dev/full >/dev/full", 2, ""),
    ],
)
def test_the_status_holds_whatever_becomes_of_the_streams(tmp_path: Path, does, streams, status: int, said: str):
    (tmp_path / "command.py").write_text(COMMAND)
    words = f"env -i PATH=$PATH PYTHONPATH={Path(__file__).parents[2]} LC_ALL=C {sys.executable} command.py {does}"
    done = subprocess.run(["bash", "-c", f"{words} {streams}"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, said)
    assert "Traceback" not in done.stdout


@dataclass
class Ranged:
    rounds: int = option("rounds", 3, least=1)
    seed: int = option("seed", 0, least=0)
    share: float | None = option("share", None, least=0, most=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds", "0"], "rounds must be at least 1, not 0"),
        (["--seed", "-1"], "seed must not be negative, not -1"),
        (["--share", "1.5"], "share must be 0 to 1, not 1.5"),
    ],
)
def test_a_number_out_of_its_range_is_told(tmp_path: Path, words: list[str], said: str):
    (good,) = parse(Ranged, ["--rounds", "1", "--seed", "0", "--share", "1"])
    assert (good.rounds, good.seed, good.share, parse(Ranged, [])[0].share) == (1, 0, 1.0, None)
    with pytest.raises(InputError) as caught:
        parse(Ranged, words)
    assert str(caught.value) == said
    (tmp_path / "c.yaml").write_text(f"{words[0][2:]}: {words[1]}")
    with pytest.raises(InputError) as caught:
        parse(Ranged, ["--config", str(tmp_path / "c.yaml")])
    assert str(caught.value) == f"{tmp_path / 'c.yaml'}: {said}"
