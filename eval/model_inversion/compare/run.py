"""``cprt mi-compare``: all model-inversion set-ups and judges in one table, as the paper's re-evaluation of 27 set-ups.

Give a YAML list of set-ups (``--setups``), or folders that ``cprt mi`` wrote (``--runs``) and a folder of
``SETUP/prediction.csv`` (``--standard``); ``eval/model_inversion/compare/inputs.py`` shows both. Files in ``OUT``:

* ``compare.json``: every figure of ``cprt mi-metrics`` for each judge and set-up; ``rankings``: which set-ups change
  places when a judge takes E's place; ``agreement`` of judges; ``effects`` of n, order and layout.
* ``compare.csv``: the table. ``compare.png``: attack accuracy under E beside that under the judges.
* ``compare.html``: all of it, with every false positive to browse. Photos are in it only with ``--thumbnails true``.
* ``false_positives.csv``: the same list.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import write_text
from cprt.provenance import sign, write_run
from cprt.records import write_json
from cprt.tables import write_csv
from eval.model_inversion.compare.chart import accuracy_chart
from eval.model_inversion.compare.inputs import SETTINGS, Run, from_folders, from_yaml
from eval.model_inversion.compare.page import FalsePositive, page, thumbnails
from eval.model_inversion.compare.statistics import agreement, effect, joint, ranking
from eval.model_inversion.metrics.rates import Counts
from eval.model_inversion.metrics.run import (
    FIGURES,
    Evaluation,
    check_resampling,
    evaluate,
    figure,
    heads,
    percent,
    unmatched,
)

COUNTS = ("n", "tp", "tn", "fp", "fn")


@dataclass
class CompareArguments:
    out: str = option("folder to write", writes=("compare.*", "false_positives.csv"))
    setups: str | None = option("YAML list of set-ups and their files", None)
    runs: list[str] = option("folders that cprt mi wrote, in place of setups", factory=list)
    standard: str | None = option("with runs: folder of SETUP/prediction.csv by E", None)
    target: str | None = option("with runs: the same by the target models", None)
    naturals: str | None = option("with runs: the same by E on natural images of other classes", None)
    refused_as_no: bool = option("count a refusal as a no in the 2x2 tables", False)
    thumbnails: bool = option("put small pictures of false positives into the page", False)
    images: str | None = option("folder of SETUP/all-images/CLASS/FILE or SETUP/CLASS/FILE, for thumbnails", None)
    resamples: int = option("bootstrap resamples; 0: only Wilson intervals", 2000)
    seed: int = option("seed of the resamples", 0)
    wandb: bool = option("log the table to Weights & Biases, offline by default", False)

    def __post_init__(self) -> None:
        check_resampling(self.resamples, self.seed)
        if bool(self.runs) == (self.setups is not None):
            raise ValueError("needs either --setups or --runs")
        if self.runs and self.standard is None:
            raise ValueError("runs need --standard, a folder of SETUP/prediction.csv")
        given = [name for name in ("standard", "target", "naturals") if getattr(self, name) is not None]
        if self.setups is not None and given:
            raise ValueError(f"--{given[0]} goes with --runs; with --setups the files stand in the YAML")
        if self.images is not None and not self.thumbnails:
            raise ValueError("--images is for --thumbnails true")

    @property
    def options(self) -> dict[str, Any]:
        """How everything is counted."""
        return {"refused_as_no": self.refused_as_no, "resamples": self.resamples, "seed": self.seed}


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-compare``."""
    (args,) = parse(CompareArguments, argv, prog="cprt mi-compare", description=(__doc__ or "").partition("\n")[0])
    if args.setups is not None:
        runs = from_yaml(args.setups)
    else:
        runs = from_folders(args.runs, args.standard, args.target, args.naturals)
    order = list(dict.fromkeys(run.setup for run in runs))
    runs.sort(key=lambda run: order.index(run.setup))  # the judges of a set-up stand together
    if args.images is not None and not Path(args.images).is_dir():
        raise InputError.at(args.images, "is not a folder of images")
    if args.thumbnails and args.images is None and not any(run.images for run in runs):
        raise InputError("thumbnails need --images, or images in the YAML")
    done = [(run, evaluate(run.inputs, **args.options)) for run in tqdm(runs, desc="set-ups", unit="run", disable=None)]
    result = compare(done, args.options)
    wrong = false_positives(done, args.refused_as_no)
    pictures = thumbnails(wrong, args.images) if args.thumbnails else {}

    out = Path(args.out)
    sign("cprt mi-compare", out / "run.json")
    write_json(out / "compare.json", result)
    columns, cells = table(result["rows"])
    write_csv(out / "compare.csv", columns, [map(inert, row) for row in cells])
    write_csv(
        out / "false_positives.csv",
        ("setup", "judge", "class", "filename", "response"),
        [map(inert, (row.setup, row.judge, row.claims, row.file, row.response)) for row in wrong],
    )
    chart = accuracy_chart(result["rows"])
    (out / "compare.png").write_bytes(chart)
    write_text(out / "compare.html", page(result, wrong, pictures, chart))
    inputs = {f"{run.setup}, {run.judge}: {kind}": path for run in runs for kind, path in run.inputs.items()}
    write_run("cprt mi-compare", out, args, inputs | ({"setups": args.setups} if args.setups else {}), seed=args.seed)
    if args.wandb:
        track(args, result["rows"])
    print_report(result, len(wrong), pictures if args.thumbnails else None, out)


def compare(done: Sequence[tuple[Run, Evaluation]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in ``compare.json`` from what was measured. ``options``: refused_as_no, resamples, seed."""
    rows = [
        {
            "setup": run.setup,
            "judge": run.judge,
            "references": run.settings.get("n"),
            "order": run.settings.get("order"),
            "layout": run.settings.get("layout"),
            **found.figures,
        }
        for run, found in done
    ]
    judges = list(dict.fromkeys(run.judge for run, _ in done))
    resampling = {name: options[name] for name in ("resamples", "seed")}
    rankings = {}
    for judge in judges:
        of_judge = [(run.setup, found.counts) for run, found in done if run.judge == judge]
        rankings[judge] = ranking(*zip(*of_judge, strict=True), **resampling)
    return {
        "setups": list(dict.fromkeys(run.setup for run, _ in done)),
        "judges": judges,
        "rows": rows,
        "rankings": rankings,
        "agreement": _agreements(done, judges, options),
        "effects": _effects(done, options),
        "ci_method": done[0][1].figures["ci_method"]
        | {"tau, difference": "bootstrap percentiles over reconstructions, set-ups kept"},
    }


def _agreements(
    done: Sequence[tuple[Run, Evaluation]], judges: Sequence[str], options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Every pair of judges, on each set-up that both judged and on all of them (``setup`` null)."""
    found = {(run.judge, run.setup): evaluation for run, evaluation in done}
    rows = []
    for a, b in combinations(judges, 2):
        tables = {
            setup: joint(evaluation.judge, found[b, setup].judge, evaluation.standard)
            for (judge, setup), evaluation in found.items()
            if judge == a and (b, setup) in found
        }
        for setup, counts in _with_total(tables):
            rows.append({"judges": [a, b], "setup": setup, **agreement(counts, **options)})
    return rows


def _effects(done: Sequence[tuple[Run, Evaluation]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Pairs of runs that differ in one setting alone, on each set-up and on all (``setup`` null)."""
    pairs: dict[tuple[str, str, str], dict[str, Counts]] = {}
    for (one, first), (two, second) in combinations(done, 2):
        known = one.settings.keys() & two.settings.keys()
        differ = [key for key in SETTINGS if one.settings.get(key) != two.settings.get(key)]
        if one.setup == two.setup and one.model == two.model and len(differ) == 1 and differ[0] in known:
            place = (differ[0], *_in_order((one, two), differ[0]))
            low, high = (first, second) if place[1] == one.judge else (second, first)
            pairs.setdefault(place, {})[one.setup] = joint(low.judge, high.judge, low.standard)
    settings = {run.judge: run.settings for run, _ in done}
    return [
        {
            "setting": setting,
            "judges": [a, b],
            "from": settings[a][setting],
            "to": settings[b][setting],
            "setup": setup,
            **effect(counts, **options),
        }
        for (setting, a, b), tables in pairs.items()
        for setup, counts in _with_total(tables)
    ]


def _in_order(runs: tuple[Run, Run], setting: str) -> tuple[str, str]:
    """Names of the two judges, the smaller number first; other settings as given."""
    one, two = runs
    a, b = one.settings[setting], two.settings[setting]
    swap = isinstance(a, int) and isinstance(b, int) and a > b
    return (two.judge, one.judge) if swap else (one.judge, two.judge)


def _with_total(tables: Mapping[str, Counts]) -> list[tuple[str | None, Counts]]:
    """Every set-up, and all together where there are several."""
    total = [(None, np.sum(list(tables.values()), axis=0))] if len(tables) > 1 else []
    return [*total, *tables.items()]


def false_positives(done: Sequence[tuple[Run, Evaluation]], refused_as_no: bool) -> list[FalsePositive]:
    """What E accepts and a judge rejects, in the order of the files."""
    rejecting = ("no", "refused") if refused_as_no else ("no",)
    return [
        FalsePositive(run.setup, run.judge, verdict.claims, name, verdict.response, run.images)
        for run, found in done
        for (claims, name), verdict in found.judge.items()
        if verdict.label in rejecting and found.standard[claims, name].label == "yes"
    ]


# --- Out ---------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Column names and cells of compare.csv: figures as fractions, each with its interval; empty where undefined."""
    said = ["setup", "judge", "references", "order", "layout", *COUNTS]
    columns = list(said)
    columns += [f"{name}{end}" for name in FIGURES for end in ("", "_low", "_high")]
    cells = []
    for row in rows:
        intervals = [row["ci"][name] or (None, None) for name in FIGURES]
        figures = [cell for name, ci in zip(FIGURES, intervals, strict=True) for cell in (row[name], *ci)]
        cells.append([*(row[name] for name in said), *figures])
    return columns, cells


def inert(cell: Any) -> Any:
    """A cell that a spreadsheet would take for a formula, led by an apostrophe; others as they are."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def track(args: CompareArguments, rows: Sequence[Mapping[str, Any]]) -> None:
    """The table as a run in W&B: figures and names alone, no path."""
    from cprt.services.tracking import log_table, start_run

    run = start_run("cprt", f"mi-compare {Path(args.out).name}", args.options, args.out)
    log_table(run, "mi_compare", *table(rows))
    run.finish()


def print_report(result: Mapping[str, Any], wrong: int, pictures: Mapping[Any, Any] | None, out: Path) -> None:
    """The table, what changes places, who agrees, what settings do; a dash where undefined.

    To fit a terminal, only three figures have their intervals here, and settings are shown over all set-ups.
    """
    rows = result["rows"]
    shown = heads(rows)
    lines = [["set-up", "judge", "n", *shown.values()]]
    for row in rows:
        intervals = {name: row["ci"][name] for name in ("accuracy_standard", "accuracy_judge", "fpr")}
        figures = [(figure if name == "kappa" else percent)(row[name], intervals.get(name)) for name in shown]
        lines.append([row["setup"], row["judge"], str(row["n"]), *figures])
    _print_table(lines)
    for judge in result["judges"]:
        lost: Counter[str] = Counter()
        for row in rows:
            lost.update(row["left_out_of_table"] if row["judge"] == judge else {})
        if lost.total():
            print(
                f"  {judge}: "
                + ", ".join(f"{times} {label}" for label, times in lost.items() if times)
                + " are not in FPR, FNR and kappa; they stay in n and are no yes"
            )
    for row in rows:
        for note in unmatched(row["join"]):
            print(f"  {row['setup']}, {row['judge']}: {note}")
    for judge, found in result["rankings"].items():
        if found["setups"] > 1:
            print(
                f"\nRanking under {judge} against E: Kendall's tau {figure(found['tau'], found['ci']['tau'])}, "
                f"{len(found['swaps'])} pairs of set-ups change places"
            )
            for swap in found["swaps"][:5]:
                print(f"  {swap_line(swap)}")
    several = [row["judges"] for row in result["agreement"] if row["setup"] is None]
    pooled = [row for row in result["agreement"] if row["setup"] is None or row["judges"] not in several]
    if pooled:
        print("\nAgreement of judges")
        for row in pooled:
            print(
                f"  {' and '.join(row['judges'])}: kappa {figure(row['kappa'], row['ci']['kappa'])}, "
                f"same verdict {percent(row['agreement'], row['ci']['agreement'])} of {row['n']}"
            )
    pooled_effects = [(row["setting"], row["judges"]) for row in result["effects"] if row["setup"] is None]
    if result["effects"]:
        print("\nEffects of settings")
        for row in result["effects"]:
            if (row["setting"], row["judges"]) not in pooled_effects or row["setup"] is None:
                print(f"  {effect_line(row)}")
    print(f"\n{out / 'compare.html'}: everything, with {wrong} false positives to browse")
    if pictures is not None:
        missing = sum(picture is None for picture in pictures.values())
        print(
            f"  the page holds {len(pictures) - missing} private pictures: keep it where they may be"
            + (f"; {missing} were not found or could not be read" if missing else "")
        )


def swap_line(swap: Mapping[str, Any]) -> str:
    """One pair of set-ups that change places, in words."""
    first, second = swap["higher_under_standard"], swap["higher_under_judge"]
    support = "" if swap["support"] is None else f" (in {100 * swap['support']:.0f}% of resamples)"
    e, j = swap["accuracy_standard"], swap["accuracy_judge"]
    return (
        f"{first} before {second} under E ({percent(e[0])}, {percent(e[1])}), "
        f"after it under the judge ({percent(j[0])}, {percent(j[1])}){support}"
    )


def effect_line(row: Mapping[str, Any]) -> str:
    """What one setting does, in words."""
    where = row["setup"] or "all set-ups"
    interval = row["ci"]["difference"]
    shift = "-" if row["difference"] is None else f"{100 * row['difference']:+.2f}"
    shift += f" [{100 * interval[0]:+.2f}, {100 * interval[1]:+.2f}]" if interval else ""
    return (
        f"{row['setting']} {json.dumps(row['from'])} to {json.dumps(row['to'])}, {row['judges'][0]}, {where}: "
        f"accuracy {percent(row['accuracy_judge_from'])} to {percent(row['accuracy_judge_to'])} ({shift} points), "
        f"{percent(row['changed'])} of verdicts change"
    )


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    run(main, "cprt mi-compare")
