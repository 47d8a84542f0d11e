"""What ``cprt counterfactual`` starts from: the judges that choose the photos, and the runs of those it asks again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.models.spec import ModelSpec
from cprt.prompts import assuming_faces_anonymised, recall
from cprt.provenance import read_record
from cprt.records import Prediction, inside, read_predictions
from cprt.taxonomy import Taxonomy
from cprt.values import read_fields
from eval.judges import Judge
from eval.runs import predictions_of

Predictions = dict[str, Prediction]  # by id


@dataclass(frozen=True)
class Place:
    """Where the endpoint of a run is, and the variable of the key that goes there."""

    run: str
    base_url: str
    api_key_env: str | None = None


@dataclass(frozen=True)
class EvalRun:
    """One folder of ``cprt eval`` that is asked again: its judge, and its scores by id.

    ``counterfactual`` is the same judge under the assumption that faces are anonymised.
    """

    judge: Judge
    counterfactual: Judge
    predictions: Predictions

    @property
    def name(self) -> str:
        return self.judge.name


def read_judge(run: Path) -> Predictions:
    """Predictions by id, of a folder of ``cprt eval`` or a file of anybody's. Raises InputError."""
    return {row.id: row for row in read_predictions(predictions_of(run))}


def read_runs(
    folders: Mapping[str, Path],
    taxonomy: Taxonomy,
    base_url: str | None = None,
    api_key_env: str | None = None,
    endpoints: Sequence[Mapping[str, Any]] = (),
) -> list[EvalRun]:
    """The runs to repeat. Raises InputError where one cannot be repeated as it was: another taxonomy, or a model or
    adapter that has changed since.

    Where a run's endpoint is, and which key it takes, is said anew, both together: a key never goes to an address that
    it was not given for.
    """
    records = {name: read_record(folder / "run.json") for name, folder in folders.items()}
    places = _read_endpoints(endpoints, list(folders))
    if base_url is not None:
        judges = [inside(record, "config", "judge") for record in records.values()]
        keys = {str(judge.get("api_key_env")) for judge in judges if judge.get("base_url")}
        if len(keys) > 1:  # they asked different services: one address is not enough for them
            raise InputError(
                f"base_url: the runs asked endpoints with different keys ({', '.join(sorted(keys))}); "
                "name the address and key of each in endpoints"
            )
        places = {name: Place(name, base_url, api_key_env) for name in folders}
    return [_read_run(name, folder, records[name], taxonomy, places.get(name)) for name, folder in folders.items()]


def _read_endpoints(rows: Sequence[Mapping[str, Any]], runs: Sequence[str]) -> dict[str, Place]:
    """Name of a run -> where its endpoint is."""
    places: dict[str, Place] = {}
    for number, row in enumerate(rows, start=1):
        where = f"endpoints[{number}]"
        place = read_fields(Place, row, where, hidden=("base_url", "api_key_env"))
        if place.run not in runs or place.run in places:
            raise InputError.at(where, f"is not one of {', '.join(runs)}, each once", field="run")
        places[place.run] = place
    return places


def _read_run(name: str, folder: Path, record: Any, taxonomy: Taxonomy, place: Place | None) -> EvalRun:
    file = folder / "run.json"
    try:
        plain = recall(record["prompt"], taxonomy, str(file))
        # What may be null is left out of a record where it is: not ModelSpec's own default then.
        row = {"max_pixels": None, "max_new_tokens": None, "temperature": None} | record["config"]["judge"]
        row.pop("note", None)  # of another base, for readers
        if row.pop("base_url", None):
            if place is None:
                raise InputError.at(file, "asked an endpoint: name it with --base_url", field="base_url")
            row |= {"base_url": place.base_url, "api_key_env": place.api_key_env}
        spec = ModelSpec.read(row, str(file))
        model = record["model"]
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError.at(file, f"is not the record of cprt eval ({error} is missing or odd)") from error
    if model != spec.identity["model"]:
        raise InputError.at(file, f"the model {spec.model} has changed since", field="model")
    if record.get("adapter") != spec.identity.get("adapter"):
        raise InputError.at(file, f"the adapter {spec.adapter} has changed since", field="adapter")
    held = bool({"structured", "not_structured"} & inside(record, "decoding").keys())
    judge = Judge.of(name, spec, plain, taxonomy, held)
    again = replace(judge, prompt=assuming_faces_anonymised(plain, taxonomy))
    return EvalRun(judge, again, read_judge(folder))
