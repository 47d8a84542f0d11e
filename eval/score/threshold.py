"""What is learnt on labelled photos that took no part in training (the hold-out): which score to flag photos from, and
how wide bands must be.

Precision depends on how common level 1 is among the photos: it is said over which mix of levels it holds, and can be
re-weighted to the mix of the photos that are to be scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cprt.errors import InputError
from cprt.guidance.risk import BAND
from cprt.metrics.bootstrap import apart, wilson_interval
from cprt.metrics.calibration import band_margin
from cprt.pages.words import show
from cprt.records import Label, Prediction, column
from cprt.taxonomy import LEVELS


@dataclass(frozen=True)
class Threshold:
    """Photos with a score of ``score`` or more are flagged; recall and precision are those of true level 1.

    A photo without a score is not flagged: of level 1, it counts as missed. Intervals are 95% (Wilson's; of those of
    the levels where precision is re-weighted), and take the threshold as given: it was chosen on the same rows, so
    that recall on new photos is a little lower on average. ``population`` are the shares of levels 1 to 4 that
    precision holds for, ``by`` is which score, one of FLAG_BY. ``band_margin``: see
    ``cprt.metrics.calibration.band_margin``, over ``band_rows`` photos; None where predictions have no bands, or too
    few.
    """

    score: float
    recall: float
    recall_interval: list[float] | None
    precision: float
    precision_interval: list[float] | None
    population: list[float]
    rows: int
    level_1: int
    flagged: int
    without_score: int
    level_1_without_score: int
    predictions_left_aside: int
    by: str = "stated"
    band_margin: float | None = None
    band_rows: int = 0

    def __str__(self) -> str:
        mix = " / ".join(f"{share:.0%}" for share in self.population)
        line = (
            f"flag_above {math.floor(self.score * 1e6 + 1e-6) / 1e6:g} by the {self.by} score: recall of level 1 "
            f"{show(self.recall, self.recall_interval)}, precision {show(self.precision, self.precision_interval)} "
            f"where levels 1 to 4 are {mix} of the photos "
            f"({self.flagged} of {self.rows} labelled photos flagged, {self.level_1} are of level 1; "
            f"{self.without_score} had no score, {self.level_1_without_score} of them of level 1)"
        )
        others = self.predictions_left_aside
        line += f"; {others} predictions are of other photos" if others else ""
        if self.band_margin is not None:
            line += f"; {BAND:.0%} bands are widened by {self.band_margin:.3f} ({self.band_rows} labelled photos)"
        return line


def choose(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    recall: float,
    file: str,
    population: Sequence[float] = (),
) -> Threshold:
    """The highest score that flags at least the share ``recall`` of photos of true level 1.

    Args:
        labels: which photos count: predictions of others, such as those that the model was trained on, are left aside.
        file: the predictions, for errors.
        population: shares (or counts) of levels 1 to 4 to re-weight precision to; none: as the labels are.

    Raises InputError: no photo of level 1, a recall that no threshold reaches because too many photos have no score, a
    share of a level of which there is no labelled photo.
    """
    truth = {label.id: label.score for label in labels}
    labelled = [row for row in predictions if row.id in truth]
    if not labelled:
        raise InputError.at(file, "not one id of the labels is among its predictions: they are of other photos")
    bands, scores = column(labelled, "score_band"), column(labelled, "score")
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
    by_level = [sum(one.level == level and scores.get(one.id, -1.0) >= score for one in labels) for level in LEVELS]
    counts = [sum(label.level == level for label in labels) for level in LEVELS]
    precision, precision_interval = by_level[0] / sum(by_level), wilson_interval(by_level[0], sum(by_level))
    if population:
        for level, share, count in zip(LEVELS, population, counts, strict=True):
            if share and not count:
                raise InputError.at(file, f"no labelled photo is of level {level}, whose share is given")
        precision, precision_interval = reweighted_precision(by_level, counts, population)
    mix = [share / sum(population or counts) for share in (population or counts)]
    return Threshold(
        score=score,
        recall=by_level[0] / len(severe),
        recall_interval=wilson_interval(by_level[0], len(severe)),
        precision=precision,
        precision_interval=precision_interval,
        population=mix,
        rows=len(labels),
        level_1=len(severe),
        flagged=sum(by_level),
        without_score=len(labels) - len(scores),
        level_1_without_score=len(severe) - len(found),
        predictions_left_aside=len(predictions) - len(labelled),
        band_margin=band_margin([*bands.values()], [truth[id] for id in bands], BAND),
        band_rows=len(bands),
    )


def reweighted_precision(
    flagged: Sequence[int], counts: Sequence[int], population: Sequence[float]
) -> tuple[float, list[float] | None]:
    """Precision among photos of which ``population`` are the shares (or counts) of levels 1 to 4, and its 95% interval.

    Of ``counts`` labelled photos a level, ``flagged`` are flagged, at least one of level 1. With the shares s of each
    level that are flagged, precision is p = T / (T + F), T the flagged of level 1 and F of all others. p lies in the
    interval where that of T (1 - p) - F p, made of Wilson's for each s, holds 0 (MOVER: Zou and Donner, 2008; Donner
    and Zou, 2012), so that no false alarm among 80 photos of level 4 is not taken for certain. None where the
    population leaves nothing to estimate.
    """
    shares, below, above = [], [], []  # the flagged of each level in the population, and how far the bounds are off
    for part, whole, share in zip(flagged, counts, population, strict=True):
        low, high = wilson_interval(part, whole) or (0.0, 0.0)
        found = part / max(whole, 1)
        shares.append(share * found)
        below.append(share * (found - low))
        above.append(share * (high - found))
    true, false = shares[0], sum(shares[1:])
    if not true or not sum(population[1:]):
        return float(bool(true)), None

    def precision(odds: float) -> float:
        return odds / (1 + odds)

    def root(of_true: float, of_false: float) -> float:
        # of (T - odds F)^2 = of_true^2 + odds^2 of_false^2
        return math.sqrt(max(0.0, (false * of_true) ** 2 + of_false**2 * (true**2 - of_true**2)))

    less, more = math.hypot(*above[1:]), math.hypot(*below[1:])
    lowest = precision((true**2 - below[0] ** 2) / (true * false + root(below[0], less)))
    highest = precision((true * false + root(above[0], more)) / (false**2 - more**2)) if false else 1.0
    return true / (true + false), apart([lowest, highest])
