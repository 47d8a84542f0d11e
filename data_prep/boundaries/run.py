"""``cprt boundaries``: labels -> the score bands that follow from them (paper A.1-A.2), with Figs 5 and 6.

An embedding of the attributes, f(x) = normalize(x^T E), is trained with the ordinal triplet loss (Eq. 4); inverse
distance weighting (IDW, Eq. 5) over all embedded rows gives each row an interpolated severity; the lower end of a
level's band is the 5th percentile of its rows. The score keeps the published bands unless a command is told otherwise:
``OUT/taxonomy.yaml`` holds the learnt ones for ``--taxonomy``. How far they depend on the seed and on what the paper
leaves open is measured: ``boundaries.json`` has their spread over ``--seeds`` and over the choices of ``neighbours``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from cprt.config import parse, run
from cprt.files import read_yaml, write_text
from cprt.provenance import sign, write_run
from cprt.records import write_json
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.boundaries.bands import bands, interpolate, spread_of
from data_prep.boundaries.embedding import embed, train
from data_prep.boundaries.options import BoundariesArguments
from data_prep.boundaries.plot import draw_embeddings, draw_scores
from data_prep.boundaries.vectors import read_vectors

_RANGES = ("seeds", "settings")  # what the spread is over; with other neighbours the bands mean something else


def main(argv: Sequence[str] | None = None) -> None:
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
    _print(result, args.out)
    if usable:
        print(f"  {out / 'taxonomy.yaml'}: these bands, to pass as --taxonomy")


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


def _print(result: dict[str, Any], out: str) -> None:
    report, losses, spread = result["rows"], result["loss"], result["spread"]
    print(f"{out}: {report['used']} rows, {report['distinct']} distinct, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if report["without_attribute"]:
        place = "kept at the origin" if report["used"] == report["rows"] else "left out"
        print(f"  {report['without_attribute']} rows without any attribute {place}")
    print("  level   rows  distinct  lower end  published  difference  over seeds      over settings")
    for level in LEVELS:
        if band := result["bands"].get(str(level)):
            print(
                f"  {level}     {band['rows']:>6}  {band['distinct']:>8}  {band['lower']:>9.3f}"
                f"  {band['published_lower']:>9.3f}  {band['difference']:>+10.3f}"
                + "".join("  {lowest:.3f} to {highest:.3f}".format(**spread[kind][str(level)]) for kind in _RANGES)
            )
        else:
            print(f"  {level}          0         0          -          -           -  -               -")
    if not result["ordered"]:
        print("  the lower ends are not in the order of the levels: these labels do not separate them")


if __name__ == "__main__":
    run(main, "cprt boundaries")
