"""``cprt boundaries``: labels -> the score bands that follow from them (paper A.1-A.2), with Figs 5 and 6.

An embedding of the attributes, f(x) = normalize(x^T E), is trained with the ordinal triplet loss (Eq. 4); inverse
distance weighting (IDW, Eq. 5) over all embedded rows gives each row an interpolated severity; the lower end of a
level's band is the 5th percentile of its rows. The score keeps the published bands unless a command is told otherwise:
``OUT/taxonomy.yaml`` holds the learnt ones for ``--taxonomy``. How far they depend on the seed and on what the paper
leaves open is measured: ``boundaries.json`` has their spread over ``--seeds`` and over the choices of ``neighbours``.

The paper gives d = 16, m0 = 0.10, beta = 0.12, 30 epochs of AdamW, p = 2. What it leaves open is an option, and the
values used are in run.json:

* ``learning_rate`` 1e-3 and ``weight_decay`` 0.01: AdamW's own defaults. ``batch_size`` 256, ``seed`` 0.
* Triplets: every row is an anchor once an epoch, in random order; the positive is another row of its level, the
  negative a row of any other level, both drawn uniformly. A level with one row gives no anchors. E starts normal with
  standard deviation 1 / sqrt(d).
* ``epsilon`` 1e-6, small beside the distances between different embeddings, so that it only prevents a division by 0.
* ``neighbours``: who counts in the IDW of a row. Thousands of rows share a few attribute vectors, and copies lie at
  distance 0, where each weighs 1 / epsilon. With ``all``, the row itself included, every row gets its own severity and
  the bands are 1, 2/3, 1/3, 0 whatever was learned. With ``others``, all rows but this one, that still holds for each
  row that has a copy, and only rows without one are interpolated: the bands then measure how common copies are. With
  ``distinct``, the default, all rows with other attributes count, each as often as it is there, and none of the copies.
* ``empty``: rows without any attribute are left out (``drop``), for they have no direction to normalise. ``zero`` keeps
  them as level 4 at the origin, at cosine distance 1 from all others, where no gradient reaches.

Three things are settled and no option:

* Severity is (4 - m) / 3 and not m in 1..4 as A.2 has it, since the bands lie in [0, 1] with level 1 at their top. (IDW
  is a mean, so the scores are the same up to that line; but the 5th percentile of m would be the wrong end.)
* The lower end of level 4 is 0, as published; the percentile stands beside it in boundaries.json.
* m follows from the attributes, 0.5 counts as absent, and a label file's own level is not read.

Rows with the same attributes have the same embedding and the same score, so everything is computed once for each
distinct vector and weighted by how often it is there, which is exact; distances are taken in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from numpy.typing import NDArray
from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_yaml, write_text
from cprt.provenance import sign, write_run
from cprt.records import read_labels, write_json
from cprt.scoring import severities
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.boundaries.plot import draw_embeddings, draw_scores

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEIGHBOURS = ("distinct", "others", "all")
_BLOCK = 256  # rows of the distance matrix held at once: 14 MB of 6,736 columns


@dataclass
class BoundariesArguments:
    labels: str = option("labels.jsonl, made by cprt labels")
    out: str = option(
        "folder for boundaries.json, embeddings.png and scores.png",
        writes=("boundaries.json", "taxonomy.yaml", "embeddings.png", "scores.png"),
    )
    dim: int = option("dimensions of the embedding", 16, least=1, most=1024)
    base_margin: float = option("m0 of the triplet loss", 0.10, least=0, most=100)
    beta: float = option("what each level between anchor and negative adds to the margin", 0.12, least=0, most=100)
    epochs: int = option("passes in which every row is an anchor once", 30, least=1)
    batch_size: int = option("triplets in one step", 256, least=1)
    learning_rate: float = option("of AdamW", 1e-3, above=0, most=10)  # beyond, as for others, numbers overflow
    weight_decay: float = option("of AdamW", 0.01, least=0, most=10)
    power: float = option("p of the inverse distance weights", 2.0, above=0, most=20)
    epsilon: float = option("added to distance ** p", 1e-6, least=1e-100)  # its inverse, times the rows, is a number
    neighbours: str = option(
        "whose severity is averaged for a row: all rows with other attributes, all other rows "
        "(copies, at distance 0, then decide), or all rows",
        "distinct",
        choices=list(NEIGHBOURS),
    )
    empty: str = option(
        "rows without any attribute: leave them out, or keep them at the origin as level 4",
        "drop",
        choices=["drop", "zero"],
    )
    percentile: float = option("of a level's IDW scores, the lower end of its band", 5.0, least=0, most=100)
    seed: int = option("seed of the embedding's start and of the triplets", 0, least=0)
    seeds: int = option("seeds to train with, this one and the next; the spread of the bands over them", 5, least=1)
    settings: bool = option("also train with other values of what the paper leaves open, one at a time", True)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


@dataclass(frozen=True)
class Vectors:
    """The distinct attribute vectors among the rows: (U, A) ``x`` of 0 and 1, (U,) ``levels``, (U,) ``counts``."""

    x: Floats
    levels: Ints
    counts: Ints

    @property
    def severity(self) -> Floats:
        """(U,) from 1 (level 1) to 0 (level 4)."""
        return (4 - self.levels) / 3


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt boundaries``."""
    (args,) = parse(BoundariesArguments, argv, prog="cprt boundaries", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    vectors, report = read_vectors(args.labels, taxonomy, args.empty)
    matrix, losses = train(vectors, args)
    embeddings = embed(vectors.x, matrix)
    found = bands(interpolate(embeddings, vectors, args), vectors, args.percentile, taxonomy)
    spread = spread_of(found, embeddings, vectors, args, taxonomy)
    lower = {int(level): band["lower"] for level, band in found.items()}
    ordered = all(high > low for high, low in pairwise(lower.values()))

    out = Path(args.out)
    sign("cprt boundaries", out / "run.json")
    explained = draw_embeddings(out / "embeddings.png", embeddings, vectors.levels, vectors.counts)
    usable = write_taxonomy(out / "taxonomy.yaml", list(lower.values()), args.taxonomy)
    ranges = {
        int(level): (min(ends), max(ends))
        for level in found
        for ends in [[spread[kind][level][end] for kind in _RANGES for end in ("lowest", "highest")]]
    }
    draw_scores(out / "scores.png", taxonomy, lower, ranges)
    result = {
        "bands": found,
        "ordered": ordered,
        "spread": spread,
        "rows": report,
        "loss": losses,
        "pca_explained": explained,
        "attribute_embeddings": dict(zip(taxonomy.keys, matrix.tolist(), strict=True)),
    }
    write_json(out / "boundaries.json", result)
    write_run(
        "cprt boundaries", out, args, {"labels": args.labels}, seed=args.seed, taxonomy=taxonomy.digest, report=report
    )
    _print(found, spread, ordered, report, losses, args.out)
    if usable:
        print(f"  {out / 'taxonomy.yaml'}: these bands, to pass as --taxonomy")


_RANGES = ("seeds", "settings")  # what the spread is over; with other neighbours the bands mean something else


def interpolate(embeddings: Floats, vectors: Vectors, args: BoundariesArguments) -> Floats:
    """(U,) interpolated severities, as the options say."""
    return idw(embeddings, vectors, args.epsilon, args.power, args.neighbours)


def spread_of(
    found: Mapping[str, Any], embeddings: Floats, vectors: Vectors, args: BoundariesArguments, taxonomy: Taxonomy
) -> dict[str, Any]:
    """How far the lower ends depend on the seed, and on each choice of ours, changed alone.

    ``seeds`` and ``settings``: level -> ``lowest``, ``highest``, and ``lower``, the end for each seed, or for each
    setting. ``neighbours``: kind -> level -> lower end.
    """

    def lower(one: BoundariesArguments, embedded: Floats | None = None) -> dict[str, float]:
        embedded = embed(vectors.x, train(vectors, one)[0]) if embedded is None else embedded
        learnt = bands(interpolate(embedded, vectors, one), vectors, one.percentile, taxonomy)
        return {level: band["lower"] for level, band in learnt.items()}

    first = {level: band["lower"] for level, band in found.items()}
    seeds = [first, *(lower(replace(args, seed=args.seed + number)) for number in range(1, args.seeds))]
    settings = {"as chosen": first}
    for name, factors in _SETTINGS.items() if args.settings else ():
        for factor in factors:
            value = type(getattr(args, name))(getattr(args, name) * factor)
            changed = replace(args, **{name: value})
            settings[f"{name} {value:g}"] = lower(changed, embeddings if name in _AFTER_TRAINING else None)

    def ends(learnt: Iterable[Mapping[str, float]], level: str) -> dict[str, float]:
        values = [one[level] for one in learnt]
        return {"lowest": min(values), "highest": max(values)}

    return {
        "seeds": {level: {**ends(seeds, level), "lower": [one[level] for one in seeds]} for level in found},
        "settings": {
            level: {**ends(settings.values(), level), "lower": {name: one[level] for name, one in settings.items()}}
            for level in found
        },
        "neighbours": {kind: lower(replace(args, neighbours=kind), embeddings) for kind in NEIGHBOURS},
    }


# What the paper leaves open, and by what each is multiplied in turn.
_SETTINGS = {"learning_rate": (1 / 3, 3), "weight_decay": (0, 10), "batch_size": (1 / 2, 2), "epsilon": (0.01, 100)}
_AFTER_TRAINING = ("epsilon",)


def write_taxonomy(path: Path, lower: Sequence[float], extension: str | None) -> bool:
    """Write the extension of the taxonomy that is in use with the learnt bands, rounded to what answers state.

    False where there is no such taxonomy: a level has no rows, or the bands are not in the order of the levels.
    """
    ends = [round(float(end), 3) for end in lower[:-1]]
    if len(lower) != len(LEVELS) or any(high <= low for high, low in pairwise([1.0, *ends, 0.0])):
        path.unlink(missing_ok=True)
        return False
    content = {} if extension is None else read_yaml(extension)
    write_text(path, yaml.safe_dump(content | {"name": "bands learnt from labels", "bands": ends}, sort_keys=False))
    return True


def read_vectors(path: str | Path, taxonomy: Taxonomy, empty: str = "drop") -> tuple[Vectors, dict[str, int]]:
    """The distinct attribute vectors of a labels file and counts of rows.

    Raises InputError where rows have no labels, or where no triplet can be formed: fewer than two levels.
    """
    rows = read_labels(path, taxonomy, needed=("labels",))
    present = np.asarray([[(label.labels or {})[key] == 1 for key in taxonomy.keys] for label in rows])
    kept = present if empty == "zero" else present[present.any(axis=1)]
    report = {"rows": len(rows), "used": len(kept), "without_attribute": int((~present.any(axis=1)).sum())}
    if not len(kept):
        raise InputError.at(path, f"none of its {len(rows)} rows has an attribute")
    x, counts = np.unique(kept, axis=0, return_counts=True)
    levels, _ = severities(x.astype(np.float64), taxonomy)
    if len(x) == 1:
        raise InputError.at(path, f"all {len(kept)} rows used have the same attributes: there is nothing to tell apart")
    if len(set(levels.tolist())) == 1:
        raise InputError.at(path, f"all {len(kept)} rows used are of level {levels[0]}: triplets need a second level")
    if all(counts[levels == level].sum() < 2 for level in LEVELS):
        raise InputError.at(path, "no level has two rows: triplets need an anchor and a positive of one level")
    return Vectors(x.astype(np.float64), levels, counts.astype(np.int64)), report | {"distinct": len(x)}


# --- Embedding (A.1) ---------------------------------------------------------------------------------------------


def train(vectors: Vectors, args: BoundariesArguments) -> tuple[Floats, list[float]]:
    """(A, dim) attribute embeddings E and the mean loss of every epoch. The same seed gives the same numbers.

    Raises InputError when training diverges.
    """
    import torch
    from torch.nn.functional import normalize

    generator = torch.Generator().manual_seed(args.seed)
    shape = vectors.x.shape[1], args.dim
    matrix = torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) / args.dim**0.5)
    optimizer = torch.optim.AdamW([matrix], lr=args.learning_rate, weight_decay=args.weight_decay)
    x = torch.from_numpy(vectors.x)
    levels = torch.from_numpy(vectors.levels)
    vector_of_row = np.repeat(np.arange(len(vectors.counts)), vectors.counts)
    rng = np.random.default_rng(args.seed)
    losses = []
    for _ in tqdm(range(args.epochs), desc="train embedding", unit="epoch"):
        triplets = torch.from_numpy(vector_of_row[sample_triplets(vectors.levels[vector_of_row], rng)])  # (3, T)
        total = 0.0
        for batch in triplets.split(args.batch_size, dim=1):
            anchor, positive, negative = (normalize(x[index] @ matrix, dim=1) for index in batch)
            gap = (levels[batch[0]] - levels[batch[2]]).abs()
            loss = triplet_loss(anchor, positive, negative, gap, args.base_margin, args.beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.shape[1]
        losses.append(total / triplets.shape[1])
        if not np.isfinite(losses[-1]):
            raise InputError(f"the loss is {losses[-1]} after {len(losses)} epochs: choose a lower --learning_rate")
    return matrix.detach().numpy(), losses


def sample_triplets(levels: Ints, rng: np.random.Generator) -> Ints:
    """(3, T) rows: every row once as an anchor, in random order, with another of its level and one of another level.

    ``levels`` are (N,). A row that is alone in its level is no anchor.
    """
    by_level = np.argsort(levels, kind="stable")
    _, start, size = np.unique(levels[by_level], return_index=True, return_counts=True)
    anchor = rng.permutation(len(levels))  # positions in by_level, where a level is one stretch
    group = np.searchsorted(start, anchor, side="right") - 1
    anchor, group = anchor[size[group] > 1], group[size[group] > 1]
    start, size = start[group], size[group]
    positive = start + rng.integers(size - 1)
    positive += positive >= anchor  # skips the anchor itself
    negative = rng.integers(len(levels) - size)
    negative += np.where(negative >= start, size, 0)  # skips the anchor's level
    return by_level[np.stack([anchor, positive, negative])]


def triplet_loss(anchor: Tensor, positive: Tensor, negative: Tensor, gap: Tensor, base: float, beta: float) -> Tensor:
    """Eq. 4: the mean over (T, d) unit vectors; ``gap`` (T,) is how many levels lie between anchor and negative."""
    from torch import relu

    nearer = (1 - (anchor * positive).sum(1)) - (1 - (anchor * negative).sum(1))  # difference of cosine distances
    return relu(nearer + base + beta * gap.to(nearer.dtype)).mean()  # whole numbers times 0.12 would be float32


def embed(x: Floats, matrix: Floats) -> Floats:
    """(U, A) vectors -> (U, d) unit vectors; a vector without attributes stays at the origin."""
    z = x @ matrix
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    embeddings: Floats = z / np.where(norm > 0, norm, 1.0)
    return embeddings


# --- Bands (A.2) -------------------------------------------------------------------------------------------------


def idw(
    embeddings: Floats, vectors: Vectors, epsilon: float, power: float = 2.0, neighbours: str = "distinct"
) -> Floats:
    """(U,) interpolated severity of a row with each vector (Eq. 5), over all rows that count as its neighbours.

    See the top of this file for ``neighbours``. Takes O(U * block) memory.
    """
    from scipy.spatial.distance import cdist

    own = {"distinct": 0 * vectors.counts, "others": vectors.counts - 1, "all": vectors.counts}[neighbours]
    scores = np.empty(len(embeddings))
    for low in tqdm(range(0, len(embeddings), _BLOCK), desc="interpolate", unit="block"):
        block = np.arange(low, min(low + _BLOCK, len(embeddings)))
        squared = cdist(embeddings[block], embeddings, "sqeuclidean")
        rows = np.broadcast_to(vectors.counts, squared.shape).copy()
        rows[np.arange(len(block)), block] = own[block]
        weights = rows / (squared ** (power / 2) + epsilon)
        scores[block] = weights @ vectors.severity / weights.sum(axis=1)
    return scores


def bands(scores: Floats, vectors: Vectors, percentile: float, taxonomy: Taxonomy) -> dict[str, dict[str, Any]]:
    """Level -> its band, the published one, and how many rows and distinct vectors it rests on.

    A level without rows has no entry; the band below then reaches up to the next one there is.
    """
    found: dict[str, dict[str, Any]] = {}
    upper = 1.0
    for level, published in zip(LEVELS, taxonomy.lower_bounds, strict=True):
        of_level = vectors.levels == level
        if not of_level.any():
            continue
        of_rows = np.repeat(scores[of_level], vectors.counts[of_level])
        low = float(np.percentile(of_rows, percentile))
        lower = 0.0 if level == LEVELS[-1] else low
        found[str(level)] = {
            "lower": lower,
            "upper": upper,
            "published_lower": published,
            "difference": lower - published,
            "percentile": low,
            "median": float(np.median(of_rows)),
            "rows": len(of_rows),
            "distinct": int(of_level.sum()),
        }
        upper = lower
    return found


def _print(
    found: dict[str, Any],
    spread: dict[str, Any],
    ordered: bool,
    report: dict[str, int],
    losses: list[float],
    out: str,
) -> None:
    print(f"{out}: {report['used']} rows, {report['distinct']} distinct, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if report["without_attribute"]:
        kept = report["used"] == report["rows"]
        print(
            f"  {report['without_attribute']} rows without any attribute {'kept at the origin' if kept else 'left out'}"
        )
    print("  level   rows  distinct  lower end  published  difference  over seeds      over settings")
    for level in LEVELS:
        if band := found.get(str(level)):
            print(
                f"  {level}     {band['rows']:>6}  {band['distinct']:>8}  {band['lower']:>9.3f}"
                f"  {band['published_lower']:>9.3f}  {band['difference']:>+10.3f}"
                + "".join("  {lowest:.3f} to {highest:.3f}".format(**spread[kind][str(level)]) for kind in _RANGES)
            )
        else:
            print(f"  {level}          0         0          -          -           -  -               -")
    if not ordered:
        print("  the lower ends are not in the order of the levels: these labels do not separate them")


if __name__ == "__main__":
    run(main, "cprt boundaries")
