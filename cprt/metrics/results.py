"""What ``metrics.json`` holds, as it travels from ``cprt eval`` and ``cprt metrics`` to comparisons, pages and cards.

A figure that is undefined is None (null), never 0. An interval is [low, high], 95%, or None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from cprt.metrics.breakdown import GroupError
from cprt.records import read_json
from cprt.values import read_fields

_LEFT_OUT = {"left_out": True}  # of a file, where it is None

Interval = Annotated[list[float], 2] | None


@dataclass(frozen=True)
class Figures:
    """How well one way to a score agrees with the truth, in the figures of the paper's 4.2.

    Accuracies of pairs are shares of the pairs of different true score that are in their order: all, between levels,
    within levels. A tie is wrong; ``*_no_ties`` leave it out.
    """

    n: int  # label rows
    coverage: float | None  # share of them with a score; all else is over these
    pearson: float | None
    spearman: float | None
    mae: float | None
    bias: float | None  # the mean of prediction minus truth
    level_accuracy: float | None
    inter_level_accuracy: float | None
    intra_level_accuracy: float | None
    pairwise_accuracy: float | None = None
    pairwise_accuracy_no_ties: float | None = None
    inter_level_accuracy_no_ties: float | None = None
    intra_level_accuracy_no_ties: float | None = None
    status_counts: dict[str, int] = field(default_factory=dict)  # also "missing": no prediction
    confusion: list[list[int]] = field(default_factory=list)  # (4, 4), rows true levels, columns predicted ones
    ci: dict[str, Interval] = field(default_factory=dict)  # name of a figure -> its interval
    ci_method: dict[str, Any] = field(default_factory=dict)
    confusion_ci: list[list[Interval]] | None = None
    sampled_pairs: dict[str, Any] = field(default_factory=dict)  # over a seeded sample of ``pairs``, with their ``ci``
    # Whether pairs within a level are told apart at all: two-sided ``p`` against 0.5.
    intra_level_against_chance: dict[str, Any] = field(default_factory=dict)
    # Of a calibrated score: on how many hold-out photos, and the map.
    fitted: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)

    def figure(self, name: str) -> float | None:
        """A figure by the name that tables know it by."""
        value: float | None = getattr(self, name)
        return value


@dataclass(frozen=True)
class Metrics(Figures):
    """``metrics.json``: the figures of the stated score, and beside them, never mixed with it:

    Attributes:
        decodings: expected, median, composed, likeliest, level_mean, mean -> the figures of that way to a score.
        calibrated: way to a score -> affine, isotonic, rising -> figures after calibration on the hold-out.
        label_mass, willing: over the photos with expected scores, ``n``, ``mean`` and ``least`` probability that was on
            scores; over structured answers, that which the free model gives them.
        attributes: how well attributes are seen (``cprt/metrics/attributes.py``).
        attribute_probabilities: how good the probabilities of attributes are, in the same file.
        calibrated_probabilities: the same after calibration on the hold-out.
        certainty: what a judge's own uncertainty is worth (``cprt/metrics/certainty.py``).
        calibrated_band: how often its bands hold the truth once they are widened as the hold-out asks for.
        errors_by: level, attributes, attribute -> group -> its errors (paper 5.3).
        against: ``n`` photos, and figure -> ``difference``, ``ci``, ``p`` to another judge on them.
    """

    decodings: dict[str, Figures] = field(default_factory=dict)
    calibrated: dict[str, dict[str, Figures]] | None = field(default=None, metadata=_LEFT_OUT)
    label_mass: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    willing: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    attributes: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    attribute_probabilities: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    calibrated_probabilities: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    certainty: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    calibrated_band: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)
    errors_by: dict[str, dict[str, GroupError]] = field(default_factory=dict)
    against: dict[str, Any] | None = field(default=None, metadata=_LEFT_OUT)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Raises InputError that names the field which is missing or no such thing."""
        return read_fields(cls, read_json(path), path, loose=True)
