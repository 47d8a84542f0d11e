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
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.models.ask import Model
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import Prompt, assuming_faces_anonymised, recall
from cprt.provenance import sign, write_run
from cprt.records import Prediction, read_json, read_labels, read_predictions, write_json, write_jsonl
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.counterfactual.cases import FACES, Case, confident, make_case, read_fingerprints, select
from eval.counterfactual.plot import draw
from eval.counterfactual.summary import report, summarise
from eval.responses import read


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
    resamples: int = option("bootstrap resamples of photos", 1000)
    base_url: str | None = option("the endpoint of runs that asked one (their records do not name it)", None)
    allow_remote: bool = option("photos may go to an endpoint on another machine", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        for name in ("size", "resamples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("confidence", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, not {self.seed}")


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
    runs = read_runs(args.runs, taxonomy, args.base_url)
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

    with ResponseCache(out / "answers.jsonl") as cache:
        stopped = ask(runs, cases, root, cache, args.allow_remote)
        rows = [row for one in runs for row in compare(one, cases, root, cache, taxonomy)]
    write_jsonl(out / "counterfactual.jsonl", rows)
    summary = {"selection": selection, **summarise(rows, args.resamples, args.seed)}
    write_json(out / "summary.json", summary)
    draw(out / "change.png", rows, summary, taxonomy)
    config = {**vars(args), "base_url": args.base_url and "endpoint"}
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
    if stopped is not None:
        raise stopped


# --- Runs --------------------------------------------------------------------------------------------------------


def read_runs(folders: Sequence[str], taxonomy: Taxonomy, base_url: str | None) -> list[EvalRun]:
    """The runs to repeat. Raises InputError where one is doubled, or cannot be repeated as it was: another taxonomy,
    or a model or adapter that has changed since.
    """
    paths = [str(Path(folder).resolve()) for folder in folders]
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice:
        raise InputError(f"runs: {Path(twice).name!r} is there twice")
    short = [Path(path).name for path in paths]
    names = [name if short.count(name) == 1 else folder for name, folder in zip(short, folders, strict=True)]
    return [_read_run(folder, name, taxonomy, base_url) for folder, name in zip(folders, names, strict=True)]


def _read_run(folder: str, name: str, taxonomy: Taxonomy, base_url: str | None) -> EvalRun:
    file = Path(folder) / "run.json"
    record = read_json(file)
    try:
        asked, config = record["prompt"], record["config"]
        plain = recall(asked, taxonomy, str(file))
        spec = _spec(config, record, str(file), base_url)
        adapter = record.get("adapter")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError.at(file, f"is not the record of cprt eval ({error} is missing or odd)") from error
    if record["model"] != spec.identity["model"]:
        raise InputError.at(file, f"the model {spec.model} has changed since", field="model")
    if adapter != spec.identity.get("adapter"):
        raise InputError.at(file, f"the adapter {spec.adapter} has changed since", field="adapter")
    predictions = {prediction.id: prediction for prediction in read_predictions(Path(folder) / "predictions.jsonl")}
    return EvalRun(name, spec, plain, assuming_faces_anonymised(plain, taxonomy), predictions)


def _spec(config: Mapping[str, Any], record: Mapping[str, Any], where: str, base_url: str | None) -> ModelSpec:
    """How the run asked its model."""
    row = dict(config["judge"])
    row["name"] = "run"
    if record["decoding"].get("max_pixels") is None:  # as it stands, not ModelSpec's own cap
        row["max_pixels"] = None
    if row.get("base_url"):
        if base_url is None:
            raise InputError.at(where, "asked an endpoint: name it with --base_url", field="base_url")
        row["base_url"] = base_url
    return ModelSpec.read(row, where)


# --- Answers -----------------------------------------------------------------------------------------------------


def ask(
    runs: Sequence[EvalRun], cases: Sequence[Case], root: Path, cache: ResponseCache, allow_remote: bool
) -> Stopped | None:
    """Have every run's model answered about every case in ``cache``; what stopped it, if anything did.

    Runs of one model are asked one after the other, so that it is loaded once.
    """
    waiting = list(runs)
    try:
        while waiting:
            model = Model(waiting[0].spec, allow_remote)
            for one in [one for one in waiting if one.spec == model.spec]:
                waiting.remove(one)
                asked = [one.request(root / case.image) for case in cases]
                todo = {key: request for request in asked if (key := one.spec.key(request)) not in cache}
                if todo and model.is_remote:
                    print(
                        f"note: {one.name} is asked on another machine: {len(todo)} images leave this one",
                        file=sys.stderr,
                    )
                if todo:
                    model.ask(todo, cache, one.name)
    except Stopped as reason:  # what there is is written all the same
        return reason
    return None


def compare(
    one: EvalRun, cases: Sequence[Case], root: Path, cache: ResponseCache, taxonomy: Taxonomy
) -> list[dict[str, Any]]:
    """A row for every case: the run's score and level before and after, beside the truth's."""
    rows = []
    for case in cases:
        before = one.predictions[case.id].score
        assert before is not None  # or no run would be confident
        kept = cache.get(one.spec.key(one.request(root / case.image)))
        outcome = read(kept, one.spec.max_new_tokens, taxonomy)
        after = outcome.answer.score
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
                "after": after,
                "truth_before": case.truth_before,
                "truth_after": case.truth_after,
                "level_before": level_of(before, taxonomy),
                "level_after": outcome.answer.level,
                "truth_level_before": case.level_before,
                "truth_level_after": case.level_after,
                "text": outcome.text,
                "error": outcome.error,
            }
        )
    return rows


if __name__ == "__main__":
    run(main, "cprt counterfactual")
