"""``cprt metrics``: predictions against labels, from files alone, whatever made them -> metrics.json.

The figures at the top are of the stated score, ``score``. Other ways to a score are never mixed with it: ``decodings``
holds the same figures for each other score of a prediction (``DECODINGS``), each with its own coverage;
``calibrated`` for all of these after calibration on hold-out predictions; ``attributes`` says how well attributes are
seen; ``errors_by`` where the stated score errs (paper 5.3): by true level, number of attributes, and attribute present;
``against`` tests the difference to other predictions for the same labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.guidance.risk import BAND
from cprt.metrics.attributes import evaluate_attributes, evaluate_probabilities
from cprt.metrics.bootstrap import interval
from cprt.metrics.breakdown import by_group, groups_of
from cprt.metrics.calibration import CALIBRATIONS, Fit, Isotonic, band_margin, refits, widened
from cprt.metrics.certainty import evaluate_bands, evaluate_certainty
from cprt.metrics.results import Figures, Metrics
from cprt.metrics.severity import bootstrap, evaluate, paired_difference
from cprt.pages.words import show
from cprt.provenance import run_path, sign, write_run
from cprt.records import Label, Prediction, read_labels, read_predictions, write_json
from cprt.scoring import levels_of
from cprt.taxonomy import Taxonomy

# Column heads of every table, in the paper's order (Table 3).
HEADS = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mae": "MAE",
    "bias": "Bias",
    "level_accuracy": "Level Acc",
    "inter_level_accuracy": "Inter-Acc",
    "intra_level_accuracy": "Intra-Acc",
    "coverage": "Coverage",
}
# Name in metrics.json -> column of predictions.jsonl.
DECODINGS = {
    "expected": "expected_score",
    "median": "median_score",
    "composed": "composed_score",
    "likeliest": "likeliest_score",
    "level_mean": "level_mean_score",
    "mean": "mean_score",
}
STATED = "stated"
REFITS = 200


@dataclass
class MetricsArguments:
    predictions: str = option("predictions.jsonl")
    labels: str = option("labels.jsonl with the truth")
    out: str = option("metrics.json to write")
    against: str | None = option("predictions.jsonl of another judge: a paired test of the difference", None)
    calibrate: str | None = option("the judge's predictions for hold-out photos, to calibrate its scores on", None)
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
    inputs = {"predictions": args.predictions, "labels": args.labels}
    if args.calibrate is not None:
        inputs |= {"calibrate": args.calibrate, "calibrate_labels": args.calibrate_labels}
        held_out = read_labels(args.calibrate_labels, taxonomy)
        shared = {label.id for label in labels} & {label.id for label in held_out}
        if shared:
            raise InputError.at(args.calibrate_labels, f"{min(shared)!r} is measured as well: calibration needs others")
        answers = read_predictions(args.calibrate)
        mapped = calibrated(labels, predictions, held_out, answers, taxonomy, args.calibrate, **drawn)
        probabilities = calibrated_probabilities(labels, predictions, held_out, answers, taxonomy, **drawn)
        band = calibrated_band(labels, predictions, held_out, answers)
        metrics = replace(metrics, calibrated=mapped, calibrated_probabilities=probabilities, calibrated_band=band)
    if args.against is not None:
        inputs["against"] = args.against
        other = read_predictions(args.against)
        difference = against(labels, predictions, other, taxonomy, file=args.against, **drawn)
        metrics = replace(metrics, against=difference)
    sign("cprt metrics", run_path(args.out))
    write_json(args.out, metrics)
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
            print(f"  {HEADS[name]} {test['difference']:+.3f} against {args.against}, p {show(test['p'])}")


def measure(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    taxonomy: Taxonomy,
    file: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Metrics:
    """Metrics of prediction rows against label rows. Raises InputError that names ``file``."""
    drawn = {"resamples": resamples, "seed": seed}
    stated = {row.id: row.score for row in predictions}
    figures = _measure(labels, predictions, stated, taxonomy, file, **drawn)
    decodings = {}
    for name, column in DECODINGS.items():
        scores = {row.id: getattr(row, column) for row in predictions}
        if any(score is not None for score in scores.values()):
            decodings[name] = _measure(labels, predictions, scores, taxonomy, file, **drawn)
    truth = _present(labels, taxonomy)
    named = {row.id: row.attributes for row in predictions if row.attributes is not None}
    unknown = next((key for keys in named.values() for key in keys if key not in taxonomy.keys), None)
    if unknown is not None:
        raise InputError.at(file, f"{unknown!r} is not in the taxonomy", field="attributes")
    probable = {row.id: row.attribute_probabilities for row in predictions if row.attribute_probabilities is not None}
    in_order = [stated.get(label.id) for label in labels]
    present = {row: truth[label.id] for row, label in enumerate(labels) if label.id in truth}
    return Metrics(
        **vars(figures),
        decodings=decodings,
        label_mass=_share(row.label_mass for row in predictions),
        willing=_share(row.willing for row in predictions),
        attributes=evaluate_attributes(truth, named, taxonomy, **drawn) if truth and named else None,
        attribute_probabilities=(
            evaluate_probabilities(truth, probable, taxonomy, **drawn) if truth and probable else None
        ),
        certainty=_certainty(labels, predictions, **drawn),
        errors_by={
            kind: by_group(
                [label.score for label in labels],
                [math.nan if score is None else score for score in in_order],
                groups,
                **drawn,
            )
            for kind, groups in groups_of([label.level for label in labels], present, taxonomy).items()
        },
    )


def _certainty(labels: Sequence[Label], predictions: Sequence[Prediction], **drawn: int) -> dict[str, Any] | None:
    """Of the mean over lists, over the photos that have one."""
    truth = {label.id: label.score for label in labels}
    rows = [
        (truth[row.id], row.mean_score, row.score_deviation, row.score_band)
        for row in predictions
        if row.mean_score is not None and row.score_deviation is not None and row.score_band is not None
    ]
    return evaluate_certainty(*zip(*rows, strict=True), **drawn) if rows else None


def _share(of_rows: Iterable[float | None]) -> dict[str, Any] | None:
    """How large a share of probability is over the rows that have one."""
    shares = [share for share in of_rows if share is not None]
    return {"n": len(shares), "mean": float(np.mean(shares)), "least": min(shares)} if shares else None


def calibrated(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    held_out: Sequence[Label],
    answers: Sequence[Prediction],
    taxonomy: Taxonomy,
    file: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Figures]]:
    """Way to a score -> calibration -> figures, learnt from ``answers`` to the ``held_out`` labels alone.

    The intervals carry the uncertainty of the fit: hold-out and measured photos are resampled together, ``REFITS``
    times.
    """
    truth = {label.id: label.score for label in held_out}
    unknown = next((row.id for row in answers if row.id not in truth), None)
    if unknown is not None:
        raise InputError.at(file, f"prediction id {unknown!r} has no label")
    found: dict[str, dict[str, Figures]] = {}
    for name, column in {STATED: "score", **DECODINGS}.items():
        known = [(getattr(row, column), truth[row.id]) for row in answers if getattr(row, column) is not None]
        scores = {row.id: getattr(row, column) for row in predictions if getattr(row, column) is not None}
        if not known or not scores:
            continue
        found[name] = {}
        for kind, fit in CALIBRATIONS.items():
            calibration = fit(*zip(*known, strict=True))
            mapped = dict(zip(scores, calibration(list(scores.values())).tolist(), strict=True))
            figures = _measure(labels, predictions, mapped, taxonomy, file, seed=seed, resamples=0)
            if resamples:
                figures.ci.update(_refitted(fit, known, scores, labels, taxonomy, seed))
                figures.ci_method.update(bootstrap="percentile, over rows and over refits", resamples=REFITS)
            found[name][kind] = replace(figures, fitted={"n": len(known), **calibration.record()})
    return found


def calibrated_probabilities(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    held_out: Sequence[Label],
    answers: Sequence[Prediction],
    taxonomy: Taxonomy,
    **drawn: int,
) -> dict[str, Any] | None:
    """The figures of attributes' probabilities after one isotonic map for all attributes, learnt on the hold-out.

    Rare attributes have too few examples there for a map of their own. The intervals take the map as given.
    """
    known, mapped = _present(held_out, taxonomy), {}
    pairs = [
        (probability, float(key in known[row.id]))
        for row in answers
        if row.attribute_probabilities is not None and row.id in known
        for key, probability in row.attribute_probabilities.items()
    ]
    if not pairs:
        return None
    fit = Isotonic.fit(*zip(*pairs, strict=True))
    for row in predictions:
        if row.attribute_probabilities is not None:
            values = fit(list(row.attribute_probabilities.values())).tolist()
            mapped[row.id] = dict(zip(row.attribute_probabilities, values, strict=True))
    truth = _present(labels, taxonomy)
    if not truth or not mapped:
        return None
    return evaluate_probabilities(truth, mapped, taxonomy, **drawn) | {"fitted": {"n": len(pairs), **fit.record()}}


def calibrated_band(
    labels: Sequence[Label], predictions: Sequence[Prediction], held_out: Sequence[Label], answers: Sequence[Prediction]
) -> dict[str, Any] | None:
    """How often bands hold the truth, widened by what ``answers`` to the ``held_out`` labels say alone.

    None where there are no bands, or too few photos in the hold-out.
    """
    (bands, truth), (known, known_truth) = _bands(labels, predictions), _bands(held_out, answers)
    margin = band_margin(known, known_truth, BAND)
    if margin is None or not bands:
        return None
    return evaluate_bands(truth, widened(bands, margin)) | {"fitted": {"n": len(known), "margin": margin}}


def _bands(labels: Sequence[Label], predictions: Sequence[Prediction]) -> tuple[list[list[float]], list[float]]:
    """Bands, and the true scores of their photos."""
    truth = {label.id: label.score for label in labels}
    rows = [(row.score_band, truth[row.id]) for row in predictions if row.score_band is not None and row.id in truth]
    return [band for band, _ in rows], [score for _, score in rows]


def _present(labels: Sequence[Label], taxonomy: Taxonomy) -> dict[str, list[str]]:
    """Id -> attributes that are present, of the labels that say."""
    return {label.id: label.present(taxonomy) for label in labels if label.labels is not None}


def _refitted(
    fit: Fit,
    known: Sequence[tuple[float, float]],
    scores: Mapping[str, float],
    labels: Sequence[Label],
    taxonomy: Taxonomy,
    seed: int,
) -> dict[str, list[float] | None]:
    """Figure -> its interval, each resample of the photos under a fit to a resample of the hold-out."""
    rows = [label for label in labels if label.id in scores]
    truth, levels = np.asarray([row.score for row in rows]), np.asarray([row.level for row in rows])
    rng = np.random.default_rng(seed)
    resampled: dict[str, list[Any]] = {}
    held_scores, held_truth = zip(*known, strict=True)
    for mapped in refits(fit, held_scores, held_truth, [scores[row.id] for row in rows], REFITS, seed):
        draw = rng.integers(len(rows), size=(1, len(rows)))
        for name, value in bootstrap(truth, mapped, levels, levels == levels_of(mapped, taxonomy), draw).items():
            resampled.setdefault(name, []).append(value)
    return {name: interval(np.concatenate(values)) for name, values in resampled.items()}


def against(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    other: Sequence[Prediction],
    taxonomy: Taxonomy,
    file: str,
    **drawn: int,
) -> dict[str, Any]:
    """The difference of the stated scores' figures to another judge's, on the photos that both have scored."""
    by_id = {label.id: label for label in labels}
    unknown = next((row.id for row in other if row.id not in by_id), None)
    if unknown is not None:
        raise InputError.at(file, f"prediction id {unknown!r} has no label")
    second = {row.id: row.score for row in other if row.score is not None}
    pairs = [
        (by_id[row.id], row.score, second[row.id]) for row in predictions if row.score is not None and row.id in second
    ]
    truth, mine, theirs, levels = (
        np.asarray(column, dtype=np.float64)
        for column in (
            [label.score for label, _, _ in pairs],
            [score for _, score, _ in pairs],
            [score for _, _, score in pairs],
            [label.level for label, _, _ in pairs],
        )
    )
    return {"n": len(pairs), "figures": paired_difference(truth, mine, theirs, levels, taxonomy, **drawn)}


def _measure(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    scores: Mapping[str, float | None],
    taxonomy: Taxonomy,
    file: str,
    **drawn: int,
) -> Figures:
    """The figures of one way to a score. A row whose answer is fine but that has no such score counts as unparsed."""

    def answer(row: Prediction) -> tuple[str, str, float | None]:
        score = scores.get(row.id)
        status = "ok" if score is not None else "unparsed" if row.status == "ok" else row.status
        return row.id, status, score

    truth = [(label.id, label.level, label.score) for label in labels]
    try:
        return evaluate(truth, map(answer, predictions), taxonomy, **drawn)
    except InputError as error:
        raise InputError.at(file, str(error)) from error


_LOW_MASS = 0.5  # below, most of what a model could have written is no score


def summary_line(metrics: Metrics) -> str:
    """The figures of one run in a line."""
    figures = ", ".join(f"{head} {show(metrics.figure(name))}" for name, head in HEADS.items())
    counts = ", ".join(f"{status} {count}" for status, count in metrics.status_counts.items() if count)
    line = f"n {metrics.n} ({counts}), {figures}"
    if metrics.label_mass is not None:
        mass = metrics.label_mass["mean"]
        line += f"; scores hold {mass:.2f} of the probability"
        line += ", which is LITTLE: expected and median scores say hardly anything" if mass < _LOW_MASS else ""
    if metrics.willing is not None:
        line += f"; structured, willing {metrics.willing['mean']:.2f}"
    return line


if __name__ == "__main__":
    run(main, "cprt metrics")
