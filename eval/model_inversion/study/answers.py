"""What people said: filled sheets as verdicts of judges, the majority among them, and how far all agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cprt.errors import InputError
from cprt.metrics.agreement import MISSING, krippendorff_alpha
from cprt.metrics.bootstrap import ClusteredShare
from cprt.tables import read_csv, write_csv
from eval.model_inversion.compare.statistics import agreement, joint, pooled, stacked
from eval.model_inversion.metrics.join import Key, Verdict, read_judge
from eval.model_inversion.study.sheets import SHEET, Asked, read_number

MAJORITY = "majority"
_ANSWERS = {"yes": "yes", "no": "no", "unsure": "refused"}  # a person who cannot tell gives no verdict

Said = Mapping[int, str]  # number of a picture -> label


def read_sheet(path: Path, key: Mapping[int, Asked]) -> dict[int, str]:
    """What one person said; a cell that is empty is no answer. Raises InputError."""
    found: dict[int, str] = {}
    for line, row in read_csv(path).need(SHEET):
        number = read_number(row["number"], path, line)
        if number not in key or row["picture"] != key[number].picture:
            raise InputError.at(path, f"{number} is not that picture in the key: another study?", line, "number")
        if number in found:
            raise InputError.at(path, f"{number} is there twice", line, "number")
        answer = row["answer"].lower()
        if answer and answer not in _ANSWERS:
            raise InputError.at(path, f"{row['answer']!r} is not one of {', '.join(_ANSWERS)}", line, "answer")
        if answer:
            found[number] = _ANSWERS[answer]
    if not found:
        raise InputError.at(path, "has no answers in it")
    return found


def majority(sheets: Sequence[Said]) -> dict[int, str]:
    """What more people say than its opposite; a tie is no verdict (refused)."""
    votes: dict[int, Counter[str]] = {}
    for sheet in sheets:
        for number, label in sheet.items():
            votes.setdefault(number, Counter())[label] += 1
    return {
        number: "refused" if count["yes"] == count["no"] else "yes" if count["yes"] > count["no"] else "no"
        for number, count in votes.items()
    }


def alpha(sheets: Sequence[Said], numbers: Sequence[int]) -> float | None:
    """Krippendorff's, over yes and no."""
    values = {"yes": 1, "no": 0}
    cells = [[values.get(sheet.get(number, ""), MISSING) for number in numbers] for sheet in sheets]
    return krippendorff_alpha(np.asarray(cells, dtype=np.int8)) if len(sheets) > 1 else None


def write_verdicts(folder: Path, said: Said, key: Mapping[int, Asked]) -> None:
    """As ``cprt mi`` writes those of a judge: FOLDER/SETUP/judge.csv, and controls.csv in every set-up."""
    asked = [(key[number], label) for number, label in sorted(said.items())]
    controls = [(a.kind, a.file, a.claims, "", label) for a, label in asked if a.kind != "reconstruction"]
    for setup in sorted({a.setup for a, _ in asked if a.kind == "reconstruction"}):
        rows = [(a.file, a.claims, "", label) for a, label in asked if a.setup == setup and a.kind == "reconstruction"]
        write_csv(folder / setup / "judge.csv", ("filename", "class", "response", "label"), rows)
        write_csv(folder / setup / "controls.csv", ("kind", "filename", "class", "response", "label"), controls)


def control_rates(said: Said, key: Mapping[int, Asked]) -> dict[str, Any]:
    """Hit and false-alarm rate of a person, of what it answered with yes or no."""
    rates = {}
    for kind, name in (("positive", "hit_rate"), ("negative", "false_alarm_rate")):
        of_kind = [(key[number].claims, label) for number, label in said.items() if key[number].kind == kind]
        answered = [(claims, label == "yes") for claims, label in of_kind if label in ("yes", "no")]
        classes = sorted({claims for claims, _ in answered})
        parts = [[yes for claims, yes in answered if claims == name_] for name_ in classes]
        share = ClusteredShare.of([sum(part) for part in parts], [len(part) for part in parts])
        rates[name] = {"n": share.whole, "rate": share.share, "ci": share.interval}
    return rates


def with_judges(
    said: Said, key: Mapping[int, Asked], run: Path, names: Mapping[str, str], resamples: int, seed: int
) -> list[dict[str, Any]]:
    """How far what people say agrees with every judge of ``run``, on the reconstructions that both answered.

    Args:
        names: id of a set-up -> its name.
    """
    of_setup: dict[str, dict[Key, Verdict]] = {}
    for number, label in said.items():
        if key[number].kind == "reconstruction":
            claims = key[number].claims
            plain = claims.lstrip("0") or "0" if claims.isascii() and claims.isdigit() else claims
            of_setup.setdefault(key[number].setup, {})[plain, key[number].file] = Verdict(label, claims, "")
    found = []
    for judge in sorted({path.parent.parent for path in run.glob("*/*/judge.csv")}):
        tables = {}
        for setup, people in of_setup.items():
            file = judge / setup / "judge.csv"
            if file.is_file():
                verdicts = {key: row for key, row in read_judge(file).items() if row.label != "not_shown"}
                tables[names.get(setup, setup)] = joint(people, verdicts, people)
        if tables:
            counted = agreement(stacked(pooled(tables)), refused_as_no=False, resamples=resamples, seed=seed)
            found.append({"judge": judge.name, **counted})
    return found
