"""``python -m eval.demo``: the whole pipeline on drawings, as the commands that a user would type."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from cprt.config import parse, run
from cprt.errors import InputError
from cprt.metrics.results import Figures, Metrics
from cprt.pages.words import show
from cprt.records import Label, Prediction, column, read_labels, read_predictions, write_json
from cprt.taxonomy import Taxonomy
from eval.measures import HEADS, against
from eval.report.plots import scores_by_level

RUNS = ("base", "tuned")
LISTS = "over lists"  # the mean over probable lists of attributes, those of the likeliest level
OUT = Path("outputs/demo")  # where the configurations of the demo write to


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo, from the top of the repository. It has no options."""
    parse((), argv, prog="python -m eval.demo", description=__doc__)
    if not Path("configs/sft/demo.yaml").is_file():
        raise InputError("configs/sft/demo.yaml: no such file; run the demo from the top of the repository")
    started = time.monotonic()
    prepare, base, train, tuned = commands()
    for command in prepare:
        _finish(_start(command))
    with tempfile.TemporaryFile("w+") as said:
        asking = _start(base, said)
        training = _start(train)
        _finish(training)
        _finish(asking, said)
    _finish(_start(tuned))
    metrics = {name: Metrics.read(OUT / name / "metrics.json") for name in RUNS}
    predictions = {name: read_predictions(OUT / name / "predictions.jsonl") for name in RUNS}
    labels = read_labels(OUT / "test.jsonl")
    scores_by_level(OUT / "scores.png", labels, predictions)
    seconds = round(time.monotonic() - started, 1)
    write_json(OUT / "summary.json", {**metrics, "seconds": seconds})
    columns: dict[str, Figures] = {}
    for name, figures in metrics.items():
        columns |= {name: figures, f"{name}, {LISTS}": figures.decodings["level_mean"]}
    print(f"\n{table(columns)}\n")
    print(tuned_against_base(labels, predictions))
    print(f"{where_it_errs(metrics['tuned'])}\n")
    print(f"The demo took {seconds:.0f} seconds. It proves the pipeline, not that the tiny model knows privacy.")
    for path, what in (
        ("scores.png", "scores by true level, base and tuned"),
        ("tuned/report.html", "the tuned model's figures beside the paper's, pictures, largest errors"),
        ("adapter/learning.jsonl", "figures on the hold-out while it trained"),
        ("summary.json", "all metrics with their intervals"),
        ("tuned/predictions.jsonl", "every answer of the tuned model"),
        ("adapter", "the LoRA adapter, with run.json saying what made it"),
        ("data", "the drawings, their annotations and labels"),
    ):
        print(f"  {OUT / path}: {what}")


def _start(command: str, output: IO[str] | None = None) -> subprocess.Popen[str]:
    """Start a command, with the same interpreter for all, whatever is first on the search path."""
    print(f"\n$ {command}", flush=True)
    program, *words = command.removesuffix(" &").split()
    module = {"cprt": "cprt.cli", "accelerate": "accelerate.commands.accelerate_cli"}[program]
    return subprocess.Popen([sys.executable, "-m", module, *words], stdout=output, stderr=output, text=True)


def _finish(process: subprocess.Popen[str], output: IO[str] | None = None) -> None:
    """Wait for a command, show what it said in the background, and stop with its status if it failed."""
    status = process.wait()
    if output:
        output.seek(0)
        lines = output.read().splitlines()
        print("\n".join(lines if status else lines[-1:]), flush=True)
    if status:
        sys.exit(status)


def commands() -> tuple[list[str], str, str, str]:
    """What the demo runs, as a user would type it: preparing the data, asking the base, training, asking the tuned."""
    data, evaluation = OUT / "data", "--config configs/eval/demo.yaml --out"
    labels = [
        f"cprt labels --source bench --input {data}/cprt_{split}.json --images {data} --out {OUT}/{split}.jsonl"
        for split in ("train", "test")
    ]
    launch = "accelerate launch --config_file configs/accelerate"
    apart = f"{launch}/multi_gpu.yaml --num_processes 2 -m eval.run"  # each process half of the drawings
    return (
        ["cprt demo-data --config configs/data/demo.yaml", *labels, "cprt pairs --config configs/data/demo_pairs.yaml"],
        f"cprt eval {evaluation} {OUT}/base &",  # while the adapter trains: one process for each of two cores
        f"{launch}/one_gpu.yaml train/sft.py --config configs/sft/demo.yaml",
        f"{apart} {evaluation} {OUT}/tuned --adapter {OUT}/adapter",
    )


def table(metrics: Mapping[str, Figures]) -> str:
    """Figures as rows, runs as columns, each figure with its 95% interval."""
    lines = [f"{'':<12}" + "".join(f"{name:<24}" for name in metrics).rstrip()]
    for key, head in HEADS.items():
        cells = [f"{show(figures.figure(key))} {_interval(figures.ci.get(key))}" for figures in metrics.values()]
        lines.append(f"{head:<12}" + "".join(f"{cell:<24}" for cell in cells).rstrip())
    return "\n".join(lines)


def tuned_against_base(labels: Sequence[Label], predictions: Mapping[str, Sequence[Prediction]]) -> str:
    """The difference over lists, paired on the drawings, in a line."""
    tuned, base = (column(predictions[name], "level_mean_score") for name in ("tuned", "base"))
    found = against(labels, tuned, base, Taxonomy.default())["figures"]
    shown = (
        f"{HEADS[name]} {found[name]['difference']:+.3f} {_interval(found[name]['ci'])}"
        for name in ("spearman", "mae", "level_accuracy", "intra_level_accuracy")
    )
    return f"Tuned against base, {LISTS}: {', '.join(shown)}"


def where_it_errs(metrics: Metrics) -> str:
    """Bias by true level, and pairs within a level against chance (paper 5.3), in two lines."""
    bias = ", ".join(f"{level}: {show(errors.bias)}" for level, errors in metrics.errors_by["level"].items())
    order, p = metrics.intra_level_accuracy_no_ties, metrics.intra_level_against_chance["p"]
    chance = "below 0.001" if p is not None and p < 0.001 else show(p)
    return (
        f"Tuned, bias by true level: {bias}\n"
        f"Tuned, pairs within a level that it tells apart: {show(order)} in their order, p {chance} against chance"
    )


def _interval(interval: list[float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"


if __name__ == "__main__":
    run(main, "demo")
