"""``cprt counterfactual``: would a judge still see the risk if every face were anonymised (paper 5.4.1, Fig. 4)?

Input are folders as ``cprt eval`` leaves them, one for each model and prompt. Chosen are photos on which every run is
confident: its score lies within ``--confidence`` of the truth. The same models are asked about them again, to assume that
every face is perfectly anonymised. The truth is recomputed without ``biometrics``: the taxonomy has no attribute for faces
alone. Where VISPR's own labels (``--annotations``) name a fingerprint, it stays. Files in ``OUT``:

* ``answers.jsonl``: every reply, durable as it comes. Run the same command again after a kill: what is missing is asked.
* ``selection.jsonl``: the photos, their group (face, id, other) and their truth before and after.
* ``counterfactual.jsonl``: a row for each run and photo; ``summary.json``: means and shares of each run and group, with
  intervals; ``change.png``; ``run.json``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.ask import Model
from cprt.config import parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.metrics import wilson_interval
from cprt.pace import Stopped
from cprt.prompts import Prompt, build
from cprt.provenance import write_run
from cprt.questions import ModelSpec, Question
from cprt.records import (
    PREDICTION_STATUSES,
    Prediction,
    read_json,
    read_labels,
    read_predictions,
    write_json,
    write_jsonl,
)
from cprt.scoring import level_of
from cprt.store import AnswerStore
from cprt.taxonomy import Taxonomy
from eval.counterfactual_cases import FACES, GROUPS, Case, confident, make_case, read_fingerprints, select
from eval.counterfactual_figure import draw
from eval.replies import read


@dataclass
class CounterfactualArguments:
    runs: list[str] = field(metadata={"help": "folders that cprt eval wrote, one for each model and prompt"})
    labels: str = field(metadata={"help": "labels.jsonl with the truth of every attribute"})
    images: str = field(metadata={"help": "folder that holds images/, or images/ itself"})
    out: str = field(metadata={"help": "folder to write"})
    annotations: str | None = field(
        default=None, metadata={"help": "VISPR's annotations: where they name a fingerprint, biometrics stay"}
    )
    size: int = field(default=100, metadata={"help": "photos"})
    confidence: float = field(default=0.1, metadata={"help": "every run's score is nearer to the truth than this"})
    share: float = field(default=0.8, metadata={"help": "share of photos of level 1 with a face or an ID"})
    seed: int = field(default=0, metadata={"help": "seed of the draw and of the resamples"})
    resamples: int = field(default=1000, metadata={"help": "bootstrap resamples of photos"})
    base_url: str | None = field(
        default=None, metadata={"help": "the endpoint of runs that asked one (their records do not name it)"}
    )
    allow_remote: bool = field(default=False, metadata={"help": "photos may go to an endpoint on another machine"})
    taxonomy: str | None = field(default=None, metadata={"help": "YAML that extends the published taxonomy"})

    def __post_init__(self) -> None:
        for name in ("size", "resamples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("confidence", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, not {self.seed}")


@dataclass(frozen=True)
class EvalRun:
    """One folder of ``cprt eval``: what was asked of which model, and its scores by id. ``prompt`` is the plain one."""

    name: str
    spec: ModelSpec
    prompt: Prompt
    counterfactual: Prompt
    predictions: dict[str, Prediction]

    def question(self, photo: Path) -> Question:
        return Question(self.counterfactual.messages(), (photo,))


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt counterfactual``."""
    (args,) = parse(CounterfactualArguments, argv, prog="cprt counterfactual", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    if FACES not in taxonomy.keys:
        raise InputError(f"{args.taxonomy}: without {FACES!r} there is nothing to leave out")
    runs = read_runs(args.runs, taxonomy, args.base_url)
    labels, root = read_labels(args.labels, taxonomy), image_root(args.images)
    for one in runs:
        strangers = one.predictions.keys() - {label.id for label in labels}
        if strangers:
            raise InputError.at(args.labels, f"has no label {min(strangers)!r}, which {one.name} has a prediction for")
    sure = confident(labels, {one.name: one.predictions for one in runs}, args.confidence, args.labels)
    fingerprints = read_fingerprints(args.annotations)
    candidates = [make_case(label, fingerprints, taxonomy) for label in sure]
    cases, selection = select(candidates, args.size, args.share, args.seed)
    selection = {"confident_in_every_run": len(sure), "labels": len(labels), **selection}
    if not cases:
        raise InputError(f"{args.labels}: on no photo are all runs within {args.confidence:g} of the truth")
    check_images(root, [case.image for case in cases], decode=False)
    out = Path(args.out)
    write_jsonl(out / "selection.jsonl", [dataclasses.asdict(case) for case in cases])

    with AnswerStore(out / "answers.jsonl") as store:
        stopped = ask(runs, cases, root, store, args.allow_remote)
        rows = [row for one in runs for row in compare(one, cases, root, store, taxonomy)]
    write_jsonl(out / "counterfactual.jsonl", rows)
    summary = {"selection": selection, **summarise(rows, runs, args.resamples, args.seed)}
    write_json(out / "summary.json", summary)
    draw(out / "change.png", rows, summary, taxonomy)
    config = {**vars(args), "base_url": args.base_url and "endpoint"}
    inputs = {"labels": args.labels, **{f"run_{i}": f"{one}/predictions.jsonl" for i, one in enumerate(args.runs)}}
    write_run(out, config, inputs, seed=args.seed, taxonomy=taxonomy.digest,
              runs=[{"name": one.name, "model": one.spec.record(), "identity": one.spec.identity["model"],
                     "adapter": one.spec.identity.get("adapter"), "prompt": one.counterfactual.identity()}
                    for one in runs])  # fmt: skip
    report(summary, out)
    if stopped is not None:
        raise stopped


# --- Runs --------------------------------------------------------------------------------------------------------


def read_runs(folders: Sequence[str], taxonomy: Taxonomy, base_url: str | None) -> list[EvalRun]:
    """The runs to repeat. Raises InputError where one is doubled, or cannot be repeated as it was: another taxonomy,
    or a model or adapter that has changed since.
    """
    names = [Path(folder).resolve().name for folder in folders]
    names = [
        name if names.count(name) == 1 else folder.rstrip("/") for name, folder in zip(names, folders, strict=True)
    ]
    doubled = [
        folder for folder, count in Counter(str(Path(folder).resolve()) for folder in folders).items() if count > 1
    ]
    if doubled:
        raise InputError(f"runs: {Path(doubled[0]).name!r} is there twice")
    return [_read_run(folder, name, taxonomy, base_url) for folder, name in zip(folders, names, strict=True)]


def _read_run(folder: str, name: str, taxonomy: Taxonomy, base_url: str | None) -> EvalRun:
    file = Path(folder) / "run.json"
    record = read_json(file)
    try:
        asked, config = record["prompt"], record["config"]
        plain = build(asked["name"], asked["target"], taxonomy)
        changed = build(asked["name"], asked["target"], taxonomy, faces_anonymised=True)
        spec = _spec(config, record, str(file), base_url)
        adapter = record.get("adapter")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError.at(file, f"is not the record of cprt eval ({error} is missing or odd)") from error
    if asked.get("sha256") != plain.digest:
        raise InputError.at(file, "asked with another prompt or taxonomy than are here now", field="prompt")
    if record["model"] != spec.identity["model"]:
        raise InputError.at(file, f"the model {spec.model} has changed since", field="model")
    if adapter != spec.identity.get("adapter"):
        raise InputError.at(file, f"the adapter {spec.adapter} has changed since", field="adapter")
    predictions = {prediction.id: prediction for prediction in read_predictions(Path(folder) / "predictions.jsonl")}
    return EvalRun(name, spec, plain, changed, predictions)


def _spec(config: Mapping[str, Any], record: Mapping[str, Any], where: str, base_url: str | None) -> ModelSpec:
    """How the run asked its model. Its record has the model under ``judge``, or its fields among the options."""
    row = dict(config.get("judge") or {})
    if not row:
        fields = {field.name for field in dataclasses.fields(ModelSpec)}
        row = {name: value for name, value in config.items() if name in fields and value is not None}
        row["revision"] = config.get("model_revision")
    row["name"] = "run"
    if record["decoding"].get("max_pixels") is None:  # as it stands, not ModelSpec's own cap
        row["max_pixels"] = None
    if row.get("base_url"):
        if base_url is None:
            raise InputError.at(where, "asked an endpoint: name it with --base_url", field="base_url")
        row["base_url"] = base_url
    return ModelSpec.read(row, where)


# --- Answers -----------------------------------------------------------------------------------------------------


def ask(
    runs: Sequence[EvalRun], cases: Sequence[Case], root: Path, store: AnswerStore, allow_remote: bool
) -> Stopped | None:
    """Have every run's model answered about every case in ``store``; what stopped it, if anything did.

    Runs of one model are asked one after the other, so that it is loaded once.
    """
    waiting = list(runs)
    try:
        while waiting:
            model = Model(waiting[0].spec, allow_remote)
            for one in [one for one in waiting if one.spec == model.spec]:
                waiting.remove(one)
                asked = [one.question(root / case.image) for case in cases]
                todo = {key: question for question in asked if (key := one.spec.key(question)) not in store}
                if todo and model.is_remote:
                    print(
                        f"note: {one.name} is asked on another machine: {len(todo)} images leave this one",
                        file=sys.stderr,
                    )
                if todo:
                    model.ask(todo, store, one.name)
    except Stopped as reason:  # what there is is written all the same
        return reason
    return None


def compare(
    one: EvalRun, cases: Sequence[Case], root: Path, store: AnswerStore, taxonomy: Taxonomy
) -> list[dict[str, Any]]:
    """A row for every case: the run's score and level before and after, beside the truth's."""
    rows = []
    for case in cases:
        before = one.predictions[case.id].score
        assert before is not None  # or no run would be confident
        kept = store.get(one.spec.key(one.question(root / case.image)))
        outcome = read(kept, one.spec.max_new_tokens, taxonomy)
        after = outcome.answer.score
        rows.append({
            "id": case.id, "run": one.name, "prompt": one.prompt.name, "target": one.prompt.target,
            "group": case.group, "status": outcome.status,
            "before": before, "after": after,
            "truth_before": case.truth_before, "truth_after": case.truth_after,
            "level_before": level_of(before, taxonomy), "level_after": outcome.answer.level,
            "truth_level_before": case.level_before, "truth_level_after": case.level_after,
            "text": outcome.text, "error": outcome.error,
        })  # fmt: skip
    return rows


# --- Summary -----------------------------------------------------------------------------------------------------


def summarise(rows: Sequence[dict[str, Any]], runs: Sequence[EvalRun], resamples: int, seed: int) -> dict[str, Any]:
    """Figures of every run, over all photos and in each group, ready for JSON."""
    figures = {}
    for one in runs:
        own = [row for row in rows if row["run"] == one.name]
        groups = {"all": own, **{group: [row for row in own if row["group"] == group] for group in GROUPS}}
        figures[one.name] = {"model": one.spec.model, "prompt": one.prompt.name, "target": one.prompt.target,
                             **{name: _figures(part, resamples, seed) for name, part in groups.items()}}  # fmt: skip
    method = {"confidence": 0.95, "means": "percentile bootstrap over photos with a score", "shares": "Wilson",
              "resamples": resamples, "seed": seed}  # fmt: skip
    return {"runs": figures, "ci_method": method}


def _figures(rows: Sequence[dict[str, Any]], resamples: int, seed: int) -> dict[str, Any]:
    """Means and shares over the rows that have a score; null where there is none."""
    counts = Counter(row["status"] for row in rows)
    scored = [row for row in rows if row["after"] is not None]
    before, after, truth_before, truth_after = (
        np.array([row[name] for row in scored], dtype=float)
        for name in ("before", "after", "truth_before", "truth_after")
    )
    means = {
        "before": before,
        "after": after,
        "change": after - before,
        "truth_change": truth_after - truth_before,
        "error_after": np.abs(after - truth_after),
    }
    shares = {
        "moved_down": sum(row["level_after"] > row["level_before"] for row in scored),
        "truth_moved_down": sum(row["truth_level_after"] > row["truth_level_before"] for row in scored),
        "unmoved": sum(row["after"] == row["before"] for row in scored),
    }
    n = len(scored)
    return {
        "n": len(rows),
        "scored": n,
        "status_counts": {status: counts[status] for status in PREDICTION_STATUSES},
        **{name: float(values.mean()) if n else None for name, values in means.items()},
        **{name: count / n if n else None for name, count in shares.items()},
        "ci": {name: _interval(values, resamples, seed) for name, values in means.items()}
        | {name: wilson_interval(count, n) for name, count in shares.items()},
    }


def _interval(values: NDArray[np.float64], resamples: int, seed: int) -> list[float] | None:
    """95% percentile bootstrap of a mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    return [float(bound) for bound in np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])]


def report(summary: Mapping[str, Any], out: Path) -> None:
    """The selection and a line for each run and group; a dash is undefined."""
    selection = summary["selection"]
    taken = ", ".join(f"{count} {group}" for group, count in selection["taken"].items())
    print(f"{out}: {sum(selection['taken'].values())} photos ({taken}) of {selection['confident_in_every_run']} on which "
          f"every run is confident")  # fmt: skip
    if selection["unfilled"]:
        print(f"  {selection['unfilled']} fewer than asked for: there are {selection['available']}")
    width = max(len(name) for name in summary["runs"])
    print(
        f"\n{'run':<{width}}  photos   n  before   after  change                  truth's  level falls (truth's)  unmoved"
    )
    for name, figures in summary["runs"].items():
        for group in ("all", *GROUPS):
            part = figures[group]
            if part["n"]:
                shown = name if group == "all" else ""
                change = _show(part["change"], "+")
                if part["ci"]["change"]:
                    change += " [{:+.3f}, {:+.3f}]".format(*part["ci"]["change"])
                print(f"{shown:<{width}}  {group:<6} {part['scored']:>3}  {_show(part['before']):>6}  {_show(part['after']):>6}"
                      f"  {change:<24} {_show(part['truth_change'], '+'):>6}  {_show(part['moved_down']):>11} "
                      f"({_show(part['truth_moved_down'])})  {_show(part['unmoved']):>7}")  # fmt: skip


def _show(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3f}"


if __name__ == "__main__":
    run(main, "cprt counterfactual")
