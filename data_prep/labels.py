"""``cprt labels``: label files -> ``labels.jsonl``, with level and score recomputed from the attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cprt.config import parse, run
from cprt.errors import InputError
from cprt.images import ImageIndex
from cprt.provenance import write_run
from cprt.records import Label, write_jsonl
from cprt.scoring import severities
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.bench import read_bench

SOURCES = ("bench",)
SCORE_TOLERANCE = 6e-4  # a file's score has three decimals, rounded or truncated


@dataclass
class LabelsArguments:
    input: str = field(metadata={"help": "label file: a CPRT-Bench JSON list"})
    images: str = field(metadata={"help": "folder that holds images/, or images/ itself"})
    out: str = field(metadata={"help": "labels.jsonl to write"})
    source: str = field(default="bench", metadata={"help": "what the label file is", "choices": list(SOURCES)})
    taxonomy: str | None = field(default=None, metadata={"help": "YAML that extends the published taxonomy"})


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt labels``."""
    (args,) = parse(LabelsArguments, argv, prog="cprt labels", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    labels, report = bench_labels(args.input, args.images, taxonomy)
    write_jsonl(args.out, labels)
    write_run(args.out, args, {"input": args.input}, taxonomy=taxonomy.digest, report=report)
    _print(report, args.out)


def bench_labels(path: str | Path, images: str | Path, taxonomy: Taxonomy) -> tuple[list[Label], dict[str, Any]]:
    """Labels of all rows whose image is there, and a report on the rest.

    The score and level that follow from the attributes win over the file's; each row that disagrees is listed.
    Raises InputError for a file that cannot be used, and when none of its images is there.
    """
    rows = read_bench(path, taxonomy)
    levels, scores = severities([list(row["labels"].values()) for row in rows], taxonomy)
    index = ImageIndex(images)
    labels: list[Label] = []
    missing: list[str] = []
    disagreements: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for row, level, score in zip(rows, levels.tolist(), scores.tolist(), strict=True):
        where = f"{path}: row {row['row']}"
        try:
            image = index.find(row["id"])
        except ValueError as error:
            raise InputError.at(where, str(error), field="id") from error
        wrong_level = row["level"] is not None and row["level"] != level
        wrong_score = row["score"] is not None and abs(row["score"] - score) > SCORE_TOLERANCE + 1e-9
        if wrong_level or wrong_score:
            disagreements.append({"id": row["id"], "row": row["row"], "file": [row["level"], row["score"]],
                                  "recomputed": [level, score]})  # fmt: skip
        if image is None:
            missing.append(row["id"])
            continue
        id = Path(image).stem
        if id in seen:
            raise InputError.at(where, f"{row['id']!r} names the same image as row {seen[id]}", field="id")
        seen[id] = row["row"]
        labels.append(Label(id, image, row["labels"], level, score, f"bench:{Path(path).name}"))
    if not labels:
        raise InputError.at(path, f"none of its {len(rows)} images is in {index.root} (first: {missing[0]!r})")
    report = {
        "rows": len(rows),
        "labels": len(labels),
        "levels": {str(level): count for level, count in sorted(Counter(label.level for label in labels).items())},
        "missing_images": missing,
        "disagreements": disagreements,
        "ambiguous_values": sum(value == 0.5 for row in rows for value in row["labels"].values()),
        "without_attribute": sum(not label.present(taxonomy) for label in labels),
    }
    return labels, report


def _print(report: dict[str, Any], out: str) -> None:
    levels = ", ".join(f"level {level}: {report['levels'].get(str(level), 0)}" for level in LEVELS)
    print(f"{out}: {report['labels']} of {report['rows']} rows ({levels})")
    for name, rows in (("without an image", report["missing_images"]),
                       ("whose level or score disagrees with their attributes", report["disagreements"])):  # fmt: skip
        if rows:
            ids = [row if isinstance(row, str) else row["id"] for row in rows]
            print(
                f"  {len(rows)} rows {name}: {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''} (see the run record)"
            )


if __name__ == "__main__":
    run(main, "cprt labels")
