"""``cprt metrics``: predictions against labels, from files alone, whatever made them -> metrics.json.

The figures at the top are of the stated score, ``score``. Other ways to a score are never mixed with it: ``decodings``
holds the same figures for each other score of a prediction (``DECODINGS``), each with its own coverage;
``calibrated`` for all of these after calibration on hold-out predictions; ``attributes`` says how well attributes are
seen; ``errors_by`` where the stated score errs (paper 5.3): by true level, number of attributes, and attribute present;
``against`` tests the difference to other predictions for the same labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.guidance.risk import BAND
from cprt.pages.words import show
from cprt.provenance import run_path, sign, write_run
from cprt.records import column, read_labels, read_predictions, write_json
from cprt.taxonomy import Taxonomy
from eval.calibrated import calibrated, calibrated_band, calibrated_probabilities
from eval.measures import HEADS, against, another_judge, judge_name, labels_of, measure, summary_line


@dataclass
class MetricsArguments:
    predictions: str = option("predictions.jsonl", made_by="cprt eval")
    labels: str = option("labels.jsonl with the truth")
    out: str = option("metrics.json to write")
    against: str | None = option("predictions.jsonl of another judge: a paired test of the difference", None)
    calibrate: str | None = option(
        "the judge's predictions for hold-out photos, to calibrate its scores on", None, made_by="cprt eval"
    )
    calibrate_labels: str | None = option("labels.jsonl of these hold-out photos", None)
    resamples: int = option("bootstrap resamples; 0: no intervals", 1000, least=0, most=100_000)
    seed: int = option("of the resamples and of the sampled pairs", 0, least=0)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if (self.calibrate is None) != (self.calibrate_labels is None):
            raise ValueError("calibrate and calibrate_labels go together")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt metrics``."""
    (args,) = parse(MetricsArguments, argv, prog="cprt metrics", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    labels, predictions = read_labels(args.labels, taxonomy), read_predictions(args.predictions)
    drawn = {"resamples": args.resamples, "seed": args.seed}
    metrics = measure(labels, predictions, taxonomy, file=args.predictions, **drawn)
    if args.calibrate is not None:
        held_out = read_labels(args.calibrate_labels, taxonomy)
        shared = {label.id for label in labels} & {label.id for label in held_out}
        if shared:
            raise InputError.at(args.calibrate_labels, f"{min(shared)!r} is measured as well: calibration needs others")
        answers = read_predictions(args.calibrate)
        judges = {judge_name(row.model, row.prompt) for row in predictions if row.model is not None}
        if (stranger := another_judge(answers, judges)) is not None:
            raise InputError.at(args.calibrate, f"is of another judge: {stranger}; what is measured is {min(judges)}")
        mapped = calibrated(labels, predictions, held_out, answers, taxonomy, args.calibrate, **drawn)
        probabilities = calibrated_probabilities(labels, predictions, held_out, answers, taxonomy, **drawn)
        band = calibrated_band(labels, predictions, held_out, answers)
        metrics = replace(metrics, calibrated=mapped, calibrated_probabilities=probabilities, calibrated_band=band)
    if args.against is not None:
        other = read_predictions(args.against)
        labels_of(other, labels, args.against)
        scores = column(predictions, "score"), column(other, "score")
        difference = against(labels, *scores, taxonomy, **drawn)
        metrics = replace(metrics, against=difference)
    sign("cprt metrics", run_path(args.out))
    write_json(args.out, metrics)
    files = ("predictions", "labels", "calibrate", "calibrate_labels", "against")
    inputs = {name: getattr(args, name) for name in files}
    write_run("cprt metrics", args.out, args, inputs, taxonomy=taxonomy.digest)
    print(f"{args.out}: {summary_line(metrics)}")
    if metrics.calibrated_band is not None and metrics.certainty is not None:
        own, band = metrics.certainty["band"], metrics.calibrated_band
        print(
            f"  the {BAND:.0%} band holds the truth in {own['holds']:.3f} by itself (width {own['width']:.3f}), in "
            f"{band['holds']:.3f} as the hold-out widens it (width {band['width']:.3f})"
        )
    for name, test in (metrics.against or {}).get("figures", {}).items():
        if name in HEADS and test["difference"] is not None:
            print(f"  {HEADS[name]} {test['difference']:+z.3f} against {args.against}, p {show(test['p'])}")


if __name__ == "__main__":
    run(main, "cprt metrics")
