"""What ``cprt score`` asks about photos, and the rows that answers become; docs/files.md says what each column holds.

``score`` is what the model states; ``advice``, ``score_without`` and ``level_without`` are worked out from the
attributes that it names. With ``--structured true`` a local model that is asked for attributes also says how probable
it finds each list of them: what follows by the exact function stands under ``probable``, is shown first and flagged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cprt.answers import Answer
from cprt.answers.structure import structure
from cprt.errors import one_line
from cprt.files import without_halves
from cprt.guidance.risk import Risk
from cprt.models.ask import Model, ask, hash_photos
from cprt.models.outcome import Outcome, find_outcomes
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import Request
from cprt.prompts import Prompt
from cprt.taxonomy import Taxonomy
from eval.predictions import reader
from eval.score.options import ScoreArguments
from eval.score.photos import Photo
from eval.score.rows import flag_score, named, probable


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
    with ResponseCache(kept(out)) as cache:
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


def kept(out: Path) -> Path:
    """Where replies are kept beside an output."""
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
