"""The verdicts that the public collection brings along: those of its judges and of the evaluation models, as CSV files.

In the folder of a set-up, ``PRIVATE/ATTACK/PUBLIC/TARGET``, lie ``prediction.csv`` (E) and ``gemini_results_MODEL.csv``
(a judge; other judges of the public code likewise). Nothing is asked of anybody: they are tabulated as they are.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cprt.errors import InputError
from cprt.services.hub import limit_patience, reason
from eval.model_inversion.collection.places import IMAGES, inner_folders, setup_name
from eval.model_inversion.compare.inputs import Run, private_data
from eval.model_inversion.metrics.evaluation import Inputs

REPO = "hosytuyen/MI-Reconstruction-Collection"
_PREDICTIONS = "prediction.csv"
_RESULTS = re.compile(r"(?!user_study)(?P<prefix>\w+?)_results_(?P<model>.+)\.csv")
RELEASED = "released"  # before the name of a judge, so that a new run of the same model is another


def download(root: str) -> None:
    """The collection's tables from the Hub, without its images; says its licence. Raises InputError.

    What is there already and the same is not fetched again.
    """
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, snapshot_download

    limit_patience()
    try:
        found = HfApi().dataset_info(REPO)
        snapshot_download(REPO, repo_type="dataset", revision=found.sha, local_dir=root, allow_patterns="*.csv")
    except (OSError, ValueError, HTTPError) as error:
        raise InputError(f"{REPO}: {reason(error)}; or put its CSV files in {root} yourself") from error
    licence = found.card_data.get("license") if found.card_data else None
    print(f"{root}: the tables of {REPO} at {found.sha}; licence by its card: {licence or 'none is stated'}")


def read_released(root: str) -> tuple[list[Run], dict[str, str]]:
    """The runs of judges below ``root``, and E's file of every set-up by its name; one without the other is noted.

    Raises InputError where there are none.
    """
    if not Path(root).is_dir():
        raise InputError.at(root, "is not a folder")
    runs: list[Run] = []
    standards: dict[str, str] = {}
    half: list[str] = []
    for directory, folders, files in os.walk(root):
        folders[:] = inner_folders(folders)
        folder = Path(directory)
        name = setup_name(folder, Path(root)) or folder.name
        results = [match for file in sorted(files) if (match := _RESULTS.fullmatch(file)) is not None]
        if (_PREDICTIONS in files) != bool(results):
            half.append(name)
        if _PREDICTIONS not in files:
            continue
        if name in standards:
            raise InputError.at(folder, f"is there twice, also as {Path(standards[name]).parent}")
        standards[name] = str(folder / _PREDICTIONS)
        images = folder / IMAGES if (folder / IMAGES).is_dir() else None
        for match in results:
            judge, inputs = f"{RELEASED}/{match['model']}", Inputs(str(folder / match[0]), standards[name])
            runs.append(Run(name, private_data(name), judge, inputs, judge, images=images))
    if not standards:
        raise InputError.at(root, f"has no {_PREDICTIONS} in it, as the public collection's set-ups have")
    if not runs:
        raise InputError.at(root, "has no verdicts of a judge in it, such as gemini_results_gemini-2.0-flash.csv")
    for name in half:
        print(f"note: {root}: {name} has no verdicts of {'a judge' if name in standards else 'E'} and is left out")
    return runs, standards
