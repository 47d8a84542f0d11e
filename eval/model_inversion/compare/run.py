"""``cprt mi-compare``: all model-inversion set-ups and judges in one table, as the paper's re-evaluation of 27 set-ups.

Give a YAML list of set-ups (``--setups``), or folders that ``cprt mi`` wrote (``--runs``) and a folder of
``SETUP/prediction.csv`` (``--standard``); ``eval/model_inversion/compare/inputs.py`` shows both. ``--collection`` takes
the verdicts that the public collection brings along, alone or as the anchor of judges in ``--runs``.

``OUT/compare.json`` has every figure of ``cprt mi-metrics`` for each judge and set-up; ``rankings``: which set-ups
change places when a judge takes E's place; ``agreement`` of judges; ``effects`` of settings. ``compare.html`` shows all
of it, with every false positive to browse (docs/files.md has the columns of the tables beside it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import write_bytes, write_text
from cprt.provenance import sign, write_run
from cprt.records import write_json
from cprt.tables import write_csv
from eval.model_inversion.compare.chart import accuracy_chart
from eval.model_inversion.compare.inputs import Run, from_folders, from_yaml
from eval.model_inversion.compare.page import page
from eval.model_inversion.compare.pictures import FalsePositive, Gallery, gallery
from eval.model_inversion.compare.released import download, read_released
from eval.model_inversion.compare.statistics import compare
from eval.model_inversion.compare.table import inert, print_report, table
from eval.model_inversion.metrics.evaluation import Evaluation, Inputs, evaluate
from eval.model_inversion.metrics.rates import Counting
from eval.model_inversion.metrics.run import check_others, named

_FOLDERS = ("standard", "target", "naturals", "naturals_target", "others", "naturals_others")


@dataclass
class CompareArguments:
    out: str = option("folder to write", writes=("compare.*", "false_positives.csv"))
    setups: str | None = option("YAML list of set-ups and their files", None)
    runs: list[str] = option("folders that cprt mi wrote, in place of setups", factory=list, made_by="cprt mi")
    collection: str | None = option("folder of the public collection: its own verdicts, alone or beside runs", None)
    download: bool = option("fetch the tables of the public collection from the Hub into that folder first", False)
    standard: str | None = option("with runs: folder of SETUP/prediction.csv by E", None)
    target: str | None = option("with runs: the same by the target models", None)
    naturals: str | None = option("with runs: the same by E on natural images of other classes", None)
    naturals_target: str | None = option("with runs: the same by the target models: only what they accept counts", None)
    others: list[str] = option("with runs: further evaluation models, NAME=FOLDER, for Type-I transfer", factory=list)
    naturals_others: list[str] = option("with runs: the same on naturals, NAME=FOLDER", factory=list)
    thumbnails: bool = option("put small pictures of false positives into the page", False)
    images: str | None = option("folder of SETUP/all-images/CLASS/FILE or SETUP/CLASS/FILE, for thumbnails", None)
    wandb: bool = option("log the table to Weights & Biases, offline by default", False)

    def __post_init__(self) -> None:
        check_others(self.others, self.naturals_others)
        if bool(self.runs or self.collection) == (self.setups is not None):
            raise ValueError("needs either --setups or --runs (or --collection, alone or with runs)")
        if self.runs and self.standard is None and self.collection is None:
            raise ValueError("runs need --standard, a folder of SETUP/prediction.csv, or --collection")
        if self.download and self.collection is None:
            raise ValueError("--download goes with --collection, the folder to fetch into")
        given = [name for name in _FOLDERS if getattr(self, name)]
        if not self.runs and given:
            raise ValueError(f"--{given[0]} goes with --runs; with --setups the files stand in the YAML")
        if self.images is not None and not self.thumbnails:
            raise ValueError("--images is for --thumbnails true")

    @property
    def folders(self) -> Inputs:
        """With runs: folders of SETUP/prediction.csv in place of files."""
        others = (named(self.others, "others"), named(self.naturals_others, "naturals_others"))
        return Inputs("", self.standard or "", self.target, None, self.naturals, self.naturals_target, *others)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-compare``."""
    about = (__doc__ or "").partition("\n")[0]
    args, counting = parse((CompareArguments, Counting), argv, prog="cprt mi-compare", description=about)
    runs = from_yaml(args.setups) if args.setups is not None else _found(args)
    order = list(dict.fromkeys(run.setup for run in runs))
    runs.sort(key=lambda run: order.index(run.setup))  # the judges of a set-up stand together
    if args.images is not None and not Path(args.images).is_dir():
        raise InputError.at(args.images, "is not a folder of images")
    if args.thumbnails and args.images is None and not any(run.images for run in runs):
        raise InputError("thumbnails need --images, or images in the YAML")
    progress = tqdm(runs, desc="set-ups", unit="run", disable=None)
    done = [(run, evaluate(run.inputs, counting)) for run in progress]
    result = compare(done, counting)
    wrong = false_positives(done, counting)
    out = Path(args.out)
    pictures = gallery(wrong, args.images, out / "thumbnails") if args.thumbnails else Gallery()
    sign("cprt mi-compare", out / "run.json")
    write_json(out / "compare.json", result)
    columns, cells = table(result["rows"])
    listed = [(row.setup, row.judge, row.claims, row.file, row.response) for row in wrong]
    heads = ("setup", "judge", "class", "filename", "response")
    for name, header, lines in (("compare", columns, cells), ("false_positives", heads, listed)):
        write_csv(out / f"{name}.csv", header, [map(inert, line) for line in lines])
    write_bytes(out / "compare.png", accuracy_chart(result["rows"]))
    write_text(out / "compare.html", page(result, wrong, pictures))
    inputs = {f"{run.setup}, {run.judge}: {kind}": path for run in runs for kind, path in run.inputs.files().items()}
    inputs |= {"setups": args.setups} if args.setups else {}
    write_run("cprt mi-compare", out, vars(args) | vars(counting), inputs, seed=counting.seed)
    if args.wandb:
        track(args.out, counting, result["rows"])
    print_report(result, len(wrong), pictures if args.thumbnails else None, out)


def _found(args: CompareArguments) -> list[Run]:
    """Runs of ``cprt mi``, and the collection's own for the same set-ups; these alone where there are no others."""
    if args.collection is None:
        return from_folders(args.runs, args.folders)
    if args.download:
        download(args.collection)
    released, standards = read_released(args.collection)
    if not args.runs:
        return released
    ours = from_folders(args.runs, args.folders, standards)
    judged = {run.setup for run in ours}
    theirs = [run for run in released if run.setup in judged]
    if not theirs:
        raise InputError.at(args.collection, f"has no verdicts on {', '.join(sorted(judged)[:3])}")
    return ours + theirs


def track(out: str, counting: Counting, rows: Sequence[Mapping[str, Any]]) -> None:
    """The table as a run in W&B: figures and names alone, no path."""
    from cprt.services.tracking import finish, log_table, start_run

    run = start_run(None, f"mi-compare {Path(out).name}", asdict(counting), out)
    log_table(run, "mi_compare", *table(rows))
    print(finish(run))


def false_positives(done: Sequence[tuple[Run, Evaluation]], counting: Counting) -> list[FalsePositive]:
    """What E accepts and a judge rejects, in the order of the files."""
    rows = []
    for one, found in done:
        for (claims, name), verdict in found.judge.items():
            of_e = found.standard[claims, name]
            if verdict.label in counting.rejecting and of_e.label == "yes":
                place = (one.setup, one.judge, verdict.claims, name, of_e.confidence, verdict.response)
                rows.append(FalsePositive(*place, one.images, Path(one.inputs.judge)))
    return rows


if __name__ == "__main__":
    run(main, "cprt mi-compare")
