"""``cprt score PATH...``: level, score, attributes and advice for photos of your own, on this machine.

PATHs are photos, or folders searched to any depth. Every reply is kept in ``NAME.answers.jsonl`` beside ``--out``
``NAME.jsonl`` or ``NAME.html``: after a kill the same command asks only what is missing. The page of a JSONL asks
nothing again, not what failed either. Pictures (``--thumbnails``) are kept in ``NAME.thumbnails``. Without ``--out``
there is a table on the terminal, and nothing is kept. A row of the JSONL::

    {"root": "photos", "path": "a/b.jpg", "status": "ok", "score": 0.812, "level": 1,
     "flag_score": 0.812, "contradiction": false,
     "attributes": [{"key": "gov_ids", "name": "government ID", "level": 1,
                     "regulations": {"GDPR": "...", ...} or null, "score_without": 0.514, "level_without": 2}, ...],
     "advice": {"composed_score": 0.761, "composed_level": 1, "hide_first": "gov_ids",
                "order": [{"hide": "gov_ids", "score": 0.514, "level": 2}]},
     "flagged": true, "text": "{...}", "error": null}

``score`` is what the model states; ``advice``, ``score_without`` and ``level_without`` are worked out from the
attributes that it names. ``flagged`` goes by ``flag_score``, the more severe of the two unless ``--flag_by`` says
otherwise, and ``contradiction`` says whether they are of different levels. Without a score (status unparsed, refused,
error) ``flagged`` is null: then a person has to look.

With ``--structured true`` a local model that is asked for attributes also says how probable it finds each list of them.
By the exact function a row then also holds the mean severity, between what 90% lie, how probable ``flag_above`` or more
is, and the attributes, those first that carry most of the mean. This score is shown first, and flagged by. ``willing``
says how much of the answer's probability the model gives it when it is free (see ``cprt eval``)::

    "probable": {"score": 0.774, "band": [0.711, 0.8], "level": 1, "level_probability": 0.97, "exceeds": 0.8,
                 "uncertain": true, "list_mass": 0.99,
                 "attributes": [{"key": "gov_ids", "probability": 0.97, "score_without": 0.51}, ...]}
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from cprt.answers import STATUSES, Answer
from cprt.answers.structure import structure
from cprt.config import option, parse, run
from cprt.errors import InputError, one_line
from cprt.files import without_halves, write_text
from cprt.guidance.risk import Risk
from cprt.models.ask import Model, ask, hash_photos, open_models
from cprt.models.checkpoint import DTYPES
from cprt.models.outcome import Outcome, find_outcomes
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.pages.words import counted
from cprt.prompts import PROMPTS, TARGETS, Prompt
from cprt.provenance import run_path, sign, write_run
from cprt.records import read_labels, read_predictions, write_jsonl
from cprt.taxonomy import Taxonomy
from eval.judges import asked_otherwise, choose_prompt, of_unknown_training, trained_prompt
from eval.predictions import reader
from eval.score.page import page
from eval.score.photos import Found, Photo, find_photos
from eval.score.rows import FLAG_BY, flag_score, is_uncertain, named, probable
from eval.score.table import note, show_faults, show_table
from eval.score.threshold import Threshold, choose

MODEL = "Qwen/Qwen3-VL-8B-Instruct"
MAX_PIXELS = 512 * 512  # as the recipes train with


@dataclass
class ScoreArguments:
    paths: list[str] = option("photos, and folders of photos", factory=list, positional=True, metavar="PATH")
    out: str | None = option("NAME.jsonl or NAME.html to write; null: a table only", None)
    model: str = option("checkpoint: a folder or a Hub name; or the endpoint's name", MODEL)
    adapter: str | None = option(
        "folder of a LoRA adapter to put on the model; with base_url, the one that is served as model", None
    )
    model_revision: str | None = option("commit, tag or branch of a Hub model", None)
    base_url: str | None = option("ask this OpenAI-compatible endpoint instead, such as http://127.0.0.1:8000/v1", None)
    api_key_env: str | None = option("environment variable that holds its key", None)
    allow_remote: bool = option("photos may go to an endpoint on another machine", False)
    prompt: str | None = option(
        f"what to ask: {', '.join(PROMPTS)}, or a YAML file; null: as the adapter was trained, else taxonomy", None
    )
    target: str | None = option(
        "what to answer; null: as the adapter was trained, else attributes", None, choices=list(TARGETS)
    )
    structured: bool = option("hold every answer to the form that is asked for, so that each can be read", False)
    flag_above: float | None = option("mark photos with this score or more", None)
    flag_by: str | None = option(
        "score to mark by: stated by the model, composed of the attributes it names, the more severe of the two, or "
        "expected over probable lists; null: expected where answers are structured lists of a local model, else severe",
        None,
        choices=list(FLAG_BY),
    )
    until_level: int | None = option("advise what to hide until this level is reached; null: until it is milder", None)
    until_score: float | None = option("advise until the score is below this", None)
    threshold_from: str | None = option("predictions.jsonl on the hold-out: choose flag_above from it", None)
    threshold_labels: str | None = option("labels.jsonl with the hold-out's truth", None)
    recall: float = option("share of the hold-out's level-1 photos to be flagged", 0.9)
    population: list[float] = option(
        "shares of levels 1 to 4 among the photos to come, to re-weight precision; none: as labelled", factory=list
    )
    thumbnails: bool = option("small pictures in the HTML page", False)
    batch_size: int = option("photos a forward pass; larger is faster and needs memory", 8)
    concurrency: int = option("requests in flight at an endpoint", 16)
    max_new_tokens: int = option("longest answer; a longer one is cut off and unparsed", 256)
    max_pixels: int | None = option(
        f"shrink photos to so many pixels; null: as the adapter was trained, else {MAX_PIXELS}", None
    )
    dtype: str = option("precision of the weights", "auto", choices=list(DTYPES))
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if not self.paths and self.threshold_from is None:
            raise ValueError("name photos, or folders of photos (see --help)")
        if self.out is not None and Path(self.out).suffix not in (".jsonl", ".html"):
            raise ValueError(f"out: {self.out!r} is neither NAME.jsonl nor NAME.html")
        if (self.out or "").endswith(".answers.jsonl"):
            raise ValueError(f"out: {self.out!r} is what kept answers are called; choose another name")
        if self.thumbnails and not (self.out or "").endswith(".html"):
            raise ValueError("thumbnails need --out NAME.html")
        if (self.threshold_from is None) != (self.threshold_labels is None):
            raise ValueError("threshold_from and threshold_labels need each other")
        if self.threshold_from and self.flag_above is not None:
            raise ValueError("flag_above is given, and threshold_from would choose another")
        for name in ("flag_above", "until_score", "recall"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} must be more than 0 and at most 1, not {value}")
        if self.population and not (
            len(self.population) == 4 and all(0 <= share < math.inf for share in self.population) and self.population[0]
        ):
            raise ValueError("population: needs four shares, of levels 1 to 4, none negative and the first above 0")
        if self.until_level not in (None, 2, 3, 4):
            raise ValueError(f"until_level must be 2, 3 or 4, not {self.until_level}")
        if self.target == "attributes" and self.prompt not in (None, "taxonomy"):
            raise ValueError("target attributes needs prompt taxonomy, which tells the model the keys")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt score``."""
    (args,) = parse(ScoreArguments, argv, prog="cprt score", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    asked = settle(args, taxonomy) if args.paths else None
    threshold = choose_threshold(args, taxonomy)
    if threshold is not None:
        print(threshold)
        args.flag_above = threshold.score
    if asked is None:
        return
    prompt, spec = asked
    (model,) = open_models([spec], args.allow_remote, args.out and _kept(Path(args.out)))
    found = find_photos(args.paths)
    if not found.photos:
        raise InputError(f"no photos in {', '.join(args.paths)}")

    with tempfile.TemporaryDirectory() as scratch:  # without --out nothing is kept
        out = Path(args.out or Path(scratch) / "score.jsonl")
        rows = ask_all(model, prompt, found.photos, out, args, taxonomy)
    if args.out is not None:
        save(args, found, rows, taxonomy, prompt, spec, threshold)
    show_table(rows, taxonomy, flagging=args.flag_above is not None, full=args.out is None)
    show_faults(rows, found)
    _finish(args, rows, model.stopped)


def settle(args: ScoreArguments, taxonomy: Taxonomy) -> tuple[Prompt, ModelSpec]:
    """What is asked, and of which model: as the adapter was trained, unless the options say otherwise."""
    trained = None if args.adapter is None else trained_prompt(args.adapter, taxonomy)
    if trained is None and args.adapter is not None and (Path(args.adapter) / "run.json").is_file():
        note(of_unknown_training(args.adapter))
    prompt = choose_prompt(args.prompt, args.target, trained, taxonomy, otherwise="attributes")
    if args.adapter is not None and (otherwise := asked_otherwise(args.adapter, trained, prompt)):
        note(otherwise)
    if prompt.target == "score" and args.flag_by == "composed":
        raise InputError("flag_by composed needs target attributes: without them there is nothing to compose")
    has_lists = args.structured and prompt.target == "attributes" and args.base_url is None
    if args.flag_by == "expected" and not has_lists:
        raise InputError("flag_by expected needs --structured true, target attributes and a model that runs here")
    args.flag_by = args.flag_by or ("expected" if has_lists else "severe")
    if prompt.target == "score":
        why = f", as {args.adapter} was trained" if trained is not None and args.target is None else ""
        note(f"--target score{why}: scores alone, without attributes and advice")
    row = {
        "name": "score",
        "model": args.model,
        "adapter": args.adapter,
        "revision": args.model_revision,
        "base_url": args.base_url,
        "api_key_env": args.api_key_env,
        "max_new_tokens": args.max_new_tokens,
        "batch_size": args.batch_size,
        "concurrency": args.concurrency,
        "dtype": args.dtype,
        **({"max_pixels": args.max_pixels or MAX_PIXELS} if args.max_pixels or not args.adapter else {}),
    }
    return prompt, ModelSpec.read(row, "options")


def choose_threshold(args: ScoreArguments, taxonomy: Taxonomy) -> Threshold | None:
    if args.threshold_from is None or args.threshold_labels is None:
        return None
    labels, predictions = read_labels(args.threshold_labels, taxonomy), read_predictions(args.threshold_from)
    has_lists = any(row.mean_score is not None for row in predictions)
    by = args.flag_by or ("expected" if has_lists else "severe")
    if by == "expected" and not has_lists:
        raise InputError.at(
            args.threshold_from,
            "is missing: it takes cprt eval --structured true --decoding expected",
            field="mean_score",
        )
    if by in ("severe", "composed") and all(row.composed_score is None for row in predictions):
        by = "stated"
        note(f"{args.threshold_from} holds no composed score: the threshold is chosen from stated scores")
    measured = [
        replace(row, score=flag_score(row.score, row.composed_score, row.mean_score, by)) for row in predictions
    ]
    return choose(labels, measured, args.recall, args.threshold_from, args.population)


def ask_all(
    model: Model, prompt: Prompt, photos: Sequence[Photo], out: Path, args: ScoreArguments, taxonomy: Taxonomy
) -> list[dict[str, Any]]:
    """A row for every photo. Photos with the same bytes are asked once.

    A page beside the JSON Lines of the same run only shows what that came to: errors are not asked again for it.
    """
    messages = prompt.messages()
    form = structure(prompt.target, taxonomy, prompt.score_key) if args.structured else None
    guess = structure(prompt.target, taxonomy, prompt.score_key, in_order=False)
    lead_in = "" if form is not None and form.keys and args.base_url is None else None  # brings probabilities of lists
    hash_photos(photo.file for photo in photos if photo.problem is None)
    keys: dict[Photo, str] = {}
    rows: dict[Photo, dict[str, Any]] = {}
    requests: dict[str, Request] = {}
    for photo in photos:
        problem, request = photo.problem, Request(messages, (photo.file,), lead_in, form, guess)
        if problem is None:
            try:
                keys[photo] = model.spec.key(request)
                requests.setdefault(keys[photo], request)
            except OSError as error:
                problem = f"cannot be read ({error.strerror})"
        if problem is not None:
            rows[photo] = score_row(photo, Outcome("error", error=problem), args, taxonomy)
    shows_only = out.suffix == ".html" and out.with_suffix(".jsonl").is_file()
    with ResponseCache(_kept(out)) as cache:
        unseen = {key: request for key, request in requests.items() if not (shows_only and cache.rows(key))}
        ask(model, unseen, cache, label="scoring")
        outcomes = find_outcomes(requests, cache, reader(taxonomy, prompt), model.spec)
    for photo, key in keys.items():
        outcome = outcomes[key]
        if outcome.error is not None:
            first = requests[key].images[0]  # the photo of these bytes that was asked about
            outcome = replace(outcome, error=outcome.error.removeprefix(one_line(f"{first}: ")))
        rows[photo] = score_row(photo, outcome, args, taxonomy)
    return [rows[photo] for photo in photos]


def _kept(out: Path) -> Path:
    return out.with_suffix(".answers.jsonl")


def score_row(photo: Photo, outcome: Outcome[Answer], args: ScoreArguments, taxonomy: Taxonomy) -> dict[str, Any]:
    """One row of the output (see above) from what became of the request."""
    answer = outcome.value or Answer("unparsed")
    composed = attributes = advice = None
    if answer.attributes is not None:
        composed, attributes, advice = named(answer.attributes, args.until_level, args.until_score, taxonomy)
    lists = outcome.response.lists if outcome.status == "ok" and outcome.response is not None else None
    expected = probable(Risk.read(lists, taxonomy), args.flag_above) if lists else None
    willing = None if outcome.response is None else outcome.response.willing
    by = flag_score(
        answer.score,
        None if composed is None else composed.score,
        None if expected is None else expected["score"],
        args.flag_by or "severe",
    )
    return {
        "root": without_halves(photo.root),
        "path": without_halves(photo.path),
        "status": outcome.status,
        "score": answer.score,
        "level": answer.level,
        "flag_score": by,
        "contradiction": None if composed is None else composed.level != answer.level,
        "attributes": attributes,
        "advice": advice,
        "flagged": None if by is None or args.flag_above is None else by >= args.flag_above,
        "text": None if outcome.text is None else without_halves(outcome.text),
        "error": None if outcome.error is None else without_halves(outcome.error),
        **({} if expected is None else {"probable": expected}),
        **({} if willing is None else {"willing": willing}),
    }


def save(
    args: ScoreArguments,
    found: Found,
    rows: Sequence[dict[str, Any]],
    taxonomy: Taxonomy,
    prompt: Prompt,
    spec: ModelSpec,
    threshold: Threshold | None,
) -> None:
    """The output and the record of what made it."""
    assert args.out is not None
    sign("cprt score", run_path(args.out))
    if args.out.endswith(".html"):
        facts = made_with(args, prompt, threshold)
        write_text(
            args.out, page(args.out, rows, [photo.file for photo in found.photos], taxonomy, facts, args.thumbnails)
        )
    else:
        write_jsonl(args.out, rows)
    names = [name for name in ("threshold_from", "threshold_labels") if getattr(args, name)]
    inputs = {name: getattr(args, name) for name in names}
    config = {**vars(args), "paths": [without_halves(path) for path in args.paths]}
    if args.base_url:
        config["base_url"] = "endpoint"
    write_run(
        "cprt score",
        args.out,
        config,
        inputs,
        model=spec.record(),
        prompt=prompt.identity(),
        taxonomy=taxonomy.digest,
        counts=Counter(row["status"] for row in rows),
        threshold=threshold and dataclasses.asdict(threshold),
    )


def made_with(args: ScoreArguments, prompt: Prompt, threshold: Threshold | None) -> dict[str, str]:
    """What the page says made it, in words."""
    flags = "none: no threshold was given (flag_above)"
    if args.flag_above is not None:
        flags = f"{args.flag_above:g} or more, by {FLAG_BY[args.flag_by or 'severe']}"
    if threshold is not None:
        flags += (
            f"; chosen for a recall of {args.recall:g} on {counted(threshold.rows, 'labelled photo')}, where it has "
            f"recall {threshold.recall:.3f} and precision {threshold.precision:.3f} of level 1"
        )
    return {
        "Model": args.model,
        "Adapter": args.adapter or "none",
        "Asked with": f"{prompt.name} prompt for {'the score' if prompt.target == 'score' else 'attributes and score'}",
        "On": datetime.now().date().isoformat(),
        "Flagged": flags,
    }


def _finish(args: ScoreArguments, rows: Sequence[dict[str, Any]], stopped: Stopped | None) -> None:
    counts = Counter(row["status"] for row in rows)
    shown = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    flagged = sum(row["flagged"] is True for row in rows)
    flags = "" if args.flag_above is None else f"; {flagged} flagged (score {args.flag_above} or more)"
    unsure = sum(map(is_uncertain, rows))
    flags += f"; {counted(unsure, 'photo')} too near the threshold to tell: look at these first" if unsure else ""
    against = sum(row["contradiction"] is True for row in rows)
    flags += f"; {counted(against, 'contradiction')}: the score and the attributes are of two levels" if against else ""
    print(f"{args.out or 'scored'}: {counted(len(rows), 'photo')} ({shown}){flags}")
    if stopped is not None:
        raise stopped
    if not counts["ok"]:
        _nothing_scored(rows)


def _nothing_scored(rows: Sequence[dict[str, Any]]) -> NoReturn:
    first = rows[0]
    why = first["error"] or f"{first['status']}: {(first['text'] or '')[:80]}"
    raise InputError(f"no photo got a score (the first: {first['path']}: {why})")


if __name__ == "__main__":
    run(main, "cprt score")
