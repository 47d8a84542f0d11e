"""From a kept response to a row of predictions.jsonl: what the text says, and what the probabilities say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cprt.guidance.advice import compose
from cprt.models.decoding import Summary, from_top_logprobs, summarise
from cprt.models.spec import Response
from cprt.records import PREDICTION_STATUSES, Label, Prediction
from cprt.taxonomy import Taxonomy
from eval.judges import Judge
from eval.responses import read


def predict(judge: Judge, label: Label, row: Mapping[str, Any] | None, taxonomy: Taxonomy) -> Prediction:
    """The prediction for one label. ``score`` is what the text states; each other way to a score has its own column:

    ``expected_score`` and ``median_score`` of the distribution (with ``label_mass``, how much of the probability is on
    scores at all), ``composed_score`` by the exact function from the attributes that the text names.
    """
    outcome = read(row, judge.spec.max_new_tokens, taxonomy)
    distribution = _summary(Response.read(row)) if judge.expected and row is not None else None
    decoded: dict[str, Any] = {}
    answer = outcome.answer
    # Behind a lead-in of ours every model writes a number; one that stated none in its own answer has not judged.
    if distribution is not None and answer.score is not None:
        decoded = {
            "expected_score": distribution.mean,
            "median_score": distribution.median,
            "label_mass": distribution.mass,
        }
    if answer.attributes is not None:
        decoded["composed_score"] = compose(answer.attributes, taxonomy).score
    return Prediction(
        id=label.id,
        model=judge.model,
        prompt=judge.prompt.name,
        status=outcome.status,
        text=outcome.text,
        error=outcome.error,
        score=answer.score,
        level=answer.level,
        stated_level=answer.stated_level,
        attributes=None if answer.attributes is None else list(answer.attributes),
        **decoded,
    )


def quality(judge: Judge, label: Label, taxonomy: Taxonomy) -> Any:
    """A function that ranks kept answers to one request, the best first: ok, unparsed, refused, error."""

    def rank(row: Mapping[str, Any]) -> int:
        return PREDICTION_STATUSES.index(predict(judge, label, row, taxonomy).status)

    return rank


def _summary(response: Response) -> Summary | None:
    distribution = response.distribution  # of a local model, over all scores
    if distribution is None and response.logprobs is not None:
        distribution = from_top_logprobs(response.logprobs)
    return None if distribution is None else summarise(distribution)
