"""What ``cprt score`` says of a photo: the row of the output, whose columns docs/files.md explains, and it in words.

``score`` is what the model states; ``advice``, ``score_without`` and ``level_without`` are worked out from the
attributes that it names. With ``--structured true`` a local model that is asked for attributes also says how probable
it finds each list of them: what follows by the exact function stands under ``probable``, is shown first and flagged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cprt.answers import Answer
from cprt.files import without_halves
from cprt.guidance.advice import Step, compose, hide_in_order, without_each
from cprt.guidance.regulations import notes_of, regulations_of
from cprt.guidance.risk import Risk
from cprt.metrics.calibration import widened
from cprt.models.outcome import Outcome
from cprt.scoring import Severity, level_of
from cprt.taxonomy import Taxonomy
from eval.score.options import ScoreArguments
from eval.score.photos import Photo

Rows = Sequence[dict[str, Any]]
SURE = 0.95  # that a photo is above the threshold, or below it; between, a person should look
LEAST = 0.05  # less probable attributes are not told
FEW = 0.5  # of the probability, in the lists that were found: a row that rests on less says so


# --- The row -----------------------------------------------------------------------------------------------------


def score_row(
    photo: Photo,
    outcome: Outcome[Answer],
    args: ScoreArguments,
    taxonomy: Taxonomy,
    margin: float | None = None,
    most_deviation: float | None = None,
) -> dict[str, Any]:
    """One row of the output from what became of the request; ``margin`` as of ``probable``.

    With a larger standard deviation than ``most_deviation`` a photo is left to a person; None: none is for that.
    """
    answer, response = outcome.value or Answer("unparsed"), outcome.response
    composed = attributes = advice = expected = None
    if answer.attributes is not None:
        composed, attributes, advice = named(answer.attributes, args.until_level, args.until_score, taxonomy)
    if outcome.status == "ok" and response is not None and response.lists:
        risk = Risk.read(response.lists, taxonomy)
        expected = probable(risk, args.flag_above, margin, args.until_level, args.until_score)
        if most_deviation is not None:
            expected |= {"deviation": risk.deviation, "abstains": risk.deviation > most_deviation}
    by = flag_score(
        answer.score,
        None if composed is None else composed.score,
        None if expected is None else expected["score"],
        args.flag_by or "severe",
    )
    row: dict[str, Any] = {
        "root": photo.root,
        "path": photo.path,
        "status": outcome.status,
        "score": answer.score,
        "level": answer.level,
        "flag_score": by,
        "contradiction": None if composed is None else composed.level != answer.level,
        "attributes": attributes,
        "advice": advice,
        "flagged": None if by is None or args.flag_above is None else by >= args.flag_above,
        "text": outcome.text,
        "error": outcome.error,
    }
    row |= {name: without_halves(row[name]) for name in ("root", "path", "text", "error") if row[name] is not None}
    if expected is not None:
        row["probable"] = expected
    if response is not None and response.willing is not None:
        row["willing"] = response.willing
    if response is not None and response.is_free:
        row["free"] = True
    return row


def flag_score(stated: float | None, composed: float | None, expected: float | None, by: str) -> float | None:
    """The score to flag and order by, one of FLAG_BY; None where the answer gives none."""
    scores = {"stated": (stated,), "composed": (composed,), "severe": (stated, composed), "expected": (expected,)}[by]
    return max((score for score in scores if score is not None), default=None)


def probable(
    risk: Risk,
    flag_above: float | None,
    margin: float | None = None,
    until_level: int | None = None,
    until_score: float | None = None,
) -> dict[str, Any]:
    """A row's ``probable``: what follows from the probabilities of all lists that were found.

    ``margin``: how much wider than the model's own a band must be (``band_margin``). ``until_...``: what hiding in
    ``order`` is to reach.
    """
    attributes = [
        {"key": key, "probability": probability, "score_without": risk.hiding(key).mean}
        for key, probability in risk.attributes.items()
        if probability >= LEAST
    ]
    exceeds = None if flag_above is None else risk.exceeds(flag_above)
    return {
        "score": risk.mean,
        "band": list(risk.band) if margin is None else widened(risk.band, margin)[0].tolist(),
        "band_calibrated": margin is not None,
        "level": risk.level,
        "level_probability": risk.levels[risk.level],
        "exceeds": exceeds,
        "uncertain": None if exceeds is None else 1 - SURE < exceeds < SURE,
        "attributes": sorted(attributes, key=lambda one: one["score_without"]),
        "order": _order(risk.hide_in_order(until_level, until_score)),
        "list_mass": risk.mass,
    }


# --- In words ----------------------------------------------------------------------------------------------------


def doubt(row: dict[str, Any]) -> float:
    """How far the model is from not knowing whether a photo is above the threshold: 0 where it says 50%."""
    return abs(row["probable"]["exceeds"] - 0.5)


def is_uncertain(row: dict[str, Any]) -> bool:
    """Whether a person should look because the model does not know on which side of the threshold a photo is."""
    return bool(row.get("probable") and row["probable"]["uncertain"])


def abstains(row: dict[str, Any]) -> bool:
    """Whether a person should decide because the model knows the severity less well than was asked for."""
    return bool(row.get("probable") and row["probable"].get("abstains"))


def named(
    keys: Sequence[str], until_level: int | None, until_score: float | None, taxonomy: Taxonomy
) -> tuple[Severity, list[dict[str, Any]], dict[str, Any]]:
    """The score that the attributes ``keys`` make, and the row's ``attributes`` and ``advice``, all of that score."""
    composed = compose(keys, taxonomy)
    attributes = [
        {
            "key": key,
            "name": taxonomy.names[key],
            "level": taxonomy.level_of[key],
            "regulations": regulations_of(key, taxonomy),
            "score_without": left.score,
            "level_without": left.level,
        }
        for key, left in without_each(keys, taxonomy).items()
    ]
    steps = hide_in_order(keys, until_level, until_score, taxonomy)
    advice = {
        "composed_score": composed.score,
        "composed_level": composed.level,
        "hide_first": steps[0].key if steps else None,
        "order": _order(steps),
    }
    return composed, attributes, advice


def _order(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [{"hide": step.key, "score": step.score, "level": step.level} for step in steps]


def goes_by_lists(row: dict[str, Any]) -> bool:
    """Whether a photo is flagged by the mean over all lists: then what is said of hiding is of this mean."""
    return bool(row.get("probable") and row["flag_score"] == row["probable"]["score"])


def headline(row: dict[str, Any], taxonomy: Taxonomy) -> tuple[float | None, int | None]:
    """The score that a photo is flagged and ordered by, and its level: of lists, the most probable one."""
    score = row["flag_score"]
    if goes_by_lists(row):
        return score, row["probable"]["level"]
    return score, None if score is None else level_of(score, taxonomy)


def steps_to_hide(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What to hide, one after the other, and what is then left of the score shown first."""
    advice = row["probable"] if goes_by_lists(row) else row["advice"]
    return advice["order"] if advice else []


def has_no_list(row: dict[str, Any], asked: bool) -> bool:
    """Whether an answer has a score, and a list that was ``asked`` for but cannot be read: no advice follows."""
    return asked and row["score"] is not None and row["attributes"] is None


def laws_met(rows: Rows, taxonomy: Taxonomy) -> list[tuple[str, dict[str, str] | None, Sequence[str]]]:
    """(key, what Table 4 says of it by law, notes) of every attribute that some photo has or may have."""
    told = [one for row in rows for one in (row["attributes"] or []) + row.get("probable", {}).get("attributes", [])]
    met = {one["key"] for one in told}
    return [(key, regulations_of(key, taxonomy), notes_of(key, taxonomy)) for key in taxonomy.keys if key in met]


def most_severe_first(rows: Rows) -> list[dict[str, Any]]:
    """Rows with a score, the most severe first."""
    return sorted((row for row in rows if row["score"] is not None), key=lambda row: -(row["flag_score"] or 0.0))


def beside(row: dict[str, Any], shown: Any) -> list[str]:
    """In words, what stands beside the score shown first. ``shown`` prints a score."""
    said, told = [], row.get("probable")
    if told:
        low, high = map(shown, told["band"])
        held = "90%" if told["band_calibrated"] else "its own 90%"
        outside = "" if told["band"][0] <= told["score"] <= told["band"][1] else ", the mean outside by unlikely lists"
        said += [f"{held}: {low} to {high}{outside}", f"level {told['level']} with {told['level_probability']:.0%}"]
        if told["uncertain"]:
            said.append(f"above the threshold with {int(100 * told['exceeds'] + 1e-9)}%")  # 94.8% is not yet sure
        if told.get("abstains"):
            said.append("too uncertain: left to a person")
    if row["score"] != row["flag_score"] and not row["contradiction"]:
        said.append(f"states {shown(row['score'])}, level {row['level']}")
    if told and told["list_mass"] < FEW:
        said.append(f"lists found hold {told['list_mass']:.0%} of its probability")
    return said


def contradiction(row: dict[str, Any], shown: Any) -> str:
    """In words, why a row contradicts itself. ``shown`` prints a score."""
    return (
        f"contradiction: states {shown(row['score'])}, level {row['level']}; its attributes make "
        f"{shown(row['advice']['composed_score'])}, level {row['advice']['composed_level']}"
    )
