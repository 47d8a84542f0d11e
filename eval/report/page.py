"""The report of runs: ``report.html``, one file that loads nothing, for screens of any size, light and dark, and for
print; and its pictures as PNG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cprt.files import write_bytes, write_text
from cprt.metrics.attribute_rows import HEADS as ATTRIBUTE_HEADS
from cprt.metrics.attribute_rows import attribute_rows, costliest
from cprt.pages.listing import Cell, Column, Columns, Listing, Part, cell, level, listing
from cprt.pages.plots import in_both_themes
from cprt.pages.render import figure, render
from cprt.pages.thumbnails import thumbnails_in
from cprt.pages.words import cut
from cprt.paper import PROMPTINGS, TUNED, table6
from cprt.records import Label
from cprt.scoring import level_of
from cprt.taxonomy import LEVELS, Taxonomy
from eval.compare.results import Comparison, CurvePoint
from eval.measures import HEADS
from eval.report import rows as worked
from eval.report.plots import Panel, calibration_panel, confusion_panel, curve_panel, draw, score_panel, scores_by_level
from eval.report.rows import ListedRow
from eval.runs import EvaluatedRun
from eval.tables import latex, markdown

_ANSWER = 240  # characters of an answer that a list shows
_WHOLE_ANSWER = 4000  # and the page of a photo


def write_report(
    folder: str | Path,
    labels: Sequence[Label],
    runs: Sequence[EvaluatedRun],
    taxonomy: Taxonomy,
    images_root: Path | None = None,
    comparison: Comparison | None = None,
) -> Path:
    """Write ``report.html``, ``scores.png``, ``confusion.png`` and ``calibration.png``; returns the page's path.

    Args:
        images_root: put small pictures of the photos into the page, from this folder, and keep them in
            ``thumbnails/``. None: no picture of a photo is in it.
        comparison: adds paired differences, and curves over training steps.
    """
    folder = Path(folder)
    answers, metrics = {one.name: one.predictions for one in runs}, {one.name: one.metrics for one in runs}
    shown = [_shown(one, labels, taxonomy) for one in runs]
    scores_by_level(folder / "scores.png", labels, answers, taxonomy)
    confusions = {name: confusion_panel(figures.confusion) for name, figures in metrics.items()}
    write_bytes(folder / "confusion.png", draw(confusions, size=(3.4, 3.5), note="counts, and shares of a true level"))
    calibrations = {run["name"]: calibration_panel(run["bins"]) for run in shown}
    note = "numbers: photos in a bin; hollow: fewer than 10; vertical lines: 95% intervals"
    write_bytes(folder / "calibration.png", draw(calibrations, note=note))

    rows = worked.judged(labels, answers)
    photos = worked.by_largest_error(rows)
    pictures = thumbnails_in(images_root, {label.id: label.image for label in labels}, folder / "thumbnails")
    lists = _Lists({of_photo[0].label.id: number for number, of_photo in enumerate(photos)}, list(pictures), taxonomy)
    levels = Counter(label.level for label in labels)
    prompts = set(chain.from_iterable(run["asked"] for run in shown))
    paper = table6()
    content = render(
        "report",
        title=f"Privacy judges on {len(labels):,} photos",
        by_level={level: levels[level] for level in LEVELS},
        heads=HEADS,
        runs=shown,
        ways_met=worked.ways_met([one.metrics for one in runs]),
        paper={
            prompting: [row for row in paper if row["prompting"] == prompting]
            for prompting in dict.fromkeys(row["prompting"] for row in paper)
        },
        unfolded=[theirs for theirs, ours in PROMPTINGS.items() if theirs == TUNED or ours in prompts],
        markdown=markdown(worked.results_table(metrics)),
        latex=latex(worked.results_table(metrics)),
        error_groups=worked.error_groups(metrics, taxonomy),
        attribute_heads=ATTRIBUTE_HEADS,
        of_probabilities=[head for head, (part, _) in ATTRIBUTE_HEADS.items() if part == "chances"],
        comparison=comparison,
        curves=_curves(comparison.curves) if comparison else {},
        statuses=list(dict.fromkeys(status for figures in metrics.values() for status in figures.status_counts)),
        errors=lists.errors(worked.largest_errors(rows)),
        without=lists.unscored(worked.without_score(rows)),
        photos=lists.photos(photos),
        answers=lists.answers(photos),
        pictures=list(pictures.values()),
        shows_pictures=True,
    )
    write_text(folder / "report.html", content)
    return folder / "report.html"


def _shown(one: EvaluatedRun, labels: Sequence[Label], taxonomy: Taxonomy) -> dict[str, Any]:
    """What the page shows of one run."""
    found, metrics = one.predictions, one.metrics
    asked = sorted({str(row.prompt) for row in found if row.prompt})
    bins, responses = worked.reliability(*worked.scored(labels, found)), worked.response_of(labels, found)
    return {
        "name": one.name,
        "metrics": metrics,
        "asked": asked + (["structured answers"] if "structured" in one.asked else []),
        "ways": worked.other_ways(metrics),
        "few_scores": worked.few_scores(found),
        "unscored": worked.unscored_by_level(labels, found),
        "attributes": attribute_rows(metrics, taxonomy),
        "costliest": costliest(metrics, taxonomy),
        "scores": _picture(score_panel(labels, found, taxonomy)),
        "bins": bins,
        "calibration": _picture(calibration_panel(bins)),
        "responses": responses,
        "response": _picture(calibration_panel(responses, "true score", "mean predicted score")),
        "provenance": worked.provenance(one.record),
    }


# --- Lists -------------------------------------------------------------------------------------------------------


class _Lists:
    """Rows as the page's lists hold them. ``place``: id of a photo -> its number among those that the page shows."""

    def __init__(self, place: Mapping[str, int], pictured: Sequence[str], taxonomy: Taxonomy):
        self.place, self.taxonomy = place, taxonomy
        self.picture_of = {id: number for number, id in enumerate(pictured)}

    def errors(self, rows: Sequence[ListedRow]) -> Listing:
        columns: Columns = (
            *self._photo(),
            (Column("Predicted level", "level", choose=True), lambda row: str(level_of(row.score, self.taxonomy))),
            (Column("True score", "number"), lambda row: figure(row.label.score)),
            (Column("Predicted score", "number"), lambda row: figure(row.score)),
            (Column("Error", "number"), lambda row: figure(row.error, "+")),
            (Column("Size", "number"), lambda row: figure(abs(row.error))),
            *self._answer(),
        )
        return listing("errors", rows, columns, noun=_ANSWERS, sorted_by=7, size=100)

    def unscored(self, rows: Sequence[ListedRow]) -> Listing:
        columns: Columns = (
            *self._photo(),
            (Column("True score", "number"), lambda row: figure(row.label.score)),
            (Column("Status", choose=True), lambda row: row.status),
            *self._answer(),
        )
        return listing("unscored", rows, columns, noun=_ANSWERS, size=100)

    def photos(self, photos: Sequence[Sequence[ListedRow]]) -> Listing:
        """Every photo; ``photos`` as ``judged`` gives them, in the order in which the page numbers them."""

        def scored(of_photo: Sequence[ListedRow]) -> list[ListedRow]:
            return [row for row in of_photo if row.error is not None]

        def largest(of_photo: Sequence[ListedRow]) -> str | None:
            return figure(max(scored(of_photo), key=lambda row: row.size).error, "+") if scored(of_photo) else None

        def verdicts(of_photo: Sequence[ListedRow]) -> Cell:
            lines: list[list[Part]] = [[(row.run, "quiet"), *self._verdict(row)] for row in of_photo[:_MOST_RUNS]]
            if len(of_photo) > _MOST_RUNS:
                lines.append([(f"and {len(of_photo) - _MOST_RUNS} more", "quiet")])
            return cell([row.run for row in scored(of_photo)], *lines)

        lost = any(row.error is None for of_photo in photos for row in of_photo)
        columns: Columns = (
            (Column("Photo", "id"), lambda rows: self._link(rows[0].label)),
            (Column("True level", "level", choose=True), lambda rows: str(rows[0].label.level)),
            (Column("True score", "number"), lambda rows: figure(rows[0].label.score)),
            (Column("Predicted by each run"), verdicts),
            (Column("Largest error", "number"), largest),
            (
                Column("Without a score", "number", choose=True, shown=lost),
                lambda rows: str(len(rows) - len(scored(rows))),
            ),
            (Column("Attributes", choose=True), lambda rows: self._attributes(rows[0].label, None)),
        )
        return listing("photos", photos, columns)

    def answers(self, photos: Sequence[Sequence[ListedRow]]) -> list[dict[str, Any]]:
        """What the page of each photo shows: the truth, and (run, verdict, answer) of every run."""
        found = []
        for of_photo in photos:
            label = of_photo[0].label
            said = []
            for row in of_photo:
                chips = [] if row.named is None else self._chips(label, row.named)
                said.append([row.run, [*self._verdict(row), *chips], cut(row.said, _WHOLE_ANSWER)])
            truth = [level(label.level), figure(label.score), *self._chips(label, None)]
            found.append({"id": label.id, "picture": self.picture_of.get(label.id), "truth": truth, "answers": said})
        return found

    # --- Cells

    def _photo(self) -> Columns:
        return (
            (Column("Photo", "id"), lambda row: self._link(row.label)),
            (Column("Run", choose=True), lambda row: row.run),
            (Column("True level", "level", choose=True), lambda row: str(row.label.level)),
        )

    def _answer(self) -> Columns:
        return (
            (Column("Answer"), lambda row: cut(" ".join(row.said.split()), _ANSWER)),
            (Column("Attributes", choose=True), lambda row: self._attributes(row.label, row.named)),
        )

    def _link(self, label: Label) -> Cell:
        link = label.id, "", f"#photo-{self.place[label.id]}"
        return cell(label.id, [link], picture=self.picture_of.get(label.id))

    def _attributes(self, label: Label, named: Sequence[str] | None) -> Cell:
        if label.labels is None and named is None:
            return None
        return cell([self.taxonomy.names[key] for key in label.present(self.taxonomy)], self._chips(label, named))

    def _chips(self, label: Label, named: Sequence[str] | None) -> list[Part]:
        """Attributes in words: the true ones, and beside an answer which of them it named, missed and made up."""
        true, names = label.present(self.taxonomy), self.taxonomy.names
        if label.labels is None:
            return [(names[key], "chip") for key in named or ()]
        if named is None:
            return [(names[key], "chip") for key in true] or [("no attribute", "quiet")]
        chips = [(f"✓ {names[key]}", "chip seen") for key in true if key in named]
        chips += [(f"missed: {names[key]}", "chip missed") for key in true if key not in named]
        chips += [(f"not there: {names[key]}", "chip extra") for key in names if key in named and key not in true]
        return [*chips] or [("no attribute, and none named", "quiet")]

    def _verdict(self, row: ListedRow) -> list[Part]:
        if row.score is None:
            return [(row.status, "flag")]
        return [level(level_of(row.score, self.taxonomy)), figure(row.score), (figure(row.error, "+"), "quiet")]


_ANSWERS = ("answer", "answers")
_MOST_RUNS = 6  # in one cell of the list of photos


# --- Pictures ----------------------------------------------------------------------------------------------------


def _curves(curves: Mapping[str, Sequence[CurvePoint]]) -> dict[str, dict[str, str]]:
    """Head of a figure -> its picture over training steps; empty where no training has several checkpoints."""
    if not any(len(points) > 1 for points in curves.values()):
        return {}
    return {
        head: _picture(
            curve_panel(
                {
                    series: [(point.step, getattr(point, name), point.ci.get(name)) for point in points]
                    for series, points in curves.items()
                }
            ),
            size=(3.4, 2.5),
        )
        for name, head in HEADS.items()
    }


def _picture(panel: Panel, size: tuple[float, float] = (4.2, 3.6)) -> dict[str, str]:
    """The plot as data URIs, in both themes."""
    return in_both_themes(lambda theme: draw({"": panel}, theme, size))
