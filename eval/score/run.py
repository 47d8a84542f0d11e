"""``cprt score PATH...``: level, score, attributes and advice for photos of your own, on this machine.

PATHs are photos, or folders searched to any depth. Every reply is kept in ``NAME.answers.jsonl`` beside ``--out``
``NAME.jsonl`` or ``NAME.html``: after a kill the same command asks only what is missing. The page of a JSONL asks
nothing again, not what failed either. Pictures (``--thumbnails``) are kept in ``NAME.thumbnails``. Without ``--out``
there is a table on the terminal, and nothing is kept.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from cprt.answers import Answer
from cprt.config import parse, run
from cprt.errors import InputError, one_line
from cprt.files import without_halves, write_text
from cprt.models.adapter import read_config
from cprt.models.ask import Model, ask, open_models
from cprt.models.missing import read_outcomes
from cprt.models.outcome import Outcome, tally
from cprt.models.rate_limiter import Stopped
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec
from cprt.pages.words import counted
from cprt.prompts import Prompt
from cprt.provenance import run_path, sign, write_run
from cprt.records import read_labels, read_predictions, write_jsonl
from cprt.taxonomy import Taxonomy
from eval.judges import Judge, asked_otherwise, choose_prompt, shared, trained_prompt
from eval.measures import another_judge, judge_name
from eval.predictions import reader
from eval.score.abstention import Abstention, abstain
from eval.score.options import FLAG_BY, MAX_PIXELS, ScoreArguments
from eval.score.page import page
from eval.score.photos import Found, Photo, find_photos
from eval.score.rows import Rows, abstains, flag_score, has_no_list, is_uncertain, score_row
from eval.score.table import note, show_faults, show_table
from eval.score.threshold import Threshold, choose


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt score``."""
    (args,) = parse(ScoreArguments, argv, prog="cprt score", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    judge = settle(args, taxonomy) if args.paths else None
    threshold, abstention = choose_threshold(args, taxonomy, judge)
    if threshold is not None:
        print(threshold)
        args.flag_above = threshold.score
    if abstention is not None:
        print(abstention)
    if judge is None:
        return
    found = find_photos(args.paths)
    if not found.photos:
        raise InputError(f"no photos in {', '.join(args.paths)}")
    if all(photo.problem is not None for photo in found.photos):
        others = f" (nor can the other {len(found.photos) - 1:,})" if len(found.photos) > 1 else ""
        raise InputError(f"{found.photos[0].file}: {found.photos[0].problem}{others}")
    (model,) = open_models([judge.spec], args.allow_remote, args.out and kept(Path(args.out)))

    with tempfile.TemporaryDirectory() as scratch:  # without --out nothing is kept
        outcomes = ask_all(model, judge, found.photos, Path(args.out or Path(scratch) / "score.jsonl"), taxonomy)
    margin = None if threshold is None else threshold.band_margin
    most_deviation = None if abstention is None else abstention.deviation
    each = zip(found.photos, outcomes, strict=True)
    rows = [score_row(photo, outcome, args, taxonomy, margin, most_deviation) for photo, outcome in each]
    if args.out is not None:
        save(args, args.out, found, rows, taxonomy, judge, threshold, abstention)
    show_table(rows, taxonomy, flagging=args.flag_above is not None, full=args.out is None)
    show_faults(rows, found)
    _finish(args, rows, judge.prompt.target == "attributes", model.stopped)


def settle(args: ScoreArguments, taxonomy: Taxonomy) -> Judge:
    """What is asked, and of which model: as the adapter was trained, unless the options say otherwise."""
    if args.adapter is not None:
        read_config(args.adapter)
    trained = None if args.adapter is None else trained_prompt(args.adapter, taxonomy)
    prompt = choose_prompt(args.prompt, args.target, trained, taxonomy, otherwise="attributes")
    if otherwise := asked_otherwise(args.adapter, prompt, taxonomy):
        note(otherwise)
    if prompt.target == "score" and args.flag_by == "composed":
        raise InputError("flag_by composed needs target attributes: without them there is nothing to compose")
    has_lists = args.structured and prompt.target == "attributes" and args.base_url is None
    lists_for = "flag_by expected" if args.flag_by == "expected" else "abstain" if args.abstain else None
    if lists_for and not has_lists:
        raise InputError(f"{lists_for} needs --structured true, target attributes and a model that runs here")
    args.flag_by = args.flag_by or ("expected" if has_lists else "severe")
    if prompt.target == "score":
        why = f", as {args.adapter} was trained" if trained is not None and args.target is None else ""
        note(f"--target score{why}: scores alone, without attributes and advice")
    row = {"name": "score", "model": args.model, "adapter": args.adapter, **shared(args)}
    if args.max_pixels is not None or args.adapter is None:
        row["max_pixels"] = MAX_PIXELS if args.max_pixels is None else args.max_pixels
    return Judge.of("score", ModelSpec.read(row, "options"), prompt, taxonomy, args.structured, has_lists)


def kept(out: Path) -> Path:
    """Where replies are kept beside an output."""
    return out.with_suffix(".answers.jsonl")


def ask_all(model: Model, judge: Judge, photos: list[Photo], out: Path, taxonomy: Taxonomy) -> list[Outcome[Answer]]:
    """What became of the question about each photo. Photos with the same bytes are asked about once.

    A page beside the JSON Lines of the same run only shows what that came to: errors are not asked again for it.
    """
    requests = [judge.request(photo.file) for photo in photos if photo.problem is None]
    shows_only = out.suffix == ".html" and out.with_suffix(".jsonl").is_file()
    found, first = list[Outcome[Answer]](), dict[str | OSError, Path]()
    with ResponseCache(kept(out)) as cache:
        ask(model, requests, cache, label="scoring", errors=not shows_only)
        outcomes = read_outcomes(model.spec, requests, cache, reader(taxonomy, judge.prompt))
        for photo in photos:
            if photo.problem is not None:
                found.append(Outcome("error", error=photo.problem))
                continue
            key, outcome = next(outcomes)
            asked = first.setdefault(key, photo.file)  # of the photos of these bytes, the one that was asked about
            why = outcome.error and outcome.error.removeprefix(one_line(f"{asked.name}: "))
            found.append(replace(outcome, error=why))
    return found


def choose_threshold(
    args: ScoreArguments, taxonomy: Taxonomy, judge: Judge | None
) -> tuple[Threshold | None, Abstention | None]:
    """From which score photos are flagged and which are left to a person, learnt on a hold-out, as far as asked for.

    Sets ``flag_by`` to what it goes by. ``judge``: who is to be asked, held against whose answers the hold-out's are.
    """
    if args.threshold_from is None or args.threshold_labels is None:
        return None, None
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
        if by == "composed":
            why = "is missing: it takes cprt eval --target attributes"
            raise InputError.at(args.threshold_from, why, field="composed_score")
        by = "stated"
        note(f"{args.threshold_from} holds no composed score: photos are flagged by stated scores")
    args.flag_by = by
    if judge is not None:
        asked = judge_name(judge.model, judge.prompt.name)
        if (other := another_judge(predictions, {asked})) is not None:
            note(f"{args.threshold_from} is of {other}, not of {asked}: the threshold may not hold for it")
    by_score = [flag_score(row.score, row.composed_score, row.mean_score, by) for row in predictions]
    measured = [replace(row, score=score) for row, score in zip(predictions, by_score, strict=True)]
    abstention = args.abstain and abstain(labels, predictions, args.abstain, args.threshold_from)
    threshold = replace(choose(labels, measured, args.recall, args.threshold_from, args.population), by=by)
    return threshold, abstention or None


def save(
    args: ScoreArguments,
    out: str,
    found: Found,
    rows: Rows,
    taxonomy: Taxonomy,
    judge: Judge,
    threshold: Threshold | None,
    abstention: Abstention | None,
) -> None:
    """The output and the record of what made it."""
    sign("cprt score", run_path(out))
    if out.endswith(".html"):
        facts = made_with(args, judge.prompt, threshold, abstention)
        files, asked = [photo.file for photo in found.photos], judge.prompt.target == "attributes"
        write_text(out, page(out, rows, files, taxonomy, facts, args.thumbnails, asked))
    else:
        write_jsonl(out, rows)
    write_run(
        "cprt score",
        out,
        {**vars(args), "paths": [without_halves(path) for path in args.paths]},
        {"threshold_from": args.threshold_from, "threshold_labels": args.threshold_labels},
        model=judge.spec.record(),
        prompt=judge.prompt.identity(),
        taxonomy=taxonomy.digest,
        counts=Counter(row["status"] for row in rows),
        free_answers=sum("free" in row for row in rows),
        threshold=threshold and dataclasses.asdict(threshold),
        abstention=abstention and dataclasses.asdict(abstention),
    )


def made_with(
    args: ScoreArguments, prompt: Prompt, threshold: Threshold | None, abstention: Abstention | None = None
) -> dict[str, str]:
    """What the page says made it, in words."""
    flags = "none: no threshold was given (flag_above)"
    if args.flag_above is not None:
        flags = f"{args.flag_above:g} or more, by {FLAG_BY[args.flag_by or 'severe']}"
    if threshold is not None:
        flags += (
            f"; chosen for a recall of {args.recall:g} on {counted(threshold.rows, 'labelled photo')}, where it has "
            f"recall {threshold.recall:.3f} and precision {threshold.precision:.3f} of level 1"
        )
    facts = {
        "Model": args.model,
        "Adapter": args.adapter or "none",
        "Asked with": f"{prompt.name} prompt for {'the score' if prompt.target == 'score' else 'attributes and score'}",
        "On": datetime.now().date().isoformat(),
        "Flagged": flags,
    }
    if abstention is not None:
        facts["Left to a person"] = str(abstention).partition(": ")[2]
    if args.flag_by == "expected":
        facts["Bands"] = "the middle 90% of the model's own probability, which is no promise"
        if threshold is not None and threshold.band_margin is not None:
            facts["Bands"] = (
                f"hold the truth in 90% of photos like the {threshold.band_rows} labelled ones: the model's own, each "
                f"end moved out by {threshold.band_margin:.3f}"
            )
    return facts


def _finish(args: ScoreArguments, rows: Rows, asked: bool, stopped: Stopped | None) -> None:
    counts = Counter(row["status"] for row in rows)
    shown = tally((row["status"], row["error"]) for row in rows)
    flagged = sum(row["flagged"] is True for row in rows)
    flags = "" if args.flag_above is None else f"; {flagged} flagged (score {args.flag_above:g} or more)"
    unsure = sum(map(is_uncertain, rows))
    flags += f"; {counted(unsure, 'photo')} too near the threshold to tell: look at these first" if unsure else ""
    left = sum(map(abstains, rows))
    flags += f"; {counted(left, 'photo')} left to a person: the model is too uncertain" if left else ""
    against = sum(row["contradiction"] is True for row in rows)
    flags += f"; {counted(against, 'contradiction')}: the score and the attributes are of two levels" if against else ""
    print(f"{args.out or 'scored'}: {counted(len(rows), 'photo')} ({shown}){flags}")
    if unread := sum(has_no_list(row, asked) for row in rows):
        note(f"{counted(unread, 'list')} of attributes cannot be read, so no advice follows; --structured true helps")
    if free := sum("free" in row for row in rows):
        note(f"{free} of {len(rows)} answers are free ones: the endpoint takes no JSON schema, or does not keep to it")
    if stopped is not None:
        raise stopped
    if not counts["ok"]:
        why = rows[0]["error"] or f"{rows[0]['status']}: {(rows[0]['text'] or '')[:80]}"
        raise InputError(f"no photo got a score (the first: {rows[0]['path']}: {why})")


if __name__ == "__main__":
    run(main, "cprt score")
