"""``cprt paper``: the paper's tables and figures from your own results, each beside what the paper has.

Written to ``OUT`` is every one for which there is an input: tables, and the numbers behind figures, as CSV, LaTeX
(booktabs) and Markdown, ours beside the paper's with the difference in a column of its own; pictures as PNG; prompts as
text. What is missing is printed with the option that it needs. docs/paper.md is the index, and says which command makes
each input. The paper prints no numbers for most of its figures: then ours stand alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt import paper
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_yaml, write_bytes, write_text
from cprt.guidance.regulations import Regulations
from cprt.provenance import clear, sign, write_run
from cprt.records import Label, read_labels, read_object
from cprt.taxonomy import LEVELS, Taxonomy
from eval import figures
from eval.compare.differences import FIGURES
from eval.figures import Judges, Made
from eval.measures import HEADS
from eval.runs import EvaluatedRun, find_runs, read_run, read_runs
from eval.tables import Cell, Table, beside, rounded, write_table

_OTHER_PROTOCOL = ("inter_level_accuracy", "intra_level_accuracy")  # the paper's pairs are curated


# Option -> what is made of it; the rest needs none.
_MADE_OF = {
    "labels": ("table1",),
    "sft_labels": ("figure7",),
    "agreement": ("table2",),
    "runs": ("table3", "table6", "section5.3", "figure3", "figure8", "figure9", "figure10", "figure11"),
    "counterfactual": ("figure4",),
    "boundaries": ("figure5",),
}


@dataclass
class PaperArguments:
    out: str = option("folder to write", writes=("table*.*", "figure*.*", "section*.*"))
    labels: str | None = option("labels.jsonl of the test photos, for Table 1 and Figures 3 and 7 to 11", None)
    sft_labels: str | None = option("labels.jsonl of the photos that training draws from, for Figure 7", None)
    agreement: str | None = option("agreement.json, for Table 2", None)
    runs: list[str] = option(
        "runs of cprt eval, or folders that hold them, for Tables 3 and 6 and Figures 3 and 8 to 11", factory=list
    )
    rows: str | None = option("YAML of `PROMPTING / MODEL: RUN` where runs have other names than ours", None)
    counterfactual: str | None = option("folder of cprt counterfactual, for Figure 4", None)
    boundaries: str | None = option("folder of cprt boundaries, for Figures 5 and 6", None)
    skip_missing: bool = option("leave out and name the inputs that are not there yet", False)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def missing(self) -> list[str]:
        """The inputs given that are not there, which ``skip_missing`` then leaves out."""
        gone = []
        for name in _MADE_OF:
            value = getattr(self, name)
            paths = value if isinstance(value, list) else [value] if value else []
            there = [path for path in paths if Path(path).exists()]
            gone += [path for path in paths if path not in there]
            setattr(self, name, there if isinstance(value, list) else value if there else None)
        return gone


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt paper``."""
    (args,) = parse(PaperArguments, argv, prog="cprt paper", description=(__doc__ or "").partition("\n")[0])
    taxonomy, out = Taxonomy.load(args.taxonomy), Path(args.out)
    missing = args.missing() if args.skip_missing else []
    made: list[Made] = [([table4(), table5(taxonomy), figures.scoring(taxonomy)], {})]
    inputs = {"labels": args.labels, "sft_labels": args.sft_labels, "agreement": args.agreement}
    labels = [] if args.labels is None else read_labels(args.labels, taxonomy)
    if args.labels is not None:
        made.append(([table1([label.level for label in labels])], {}))
    if args.sft_labels is not None:
        parts = {"evaluation": labels} if labels else {}
        made.append(figures.splits(parts | {"SFT": read_labels(args.sft_labels, taxonomy)}, taxonomy))
    if args.agreement is not None:
        made.append(([table2(read_object(args.agreement), args.agreement)], {}))
    if args.runs:
        paths = find_runs(args.runs)
        rows, others = read_judged(paths, args, labels, taxonomy)
        own = {(f"own: {other.asked[0]}", other.name): other for other in others}
        files = [paths[one.name] / "metrics.json" for one in (*rows.values(), *others)]
        inputs |= {f"metrics_{number}": str(file) for number, file in enumerate(files) if file.is_file()}
        shown = [severity_table("table3", paper.table3(), rows), severity_table("table6", paper.table6(), rows, own)]
        made += [([*shown, figures.errors({**rows, **own})], {}), figures.judges(rows, labels, taxonomy)]
        if not rows:
            print("note: runs: none is a row of Table 6; docs/paper.md says how they are named")
    for name, make in (("counterfactual", figures.counterfactual), ("boundaries", figures.boundaries)):
        if getattr(args, name) is not None:
            made.append(make(Path(getattr(args, name)), taxonomy))
    tables = [table for part, _ in made for table in part]
    pictures = {name: picture for _, part in made for name, picture in part.items()}
    texts = figures.prompt_texts(taxonomy)

    sign("cprt paper", out / "run.json")
    names = [*itertools.chain(*_MADE_OF.values()), "figure6"]  # not all of them are made each time
    clear(out, [f"{name}.{ending}" for name in names for ending in ("csv", "tex", "md", "png")])
    for table in tables:
        write_table(out / table.name, table)
    for name, picture in pictures.items():
        write_bytes(out / f"{name}.png", picture)
    for name, text in texts.items():
        write_text(out / f"{name}.txt", text)
    write_run("cprt paper", out, args, inputs, taxonomy=taxonomy.digest)
    _say(out, tables, pictures, texts, [name for name in _MADE_OF if getattr(args, name)])
    for path in missing:
        print(f"{path}: is not there yet; docs/paper.md says which command makes it")


def _say(
    out: Path, tables: Sequence[Table], pictures: Mapping[str, Any], texts: Mapping[str, str], given: Collection[str]
) -> None:
    """What was made, in the paper's order, and what each of the others needs of the options, some ``given``."""
    captions = {table.name: table.caption for table in tables}
    made = {*captions, *pictures, *texts}
    for name in sorted(made, key=lambda name: (name[0] != "t", int("".join(filter(str.isdigit, name))))):
        endings = ["csv", "tex", "md"] if name in captions else []
        endings += (["png"] if name in pictures else []) + (["txt"] if name in texts else [])
        print(f"{out / name}.{', .'.join(endings)}: {captions.get(name, 'as sent')}")
    for needed, names in _MADE_OF.items():
        missing = [re.sub(r"([a-z])(\d)", r"\1 \2", name).capitalize() for name in names if name not in made]
        if missing:
            why = "of what is given as" if needed in given else "without"
            print(f"not made {why} --{needed}: {', '.join(missing)}")


# --- Tables ------------------------------------------------------------------------------------------------------


def table1(levels: Sequence[int]) -> Table:
    """Photos a level, from the levels of labels."""
    published = paper.table1()
    everything = sum(published.values())

    def row(head: str, ours: int, theirs: int) -> list[Cell]:
        percent = 100 * ours / len(levels) if levels else None
        return [head, ours, rounded(percent, 1), theirs, round(100 * theirs / everything, 1), ours - theirs]

    rows = [row(f"Level {level}", levels.count(level), published[level]) for level in LEVELS]
    columns = ["privacy level", "photos", "%", "paper", "paper %", "difference"]
    caption = "photos by severity level, beside the paper's Table 1"
    return Table("table1", caption, columns, [*rows, row("Total", len(levels), everything)])


def table2(agreement: Mapping[str, Any], file: str) -> Table:
    """Agreement and kappa by comparison, then of people and of models a level (4.1)."""
    rows: list[list[Cell]] = []

    def add(head: str, part: Mapping[str, Any], percent: float | str | None, kappa: float | None) -> None:
        ours = None if part["agreement"] is None else 100 * part["agreement"]
        cells = [rounded(ours, 1), percent, None] if isinstance(percent, str) else beside(ours, percent, 1)
        rows.append([head, *cells, *beside(part["kappa"], kappa, 3)])

    with figures.as_written_by("cprt agreement", file):
        for row in agreement["table2"]:
            published = row["paper"] or {}
            add(row["comparison"], row, published.get("agreement_percent"), published.get("kappa"))
        people, models = paper.human_agreement_by_level(), paper.model_agreement_by_level()
        for head, parts, by_level in (
            ("Human-Human", agreement["human_human"], people),
            ("Models-Human", agreement["model_human"]["pooled"], models["model_human"]),
            ("Models", agreement["model_model"]["pooled"], models["model_model"]),
        ):
            for level in LEVELS:
                add(f"{head}, level {level}", parts["levels"][str(level)], by_level.get(level), None)
    columns = ["comparison", "agreement %", "paper", "difference", "kappa", "paper", "difference"]
    return Table("table2", "agreement of annotators, beside the paper's Table 2", columns, rows)


def table4() -> Table:
    """The laws, as the paper has them."""
    published = Regulations.published()
    laws = published.frameworks
    rows: list[list[Cell]] = [[row.element, *(row.texts[law] for law in laws)] for row in published.rows]
    return Table("table4", "what four privacy laws say, the paper's Table 4", ["element", *laws], rows)


def table5(taxonomy: Taxonomy) -> Table:
    """The questions that annotators answer."""
    rows: list[list[Cell]] = [
        [number, attribute.level, attribute.key, attribute.question]
        for number, attribute in enumerate(taxonomy.attributes, start=1)
    ]
    return Table("table5", "the annotation questions, the paper's Table 5", ["", "level", "key", "question"], rows)


def severity_table(name: str, rows: Sequence[Mapping[str, Any]], judged: Judges, own: Judges | None = None) -> Table:
    """Tables 3 and 6: for each figure ours with its interval, the paper's, and the difference.

    Of the figures over pairs no difference is given: the paper's pairs are curated, ours are all. Runs of your ``own``
    that are no row of the paper's stand below.
    """
    columns = ["prompting", "model", "photos", "coverage"]
    for figure in FIGURES:
        columns += [f"{HEADS[figure]}{what}" for what in ("", " low", " high", " paper")]
        columns += [] if figure in _OTHER_PROTOCOL else [f"{HEADS[figure]} difference"]
    published = {(row["prompting"], row["model"]): row for row in rows}
    runs = {**judged, **(own or {})}
    found: list[list[Cell]] = []
    for place in [*published, *(own or {})]:
        ours = runs[place].metrics if place in runs else None
        cells: list[Cell] = [*place, ours.n if ours else None, rounded(ours.coverage if ours else None, 3)]
        for figure in FIGURES:
            low, high = (ours.ci.get(figure) if ours else None) or (None, None)
            theirs = published.get(place, {}).get(figure)
            value, _, difference = beside(ours.figure(figure) if ours else None, theirs, 3)
            cells += [value, rounded(low, 3), rounded(high, 3), theirs]
            cells += [] if figure in _OTHER_PROTOCOL else [difference]
        found.append(cells)
    number = name.removeprefix("table")
    return Table(name, f"compositional privacy risk, beside the paper's Table {number}", columns, found)


# --- Reading -----------------------------------------------------------------------------------------------------


def read_judged(
    paths: Mapping[str, Path], args: PaperArguments, labels: Sequence[Label], taxonomy: Taxonomy
) -> tuple[Judges, list[EvaluatedRun]]:
    """(prompting, model) of Table 6 -> its run, and those of ``paths`` that are no row of it.

    Raises InputError, with labels also where a run is not over these.
    """
    called: dict[str, Path] = {}
    for path in paths.values():
        if (same := called.setdefault(path.resolve().name, path)) != path:
            raise InputError.at(path, f"{same} has the same name")
    if args.labels is None:
        read = [read_run(name, path) for name, path in paths.items()]
    else:
        read = read_runs(paths, args.labels, labels, taxonomy)
    found, rows = {one.name: one for one in read}, {}
    names = {} if args.rows is None else read_rows(args.rows)
    models = paper.families()[0] | paper.families()[1]
    for prompting, model in ((row["prompting"], row["model"]) for row in paper.table6()):
        row = f"{prompting} / {model}"
        ours = names.get(row, f"{models[model]}-{paper.PROMPTINGS[prompting]}")
        if ours in found:
            rows[prompting, model] = found.pop(ours)
        elif args.rows is not None and row in names and not args.skip_missing:
            raise InputError.at(args.rows, f"{ours!r} is no run, or that of a row above", field=row)
    return rows, list(found.values())


def read_rows(path: str) -> dict[str, str]:
    content = read_yaml(path)
    known = [f"{row['prompting']} / {row['model']}" for row in paper.table6()]
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InputError.at(path, "must be a mapping of `PROMPTING / MODEL: RUN`")
    for key in content:
        if key not in known:
            raise InputError.at(path, f"is no row of Table 6 (such as {known[0]!r})", field=str(key))
    return content


if __name__ == "__main__":
    run(main, "cprt paper")
