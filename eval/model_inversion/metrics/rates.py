"""The arithmetic of model-inversion evaluation: what a judge and an evaluation model E say of the same images.

Everything follows from ``counts`` (..., 5, 2): how many reconstructions got each label of the judge (in the order of
``LABELS``) and E's no or yes; of K classes they are (K, 5, 2). The judge is the truth: a false positive is a
reconstruction that E accepts and the judge rejects. In arrays what is undefined is NaN, in results None; never 0.

Reconstructions of one class resemble one another, so classes are what intervals rest on (``cprt.metrics.bootstrap``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.config import option
from cprt.metrics.agreement import kappa_of_tables
from cprt.metrics.bootstrap import ClusteredShare, Figure, Floats, cluster_figure, divide, resample_clusters, student
from eval.model_inversion.metrics.join import LABELS

Counts = NDArray[Any]  # whole numbers; floats where they are totals of a resample
Interval = list[float] | None

YES, NO, REFUSED = (LABELS.index(label) for label in ("yes", "no", "refused"))


@dataclass(frozen=True)
class Counting:
    """Options of every command that counts."""

    refused_as_no: bool = option("count a refusal as a no in the 2x2 table", False)
    error_margin: float = option("how much more the judge may err than on controls, for a range", 0.1, least=0, most=1)
    resamples: int = option("resamples of the classes; 0: intervals of shares alone", 2000, least=0, most=100_000)
    seed: int = option("seed of the resamples", 0, least=0)

    @property
    def rejecting(self) -> tuple[str, ...]:
        """Labels that are a no."""
        return ("no", "refused") if self.refused_as_no else ("no",)

    @property
    def in_table(self) -> tuple[str, ...]:
        """Labels that are a yes or a no."""
        return "yes", *self.rejecting

    def weights(self, classes: int) -> Floats:
        """(B, K): how often each of K classes is in each resample."""
        return resample_clusters(classes, self.resamples, self.seed)


def table(counts: Counts, refused_as_no: bool = False) -> Counts:
    """(..., 5, 2) -> (..., 2, 2) over what the judge answered: rows judge no, yes; columns E no, yes.

    Labels other than yes and no are left out, but a refusal is a no if ``refused_as_no``.
    """
    no = counts[..., NO, :] + (counts[..., REFUSED, :] if refused_as_no else 0)
    return np.stack([no, counts[..., YES, :]], axis=-2)


def fractions(counts: Counts, refused_as_no: bool = False) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Every share as (how many, of how many), each (...,). Accuracies and refusals are over all n, the rates over the
    table."""
    (tn, fp), (fn, tp) = (np.moveaxis(row, -1, 0) for row in np.moveaxis(table(counts, refused_as_no), -2, 0))
    n = counts.sum(axis=(-2, -1))
    return {
        "accuracy_judge": (counts[..., YES, :].sum(axis=-1), n),
        "accuracy_standard": (counts[..., 1].sum(axis=-1), n),
        "fpr": (fp, fp + tn),
        "fnr": (fn, fn + tp),
        "tpr": (tp, fn + tp),
        "tnr": (tn, fp + tn),
        "refusal_rate": (counts[..., REFUSED, :].sum(axis=-1), n),
    }


def split(figures: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Interval]]:
    """What stands under a name in results, and the intervals of those that are a ``Figure``."""
    values = {name: found.value if isinstance(found, Figure) else found for name, found in figures.items()}
    return values, {name: found.interval for name, found in figures.items() if isinstance(found, Figure)}


def with_intervals(figures: Mapping[str, Any]) -> dict[str, Any]:
    """``split`` as a row of results, intervals under ``ci``."""
    values, intervals = split(figures)
    return {**values, "ci": intervals}


def measure(
    counts_K52: Counts, counting: Counting, weights_BK: Floats
) -> tuple[dict[str, Any], dict[str, ClusteredShare]]:
    """All figures of K classes, and the shares among them."""
    counts, refused_as_no = counts_K52.sum(axis=0), counting.refused_as_no
    (tn, fp), (fn, tp) = table(counts, refused_as_no).tolist()
    shares = {name: ClusteredShare.of(*share) for name, share in fractions(counts_K52, refused_as_no).items()}
    return {
        "n": int(counts.sum()),
        "classes": len(counts_K52),
        **{"tp": tp, "tn": tn, "fp": fp, "fn": fn},
        **{name: share.figure for name, share in shares.items()},
        "accuracy_gap": cluster_figure(counts_K52, accuracy_gap, weights_BK),
        "kappa": cluster_figure(counts_K52, partial(kappa, refused_as_no=refused_as_no), weights_BK),
    }, shares


def accuracy_gap(counts: Counts) -> Floats:
    """(..., 5, 2) -> (...,): accuracy under E minus accuracy under the judge."""
    of = fractions(counts)
    return divide(of["accuracy_standard"][0] - of["accuracy_judge"][0], of["accuracy_judge"][1])


def kappa(counts: Counts, refused_as_no: bool = False) -> Floats:
    """(..., 5, 2) -> (...,): Cohen's kappa of judge and E over the table."""
    tables = table(counts, refused_as_no)
    return kappa_of_tables(tables.reshape(*tables.shape[:-2], 4).astype(np.float64))


# --- A judge's own errors ----------------------------------------------------------------------------------------


def corrected(yes: ClusteredShare, hits: ClusteredShare, alarms: ClusteredShare) -> Figure:
    """The share of true yes behind a judge's share of ``yes``, given its answers to controls, and its 95% interval.

    (p - f) / (h - f) with p the share of yes, h among positive and f among negative controls (Rogan and Gladen, 1978);
    not clipped. The interval is by the delta method on shares moved towards a half (by z^2/2 successes and failures for
    p, by one each for h and f), in the manner of Lang and Reiczigel (2014): else flawless controls would count as known
    to be flawless. None where h <= f: then the judge's yes says nothing. None for the interval where only the moved
    shares say so.
    """
    p, h, f = yes.share, hits.share, alarms.share
    if p is None or h is None or f is None or hits.part * alarms.whole <= alarms.part * hits.whole:
        return Figure(None, None)
    value, z = (p - f) / (h - f), student(yes.freedom)
    (p_, n_), (h_, m_), (f_, k_) = (
        ((share.part / share.whole * (n := share.effective_n) + more) / (n + 2 * more), n + 2 * more)
        for share, more in ((yes, z * z / 2), (hits, 1), (alarms, 1))
    )
    if h_ <= f_:
        return Figure(value, None)
    centre = (p_ - f_) / (h_ - f_)
    variance = p_ * (1 - p_) / n_ + centre**2 * h_ * (1 - h_) / m_ + (1 - centre) ** 2 * f_ * (1 - f_) / k_
    half = z * math.sqrt(variance) / (h_ - f_)
    return Figure(value, [min(value, centre - half), max(value, centre + half)])


def difference(first: ClusteredShare, second: ClusteredShare) -> Figure:
    """Difference of two independent shares with Newcombe's 95% interval (1998, method 10)."""
    one, two, p1, p2 = first.interval, second.interval, first.share, second.share
    if one is None or two is None or p1 is None or p2 is None:
        return Figure(None, None)
    (low1, high1), (low2, high2) = one, two
    down, up = math.hypot(p1 - low1, high2 - p2), math.hypot(high1 - p1, p2 - low2)
    return Figure(p1 - p2, [p1 - p2 - down, p1 - p2 + up])


def by_class(rows: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Class -> counts, stacked in the order of the classes' names, which no order of a file's rows changes."""
    return np.stack([rows[name] for name in sorted(rows)])
