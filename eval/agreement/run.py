"""``cprt agreement``: answers of people and models to the taxonomy's questions -> how far they agree (paper Table 2).

Inputs, one or more files of either kind:

* ``--answers``: CSV with columns ``annotator``, ``kind`` (human or model), ``image`` and every key of the taxonomy;
  values 0, 0.5 or 1, empty where there is no answer.
* ``--annotations``: the ``annotations.jsonl`` of ``cprt annotate``, whose annotators are models. Only rows with status
  ok have answers; the others are counted.

0.5 counts as 0, as in the paper, and this is no option: an agreement that counts doubt as presence would be about other
labels than those that training and evaluation use. Images are matched by file name without folder and extension.

Where people and models both answered, every figure is over the images that have answers of both, as in the paper:
models among themselves on easier or harder photos could not be held beside people. ``models_on_all_images`` holds the
models' agreement over all the images that they answered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt import paper
from cprt.answers import STATUSES
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.metrics.agreement import KINDS, MISSING, measure
from cprt.pages.words import aligned, counted, show
from cprt.provenance import run_path, sign, write_run
from cprt.records import write_json
from cprt.taxonomy import LEVELS, Taxonomy
from eval.agreement.rows import Row, assemble, read_annotations, read_answers


@dataclass
class AgreementArguments:
    out: str = option("agreement.json to write")
    answers: list[str] = option("CSV files of annotator, kind, image and the taxonomy's keys", factory=list)
    annotations: list[str] = option("annotations.jsonl files made by cprt annotate", factory=list)
    resamples: int = option("bootstrap resamples of images; 0: no intervals", 1000, least=0, most=100_000)
    seed: int = option("seed of the resamples", 0, least=0)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if not self.answers and not self.annotations:
            raise ValueError("needs --answers or --annotations")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt agreement``."""
    (args,) = parse(AgreementArguments, argv, prog="cprt agreement", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    rows = [row for path in args.answers for row in read_answers(path, taxonomy)]
    rows += [row for path in args.annotations for row in read_annotations(path, taxonomy)]
    answers, annotators, kinds, images = assemble(rows)
    if args.resamples:
        of = f"{counted(len(annotators), 'annotator')}, {counted(len(images), 'image')}"
        print(f"{of}: drawing them {args.resamples:,} times for the intervals ...", flush=True)
    drawn = {"resamples": args.resamples, "seed": args.seed}
    shared = _shared_images(answers, kinds)
    compared = answers[:, shared] if shared.any() else answers
    found = measure(compared, annotators, kinds, taxonomy, **drawn)
    everywhere = found if compared.shape == answers.shape else measure(answers, annotators, kinds, taxonomy, **drawn)
    profiles = [_profile(name, kind, rows) for name, kind in zip(annotators, kinds, strict=True)]
    groups = found["human_human"], found["model_human"]["pooled"], found["model_model"]["pooled"]
    if not any(group["overall"]["n"] for group in groups):
        why = "; ".join(_lost(profiles)) or "is an image called otherwise in one of the files?"
        raise InputError(f"nothing to compare, no two annotators answered about the same image: {why}")
    result = {
        "half_counts_as": 0,
        "images": len(images),
        "images_of_both_kinds": int(shared.sum()),
        "images_compared": compared.shape[1],
        "models_on_all_images": everywhere["model_model"],
        "annotators": profiles,
        "table2": table2(found),
        **found,
    }
    sign("cprt agreement", run_path(args.out))
    write_json(args.out, result)
    inputs = {f"{name}_{i}": path for name in ("answers", "annotations") for i, path in enumerate(getattr(args, name))}
    write_run("cprt agreement", args.out, args, inputs, seed=args.seed, taxonomy=taxonomy.digest)
    print_report(result, taxonomy, args.out)


def _profile(name: str, kind: str, rows: Sequence[Row]) -> dict[str, Any]:
    own = [row for row in rows if row.annotator == name]
    values = [value for row in own for value in row.values]
    return {
        "annotator": name,
        "kind": kind,
        "images": len(own),
        "answers": sum(value is not None for value in values),
        "halves": sum(value == 0.5 for value in values),
        "status_counts": {status: sum(row.status == status for row in own) for status in STATUSES},
    }


def _lost(profiles: Sequence[dict[str, Any]]) -> list[str]:
    """What does not count as answered, in words."""
    said = []
    for row in profiles:
        lost = {status: count for status, count in row["status_counts"].items() if count and status != "ok"}
        if lost:
            counts = ", ".join(f"{count} {status}" for status, count in lost.items())
            said.append(f"{row['annotator']}: {counts} of {row['images']} rows count as not answered")
        elif not row["answers"]:
            said.append(f"{row['annotator']} filled in nothing")
    return said


def _shared_images(answers: NDArray[np.int8], kinds: Sequence[str]) -> NDArray[np.bool_]:
    """(N,) whether an image has answers of humans and of models."""
    answered = (answers != MISSING).any(axis=2)
    humans, models = (answered[[kind == wanted for kind in kinds]].any(axis=0) for wanted in KINDS)
    return np.asarray(humans & models)


# --- Beside the paper --------------------------------------------------------------------------------------------


def table2(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Our rows in the order of the paper's table, each with the paper's row on the same annotators under ``paper``.

    An annotator is the paper's when its name holds the paper's name, letters and digits alone: ``gpt-5.1-2025`` is
    GPT-5.1. The paper's rows without a counterpart follow, with no figures of ours.
    """
    ours = [("Human-Human", ("human", "human"), found["human_human"])]
    ours += [(f"{name}-Human", (name, "human"), part) for name, part in found["model_human"]["models"].items()]
    ours += [(f"{a}-{b}", (a, b), part) for part in found["model_model"]["pairs"] for a, b in [part["annotators"]]]
    ours.append(("All models-Human", ("", ""), found["model_human"]["pooled"]))
    ours.append(("All pairs of models", ("", ""), found["model_model"]["pooled"]))
    published, rows = paper.table2(), list[dict[str, Any]]()
    for comparison, between, part in ours:
        same = next((row for row in published if _is_same(between, row["between"])), None)
        kept = {name: part["overall"][name] for name in ("n", "agreement", "kappa", "ci")}
        rows.append({"comparison": comparison, **kept, "paper": same})
    nothing = {"n": 0, "agreement": None, "kappa": None, "ci": {"agreement": None, "kappa": None}}
    used = [row["paper"] for row in rows]
    rows += [{"comparison": row["comparison"], **nothing, "paper": row} for row in published if row not in used]
    return rows


def _is_same(ours: tuple[str, str], paper: Sequence[str]) -> bool:
    """Whether two names are those of the paper's, in either order."""
    return any(_holds(ours[0], a) and _holds(ours[1], b) for a, b in (paper, paper[::-1]))


def _holds(name: str, published: str) -> bool:
    """Whether an annotator is the paper's; people are of one name."""
    if "human" in (name, published):
        return name == published
    return _plain(published) in _plain(name)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# --- Printing ----------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], taxonomy: Taxonomy, out: str) -> None:
    """Table 2 with the paper's figures beside ours, then every level and attribute. A dash is undefined."""
    people, models = (sum(row["kind"] == kind for row in result["annotators"]) for kind in KINDS)
    print(f"{out}: {result['images']} images, {people} humans, {models} models; 0.5 counts as 0")
    answered = {row["kind"] for row in result["annotators"] if row["answers"]}
    if answered == set(KINDS) and not result["images_of_both_kinds"]:
        print("  no image has answers of humans and of models: are their names spelled alike?")
    elif result["images_of_both_kinds"] and result["images_compared"] < result["images"]:
        pooled = result["models_on_all_images"]["pooled"]["overall"]
        print(
            f"  all figures are over the {result['images_compared']} images that people and models answered; over all "
            f"images models agree on {_percent(pooled['agreement'])}, kappa {show(pooled['kappa'])}"
        )
    for line in _lost(result["annotators"]):
        print(f"  {line}")
    lines = [["Table 2", "items", "agreement", "kappa", "paper", "kappa"]]
    for row in result["table2"]:
        published, ci = row["paper"] or {}, row["ci"]
        ours = [_percent(row["agreement"], ci["agreement"]), show(row["kappa"], ci["kappa"])]
        papers = [_percent_of(published.get("agreement_percent")), show(published.get("kappa"))]
        lines.append([row["comparison"], str(row["n"]), *ours, *papers])
    print(f"\n{aligned(lines)}")
    papers_models = dict.fromkeys(name for row in paper.table2() for name in row["between"] if name != "human")
    annotators = [row["annotator"] for row in result["annotators"] if row["kind"] == "model"]
    lonely = [name for name in annotators if not any(_holds(name, published) for published in papers_models)]
    if lonely:
        named = f"{', '.join(lonely)} {'stands' if len(lonely) == 1 else 'stand'}"
        print(f"note: {named} beside no row of the paper's: there a name holds {' or '.join(papers_models)}")
    _print_parts(result, taxonomy)


def _print_parts(result: dict[str, Any], taxonomy: Taxonomy) -> None:
    groups = result["human_human"], result["model_human"]["pooled"], result["model_model"]["pooled"]
    by_level = paper.human_agreement_by_level()
    rows: list[tuple[str, list[Any], float | None]] = [("overall", [part["overall"] for part in groups], None)]
    rows += [(f"level {n}", [part["levels"][str(n)] for part in groups], by_level.get(n)) for n in LEVELS]
    rows += [(key, [part["attributes"][key] for part in groups], None) for key in taxonomy.keys]
    lines = [["", "humans", "paper", "kappa", "alpha", "models*", "kappa", "over", "under", "diff", "models", "kappa"]]
    for name, (humans, against, models), published in rows:
        cells = [_percent(humans["agreement"]), _percent_of(published), show(humans["kappa"]), show(humans["alpha"])]
        cells += [_percent(against["agreement"]), show(against["kappa"])]
        cells += [_percent(against["over_rate"]), _percent(against["under_rate"])]
        cells.append(show(against["signed_difference"], form="+.1%"))
        lines.append([name, *cells, _percent(models["agreement"]), show(models["kappa"])])
    print(f"\n{aligned(lines)}\nhumans, models: agreement among themselves; models*: with the majority of humans")


_percent = partial(show, form=".1%")


def _percent_of(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"


if __name__ == "__main__":
    run(main, "cprt agreement")
