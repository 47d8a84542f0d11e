"""``cprt counterfactual``: would a judge still see the risk if every face were anonymised (paper 5.4.1, Fig. 4)?

Chosen are photos on which every judge of ``--select_by`` is confident: its score lies within ``--confidence`` of the
truth. The runs of ``--ask``, folders as ``cprt eval`` leaves them, are repeated on them, to assume that every face is
perfectly anonymised; ``--runs`` names folders that do both. (The paper selects by all models and asks one, with two
prompts.) The truth is recomputed without ``biometrics``: the taxonomy has no attribute for faces alone. Where VISPR's
own labels (``--annotations``) name a fingerprint, it stays.

A judge that is not greedy seldom says the same twice, and photos on which it was near the truth are chosen: with
``--control`` the plain question is asked again as well. What changes there is the judge's own doing, and ``net_change``
is the difference between the two questions, asked afresh. Every reply is kept as it comes: after a kill the same
command asks only what is missing. docs/files.md lists what lies in ``OUT``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.answers import Answer
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.models.ask import ask, by_weights, open_models, raise_first
from cprt.models.missing import hash_photos
from cprt.models.outcome import Outcome, find_outcomes
from cprt.models.response_cache import ResponseCache
from cprt.provenance import sign, write_run
from cprt.records import Label, read_labels, write_json, write_jsonl
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import FACES, Case, confident, make_case, read_fingerprints, select
from eval.counterfactual.page import write_page
from eval.counterfactual.plot import draw
from eval.counterfactual.runs import EvalRun, Predictions, read_judges, read_runs
from eval.counterfactual.summary import report, summarise, summary_table
from eval.predictions import reader
from eval.runs import predictions_of
from eval.tables import write_table


@dataclass
class CounterfactualArguments:
    labels: str = option("labels.jsonl with the truth of every attribute")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option(
        "folder to write",
        writes=(
            "answers.jsonl",
            "selection.jsonl",
            "counterfactual.jsonl",
            "summary.json",
            "table.*",
            "*.png",
            "*.html",
        ),
    )
    select_by: list[str] = option(
        "judges that choose the photos: folders that cprt eval wrote, or files of predictions", factory=list
    )
    ask: list[str] = option("folders that cprt eval wrote, one for each model and prompt that is asked", factory=list)
    runs: list[str] = option("in place of both: folders whose judges choose the photos and are asked", factory=list)
    control: bool = option("ask the plain question again too: how far a judge differs from itself", True)
    annotations: str | None = option("VISPR's annotations: where they name a fingerprint, biometrics stay", None)
    size: int = option("photos", 100, least=1)
    confidence: float = option(
        "the score of every judge that chooses is nearer to the truth than this", 0.1, least=0, most=1
    )
    share: float = option("share of photos of level 1 with a face or an ID", 0.8, least=0, most=1)
    seed: int = option("seed of the draw and of the resamples", 0, least=0)
    resamples: int = option("bootstrap resamples of photos", 1000, least=1, most=100_000)
    base_url: str | None = option("the endpoint of runs that asked one (their records do not name it)", None)
    api_key_env: str | None = option("environment variable with the key for base_url; no other key goes there", None)
    endpoints: list[dict[str, Any]] = option(
        "in place of base_url where runs asked several: a list of {run, base_url, api_key_env}, only in the YAML",
        factory=list,
    )
    allow_remote: bool = option("photos may go to an endpoint on another machine", False)
    thumbnails: bool = option("small pictures of the photos in report.html", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if bool(self.runs) == bool(self.select_by or self.ask) or bool(self.select_by) != bool(self.ask):
            raise ValueError("needs select_by and ask, or runs for both")
        if self.endpoints and (self.base_url or self.api_key_env):
            raise ValueError("endpoints name address and key of each run; base_url and api_key_env go without them")
        if self.api_key_env and not self.base_url:
            raise ValueError("api_key_env is the key for base_url, which is missing")


ANSWERS = "answers.jsonl"
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt counterfactual``."""
    about = (__doc__ or "").partition("\n")[0]
    (args,) = parse(CounterfactualArguments, argv, prog="cprt counterfactual", description=about)
    taxonomy = Taxonomy.load(args.taxonomy)
    if FACES not in taxonomy.keys:
        raise InputError(f"{args.taxonomy}: without {FACES!r} there is nothing to leave out")
    runs = read_runs(args.ask or args.runs, taxonomy, args.base_url, args.api_key_env, args.endpoints)
    judges = read_judges(args.select_by or args.runs)
    labels, root = read_labels(args.labels, taxonomy, ("image", "labels")), image_root(args.images)
    for name, predictions in [*judges.items(), *((one.name, one.predictions) for one in runs)]:
        strangers = predictions.keys() - {label.id for label in labels}
        if strangers:
            raise InputError.at(args.labels, f"has no label {min(strangers)!r}, which {name} has a prediction for")
    cases, selection = choose(args, labels, judges, taxonomy)
    check_images(root, [case.image for case in cases], decode=False)
    out = Path(args.out)
    opened = open_models([one.judge.spec for one in runs], args.allow_remote, out / ANSWERS)
    models = {one.name: model for one, model in zip(runs, opened, strict=True)}
    sign("cprt counterfactual", out / "run.json")
    write_jsonl(out / "selection.jsonl", [dataclasses.asdict(case) for case in cases])

    hash_photos(root / case.image for case in cases)
    of_run: dict[str, list[Row]] = {}
    with ResponseCache(out / ANSWERS) as cache:
        for one in by_weights(runs, lambda one: one.judge.spec):
            asked = [
                [(one.judge.spec.key(request), request) for request in one.requests(root / case.image, args.control)]
                for case in cases
            ]
            requests = {key: request for of_case in asked for key, request in of_case}
            ask(models[one.name], requests.values(), cache, label=one.name)
            found = find_outcomes(requests, cache, reader(taxonomy, one.judge.prompt), one.judge.spec)
            of_run[one.name] = compare(one, cases, [[found[key] for key, _ in of_case] for of_case in asked], taxonomy)
    rows = [row for one in runs for row in of_run[one.name]]
    write_jsonl(out / "counterfactual.jsonl", rows)
    summary = {"selection": selection, **summarise(rows, args.resamples, args.seed)}
    write_json(out / "summary.json", summary)
    write_table(out / "table", summary_table(summary))
    draw(out / "change.png", rows, summary, taxonomy)
    write_page(out, rows, cases, summary, taxonomy, root if args.thumbnails else None)
    record(args, runs, judges, taxonomy)
    report(summary, out)
    raise_first(model.stopped for model in models.values())


def choose(
    args: CounterfactualArguments, labels: Sequence[Label], judges: Mapping[str, Predictions], taxonomy: Taxonomy
) -> tuple[list[Case], dict[str, Any]]:
    """The photos to ask about, and how they were chosen. Raises InputError where no photo is left, and says why."""
    alone = {name: len(confident(labels, {name: judge}, args.confidence)) for name, judge in judges.items()}
    sure = confident(labels, judges, args.confidence)
    for name, judge in judges.items():
        if all(row.score is None for row in judge.values()):
            raise InputError(f"{name} has no score on any of {len(labels)} photos: leave it out of the selection")
    if not sure:
        counts = ", ".join(f"{name} on {count}" for name, count in alone.items())
        raise InputError(
            f"{args.labels}: on no photo are all runs within {args.confidence:g} of the truth (each alone: {counts})"
        )
    fingerprints = read_fingerprints(args.annotations)
    cases, report = select(
        [make_case(label, fingerprints, taxonomy) for label in sure], args.size, args.share, args.seed
    )
    return cases, {"confident_in_every_run": len(sure), "confident_alone": alone, "labels": len(labels), **report}


def record(
    args: CounterfactualArguments, runs: Sequence[EvalRun], judges: Mapping[str, Predictions], taxonomy: Taxonomy
) -> None:
    """Write the run record, without the address of any endpoint."""
    endpoints = [{**row, "base_url": "endpoint"} for row in args.endpoints]
    config = {**vars(args), "base_url": args.base_url and "endpoint", "endpoints": endpoints}
    read = dict.fromkeys([*(args.select_by or args.runs), *(args.ask or args.runs)])
    inputs = {f"run_{number}": predictions_of(Path(path)) for number, path in enumerate(read)}
    write_run(
        "cprt counterfactual",
        args.out,
        config,
        {"labels": args.labels, **inputs},
        seed=args.seed,
        taxonomy=taxonomy.digest,
        selected_by=list(judges),
        runs=[
            {
                "name": one.name,
                "model": one.judge.spec.record(),
                "identity": one.judge.spec.identity["model"],
                "adapter": one.judge.spec.identity.get("adapter"),
                "prompt": one.counterfactual.prompt.identity(),
            }
            for one in runs
        ],
    )


def compare(
    one: EvalRun, cases: Sequence[Case], outcomes: Sequence[Sequence[Outcome[Answer]]], taxonomy: Taxonomy
) -> list[Row]:
    """A row for every case: the run's score and level before and after, beside the truth's.

    ``before`` is null where the run had no score, which happens where others chose the photos. ``again`` is what became
    of the plain question, where it was asked once more: ``outcomes`` holds one outcome or two for each case.
    """
    rows = []
    for case, (outcome, *control) in zip(cases, outcomes, strict=True):
        earlier, answer = one.predictions.get(case.id), outcome.value or Answer("unparsed")
        before = None if earlier is None else earlier.score
        again = next(((other.value or Answer("unparsed")).score for other in control), None)
        rows.append(
            {
                "id": case.id,
                "run": one.name,
                "model": one.judge.spec.model,
                "prompt": one.judge.prompt.name,
                "target": one.judge.prompt.target,
                "group": case.group,
                "status": outcome.status,
                "status_again": next((other.status for other in control), None),
                "before": before,
                "again": again,
                "after": answer.score,
                "truth_before": case.truth_before,
                "truth_after": case.truth_after,
                "level_before": None if before is None else level_of(before, taxonomy),
                "level_after": answer.level,
                "truth_level_before": case.level_before,
                "truth_level_after": case.level_after,
                "text": outcome.text,
                "text_before": None if earlier is None else earlier.text,
                "text_again": next((other.text for other in control), None),
                "error": outcome.error,
            }
        )
    return rows


if __name__ == "__main__":
    run(main, "cprt counterfactual")
