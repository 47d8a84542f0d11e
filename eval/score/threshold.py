"""Which score to flag photos from, chosen on labelled photos that took no part in training (the hold-out)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cprt.errors import InputError
from cprt.metrics.severity import wilson_interval
from cprt.records import Label, Prediction


@dataclass(frozen=True)
class Threshold:
    """Photos with a score of ``score`` or more are flagged; recall and precision are those of true level 1.

    A photo without a score is not flagged: of level 1, it counts as missed. Intervals are 95% (Wilson), and take the
    threshold as given: it was chosen on the same rows, so that recall on new photos is a little lower on average.
    """

    score: float
    recall: float
    recall_interval: list[float] | None
    precision: float
    precision_interval: list[float] | None
    rows: int
    level_1: int
    flagged: int
    without_score: int
    level_1_without_score: int
    predictions_left_aside: int

    def __str__(self) -> str:
        low, high = self.recall_interval or [0, 1]
        return (
            f"flag_above {self.score}: recall of level 1 {self.recall:.3f} [{low:.3f}, {high:.3f}], precision "
            f"{self.precision:.3f} ({self.flagged} of {self.rows} photos flagged, {self.level_1} are of level 1; "
            f"{self.without_score} had no score, {self.level_1_without_score} of them of level 1)"
            + (
                f"; {self.predictions_left_aside} predictions are of other photos"
                if self.predictions_left_aside
                else ""
            )
        )


def choose(labels: Sequence[Label], predictions: Sequence[Prediction], recall: float, file: str) -> Threshold:
    """The highest score that flags at least the share ``recall`` of photos of true level 1.

    ``labels`` say which photos count: predictions of others, such as those that the model was trained on, are left
    aside. Raises InputError that names ``file``, the predictions: no photo of level 1, or a recall that no threshold
    reaches because too many photos have no score.
    """
    ids = {label.id for label in labels}
    scores = {row.id: row.score for row in predictions if row.score is not None and row.id in ids}
    severe = [label.id for label in labels if label.level == 1]
    if not severe:
        raise InputError.at(file, "no labelled photo is of level 1: no recall to choose by")
    found = sorted((scores[id] for id in severe if id in scores), reverse=True)
    # One score after another from the top: the first with enough level-1 photos at or above it.
    needed = next((count for count in range(1, len(found) + 1) if count / len(severe) >= recall), None)
    if needed is None:
        most = len(found) / len(severe)
        raise InputError.at(
            file,
            f"no threshold has recall {recall:g}: {len(severe) - len(found)} of {len(severe)} photos of level 1 "
            f"have no score, so that it is {most:.3f} at most",
        )
    score = found[needed - 1]
    flagged = sum(other >= score for other in scores.values())
    hits = sum(other >= score for other in found)
    return Threshold(
        score=score,
        recall=hits / len(severe),
        recall_interval=wilson_interval(hits, len(severe)),
        precision=hits / flagged,
        precision_interval=wilson_interval(hits, flagged),
        rows=len(labels),
        level_1=len(severe),
        flagged=flagged,
        without_score=len(labels) - len(scores),
        level_1_without_score=len(severe) - len(found),
        predictions_left_aside=sum(row.id not in ids for row in predictions),
    )
