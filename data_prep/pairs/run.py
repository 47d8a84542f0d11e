"""``cprt pairs``: labels -> instruction-response pairs for SFT: a hold-out in the collection's own proportions of
levels, and a level-balanced training set from the rest (``data_prep/pairs/split.py`` says why in this order).

With ``--target mixed`` some training pairs ask for the score alone and the others for attributes, each with the prompt
of its own target; the hold-out is asked for attributes. No photo is on two sides: a duplicate of an excluded photo is
left out, and so is one of a hold-out photo. Writes ``OUT/{train,holdout}.jsonl``, and as data card ``OUT/card.json``
and ``card.png`` (levels and attributes, as paper Fig. 7), with ``--models`` the lengths of pairs in a model's tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.answers import render
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import locked, write_bytes
from cprt.images import check_ratio, image_root, in_parallel, load_image, raise_first
from cprt.pages.card import card_picture, data_card
from cprt.prompts import PROMPTS, TARGETS, Prompt, build
from cprt.provenance import sign, write_run
from cprt.records import Label, Pair, read_labels, write_json, write_jsonl
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.id_lists import read_exclusions
from data_prep.pairs.duplicates import DEFAULT_THRESHOLD, PhotoHash, clusters, photo_hash
from data_prep.pairs.lengths import check_lengths
from data_prep.pairs.split import draw_balanced, draw_holdout, draw_part

MIXED = "mixed"


@dataclass
class PairsArguments:
    labels: str = option("labels.jsonl, made by cprt labels")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option(
        "folder for train.jsonl and holdout.jsonl",
        writes=("train.jsonl", "holdout.jsonl", "holdout_labels.jsonl", "card.json", "card.png"),
    )
    prompt: str = option(f"what the model is asked: {', '.join(PROMPTS)}, or a YAML file", "taxonomy")
    target: str = option(
        "what it is to answer; mixed: part of the pairs ask for the one, the others for the other",
        "score",
        choices=[*TARGETS, MIXED],
    )
    shares: list[float] = option(
        "with target mixed: the parts of the training pairs that ask for score and for attributes; none: half each",
        factory=list,
    )
    size: int = option("training pairs to draw, as equally from the levels as they allow", 2048, least=1)
    holdout: int | None = option(
        "hold-out pairs to draw first, in the collection's proportions; null: a fifth", None, least=0
    )
    seed: int = option("seed of the draw and of the order", 0, least=0)
    exclude: list[str] = option(
        "files whose photos must not be trained on: labels.jsonl, CPRT-Bench JSON, or an id a line", factory=list
    )
    duplicates: str = option("duplicates to keep off the other side", "near", choices=["near", "exact", "keep"])
    duplicate_bits: int = option(
        "near duplicates differ in at most so many of 64 hash bits", DEFAULT_THRESHOLD, least=0, most=16
    )
    models: list[str] = option("checkpoints, one a family, in whose tokens pairs are measured", factory=list)
    max_tokens: int = option("longest pair that --models may find, in tokens", 4096, least=1)
    max_pixels: int | None = option("the recipe's max_pixels, for --models", None, least=1)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if self.target != "score" and self.prompt != "taxonomy":
            raise ValueError(f"target {self.target} needs prompt taxonomy, which tells the model the keys")
        if self.shares and self.target != MIXED:
            raise ValueError("shares goes with target mixed")
        if self.shares and not (len(self.shares) == 2 and min(self.shares) > 0 and abs(sum(self.shares) - 1) < 1e-9):
            raise ValueError("shares must be two numbers above 0 that make 1: of score, and of attributes")
        if self.target == MIXED:
            self.shares = self.shares or [0.5, 0.5]


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(PairsArguments, argv, prog="cprt pairs", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    # Of mixed pairs, that of attributes: the hold-out is asked so, and the adapter where nobody says otherwise.
    prompt = build(args.prompt, "attributes" if args.target == MIXED else args.target, taxonomy)
    labels = read_labels(args.labels, taxonomy, needed=("image", "labels"))
    root = image_root(args.images)
    excluded = read_exclusions(args.exclude, root)
    for row, label in enumerate(labels, start=1):
        if label.image in excluded.images:
            raise InputError.at(args.labels, f"{label.id!r} is excluded by {excluded.images[label.image]}", row, "id")
    for line in excluded.notes:
        print(f"{line}; none of the {len(labels):,} labels is of one")

    hashes = photo_hashes(root, [str(label.image) for label in labels], list(excluded.images))
    names = [*(label.id for label in labels), *excluded.images]
    bits = args.duplicate_bits if args.duplicates == "near" else None
    groups = [] if args.duplicates == "keep" else clusters(hashes, bits)
    twins = {names[i]: {names[j] for j in group} for group in groups for i in group}
    candidates, dropped = leave_out(labels, list(excluded.images), twins)
    if not candidates:
        raise InputError.at(args.labels, "every photo is a duplicate of an excluded one")
    held_out = len(candidates) // 5 if args.holdout is None else args.holdout
    holdout, rest = draw_holdout(candidates, held_out, args.seed)
    rest, repeated = leave_out(rest, [label.id for label in holdout], twins)
    dropped += repeated
    train, unused = draw_balanced(rest, args.size, args.seed)
    if not train:
        raise InputError.at(args.labels, f"a hold-out of {len(holdout)} leaves no photo to train on", field="holdout")
    parts = {"train": train, "holdout": holdout}
    pairs = {name: [make_pair(label, prompt, taxonomy) for label in part] for name, part in parts.items()}
    facts: dict[str, Any] = {"seed": args.seed, "taxonomy": taxonomy.digest, "prompt": prompt.identity()}
    if args.target == MIXED:
        alone = build(args.prompt, "score", taxonomy)
        chosen = {label.id for label in draw_part(train, args.shares[0], args.seed)}
        if not 0 < len(chosen) < len(train):
            raise InputError(f"shares: of {len(train)} training pairs, {len(chosen)} would ask for the score")
        pairs["train"] = [make_pair(one, alone if one.id in chosen else prompt, taxonomy) for one in train]
        facts["prompt"]["also"] = alone.identity()
        print(f"{len(chosen)} training pairs ask for the score, {len(train) - len(chosen)} for attributes")
    lengths = [
        check_lengths(model, [*pairs["train"], *pairs["holdout"]], root, args.max_pixels, args.max_tokens)
        for model in args.models
    ]
    left_over = {"unused": len(unused), "left_out_duplicates": dropped, "token_lengths": lengths}
    card = data_card(parts, taxonomy) | left_over
    out = Path(args.out)
    inputs = {"labels": args.labels, **{f"exclude_{i}": file for i, file in enumerate(args.exclude)}}
    with locked(out, "--out"):  # the halves of two draws would share photos
        sign("cprt pairs", out / "run.json")
        for name, rows in pairs.items():
            write_jsonl(out / f"{name}.jsonl", rows)
        # By id, not by level as they were drawn: cprt eval --limit asks about the first ones.
        write_jsonl(out / "holdout_labels.jsonl", sorted(holdout, key=lambda label: label.id))
        write_json(out / "card.json", card)
        write_bytes(out / "card.png", card_picture(card, taxonomy))
        write_run("cprt pairs", out, args, inputs, **facts)
    _report(args, parts, card)


def make_pair(label: Label, prompt: Prompt, taxonomy: Taxonomy) -> Pair:
    """The pair of one image: the prompt as asked at evaluation, and the answer that follows from its labels."""
    assert label.image is not None
    answer = render(
        target=prompt.target,
        score=label.score,
        level=label.level,
        attributes=label.present(taxonomy),
        taxonomy=taxonomy,
        score_key=prompt.score_key,
    )
    completion = [{"role": "assistant", "content": [{"type": "text", "text": answer}]}]
    return Pair(label.id, [label.image], prompt.messages(), completion, label.level, label.score)


def photo_hashes(root: Path, paths: Sequence[str], excluded: Sequence[str]) -> list[PhotoHash]:
    """Decode every photo once, in full: one that cannot be used would otherwise stop a training run hours later.

    Raises InputError that names the first such photo and counts the others. Of what is excluded the shape is no matter.
    """

    def one(path: str) -> PhotoHash | InputError:
        try:
            image = load_image(root / path)
            if path not in unshaped:
                check_ratio(image.size, root / path)
            return photo_hash(image)
        except InputError as error:
            return error

    unshaped = set(excluded)
    found = list(in_parallel(one, [*paths, *excluded], "reading photos"))
    raise_first([error for error in found if isinstance(error, InputError)])
    return [one for one in found if isinstance(one, PhotoHash)]


def leave_out(
    labels: Sequence[Label], taken: Sequence[str], twins: Mapping[str, set[str]]
) -> tuple[list[Label], list[dict[str, str]]]:
    """Labels whose photo repeats none that is ``taken``, and those that do, with what they repeat.

    ``twins`` maps the id (or excluded path) of every duplicate to those of its group.
    """
    known = set(taken)
    kept: list[Label] = []
    dropped: list[dict[str, str]] = []
    for label in labels:
        same = (twins.get(label.id, set()) - {label.id}) & known
        if same:
            dropped.append({"id": label.id, "duplicate_of": min(same)})
        else:
            kept.append(label)
    return kept, dropped


def _report(args: PairsArguments, parts: dict[str, list[Label]], card: Mapping[str, Any]) -> None:
    dropped = card["left_out_duplicates"]
    for name, part in parts.items():
        counts = Counter(label.level for label in part)
        levels = ", ".join(f"level {level}: {counts[level]}" for level in LEVELS)
        print(f"{Path(args.out) / name}.jsonl: {len(part)} pairs ({levels})")
    train = Counter(label.level for label in parts["train"])
    if len(parts["train"]) < args.size:
        print(f"  --size {args.size} is more than there is: all the other {len(parts['train'])} photos train")
    elif max(train.values()) - min(train[level] for level in LEVELS) > 1:
        print("  a level had fewer rows than its share: it gave all it has, the others filled up")
    if card["unused"]:
        print(f"  {card['unused']} photos are in neither: a level-balanced draw leaves them over")
    if not parts["holdout"]:
        print("  no hold-out: nothing to calibrate on, to choose a threshold or a checkpoint by")
    if dropped:
        examples = ", ".join(f"{row['id']} = {row['duplicate_of']}" for row in dropped[:3])
        print(f"  {len(dropped)} duplicates left out: {examples}{', ...' if len(dropped) > 3 else ''} (see card.json)")
    for row in card["token_lengths"]:
        print(f"  {row['model']}: pairs of {row['shortest']} to {row['longest']} tokens")


if __name__ == "__main__":
    run(main, "cprt pairs")
