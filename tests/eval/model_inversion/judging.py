"""A judge whose answers follow from what it is shown, and what ``cprt mi`` wrote of them."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from collection import ID
from loopback import identity

ANSWERS = (
    "Yes",
    "yes ",
    "No, they are not the same individual.",
    "no.",
    "I cannot answer yes or no.",
    "yes, and no",
    'Yes, "he" is,\nas far as I see',
)
FILES = ("judge.csv", "controls.csv", "summary.json")


def judge(body: dict[str, Any]) -> tuple[str, str]:
    """A judge whose every answer follows from what it is shown."""
    digest = hashlib.sha256(f"{identity(body)} {body['model']}".encode()).digest()
    return ANSWERS[digest[0] % len(ANSWERS)], "stop"


def rows(out: Path, name: str, file: str = "judge.csv", id: str = ID) -> list[dict[str, str]]:
    with open(out / name / id / file, newline="") as stream:
        return list(csv.DictReader(stream))


def summary(out: Path, name: str, id: str = ID) -> dict[str, Any]:
    return json.loads((out / name / id / "summary.json").read_text())


def queries(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "queries.jsonl").read_text().splitlines()]


def results(out: Path, *names: str) -> list[bytes]:
    return [
        (out / "queries.jsonl").read_bytes(),
        *((out / name / ID / file).read_bytes() for name in names for file in FILES),
    ]


def process(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "eval.model_inversion.judge.run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
