"""``cprt annotate``: ask vision-language models which attributes a photo makes inferable (paper C.1), in two stages.

Annotators come from the YAML, each an OpenAI-compatible endpoint or a local checkpoint (fields: ``ModelSpec`` in
``cprt/models/spec.py``). Files in ``OUT``:

* ``answers/NAME.jsonl``: every reply of one annotator, durable as it comes. Run the same command again after a kill or
  an error: only what is missing is asked.
* ``annotations.jsonl``: a row for each photo and annotator, photos in order of id, annotators in the YAML's order::

      {"id": "2017_10000580", "annotator": "gpt", "status": "ok", "labels": {"biometrics": 0.5, ... every key},
       "stage1": "biometrics: unclear - ...", "stage2": "{\"biometrics\": 0.5, ...}", "error": null}

  ``status`` is ok, unparsed, refused or error; ``labels`` (0, 0.5 or 1 for every key of the taxonomy) is null unless it
  is ok, ``stage1`` and ``stage2`` are the raw texts or null where that call was not made or gave none, and ``error``
  says why there is no label.
* ``consensus.jsonl``: ``{"id", "labels": {every key: 0 or 1}, "annotators": [names]}``, 1 only where every annotator
  says 1. A photo without labels of every annotator has no row and is listed in ``report.json``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cprt.annotation import consensus, read_stage1, read_stage2, stage1, stage2
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_text
from cprt.images import ImageIndex, check_images, fit, image_size
from cprt.models.ask import Model
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import ResponseCache, read_cache
from cprt.models.spec import ModelSpec, Request, Response
from cprt.prompts import digest
from cprt.provenance import sign, write_run
from cprt.records import PREDICTION_STATUSES, read_jsonl, write_json, write_jsonl
from cprt.taxonomy import Taxonomy

RETRY = ("refused", "unparsed")
STAGE1_TOKENS, STAGE2_TOKENS = 25, 8  # an attribute; for the estimate


@dataclass
class AnnotateArguments:
    annotators: list[dict[str, Any]] = option(
        "the models to ask, a list of mappings: only in the YAML, see configs/data/annotate.yaml"
    )
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option("folder to write", writes=("answers", "annotations.jsonl", "consensus.jsonl", "report.json"))
    input: str | None = option("photos to annotate: ids in a text file, or JSONL rows with id; null: all", None)
    retry: list[str] = option(f"ask photos with these statuses again, from stage one: {', '.join(RETRY)}", factory=list)
    limit: int | None = option("only the first so many photos", None)
    dry_run: bool = option("say how many calls and tokens it would take, ask nothing", False)
    allow_remote: bool = option("photos may go to endpoints on other machines", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        unknown = [status for status in self.retry if status not in RETRY]
        if unknown:
            raise ValueError(f"retry: {unknown[0]!r} is not one of {', '.join(RETRY)} (errors are always asked again)")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, not {self.limit}")
        if not self.annotators:
            raise ValueError("annotators: the list is empty")


@dataclass(frozen=True)
class Photo:
    id: str
    path: Path


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt annotate``."""
    (args,) = parse(AnnotateArguments, argv, prog="cprt annotate", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    specs = [ModelSpec.read(row, f"annotators[{number}]") for number, row in enumerate(args.annotators, start=1)]
    doubled = [name for name, count in Counter(spec.name.lower() for spec in specs).items() if count > 1]
    if doubled:
        raise InputError.at("annotators", f"{doubled[0]!r} is there twice", field="name")
    photos = find_photos(args.images, args.input, args.limit)
    out = Path(args.out)
    if args.dry_run:
        for spec in specs:
            print(estimate(Annotator(spec, photos, taxonomy), read_cache(_answers(out, spec)), args.retry))
        return

    models = [Model(spec, args.allow_remote) for spec in specs]
    for model in models:
        if model.is_remote:
            print(f"note: {model.spec.name} is on another machine: the photos leave this one")
    sign("cprt annotate", out / "run.json")
    rows: dict[str, list[dict[str, Any]]] = {}
    stopped: Stopped | None = None
    for model in models:
        annotator = Annotator(model.spec, photos, taxonomy)
        with ResponseCache(_answers(out, model.spec)) as cache:
            try:
                if stopped is None:
                    annotator.ask(model, cache, args.retry)
            except Stopped as reason:  # what there is is written all the same
                stopped = reason
            rows[model.spec.name] = annotator.read(cache)
    report = write(out, rows, taxonomy)
    config = {**vars(args), "annotators": [spec.record() for spec in specs]}
    prompts = {"stage1": digest(stage1(taxonomy)), "stage2": digest(stage2("", taxonomy))}
    write_run(
        "cprt annotate",
        out,
        config,
        {"input": args.input} if args.input else {},
        taxonomy=taxonomy.digest,
        prompts=prompts,
        report=report,
    )
    if stopped is not None:
        raise stopped
    _print(report, out)
    if all(row["status"] == "error" for annotated in rows.values() for row in annotated):
        raise InputError(f"{out}: every photo ended in an error (the first: {rows[specs[0].name][0]['error']})")


def find_photos(images: str, input: str | None, limit: int | None = None) -> list[Photo]:
    """The photos to annotate, in order of id (the file name without extension), each checked to be an image.

    Raises InputError for an id without a photo, for one that is there twice, and for what is no image.
    """
    index = ImageIndex(images)
    wanted = [(path, f"{images}: {path}") for path in index.paths] if input is None else _read_ids(input)
    photos: dict[str, str] = {}
    for id, where in wanted:
        try:
            path = index.find(id)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
        if path is None:
            raise InputError(f"{where}: there is no photo {id!r} in {index.root}")
        if Path(path).stem in photos:
            raise InputError(f"{where}: {Path(path).stem!r} is there twice")
        photos[Path(path).stem] = path
    if not photos:
        raise InputError(f"{input or images}: has no photos")
    chosen = sorted(photos.items())[:limit]
    check_images(index.root, [path for _, path in chosen], decode=False)
    return [Photo(id, index.root / path) for id, path in chosen]


def _read_ids(file: str) -> list[tuple[str, str]]:
    """(id, place) from JSON Lines with an ``id``, or one id a line."""
    if file.endswith((".jsonl", ".json")):
        rows = [(line, row.get("id")) for line, row in read_jsonl(file)]
    else:
        rows = [(line, text.strip()) for line, text in enumerate(read_text(file).split("\n"), start=1) if text.strip()]
    for line, id in rows:
        if not isinstance(id, str) or not id:
            raise InputError.at(file, "must be a non-empty text", line, "id")
    return [(str(id), f"{file}:{line}") for line, id in rows]


class Kept(Protocol):
    """Responses by key: a cache, or what was read from its file."""

    def get(self, key: str, /) -> dict[str, Any] | None: ...


class Annotator:
    """One model, what it is asked about every photo, and what its kept responses mean."""

    def __init__(self, spec: ModelSpec, photos: Sequence[Photo], taxonomy: Taxonomy):
        self.spec, self.taxonomy = spec, taxonomy
        messages = stage1(taxonomy)
        self.first = {photo.id: Request(messages, (photo.path,)) for photo in photos}
        self._first_keys = {id: spec.key(request) for id, request in self.first.items()}

    def ask(self, model: Model, cache: ResponseCache, retry: Sequence[str]) -> None:
        """Have both stages of all photos answered in ``cache``. Raises Stopped."""
        again = self.again(cache, retry)
        for stage, missing in ((1, self.missing_first), (2, self.missing_second)):
            requests = missing(cache, again)
            if requests:
                model.ask(requests, cache, f"{self.spec.name}, stage {stage}")

    def again(self, kept: Kept, retry: Sequence[str]) -> set[str]:
        """The ids whose status is to be tried once more, from stage one."""
        return {row["id"] for row in self.read(kept) if row["status"] in retry} if retry else set()

    def missing_first(self, kept: Kept, again: set[str]) -> dict[str, Request]:
        """Stage-one requests to ask, by key; photos with the same bytes share one."""
        keys = self._first_keys
        return {
            keys[id]: request for id, request in self.first.items() if id in again or not _is_answered(kept, keys[id])
        }

    def missing_second(self, kept: Kept, again: set[str]) -> dict[str, Request]:
        """Stage-two requests to ask, by key, of photos whose stage one has said something."""
        missing = {}
        for id, first_key in self._first_keys.items():
            request = self._second(kept.get(first_key))
            if request is not None:
                key = self.spec.key(request)
                if id in again or not _is_answered(kept, key):
                    missing[key] = request
        return missing

    def read(self, kept: Kept) -> list[dict[str, Any]]:
        """A row for every photo."""
        rows = []
        for id, key in self._first_keys.items():
            first = self._read(kept.get(key), 1)
            request = self._second(kept.get(key))
            second = None if request is None else self._read(kept.get(self.spec.key(request)), 2)
            last = second or first
            rows.append(
                {
                    "id": id,
                    "annotator": self.spec.name,
                    "status": last["status"],
                    "labels": last["labels"],
                    "stage1": first["text"],
                    "stage2": second and second["text"],
                    "error": last["error"],
                }
            )
        return rows

    def _second(self, first: Mapping[str, Any] | None) -> Request | None:
        """The request of stage two, None where stage one gave nothing to go by."""
        outcome = self._read(first, 1)
        return Request(stage2(outcome["text"], self.taxonomy)) if outcome["status"] == "ok" else None

    def _read(self, row: Mapping[str, Any] | None, stage: int) -> dict[str, Any]:
        """``status``, ``text``, ``labels`` and ``error`` of one call."""
        response = Response(error="not asked: the run stopped before") if row is None else Response.read(row)
        labels, error = None, None
        if response.text is None:
            status, error = "error", response.error
        elif response.refused:
            status, error = "refused", f"the endpoint refused ({response.finish})"
        elif not response.complete:
            status, error = "unparsed", f"cut off at {self.spec.max_new_tokens} tokens"
        elif stage == 1:
            status = read_stage1(response.text, self.taxonomy)
        else:
            status, labels = read_stage2(response.text, self.taxonomy)
        if status != "ok":
            reason = error or {"refused": "refused in words", "unparsed": "no JSON with every key"}[status]
            error = f"stage {stage}: {reason}"
        return {"status": status, "text": response.text, "labels": labels, "error": error}


def estimate(annotator: Annotator, kept: Kept, retry: Sequence[str]) -> str:
    """What a run would take, in one line.

    Rule: four characters of text are a token, and so are 32 x 32 pixels of a photo (as Qwen3-VL counts; others differ).
    An answer of stage one takes 25 tokens an attribute, one of stage two 8. Reasoning comes on top.
    """
    spec, attributes = annotator.spec, len(annotator.taxonomy.keys)
    first = annotator.missing_first(kept, annotator.again(kept, retry))
    unseen = "x" * (4 * STAGE1_TOKENS * attributes)  # what stage one will say
    second = [*annotator.missing_second(kept, set()).values()]
    second += [Request(stage2(unseen, annotator.taxonomy))] * len(first)
    read = sum(_tokens(request, spec.max_pixels) for request in [*first.values(), *second])
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
        "annotators": {name: _count(annotated) for name, annotated in rows.items()},
        "consensus": len(agreed),
        "consensus_positives": {key: sum(row["labels"][key] for row in agreed) for key in taxonomy.keys},
        "without_consensus": [
            {"id": group[0]["id"], "statuses": {row["annotator"]: row["status"] for row in group}}
            for group in by_photo
            if any(row["status"] != "ok" for row in group)
        ],
    }
    write_json(out / "report.json", report)
    return report


def _is_answered(kept: Kept, key: str) -> bool:
    return "error" not in (kept.get(key) or {"error": "never asked"})


def _count(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(row["status"] for row in rows)
    return {status: counts[status] for status in PREDICTION_STATUSES}


def _answers(out: Path, spec: ModelSpec) -> Path:
    return out / "answers" / f"{spec.name}.jsonl"


def _print(report: Mapping[str, Any], out: Path) -> None:
    for name, counts in report["annotators"].items():
        print(f"{name}: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    print(f"{out / 'consensus.jsonl'}: {report['consensus']} of {report['photos']} photos")
    left = [row["id"] for row in report["without_consensus"]]
    if left:
        more = ", ..." if len(left) > 5 else ""
        print(f"  without labels of every annotator: {', '.join(left[:5])}{more} (see report.json)")


if __name__ == "__main__":
    run(main, "cprt annotate")
