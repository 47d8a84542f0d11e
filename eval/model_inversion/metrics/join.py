"""Who said what about which reconstruction: the CSV files of judges and classifiers, and their join by class and file.

Columns are found by name, in any order; columns that are not needed are ignored.

* a judge: ``filename, label``, and maybe ``class`` and ``response``, as the public code and ``cprt mi`` write them
* an evaluation model, a target model: ``filename, prediction`` (yes or no), and maybe ``class``
* natural images of other classes, as an evaluation model or the target took them: the same
* a judge's controls, as ``cprt mi`` writes them: ``kind, filename, class, response, label``; positive pairs show one
  class and negative ones two, those ``_degraded`` with the image spoiled to the quality of reconstructions

Without a ``class`` column the class is the folder that the file lies in, else what follows ``T=`` in its name, with
which column and folder agree where they are numbers; class 007 is class 7. A file name is never matched without its
class: attacks name their files alike in every class.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.answers.yes_no import LABELS, NOT_SHOWN
from cprt.errors import InputError
from cprt.tables import read_csv, write_csv
from eval.model_inversion.collection.places import claimed_class, plain_class

CONTROLS = {  # kind -> the rate that yes to it makes
    "positive": "hit_rate",
    "negative": "false_alarm_rate",
    "positive_degraded": "hit_rate",
    "negative_degraded": "false_alarm_rate",
}
_SPELLINGS = {"refuse": "refused"}  # the public code's
_IDENTITY = re.compile(r"ID=[0-9]+_T=[0-9]+(?=[_.])")
_EXAMPLES = 5
_MIX_UPS = {
    "label": ("prediction", "a classifier's file where a judge's belongs?"),
    "prediction": ("label", "a judge's file where a classifier's belongs?"),
}

COLUMNS = ("filename", "class", "response", "label")
Key = tuple[str, str]  # class, name of the file
Row = tuple[str, str, str, str]  # filename, class, response, label


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row: ``label`` is one of LABELS, from a classifier yes or no; all else is as given, empty where nothing is.

    ``response`` is a judge's, ``confidence`` a classifier's.
    """

    label: str
    claims: str
    response: str
    confidence: str = ""


def write_verdicts(folder: Path, images: Iterable[Row], controls: Iterable[tuple[str, *Row]] | None = None) -> None:
    """judge.csv and controls.csv of a judge on one set-up, the kind first in rows of controls."""
    write_csv(folder / "judge.csv", COLUMNS, images)
    if controls is not None:
        write_csv(folder / "controls.csv", ("kind", *COLUMNS), controls)


def read_judge(path: str | Path) -> dict[Key, Verdict]:
    """A judge's verdicts. Raises InputError that names line and column, also for a row that is there twice."""
    return _by_key(path, "label", (*LABELS, NOT_SHOWN))


def read_classifier(path: str | Path) -> dict[Key, Verdict]:
    """Whether a classifier took each reconstruction for the private class. Raises InputError as ``read_judge``."""
    return _by_key(path, "prediction", LABELS[:2])


def read_naturals(path: str | Path, target: str | Path | None = None) -> dict[str, Counter[bool]]:
    """How many natural images of other classes a classifier accepted, by the class they were tried as.

    The folder of such an image is its own class, not the one it was tried as: a ``class`` column says that one, and
    with it an image may be there once a class; without, every image counts as a class of its own. ``target`` is the
    same of the target model: then only images that it accepts count, as only such reconstructions do.

    Raises InputError.
    """
    accepted = _accepted(path)
    by_target = accepted if target is None else _accepted(target)
    missing = [key for key in accepted if key not in by_target]
    if missing:
        raise InputError.at(str(target), f"has no row for {_show(missing[0])} of {path} (of {len(missing)} such)")
    counts: dict[str, Counter[bool]] = {}
    for (claims, name), is_accepted in accepted.items():
        if target is None or by_target[claims, name]:
            counts.setdefault(claims or f"/{name}", Counter())[is_accepted] += 1
    return counts


def _accepted(path: str | Path) -> dict[Key, bool]:
    """(class that it was tried as, path) -> whether it was accepted."""
    seen: dict[Key, int] = {}
    accepted = {}
    for line, row, label in _rows(path, "prediction", LABELS[:2]):
        key = row.get("class", ""), row["filename"]
        _once(seen, key, path, line)
        accepted[key] = label == "yes"
    return accepted


def read_controls(path: str | Path) -> dict[str, dict[str, Counter[str]]]:
    """Kind -> class of the references -> how often a judge gave each label. Raises InputError.

    Pairs that could not be shown are no part of it. A file without a ``class`` column takes each pair for a class.
    """
    seen: dict[tuple[str, ...], int] = {}
    counts: dict[str, dict[str, Counter[str]]] = {kind: {} for kind in CONTROLS}
    for line, row, label in _rows(path, "label", (*LABELS, NOT_SHOWN), "kind"):
        kind = row["kind"].lower()
        if kind not in CONTROLS:
            raise InputError.at(path, f"{row['kind']!r} is not one of {', '.join(CONTROLS)}", line, "kind")
        _once(seen, (kind, row.get("class", ""), row["filename"]), path, line)
        if label != NOT_SHOWN:
            counts[kind].setdefault(row.get("class", row["filename"]), Counter())[label] += 1
    return counts


def named_like(rows: dict[Key, Verdict], others: Mapping[Key, Verdict]) -> tuple[dict[Key, Verdict], str]:
    """``rows`` under the names that ``others`` have for the same images, and by what they were told to be the same.

    They stay as they are where any file is in both. Else it is class and ``ID=.._T=..`` of the name, by which the
    public code joins, since what follows may differ between its files; rows that would coincide are not renamed.
    """
    if rows.keys() & others.keys():
        return rows, "class and file"
    names = {_short(key): key for key in others}
    renamed = {names.get(_short(key), key): verdict for key, verdict in rows.items()}
    if len(names) == len(others) and len(renamed) == len(rows) and renamed.keys() & others.keys():
        return renamed, "class, ID and T"
    return rows, "class and file"


def _short(key: Key) -> Key:
    match = _IDENTITY.match(key[1])
    return (key[0], match[0]) if match else key


def join_report(
    here: Mapping[Key, Verdict], there: Mapping[Key, Verdict], files: Sequence[str | Path]
) -> dict[str, Any]:
    """How the rows of a judge (``here``) and of a classifier (``there``) meet, ready for JSON.

    ``files`` are their paths, for the error. Raises InputError if they share no reconstruction at all.
    """
    only_here, only_there = ([key for key in a if key not in b] for a, b in ((here, there), (there, here)))
    matched = len(here) - len(only_here)
    if not matched:
        names = {name for _, name in here} & {name for _, name in there}
        hint = f"; {len(names)} file names are in both, under other classes" if names else ""
        shown = f"here for example {_show(only_here[0])}, there {_show(only_there[0])}"
        raise InputError.at(files[0], f"shares no reconstruction with {files[1]}{hint}: {shown}")
    return {
        "matched": matched,
        "only_judge": len(only_here),
        "only_standard": len(only_there),
        "only_judge_examples": list(map(_show, only_here[:_EXAMPLES])),
        "only_standard_examples": list(map(_show, only_there[:_EXAMPLES])),
    }


def _show(key: Key) -> str:
    return "/".join(key)


# --- Rows of one file --------------------------------------------------------------------------------------------


def _by_key(path: str | Path, column: str, allowed: Sequence[str]) -> dict[Key, Verdict]:
    seen: dict[Key, int] = {}
    verdicts: dict[Key, Verdict] = {}
    for line, row, label in _rows(path, column, allowed):
        claims, name = _place(row, path, line)
        key = plain_class(claims), name
        _once(seen, key, path, line)
        verdicts[key] = Verdict(label, claims, row.get("response", ""), row.get("confidence", ""))
    return verdicts


def _place(row: dict[str, str], path: str | Path, line: int) -> tuple[str, str]:
    """Class as stated, and name of the file without folders."""
    *folders, name = [part for part in re.split(r"[\\/]", row["filename"]) if part not in ("", ".", "..")] or [""]
    if not name:
        raise InputError.at(path, f"{row['filename']!r} is no file name", line, "filename")
    if row.get("class") == "":
        raise InputError.at(path, "is empty", line, "class")
    folder = row.get("class") or (folders[-1] if folders else None)
    return claimed_class(folder, name, path, line, "filename"), name


def _once(seen: dict[Any, int], key: tuple[str, ...], path: str | Path, line: int) -> None:
    if key in seen:
        what = f"{'/'.join(filter(None, key))!r} is there already in line {seen[key]}"
        raise InputError.at(path, what, line, "filename")
    seen[key] = line


def _rows(
    path: str | Path, column: str, allowed: Sequence[str], *needed: str
) -> Iterator[tuple[int, dict[str, str], str]]:
    """(line on which it starts, column -> cell, label in ``column``) of every row. ``filename`` is needed too."""
    table = read_csv(path)
    if "kind" in table.columns and "kind" not in needed:
        raise table.fail("kind", "is a column of controls, which belong to --controls")
    other, mix_up = _MIX_UPS[column]
    if column not in table.columns and other in table.columns:
        raise table.fail(column, f"is missing from the header, which has {other!r}: {mix_up}")
    for line, row in table.need(("filename", column, *needed)):
        if not row["filename"]:
            raise InputError.at(path, "is empty", line, "filename")
        word = row[column].lower()
        word = _SPELLINGS.get(word, word)
        if not word:
            unread = " beside a response: judge it first, responses are not read here" if row.get("response") else ""
            raise InputError.at(path, f"is empty{unread}", line, column)
        if word not in allowed:
            shown = row[column] if len(row[column]) <= 60 else row[column][:57] + "..."
            raise InputError.at(path, f"{shown!r} is not one of {', '.join(allowed)}", line, column)
        yield line, row, word
