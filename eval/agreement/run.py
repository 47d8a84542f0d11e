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
from cprt.metrics.agreement import KINDS, MISSING, measure
from cprt.pages.words import show
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
    drawn = {"resamples": args.resamples, "seed": args.seed}
    shared = _shared_images(answers, kinds)
    compared = answers[:, shared] if shared.any() else answers
    found = measure(compared, annotators, kinds, taxonomy, **drawn)
    everywhere = found if compared.shape == answers.shape else measure(answers, annotators, kinds, taxonomy, **drawn)
    result = {
        "half_counts_as": 0,
        "images": len(images),
        "images_of_both_kinds": int(shared.sum()),
        "images_compared": compared.shape[1],
        "models_on_all_images": everywhere["model_model"],
        "annotators": [_profile(name, kind, rows) for name, kind in zip(annotators, kinds, strict=True)],
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
    for name, group in (("All models-Human", "model_human"), ("All pairs of models", "model_model")):
        ours.append((name, ("", ""), found[group]["pooled"]))
    published = paper.table2()
    rows: list[dict[str, Any]] = []
    used: list[str] = []
    for comparison, between, part in ours:
        same = next((row for row in published if _is_same(between, row["between"])), None)
        used += [same["comparison"]] if same else []
        kept = {name: part["overall"][name] for name in ("n", "agreement", "kappa", "ci")}
        rows.append({"comparison": comparison, **kept, "paper": same})
    for row in published:
        if row["comparison"] not in used:
            nothing = {"n": 0, "agreement": None, "kappa": None, "ci": {"agreement": None, "kappa": None}}
            rows.append({"comparison": row["comparison"], **nothing, "paper": row})
    return rows


def _is_same(ours: tuple[str, str], paper: Sequence[str]) -> bool:
    def holds(name: str, published: str) -> bool:
        if "human" in (name, published):
            return name == published
        return _plain(published) in _plain(name)

    return any(holds(ours[0], a) and holds(ours[1], b) for a, b in (paper, paper[::-1]))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# --- Printing ----------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], taxonomy: Taxonomy, out: str) -> None:
    """Table 2 with the paper's figures beside ours, then every level and attribute. A dash is undefined."""
    people, models = (sum(row["kind"] == kind for row in result["annotators"]) for kind in KINDS)
    print(f"{out}: {result['images']} images, {people} humans, {models} models; 0.5 counts as 0")
    if people and models and not result["images_of_both_kinds"]:
        print("  no image has answers of humans and of models: are their names spelled alike?")
    elif result["images_compared"] < result["images"]:
        pooled = result["models_on_all_images"]["pooled"]["overall"]
        print(
            f"  all figures are over the {result['images_compared']} images that people and models answered; over all "
            f"images models agree on {_percent(pooled['agreement'])}, kappa {show(pooled['kappa'])}"
        )
    for row in result["annotators"]:
        lost = {status: count for status, count in row["status_counts"].items() if count and status != "ok"}
        if lost:
            counts = ", ".join(f"{count} {status}" for status, count in lost.items())
            print(f"  {row['annotator']}: {counts} of {row['images']} rows count as not answered")
    width = max(20, *(len(row["comparison"]) for row in result["table2"]))
    print(f"\n{'Table 2':<{width}}  {'items':>6}  {'agreement':>22}  {'kappa':>24}  {'paper':>6} {'kappa':>6}")
    for row in result["table2"]:
        published = row["paper"] or {}
        ours = f"{_percent(row['agreement'], row['ci']['agreement']):>22}  {show(row['kappa'], row['ci']['kappa']):>24}"
        print(
            f"{row['comparison']:<{width}}  {row['n']:>6}  {ours}  {_percent_of(published.get('agreement_percent')):>6}"
            f" {show(published.get('kappa')):>6}"
        )
    _print_parts(result, taxonomy)


def _print_parts(result: dict[str, Any], taxonomy: Taxonomy) -> None:
    human, model, pair = result["human_human"], result["model_human"]["pooled"], result["model_model"]["pooled"]
    by_level = paper.human_agreement_by_level()
    lines: list[tuple[str, list[Any], float | None]] = [
        ("overall", [part["overall"] for part in (human, model, pair)], None)
    ]
    for level in LEVELS:
        parts = [part["levels"][str(level)] for part in (human, model, pair)]
        lines.append((f"level {level}", parts, by_level.get(level)))
    lines += [(key, [part["attributes"][key] for part in (human, model, pair)], None) for key in taxonomy.keys]
    width = max(len(name) for name, _, _ in lines)
    print(f"\n{'':<{width}}  humans                          models against their majority         models")
    print(
        f"{'':<{width}}  {'agree':>6} {'paper':>6} {'kappa':>6} {'alpha':>6}"
        f"     {'agree':>6} {'kappa':>6} {'over':>6} {'under':>6} {'diff':>7}"
        f"   {'agree':>6} {'kappa':>6}"
    )
    for name, (h, m, p), published in lines:
        print(
            f"{name:<{width}}  {_percent(h['agreement']):>6} {_percent_of(published):>6} {show(h['kappa']):>6}"
            f" {show(h['alpha']):>6}     {_percent(m['agreement']):>6} {show(m['kappa']):>6}"
            f" {_percent(m['over_rate']):>6} {_percent(m['under_rate']):>6}"
            f" {show(m['signed_difference'], form='+.1%'):>7}"
            f"   {_percent(p['agreement']):>6} {show(p['kappa']):>6}"
        )


_percent = partial(show, form=".1%")


def _percent_of(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"


if __name__ == "__main__":
    run(main, "cprt agreement")
