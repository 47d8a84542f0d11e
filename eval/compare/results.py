"""What ``compare.json`` holds, as it travels: written by ``cprt compare``, read by its page and by Weights & Biases."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from cprt.metrics.results import Figures, Interval


@dataclass(frozen=True)
class Headline:
    """The figures of Table 3 of one run and their intervals under ``ci``; None where undefined."""

    pearson: float | None
    spearman: float | None
    mae: float | None
    bias: float | None
    level_accuracy: float | None
    inter_level_accuracy: float | None
    intra_level_accuracy: float | None
    coverage: float | None
    ci: dict[str, Interval]

    @classmethod
    def of(cls, figures: Figures, **more: Any) -> Self:
        """The same fields of other figures, and ``more``."""
        shared = [field.name for field in fields(cls) if field.name not in more]
        return cls(**{name: getattr(figures, name) for name in shared}, **more)


@dataclass(frozen=True)
class RunFigures(Headline):
    """A run of the comparison, with its ``confusion`` (rows true levels, columns predicted) and answers by status."""

    confusion: list[list[int]]
    status_counts: dict[str, int]


@dataclass(frozen=True)
class CurvePoint(Headline):
    """A run as a point of a training: after how many steps."""

    step: int
    run: str


@dataclass(frozen=True)
class Difference:
    """One figure of a run minus that of another; all None where it is undefined in either.

    Attributes:
        ci: 95% paired bootstrap interval, None where all resamples say the same; Newcombe's (1998) of coverage.
        p, p_holm: two-sided, and after Holm's correction for all differences of the comparison.
        beyond_noise: whether p_holm is below the correction's alpha.
    """

    difference: float | None
    ci: Interval
    p: float | None
    p_holm: float | None
    beyond_noise: bool | None


@dataclass(frozen=True)
class PairDifferences:
    """``run`` minus ``against`` over the ``n`` photos that both scored: figure -> difference.

    ``coverage``, over all photos, is corrected apart, with the coverage of the other pairs alone.
    """

    run: str
    against: str
    n: int
    figures: dict[str, Difference]
    coverage: Difference


@dataclass(frozen=True)
class Spread:
    """One figure over the seeds of a recipe; ``sd`` is the sample's."""

    mean: float
    sd: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one recipe that differ in their seed alone: figure -> its spread, None where undefined in any run."""

    runs: list[str]
    seeds: list[int]
    figures: dict[str, Spread | None]


@dataclass(frozen=True)
class Correction:
    """How differences were tested: Holm's ``method`` (1979) for all ``tests`` at ``alpha``, and the bootstrap."""

    method: str
    tests: int
    alpha: float
    resamples: int
    seed: int


@dataclass(frozen=True)
class Comparison:
    """``compare.json``.

    Attributes:
        n: photos with a label.
        curves: training -> its points, rising in step.
        seeds: recipe -> spread of its figures over seeds.
    """

    n: int
    runs: dict[str, RunFigures]
    differences: list[PairDifferences]
    correction: Correction
    curves: dict[str, list[CurvePoint]]
    seeds: dict[str, SeedGroup]
