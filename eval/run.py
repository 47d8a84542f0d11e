"""``cprt eval``: ask judges about every labelled photo -> predictions.jsonl, metrics.json, run.json and report.html.

A judge is a model with a prompt. Several adapters or prompts, or the ``models`` of a YAML, are judged in one run: each
has a folder of its own in ``OUT``, a single one writes to ``OUT`` itself. Every answer is kept in ``OUT/answers.jsonl``
as it comes. A run that was killed goes on where it stopped when the same command is given again; a changed model,
adapter, prompt or photo is asked anew.

On several cards: ``accelerate launch --num_processes 4 -m eval.run ...``. Each process asks its part and keeps it in a
file of its own; the last to finish writes the predictions. No process waits for another: after a fault, the same
command, with any number of processes, goes on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from cprt.answers import Answer
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root, load_image
from cprt.metrics.results import Metrics
from cprt.models.adapter import base_of
from cprt.models.ask import Model, ask, by_weights, open_models, raise_first
from cprt.models.checkpoint import DTYPES
from cprt.models.local import LocalModel
from cprt.models.missing import read_outcomes
from cprt.models.outcome import UNASKED, Outcome, tally
from cprt.models.response_cache import ResponseCache, Shard
from cprt.prompts import PROMPTS, TARGETS
from cprt.provenance import check_output, read_record, run_path, sign, write_run
from cprt.records import Label, Prediction, read_labels, read_object, read_predictions, write_json, write_jsonl
from cprt.taxonomy import Taxonomy
from eval.judges import Judge, from_options, from_rows, only_asked, rows_at_hand, shared
from eval.measures import measure, summary_line
from eval.predictions import predict, reader
from eval.report.page import write_report
from eval.runs import EvaluatedRun

RETRY = ("refused", "unparsed")
DECODINGS = ("greedy", "expected")
ANSWERS = "answers.jsonl"
WRITES = ("answers*.jsonl", "predictions.jsonl", "metrics.json", "report.html", "*.png")


@dataclass
class EvalArguments:
    labels: str = option("labels.jsonl with the truth")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option("folder to write", writes=WRITES)
    model: str | None = option("checkpoint (a folder or a Hugging Face Hub name), or an endpoint's name for it", None)
    adapter: list[str] = option(
        "LoRA folders to put on the model, each judged on its own; with base_url, the one that is served as model",
        factory=list,
    )
    models: list[dict[str, Any]] = option(
        "in place of model: a list of mappings, only in the YAML, see configs/eval/table6.yaml", factory=list
    )
    only: list[str] = option("names of the models to ask; none: all", factory=list)
    prompt: list[str] = option(
        f"what the model is asked, one or several of {', '.join(PROMPTS)} and YAML files; none: as the adapter was "
        "trained, else taxonomy",
        factory=list,
    )
    target: str | None = option(
        "what it is to answer; null: as the adapter was trained, else score", None, choices=list(TARGETS)
    )
    decoding: str = option(
        "expected: also mean and median over the probabilities of all scores; structured, also over those of all lists",
        "greedy",
        choices=DECODINGS,
    )
    structured: bool = option("hold every answer to the form that is asked for, so that each can be read", False)
    base_url: str | None = option("OpenAI-compatible endpoint that serves the model", None)
    check_served: bool = option(
        "first ask adapter and base here about one photo too, and stop where the endpoint says something else", False
    )
    api_key_env: str | None = option("environment variable with the endpoint's key", None)
    allow_remote: bool = option("photos may go to endpoints on other machines", False)
    retry: list[str] = option(
        f"ask again what ended so ({', '.join(RETRY)}); errors are always asked again", factory=list, among=RETRY
    )
    model_revision: str | None = option("commit, tag or branch of a Hub model", None)
    batch_size: int = option("photos a forward pass; larger is faster and needs memory", 16, least=1)
    max_new_tokens: int = option("longest answer; a longer one is cut off and unparsed", 256, least=1)
    max_pixels: int | None = option(
        "largest photo in pixels after resizing; an adapter brings the cap it was trained with", None, least=1
    )
    dtype: str = option("precision of the weights", "auto", choices=list(DTYPES))
    limit: int | None = option("only the first so many labels", None, least=1)
    thumbnails: bool = option("small pictures of the listed photos in report.html", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if (self.model is None) == (not self.models):
            raise ValueError("needs model, or models in the YAML, and not both")
        for name in ("adapter", "base_url", "api_key_env", "model_revision"):
            if self.models and getattr(self, name):
                raise ValueError(f"{name} goes with model; in models each row has its own")
        if self.base_url and len(self.adapter) > 1:
            raise ValueError("adapter: an endpoint serves one as model; name several in models")
        if self.check_served and not (self.base_url and self.adapter):
            raise ValueError("check_served needs base_url, and the adapter that it serves")
        if self.only and not self.models:
            raise ValueError("only goes with models")
        self.models = rows_at_hand(self.models, self.only)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt eval``."""
    (args,) = parse(EvalArguments, argv, prog="cprt eval", description=__doc__)
    taxonomy, shard = Taxonomy.load(args.taxonomy), Shard.from_environment()
    every = find_judges(args, taxonomy)
    judges = only_asked(every, args.only, taxonomy)
    by_model = [list(group) for _, group in groupby(judges, key=lambda judge: judge.spec.name)]
    by_model = by_weights(by_model, lambda group: group[0].spec)
    labels = read_labels(args.labels, taxonomy, needed=("image",))[: args.limit]
    root = image_root(args.images)
    photos = [str(label.image) for label in labels]
    models = open_models([group[0].spec for group in by_model], args.allow_remote, Path(args.out) / ANSWERS)
    check_images(root, photos, decode=False)
    paths = [root / photo for photo in photos]

    out, faults = Path(args.out), list[InputError]()
    folders = {judge.name: out / judge.name if len(every) > 1 else out for judge in every}
    results: dict[str, EvaluatedRun] = {}
    for judge in judges:
        check_output("cprt eval", folders[judge.name], WRITES)
    sign("cprt eval", out / "run.json", keep=True)
    with ResponseCache(out / ANSWERS, shard) as cache:

        def outcomes_of(judge: Judge) -> Iterator[tuple[str | OSError, Outcome[Answer]]]:
            """What became of its question about each photo, and under which key it is kept."""
            return read_outcomes(judge.spec, map(judge.request, paths), cache, reader(taxonomy, judge.prompt))

        if args.check_served:
            check_served(judges[0], models[0], paths[0], cache)
        for model, group in zip(models, by_model, strict=True):
            requests = [judge.request(path) for path in paths for judge in group]
            found = (one for judge in group for one in outcomes_of(judge)) if args.retry else ()
            again = {key for key, outcome in found if outcome.status in args.retry and isinstance(key, str)}
            try:
                ask(model, requests, cache, again)
            except InputError as reason:  # it cannot be loaded: others are asked all the same
                faults.append(reason)
                continue
            if model.stopped is not None:
                faults.append(model.stopped)
            unasked = (outcome.response is None for judge in group for _, outcome in outcomes_of(judge))
            if shard.world > 1 and (missing := sum(unasked)):
                print(
                    f"{model.spec.name}: {missing} answers are still missing; the process that asks the last of them "
                    "writes the predictions, and so does the same command in a single process"
                )
                continue
            for judge in group:
                outcomes = (outcome for _, outcome in outcomes_of(judge))
                try:
                    results[judge.name] = write(folders[judge.name], judge, labels, outcomes, taxonomy, args)
                except InputError as reason:
                    if model.stopped is None:
                        faults.append(reason)
    if results:
        for name in folders.keys() - {judge.name for judge in judges}:  # left out this time, and still on the page
            if (earlier := read_earlier(folders[name], labels, taxonomy)) is not None:
                results[name] = earlier
        shown = [results[name] for name in folders if name in results]
        page = write_report(out, labels, shown, taxonomy, root if args.thumbnails else None)
        print(f"{page}: figures beside the paper's, pictures, and the largest errors")
    raise_first(faults)


def check_served(judge: Judge, model: Model, photo: Path, cache: ResponseCache) -> None:
    """Ask the endpoint and, on its own base, the adapter in the folder about one photo; the endpoint's answer is kept.

    Raises InputError where their answers differ, or there is none: another model is served, or another template or
    photo size than the adapter was trained with.
    """
    spec, request = judge.spec, judge.request(photo)
    assert spec.adapter is not None
    ask(model, [request], cache)
    ((_, there),) = read_outcomes(spec, [request], cache, lambda text: ("ok", text))
    if there.text is None:
        raise InputError(f"check_served: {spec.name}: no answer about {photo} ({there.error})")
    base, commit = base_of(spec.adapter)
    local = LocalModel(base, spec.adapter, revision=commit)
    here = local.generate([(request.messages, [load_image(photo)])], spec.max_new_tokens or 256)[0].text or ""
    if here != there.text:
        raise InputError(
            f"check_served: about {photo} the endpoint says {there.text[:80]!r}, {spec.adapter} on {base} here "
            f"{here[:80]!r}: is it this adapter, with the pixel cap and template of its folder (see its card)?"
        )
    print(f"about {photo.name} the endpoint says what {spec.adapter} says here: {here[:80]}")


def find_judges(args: EvalArguments, taxonomy: Taxonomy) -> list[Judge]:
    """The judges that the options name. Raises InputError."""
    asked = (args.prompt, args.target, args.decoding, args.structured, taxonomy)
    if args.model is None:
        return from_rows(args.models, *asked)
    options = shared(args)
    if args.base_url is None or args.max_pixels is not None:
        options["max_pixels"] = args.max_pixels
    return from_options(args.model, args.adapter, *asked, **options)


def write(
    folder: Path,
    judge: Judge,
    labels: Sequence[Label],
    outcomes: Iterable[Outcome[Answer]],
    taxonomy: Taxonomy,
    args: EvalArguments,
) -> EvaluatedRun:
    """Write predictions, metrics and run record of one judge. Raises InputError where not one photo got an answer."""
    predictions = list[Prediction]()
    ways = Counter[str]()  # how answers came about, as JSON: one run may go on where another stopped
    free = 0  # answers that an endpoint was to hold to a form, and did not
    for label, outcome in zip(labels, outcomes, strict=True):
        predictions.append(predict(judge, label, outcome, taxonomy))
        if outcome.response is not None and outcome.response.error is None:
            free += outcome.response.is_free
            dropped = {"without": outcome.response.dropped} if outcome.response.dropped else {}
            ways[json.dumps((outcome.response.made or {}) | dropped)] += 1
    made = [{**json.loads(way), "count": count} for way, count in sorted(ways.items()) if way != "{}"]
    sign("cprt eval", folder / "run.json")
    write_jsonl(folder / "predictions.jsonl", predictions)
    metrics = measure(labels, predictions, taxonomy, file=str(folder / "predictions.jsonl"))
    write_json(folder / "metrics.json", metrics)
    write_run(
        "cprt eval",
        folder,
        {**vars(args), "models": [], "judge": judge.spec.record()},
        {"labels": args.labels},
        taxonomy=taxonomy.digest,
        prompt=judge.prompt.identity(),
        model=judge.spec.identity["model"],
        adapter=judge.spec.identity.get("adapter"),
        decoding=judge.record(free, len(labels)),
        batch_size=judge.spec.batch_size,
        dtype=", ".join(sorted({way["dtype"] for way in made if "dtype" in way})) or None,
        answers_made=made,
    )
    stopped = any(prediction.error == UNASKED for prediction in predictions)
    ended = tally((prediction.status, prediction.error) for prediction in predictions)
    print(f"{folder}: {f'stopped with {ended}' if stopped else summary_line(metrics)}")
    if all(prediction.status == "error" for prediction in predictions):
        raise InputError(f"{folder}: every photo ended in an error (the first: {predictions[0].error})")
    if free:
        print(
            f"note: {folder}: {free} of {len(labels)} answers are free ones: the endpoint takes no JSON schema, "
            "or does not keep to it; the run does not count as structured"
        )
    without = sum(row.status == "ok" and row.expected_score is None for row in predictions)
    if judge.expected and without:
        print(f"note: {folder}: {without} answers without an expected score (no probabilities of a score came along)")
    return _evaluated(folder, predictions, metrics)


def read_earlier(folder: Path, labels: Sequence[Label], taxonomy: Taxonomy) -> EvaluatedRun | None:
    """What an earlier run has left in ``folder``; None where there is nothing whole, or about other photos."""
    file = folder / "predictions.jsonl"
    if not (file.is_file() and run_path(folder).is_file()) or "unfinished" in read_object(run_path(folder)):
        return None
    predictions = read_predictions(file)
    if sorted(row.id for row in predictions) != sorted(label.id for label in labels):
        return None
    return _evaluated(folder, predictions, measure(labels, predictions, taxonomy, file=str(file)))


def _evaluated(folder: Path, predictions: list[Prediction], metrics: Metrics) -> EvaluatedRun:
    """Called by its folder's name, as ``cprt compare`` calls it."""
    return EvaluatedRun(folder.resolve().name, predictions, metrics, read_record(run_path(folder)))


if __name__ == "__main__":
    run(main, "cprt eval")
