"""The paper's figures from our own results: a picture of each, and the numbers behind it as a table.

What the paper says of a figure in its text stands beside ours; the pictures themselves hold no numbers to compare with.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cprt import paper
from cprt.errors import InputError
from cprt.files import open_file
from cprt.metrics.results import Metrics
from cprt.pages.card import card_picture, data_card
from cprt.records import Label, read_object, read_predictions
from cprt.scoring import severity
from cprt.taxonomy import LEVELS, Taxonomy
from eval.counterfactual.summary import summary_table
from eval.prompts import as_text, prompts
from eval.report.plots import Panel, confusion_panel, draw, score_panel
from eval.tables import Cell, Table, beside, rounded

Made = tuple[list[Table], dict[str, bytes]]  # tables, and name -> PNG
_PROMPTINGS = ("Zero-Shot", "Intuition", "Taxonomy")
_FAMILIES = (
    (
        "Gemini 3 Flash",
        "GPT-5.2",
        "Llama 4 Maverick",
        "Llama 3.2-VL (11B)",
        "Llama 3.2 (160 steps)",
        "Llama 3.2 (80 steps)",
    ),
    (
        "MiniCPM-V (8B)",
        "Pixtral (12B)",
        "Qwen3-VL (32B)",
        "Qwen3-VL (8B)",
        "Qwen3-VL (2B) (80 steps)",
        "Qwen3-VL (4B) (80 steps)",
        "Qwen3-VL (8B) (80 steps)",
    ),
)
_NEAR_BINARY = [
    ("Zero-Shot", "Gemini 3 Flash"),
    ("Taxonomy", "Gemini 3 Flash"),
    (paper.TUNED, "Qwen3-VL (8B) (80 steps)"),
]


@dataclass(frozen=True)
class Judged:
    """A run of ``cprt eval``: its folder's name, what it was asked, its metrics.json and what that holds."""

    name: str
    prompt: str
    file: Path
    metrics: Metrics

    @property
    def scores(self) -> Path:
        """Its predictions, which need not be there."""
        return self.file.with_name("predictions.jsonl")


# --- Figures 3 and 8 to 11: what judges say ----------------------------------------------------------------------


def judges(rows: Mapping[tuple[str, str], Judged], labels: Sequence[Label], taxonomy: Taxonomy) -> Made:
    """Figure 3, and the confusion matrices and score distributions of all (8 to 11), of those rows that are there."""
    tables, pictures = [], {}
    drawn = {row for row, one in rows.items() if labels and one.scores.is_file()}
    names = {(prompting, model): f"{model}, {prompting}" for prompting, model in rows}

    def confusions(present: Sequence[tuple[str, str]]) -> dict[str, Panel]:
        return {names[row]: confusion_panel(rows[row].metrics.confusion) for row in present}

    def scores(present: Sequence[tuple[str, str]]) -> dict[str, Panel]:
        panels = {row: score_panel(labels, read_predictions(rows[row].scores), taxonomy) for row in present}
        return {f"{names[row]}: scores": panel for row, panel in panels.items()}

    near = [row for row in _NEAR_BINARY if row in drawn]
    if near:
        pictures["figure3"] = draw(confusions(near) | scores(near), columns=len(near))
        tables.append(_scores("figure3", near, rows, labels))
    for number, family in zip((8, 9), _FAMILIES, strict=True):
        every = itertools.product(family, (*_PROMPTINGS, paper.TUNED))
        present = [(prompting, model) for model, prompting in every if (prompting, model) in rows]
        if present:
            pictures[f"figure{number}"] = draw(confusions(present), size=(3.4, 3.5), columns=3)
            tables.append(_confusions(f"figure{number}", present, rows))
        present = [row for row in present if row in drawn]
        if present:
            pictures[f"figure{number + 2}"] = draw(scores(present), columns=3)
            tables.append(_scores(f"figure{number + 2}", present, rows, labels))
    return tables, pictures


def _confusions(name: str, present: Sequence[tuple[str, str]], rows: Mapping[tuple[str, str], Judged]) -> Table:
    columns = ["model", "prompting", "true level", *(f"predicted {level}" for level in LEVELS)]
    columns += [f"share {level}" for level in LEVELS]
    content: list[list[Cell]] = []
    for prompting, model in present:
        for level, counts in zip(LEVELS, rows[prompting, model].metrics.confusion, strict=True):
            shares = [rounded(count / sum(counts), 3) if sum(counts) else None for count in counts]
            content.append([model, prompting, level, *counts, *shares])
    return Table(name, f"confusion of levels, the paper's Figure {name[6:]}", columns, content)


_PERCENTILES = (5, 25, 50, 75, 95)


def _scores(
    name: str, present: Sequence[tuple[str, str]], rows: Mapping[tuple[str, str], Judged], labels: Sequence[Label]
) -> Table:
    columns = ["model", "prompting", "true level", "photos", "with a score", *(f"{part}%" for part in _PERCENTILES)]
    content: list[list[Cell]] = []
    for prompting, model in present:
        score_of = {row.id: row.score for row in read_predictions(rows[prompting, model].scores)}
        for level in LEVELS:
            of_level = [score_of.get(label.id) for label in labels if label.level == level]
            scores = [score for score in of_level if score is not None]
            parts = np.percentile(scores, _PERCENTILES).round(3).tolist() if scores else [None] * len(_PERCENTILES)
            content.append([model, prompting, level, len(of_level), len(scores), *parts])
    return Table(name, f"predicted scores by true level, the paper's Figure {name[6:]}", columns, content)


def errors(rows: Mapping[tuple[str, str], Judged]) -> Table:
    """What section 5.3 says: where each judge errs, and whether it tells photos within a level apart."""
    columns = ["model", "prompting", "of", "group", "photos", "with a score", "bias", "low", "high", "MAE", "p"]
    content: list[list[Cell]] = []
    for (prompting, model), one in rows.items():
        for kind, groups in one.metrics.errors_by.items():
            for group, found in groups.items():
                ends = found.bias_ci or (None, None)
                figures = [rounded(value, 3) for value in (found.bias, *ends, found.mae)]
                content.append([model, prompting, kind, group, found.n, found.scored, *figures, None])
        order, chance = one.metrics.intra_level_accuracy_no_ties, one.metrics.intra_level_against_chance
        ends = one.metrics.ci.get("intra_level_accuracy_no_ties") or (None, None)
        figures = [rounded(value, 3) for value in (order, *ends)]
        content.append(
            [model, prompting, "pairs within a level", "in order", None, None, *figures, None, chance.get("p")]
        )
    return Table("section5.3", "where judges err, the paper's section 5.3", columns, content)


# --- Figures 4 to 7 ----------------------------------------------------------------------------------------------


def counterfactual(folder: Path, taxonomy: Taxonomy) -> Made:
    """Figure 4, from the folder of ``cprt counterfactual``."""
    file = folder / "summary.json"
    try:
        table = summary_table(read_object(file))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError.at(file, f"is not what cprt counterfactual writes ({error})") from error
    named = Table("figure4", "scores as if all faces were anonymised, the paper's Figure 4", table.columns, table.rows)
    return [named], {"figure4": _picture(folder / "change.png")}


def boundaries(folder: Path, taxonomy: Taxonomy) -> Made:
    """Figures 5 and 6, from the folder of ``cprt boundaries``; the bands that follow beside the paper's."""
    file, rows = folder / "boundaries.json", list[list[Cell]]()
    content = read_object(file)
    try:
        for level, low in zip(LEVELS, taxonomy.lower_bounds, strict=True):
            band = content["bands"].get(str(level))
            ranges = [content["spread"][kind].get(str(level), {}) for kind in ("seeds", "settings")]
            ends = [rounded(of_kind.get(end), 3) for of_kind in ranges for end in ("lowest", "highest")]
            rows.append([level, *beside(None if band is None else band["lower"], low, 3), *ends])
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError.at(file, f"is not what cprt boundaries writes ({error})") from error
    columns = ["level", "lower end", "paper", "difference", "lowest over seeds", "highest over seeds"]
    columns += ["lowest over settings", "highest over settings"]
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
    combinations = len(list(itertools.product(*(range(size + 1) for size in taxonomy.sizes))))
    rows.append(["combinations of counts", *beside(combinations, paper.figure6()["combinations"], 0)])
    return Table("figure6", "the score, the paper's Figure 6", ["", "ours", "paper", "difference"], rows)


def splits(parts: Mapping[str, Sequence[Label]], taxonomy: Taxonomy) -> tuple[Table, bytes]:
    """Figure 7: photos a level and attribute of the evaluation split and the one that training draws from."""
    card = data_card(parts, taxonomy)
    published: dict[str, dict[str, int]] = paper.figure7()
    columns = ["", *(f"{name}{what}" for name in parts for what in ("", " paper", " difference"))]
    rows: list[list[Cell]] = []

    def add(head: str, ours: Mapping[str, int], key: str) -> None:
        cells = [beside(ours[name], published.get(name, {}).get(key), 0) for name in parts]
        rows.append([head, *itertools.chain.from_iterable(cells)])

    add("all", {name: part["pairs"] for name, part in card.items()}, "all")
    for level in LEVELS:
        add(f"level {level}", {name: part["levels"][str(level)] for name, part in card.items()}, str(level))
    for key in taxonomy.keys:
        add(key, {name: part["attributes"][key] for name, part in card.items()}, key)
    table = Table("figure7", "photos a level and attribute, the paper's Figure 7", columns, rows)
    return table, card_picture(card, taxonomy)


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
