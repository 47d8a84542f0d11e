"""The ways to a score from the same answers, on all photos: figures with intervals, paired differences to the stated.

    make demo
    python benchmarks/ways_to_a_score.py --predictions outputs/demo/tuned/predictions.jsonl \\
        --labels outputs/demo/test.jsonl

Only photos that have a score in every way are counted; with structured answers these are all. ``--calibrate`` with
predictions for hold-out photos (and ``--calibrate_labels``) adds each way after the strictly rising map learnt there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.metrics.calibration import Rising
from cprt.metrics.severity import evaluate, paired_differences
from cprt.pages.words import show
from cprt.records import read_labels, read_predictions, write_json
from eval.measures import DECODINGS, HEADS, STATED

FIGURES = [name for name in HEADS if name not in ("bias", "coverage")]


@dataclass
class WaysArguments:
    predictions: str = option("predictions.jsonl of structured answers, with probabilities of lists")
    labels: str = option("labels.jsonl with the truth")
    calibrate: str | None = option("predictions.jsonl of the same judge for hold-out photos", None)
    calibrate_labels: str | None = option("labels.jsonl of these", None)
    json: str | None = option("file for the figures", None)
    resamples: int = option("bootstrap resamples", 1000)
    seed: int = option("of the resamples", 0)


def main() -> None:
    (args,) = parse(WaysArguments, None, prog="ways_to_a_score", description=__doc__)
    rows = {row.id: row for row in read_predictions(args.predictions)}
    ways = {
        way: column
        for way, column in {STATED: "score", **DECODINGS}.items()
        if any(getattr(row, column) is not None for row in rows.values())
    }
    labels = [
        label
        for label in read_labels(args.labels)
        if label.id in rows and all(getattr(rows[label.id], column) is not None for column in ways.values())
    ]
    if not labels:
        raise InputError.at(args.predictions, "no photo of the labels has a score in every way")
    truth, levels = [label.score for label in labels], [label.level for label in labels]
    scores = {way: [getattr(rows[label.id], column) for label in labels] for way, column in ways.items()}
    if args.calibrate is not None and args.calibrate_labels is not None:
        known = {label.id: label.score for label in read_labels(args.calibrate_labels)}
        held_out = [row for row in read_predictions(args.calibrate) if row.id in known]
        for way, column in ways.items():
            pairs = [(getattr(row, column), known[row.id]) for row in held_out if getattr(row, column) is not None]
            scores[f"{way}, mapped"] = Rising.fit(*zip(*pairs, strict=True))(scores[way]).tolist()
    drawn = {"resamples": args.resamples, "seed": args.seed}
    found: dict[str, Any] = {"n": len(labels), "ways": {}}
    for way, of_way in scores.items():
        answers = [(label.id, "ok", score) for label, score in zip(labels, of_way, strict=True)]
        figures = evaluate([(label.id, label.level, label.score) for label in labels], answers, **drawn)
        found["ways"][way] = {name: {"value": figures.figure(name), "ci": figures.ci.get(name)} for name in FIGURES}
    against = [(way, STATED) for way in scores if way != STATED]
    columns = {way: np.asarray(of_way) for way, of_way in scores.items()}
    differences = paired_differences(truth, columns, levels, against, **drawn)
    for (way, _), figures in differences.items():
        for name in FIGURES:
            found["ways"][way][name]["against_stated"] = figures[name]
    print(f"{len(labels)} photos; in brackets 95% intervals; + better, - worse than stated (paired, p < 0.05)\n")
    print(f"{'':<20}" + "".join(f"{HEADS[name]:<25}" for name in FIGURES).rstrip())
    for way, figures in found["ways"].items():
        print(f"{way:<20}" + "".join(f"{_cell(name, figures[name]):<25}" for name in FIGURES).rstrip())
    if args.json is not None:
        write_json(args.json, found)


def _cell(name: str, figure: dict[str, Any]) -> str:
    interval, test = figure["ci"], figure.get("against_stated")
    mark = ""
    if test is not None and test["p"] is not None and test["p"] < 0.05:
        mark = " +" if (test["difference"] > 0) is (name != "mae") else " -"
    return show(figure["value"], interval) + mark


if __name__ == "__main__":
    run(main, "ways_to_a_score")
