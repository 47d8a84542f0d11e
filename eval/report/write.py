"""The report of one judge or several: ``report.html``, one file that loads nothing, and its pictures as PNG.

``write_report`` is called by ``cprt eval`` and ``cprt compare``. What is worked out for the page is here, what it looks
like in ``eval/report/page.py``.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from tqdm import tqdm

from cprt.errors import InputError
from cprt.files import read_yaml, write_bytes, write_text
from cprt.images import load_image
from cprt.metrics.bootstrap import interval
from cprt.records import Label, Prediction
from cprt.scoring import level_of
from cprt.taxonomy import LEVELS, Taxonomy

PAPER = Path(__file__).with_name("paper_table6.yaml")
BINS = 10
LISTED = 100  # rows of each run in either list
_THUMBNAIL = 96  # pixels, the longer side


@dataclass(frozen=True)
class ListedRow:
    """One photo as one run judged it. ``error`` is prediction minus truth, ``level`` that of the predicted score."""

    run: str
    label: Label
    prediction: Prediction | None  # None where the run has no row for the photo
    error: float | None = None
    level: int | None = None


def write_report(
    folder: str | Path,
    labels: Sequence[Label],
    runs: Mapping[str, Sequence[Prediction]],
    metrics: Mapping[str, Mapping[str, Any]],
    taxonomy: Taxonomy,
    images_root: str | Path | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``report.html``, ``scores.png``, ``confusion.png`` and ``calibration.png``; returns the page's path.

    Args:
        runs: name -> predictions for the ``labels``.
        metrics: name -> what ``metrics.json`` holds, for the same names.
        images_root: put small pictures of the listed photos into the page, from this folder. None: no picture of a
            photo is in it.
        comparison: what ``compare.json`` holds; adds paired differences, and curves over training steps.
    """
    from eval.report.page import page
    from eval.report.plots import calibration_panel, confusion_panel, draw, scores_by_level

    folder = Path(folder)
    scores_by_level(folder / "scores.png", labels, runs, taxonomy)
    confusions = {name: confusion_panel(metrics[name]["confusion"]) for name in runs}
    write_bytes(folder / "confusion.png", draw(confusions, size=(3.4, 3.5), note="counts, and shares of a true level"))
    bins = {name: reliability(*_scored(labels, predictions)) for name, predictions in runs.items()}
    note = "numbers: photos in a bin; hollow: fewer than 10; vertical lines: 95% intervals"
    calibrations = {name: calibration_panel(rows) for name, rows in bins.items()}
    write_bytes(folder / "calibration.png", draw(calibrations, note=note))

    listed, unscored = largest_errors(labels, runs, taxonomy), without_score(labels, runs)
    pictures = {} if images_root is None else thumbnails([*listed, *unscored], Path(images_root))
    write_text(
        folder / "report.html",
        page(labels, runs, metrics, bins, listed, unscored, pictures, taxonomy, paper_table6(), comparison),
    )
    return folder / "report.html"


def paper_table6() -> list[dict[str, Any]]:
    """The rows of the paper's Table 6, figures under the names of metrics.json."""
    content = read_yaml(PAPER)
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]


def reliability(prediction: ArrayLike, truth: ArrayLike, bins: int = BINS, seed: int = 0) -> list[dict[str, Any]]:
    """Mean true score of the photos whose predicted score falls in each of ``bins`` equal parts of [0, 1].

    A bin takes its lower end, the last one both. Each is ``bin`` [low, high], ``n``, ``mean_prediction``,
    ``mean_truth`` and ``ci``, the 95% bootstrap interval of the latter; None where no photo falls in it, and ``ci``
    where only one does.
    """
    p, t = np.asarray(prediction, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    edges = np.arange(bins + 1) / bins
    place = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, bins - 1)
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(bins):
        inside = t[place == number]
        n = len(inside)
        resampled = inside[rng.integers(n, size=(1000, n))].mean(axis=1) if n > 1 else None
        rows.append(
            {
                "bin": [float(edges[number]), float(edges[number + 1])],
                "n": n,
                "mean_prediction": float(p[place == number].mean()) if n else None,
                "mean_truth": float(inside.mean()) if n else None,
                "ci": None if resampled is None else interval(resampled),
            }
        )
    return rows


def largest_errors(
    labels: Sequence[Label], runs: Mapping[str, Sequence[Prediction]], taxonomy: Taxonomy, count: int = LISTED
) -> list[ListedRow]:
    """The ``count`` largest absolute errors of each run, the largest first."""
    rows = []
    for name, predictions in runs.items():
        by_id = {prediction.id: prediction for prediction in predictions}
        own = []
        for label in labels:
            prediction = by_id.get(label.id)
            if prediction is not None and prediction.score is not None:
                level = level_of(prediction.score, taxonomy)
                own.append(ListedRow(name, label, prediction, prediction.score - label.score, level))
        rows += sorted(own, key=_size)[:count]
    return sorted(rows, key=_size)


def _size(row: ListedRow) -> float:
    return -abs(row.error or 0.0)


def without_score(
    labels: Sequence[Label], runs: Mapping[str, Sequence[Prediction]], count: int = LISTED
) -> list[ListedRow]:
    """Up to ``count`` rows of each run that have no score, the most severe photos first."""
    rows = []
    for name, predictions in runs.items():
        by_id = {prediction.id: prediction for prediction in predictions}
        own = [
            ListedRow(name, label, row) for label in labels if (row := by_id.get(label.id)) is None or row.score is None
        ]
        rows += sorted(own, key=lambda row: -row.label.score)[:count]
    return rows


def unscored_by_level(labels: Sequence[Label], predictions: Sequence[Prediction]) -> list[int]:
    """How many photos of true levels 1 to 4 have no score."""
    scored = {prediction.id for prediction in predictions if prediction.score is not None}
    return [sum(label.level == level and label.id not in scored for label in labels) for level in LEVELS]


def _scored(labels: Sequence[Label], predictions: Sequence[Prediction]) -> tuple[list[float], list[float]]:
    """Predicted and true scores of the photos that have both."""
    truth = {label.id: label.score for label in labels}
    pairs = [(row.score, truth[row.id]) for row in predictions if row.score is not None]
    return [score for score, _ in pairs], [score for _, score in pairs]


def thumbnails(rows: Sequence[ListedRow], root: Path) -> dict[str, str]:
    """Id -> a small JPEG as a data URL, made of pixels alone: no metadata, no embedded preview, no colour profile.

    Left out is what has no path, lies outside ``root`` (also through a link) or cannot be read.
    """
    paths = {row.label.id: row.label.image for row in rows if row.label.image is not None}
    found = {}
    for id, image in tqdm(paths.items(), desc="thumbnails", unit="photo", disable=None):
        path = root / image
        if not path.resolve().is_relative_to(root.resolve()):
            continue
        try:
            picture = load_image(path, max_pixels=4 * _THUMBNAIL**2)
        except InputError:
            continue
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
        buffer = io.BytesIO()
        picture.save(buffer, format="JPEG", quality=75)
        found[id] = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return found
