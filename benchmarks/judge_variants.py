"""What a judge should be taught: every variant of training on equal steps and several seeds, every way to its score.

    python benchmarks/judge_variants.py --json holdout.json
    python benchmarks/judge_variants.py --fresh 4177 --variants score score-soft attributes --json fresh.json

Drawings of a seed of their own, of which 320 are held out; the demo's recipe on the same 1,800 others for each variant.
All answers are structured, so that every way has every drawing. Choose by the hold-out; ``--fresh`` then asks the same
adapters about 320 drawings of another seed, to be looked at once. Killed? The same command goes on. A training takes 2
minutes on an idle core, and asking an adapter 40 seconds.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from cprt.config import option, parse, run
from cprt.files import write_text
from cprt.metrics.results import Metrics
from cprt.pages.words import show
from cprt.records import read_labels, read_pairs, write_json, write_jsonl
from eval.measures import DECODINGS, HEADS, STATED

# Variant -> the target of its pairs, and in what else it differs from the demo's recipe.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "score": ("score", {}),
    "score-soft": ("score", {"score_width": 0.03}),
    "attributes": ("attributes", {}),
    "mixed": ("mixed", {}),
}
ASKED = {"score": ("score",), "attributes": ("attributes",), "mixed": ("attributes", "score")}
FIGURES = ("spearman", "mae", "level_accuracy", "intra_level_accuracy")
WAYS = (STATED, "expected", "composed", "level_mean", "mean")
MODEL = {"model": "assets/demo_base", "batch_size": 32, "max_new_tokens": 96, "max_pixels": 9216, "dtype": "float32"}


@dataclass
class VariantsArguments:
    folder: str = option("for drawings, adapters and answers", "outputs/judges")
    data_seed: int = option("of the drawings to train on and to choose by", 1507, least=0)
    fresh: int | None = option("seed of 320 drawings to ask about in place of the hold-out", None, least=0)
    seeds: list[int] = option("of each training", factory=lambda: [0, 1, 2])
    variants: list[str] = option(f"of {', '.join(VARIANTS)}", factory=lambda: list(VARIANTS))
    json: str | None = option("file for the figures", None)

    def __post_init__(self) -> None:
        if not self.variants or not set(self.variants) <= set(VARIANTS):
            raise ValueError(f"variants must be of {', '.join(VARIANTS)}")


def main() -> None:
    (args,) = parse(VariantsArguments, None, prog="judge_variants", description=__doc__)
    out = Path(args.folder)
    labels = prepare(out, args.data_seed)
    train(out, args.variants, args.seeds)
    if args.fresh is None:
        photos, images, name = out / "holdout.jsonl", out / "data", "holdout"
        held_out = {pair.id for pair in read_pairs(out / "pairs" / "score" / "holdout.jsonl")}
        write_jsonl(photos, [label for label in read_labels(labels) if label.id in held_out])
    else:
        name, images = f"fresh-{args.fresh}", out / f"drawings-{args.fresh}"
        photos = draw(images, args.fresh, val=1, test=320, split="test")
    found = ask(out, args.variants, args.seeds, photos, images, name)
    print(f"\n{len(read_labels(photos))} drawings, {len(args.seeds)} seeds: mean ± standard deviation\n")
    print(f"{'trained, asked for':<28}{'way':<12}" + "".join(f"{HEADS[figure]:<16}" for figure in FIGURES).rstrip())
    for judge, ways in found.items():
        for way, figures in ways.items():
            cells = (f"{show(one['mean'])} ± {show(one['spread'])}" for one in figures.values())
            print(f"{judge:<28}{way:<12}" + "".join(f"{cell:<16}" for cell in cells).rstrip())
    if args.json is not None:
        write_json(args.json, {"drawings": len(read_labels(photos)), "seeds": args.seeds, "judges": found})


def prepare(out: Path, seed: int) -> Path:
    """The labels of all drawings; pairs of each target for the same of them, in the same order."""
    labels = draw(out / "data", seed, val=2120, test=1, split="train")
    for target in sorted({target for target, _ in VARIANTS.values()}):
        if not (out / "pairs" / target / "run.json").is_file():
            options = {"labels": labels, "images": out / "data", "out": out / "pairs" / target, "target": target}
            command("pairs", **options, size=1800, holdout=320)
    return labels


def draw(out: Path, seed: int, val: int, test: int, split: str) -> Path:
    """Drawings and their labels, once."""
    labels = out / "labels.jsonl"
    if not labels.is_file():
        command("demo-data", out=out, seed=seed, val=val, test=test)
        command("labels", source="bench", input=out / f"cprt_{split}.json", images=out, out=labels)
    return labels


def train(out: Path, variants: list[str], seeds: list[int]) -> None:
    """Every variant with every seed, into ``OUT/train/VARIANT/seed-N``; what is trained is left as it is."""
    same = {"images": str(out / "data"), "eval_strategy": "no"}
    rows = [
        {"name": name, "pairs": str(out / "pairs" / VARIANTS[name][0]), **same, **VARIANTS[name][1]}
        for name in variants
    ]
    recipe = {"recipe": "configs/sft/demo.yaml", "out": str(out / "train"), "variants": rows, "seeds": seeds}
    write_text(out / "ablate.yaml", yaml.safe_dump(recipe, sort_keys=False))
    command("ablate", config=out / "ablate.yaml")


def ask(out: Path, variants: list[str], seeds: list[int], photos: Path, images: Path, name: str) -> dict[str, Any]:
    """Judge -> way -> figure -> mean, spread, and the value of each seed."""
    judges = {
        f"{variant}, {asked}": [
            {
                "name": f"{variant}-asked-{asked}-seed-{seed}",
                "adapter": str(out / "train" / variant / f"seed-{seed}"),
                "target": asked,
                **MODEL,
            }
            for seed in seeds
        ]
        for variant in variants
        for asked in ASKED[VARIANTS[variant][0]]
    }
    how = {"labels": str(photos), "images": str(images), "out": str(out / name)}
    how |= {"structured": True, "decoding": "expected", "models": [row for rows in judges.values() for row in rows]}
    write_text(out / f"{name}.yaml", yaml.safe_dump(how, sort_keys=False))
    command("eval", config=out / f"{name}.yaml")
    found: dict[str, Any] = {}
    for judge, rows in judges.items():
        measured = [Metrics.read(out / name / row["name"] / "metrics.json") for row in rows]
        ways = {STATED: measured} | {way: [one.decodings.get(way) for one in measured] for way in DECODINGS}
        found[judge] = {
            way: {figure: _spread([one.figure(figure) for one in ways[way]]) for figure in FIGURES}
            for way in WAYS
            if None not in ways[way]
        }
    return found


def _spread(values: list[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    whole = len(known) == len(values)
    return {
        "mean": mean(known) if whole else None,
        "spread": stdev(known) if whole and len(known) > 1 else None,
        "of_seeds": values,
    }


def command(*words: str, **options: Any) -> None:
    """Run a command of ours, printed as one would type it; stop with its status if it fails."""
    given = [*words, *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    print(f"\n$ cprt {shlex.join(given)}", flush=True)
    if status := subprocess.run([sys.executable, "-m", "cprt.cli", *given]).returncode:
        sys.exit(status)


if __name__ == "__main__":
    run(main, "judge_variants")
