"""Logits and features from elsewhere: found by the image's path, refused where anything is in doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cprt.errors import InputError
from eval.model_inversion.standard.classifier import open_classifier
from eval.model_inversion.standard.spec import ClassifierSpec

FILES = ["private/0/a.png", "clean/0/a.png", "1\\b.png"]
LOGITS = np.array([[2.0, 0, 1], [0, 3, 0], [1000, 0, 999]])
FEATURES = np.arange(6).reshape(3, 2)


def stated(weights: Path, **changes: Any) -> ClassifierSpec:
    row = {"name": "E", "library": "outputs", "weights": str(weights), "num_classes": 3, "classes": "numeric"}
    return ClassifierSpec.read(row | dict.fromkeys(("architecture", "crop", "resize", "mean", "std")) | changes, "c")


def save(folder: Path, **changes: Any) -> Path:
    arrays = {"files": FILES, "logits": LOGITS, "features": FEATURES} | changes
    np.savez(folder / "e.npz", **{name: array for name, array in arrays.items() if array is not None})
    return folder / "e.npz"


def test_rows_are_found_by_the_end_of_the_path(tmp_path: Path):
    classifier = open_classifier(stated(save(tmp_path)), "c")
    seen = classifier.see([Path("/data/clean/0/a.png"), Path("/data/x/1/b.png"), Path("private/0/a.png")], 8, "x")
    assert seen.features.tolist() == [[2, 3], [4, 5], [0, 1]]
    odds = np.exp(LOGITS - LOGITS.max(axis=1, keepdims=True))
    assert seen.probabilities == pytest.approx((odds / odds.sum(axis=1, keepdims=True))[[1, 2, 0]])


def test_features_alone_need_no_logits(tmp_path: Path):
    path = save(tmp_path, logits=None)
    seen = open_classifier(stated(path), "c", features_only=True).see([Path("1/b.png")], 8, "x")
    assert seen.features.tolist() == [[4, 5]] and seen.probabilities.shape == (1, 0)
    with pytest.raises(InputError, match="e.npz: field 'logits': is missing"):
        open_classifier(stated(path), "c")


def test_one_row_never_stands_for_two_images(tmp_path: Path):
    classifier = open_classifier(stated(save(tmp_path, files=["0/a.png", "x", "y"])), "c")
    classifier.see([Path("private/0/a.png")], 8, "x")
    with pytest.raises(InputError, match=r"one row for private/0/a.png and clean/0/a.png: give longer paths"):
        classifier.see([Path("clean/0/a.png")], 8, "x")
    with pytest.raises(InputError, match="e.npz: has no row for 2/b.png"):
        classifier.see([Path("2/b.png")], 8, "x")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"files": None}, "field 'files': is missing"),
        ({"files": ["a", "a", "b"]}, "field 'files': must be texts, each there once"),
        ({"files": [1, 2, 3]}, "field 'files': must be texts"),
        ({"logits": LOGITS[:2]}, "field 'logits': must be numbers in 3 rows"),
        ({"logits": LOGITS[:, :2]}, "field 'logits': has 2 columns, not 3"),
        ({"features": FEATURES * np.nan}, "field 'features': has values that are not finite"),
        ({"features": [["a"], ["b"], ["c"]]}, "field 'features': must be numbers"),
        ({"files": np.array(FILES, dtype=object)}, "is not an .npz file of plain arrays"),  # a pickle
    ],
)
def test_what_is_in_doubt_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], said: str):
    with pytest.raises(InputError) as caught:
        open_classifier(stated(save(tmp_path, **changes)), "c")
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK", b"some text", b"\x80\x04N."])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "e.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"e\.npz: is not an \.npz file of plain arrays"):
        open_classifier(stated(tmp_path / "e.npz"), "c")


def test_how_images_were_shown_is_not_stated_twice(tmp_path: Path):
    with pytest.raises(InputError, match="field 'resize': must be null or left out where library is outputs"):
        stated(save(tmp_path), resize=64)
