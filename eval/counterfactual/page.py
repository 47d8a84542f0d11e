"""What ``cprt counterfactual`` shows: each photo's answers side by side on a page, and every score in a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.files import write_bytes, write_text
from cprt.pages.colors import LEVEL_COLORS
from cprt.pages.listing import Cell, Column, Columns, Part, cell, level, listing
from cprt.pages.plots import png
from cprt.pages.render import figure, render
from cprt.pages.thumbnails import thumbnails_in
from cprt.pages.words import cut
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import GROUPS, Case
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
    pictures = thumbnails_in(images_root, {case.id: case.image for case in cases}, out / "thumbnails")
    by_photo = {(row["id"], row["run"]): row for row in rows}
    picture_of = {id: number for number, id in enumerate(pictures)}

    def truth(case: Case) -> Cell:
        after: list[Part] = [("without faces", "quiet"), level(case.level_after), figure(case.truth_after)]
        return cell(figure(case.truth_after), [level(case.level_before), figure(case.truth_before)], after)

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
            lines.append([cut(row[text], _ANSWER)])
    value = [figure(row[name]) for name in ("before", "again", "after")]
    return cell(value, *lines)


# --- The picture -------------------------------------------------------------------------------------------------

_COLORS = {"face": "#d6604d", "id": "#762a83", "other": "#1b7837"}
_TITLES = {"face": "face, no ID", "id": "government ID", "other": "neither"}


def draw(path: Path, rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], taxonomy: Taxonomy) -> None:
    """A panel for each run and group, written as PNG.

    A thin line is one photo, the thick one the run's mean, the dotted one its mean where the plain question was asked
    again, the dashed black one the truth's mean over the same photos. The bands of the levels are shaded. A photo
    without a score before and after cannot be drawn; each panel says how many.
    """
    from matplotlib.figure import Figure

    groups = [group for group in GROUPS if any(row["group"] == group for row in rows)]
    picture = Figure(figsize=(1.4 + 2.5 * len(groups), 0.9 + 3.0 * len(summary["runs"])), layout="constrained")
    grid = picture.subplots(len(summary["runs"]), len(groups), sharex=True, sharey=True, squeeze=False)
    for panels, (run, of_run) in zip(grid, summary["runs"].items(), strict=True):
        for panel, group in zip(panels, groups, strict=True):
            own = [row for row in rows if row["run"] == run and row["group"] == group]
            scored = [row for row in own if row["before"] is not None and row["after"] is not None]
            part, color = of_run[group], _COLORS[group]
            for (low, top), shade in zip(taxonomy.bands, LEVEL_COLORS, strict=True):
                panel.axhspan(low, top, color=shade, alpha=0.10, linewidth=0)
            for row in scored:
                panel.plot([0, 1], [row["before"], row["after"]], color=color, alpha=0.3, linewidth=0.8)
            if scored:
                panel.plot([0, 1], [part["before"], part["after"]], color=color, linewidth=3, label="mean of the run")
                if part["self_change"] is not None:
                    again = [part["before"], part["before"] + part["self_change"]]
                    panel.plot([0, 1], again, color=color, linestyle=":", linewidth=2, label="asked again")
                truth = [part["truth_before"], part["truth_after"]]
                panel.plot([0, 1], truth, color="black", linestyle="--", linewidth=1.6, label="truth")
            lost = f", {len(own) - len(scored)} without a score" if len(scored) < len(own) else ""
            panel.set_title(f"{_TITLES[group]} (n = {len(scored)}{lost})", fontsize=9)
            panel.set(xlim=(-0.25, 1.25), ylim=(0, 1))
            panel.set_xticks([0, 1], ["as it is", "faces\nanonymised"])
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel(f"{run}\nseverity score", fontsize=9)
    handles = [panel for row in grid for panel in row if panel.get_legend_handles_labels()[0]]
    if handles:
        handles[0].legend(loc="lower left", fontsize=8, frameon=False)
    write_bytes(path, png(picture))
