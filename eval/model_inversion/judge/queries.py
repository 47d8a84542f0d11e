"""What is shown to a judge: one image A and n references B of the class that A is said to show.

Nothing is drawn from a running generator. Every choice is a rank by a hash of (seed, set-up, class, file), so that the
references of one reconstruction do not change when others come or go, and one more reference changes at most one.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from cprt.config import option
from eval.model_inversion.collection.places import Reconstruction
from eval.model_inversion.collection.setups import Setup
from eval.model_inversion.judge.prompts import LAYOUTS

MOST_REFERENCES = 5
T = TypeVar("T")


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
    stem = json.dumps(place)
    return sorted(items, key=lambda item: hashlib.sha256(f"{stem}{item}".encode()).digest())


def candidates(query: Query, setup: Setup, seed: int) -> list[str]:
    """References that may stand in B, the first choice first."""
    paths = setup.references_of(query.claims)
    references = {path.rsplit("/", 1)[-1]: path for path in paths}
    if len(references) < len(paths):  # equal names in several folders, from a CSV
        references = {path: path for path in paths}
    ranked = rank(references, seed, "references", query.source, query.claims, query.file)
    return [references[name] for name in ranked if references[name] != query.path]


def arrangement(query: Query, references: Sequence[str], order_seed: int | None) -> tuple[list[str], bool]:
    """The references in the order shown, and whether A comes first (left)."""
    if order_seed is None:
        return list(references), True
    place = order_seed, query.source, query.claims, query.file
    return rank(references, *place, "order"), rank(("first", "last"), *place, "side")[0] == "first"


def plan(setup: Setup, controls: int, options: Options, limit: int | None = None) -> list[Query]:
    """All queries of a set-up: its reconstructions, and up to so many control pairs of each kind.

    Of more reconstructions than ``limit`` so many are drawn, of one class after the other. Controls are planned only
    for classes that have references enough to show them.
    """
    queries = [
        Query(setup.id, "reconstruction", setup.name, image.claims, image.file, image.path)
        for image in (setup.reconstructions if limit is None else _some(setup, limit, options.seed))
    ]
    pairs = [
        Query(setup.id, kind, setup.source, claims, f"{shown}/{path.rsplit('/', 1)[-1]}", path)
        for kind, of_kind in (("positive", _positives), ("negative", _negatives))
        for claims, shown, path in islice(of_kind(setup, controls, options), controls)
    ]
    again = [replace(query, kind=f"{query.kind}_degraded") for query in pairs] if options.degraded else []
    return queries + pairs + again


def _some(setup: Setup, count: int, seed: int) -> list[Reconstruction]:
    by_class: dict[str, dict[str, Reconstruction]] = {}
    for image in setup.reconstructions:
        by_class.setdefault(image.claims, {})[image.file] = image
    place = seed, "limit", setup.name
    ranked = (
        iter([by_class[claims][file] for file in rank(by_class[claims], *place, claims)])
        for claims in rank(by_class, *place)
    )
    drawn = set(islice(_in_turn(ranked), count))
    return [image for image in setup.reconstructions if image in drawn]


Pair = tuple[str, str, str]  # class of B, class and path of A


def _positives(setup: Setup, count: int, options: Options) -> Iterator[Pair]:
    """Images of classes that have enough others beside them, of one class after the other."""
    place = options.seed, "positive", setup.source
    classes = rank((name for name, paths in setup.references.items() if len(paths) > options.least), *place)
    return _in_turn(_images(setup, claims, claims, *place, claims) for claims in classes)


def _negatives(setup: Setup, count: int, options: Options) -> Iterator[Pair]:
    """Images of other classes, of one class after the other on both sides; no pair twice."""
    seed, source = options.seed, setup.source
    classes = rank((name for name, paths in setup.references.items() if paths), seed, "negative", source)

    def others(claims: str) -> Iterator[Pair]:
        place = seed, "other", source, claims
        ranked = rank((name for name in classes if name != claims), *place)
        return _in_turn(_images(setup, claims, other, *place, other) for other in ranked)

    large = [claims for claims in classes if len(setup.references[claims]) >= options.least]
    return _in_turn(map(others, large[:count]))


def _images(setup: Setup, claims: str, shown: str, *place: str | int) -> Iterator[Pair]:
    yield from ((claims, shown, path) for path in rank(setup.references[shown], *place))


def _in_turn(rows: Iterable[Iterator[T]]) -> Iterator[T]:
    """One of each row after the other, as long as they have any."""
    going = deque(rows)
    while going:
        row = going.popleft()
        for item in islice(row, 1):
            yield item
            going.append(row)
