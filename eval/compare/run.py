"""``cprt compare``: several runs or checkpoints side by side, in the terminal, as a page and in Weights & Biases.

A run is a folder that ``cprt eval`` left; of a folder that holds several judges, all are taken. Differences are paired:
both runs on the same resampled photos that both have scored, by default each run against the first. A difference is
beyond noise when its p stays below 0.05 after Holm's correction (1979) for all differences of the comparison. Curves
are drawn over the step of adapters called ``checkpoint-N``; their base, asked with the same prompt, is step 0.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import image_root
from cprt.metrics.severity import paired_differences
from cprt.numbers import is_number
from cprt.provenance import file_digest, sign, write_run
from cprt.records import Label, Prediction, read_json, read_labels, read_predictions, write_json
from cprt.taxonomy import Taxonomy
from eval.metrics import HEADS, measure, show

ALPHA = 0.05
FIGURES = tuple(name for name in HEADS if name != "coverage")  # those that a resample of common photos can change
_ALL = "all"


@dataclass
class CompareArguments:
    runs: list[str] = option("folders that cprt eval wrote; the first is what others are held against")
    labels: str = option("labels.jsonl that they were evaluated on")
    out: str = option("folder to write", writes=("compare.json", "report.html", "*.png"))
    against: str | None = option("name of the run that others are held against, or all for every pair", None)
    resamples: int = option("bootstrap resamples", 2000)
    seed: int = option("of the resamples", 0)
    thumbnails: bool = option("small pictures of the listed photos in the page", False)
    images: str | None = option("folder of the photos, for thumbnails", None)
    wandb: bool = option("also log to Weights & Biases, offline unless configured", False)
    project: str = option("project in Weights & Biases", "cprt")
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs: the list is empty")
        if self.thumbnails and self.images is None:
            raise ValueError("thumbnails needs images")
        if self.resamples < 1:
            raise ValueError(f"resamples must be at least 1, not {self.resamples}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, not {self.seed}")


@dataclass(frozen=True)
class EvaluatedRun:
    """What a folder of ``cprt eval`` holds."""

    name: str
    predictions: list[Prediction]
    metrics: dict[str, Any]
    record: dict[str, Any]  # its run.json

    @property
    def asked(self) -> tuple[str, str]:
        """Name of the prompt and of the target."""
        prompt = _inside(self.record, "prompt")
        return str(prompt.get("name")), str(prompt.get("target"))


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt compare``."""
    (args,) = parse(CompareArguments, argv, prog="cprt compare", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    labels = read_labels(args.labels, taxonomy)
    root = image_root(args.images) if args.thumbnails else None
    folders = find_runs(args.runs)
    runs = read_runs(folders, args.labels, labels, taxonomy)
    pairs = choose_pairs([one.name for one in runs], args.against)
    found = differences(runs, pairs, labels, taxonomy, args.resamples, args.seed)
    tests = sum(test["p"] is not None for pair in found for test in pair["figures"].values())
    comparison = {
        "n": len(labels),
        "runs": {
            one.name: {name: one.metrics[name] for name in (*HEADS, "ci", "confusion", "status_counts")} for one in runs
        },
        "differences": found,
        "correction": {
            "method": "Holm",
            "tests": tests,
            "alpha": ALPHA,
            "resamples": args.resamples,
            "seed": args.seed,
        },
        "curves": curves(runs),
    }
    out = Path(args.out)
    sign("cprt compare", out / "run.json")
    write_json(out / "compare.json", comparison)
    from eval.report.write import write_report

    page = write_report(
        out,
        labels,
        {one.name: one.predictions for one in runs},
        {one.name: one.metrics for one in runs},
        taxonomy,
        root,
        comparison,
        {one.name: one.record for one in runs},
    )
    inputs = {"labels": args.labels} | {
        f"{one.name}/{file}": folder / file
        for one, folder in zip(runs, folders, strict=True)
        for file in ("predictions.jsonl", "metrics.json")
    }
    write_run("cprt compare", out, args, inputs, seed=args.seed, taxonomy=taxonomy.digest)
    print(terminal(comparison))
    print(f"\n{page}: the page, with pictures beside it; {out / 'compare.json'}: all figures")
    if args.wandb:
        from eval.compare.tracking import log

        print(log(comparison, args.project, out))


# --- Reading -----------------------------------------------------------------------------------------------------


def find_runs(folders: Sequence[str]) -> list[Path]:
    """The folders with predictions among those given, or in them. Raises InputError where there are none."""
    found: list[Path] = []
    for folder in map(Path, folders):
        inside = (
            [folder]
            if (folder / "predictions.jsonl").is_file()
            else sorted(path.parent for path in folder.glob("*/predictions.jsonl"))
        )
        if not inside:
            raise InputError.at(folder, "holds no predictions.jsonl" if folder.is_dir() else "no such folder")
        found += inside
    doubled = [path for path, count in Counter(path.resolve() for path in found).items() if count > 1]
    if doubled:
        raise InputError.at(next(path for path in found if path.resolve() == doubled[0]), "is there twice")
    return found


def read_runs(folders: Sequence[Path], file: str, labels: Sequence[Label], taxonomy: Taxonomy) -> list[EvaluatedRun]:
    """The runs in these folders. Raises InputError unless all were evaluated on exactly these labels."""
    digest, found = file_digest(file), []
    for folder, name in zip(folders, unique_names(folders), strict=True):
        record, metrics = _object(folder / "run.json"), _object(folder / "metrics.json")
        made = _inside(record, "inputs", "labels").get("sha256")
        if made != digest:
            what = (
                "does not say which labels it was made on" if made is None else f"was made on other labels than {file}"
            )
            raise InputError.at(folder / "run.json", what)
        if record.get("taxonomy") != taxonomy.digest:
            raise InputError.at(folder / "run.json", "was made with another taxonomy")
        predictions = read_predictions(folder / "predictions.jsonl")
        found.append(EvaluatedRun(name, predictions, _checked(metrics, folder, labels, predictions, taxonomy), record))
    return found


def _checked(
    metrics: dict[str, Any],
    folder: Path,
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    taxonomy: Taxonomy,
) -> dict[str, Any]:
    """The metrics of a run, once they are found to be those of its predictions for all labels."""

    def fail(name: str, message: str) -> InputError:
        return InputError.at(folder / "metrics.json", message, field=name)

    if metrics.get("n") != len(labels):
        count = f"{metrics.get('n')!r} is not the number of labels, {len(labels)}"
        raise fail("n", f"{count}: runs must be over all of them (cprt eval without --limit goes on where it stopped)")
    again = measure(labels, predictions, taxonomy, str(folder / "predictions.jsonl"), resamples=0)
    for name in (*HEADS, "confusion", "status_counts"):
        if not _same(metrics.get(name), again[name]):
            raise fail(name, "is not that of predictions.jsonl beside it; make it anew with cprt metrics")
    kept: dict[str, Any] = {}
    for name, depth in (("ci", 0), ("decodings", 1), ("calibrated", 2)):
        if not _is_nested(metrics.get(name, {}), depth):
            raise fail(name, "is not as cprt metrics writes it")
        kept[name] = metrics.get(name, {})
    return {**again, **kept}


def _same(first: Any, second: Any) -> bool:
    if is_number(first) and is_number(second):
        return math.isclose(first, second, abs_tol=1e-9)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return first == second


def _is_nested(value: Any, depth: int) -> bool:
    """Whether it is a mapping, of mappings to this depth."""
    return isinstance(value, dict) and (depth == 0 or all(_is_nested(inside, depth - 1) for inside in value.values()))


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a JSON object")
    return content


def _inside(content: Any, *keys: str) -> dict[str, Any]:
    """The object under keys within keys; an empty one where there is none: the file may come from anywhere."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def unique_names(paths: Sequence[Path]) -> list[str]:
    """A name for each: its last part, with the parts before where two are the same."""
    resolved = [path.resolve() for path in paths]
    for parts in itertools.count(1):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            break
    return ["".join(letter if letter.isprintable() else "\ufffd" for letter in name) for name in names]


# --- Differences ---------------------------------------------------------------------------------------------------


def choose_pairs(names: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    """(run, what it is held against): each against one, the first by default, or all pairs."""
    if against == _ALL:
        return [(second, first) for first, second in itertools.combinations(names, 2)]
    reference = names[0] if against is None else against
    if reference not in names:
        raise InputError(f"against: no run is called {reference!r} (there are {', '.join(names)})")
    return [(name, reference) for name in names if name != reference]


def differences(
    runs: Sequence[EvaluatedRun],
    pairs: Sequence[tuple[str, str]],
    labels: Sequence[Label],
    taxonomy: Taxonomy,
    resamples: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Paired differences: ``run``, ``against``, ``n`` common photos, and for each figure ``difference``, ``ci``, ``p``,
    ``p_holm`` and ``beyond_noise`` (None where it is undefined)."""
    scores = {one.name: {row.id: row.score for row in one.predictions if row.score is not None} for one in runs}
    # Pairs over the same photos share their resamples: where all runs scored everything, each run is resampled once.
    by_photos: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for pair in pairs:
        common = tuple(label.id for label in labels if all(label.id in scores[name] for name in pair))
        by_photos.setdefault(common, []).append(pair)
    truth = {label.id: label for label in labels}
    tests: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    total = sum(len({name for pair in group for name in pair}) for group in by_photos.values())
    with tqdm(total=total, desc="resampling", unit="run", disable=None) as progress:
        for ids, group in by_photos.items():
            tests |= paired_differences(
                [truth[id].score for id in ids],
                {name: [scores[name][id] for id in ids] for pair in group for name in pair},
                [truth[id].level for id in ids],
                group,
                taxonomy,
                resamples=resamples,
                seed=seed,
                done=progress.update,
            )
    photos = {pair: len(ids) for ids, group in by_photos.items() for pair in group}
    found: list[dict[str, Any]] = [
        {
            "run": run,
            "against": other,
            "n": photos[run, other],
            "figures": {name: tests[run, other][name] for name in FIGURES},
        }
        for run, other in pairs
    ]
    flat: list[dict[str, Any]] = [test for pair in found for test in pair["figures"].values()]
    for test, p in zip(flat, holm([test["p"] for test in flat]), strict=True):
        test |= {"p_holm": p, "beyond_noise": None if p is None else p < ALPHA}
    return found


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p values after Holm's step-down correction (1979) for all that are defined; the others stay None."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted


# --- Over training -------------------------------------------------------------------------------------------------


def curves(runs: Sequence[EvaluatedRun]) -> dict[str, list[dict[str, Any]]]:
    """Training -> its runs, rising in step: ``step``, ``run``, the figures and their ``ci``.

    A training is the folder that holds the checkpoints, with one prompt and target. A run of its base with the same
    prompt and target is its step 0.
    """
    trainings: dict[tuple[str, tuple[str, str]], list[tuple[int, EvaluatedRun]]] = {}
    for one in runs:
        training, step = checkpoint(one)
        if step is not None:
            trainings.setdefault((training, one.asked), []).append((step, one))
    found = {}
    for (training, asked), members in trainings.items():
        bases = {str(one.record.get("model")) for _, one in members}
        members += [
            (0, one)
            for one in runs
            if one.record.get("adapter") is None
            and checkpoint(one)[1] is None
            and one.asked == asked
            and str(one.record.get("model")) in bases
        ]
        name = training if sum(other == training for other, _ in trainings) == 1 else f"{training}, {', '.join(asked)}"
        found[name] = [
            {
                "step": step,
                "run": one.name,
                **{figure: one.metrics[figure] for figure in HEADS},
                "ci": one.metrics["ci"],
            }
            for step, one in sorted(members, key=lambda member: member[0])
        ]
    return found


def checkpoint(one: EvaluatedRun) -> tuple[str, int | None]:
    """The training that a run's adapter is of, and after how many steps; None where no ``checkpoint-N`` says so."""
    for path in (_inside(one.record, "config", "judge").get("adapter"), one.name):
        for match in re.finditer(r"(.*?)[/_.-]?\bcheckpoint-(\d{1,9})\b", str(path or "")):
            return PurePosixPath(match[1]).name or "training", int(match[2])
    return "", None


# --- Terminal ------------------------------------------------------------------------------------------------------


def terminal(comparison: Mapping[str, Any]) -> str:
    """All runs side by side, then the differences; a star is beyond noise, a dash undefined."""
    lines = [_line("", HEADS.values())]
    lines += [_line(name, (show(figures[figure]) for figure in HEADS)) for name, figures in comparison["runs"].items()]
    method = comparison["correction"]
    for other in dict.fromkeys(pair["against"] for pair in comparison["differences"]):
        lines += ["", _line(f"minus {other}", [*(HEADS[figure] for figure in FIGURES), "photos"])]
        for pair in comparison["differences"]:
            if pair["against"] == other:
                cells = [_difference(pair["figures"][figure]) for figure in FIGURES]
                lines.append(_line(pair["run"], [*cells, f"{pair['n']:,}"]))
    if comparison["differences"]:
        lines.append("differences are over the photos that both runs scored, the figures above over all of each")
        lines.append(
            f"* beyond noise: paired bootstrap, {method['resamples']:,} resamples, p < {method['alpha']} "
            f"after Holm's correction for {method['tests']} differences"
        )
    return "\n".join(lines)


def _line(name: str, cells: Iterable[str]) -> str:
    name = name if len(name) <= 30 else "…" + name[-29:]  # where checkpoints differ
    return (f"{name:<30}" + "".join(f"{cell:>11}" for cell in cells)).rstrip()


def _difference(test: Mapping[str, Any]) -> str:
    return "-" if test["difference"] is None else f"{test['difference']:+.3f}{'*' if test['beyond_noise'] else ' '}"


if __name__ == "__main__":
    run(main, "cprt compare")
