"""From which uncertainty on the judge abstains and a person decides: learnt on the hold-out (selective prediction)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cprt.errors import InputError
from cprt.metrics.bootstrap import mean_interval
from cprt.pages.words import counted, show
from cprt.records import Label, Prediction, column


@dataclass(frozen=True)
class Abstention:
    """A photo over whose lists the severity has a larger standard deviation than ``deviation`` is left to a person.

    Of ``rows`` labelled photos with lists these are ``left``. ``mae``: mean absolute error of the mean over lists on
    the others, beside ``mae_all`` on all of them, with 95% bootstrap intervals. Both take the deviation as given,
    which was chosen on the same photos.
    """

    deviation: float
    rows: int
    left: int
    mae: float
    mae_interval: list[float] | None
    mae_all: float
    mae_all_interval: list[float] | None

    def __str__(self) -> str:
        return (
            f"left to a person: photos whose severity is known no closer than {self.deviation:.3f} (standard "
            f"deviation), {self.left} of {counted(self.rows, 'labelled photo')}; MAE on the others "
            f"{show(self.mae, self.mae_interval)}, on all {show(self.mae_all, self.mae_all_interval)}"
        )


def abstain(labels: Sequence[Label], predictions: Sequence[Prediction], share: float, file: str) -> Abstention:
    """Leave the ``share`` of labelled photos to a person of which the judge is least certain, at most.

    Photos of equal uncertainty stay together. Raises InputError that names the ``file`` of the predictions where they
    have no lists, and where the judge would decide on no photo.
    """
    truth = {label.id: label.score for label in labels}
    deviations, means = column(predictions, "score_deviation"), column(predictions, "mean_score")
    known = [id for id in deviations if id in means and id in truth]
    if not known:
        why = "is missing: it takes cprt eval --structured true --decoding expected"
        raise InputError.at(file, why, field="score_deviation")
    uncertainty = np.array([deviations[id] for id in known])
    errors = np.array([abs(means[id] - truth[id]) for id in known])
    decided = len(known) - int(share * len(known) + 1e-9)
    if not decided:
        raise InputError.at(file, f"abstain {share:g} leaves none of {counted(len(known), 'labelled photo')}")
    deviation = float(np.sort(uncertainty)[decided - 1])
    sure = errors[uncertainty <= deviation]
    return Abstention(
        deviation=deviation,
        rows=len(known),
        left=len(known) - len(sure),
        mae=float(sure.mean()),
        mae_interval=mean_interval(sure),
        mae_all=float(errors.mean()),
        mae_all_interval=mean_interval(errors),
    )
