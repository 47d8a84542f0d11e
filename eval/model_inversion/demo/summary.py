"""What came of the demo: who accepts how many of each kind of reconstruction, and whether the judge is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.tables import read_csv
from eval.model_inversion.demo.bench import KINDS, BenchSetup, truth_file

ADVERSARIAL = ("someone else", "nobody")
_KIND_HEADS = {
    "true": "the private person",
    "someone else": "someone else, changed",
    "nobody": "nobody, changed",
    "failure": "someone else",
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
        lines.append(f"{_KIND_HEADS[kind]:<24}{row['n']:>5}{row['T']:>7}{row['E']:>7}{row['judge']:>11}{right:>13}")
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
