"""What ``cprt counterfactual`` starts from: the judges that choose the photos, and the runs of those it asks again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import assuming_faces_anonymised, recall
from cprt.records import Prediction, inside, read_object, read_predictions
from cprt.taxonomy import Taxonomy
from cprt.values import read_fields
from eval.judges import Judge
from eval.runs import predictions_of, run_names

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

    def requests(self, photo: Path, control: bool) -> tuple[Request, ...]:
        """The counterfactual question about a photo, and for a ``control`` the plain one again."""
        asked = (self.counterfactual, self.judge) if control else (self.counterfactual,)
        return tuple(judge.request(photo) for judge in asked)


def names_of(runs: Sequence[str]) -> list[str]:
    """A name for each run. Raises InputError where one is there twice."""
    paths = [Path(run).resolve() for run in runs]
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice:
        raise InputError(f"runs: {twice.name!r} is there twice")
    return run_names(paths)


def read_judges(runs: Sequence[str]) -> dict[str, Predictions]:
    """Name -> predictions by id, of folders of ``cprt eval`` or files of anybody's predictions. Raises InputError."""
    return {
        name: {row.id: row for row in read_predictions(predictions_of(Path(run)))}
        for name, run in zip(names_of(runs), runs, strict=True)
    }


def read_runs(
    folders: Sequence[str],
    taxonomy: Taxonomy,
    base_url: str | None = None,
    api_key_env: str | None = None,
    endpoints: Sequence[Mapping[str, Any]] = (),
) -> list[EvalRun]:
    """The runs to repeat. Raises InputError where one is doubled, or cannot be repeated as it was: another taxonomy,
    or a model or adapter that has changed since.

    Where a run's endpoint is, and which key it takes, is said anew, both together: a key never goes to an address that
    it was not given for.
    """
    names = names_of(folders)
    places = _read_endpoints(endpoints, names)
    records = {name: read_object(Path(folder) / "run.json") for name, folder in zip(names, folders, strict=True)}
    if base_url is not None:
        _check_one_key(records)
        places = {name: Place(name, base_url, api_key_env) for name in names}
    return [
        _read_run(folder, name, records[name], taxonomy, places.get(name))
        for folder, name in zip(folders, names, strict=True)
    ]


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


def _check_one_key(records: Mapping[str, Any]) -> None:
    """Runs that took different keys asked different services: one address is not enough for them."""
    keys = set()
    for record in records.values():
        with suppress(KeyError, TypeError):  # what is no record is found when it is read
            judge = record["config"]["judge"]
            if judge.get("base_url"):
                keys.add(str(judge.get("api_key_env")))
    if len(keys) > 1:
        raise InputError(
            f"base_url: the runs asked endpoints with different keys ({', '.join(sorted(keys))}); "
            "name the address and key of each in endpoints"
        )


def _read_run(folder: str, name: str, record: Any, taxonomy: Taxonomy, place: Place | None) -> EvalRun:
    file = Path(folder) / "run.json"
    try:
        asked, config = record["prompt"], record["config"]
        plain = recall(asked, taxonomy, str(file))
        # What may be null is left out of a record where it is: not ModelSpec's own default then.
        row = {"max_pixels": None, "max_new_tokens": None, "temperature": None} | config["judge"]
        row.pop("note", None)  # of another base, for readers
        if row.pop("base_url", None):
            if place is None:
                raise InputError.at(file, "asked an endpoint: name it with --base_url", field="base_url")
            row |= {"base_url": place.base_url, "api_key_env": place.api_key_env}
        spec = ModelSpec.read(row, str(file))
        model, adapter = record["model"], record.get("adapter")
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError.at(file, f"is not the record of cprt eval ({error} is missing or odd)") from error
    if model != spec.identity["model"]:
        raise InputError.at(file, f"the model {spec.model} has changed since", field="model")
    if adapter != spec.identity.get("adapter"):
        raise InputError.at(file, f"the adapter {spec.adapter} has changed since", field="adapter")
    predictions = {prediction.id: prediction for prediction in read_predictions(Path(folder) / "predictions.jsonl")}
    held = bool({"structured", "not_structured"} & inside(record, "decoding").keys())
    judge = Judge.of(name, spec, plain, taxonomy, held)
    return EvalRun(judge, replace(judge, prompt=assuming_faces_anonymised(plain, taxonomy)), predictions)
