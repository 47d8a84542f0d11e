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
from itertools import islice
from pathlib import Path
from typing import Any

from cprt.answers import Answer
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.models.ask import ask, by_weights, open_models, raise_first
from cprt.models.missing import read_outcomes
from cprt.models.outcome import Outcome
from cprt.models.response_cache import ResponseCache
from cprt.provenance import sign, write_run
from cprt.records import Label, read_labels, write_json, write_jsonl
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import FACES, Case, confident, make_case, read_fingerprints, select
from eval.counterfactual.page import draw, write_page
from eval.counterfactual.runs import EvalRun, Predictions, read_judge, read_runs
from eval.counterfactual.summary import report, summarise, summary_table
from eval.predictions import reader
from eval.runs import find_runs, predictions_of
from eval.tables import write_table


@dataclass
class CounterfactualArguments:
    labels: str = option("labels.jsonl with the truth of every attribute")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option(
        "folder to write",
        writes="answers.jsonl selection.jsonl counterfactual.jsonl summary.json table.* *.png *.html".split(),
    )
    select_by: list[str] = option(
        "judges that choose the photos: folders that cprt eval wrote, or files of predictions", factory=list
    )
    ask: list[str] = option("folders that cprt eval wrote, one for each model and prompt that is asked", factory=list)
    runs: list[str] = option(
        "in place of both: folders whose judges choose the photos and are asked", factory=list, made_by="cprt eval"
    )
    control: bool = option("ask the plain question again too: how far a judge differs from itself", True)
    annotations: str | None = option("VISPR's annotations: where they name a fingerprint, biometrics stay", None)
    size: int = option("photos", 100, least=1)
    confidence: float = option("every judge that chooses is nearer to the truth than this", 0.1, least=0, most=1)
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


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt counterfactual``."""
    about = (__doc__ or "").partition("\n")[0]
    (args,) = parse(CounterfactualArguments, argv, prog="cprt counterfactual", description=about)
    taxonomy = Taxonomy.load(args.taxonomy)
    if FACES not in taxonomy.keys:
        raise InputError(f"{args.taxonomy}: without {FACES!r} there is nothing to leave out")
    asked, chosen_by = find_runs(args.ask or args.runs), find_runs(args.select_by or args.runs)
    runs = read_runs(asked, taxonomy, args.base_url, args.api_key_env, args.endpoints)
    judges = {name: read_judge(path) for name, path in chosen_by.items()}
    labels, root = read_labels(args.labels, taxonomy, ("image", "labels")), image_root(args.images)
    for name, predictions in [*judges.items(), *((one.name, one.predictions) for one in runs)]:
        strangers = predictions.keys() - {label.id for label in labels}
        if strangers:
            raise InputError.at(args.labels, f"has no label {min(strangers)!r}, which {name} has a prediction for")
    cases, selection = choose(args, labels, judges, taxonomy)
    out = Path(args.out)
    opened = open_models([one.judge.spec for one in runs], args.allow_remote, out / ANSWERS)
    check_images(root, [case.image for case in cases], decode=False)
    models = {one.name: model for one, model in zip(runs, opened, strict=True)}
    sign("cprt counterfactual", out / "run.json")
    write_jsonl(out / "selection.jsonl", [dataclasses.asdict(case) for case in cases])

    of_run: dict[str, list[dict[str, Any]]] = {}
    with ResponseCache(out / ANSWERS) as cache:
        for one in by_weights(runs, lambda one: one.judge.spec):
            questions = [one.counterfactual, one.judge] if args.control else [one.counterfactual]
            requests = [judge.request(root / case.image) for case in cases for judge in questions]
            ask(models[one.name], requests, cache, label=one.name)
            found = read_outcomes(one.judge.spec, requests, cache, reader(taxonomy, one.judge.prompt))
            of_run[one.name] = [
                compared(one, case, [outcome for _, outcome in islice(found, len(questions))], taxonomy)
                for case in cases
            ]
    rows = [row for one in runs for row in of_run[one.name]]
    write_jsonl(out / "counterfactual.jsonl", rows)
    summary = {"selection": selection, **summarise(rows, args.resamples, args.seed)}
    write_json(out / "summary.json", summary)
    write_table(out / "table", summary_table(summary))
    draw(out / "change.png", rows, summary, taxonomy)
    write_page(out, rows, cases, summary, taxonomy, root if args.thumbnails else None)
    read = dict.fromkeys([*chosen_by.values(), *asked.values()])
    write_run(
        "cprt counterfactual",
        out,
        args,
        {"labels": args.labels} | {f"run_{number}": predictions_of(path) for number, path in enumerate(read)},
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
    fingerprints = read_fingerprints(args.annotations, {Path(str(label.image)).stem for label in sure})
    cases = [make_case(label, fingerprints, taxonomy) for label in sure]
    cases, report = select(cases, args.size, args.share, args.seed)
    return cases, {"confident_in_every_run": len(sure), "confident_alone": alone, "labels": len(labels), **report}


def compared(one: EvalRun, case: Case, outcomes: Sequence[Outcome[Answer]], taxonomy: Taxonomy) -> dict[str, Any]:
    """One row: a run's score and level before and after, beside the truth's.

    ``before`` is null where the run had no score, which happens where others chose the photos. ``outcomes``: of the
    counterfactual question, and of the plain one, ``again``, where it was asked once more.
    """
    first, (after, *control) = one.predictions.get(case.id), outcomes
    before = None if first is None else first.score
    again = control[0] if control else None
    return {
        "id": case.id,
        "run": one.name,
        "model": one.judge.spec.model,
        "prompt": one.judge.prompt.name,
        "target": one.judge.prompt.target,
        "group": case.group,
        "status": after.status,
        "status_again": again and again.status,
        "before": before,
        "again": again and again.value and again.value.score,
        "after": after.value and after.value.score,
        "truth_before": case.truth_before,
        "truth_after": case.truth_after,
        "level_before": None if before is None else level_of(before, taxonomy),
        "level_after": after.value and after.value.level,
        "truth_level_before": case.level_before,
        "truth_level_after": case.level_after,
        "text": after.text,
        "text_before": first and first.text,
        "text_again": again and again.text,
        "error": after.error,
    }


if __name__ == "__main__":
    run(main, "cprt counterfactual")
