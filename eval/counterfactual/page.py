"""The page of ``cprt counterfactual``: each photo's answers side by side, as it is and with every face anonymised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.files import write_text
from cprt.pages.listing import Cell, Column, Columns, Part, cell, level, listing
from cprt.pages.render import figure, render
from cprt.pages.thumbnails import inside, thumbnails
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import Case
from eval.counterfactual.summary import parts

_ANSWER = 900  # characters of an answer that are shown


def write_page(
    out: Path,
    rows: Sequence[Mapping[str, Any]],
    cases: Sequence[Case],
    summary: Mapping[str, Any],
    taxonomy: Taxonomy,
    images_root: Path | None,
) -> None:
    """Write ``report.html``. Small pictures of the photos are in it where ``images_root`` is given."""
    pictures: dict[str, str] = {}
    if images_root is not None:
        files = {case.id: inside(images_root, case.image) for case in cases}
        pictures = thumbnails({id: file for id, file in files.items() if file is not None}, out / "thumbnails")
    by_photo = {(row["id"], row["run"]): row for row in rows}
    picture_of = {id: number for number, id in enumerate(pictures)}

    def truth(case: Case) -> Cell:
        before: list[Part] = [level(case.level_before), figure(case.truth_before)]
        after: list[Part] = [("without faces", "quiet"), level(case.level_after), figure(case.truth_after)]
        return cell(figure(case.truth_after), before, after)

    def answers(run: str) -> Callable[[Case], Cell]:
        return lambda case: _answers(by_photo[case.id, run], taxonomy)

    columns: Columns = (
        (Column("Photo", "id"), lambda case: cell(case.id, [case.id], picture=picture_of.get(case.id))),
        (Column("Group", choose=True), lambda case: case.group),
        (Column("Truth"), truth),
        *((Column(run), answers(run)) for run in summary["runs"]),
    )
    page = render(
        "counterfactual",
        title=f"Would judges see the risk without faces? {len(cases)} photos",
        selection=summary["selection"],
        figures=parts(summary),
        asked={run: figures["prompt"] for run, figures in summary["runs"].items()},
        answers=listing("answers", cases, columns, size=25),
        pictures=list(pictures.values()),
        shows_pictures=True,
    )
    write_text(out / "report.html", page)


def _answers(row: Mapping[str, Any], taxonomy: Taxonomy) -> Cell:
    """What one run said of one photo: at first, to the plain question again, and with faces anonymised."""
    lines: list[Sequence[Part]] = []
    asked = [("as it is", "before", "text_before", "ok"), ("again", "again", "text_again", row["status_again"])]
    for head, score, text, status in [*asked, ("faces anonymised", "after", "text", row["status"])]:
        if status is None:  # the plain question was not asked again
            continue
        if row[score] is None:
            lines.append([(head, "quiet"), ("no score" if status == "ok" else status, "flag")])
        else:
            lines.append([(head, "quiet"), level(level_of(row[score], taxonomy)), figure(row[score])])
        if row[text]:
            lines.append([row[text] if len(row[text]) <= _ANSWER else row[text][: _ANSWER - 1] + "…"])
    value = [figure(row[name]) for name in ("before", "again", "after")]
    return cell(value, *lines)
