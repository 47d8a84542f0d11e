"""``cprt annotate``: ask vision-language models which attributes a photo makes inferable (paper C.1), in two stages.

Annotators come from the YAML, each an OpenAI-compatible endpoint or a local checkpoint (fields: ``ModelSpec`` in
``cprt/models/spec.py``). Every reply is kept in ``OUT/answers/NAME.jsonl`` as it comes: after a kill or an error the
same command asks only what is missing. ``OUT/annotations.jsonl`` has a row for each photo and annotator, photos in
order of id; ``OUT/consensus.jsonl`` labels that are 1 only where every annotator says 1 (docs/files.md). A photo
without labels of every annotator has no row there and is listed in ``OUT/report.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cprt.annotation import consensus, stage1, stage2
from cprt.answers import STATUSES
from cprt.answers.labels import read_stage1, read_stage2
from cprt.answers.structure import labels_structure, reasons_structure
from cprt.answers.thinking import without_thinking
from cprt.config import option, parse, run
from cprt.errors import InputError, printable
from cprt.images import ImageIndex, check_images, fit, image_size
from cprt.models.ask import Model, ask, open_models, raise_first
from cprt.models.missing import Missing, hash_photos
from cprt.models.outcome import Outcome, Status, find_outcomes, with_status
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request, read_specs
from cprt.pages.words import cut, first_few
from cprt.prompts import digest
from cprt.provenance import sign, write_run
from cprt.records import write_json, write_jsonl
from cprt.taxonomy import Taxonomy
from data_prep.id_lists import read_ids

Labels = dict[str, float]
Outcomes = Mapping[str, Outcome[Any]]

RETRY = ("refused", "unparsed")
STAGE1_TOKENS, STAGE2_TOKENS = 25, 8  # of an answer, an attribute; for the estimate


@dataclass
class AnnotateArguments:
    annotators: list[dict[str, Any]] = option(
        "the models to ask, a list of mappings: only in the YAML, see configs/data/annotate.yaml",
        filled=True,
    )
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option("folder to write", writes=("answers", "annotations.jsonl", "consensus.jsonl", "report.json"))
    input: str | None = option("photos to annotate: ids in a text file, or JSONL rows with id; null: all", None)
    retry: list[str] = option(
        f"ask photos with these statuses again, from stage one: {', '.join(RETRY)}; errors always are",
        factory=list,
        among=RETRY,
    )
    structured: bool = option(
        "hold answers to their form, so that each can be read: labels, and what a model that runs here says before",
        False,
    )
    limit: int | None = option("only the first so many photos", None, least=1)
    dry_run: bool = option("say how many calls and tokens it would take, ask nothing", False)
    allow_remote: bool = option("photos may go to endpoints on other machines", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


class Photo(NamedTuple):
    id: str
    path: Path


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(AnnotateArguments, argv, prog="cprt annotate", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    specs = read_specs(args.annotators, "annotators")
    out = Path(args.out)
    models = [] if args.dry_run else open_models(specs, args.allow_remote, out / "answers")
    photos = find_photos(args.images, args.input, args.limit)
    hash_photos(photo.path for photo in photos)
    if args.dry_run:
        for spec in specs:
            cache = ResponseCache(_answers(out, spec), read_only=True)
            print(estimate(Annotator(spec, photos, taxonomy, args.structured), cache, args.retry))
        return

    sign("cprt annotate", out / "run.json", keep=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        annotator = Annotator(model.spec, photos, taxonomy, args.structured)
        with ResponseCache(_answers(out, model.spec)) as cache:
            rows[model.spec.name] = annotator.ask(model, cache, args.retry)
    sign("cprt annotate", out / "run.json")
    report = write(out, rows, taxonomy)
    config = {**vars(args), "annotators": [spec.record() for spec in specs]}
    prompts = {"stage1": digest(stage1(taxonomy)), "stage2": digest(stage2("", taxonomy))}
    inputs = {"input": args.input} if args.input else {}
    write_run("cprt annotate", out, config, inputs, taxonomy=taxonomy.digest, prompts=prompts, report=report)
    raise_first(model.stopped for model in models)
    _print(report, rows, out)
    if all(row["status"] == "error" for annotated in rows.values() for row in annotated):
        raise InputError(f"{out}: every photo ended in an error (the first: {rows[specs[0].name][0]['error']})")


def find_photos(images: str, input: str | None, limit: int | None = None) -> list[Photo]:
    """The photos to annotate, in order of id (the file name without extension), each checked to be an image.

    Raises InputError for an id without a photo, for one that is there twice, and for what is no image.
    """
    index = ImageIndex(images)
    wanted = [(path, f"{images}: {path}") for path in index.paths]
    if input is not None:
        wanted = [(id, f"{input}:{line}") for line, id in read_ids(input)]
    photos: dict[str, str] = {}
    for id, where in wanted:
        if (path := index.find(id, where)) is None:
            raise InputError.at(where, f"there is no photo {id!r} in {index.root}")
        if Path(path).stem in photos:
            raise InputError.at(where, f"{Path(path).stem!r} is there twice")
        photos[Path(path).stem] = path
    if not photos:
        raise InputError.at(input or images, "holds no images")
    chosen = sorted(photos.items())[:limit]
    check_images(index.root, [path for _, path in chosen], decode=False)
    return [Photo(id, index.root / path) for id, path in chosen]


class Annotator:
    """One model, what it is asked about every photo, and what it makes of it."""

    def __init__(self, spec: ModelSpec, photos: Sequence[Photo], taxonomy: Taxonomy, structured: bool = False):
        self.spec, self.taxonomy, self.structured = spec, taxonomy, structured
        messages = stage1(taxonomy)
        lines = reasons_structure(taxonomy) if structured and spec.base_url is None else None
        self._labels = labels_structure(taxonomy) if structured else None
        self.first = {photo.id: Request(messages, (photo.path,), structure=lines) for photo in photos}
        self.keys = {id: spec.key(request) for id, request in self.first.items()}  # of stage one

    @property
    def first_requests(self) -> dict[str, Request]:
        """Stage one by key; photos with the same bytes share one."""
        return {self.keys[id]: request for id, request in self.first.items()}

    def second_requests(self, first: Outcomes) -> dict[str, tuple[str, Request]]:
        """Stage two by the key of a stage one that has said something: (key, request)."""
        asked = {}
        for first_key, outcome in first.items():
            if outcome.status == "ok":
                request = Request(stage2(outcome.value or "", self.taxonomy), structure=self._labels)
                asked[first_key] = self.spec.key(request), request
        return asked

    def read_first(self, text: str) -> tuple[Status, str | None]:
        status = read_stage1(text, self.taxonomy)
        return status, without_thinking(text) if status == "ok" else None

    def find(self, cache: ResponseCache) -> tuple[Outcomes, Outcomes]:
        """Both stages by the key of stage one, as they are kept."""
        first: Outcomes = find_outcomes(self.first_requests, cache, self.read_first, self.spec)
        second = self.second_requests(first)
        found = find_outcomes(dict(second.values()), cache, partial(read_stage2, taxonomy=self.taxonomy), self.spec)
        return first, {key: found[second_key] for key, (second_key, _) in second.items()}

    def again(self, cache: ResponseCache, retry: Sequence[str]) -> set[str]:
        """The stage-one keys of photos whose status is to be tried once more, from stage one."""
        first, second = self.find(cache) if retry else ({}, {})
        return with_status({**first, **second}, retry)

    def ask(self, model: Model, cache: ResponseCache, retry: Sequence[str]) -> list[dict[str, Any]]:
        """A row for every photo, after both stages of what is missing were asked."""
        again = self.again(cache, retry)
        ask(model, self.first_requests.values(), cache, again, f"{self.spec.name}, stage 1")
        second = self.second_requests(find_outcomes(self.first_requests, cache, self.read_first, self.spec))
        second_again = {key for first_key, (key, _) in second.items() if first_key in again}
        ask(model, [request for _, request in second.values()], cache, second_again, f"{self.spec.name}, stage 2")
        first, labelled = self.find(cache)
        return [self._row(id, first[key], labelled.get(key)) for id, key in self.keys.items()]

    def _row(self, id: str, first: Outcome[Any], second: Outcome[Labels] | None) -> dict[str, Any]:
        stage, last = (1, first) if second is None else (2, second)
        error = None
        if last.status != "ok":
            unparsed = "no answer" if second is None else "no JSON with every key"
            error = f"stage {stage}: {last.error or {'refused': 'refused in words', 'unparsed': unparsed}[last.status]}"
        row = {
            "id": id,
            "annotator": self.spec.name,
            "status": last.status,
            "labels": last.value,
            "stage1": first.text,
            "stage2": second and second.text,
            "error": error,
        }
        if self.structured:
            given = [outcome.response for outcome in (first, second) if outcome is not None and outcome.response]
            shares = [one.willing for one in given if one.willing is not None]
            row["willing"] = math.prod(shares) if shares else None
            row["free"] = any(one.is_free for one in given)
        return row


def estimate(annotator: Annotator, cache: ResponseCache, retry: Sequence[str]) -> str:
    """What a run would take, in one line, reasoning left out.

    Rule: four characters of text are a token, and so are 32 x 32 pixels of a photo (as Qwen3-VL counts; others differ).
    """
    spec, attributes = annotator.spec, len(annotator.taxonomy.keys)
    again = annotator.again(cache, retry)
    first = [request for _, request in Missing(spec, cache, again)(annotator.first_requests.values())]
    unseen = "x" * (4 * STAGE1_TOKENS * attributes)  # what stage one will say
    answered = [request for _, request in annotator.second_requests(annotator.find(cache)[0]).values()]
    second = [request for _, request in Missing(spec, cache)(answered)]
    second += [Request(stage2(unseen, annotator.taxonomy))] * len(first)
    read = sum(_tokens(request, spec.max_pixels) for request in [*first, *second])
    written = attributes * (STAGE1_TOKENS * len(first) + STAGE2_TOKENS * len(second))
    return (
        f"{spec.name}: {len(first)} + {len(second)} calls (stage 1 + 2) for {len(annotator.first)} photos, about "
        f"{read:,} tokens to read and {written:,} to write"
    )


def _tokens(request: Request, max_pixels: int | None) -> int:
    tokens = sum(len(part.get("text", "")) for message in request.messages for part in message["content"]) // 4
    for path in request.images:
        size = image_size(path)
        width, height = fit(size, max_pixels or math.prod(size))
        tokens += -(-width // 32) * -(-height // 32)
    return tokens


def write(out: Path, rows: Mapping[str, list[dict[str, Any]]], taxonomy: Taxonomy) -> dict[str, Any]:
    """annotations.jsonl, consensus.jsonl and report.json; returns the report."""
    by_photo = list(zip(*rows.values(), strict=True))
    write_jsonl(out / "annotations.jsonl", [row for group in by_photo for row in group])
    agreed: list[dict[str, Any]] = []
    for group in by_photo:
        if all(row["status"] == "ok" for row in group):
            labels = consensus([row["labels"] for row in group], taxonomy)
            agreed.append({"id": group[0]["id"], "labels": labels, "annotators": list(rows)})
    write_jsonl(out / "consensus.jsonl", agreed)
    report = {
        "photos": len(by_photo),
        "annotators": {
            name: {status: sum(row["status"] == status for row in annotated) for status in STATUSES}
            for name, annotated in rows.items()
        },
        "consensus": len(agreed),
        "consensus_positives": {key: sum(row["labels"][key] for row in agreed) for key in taxonomy.keys},
        "without_consensus": [
            {"id": group[0]["id"], "statuses": {row["annotator"]: row["status"] for row in group}}
            for group in by_photo
            if any(row["status"] != "ok" for row in group)
        ],
    }
    structured = {name: _held(annotated) for name, annotated in rows.items() if "free" in annotated[0]}
    if structured:
        report["structured"] = structured
    write_json(out / "report.json", report)
    return report


def _held(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many labels an endpoint did not hold to the schema; how willingly a model that runs here kept to forms."""
    shares = [row["willing"] for row in rows if row["willing"] is not None]
    return {"free": sum(row["free"] for row in rows), "willing": sum(shares) / len(shares) if shares else None}


def _answers(out: Path, spec: ModelSpec) -> Path:
    return out / "answers" / f"{spec.name}.jsonl"


def _print(report: Mapping[str, Any], rows: Mapping[str, list[dict[str, Any]]], out: Path) -> None:
    for name, counts in report["annotators"].items():
        print(f"{name}: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
        first = next((row for row in rows[name] if row["status"] == "unparsed"), None)
        if first is not None:
            answer = first["stage1"] if first["stage2"] is None else first["stage2"]
            print(f"  the first unparsed answer: {printable(cut(' '.join((answer or '').split()), 160))}")
        if free := report.get("structured", {}).get(name, {}).get("free"):
            print(f"  {free} answers are free ones: the endpoint takes no JSON schema, or does not keep to it")
    print(f"{out / 'consensus.jsonl'}: {report['consensus']} of {report['photos']} photos")
    left = [row["id"] for row in report["without_consensus"]]
    if left:
        print(f"  without labels of every annotator: {first_few(left)} (see report.json)")


if __name__ == "__main__":
    run(main, "cprt annotate")
