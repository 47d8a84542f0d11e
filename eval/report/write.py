"""The report of one judge or several: ``report.html``, one file that loads nothing, and its pictures as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.files import write_bytes, write_text
from cprt.metrics.results import Metrics
from cprt.pages.thumbnails import inside, thumbnails
from cprt.records import Label, Prediction
from cprt.taxonomy import Taxonomy
from eval.compare.results import Comparison
from eval.report.page import page
from eval.report.plots import calibration_panel, confusion_panel, draw, scores_by_level
from eval.report.rows import reliability_of


def write_report(
    folder: str | Path,
    labels: Sequence[Label],
    runs: Mapping[str, Sequence[Prediction]],
    metrics: Mapping[str, Metrics],
    taxonomy: Taxonomy,
    images_root: str | Path | None = None,
    comparison: Comparison | None = None,
    records: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write ``report.html``, ``scores.png``, ``confusion.png`` and ``calibration.png``; returns the page's path.

    Args:
        runs: name -> predictions for the ``labels``.
        metrics: name -> its metrics, for the same names.
        images_root: put small pictures of the photos into the page, from this folder, and keep them in
            ``thumbnails/``. None: no picture of a photo is in it.
        comparison: adds paired differences, and curves over training steps.
        records: name -> what ``run.json`` holds; says in the page what made each run.
    """
    folder = Path(folder)
    scores_by_level(folder / "scores.png", labels, runs, taxonomy)
    confusions = {name: confusion_panel(metrics[name].confusion) for name in runs}
    write_bytes(folder / "confusion.png", draw(confusions, size=(3.4, 3.5), note="counts, and shares of a true level"))
    bins = {name: reliability_of(labels, predictions) for name, predictions in runs.items()}
    note = "numbers: photos in a bin; hollow: fewer than 10; vertical lines: 95% intervals"
    calibrations = {name: calibration_panel(rows) for name, rows in bins.items()}
    write_bytes(folder / "calibration.png", draw(calibrations, note=note))

    pictures = {} if images_root is None else photos_of(labels, Path(images_root), folder / "thumbnails")
    content = page(labels, runs, metrics, bins, pictures, taxonomy, records or {}, comparison)
    write_text(folder / "report.html", content)
    return folder / "report.html"


def photos_of(labels: Sequence[Label], root: Path, kept: Path) -> dict[str, str]:
    """Id -> small picture as a data URI, of the photos that lie in ``root``, also by their links."""
    paths = {label.id: inside(root, label.image) for label in labels if label.image is not None}
    return thumbnails({id: path for id, path in paths.items() if path is not None}, kept)
