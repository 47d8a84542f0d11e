"""What people said: filled sheets as verdicts of judges, the majority among them, and how far all agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cprt.answers.yes_no import NOT_SHOWN
from cprt.errors import InputError
from cprt.metrics.agreement import MISSING, alpha_of_terms, alpha_terms
from cprt.metrics.bootstrap import ClusteredShare, cluster_figure
from cprt.tables import read_csv
from eval.model_inversion.collection.places import plain_class
from eval.model_inversion.compare.inputs import find_verdicts, read_config
from eval.model_inversion.compare.statistics import agreement, pooled, shared, stacked
from eval.model_inversion.metrics.join import Key, Row, Verdict, read_judge, write_verdicts
from eval.model_inversion.metrics.rates import Counting, with_intervals
from eval.model_inversion.study.sheets import SHEET, Asked

MAJORITY = "majority"
_ANSWERS = {"yes": "yes", "no": "no", "unsure": "refused"}  # a person who cannot tell gives no verdict

Said = Mapping[str, str]  # number of a picture -> label
Setups = Mapping[str, tuple[str, str]]  # id -> name and private data


def read_sheet(path: Path, key: Mapping[str, Asked]) -> dict[str, str]:
    """What one person said; a cell that is empty is no answer. Raises InputError."""
    found: dict[str, str] = {}
    for line, row in read_csv(path).need(SHEET):
        number, answer = row["number"], row["answer"].lower()
        if number not in key or row["picture"] != key[number].picture:
            raise InputError.at(path, f"{number} is not that picture in the key: another study?", line, "number")
        if number in found:
            raise InputError.at(path, f"{number} is there twice", line, "number")
        if answer and answer not in _ANSWERS:
            raise InputError.at(path, f"{row['answer']!r} is not one of {', '.join(_ANSWERS)}", line, "answer")
        if answer:
            found[number] = _ANSWERS[answer]
    if not found:
        raise InputError.at(path, "has no answers in it")
    return found


def majority(sheets: Sequence[Said]) -> dict[str, str]:
    """What more people say than its opposite; a tie is no verdict (refused)."""
    votes: dict[str, Counter[str]] = {}
    for sheet in sheets:
        for number, label in sheet.items():
            votes.setdefault(number, Counter())[label] += 1
    return {
        number: "refused" if count["yes"] == count["no"] else "yes" if count["yes"] > count["no"] else "no"
        for number, count in votes.items()
    }


def alpha(sheets: Sequence[Said], classes: Mapping[str, str], counting: Counting) -> dict[str, Any]:
    """Krippendorff's, over yes and no, with its 95% interval over ``classes``, by the number of a reconstruction."""
    values = {"yes": 1, "no": 0}
    cells = np.asarray([[values.get(sheet.get(number, ""), MISSING) for number in classes] for sheet in sheets])
    names, place = np.unique(list(classes.values()), return_inverse=True)
    sums = np.zeros((len(names), 3))
    np.add.at(sums, place, alpha_terms(cells.astype(np.int8)))
    return with_intervals({"alpha": cluster_figure(sums, alpha_of_terms, counting.weights(len(names)))})


def write_rater(folder: Path, said: Said, key: Mapping[str, Asked], setups: Setups) -> None:
    """As ``cprt mi`` writes those of a judge: FOLDER/SETUP/judge.csv, and beside it controls of its private data."""
    controls: dict[str, list[tuple[str, *Row]]] = {}
    of_setup: dict[str, list[Row]] = {}
    for number, asked in key.items():
        if number in said:
            row = (asked.file, asked.claims, "", said[number])
            if asked.kind == "reconstruction":
                of_setup.setdefault(asked.setup, []).append(row)
            else:
                controls.setdefault(setups[asked.setup][1], []).append((asked.kind, *row))
    for setup, rows in of_setup.items():
        write_verdicts(folder / setup, rows, controls.get(setups[setup][1], []))


def class_of(asked: Asked, setups: Setups) -> str:
    """The class with its private data: other data may have classes of the same name."""
    return f"{setups[asked.setup][1]}/{asked.claims}"


def control_rates(said: Said, key: Mapping[str, Asked], setups: Setups) -> dict[str, Any]:
    """Hit and false-alarm rate of a person, of what it answered with yes or no."""
    rates = {}
    for name, kind in (("hit_rate", "positive"), ("false_alarm_rate", "negative")):
        rows = [(class_of(key[number], setups), label) for number, label in said.items() if key[number].kind == kind]
        share = ClusteredShare.of_rows(rows, ("yes",), ("yes", "no"))
        rates[name] = {"n": share.whole, "rate": share.share, "ci": share.interval}
    return rates


def with_judges(
    raters: Mapping[str, Said], key: Mapping[str, Asked], run: Path, setups: Setups, counting: Counting
) -> list[dict[str, Any]]:
    """How far what each rater says agrees with every judge of ``run``, on the reconstructions that both answered."""
    private = {id: private for id, (_, private) in setups.items()}
    judges: dict[str, dict[str, dict[Key, Verdict]]] = {}
    for file in find_verdicts(run, read_config(run), setups):
        shown = {key: row for key, row in read_judge(file).items() if row.label != NOT_SHOWN}
        judges.setdefault(file.parent.parent.name, {})[file.parent.name] = shown
    found = []
    for rater, said in raters.items():
        of_setup: dict[str, dict[Key, Verdict]] = {}
        for one, label in ((key[number], label) for number, label in said.items()):
            if one.kind == "reconstruction":
                of_rater = of_setup.setdefault(one.setup, {})
                of_rater[plain_class(one.claims), one.file] = Verdict(label, one.claims, "")
        for judge, of_judge in judges.items():
            tables = pooled(shared(of_setup, of_judge), private)
            found.append({"rater": rater, "judge": judge, **agreement(stacked(tables), counting)})
    return found
