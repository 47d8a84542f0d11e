"""``cprt labels``: label files -> ``labels.jsonl``, with level and score recomputed from the attributes.

``--source`` says what the file is: ``bench`` (CPRT-Bench JSON), ``csv`` (a hand-made table: id and one column a key) or
``annotations`` (the rows of ``cprt annotate``, of which the consensus is taken).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import write_bytes
from cprt.images import ImageIndex
from cprt.pages.card import card_picture, data_card
from cprt.pages.words import first_few
from cprt.provenance import run_path, sign, write_run
from cprt.records import Label, write_jsonl
from cprt.scoring import SCORE_TOLERANCE, severities
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.labels.files import Stated, read_aliases, read_annotations, read_bench, read_table

SOURCES = ("bench", "csv", "annotations")


@dataclass
class LabelsArguments:
    input: str = option("label file")
    images: str = option("folder that holds images/, or images/ itself")
    out: str = option("labels.jsonl to write")
    source: str = option("what the label file is", "bench", choices=list(SOURCES))
    aliases: str | None = option("YAML that maps other spellings of keys to ours", None)
    card: bool = option("also draw NAME.card.png: photos a level and attribute (paper Fig. 7)", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if self.aliases and self.source == "annotations":
            raise ValueError("aliases go with source bench or csv: annotations have the taxonomy's keys")


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(LabelsArguments, argv, prog="cprt labels", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    aliases = read_aliases(args.aliases, taxonomy) if args.aliases else {}
    without: list[str] = []
    if args.source == "bench":
        rows = read_bench(args.input, taxonomy, aliases)
    elif args.source == "csv":
        rows = read_table(args.input, taxonomy, aliases)
    else:
        rows, without = read_annotations(args.input, taxonomy)
    labels, report = make_labels(rows, f"{args.source}:{Path(args.input).name}", args.images, taxonomy, args.input)
    report["without_consensus"] = without
    sign("cprt labels", run_path(args.out))
    write_jsonl(args.out, labels)
    if args.card and labels:
        name = Path(args.out).stem
        picture = card_picture(data_card({name: labels}, taxonomy), taxonomy)
        write_bytes(Path(args.out).with_name(f"{name}.card.png"), picture)
    write_run("cprt labels", args.out, args, {"input": args.input}, taxonomy=taxonomy.digest, report=report)
    _print(report, args.out)


def make_labels(
    rows: Sequence[Stated], source: str, images: str | Path, taxonomy: Taxonomy, file: str | Path
) -> tuple[list[Label], dict[str, Any]]:
    """Labels of all rows whose image is there, and a report on the rest.

    The score and level that follow from the attributes win over the file's; each row that disagrees is listed.
    Raises InputError for a row that cannot be used, and when none of the images is there.
    """
    levels, scores = severities([list(row.labels.values()) for row in rows], taxonomy)
    index = ImageIndex(images)
    labels: list[Label] = []
    missing: list[str] = []
    disagreements: list[dict[str, Any]] = []
    seen: dict[str, str] = {}
    for row, level, score in zip(rows, levels.tolist(), scores.tolist(), strict=True):
        image = index.find(row.id, row.where, field="id")
        wrong_level = row.level is not None and row.level != level
        wrong_score = row.score is not None and abs(row.score - score) > SCORE_TOLERANCE
        if wrong_level or wrong_score:
            stated, recomputed = [row.level, row.score], [level, score]
            disagreements.append({"id": row.id, "row": row.where, "file": stated, "recomputed": recomputed})
        if image is None:
            missing.append(row.id)
            continue
        id = Path(image).stem
        if id in seen:
            raise InputError.at(row.where, f"{row.id!r} has the id {id!r}, as {seen[id]} has", field="id")
        seen[id] = row.where
        labels.append(Label(id, image, row.labels, level, score, source))
    if not labels:
        raise InputError.at(file, f"none of its {len(rows)} images is in {index.root} (first: {missing[0]!r})")
    report = {
        "rows": len(rows),
        "labels": len(labels),
        "levels": {str(level): count for level, count in sorted(Counter(label.level for label in labels).items())},
        "missing_images": missing,
        "disagreements": disagreements,
        "ambiguous_values": sum(value == 0.5 for row in rows for value in row.labels.values()),
        "without_attribute": sum(not label.present(taxonomy) for label in labels),
    }
    return labels, report


def _print(report: dict[str, Any], out: str) -> None:
    levels = ", ".join(f"level {level}: {report['levels'].get(str(level), 0)}" for level in LEVELS)
    print(f"{out}: {report['labels']} of {report['rows']} rows ({levels})")
    for name, rows in (
        ("rows without an image", report["missing_images"]),
        ("photos that some annotator did not answer", report["without_consensus"]),
        ("rows whose level or score disagrees with their attributes", report["disagreements"]),
    ):
        if rows:
            ids = [row if isinstance(row, str) else row["id"] for row in rows]
            print(f"  {len(rows)} {name}: {first_few(ids)} (see the run record)")


if __name__ == "__main__":
    run(main, "cprt labels")
