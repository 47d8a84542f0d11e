"""``cprt export``: labels of your own in CPRT-Bench's format, with a data card.

Writes ``OUT/NAME.json`` (a list of ``{id, binary_labels{level1..level4{key: 0 or 1}}, level, score}``, as the released
files have it: 0.5 becomes 0, paper 4.1) and ``OUT/README.md``, the card of a data set on the Hugging Face Hub. Photos
are named, never copied: their licence is their owner's. Nothing is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.config import option, parse, run
from cprt.files import write_text
from cprt.pages.card import data_card
from cprt.provenance import sign, write_run
from cprt.records import Label, read_labels, write_json
from cprt.taxonomy import LEVELS, Taxonomy
from cprt.values import FILE_NAME


@dataclass
class ExportArguments:
    labels: str = option("labels.jsonl, made by cprt labels")
    out: str = option("folder to write", writes=("*.json", "README.md"))
    name: str = option("name of the JSON file, without .json", "labels", matches=FILE_NAME)
    license: str = option("licence of the labels, as the Hub spells it", "mit", one_line=True)
    source: str = option("where the photos come from, and under which licence", "", one_line=True)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(ExportArguments, argv, prog="cprt export", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    labels = read_labels(args.labels, taxonomy, needed=("labels",))
    out = Path(args.out)
    sign("cprt export", out / "run.json")
    names = [one.id if one.image is None else Path(one.image).name for one in labels]
    facts = ((one.present(taxonomy), one.level, one.score, taxonomy) for one in labels)
    rows = [bench_row(name, *about) for name, about in zip(names, facts, strict=True)]
    write_json(out / f"{args.name}.json", rows)
    write_text(out / "README.md", card(labels, taxonomy, args))
    write_run("cprt export", out, args, {"labels": args.labels}, taxonomy=taxonomy.digest)
    print(f"{out / args.name}.json: {len(labels)} rows in CPRT-Bench's format; {out / 'README.md'}: its card")


def bench_row(id: str, present: Collection[str], level: int, score: float, taxonomy: Taxonomy) -> dict[str, Any]:
    """A photo's labels as the released files have them; ``id`` is its file name."""
    by_level = {
        f"level{number}": {a.key: int(a.key in present) for a in taxonomy.attributes if a.level == number}
        for number in LEVELS
    }
    return {"id": id, "binary_labels": by_level, "level": level, "score": score}


def card(labels: Sequence[Label], taxonomy: Taxonomy, args: ExportArguments) -> str:
    """The data card: what the rows are, how many photos show each level and attribute, and what it is not for."""
    from huggingface_hub import DatasetCard, DatasetCardData

    counts = data_card({"all": labels}, taxonomy)["all"]
    levels = "\n".join(
        f"| {level.level}, {level.name.lower()} | {counts['levels'][str(level.level)]} |" for level in taxonomy.levels
    )
    attributes = "\n".join(f"| {key} | {count} |" for key, count in counts["attributes"].items())
    sources = sorted({label.source for label in labels if label.source})
    data = DatasetCardData(
        license=args.license,
        task_categories=["image-classification"],
        tags=["privacy", "cprt"],
        configs=[{"config_name": "default", "data_files": f"{args.name}.json"}],
    )
    return str(
        DatasetCard(f"""---
{data.to_yaml()}
---

# Privacy labels in CPRT-Bench's format

{len(labels)} photos, each with {len(taxonomy.keys)} binary attributes in four levels, the level and the exact severity
score of the CPRT paper (arXiv:2603.21573). Taxonomy: {taxonomy.name}. Labels come from: {", ".join(sources) or "-"}.
Doubt (0.5) counts as absence.

Photos are not part of it. {args.source or "Where they come from is not stated."}

| level | photos |
|---|---|
{levels}

| attribute | photos |
|---|---|
{attributes}

{counts["without_attribute"]} photos show none of the attributes.

The score is a model of risk, not a legal finding. It is for measuring and training privacy judges, not for identifying,
profiling or excluding anybody.
""")
    )


if __name__ == "__main__":
    run(main, "cprt export")
