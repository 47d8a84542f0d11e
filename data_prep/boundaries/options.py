"""Options of ``cprt boundaries``: what the paper gives, and what it leaves open.

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
"""

from __future__ import annotations

from dataclasses import dataclass

from cprt.config import option

NEIGHBOURS = ("distinct", "others", "all")


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
