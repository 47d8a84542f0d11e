"""``cprt metrics``: predictions against labels, from files alone, whatever made them -> metrics.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cprt.config import parse, run
from cprt.errors import InputError
from cprt.metrics import evaluate
from cprt.provenance import write_run
from cprt.records import Label, Prediction, read_labels, read_predictions, write_json
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


@dataclass
class MetricsArguments:
    predictions: str = field(metadata={"help": "predictions.jsonl"})
    labels: str = field(metadata={"help": "labels.jsonl with the truth"})
    out: str = field(metadata={"help": "metrics.json to write"})
    taxonomy: str | None = field(default=None, metadata={"help": "YAML that extends the published taxonomy"})


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt metrics``."""
    (args,) = parse(MetricsArguments, argv, prog="cprt metrics", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    labels, predictions = read_labels(args.labels, taxonomy), read_predictions(args.predictions)
    metrics = measure(labels, predictions, taxonomy, file=args.predictions)
    write_json(args.out, metrics)
    write_run(args.out, args, {"predictions": args.predictions, "labels": args.labels}, taxonomy=taxonomy.digest)
    print(f"{args.out}: {summary_line(metrics)}")


def measure(
    labels: Sequence[Label], predictions: Sequence[Prediction], taxonomy: Taxonomy, file: str
) -> dict[str, Any]:
    """Metrics of prediction rows against label rows, ready for JSON. Raises InputError that names ``file``."""
    truth = [(label.id, label.level, label.score) for label in labels]
    answers = [(prediction.id, prediction.status, prediction.score) for prediction in predictions]
    try:
        return evaluate(truth, answers, taxonomy)
    except InputError as error:
        raise InputError.at(file, str(error)) from error


def summary_line(metrics: dict[str, Any]) -> str:
    """The figures of one run in a line."""
    figures = ", ".join(f"{head} {show(metrics[name])}" for name, head in HEADS.items())
    counts = ", ".join(f"{status} {count}" for status, count in metrics["status_counts"].items() if count)
    return f"n {metrics['n']} ({counts}), {figures}"


def show(value: float | None) -> str:
    """A figure as tables print it; what is undefined prints as a dash, never as 0."""
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    run(main, "cprt metrics")
