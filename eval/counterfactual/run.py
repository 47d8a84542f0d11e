"""``cprt counterfactual``: would a judge still see the risk if every face were anonymised (paper 5.4.1, Fig. 4)?

Input are folders as ``cprt eval`` leaves them, one for each model and prompt. Chosen are photos on which every run is
confident: its score lies within ``--confidence`` of the truth. The same models are asked about them again, to assume
that every face is perfectly anonymised. The truth is recomputed without ``biometrics``: the taxonomy has no attribute
for faces alone. Where VISPR's own labels (``--annotations``) name a fingerprint, it stays. Files in ``OUT``:

* ``answers.jsonl``: every reply, durable as it comes. Run the same command again after a kill: only what is missing is
  asked.
* ``selection.jsonl``: the photos, their group (face, id, other) and their truth before and after.
* ``counterfactual.jsonl``: a row for each run and photo; ``summary.json``: means and shares of each run and group, with
  intervals; ``change.png``; ``run.json``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.answers import Answer
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.models.ask import ask, by_weights, hash_photos, open_models, raise_first
from cprt.models.outcome import Outcome, find_outcomes
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import Prompt, assuming_faces_anonymised, recall
from cprt.provenance import sign, write_run
from cprt.records import Prediction, read_labels, read_object, read_predictions, write_json, write_jsonl
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import FACES, Case, confident, make_case, read_fingerprints, select
from eval.counterfactual.plot import draw
from eval.counterfactual.summary import report, summarise
from eval.predictions import reader


@dataclass
class CounterfactualArguments:
    runs: list[str] = option("folders that cprt eval wrote, one for each model and prompt")
    labels: str = option("labels.jsonl with the truth of every attribute")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option(
        "folder to write",
        writes=("answers.jsonl", "selection.jsonl", "counterfactual.jsonl", "summary.json", "change.png"),
    )
    annotations: str | None = option("VISPR's annotations: where they name a fingerprint, biometrics stay", None)
    size: int = option("photos", 100)
    confidence: float = option("every run's score is nearer to the truth than this", 0.1)
    share: float = option("share of photos of level 1 with a face or an ID", 0.8)
    seed: int = option("seed of the draw and of the resamples", 0)
    resamples: int = option("bootstrap resamples of photos", 1000, most=100_000)
    base_url: str | None = option("the endpoint of runs that asked one (their records do not name it)", None)
    api_key_env: str | None = option("environment variable with the key for base_url; no other key goes there", None)
    endpoints: list[dict[str, Any]] = option(
        "in place of base_url where runs asked several: a list of {run, base_url, api_key_env}, only in the YAML",
        factory=list,
    )
    allow_remote: bool = option("photos may go to an endpoint on another machine", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        for name in ("size", "resamples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("confidence", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        if self.endpoints and (self.base_url or self.api_key_env):
            raise ValueError("endpoints name address and key of each run; base_url and api_key_env go without them")
        if self.api_key_env and not self.base_url:
            raise ValueError("api_key_env is the key for base_url, which is missing")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, not {self.seed}")


ANSWERS = "answers.jsonl"
Place = dict[str, str | None]  # of an endpoint: its base_url, and the api_key_env of the key that goes there


@dataclass(frozen=True)
class EvalRun:
    """One folder of ``cprt eval``: what was asked of which model, and its scores by id. ``prompt`` is the plain one."""

    name: str
    spec: ModelSpec
    prompt: Prompt
    counterfactual: Prompt
    predictions: dict[str, Prediction]

    def request(self, photo: Path) -> Request:
        return Request(self.counterfactual.messages(), (photo,))


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt counterfactual``."""
    (args,) = parse(
        CounterfactualArguments, argv, prog="cprt counterfactual", description=(__doc__ or "").partition("\n")[0]
    )
    taxonomy = Taxonomy.load(args.taxonomy)
    if FACES not in taxonomy.keys:
        raise InputError(f"{args.taxonomy}: without {FACES!r} there is nothing to leave out")
    runs = read_runs(args.runs, taxonomy, args.base_url, args.api_key_env, args.endpoints)
    opened = open_models([one.spec for one in runs], args.allow_remote, Path(args.out) / ANSWERS)
    models = {one.name: model for one, model in zip(runs, opened, strict=True)}
    labels, root = read_labels(args.labels, taxonomy), image_root(args.images)
    for one in runs:
        strangers = one.predictions.keys() - {label.id for label in labels}
        if strangers:
            raise InputError.at(args.labels, f"has no label {min(strangers)!r}, which {one.name} has a prediction for")
    sure = confident(labels, {one.name: one.predictions for one in runs}, args.confidence, args.labels)
    fingerprints = read_fingerprints(args.annotations)
    candidates = [make_case(label, fingerprints, taxonomy) for label in sure]
    cases, selection = select(candidates, args.size, args.share, args.seed)
    selection = {"confident_in_every_run": len(sure), "labels": len(labels), **selection}
    if not cases:
        raise InputError(f"{args.labels}: on no photo are all runs within {args.confidence:g} of the truth")
    check_images(root, [case.image for case in cases], decode=False)
    out = Path(args.out)
    sign("cprt counterfactual", out / "run.json")
    write_jsonl(out / "selection.jsonl", [dataclasses.asdict(case) for case in cases])

    hash_photos(root / case.image for case in cases)
    of_run: dict[str, list[dict[str, Any]]] = {}
    with ResponseCache(out / ANSWERS) as cache:
        for one in by_weights(runs, lambda one: one.spec):
            asked = [(one.spec.key(request), request) for request in (one.request(root / case.image) for case in cases)]
            ask(models[one.name], dict(asked), cache, label=one.name)
            outcomes = find_outcomes(dict(asked), cache, reader(taxonomy, one.prompt), one.spec)
            of_run[one.name] = compare(one, cases, [outcomes[key] for key, _ in asked], taxonomy)
    rows = [row for one in runs for row in of_run[one.name]]
    write_jsonl(out / "counterfactual.jsonl", rows)
    summary = {"selection": selection, **summarise(rows, args.resamples, args.seed)}
    write_json(out / "summary.json", summary)
    draw(out / "change.png", rows, summary, taxonomy)
    endpoints = [{**row, "base_url": "endpoint"} for row in args.endpoints]
    config = {**vars(args), "base_url": args.base_url and "endpoint", "endpoints": endpoints}
    inputs = {"labels": args.labels, **{f"run_{i}": f"{one}/predictions.jsonl" for i, one in enumerate(args.runs)}}
    write_run(
        "cprt counterfactual",
        out,
        config,
        inputs,
        seed=args.seed,
        taxonomy=taxonomy.digest,
        runs=[
            {
                "name": one.name,
                "model": one.spec.record(),
                "identity": one.spec.identity["model"],
                "adapter": one.spec.identity.get("adapter"),
                "prompt": one.counterfactual.identity(),
            }
            for one in runs
        ],
    )
    report(summary, out)
    raise_first(model.stopped for model in models.values())


# --- Runs --------------------------------------------------------------------------------------------------------


def read_runs(
    folders: Sequence[str],
    taxonomy: Taxonomy,
    base_url: str | None = None,
    api_key_env: str | None = None,
    endpoints: Sequence[Mapping[str, Any]] = (),
) -> list[EvalRun]:
    """The runs to repeat. Raises InputError where one is doubled, or cannot be repeated as it was: another taxonomy,
    or a model or adapter that has changed since.

    Where a run's endpoint is, and which key it takes, is said anew, both together: a key never goes to an address that
    it was not given for.
    """
    paths = [str(Path(folder).resolve()) for folder in folders]
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice:
        raise InputError(f"runs: {Path(twice).name!r} is there twice")
    short = [Path(path).name for path in paths]
    names = [name if short.count(name) == 1 else folder for name, folder in zip(short, folders, strict=True)]
    places = _read_endpoints(endpoints, names)
    records = {name: read_object(Path(folder) / "run.json") for name, folder in zip(names, folders, strict=True)}
    if base_url is not None:
        _check_one_key(records)
        places = {name: {"base_url": base_url, "api_key_env": api_key_env} for name in names}
    return [
        _read_run(folder, name, records[name], taxonomy, places.get(name))
        for folder, name in zip(folders, names, strict=True)
    ]


def _read_endpoints(rows: Sequence[Mapping[str, Any]], runs: Sequence[str]) -> dict[str, Place]:
    """Name of a run -> where its endpoint is."""
    places: dict[str, Place] = {}
    for number, row in enumerate(rows, start=1):
        where, name = f"endpoints[{number}]", str(row.get("run"))
        unknown = row.keys() - {"run", "base_url", "api_key_env"}
        if unknown:
            raise InputError.at(where, "unknown field (there are run, base_url, api_key_env)", field=str(unknown.pop()))
        if name not in runs or name in places:
            known = f"is not one of {', '.join(runs)}, each once"
            raise InputError.at(where, known, field="run")
        if not row.get("base_url"):
            raise InputError.at(where, "is missing", field="base_url")
        places[name] = {"base_url": row["base_url"], "api_key_env": row.get("api_key_env")}
    return places


def _check_one_key(records: Mapping[str, Any]) -> None:
    """Runs that took different keys asked different services: one address is not enough for them."""
    keys = set()
    for record in records.values():
        with suppress(KeyError, TypeError):  # what is no record is found when it is read
            judge = record["config"]["judge"]
            if judge.get("base_url"):
                keys.add(str(judge.get("api_key_env")))
    if len(keys) > 1:
        raise InputError(
            f"base_url: the runs asked endpoints with different keys ({', '.join(sorted(keys))}); "
            "name the address and key of each in endpoints"
        )


def _read_run(folder: str, name: str, record: Any, taxonomy: Taxonomy, place: Place | None) -> EvalRun:
    file = Path(folder) / "run.json"
    try:
        asked, config = record["prompt"], record["config"]
        plain = recall(asked, taxonomy, str(file))
        # What may be null is left out of a record where it is: not ModelSpec's own default then.
        row = {"max_pixels": None, "max_new_tokens": None, "temperature": None} | config["judge"]
        row.pop("note", None)  # of another base, for readers
        if row.pop("base_url", None):
            if place is None:
                raise InputError.at(file, "asked an endpoint: name it with --base_url", field="base_url")
            row |= place
        spec = ModelSpec.read(row, str(file))
        model, adapter = record["model"], record.get("adapter")
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError.at(file, f"is not the record of cprt eval ({error} is missing or odd)") from error
    if model != spec.identity["model"]:
        raise InputError.at(file, f"the model {spec.model} has changed since", field="model")
    if adapter != spec.identity.get("adapter"):
        raise InputError.at(file, f"the adapter {spec.adapter} has changed since", field="adapter")
    predictions = {prediction.id: prediction for prediction in read_predictions(Path(folder) / "predictions.jsonl")}
    return EvalRun(name, spec, plain, assuming_faces_anonymised(plain, taxonomy), predictions)


# --- Answers -----------------------------------------------------------------------------------------------------


def compare(
    one: EvalRun, cases: Sequence[Case], outcomes: Sequence[Outcome[Answer]], taxonomy: Taxonomy
) -> list[dict[str, Any]]:
    """A row for every case: the run's score and level before and after, beside the truth's."""
    rows = []
    for case, outcome in zip(cases, outcomes, strict=True):
        before = one.predictions[case.id].score
        assert before is not None  # or no run would be confident
        answer = outcome.value or Answer("unparsed")
        rows.append(
            {
                "id": case.id,
                "run": one.name,
                "model": one.spec.model,
                "prompt": one.prompt.name,
                "target": one.prompt.target,
                "group": case.group,
                "status": outcome.status,
                "before": before,
                "after": answer.score,
                "truth_before": case.truth_before,
                "truth_after": case.truth_after,
                "level_before": level_of(before, taxonomy),
                "level_after": answer.level,
                "truth_level_before": case.level_before,
                "truth_level_after": case.level_after,
                "text": outcome.text,
                "error": outcome.error,
            }
        )
    return rows


if __name__ == "__main__":
    run(main, "cprt counterfactual")
