"""What is shown to a judge: one image A and n references B of the class that A is said to show.

Nothing is drawn from a running generator. Every choice is a rank by a hash of (seed, set-up, class, file), so that the
references of one reconstruction do not change when others come or go, and one more reference changes at most one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cprt.config import option
from eval.model_inversion.collection.setups import Setup
from eval.model_inversion.judge.prompts import LAYOUTS

KINDS = ("reconstruction", "positive", "negative", "positive_degraded", "negative_degraded")
MOST_REFERENCES = 5


@dataclass(frozen=True)
class Query:
    """One image A, before its references are drawn.

    Attributes:
        setup: id of the set-up.
        kind: reconstruction; positive: A is a real image of the class; negative: A is a real image of another class;
            degraded: the same pairs once more, A spoiled to the quality of the set-up's reconstructions.
        source: what the draw depends on, the set-up or, for controls, the private data, which set-ups share.
        claims: the class of the references.
        file: what rows call A: the file's name in its class, for controls CLASS/NAME.
        path: of A, relative to the root.
    """

    setup: str
    kind: str
    source: str
    claims: str
    file: str
    path: str

    @property
    def is_control(self) -> bool:
        return self.kind != "reconstruction"

    @property
    def is_positive(self) -> bool:
        return self.kind.startswith("positive")

    @property
    def is_degraded(self) -> bool:
        return self.kind.endswith("_degraded")


@dataclass(frozen=True)
class Options:
    """How queries are drawn and shown: options of ``cprt mi``."""

    n: int = option("references in Set B", 4, least=1, most=MOST_REFERENCES)
    layout: str = option("one labelled picture, or separate images", "panel", choices=list(LAYOUTS))
    seed: int = option("draws references and control pairs", 0)
    order_seed: int | None = option("permutes the references and puts A left or right; null: A left, as drawn", None)
    pad: bool = option("repeat references of a class that has fewer than n; else its queries are not shown", False)
    degraded: bool = option("show control pairs once more, A blurred as the reconstructions are", False)

    @property
    def least(self) -> int:
        """References that a query needs."""
        return 1 if self.pad else self.n


def rank(items: Iterable[str], *place: str | int) -> list[str]:
    """``items`` in an order that depends on ``place`` alone, for each pair of items whatever others there are."""
    stem = hashlib.sha256(json.dumps(place).encode())

    def weight(item: str) -> bytes:
        digest = stem.copy()
        digest.update(item.encode())
        return digest.digest()

    return sorted(items, key=weight)


def candidates(query: Query, setup: Setup, seed: int) -> list[str]:
    """References that may stand in B, the first choice first."""
    references = {path.rsplit("/", 1)[-1]: path for path in setup.references_of(query.claims)}
    if len(references) < len(setup.references_of(query.claims)):  # equal names in several folders, from a CSV
        references = {path: path for path in setup.references_of(query.claims)}
    ranked = rank(references, seed, "references", query.source, query.claims, query.file)
    return [references[name] for name in ranked if references[name] != query.path]


def arrangement(query: Query, references: Sequence[str], order_seed: int | None) -> tuple[list[str], bool]:
    """The references in the order shown, and whether A comes first (left)."""
    if order_seed is None:
        return list(references), True
    place = order_seed, query.source, query.claims, query.file
    return rank(references, *place, "order"), rank(("first", "last"), *place, "side")[0] == "first"


def plan(setup: Setup, controls: int, options: Options) -> list[Query]:
    """All queries of a set-up: its reconstructions, and up to so many control pairs of each kind.

    Controls are planned only for classes that have references enough to show them.
    """
    queries = [
        Query(setup.id, "reconstruction", setup.name, image.claims, image.file, image.path)
        for image in setup.reconstructions
    ]
    seed, least = options.seed, options.least
    pairs = _positives(setup, controls, seed, least) + _negatives(setup, controls, seed, least)
    again = [replace(query, kind=f"{query.kind}_degraded") for query in pairs] if options.degraded else []
    return queries + pairs + again


def _positives(setup: Setup, count: int, seed: int, least: int) -> list[Query]:
    """Real images of classes that have ``least`` others beside them, spread evenly over the classes."""
    turns: list[tuple[int, str, str]] = []
    large = (name for name, paths in setup.references.items() if len(paths) > least)
    for claims in rank(large, seed, "positive", setup.source):
        shown = rank(setup.references[claims], seed, "positive", setup.source, claims)
        turns += [(turn, claims, path) for turn, path in enumerate(shown)]
    turns.sort(key=lambda turn: turn[0])  # stable: the classes keep their order in every turn
    return [_control(setup, "positive", claims, path, claims) for _, claims, path in turns[:count]]


def _negatives(setup: Setup, count: int, seed: int, least: int) -> list[Query]:
    """References of a class beside an image of another class; no pair twice, spread evenly over both classes."""
    classes = rank((c for c, paths in setup.references.items() if paths), seed, "negative", setup.source)
    queries: list[Query] = []
    large = [claims for claims in classes if len(setup.references[claims]) >= least]
    pairs = [(claims, _others(setup, classes, claims, seed)) for claims in large[:count]]
    while pairs and len(queries) < count:
        going = []
        for claims, others in pairs:
            shown = next(others, None)
            if shown is not None:
                queries.append(_control(setup, "negative", claims, shown[1], shown[0]))
                going.append((claims, others))
        pairs = going
    return queries[:count]


def _others(setup: Setup, classes: Sequence[str], claims: str, seed: int) -> Iterator[tuple[str, str]]:
    """(class, path) of every image of another class, one of each class in turn."""
    others = rank((c for c in classes if c != claims), seed, "other", setup.source, claims)
    for turn in range(max((len(setup.references[other]) for other in others), default=0)):
        for other in others:
            ranked = rank(setup.references[other], seed, "other", setup.source, claims, other)
            if turn < len(ranked):
                yield other, ranked[turn]


def _control(setup: Setup, kind: str, claims: str, path: str, shown: str) -> Query:
    return Query(setup.id, kind, setup.source, claims, f"{shown}/{path.rsplit('/', 1)[-1]}", path)
