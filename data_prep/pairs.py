"""``cprt pairs``: labels -> instruction-response pairs for SFT: a level-balanced training set, the rest as hold-out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cprt.answers import render
from cprt.config import parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.prompts import PROMPTS, TARGETS, Prompt, build
from cprt.provenance import write_run
from cprt.records import Label, Pair, read_labels, write_jsonl
from cprt.taxonomy import LEVELS, Taxonomy


@dataclass
class PairsArguments:
    labels: str = field(metadata={"help": "labels.jsonl, made by cprt labels"})
    images: str = field(metadata={"help": "folder that holds images/, or images/ itself"})
    out: str = field(metadata={"help": "folder for train.jsonl and holdout.jsonl"})
    prompt: str = field(default="taxonomy", metadata={"help": "what the model is asked", "choices": list(PROMPTS)})
    target: str = field(default="score", metadata={"help": "what it is to answer", "choices": list(TARGETS)})
    size: int = field(
        default=2048, metadata={"help": "training pairs to draw, as equally from the levels as they allow"}
    )
    seed: int = field(default=0, metadata={"help": "seed of the draw and of the order"})
    taxonomy: str | None = field(default=None, metadata={"help": "YAML that extends the published taxonomy"})

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, not {self.size}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, not {self.seed}")
        if self.target == "attributes" and self.prompt != "taxonomy":
            raise ValueError("target attributes needs prompt taxonomy, which tells the model the keys")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt pairs``."""
    (args,) = parse(PairsArguments, argv, prog="cprt pairs", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    prompt = build(args.prompt, args.target, taxonomy)
    labels = read_labels(args.labels, taxonomy)
    _check_labels(labels, args.labels)
    check_images(image_root(args.images), [str(label.image) for label in labels])
    train, holdout = split(labels, args.size, args.seed)
    report: dict[str, Any] = {}
    for name, part in (("train", train), ("holdout", holdout)):
        write_jsonl(Path(args.out) / f"{name}.jsonl", [make_pair(label, prompt, taxonomy) for label in part])
        counts = Counter(label.level for label in part)
        report[name] = {"pairs": len(part), "levels": {str(level): counts[level] for level in LEVELS}}
        levels = ", ".join(f"level {level}: {counts[level]}" for level in LEVELS)
        print(f"{Path(args.out) / name}.jsonl: {len(part)} pairs ({levels})")
    if len(train) < args.size:
        print(f"  --size {args.size} is more than there is: all {len(train)} went to training, no hold-out is left")
    elif len(set(report["train"]["levels"].values())) > 2:
        print("  a level had fewer rows than its share: it gave all it has, the others filled up")
    facts = {"seed": args.seed, "taxonomy": taxonomy.digest, "prompt": prompt.identity(), "report": report}
    write_run(args.out, args, {"labels": args.labels}, **facts)


def make_pair(label: Label, prompt: Prompt, taxonomy: Taxonomy) -> Pair:
    """The pair of one image: the prompt as asked at evaluation, and the answer that follows from its labels."""
    assert label.image is not None
    answer = render(
        target=prompt.target,
        score=label.score,
        level=label.level,
        attributes=label.present(taxonomy),
        taxonomy=taxonomy,
    )
    completion = [{"role": "assistant", "content": [{"type": "text", "text": answer}]}]
    return Pair(label.id, [label.image], prompt.messages(), completion, label.level, label.score)


def split(labels: Sequence[Label], size: int, seed: int) -> tuple[list[Label], list[Label]]:
    """A level-balanced draw of ``size`` labels in random order, and the rest, ordered by id.

    A level with fewer rows than its share gives all it has and the others fill up. The draw depends on the ids and the
    seed, not on the order of the file.
    """
    rng = np.random.default_rng(seed)
    by_level: dict[int, list[Label]] = {level: [] for level in LEVELS}
    for label in sorted(labels, key=lambda label: label.id):
        by_level[label.level].append(label)
    quota = shares([len(by_level[level]) for level in LEVELS], size)
    train: list[Label] = []
    holdout: list[Label] = []
    for level, share in zip(LEVELS, quota, strict=True):
        order = rng.permutation(len(by_level[level]))
        train += [by_level[level][i] for i in order[:share]]
        holdout += [by_level[level][i] for i in order[share:]]
    train = [train[i] for i in rng.permutation(len(train))]
    return train, sorted(holdout, key=lambda label: label.id)


def shares(available: Sequence[int], size: int) -> list[int]:
    """How many of each class to take so that ``size`` (or all there is) are taken, as equally as possible."""
    taken = [0] * len(available)
    for _ in range(min(size, sum(available))):
        open_classes = [i for i, count in enumerate(available) if taken[i] < count]
        taken[min(open_classes, key=lambda i: taken[i])] += 1
    return taken


def _check_labels(labels: Sequence[Label], path: str) -> None:
    for row, label in enumerate(labels, start=1):
        for name in ("image", "labels"):
            if getattr(label, name) is None:
                raise InputError.at(path, f"is missing in row {row} ({label.id!r})", field=name)


if __name__ == "__main__":
    run(main, "cprt pairs")
