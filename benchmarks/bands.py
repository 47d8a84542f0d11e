"""How often bands hold the truth: a model's own, and widened by what a hold-out asks for (conformal).

    python benchmarks/bands.py --predictions outputs/demo/tuned/predictions.jsonl --labels outputs/demo/test.jsonl

The photos are split at random, over and over: on ``--holdout`` of them the margin is learnt, the others are counted. In
the mean over splits ceil(0.9 (n + 1)) / (n + 1) of the bands must hold, or a little more where photos tie; how far
single splits lie from it says what one hold-out of this size is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cprt.config import option, parse
from cprt.errors import InputError
from cprt.guidance.risk import BAND
from cprt.metrics.calibration import band_margin, widened
from cprt.metrics.certainty import evaluate_bands
from cprt.records import read_labels, read_predictions, write_json


@dataclass
class BandArguments:
    predictions: str = option("predictions.jsonl of structured answers, with probabilities of lists")
    labels: str = option("labels.jsonl with the truth")
    holdout: int = option("photos to learn the margin on", 100, least=9)
    splits: int = option("random splits", 2000, least=1)
    seed: int = option("of the splits", 0)
    json: str | None = option("file for the figures", None)


def main() -> None:
    (args,) = parse(BandArguments, None, prog="bands", description=__doc__)
    scores = {label.id: label.score for label in read_labels(args.labels)}
    rows = [row for row in read_predictions(args.predictions) if row.score_band is not None and row.id in scores]
    if len(rows) <= args.holdout:
        raise InputError.at(args.predictions, f"has {len(rows)} bands, too few to split", field="score_band")
    bands, truth = np.asarray([row.score_band for row in rows]), np.asarray([scores[row.id] for row in rows])
    rng, found = np.random.default_rng(args.seed), []
    for _ in range(args.splits):
        drawn = rng.permutation(len(rows))
        learnt, counted = drawn[: args.holdout], drawn[args.holdout :]
        margin = band_margin(bands[learnt], truth[learnt], BAND)
        assert margin is not None
        figures = evaluate_bands(truth[counted], widened(bands[counted], margin))
        found.append((figures["holds"], figures["width"], margin))
    holds, width, margin = np.mean(found, axis=0)
    own, spread = evaluate_bands(truth, bands), np.percentile(found, [5, 95], axis=0)[:, 0]
    print(f"by itself {own['holds']:.3f}, width {own['width']:.3f}")
    print(f"widened by {margin:.3f} in the mean: {holds:.3f} (90% of splits {spread.round(3)}), width {width:.3f}")
    if args.json:
        figures = {"own": own, "holds": holds, "splits_90": spread.tolist(), "width": width, "margin": margin}
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
