"""From a kept reply to a row of predictions.jsonl: what the text says, and what the probabilities say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cprt.answers import parse as parse_answer
from cprt.decoding import Summary, from_top_logprobs, summarise
from cprt.questions import Reply
from cprt.records import PREDICTION_STATUSES, Label, Prediction
from cprt.scoring import severity
from cprt.taxonomy import LEVELS, Taxonomy
from eval.judges import Judge

NOT_ASKED = {"error": "not asked: the run stopped before"}


def predict(judge: Judge, label: Label, row: Mapping[str, Any] | None, taxonomy: Taxonomy) -> Prediction:
    """The prediction for one label. ``score`` is what the text states; each other way to a score has its own column:

    ``expected_score`` and ``median_score`` of the distribution (with ``label_mass``, how much of the probability is on
    scores at all), ``composed_score`` by the exact function from the attributes that the text names.
    """
    reply = Reply.read(row or NOT_ASKED)
    common: dict[str, Any] = {"id": label.id, "model": judge.model, "prompt": judge.prompt.name}
    if reply.text is None:
        return Prediction(**common, status="error", error=reply.error)
    common |= {"text": reply.text}
    distribution = _summary(reply) if judge.expected else None
    if distribution is not None:
        common |= {"expected_score": distribution.mean, "median_score": distribution.median,
                   "label_mass": distribution.mass}  # fmt: skip
    if reply.refused:
        return Prediction(**common, status="refused", error=f"the endpoint refused ({reply.finish})")
    if not reply.complete:  # "0.71" may be the beginning of "0.719"
        cut_off = f"cut off at {judge.spec.max_new_tokens} tokens"
        return Prediction(**common, status="unparsed", error=cut_off)
    answer = parse_answer(reply.text, taxonomy)
    return Prediction(
        **common,
        status=answer.status,
        score=answer.score,
        level=answer.level,
        stated_level=answer.stated_level,
        attributes=None if answer.attributes is None else list(answer.attributes),
        composed_score=None if answer.attributes is None else composed(answer.attributes, taxonomy),
    )


def composed(attributes: tuple[str, ...], taxonomy: Taxonomy) -> float:
    """The exact score of the attributes that a model says it sees (paper 3.3)."""
    level_of = {attribute.key: attribute.level for attribute in taxonomy.attributes}
    return severity([sum(level_of[key] == level for key in attributes) for level in LEVELS], taxonomy).score


def quality(judge: Judge, label: Label, taxonomy: Taxonomy) -> Any:
    """A function that ranks kept answers to one question, the best first: ok, unparsed, refused, error."""

    def rank(row: Mapping[str, Any]) -> int:
        return PREDICTION_STATUSES.index(predict(judge, label, row, taxonomy).status)

    return rank


def _summary(reply: Reply) -> Summary | None:
    distribution = reply.distribution  # of a local model, over all scores
    if distribution is None and reply.logprobs is not None:
        distribution = from_top_logprobs(reply.logprobs)
    return None if distribution is None else summarise(distribution)
