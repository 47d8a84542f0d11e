"""Agreement of annotators on which attributes an image makes inferable (paper 4.1, Table 2, appendix D).

An item is one attribute of one image. An answer is 1 or 0, or ``MISSING`` where an annotator gave none; arrays put
annotators first: (R, ...). ``measure`` gives the whole report, overall, by level and by attribute, with intervals. What
is not defined is None, never 0 or NaN: Cohen's kappa where both annotators gave one and the same answer throughout,
alpha where everybody did, anything without an item to count.

Kappa of several pairs: the paper does not say how it gets one figure from many people of whom any two share an image or
two, and of one item kappa is 0 or undefined. Here the agreement observed is that over all items of all pairs, and the
agreement expected by chance comes from how often each annotator answers 1 to the items compared. Of one pair it is
Cohen's kappa, and where everybody answered everything it is Conger's (1980).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cprt.metrics.bootstrap import CONFIDENCE, Floats, Weights, defined, divide, interval, resample
from cprt.taxonomy import LEVELS, Taxonomy

Answers = NDArray[np.int8]

MISSING = -1
KINDS = ("human", "model")


def majority(answers: ArrayLike) -> Answers:
    """(R, ...) -> (...): 1 where more annotators answered 1 than 0, else 0, also in a tie (appendix D).

    ``MISSING`` where nobody answered.
    """
    zeros, ones = _counts(checked(answers))
    vote = np.where(ones > zeros, 1, 0)
    return np.where(zeros + ones > 0, vote, MISSING).astype(np.int8)


# --- The whole report --------------------------------------------------------------------------------------------


def measure(
    answers: ArrayLike,
    annotators: Sequence[str],
    kinds: Sequence[str],
    taxonomy: Taxonomy,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Agreement of (R, N, A) answers by R annotators, by name and kind ("human" or "model"), about N images.

    Returns a dict, ready for JSON. Each of its figures is given ``overall``, for ``levels`` and for ``attributes``,
    with the number ``n`` of items it rests on and 95% percentile intervals under ``ci``, over resamples of the images
    that a comparison has (None where a figure is undefined, or is so in more than 5% of the resamples).

    * ``human_human``: ``agreement`` by strict consensus; over all pairs of humans ``pairwise_agreement`` and ``kappa``;
      ``alpha``.
    * ``model_human``: every model, and all ``pooled``, against the majority of humans: ``agreement``, ``kappa``,
      ``over_rate`` (share of 1 where the majority says 0), ``under_rate`` (of 0 where it says 1),
      ``signed_difference``.
    * ``model_model``: every pair of models, and all ``pooled``: ``agreement``, ``kappa``.
    * ``alpha``: Krippendorff's, among ``humans``, ``models`` and ``all``.
    * ``pairs``: agreement and kappa of any two annotators; intervals overall only.

    Raises ValueError on shapes, kinds or answers that do not fit.
    """
    values = checked(answers)
    if values.ndim != 3 or values.shape[::2] != (len(annotators), len(taxonomy.keys)) or len(kinds) != len(annotators):
        raise ValueError(f"answers of {len(annotators)} annotators need ({len(annotators)}, N, {len(taxonomy.keys)})")
    if not set(kinds) <= set(KINDS):
        raise ValueError("kinds are human or model")
    report = _Report(taxonomy, resamples, seed)
    humans, models = ([i for i, kind in enumerate(kinds) if kind == wanted] for wanted in KINDS)
    vote = majority(values[humans])
    model_pairs, with_vote = list(combinations(models, 2)), [(i, len(models)) for i in range(len(models))]
    return {
        "human_human": report.consensus(values[humans]),
        "model_human": {
            "pooled": report.pairs([*values[models], vote], with_vote, _DEVIATIONS),
            "models": {annotators[i]: report.pairs([values[i], vote], [(0, 1)], _DEVIATIONS) for i in models},
        },
        "model_model": {
            "pooled": report.pairs(values, model_pairs),
            "pairs": [
                {"annotators": [annotators[i], annotators[j]], **report.pairs(values, [(i, j)])} for i, j in model_pairs
            ],
        },
        "alpha": {
            name: report.alpha(part)
            for name, part in (("humans", values[humans]), ("models", values[models]), ("all", values))
        },
        "pairs": [
            {
                "annotators": [annotators[i], annotators[j]],
                "kinds": [kinds[i], kinds[j]],
                **report.pairs(values, [(i, j)], intervals_of_parts=False),
            }
            for i, j in combinations(range(len(annotators)), 2)
        ],
        "ci_method": {
            "confidence": CONFIDENCE,
            "bootstrap": "percentile, over images",
            "resamples": resamples,
            "seed": seed,
        },
    }


class _Report:
    """Sums of terms over images, in the data and in every resample, and the figures that follow from them."""

    def __init__(self, taxonomy: Taxonomy, resamples: int, seed: int):
        self.taxonomy = taxonomy
        levels = np.asarray([attribute.level for attribute in taxonomy.attributes])
        one_hot = (levels[:, None] == np.asarray(LEVELS)).astype(np.float64)
        self.parts = np.hstack([np.ones((len(levels), 1)), one_hot, np.eye(len(levels))])  # (A, S): who is in which
        self._weights: Callable[[int], Weights] = lru_cache(1)(partial(resample, resamples=resamples, seed=seed))

    def sums(self, terms: Floats, images: ArrayLike) -> Floats:
        """(N, A, C) terms -> (1 + resamples, S, C): the data first. Equal ``images`` (N,) give equal resamples."""
        chosen = terms[np.asarray(images, dtype=bool)]
        flat = chosen.reshape(len(chosen), -1) if len(chosen) else np.zeros((0, terms.shape[1] * terms.shape[2]))
        found = (flat.sum(axis=0, keepdims=True), *(weights.T @ flat for weights in self._weights(len(flat))))
        of_attributes = np.concatenate(found).reshape(-1, *terms.shape[1:])
        return np.einsum("bac,as->bsc", of_attributes, self.parts)

    def consensus(self, humans: Answers) -> dict[str, Any]:
        """(H, N, A) answers of humans."""
        terms = consensus_terms(humans)
        images = terms[..., 1].any(axis=1)
        agreed, items = np.moveaxis(self.sums(terms, images), -1, 0)
        pooled = self.pooled(humans, list(combinations(range(len(humans)), 2)))
        figures = {
            "agreement": divide(agreed, items),
            "pairwise_agreement": pooled["agreement"],
            "kappa": pooled["kappa"],
            "alpha": alpha_of_terms(self.sums(alpha_terms(humans), images)),
        }
        return self.entries(items[0], figures)

    def pairs(
        self,
        answers: Sequence[Answers] | Answers,
        pairs: list[tuple[int, int]],
        more: dict[str, Callable[[Floats], Floats]] | None = None,
        intervals_of_parts: bool = True,
    ) -> dict[str, Any]:
        """Pairs among (N, A) answers. ``more``: name -> figure of the (..., 4) table of all pairs together."""
        pooled = self.pooled(answers, pairs)
        figures = {"agreement": pooled["agreement"], "kappa": pooled["kappa"]}
        figures |= {name: figure(pooled["table"]) for name, figure in (more or {}).items()}
        return self.entries(pooled["table"][0].sum(axis=-1), figures, intervals_of_parts)

    def pooled(self, answers: Sequence[Answers] | Answers, pairs: list[tuple[int, int]]) -> dict[str, Floats]:
        """(1 + resamples, S, 4) ``table`` of all pairs together, and (1 + resamples, S) ``agreement`` and ``kappa``.

        Chance: E = sum over pairs of n_ab sum_c p_a(c) p_b(c), with n_ab the items of a pair and p_a(c) the share of c
        among the answers of a to items that a partner of a answered too.
        """
        compared: dict[int, NDArray[np.bool_]] = {}
        for i, j in pairs:
            both = (answers[i] != MISSING) & (answers[j] != MISSING)
            compared[i], compared[j] = compared.get(i, False) | both, compared.get(j, False) | both
        images = np.any([items.any(axis=1) for items in compared.values()], axis=0) if pairs else []
        table = self.sums(np.zeros((len(answers[0]) if pairs else 0, len(self.parts), 4)), images)
        expected = np.zeros(table.shape[:-1])
        shares: dict[int, Floats] = {}
        for i, items in compared.items():
            said = np.stack([items & (answers[i] == c) for c in (0, 1)], axis=-1)
            counts = self.sums(said.astype(np.float64), images)
            shares[i] = np.nan_to_num(divide(counts, counts.sum(axis=-1, keepdims=True)))
        for i, j in pairs:
            of_pair = self.sums(pair_terms(answers[i], answers[j]), images)
            table += of_pair
            expected += of_pair.sum(axis=-1) * (shares[i] * shares[j]).sum(axis=-1)
        n, agreed = table.sum(axis=-1), table[..., 0] + table[..., 3]
        return {"table": table, "agreement": divide(agreed, n), "kappa": divide(agreed - expected, n - expected)}

    def alpha(self, answers: Answers) -> dict[str, Any]:
        """(R, N, A) answers."""
        terms = alpha_terms(answers)
        sums = self.sums(terms, terms[..., 1:].any(axis=(1, 2)))
        return self.entries(consensus_terms(answers)[..., 1].sum(axis=0) @ self.parts, {"alpha": alpha_of_terms(sums)})

    def entries(self, n: Floats, figures: dict[str, Floats], intervals_of_parts: bool = True) -> dict[str, Any]:
        """(S,) items and name -> (1 + resamples, S) -> the figures overall, a level and an attribute."""
        points = {name: [defined(value) for value in values[0]] for name, values in figures.items()}

        def entry(part: int) -> dict[str, Any]:
            content: dict[str, Any] = {"n": int(n[part]), **{name: points[name][part] for name in figures}}
            if part == 0 or intervals_of_parts:
                content["ci"] = {
                    name: None if points[name][part] is None else interval(values[1:, part])
                    for name, values in figures.items()
                }
            return content

        first = 1 + len(LEVELS)
        return {
            "overall": entry(0),
            "levels": {str(level): entry(part) for part, level in enumerate(LEVELS, start=1)},
            "attributes": {key: entry(part) for part, key in enumerate(self.taxonomy.keys, start=first)},
        }


# --- Terms of an item that sum up over items ---------------------------------------------------------------------


def checked(answers: ArrayLike) -> Answers:
    values = np.asarray(answers)
    if not np.isin(values, (0, 1, MISSING)).all():
        raise ValueError(f"answers must be 0, 1 or {MISSING}")
    return values.astype(np.int8)


def _counts(answers: Answers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(R, ...) -> (...) how many answered 0, and how many 1."""
    return (answers == 0).sum(axis=0), (answers == 1).sum(axis=0)


def pair_terms(first: Answers, second: Answers) -> Floats:
    """(..., 4): 1 at the cell (0, 0), (0, 1), (1, 0) or (1, 1) of their answers, all 0 where one is missing."""
    if first.shape != second.shape:
        raise ValueError(f"need two arrays of one shape, not {first.shape} and {second.shape}")
    return np.stack([(first == a) & (second == b) for a in (0, 1) for b in (0, 1)], axis=-1).astype(np.float64)


def consensus_terms(answers: Answers) -> Floats:
    """(..., 2): whether all agree, and whether two or more answered at all."""
    zeros, ones = _counts(answers)
    several = zeros + ones >= 2
    return np.stack([several & ((zeros == 0) | (ones == 0)), several], axis=-1).astype(np.float64)


def alpha_terms(answers: Answers) -> Floats:
    """(..., 3) of items with two or more answers: disagreeing pairs over (answers - 1), zeros, ones."""
    zeros, ones = (count.astype(np.float64) for count in _counts(answers))
    several = zeros + ones >= 2
    return np.stack([zeros * ones / np.maximum(zeros + ones - 1, 1), zeros, ones], axis=-1) * several[..., None]


# --- Figures of such sums; NaN where undefined -------------------------------------------------------------------


def kappa_of_tables(table: Floats) -> Floats:
    """kappa of (..., 4) tables, in whole numbers up to the division (Cohen, 1960)."""
    t00, t01, t10, t11 = np.moveaxis(table, -1, 0)
    n = table.sum(axis=-1)
    chance = (t00 + t01) * (t00 + t10) + (t10 + t11) * (t01 + t11)  # n squared times what is expected
    return divide(n * (t00 + t11) - chance, n * n - chance)


def alpha_of_terms(sums: Floats) -> Floats:
    """alpha = 1 - D_o / D_e, with D_e from all pairable answers (Krippendorff, 2011)."""
    disagreement, zeros, ones = np.moveaxis(sums, -1, 0)
    return 1 - divide((zeros + ones - 1) * disagreement, zeros * ones)


# Of a table of model and majority: cells 1 and 2 are the model's misses and its surplus.
_DEVIATIONS: dict[str, Callable[[Floats], Floats]] = {
    "over_rate": lambda table: divide(table[..., 2], table[..., 0] + table[..., 2]),
    "under_rate": lambda table: divide(table[..., 1], table[..., 1] + table[..., 3]),
    "signed_difference": lambda table: divide(table[..., 2] - table[..., 1], table.sum(axis=-1)),
}
