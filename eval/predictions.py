"""From what became of a request to a row of predictions.jsonl: what the text says, and what the probabilities say."""

from __future__ import annotations

from typing import Any

from cprt.answers import Answer, parse
from cprt.guidance.advice import compose
from cprt.guidance.risk import Risk
from cprt.models.decoding.scores import Summary, from_top_logprobs, summarise
from cprt.models.outcome import Outcome, Reader
from cprt.models.spec import Response
from cprt.prompts import Prompt
from cprt.records import Label, Prediction
from cprt.taxonomy import Taxonomy
from eval.judges import Judge


def reader(taxonomy: Taxonomy, prompt: Prompt) -> Reader[Answer]:
    """Reads the answer to a judge's prompt."""

    def read(text: str) -> tuple[Any, Answer]:
        answer = parse(text, taxonomy, prompt.score_key)
        return answer.status, answer

    return read


def predict(judge: Judge, label: Label, outcome: Outcome[Answer], taxonomy: Taxonomy) -> Prediction:
    """The prediction for one label. ``score`` is what the text states; each other way to a score has its own column:

    ``expected_score`` and ``median_score`` of the distribution (with ``label_mass``, how much of the probability is on
    scores at all), ``composed_score`` by the exact function from the attributes that the text names; and what follows
    from probabilities of lists, where there are any (see ``Prediction``).
    """
    answer, response, decoded = outcome.value or Answer("unparsed"), outcome.response, dict[str, Any]()
    distribution = _summary(response, judge.prompt.score_key) if judge.expected and response is not None else None
    # Behind a lead-in of ours every model writes a number; one that stated none in its own answer has not judged.
    if distribution is not None and answer.score is not None:
        decoded = {
            "expected_score": distribution.mean,
            "median_score": distribution.median,
            "label_mass": distribution.mass,
        }
    if answer.attributes is not None:
        decoded["composed_score"] = compose(answer.attributes, taxonomy).score
    if outcome.status == "ok" and response is not None and response.lists:
        decoded |= over_lists(Risk.read(response.lists, taxonomy))
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
        willing=None if response is None else response.willing,
        **decoded,
    )


def over_lists(risk: Risk) -> dict[str, Any]:
    """The columns of a prediction that say what probabilities of lists come to."""
    return {
        "mean_score": risk.mean,
        "level_mean_score": risk.level_mean,
        "likeliest_score": risk.likeliest[0][2],
        "score_deviation": risk.deviation,
        "score_band": list(risk.band),
        "list_mass": risk.mass,
        "attribute_probabilities": risk.attributes,
        "lists": [
            {"attributes": list(keys), "probability": probability, "score": score}
            for keys, probability, score in risk.likeliest
        ],
    }


def _summary(response: Response, score_key: str) -> Summary | None:
    distribution = response.distribution  # of a local model, over all scores
    if distribution is None and response.logprobs is not None:
        distribution = from_top_logprobs(response.logprobs, score_key)
    return None if distribution is None else summarise(distribution)
