"""The paper's figures from our own results: a picture of each, and the numbers behind it as a table.

What the paper says of a figure in its text stands beside ours; the pictures themselves hold no numbers to compare with.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cprt import paper
from cprt.errors import InputError
from cprt.files import open_file
from cprt.pages.card import card_picture, data_card
from cprt.records import Label, read_object
from cprt.scoring import severity
from cprt.taxonomy import LEVELS, Taxonomy
from eval.counterfactual.summary import summary_table
from eval.prompts import as_text, prompts
from eval.report.plots import Panel, confusion_panel, draw, score_panel
from eval.runs import EvaluatedRun
from eval.tables import Cell, Table, beside, rounded

Made = tuple[list[Table], dict[str, bytes]]  # tables, and name -> PNG
Judges = Mapping[tuple[str, str], EvaluatedRun]  # (prompting, model) of Table 6 -> its run
_NEAR_BINARY = [
    ("Zero-Shot", "Gemini 3 Flash"),
    ("Taxonomy", "Gemini 3 Flash"),
    (paper.TUNED, "Qwen3-VL (8B) (80 steps)"),
]


# --- Figures 3 and 8 to 11: what judges say ----------------------------------------------------------------------


def judges(rows: Judges, labels: Sequence[Label], taxonomy: Taxonomy) -> Made:
    """Figure 3, and the confusion matrices and score distributions of all (8 to 11), of those rows that are there."""
    tables, pictures = list[Table](), dict[str, bytes]()

    def confusions(part: Judges) -> dict[str, Panel]:
        matrices = {row: confusion_panel(one.metrics.confusion) for row, one in part.items()}
        return {f"{model}, {prompting}": panel for (prompting, model), panel in matrices.items()}

    def scores(part: Judges) -> dict[str, Panel]:
        points = {row: score_panel(labels, one.predictions, taxonomy) for row, one in part.items()}
        return {f"{model}, {prompting}: scores": panel for (prompting, model), panel in points.items()}

    def add(table: Table, panels: Mapping[str, Panel], **how: Any) -> None:
        tables.append(table)
        pictures[table.name] = draw(panels, **how)

    drawn = rows if labels else {}
    if near := {row: drawn[row] for row in _NEAR_BINARY if row in drawn}:
        add(_scores("figure3", near, labels), confusions(near) | scores(near), columns=len(near))
    for number, family in zip((8, 9), paper.families(), strict=True):
        every = [(prompting, model) for model in family for prompting in paper.PROMPTINGS]
        if present := {row: rows[row] for row in every if row in rows}:
            add(_confusions(f"figure{number}", present), confusions(present), size=(3.4, 3.5), columns=3)
        if present := {row: drawn[row] for row in every if row in drawn}:
            add(_scores(f"figure{number + 2}", present, labels), scores(present), columns=3)
    return tables, pictures


def _confusions(name: str, rows: Judges) -> Table:
    columns = ["model", "prompting", "true level", *(f"predicted {level}" for level in LEVELS)]
    columns += [f"share {level}" for level in LEVELS]
    content: list[list[Cell]] = []
    for (prompting, model), one in rows.items():
        for level, counts in zip(LEVELS, one.metrics.confusion, strict=True):
            shares = [rounded(count / sum(counts), 3) if sum(counts) else None for count in counts]
            content.append([model, prompting, level, *counts, *shares])
    return Table(name, f"confusion of levels, the paper's Figure {name[6:]}", columns, content)


_PERCENTILES = (5, 25, 50, 75, 95)


def _scores(name: str, rows: Judges, labels: Sequence[Label]) -> Table:
    columns = ["model", "prompting", "true level", "photos", "with a score", *(f"{part}%" for part in _PERCENTILES)]
    content: list[list[Cell]] = []
    for (prompting, model), one in rows.items():
        score_of = {row.id: row.score for row in one.predictions}
        for level in LEVELS:
            of_level = [score_of.get(label.id) for label in labels if label.level == level]
            scores = [score for score in of_level if score is not None]
            parts = np.percentile(scores, _PERCENTILES).round(3).tolist() if scores else [None] * len(_PERCENTILES)
            content.append([model, prompting, level, len(of_level), len(scores), *parts])
    return Table(name, f"predicted scores by true level, the paper's Figure {name[6:]}", columns, content)


def errors(rows: Judges) -> Table:
    """What section 5.3 says: where each judge errs, and whether it tells photos within a level apart."""
    columns = ["model", "prompting", "of", "group", "photos", "with a score", "bias", "low", "high", "MAE", "p"]
    content: list[list[Cell]] = []
    for (prompting, model), one in rows.items():
        for kind, groups in one.metrics.errors_by.items():
            for group, found in groups.items():
                figures = [rounded(value, 3) for value in (found.bias, *(found.bias_ci or (None, None)), found.mae)]
                content.append([model, prompting, kind, group, found.n, found.scored, *figures, None])
        name, p = "intra_level_accuracy_no_ties", one.metrics.intra_level_against_chance.get("p")
        ends = one.metrics.ci.get(name) or (None, None)
        figures = [rounded(value, 3) for value in (one.metrics.figure(name), *ends)]
        content.append([model, prompting, "pairs within a level", "in order", None, None, *figures, None, p])
    return Table("section5.3", "where judges err, the paper's section 5.3", columns, content)


# --- Figures 4 to 7 ----------------------------------------------------------------------------------------------


@contextmanager
def as_written_by(command: str, file: str | Path) -> Iterator[None]:
    """InputError where what is read of a file is not there."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError.at(file, f"is not what {command} writes ({error})") from error


def counterfactual(folder: Path, taxonomy: Taxonomy) -> Made:
    """Figure 4, from the folder of ``cprt counterfactual``."""
    content = read_object(folder / "summary.json")
    with as_written_by("cprt counterfactual", folder / "summary.json"):
        table = summary_table(content)
    named = replace(table, name="figure4", caption="scores as if all faces were anonymised, the paper's Figure 4")
    return [named], {"figure4": _picture(folder / "change.png")}


def boundaries(folder: Path, taxonomy: Taxonomy) -> Made:
    """Figures 5 and 6, from the folder of ``cprt boundaries``; the bands that follow beside the paper's."""
    content, rows = read_object(folder / "boundaries.json"), list[list[Cell]]()
    with as_written_by("cprt boundaries", folder / "boundaries.json"):
        for level, low in zip(LEVELS, taxonomy.lower_bounds, strict=True):
            band = content["bands"].get(str(level))
            ranges = [content["spread"][kind].get(str(level), {}) for kind in ("seeds", "settings")]
            ends = [rounded(of_kind.get(end), 3) for of_kind in ranges for end in ("lowest", "highest")]
            rows.append([level, *beside(None if band is None else band["lower"], low, 3), *ends])
    columns = ["level", "lower end", "paper", "difference"]
    columns += [f"{end} over {kind}" for kind in ("seeds", "settings") for end in ("lowest", "highest")]
    table = Table("figure5", "bands that follow from the embedding of the paper's Figure 5", columns, rows)
    return [table], {"figure5": _picture(folder / "embeddings.png"), "figure6": _picture(folder / "scores.png")}


def scoring(taxonomy: Taxonomy) -> Table:
    """The numbers that the paper gives with Figure 6: two worked examples, and how many combinations there are."""
    rows: list[list[Cell]] = []
    for counts, lexicographic, score in paper.figure6()["examples"]:
        fits = all(count <= size for count, size in zip(counts, taxonomy.sizes, strict=True))
        found = sum(count * weight for count, weight in zip(counts, taxonomy.weights, strict=True))
        name = f"({', '.join(map(str, counts))})"
        rows.append([f"{name}, lexicographic score", *beside(found if fits else None, lexicographic, 0)])
        rows.append([f"{name}, severity score", *beside(severity(counts, taxonomy).score if fits else None, score, 3)])
    combinations = math.prod(size + 1 for size in taxonomy.sizes)
    rows.append(["combinations of counts", *beside(combinations, paper.figure6()["combinations"], 0)])
    return Table("figure6", "the score, the paper's Figure 6", ["", "ours", "paper", "difference"], rows)


def splits(parts: Mapping[str, Sequence[Label]], taxonomy: Taxonomy) -> Made:
    """Figure 7: photos a level and attribute of the evaluation split and the one that training draws from."""
    card, published = data_card(parts, taxonomy), paper.figure7()
    columns = ["", *(f"{name}{what}" for name in parts for what in ("", " paper", " difference"))]
    counts = {name: {"all": part["pairs"], **part["levels"], **part["attributes"]} for name, part in card.items()}
    heads = {"all": "all", **{str(level): f"level {level}" for level in LEVELS}, **{key: key for key in taxonomy.keys}}
    rows: list[list[Cell]] = []
    for key, head in heads.items():
        cells = [beside(counts[name][key], published.get(name, {}).get(key), 0) for name in parts]
        rows.append([head, *itertools.chain.from_iterable(cells)])
    table = Table("figure7", "photos a level and attribute, the paper's Figure 7", columns, rows)
    return [table], {"figure7": card_picture(card, taxonomy)}


def _picture(file: Path) -> bytes:
    with open_file(file) as content:
        return content.read()


# --- Figures 12 to 16: prompts -----------------------------------------------------------------------------------

_PROMPT_FIGURES = {
    "figure12": "zero_shot",
    "figure13": "intuition",
    "figure14": "taxonomy",
    "figure15": "annotation-stage1",
    "figure16": "annotation-stage2",
}


def prompt_texts(taxonomy: Taxonomy) -> dict[str, str]:
    """Figure -> the prompt of ours that stands for it, as it is sent; the paper shows its own as pictures."""
    found: dict[str, Any] = dict(prompts(taxonomy))
    return {figure: as_text(found[name]) for figure, name in _PROMPT_FIGURES.items()}
