"""What a run record holds, and what it must not hold."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cprt.errors import InputError
from cprt.provenance import (
    check_output,
    digest_once,
    file_digest,
    model_digest,
    read_record,
    run_path,
    sign,
    write_run,
)


@dataclass
class Options:
    size: int = 3


def test_the_record_stands_beside_its_output_and_says_what_made_it(tmp_path: Path):
    (tmp_path / "labels.json").write_text("[]")
    write_run("cprt labels", tmp_path / "labels.jsonl", Options(), {"input": tmp_path / "labels.json"}, seed=7)
    record = json.loads((tmp_path / "labels.run.json").read_text())
    assert record["config"] == {"size": 3} and record["seed"] == 7
    assert record["inputs"]["input"]["sha256"] == hashlib.sha256(b"[]").hexdigest()
    assert record["packages"]["numpy"] and record["cprt"]
    assert run_path(tmp_path) == tmp_path / "run.json"
    assert os.uname().nodename not in json.dumps(record)


def test_what_a_killed_run_left_is_no_result_and_still_its_own(tmp_path: Path):
    record = tmp_path / "run.json"
    write_run("cprt pairs", tmp_path, Options())
    sign("cprt pairs", record, keep=True)  # nothing is replaced yet
    assert read_record(record)["config"] == {"size": 3}
    sign("cprt pairs", record)
    (tmp_path / "train.jsonl").write_text("half of a run")
    with pytest.raises(InputError, match=r"run\.json: field 'unfinished': cprt pairs was stopped while it wrote"):
        read_record(record)
    check_output("cprt pairs", tmp_path, ["train.jsonl"])  # the same stage goes on, and no other
    with pytest.raises(InputError, match="says that cprt pairs made what is there"):
        check_output("cprt labels", tmp_path, ["train.jsonl"])
    write_run("cprt pairs", tmp_path, Options(4))
    assert read_record(record)["config"] == {"size": 4}


@pytest.mark.parametrize(
    "words",
    [
        ["--hub_token", "hf_secret"],
        ["--hub_token=hf_secret"],
        ["--api_key", "hf_secret"],
        ["--base_url", "http://hf_secret"],
    ],
)
def test_no_secret_of_the_command_line_is_recorded(tmp_path: Path, monkeypatch, words: list[str]):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/cprt", "eval", *words, "--out", "x"])
    write_run("cprt eval", tmp_path, {})
    text = (tmp_path / "run.json").read_text()
    assert "hf_secret" not in text and "/somewhere" not in text
    assert json.loads(text)["command"][-2:] == ["--out", "x"]


def test_weights_are_read_once_while_they_stay_as_they_are(tmp_path: Path, monkeypatch):
    file, read = tmp_path / "model.safetensors", list[Path]()
    monkeypatch.setattr("cprt.provenance.file_digest", lambda path: read.append(path) or file_digest(path))
    file.write_text("w")
    assert model_digest(tmp_path) == model_digest(tmp_path) and digest_once(file) == hashlib.sha256(b"w").hexdigest()
    os.utime(file, ns=(0, 0))
    assert digest_once(file) == hashlib.sha256(b"w").hexdigest() and read == [file] * 2
    file.write_text("larger")
    os.utime(file, ns=(0, 0))
    assert digest_once(file) == hashlib.sha256(b"larger").hexdigest()


def test_a_model_is_told_apart_by_its_weights_and_configuration_alone(tmp_path: Path):
    for name, content in (("model.safetensors", "w"), ("config.json", "c"), ("chat_template.jinja", "t")):
        (tmp_path / name).write_text(content)
    digests = {model_digest(tmp_path)}
    (tmp_path / "run.json").write_text("when")
    (tmp_path / "README.md").write_text("card")
    assert model_digest(tmp_path) in digests
    for name in ("model.safetensors", "config.json", "chat_template.jinja"):
        (tmp_path / name).write_text("other")
        digests.add(model_digest(tmp_path))
    assert len(digests) == 4
