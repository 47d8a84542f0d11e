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
from cprt.errors import one_line
from cprt.files import without_halves
from cprt.guidance.risk import Risk
from cprt.models.ask import Model, ask
from cprt.models.missing import read_outcomes
from cprt.models.outcome import Outcome
from cprt.models.response_cache import ResponseCache
from cprt.taxonomy import Taxonomy
from eval.judges import Judge
from eval.predictions import reader
from eval.score.options import ScoreArguments
from eval.score.photos import Photo
from eval.score.rows import flag_score, named, probable


def ask_all(
    model: Model,
    judge: Judge,
    photos: Sequence[Photo],
    out: Path,
    args: ScoreArguments,
    taxonomy: Taxonomy,
    margin: float | None,
) -> list[dict[str, Any]]:
    """A row for every photo. Photos with the same bytes are asked once.

    A page beside the JSON Lines of the same run only shows what that came to: errors are not asked again for it.
    """
    requests = [judge.request(photo.file) for photo in photos if photo.problem is None]
    shows_only = out.suffix == ".html" and out.with_suffix(".jsonl").is_file()
    rows, first = list[dict[str, Any]](), dict[str | OSError, Path]()
    with ResponseCache(kept(out)) as cache:
        ask(model, requests, cache, label="scoring", errors=not shows_only)
        outcomes = read_outcomes(model.spec, requests, cache, reader(taxonomy, judge.prompt))
        for photo in photos:
            outcome = Outcome[Answer]("error", error=photo.problem)
            if photo.problem is None:
                key, outcome = next(outcomes)
                asked = first.setdefault(key, photo.file)  # of the photos of these bytes, the one that was asked about
                if outcome.error is not None:
                    outcome = replace(outcome, error=outcome.error.removeprefix(one_line(f"{asked}: ")))
            rows.append(score_row(photo, outcome, args, taxonomy, margin))
    return rows


def kept(out: Path) -> Path:
    """Where replies are kept beside an output."""
    return out.with_suffix(".answers.jsonl")


def score_row(
    photo: Photo,
    outcome: Outcome[Answer],
    args: ScoreArguments,
    taxonomy: Taxonomy,
    margin: float | None = None,
) -> dict[str, Any]:
    """One row of the output (see above) from what became of the request; ``margin`` as of ``probable``."""
    answer = outcome.value or Answer("unparsed")
    composed = attributes = advice = None
    if answer.attributes is not None:
        composed, attributes, advice = named(answer.attributes, args.until_level, args.until_score, taxonomy)
    lists = outcome.response.lists if outcome.status == "ok" and outcome.response is not None else None
    expected = None
    if lists:
        risk = Risk.read(lists, taxonomy)
        expected = probable(risk, args.flag_above, margin, args.until_level, args.until_score)
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
        **({"free": True} if outcome.response is not None and outcome.response.is_free else {}),
    }
