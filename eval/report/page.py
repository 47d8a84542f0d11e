"""What ``report.html`` shows, for screens of any size, light and dark, and for print: its template's content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cprt.metrics.attribute_rows import HEADS as ATTRIBUTE_HEADS
from cprt.metrics.attribute_rows import attribute_rows, costliest
from cprt.metrics.results import Metrics
from cprt.pages.listing import Cell, Column, Columns, Listing, Part, cell, level, listing
from cprt.pages.plots import in_both_themes
from cprt.pages.render import figure, render
from cprt.paper import table6
from cprt.records import Label, Prediction, inside
from cprt.taxonomy import LEVELS, Taxonomy
from eval.compare.results import Comparison, CurvePoint
from eval.measures import HEADS
from eval.report import rows as worked
from eval.report.plots import Panel, calibration_panel, curve_panel, draw, score_panel
from eval.report.rows import ListedRow
from eval.tables import latex, markdown

_PROMPTINGS = {"zero_shot": "Zero-Shot", "intuition": "Intuition", "taxonomy": "Taxonomy"}  # ours -> the paper's
_ANSWER = 240  # characters of an answer that a list shows
_WHOLE_ANSWER = 4000  # and the page of a photo


def page(
    labels: Sequence[Label],
    runs: Mapping[str, Sequence[Prediction]],
    metrics: Mapping[str, Metrics],
    bins: Mapping[str, Sequence[Mapping[str, Any]]],
    pictures: Mapping[str, str],
    taxonomy: Taxonomy,
    records: Mapping[str, Mapping[str, Any]],
    comparison: Comparison | None,
) -> str:
    """The whole HTML; arguments as in ``eval.report.write.write_report``. ``pictures``: id -> data URI."""
    rows = worked.judged(labels, runs, taxonomy)
    photos = worked.by_largest_error(rows)
    lists = _Lists({of_photo[0].label.id: number for number, of_photo in enumerate(photos)}, list(pictures), taxonomy)
    levels = Counter(label.level for label in labels)
    asked = {
        name: sorted({str(row.prompt) for row in found if row.prompt})
        + (["structured answers"] if "structured" in inside(records.get(name), "decoding") else [])
        for name, found in runs.items()
    }
    paper = table6()
    return render(
        "report",
        title=f"Privacy judges on {len(labels):,} photos",
        labelled=len(labels),
        levels=LEVELS,
        by_level={level: levels[level] for level in LEVELS},
        heads=HEADS,
        runs=runs,
        metrics=metrics,
        asked=asked,
        ways={name: worked.other_ways(metrics[name]) for name in runs},
        paper={
            prompting: [row for row in paper if row["prompting"] == prompting]
            for prompting in dict.fromkeys(row["prompting"] for row in paper)
        },
        unfolded={"SFT"} | {_PROMPTINGS.get(name) for names in asked.values() for name in names},
        markdown=markdown(worked.results_table(metrics)),
        latex=latex(worked.results_table(metrics)),
        error_groups=worked.error_groups(metrics, taxonomy),
        attributes={name: found for name in runs if (found := attribute_rows(metrics[name], taxonomy))},
        attribute_heads=ATTRIBUTE_HEADS,
        of_probabilities=[head for head, (part, _) in ATTRIBUTE_HEADS.items() if part == "chances"],
        costliest={name: costliest(metrics[name], taxonomy) for name in runs},
        few_scores={name: worked.few_scores(found) for name, found in runs.items()},
        provenance={name: worked.provenance(records.get(name, {})) for name in runs},
        comparison=comparison,
        curves=_curves(comparison.curves) if comparison else {},
        statuses=list(dict.fromkeys(status for figures in metrics.values() for status in figures.status_counts)),
        unscored={name: worked.unscored_by_level(labels, found) for name, found in runs.items()},
        scores={name: _picture(score_panel(labels, found, taxonomy), (4.2, 3.6)) for name, found in runs.items()},
        bins=bins,
        responses=(responses := {name: worked.response_of(labels, found) for name, found in runs.items()}),
        response={
            name: _picture(calibration_panel(rows, "true score", "mean predicted score"), (4.2, 3.6))
            for name, rows in responses.items()
        },
        calibration={name: _picture(calibration_panel(bins[name]), (4.2, 3.6)) for name in runs},
        errors=lists.errors(worked.largest_errors(rows)),
        without=lists.unscored(worked.without_score(rows)),
        photos=lists.photos(photos),
        answers=lists.answers(photos),
        pictures=list(pictures.values()),
        shows_pictures=True,
    )


# --- Lists -------------------------------------------------------------------------------------------------------


class _Lists:
    """Rows as the page's lists hold them. ``place``: id of a photo -> its number among those that the page shows."""

    def __init__(self, place: Mapping[str, int], pictured: Sequence[str], taxonomy: Taxonomy):
        self.place, self.taxonomy = place, taxonomy
        self.picture_of = {id: number for number, id in enumerate(pictured)}

    def errors(self, rows: Sequence[ListedRow]) -> Listing:
        columns: Columns = (
            *self._photo(),
            (Column("Predicted level", "level", choose=True), lambda row: str(row.level)),
            (Column("True", "number"), lambda row: figure(row.label.score)),
            (Column("Predicted", "number"), lambda row: figure(row.prediction.score)),
            (Column("Error", "number"), lambda row: figure(row.error, "+")),
            (Column("Size", "number"), lambda row: figure(abs(row.error))),
            *self._answer(),
        )
        return listing("errors", rows, columns, noun=_ANSWERS, sorted_by=7, size=100)

    def unscored(self, rows: Sequence[ListedRow]) -> Listing:
        columns: Columns = (
            *self._photo(),
            (Column("True", "number"), lambda row: figure(row.label.score)),
            (Column("Status", choose=True), lambda row: row.status),
            *self._answer(),
        )
        return listing("unscored", rows, columns, noun=_ANSWERS, size=100)

    def photos(self, photos: Sequence[Sequence[ListedRow]]) -> Listing:
        """Every photo; ``photos`` as ``judged`` gives them, in the order in which the page numbers them."""

        def errors(of_photo: Sequence[ListedRow]) -> list[float]:
            return [row.error for row in of_photo if row.error is not None]

        def verdicts(of_photo: Sequence[ListedRow]) -> Cell:
            lines: list[list[Part]] = [[(row.run, "quiet"), *self._verdict(row)] for row in of_photo[:_MOST_RUNS]]
            if len(of_photo) > _MOST_RUNS:
                lines.append([(f"and {len(of_photo) - _MOST_RUNS} more", "quiet")])
            return cell([row.run for row in of_photo if row.error is not None], *lines)

        columns: Columns = (
            (Column("Photo", "id"), lambda rows: self._link(rows[0].label)),
            (Column("True level", "level", choose=True), lambda rows: str(rows[0].label.level)),
            (Column("True", "number"), lambda rows: figure(rows[0].label.score)),
            (Column("Predicted by each run"), verdicts),
            (
                Column("Largest error", "number"),
                lambda rows: figure(max(errors(rows), key=abs), "+") if errors(rows) else None,
            ),
            (Column("Without a score", "number", choose=True), lambda rows: str(len(rows) - len(errors(rows)))),
            (Column("Attributes", choose=True), lambda rows: self._attributes(rows[0].label, None)),
        )
        return listing("photos", photos, columns)

    def answers(self, photos: Sequence[Sequence[ListedRow]]) -> list[dict[str, Any]]:
        """What the page of each photo shows: the truth, and (run, verdict, answer) of every run."""
        return [
            {
                "id": of_photo[0].label.id,
                "picture": self.picture_of.get(of_photo[0].label.id),
                "truth": [
                    level(of_photo[0].label.level),
                    figure(of_photo[0].label.score),
                    *self._chips(of_photo[0].label, None),
                ],
                "answers": [
                    [
                        row.run,
                        [*self._verdict(row), *(self._chips(row.label, row.named) if row.named is not None else [])],
                        _cut(row.said, _WHOLE_ANSWER),
                    ]
                    for row in of_photo
                ],
            }
            for of_photo in photos
        ]

    # --- Cells

    def _photo(self) -> Columns:
        return (
            (Column("Photo", "id"), lambda row: self._link(row.label)),
            (Column("Run", choose=True), lambda row: row.run),
            (Column("True level", "level", choose=True), lambda row: str(row.label.level)),
        )

    def _answer(self) -> Columns:
        return (
            (Column("Answer"), lambda row: _cut(" ".join(row.said.split()), _ANSWER)),
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

    @staticmethod
    def _verdict(row: ListedRow) -> list[Part]:
        if row.prediction is None or row.error is None or row.level is None:
            return [(row.status, "flag")]
        return [level(row.level), figure(row.prediction.score), (figure(row.error, "+"), "quiet")]


_ANSWERS = ("answer", "answers")
_MOST_RUNS = 6  # in one cell of the list of photos


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


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
            (3.4, 2.5),
        )
        for name, head in HEADS.items()
    }


def _picture(panel: Panel, size: tuple[float, float]) -> dict[str, str]:
    """The plot as data URIs, in both themes."""
    return in_both_themes(lambda theme: draw({"": panel}, theme, size))
