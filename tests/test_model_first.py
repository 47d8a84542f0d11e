"""A model that the Hub cannot give is told before any photo is looked at, which takes minutes where there are many."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cprt.errors import InputError
from data_prep import annotate
from eval import run as evaluation


def evaluate(folder: Path) -> None:
    label = {"id": "a", "image": "a.jpg", "labels": None, "level": 4, "score": 0, "source": None}
    (folder / "labels.jsonl").write_text(json.dumps(label))
    words = ["--labels", str(folder / "labels.jsonl"), "--images", str(folder / "photos"), "--out", str(folder / "out")]
    evaluation.main(["--model", "some-org/model", *words])


def annotate_photos(folder: Path) -> None:
    (folder / "c.yaml").write_text(yaml.safe_dump({"annotators": [{"name": "one", "model": "some-org/model"}]}))
    words = ["--config", str(folder / "c.yaml"), "--images", str(folder / "photos"), "--out", str(folder / "out")]
    annotate.main(words)


@pytest.mark.parametrize("command", [evaluate, annotate_photos])
def test_a_model_is_asked_for_before_photos_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[[Path], None]
):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"no photo")
    monkeypatch.setattr("cprt.images.checks.image_size", lambda path: pytest.fail("a photo was opened"))
    with pytest.raises(InputError, match="^some-org/model: cannot be loaded as a model"):
        command(tmp_path)
    assert not (tmp_path / "out").exists()
