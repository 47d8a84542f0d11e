"""``cprt compare``: several runs or checkpoints side by side, in the terminal, as a page and in Weights & Biases.

A run is a folder that ``cprt eval`` left; of a folder that holds several judges, all are taken. It may also be a JSONL
file of anybody's predictions (``id``, ``status`` and ``score``). Differences are paired:
both runs on the same resampled photos that both have scored, by default each run against the first. A difference is
beyond noise when its p stays below 0.05 after Holm's correction (1979) for all differences of the comparison. Curves
are drawn over the step of adapters called ``checkpoint-N``; their base, asked with the same prompt, is step 0. Of
adapters called ``seed-N``, or runs that say so, the mean and spread over the seeds is given for each recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cprt.config import option, parse, run
from cprt.images import image_root
from cprt.pages.words import counted, show
from cprt.provenance import sign, write_run
from cprt.records import read_labels, write_json
from cprt.taxonomy import Taxonomy
from eval.compare.differences import ALPHA, choose_pairs, curves, differences, over_seeds
from eval.compare.results import Comparison, Correction, Difference, RunFigures
from eval.measures import HEADS
from eval.report.page import write_report
from eval.runs import find_runs, predictions_of, read_runs


@dataclass
class CompareArguments:
    runs: list[str] = option(
        "folders that cprt eval wrote, or files of predictions; the first is what others are held against",
        filled=True,
        made_by="cprt eval",
    )
    labels: str = option("labels.jsonl that they were evaluated on")
    out: str = option("folder to write", writes=("compare.json", "report.html", "*.png"))
    against: str | None = option("name of the run that others are held against, or all for every pair", None)
    resamples: int = option("bootstrap resamples", 2000, least=1, most=100_000)
    seed: int = option("of the resamples", 0, least=0)
    thumbnails: bool = option("small pictures of the listed photos in the page", False)
    images: str | None = option("folder of the photos, for thumbnails", None)
    wandb: bool = option("also log to Weights & Biases, offline unless configured", False)
    project: str | None = option("project in Weights & Biases; by default WANDB_PROJECT, else cprt", None)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if self.thumbnails != (self.images is not None):
            raise ValueError("thumbnails needs images" if self.thumbnails else "images goes with thumbnails")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt compare``."""
    (args,) = parse(CompareArguments, argv, prog="cprt compare", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    labels = read_labels(args.labels, taxonomy)
    root = image_root(args.images) if args.thumbnails else None
    paths = find_runs(args.runs)
    runs = read_runs(paths, args.labels, labels, taxonomy)
    pairs = choose_pairs([one.name for one in runs], args.against)
    found = differences(runs, pairs, labels, taxonomy, args.resamples, args.seed)
    tests = sum(test.p is not None for pair in found for test in pair.figures.values())
    comparison = Comparison(
        n=len(labels),
        runs={one.name: RunFigures.of(one.metrics) for one in runs},
        differences=found,
        correction=Correction("Holm", tests, ALPHA, args.resamples, args.seed),
        curves=curves(runs),
        seeds=over_seeds(runs),
    )
    out = Path(args.out)
    sign("cprt compare", out / "run.json")
    write_json(out / "compare.json", comparison)
    page = write_report(out, labels, runs, taxonomy, root, comparison)
    inputs = {"labels": args.labels}
    for one in runs:
        path = paths[one.name]
        files = [predictions_of(path), *([path / "metrics.json"] if one.record else [])]
        inputs |= {f"{one.name}/{file.name}": str(file) for file in files}
    write_run("cprt compare", out, args, inputs, seed=args.seed, taxonomy=taxonomy.digest)
    print(terminal(comparison))
    print(f"\n{page}: the page, with pictures beside it; {out / 'compare.json'}: all figures")
    if args.wandb:
        from eval.compare.tracking import log

        print(log(comparison, args.project, out))


# --- Terminal ------------------------------------------------------------------------------------------------------


def terminal(comparison: Comparison) -> str:
    """All runs side by side, then the differences; a star is beyond noise, a dash undefined."""
    lines = [_line("", HEADS.values())]
    lines += [_line(name, (show(getattr(one, head)) for head in HEADS)) for name, one in comparison.runs.items()]
    method, pairs = comparison.correction, comparison.differences
    for other in dict.fromkeys(pair.against for pair in pairs):
        lines += ["", _line(f"minus {other}", [*HEADS.values(), "photos"])]
        for pair in pairs:
            if pair.against == other:
                tests = [*pair.figures.values(), pair.coverage]
                lines.append(_line(pair.run, [*map(_difference, tests), f"{pair.n:,}"]))
    if pairs:
        lines += [
            "differences are over the photos that both runs scored, of coverage over all; the figures above over",
            "all that each scored",
            f"* beyond noise: paired bootstrap, {method.resamples:,} resamples, p < {method.alpha} "
            f"after Holm's correction for {method.tests} differences;",
            "coverage by McNemar's exact test, corrected for the coverage of " + counted(len(pairs), "pair"),
        ]
    if comparison.seeds:
        lines += ["", _line("mean over seeds", HEADS.values())]
        for recipe, group in comparison.seeds.items():
            spreads = [group.figures[figure] for figure in HEADS]
            lines.append(
                _line(f"{recipe} ({len(group.seeds)})", (show(None if one is None else one.mean) for one in spreads))
            )
            lines.append(_line("", ("-" if one is None else f"±{one.sd:.3f}" for one in spreads)))
    return "\n".join(lines)


def _line(name: str, cells: Iterable[str]) -> str:
    name = name if len(name) <= 30 else "…" + name[-29:]  # where checkpoints differ
    return (f"{name:<30}" + "".join(f"{cell:>10}" for cell in cells)).rstrip()


def _difference(test: Difference) -> str:
    return "-" if test.difference is None else f"{test.difference:+z.3f}{'*' if test.beyond_noise else ' '}"


if __name__ == "__main__":
    run(main, "cprt compare")
