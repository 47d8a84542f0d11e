"""The photos of the counterfactual experiment, and their truth with every face anonymised (paper 5.4.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cprt.errors import InputError
from cprt.guidance.advice import compose
from cprt.records import Label, Prediction
from cprt.taxonomy import Taxonomy
from cprt.vispr import read_annotation

FACES, IDS = "biometrics", "gov_ids"
GROUPS = ("face", "id", "other")
VISPR_FINGERPRINT = "a7_fingerprint"


@dataclass(frozen=True)
class Case:
    """One photo. ``group``: "id" shows a government ID (and perhaps a face), "face" a face and no ID, "other" neither.

    ``truth_after`` and ``level_after`` are recomputed without biometrics; for "other" they are those from before, and
    so they are where ``fingerprint``: VISPR says that a fingerprint is to be seen, which no anonymised face removes.
    """

    id: str
    image: str
    group: str
    truth_before: float
    level_before: int
    truth_after: float
    level_after: int
    fingerprint: bool


def confident(labels: Sequence[Label], runs: Mapping[str, Mapping[str, Prediction]], tolerance: float) -> list[Label]:
    """Labels on which every run has a score within ``tolerance`` of the truth."""
    kept = []
    for label in labels:
        scores = [run[label.id].score if label.id in run else None for run in runs.values()]
        if all(score is not None and abs(score - label.score) < tolerance for score in scores):
            kept.append(label)
    return kept


def make_case(label: Label, fingerprints: set[str], taxonomy: Taxonomy) -> Case:
    """The case of one photo. ``fingerprints``: stems of the photos that VISPR says show one."""
    assert label.image is not None
    present = label.present(taxonomy)
    fingerprint = Path(label.image).stem in fingerprints
    score, level = label.score, label.level
    if FACES in present and not fingerprint:
        after = compose([key for key in present if key != FACES], taxonomy)
        score, level = after.score, after.level
    group = "id" if IDS in present else "face" if FACES in present else "other"
    return Case(label.id, label.image, group, label.score, label.level, score, level, fingerprint)


def select(cases: Sequence[Case], size: int, share: float, seed: int) -> tuple[list[Case], dict[str, Any]]:
    """A seeded draw of ``size`` cases, in order of id, and a report on it.

    The share ``share`` shows a face or an ID, both in equal number as far as they go; the rest are others, which should
    not react at all. What one of face and ID lacks the other gives, and they fill up for the others; others never
    fill up for them, so that the draw stays mostly of level 1.
    """
    rng = np.random.default_rng(seed)
    pools: dict[str, list[Case]] = {}
    for group in GROUPS:
        members = sorted((case for case in cases if case.group == group), key=lambda case: case.id)
        pools[group] = [members[i] for i in rng.permutation(len(members))]
    dominant = round(share * size)
    wanted = {"face": dominant - dominant // 2, "id": dominant // 2, "other": size - dominant}
    taken = {group: min(wanted[group], len(pools[group])) for group in GROUPS}
    for group in ("face", "id"):
        taken[group] += min(size - sum(taken.values()), len(pools[group]) - taken[group])
    chosen = [case for group in GROUPS for case in pools[group][: taken[group]]]
    report = {
        "wanted": wanted,
        "available": {group: len(pools[group]) for group in GROUPS},
        "taken": taken,
        "unfilled": size - len(chosen),
        "kept_fingerprints": sum(case.fingerprint for case in chosen),
    }
    return sorted(chosen, key=lambda case: case.id), report


def read_fingerprints(folder: str | None, photos: Collection[str]) -> set[str]:
    """Those of the ``photos``, stems, whose VISPR annotation, anywhere under ``folder``, names a fingerprint.

    Raises InputError, also where none of them has an annotation there.
    """
    if folder is None:
        return set()
    files = [file for file in sorted(Path(folder).rglob("*.json")) if file.stem in photos]
    if not files:
        raise InputError.at(folder, f"holds an annotation (STEM.json) of none of the {len(photos)} photos")
    return {file.stem for file in files if VISPR_FINGERPRINT in read_annotation(file, file.stem)[1]}
