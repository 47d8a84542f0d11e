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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.models.ask import Model
from cprt.models.checkpoint import DTYPES
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import Request
from cprt.prompts import PROMPTS, TARGETS
from cprt.provenance import check_output, run_path, sign, write_run
from cprt.records import Label, Prediction, read_json, read_labels, write_json, write_jsonl
from cprt.taxonomy import Taxonomy
from eval.judges import Judge, from_options, from_rows, photo_of
from eval.kept import Kept, Shard
from eval.metrics import measure, summary_line
from eval.predictions import predict, quality
from eval.report.write import write_report

RETRY = ("refused", "unparsed")
DECODINGS = ("greedy", "expected")
WRITES = ("answers*.jsonl", "predictions.jsonl", "metrics.json", "report.html", "*.png")


@dataclass
class EvalArguments:
    labels: str = option("labels.jsonl with the truth")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option("folder to write", writes=WRITES)
    model: str | None = option("checkpoint (a folder or a Hugging Face Hub name), or an endpoint's name for it", None)
    adapter: list[str] = option("LoRA folders to put on the model, each judged on its own", factory=list)
    models: list[dict[str, Any]] = option(
        "in place of model: a list of mappings, only in the YAML, see configs/eval/table6.yaml", factory=list
    )
    only: list[str] = option("names of the models to ask; none: all", factory=list)
    prompt: list[str] = option(
        f"what the model is asked, one or several of {', '.join(PROMPTS)} and YAML files", factory=lambda: ["taxonomy"]
    )
    target: str | None = option(
        "what it is to answer; null: as the adapter was trained, else score", None, choices=list(TARGETS)
    )
    decoding: str = option(
        "expected: also mean and median over the probabilities of all scores", "greedy", choices=DECODINGS
    )
    base_url: str | None = option("OpenAI-compatible endpoint that serves the model", None)
    api_key_env: str | None = option("environment variable with the endpoint's key", None)
    allow_remote: bool = option("photos may go to endpoints on other machines", False)
    retry: list[str] = option(
        f"ask again what ended so ({', '.join(RETRY)}); errors are always asked again", factory=list
    )
    model_revision: str | None = option("commit, tag or branch of a Hub model", None)
    batch_size: int = option("photos a forward pass; larger is faster and needs memory", 16)
    max_new_tokens: int = option("longest answer; a longer one is cut off and unparsed", 256)
    max_pixels: int | None = option(
        "largest photo in pixels after resizing; an adapter brings the cap it was trained with", None
    )
    dtype: str = option("precision of the weights", "auto", choices=list(DTYPES))
    limit: int | None = option("only the first so many labels", None)
    thumbnails: bool = option("small pictures of the listed photos in report.html", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_new_tokens", "max_pixels", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name, values, known in (("retry", self.retry, RETRY),):
            for value in values:
                if value not in known:
                    raise ValueError(f"{name}: {value!r} is not one of {', '.join(known)}")
        if not self.prompt:
            raise ValueError("prompt: the list is empty")
        if self.target == "attributes" and self.prompt != ["taxonomy"]:
            raise ValueError("target attributes needs prompt taxonomy, which tells the model the keys")
        if (self.model is None) == (not self.models):
            raise ValueError("needs model, or models in the YAML, and not both")
        for name in ("adapter", "base_url", "api_key_env", "model_revision"):
            if self.models and getattr(self, name):
                raise ValueError(f"{name} goes with model; in models each row has its own")
        if self.only and not self.models:
            raise ValueError("only goes with models")


@dataclass(frozen=True)
class Asked:
    """A judge, and the key of each label's answer."""

    judge: Judge
    keys: list[str]


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt eval``."""
    (args,) = parse(EvalArguments, argv, prog="cprt eval", description=__doc__)
    taxonomy, shard = Taxonomy.load(args.taxonomy), Shard.from_environment()
    judges = find_judges(args, taxonomy)
    labels = read_labels(args.labels, taxonomy)[: args.limit]
    root = image_root(args.images)
    photos = [photo_of(label, args.labels) for label in labels]
    check_images(root, photos, decode=False)
    paths = [root / photo for photo in photos]
    by_model = [list(group) for _, group in groupby(judges, key=lambda judge: judge.spec.name)]
    models = [Model(group[0].spec, args.allow_remote) for group in by_model]  # keys and addresses are checked first
    for model in models:
        if model.is_remote:
            print(f"note: {model.spec.name} is on another machine: the photos leave this one")

    out, faults = Path(args.out), list[InputError]()
    predictions: dict[str, list[Prediction]] = {}
    metrics: dict[str, dict[str, Any]] = {}
    records: dict[str, dict[str, Any]] = {}
    for judge in judges:
        check_output("cprt eval", out if len(judges) == 1 else out / judge.name, WRITES)
    sign("cprt eval", out / "run.json")
    with ResponseCache(out / shard.file) as cache:
        for group in by_model:
            model = models.pop(0)  # a local one leaves memory before the next is loaded
            asked = [Asked(judge, [judge.spec.key(judge.request(path)) for path in paths]) for judge in group]
            try:
                ask(model, asked, labels, paths, cache, shard, taxonomy, args.retry)
            except Stopped as reason:  # what there is is written all the same, and other models are asked
                faults.append(reason)
            except InputError as reason:
                faults.append(reason)
                continue
            kept = Kept(out, cache)  # read anew: other processes have gone on meanwhile
            missing = sum(kept.missing(one.keys) for one in asked)
            if missing and shard.world > 1:
                print(
                    f"{model.spec.name}: {missing} answers are still missing; the process that asks the last of them "
                    "writes the predictions, and so does the same command in a single process"
                )
                continue
            for one in asked:
                # A run is called by its folder's name, as cprt compare calls it.
                folder = out if len(judges) == 1 else out / one.judge.name
                name = folder.resolve().name
                try:
                    written = write(folder, one, labels, kept, taxonomy, args)
                except InputError as reason:
                    faults.append(reason)
                    continue
                predictions[name], metrics[name] = written
                records[name] = read_json(run_path(folder))
    if predictions:
        pictured = root if args.thumbnails else None
        page = write_report(out, labels, predictions, metrics, taxonomy, pictured, records=records)
        print(f"{page}: figures beside the paper's, pictures, and the largest errors")
    if faults:
        for other in faults[1:]:
            print(f"note: {other}")
        raise faults[0]


def find_judges(args: EvalArguments, taxonomy: Taxonomy) -> list[Judge]:
    """The judges that the options name. Raises InputError."""
    if args.models:
        return from_rows(args.models, args.prompt, args.target, args.decoding, args.only, taxonomy)
    assert args.model is not None
    options = {
        "revision": args.model_revision,
        "base_url": args.base_url,
        "api_key_env": args.api_key_env,
        "batch_size": args.batch_size,
        "max_new_tokens": args.max_new_tokens,
        "max_pixels": args.max_pixels,
        "dtype": args.dtype,
    }
    if args.base_url is not None and args.max_pixels is None:
        del options["max_pixels"]
    return from_options(args.model, args.adapter, args.prompt, args.target, args.decoding, taxonomy, **options)


def ask(
    model: Model,
    asked: Sequence[Asked],
    labels: Sequence[Label],
    paths: Sequence[Path],
    cache: ResponseCache,
    shard: Shard,
    taxonomy: Taxonomy,
    retry: Sequence[str],
) -> None:
    """Have this process's part of the requests answered in ``cache``: all prompts of one model. Raises Stopped."""
    kept, requests = Kept(cache.path.parent, cache), dict[str, Request]()
    for one in asked:
        for label, path, key in zip(labels, paths, one.keys, strict=True):
            if shard.has(key):
                row = kept.get(key, quality(one.judge, label, taxonomy))
                again = retry and row and predict(one.judge, label, row, taxonomy).status in retry
                if row is None or "error" in row or again:
                    requests[key] = one.judge.request(path)
    if requests:
        part = f", part {shard.rank + 1} of {shard.world}" if shard.world > 1 else ""
        model.ask(requests, cache, model.spec.name + part)


def write(
    folder: Path, one: Asked, labels: Sequence[Label], kept: Kept, taxonomy: Taxonomy, args: EvalArguments
) -> tuple[list[Prediction], dict[str, Any]]:
    """Write predictions, metrics and run record of one judge. Raises InputError where not one photo got an answer."""
    judge = one.judge
    rows = [kept.get(key, quality(judge, label, taxonomy)) for label, key in zip(labels, one.keys, strict=True)]
    predictions = [predict(judge, label, row, taxonomy) for label, row in zip(labels, rows, strict=True)]
    write_jsonl(folder / "predictions.jsonl", predictions)
    metrics = measure(labels, predictions, taxonomy, file=str(folder / "predictions.jsonl"))
    write_json(folder / "metrics.json", metrics)
    config = {**vars(args), "models": [], "base_url": args.base_url and "endpoint", "judge": judge.spec.record()}
    write_run(
        "cprt eval",
        folder,
        config,
        {"labels": args.labels},
        taxonomy=taxonomy.digest,
        prompt=judge.prompt.identity(),
        model=judge.spec.identity["model"],
        adapter=judge.spec.identity.get("adapter"),
        decoding=judge.record(),
        batch_size=judge.spec.batch_size,
        **_made(rows),
    )
    print(f"{folder}: {summary_line(metrics)}")
    if all(prediction.status == "error" for prediction in predictions):
        raise InputError(f"{folder}: every photo ended in an error (the first: {predictions[0].error})")
    return predictions, metrics


def _made(rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """How the answers came about: distinct ways with their counts, since one run may go on where another stopped."""
    answers = [row for row in rows if row is not None and "error" not in row]
    ways = [{**row.get("made", {}), **({"without": row["dropped"]} if row.get("dropped") else {})} for row in answers]
    counts = Counter(str(sorted(way.items())) for way in ways)
    distinct = {str(sorted(way.items())): way for way in ways}
    dtypes = sorted({way["dtype"] for way in ways if "dtype" in way})
    return {
        "dtype": ", ".join(dtypes) or None,
        "answers_made": [{**way, "count": counts[name]} for name, way in sorted(distinct.items()) if way],
    }


if __name__ == "__main__":
    run(main, "cprt eval")
