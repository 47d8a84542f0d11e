"""What came of the demo, in figures and as a picture: who accepts which kinds of reconstructions, and who is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cprt.files import write_bytes
from cprt.images import load_image
from cprt.pages.plots import png
from cprt.tables import read_csv
from eval.model_inversion.demo.bench import KINDS, BenchSetup, truth_file

ADVERSARIAL = ("someone else", "nobody")
_YES, _NO = "#1b7837", "#a50026"
_COLUMNS = 6
# Kind -> what it is and shows, beside its pictures; its head in the table.
_IN_WORDS = {
    "true": ("true:\nthe private person", "the private person"),
    "someone else": ("adversarial:\nsomeone else", "someone else, changed"),
    "nobody": ("adversarial:\nnobody", "nobody, changed"),
    "failure": ("failure:\nsomeone else", "someone else"),
}


def verdicts(out: Path, setup: BenchSetup, judge: str) -> list[dict[str, Any]]:
    """A row for each reconstruction: class, filename, kind, and whether T, E and the judge accept it."""
    said: dict[tuple[str, str], dict[str, Any]] = {}
    for _, row in read_csv(truth_file(out, setup)).rows:
        said[row["class"], row["filename"]] = {**row, "true": row["kind"] == "true"}
    for who, path, column in (
        ("T", out / "target" / setup.id / "prediction.csv", "prediction"),
        ("E", out / "standard" / setup.id / "prediction.csv", "prediction"),
        ("judge", out / "judges" / judge / setup.id / "judge.csv", "label"),
    ):
        for _, row in read_csv(path).rows:
            said[row["class"], row["filename"]][who] = row[column] == "yes"
    return list(said.values())


def by_kind(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many of each kind T, E and the judge accept, and how often the judge is right."""
    kinds = {}
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        kinds[kind] = {
            "n": len(of_kind),
            **{who: sum(row[who] for row in of_kind) for who in ("T", "E", "judge")},
            "judge_right": sum(row["judge"] == row["true"] for row in of_kind),
        }
    return kinds


def table(summary: Mapping[str, Any]) -> str:
    """Who accepts how many of each kind, and the judge's own accuracy."""
    lines = [f"{'what it really shows':<24}{'n':>5}{'T yes':>7}{'E yes':>7}{'judge yes':>11}{'judge right':>13}"]
    for kind, row in summary["kinds"].items():
        right = f"{row['judge_right'] / row['n']:.1%}" if row["n"] else "-"
        lines.append(f"{_IN_WORDS[kind][1]:<24}{row['n']:>5}{row['T']:>7}{row['E']:>7}{row['judge']:>11}{right:>13}")
    judge = summary["judge"]
    pairs = f"{judge['controls']} + {judge['controls']} control pairs of private people"
    rates = f"yes to {judge['hit_rate']:.1%} of pairs of one person, to {judge['false_alarm_rate']:.1%} of two"
    return "\n".join([*lines, "", f"The judge on {pairs}: {rates}."])


def shown(summary: Mapping[str, Any]) -> str:
    """The demo's claim in one line, with its limit."""
    kinds = summary["kinds"]
    n, by_e, by_judge = (sum(kinds[kind][what] for kind in ADVERSARIAL) for what in ("n", "E", "judge"))
    true = kinds["true"]
    return (
        f"Shown: of {n} adversarial pictures, none of the private person, E accepts {by_e} and the judge {by_judge}; "
        f"of {true['n']} true ones the judge misses {true['n'] - true['judge']}."
    )


def draw(path: Path, private: Path, images: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The first reconstruction of each kind of each of the first people, as PNG: not chosen by outcome.

    ``private`` and ``images`` are folders of CLASS/FILE, ``rows`` as ``verdicts`` has them.
    """
    from matplotlib.figure import Figure

    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        first.setdefault((row["kind"], row["class"]), row)
    of_kind = {kind: [row for (other, _), row in first.items() if other == kind][:_COLUMNS] for kind in KINDS}
    columns = max(map(len, of_kind.values()))
    figure = Figure(figsize=(1.5 + 2.1 * columns, 1.55 * len(of_kind) + 0.6))
    grid = figure.subplots(len(of_kind), columns, squeeze=False)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(1.5 / width, 0.3 / height, 0.995, 1 - 0.55 / height, wspace=0.08, hspace=0.35)
    figure.suptitle("left: the private person; right: the reconstruction that claims to show them", fontsize=10)
    for axes, (kind, shown) in zip(grid, of_kind.items(), strict=True):
        for axis in axes:
            axis.axis("off")
        for axis, row in zip(axes, shown, strict=False):
            person = load_image(sorted((private / row["class"]).iterdir())[0])
            image = load_image(images / row["class"] / row["filename"])
            gap = np.full((image.height, 2, 3), 255, dtype=np.uint8)
            axis.imshow(np.hstack([np.asarray(person), gap, np.asarray(image)]))
            for place, who in ((0.17, "T"), (0.47, "E"), (0.8, "judge")):
                said, color = ("yes", _YES) if row[who] else ("no", _NO)
                style: dict[str, Any] = {"color": color, "ha": "center", "va": "top", "fontsize": 8}
                axis.text(place, -0.03, f"{who} {said}", transform=axis.transAxes, **style)
        axes[0].text(-0.08, 0.5, _IN_WORDS[kind][0], transform=axes[0].transAxes, ha="right", va="center", fontsize=9)
    write_bytes(path, png(figure))
