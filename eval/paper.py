"""``cprt paper``: the paper's tables and figures from your own results, each beside what the paper has.

Written to ``OUT`` is every one for which there is an input: tables, and the numbers behind figures, as CSV, LaTeX
(booktabs) and Markdown, ours beside the paper's with the difference in a column of its own; pictures as PNG; prompts as
text. What is missing is printed with the option that it needs. docs/paper.md is the index, and says which command makes
each input. The paper prints no numbers for most of its figures: then ours stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt import paper
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_yaml, write_bytes, write_text
from cprt.guidance.regulations import Regulations
from cprt.metrics.results import Metrics
from cprt.provenance import sign, write_run
from cprt.records import inside, read_labels, read_object
from cprt.taxonomy import LEVELS, Taxonomy
from eval.figures import (
    Judged,
    boundaries,
    counterfactual,
    errors,
    judges,
    prompt_texts,
    scoring,
    splits,
)
from eval.measures import HEADS
from eval.tables import Cell, Table, beside, rounded, write_table

_PROMPTINGS = {"Zero-Shot": "zero_shot", "Intuition": "intuition", "Taxonomy": "taxonomy", paper.TUNED: "taxonomy"}
# Row of Table 6 -> what configs/eval/table6.yaml calls the model.
_MODELS = {
    "Gemini 3 Flash": "gemini-3-flash",
    "GPT-5.2": "gpt-5.2",
    "Llama 4 Maverick": "llama-4-maverick",
    "Llama 3.2-VL (11B)": "llama-3.2-vl-11b",
    "Qwen3-VL (32B)": "qwen3-vl-32b",
    "Qwen3-VL (8B)": "qwen3-vl-8b",
    "MiniCPM-V (8B)": "minicpm-v-8b",
    "Pixtral (12B)": "pixtral-12b",
    "Qwen3-VL (8B) (80 steps)": "sft-qwen3-vl-8b-80-steps",
    "Qwen3-VL (4B) (80 steps)": "sft-qwen3-vl-4b-80-steps",
    "Qwen3-VL (2B) (80 steps)": "sft-qwen3-vl-2b-80-steps",
    "Llama 3.2 (160 steps)": "sft-llama-3.2-160-steps",
    "Llama 3.2 (80 steps)": "sft-llama-3.2-80-steps",
}
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
        "folders with a folder for each run of cprt eval, for Tables 3 and 6 and Figures 3 and 8 to 11", factory=list
    )
    rows: str | None = option("YAML of `PROMPTING / MODEL: RUN` where runs have other names than ours", None)
    counterfactual: str | None = option("folder of cprt counterfactual, for Figure 4", None)
    boundaries: str | None = option("folder of cprt boundaries, for Figures 5 and 6", None)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt paper``."""
    (args,) = parse(PaperArguments, argv, prog="cprt paper", description=(__doc__ or "").partition("\n")[0])
    taxonomy, out = Taxonomy.load(args.taxonomy), Path(args.out)
    tables: list[Table] = [table4(), table5(taxonomy), scoring(taxonomy)]
    pictures: dict[str, bytes] = {}
    inputs = {name: str(getattr(args, name)) for name in ("labels", "sft_labels", "agreement") if getattr(args, name)}
    labels = [] if args.labels is None else read_labels(args.labels, taxonomy)
    if args.labels is not None:
        tables.append(table1([label.level for label in labels]))
    if args.sft_labels is not None:
        parts = {"evaluation": labels, "SFT": read_labels(args.sft_labels, taxonomy)}
        table, pictures["figure7"] = splits(parts, taxonomy)
        tables.append(table)
    if args.agreement is not None:
        tables.append(table2(read_object(args.agreement), args.agreement))
    if args.runs:
        rows, others = read_judged(list(map(Path, args.runs)), {} if args.rows is None else read_rows(args.rows))
        inputs |= {f"metrics_{number}": str(one.file) for number, one in enumerate([*rows.values(), *others])}
        tables.append(severity_table("table3", paper.table3(), rows, []))
        tables.append(severity_table("table6", paper.table6(), rows, others))
        tables.append(errors(rows | {(f"own: {other.prompt}", other.name): other for other in others}))
        drawn_tables, drawn = judges(rows, labels, taxonomy)
        tables, pictures = tables + drawn_tables, pictures | drawn
        if not rows:
            print("note: runs: none is a row of Table 6; docs/paper.md says how they are named")
    for name, make in (("counterfactual", counterfactual), ("boundaries", boundaries)):
        if getattr(args, name) is not None:
            made_tables, drawn = make(Path(getattr(args, name)), taxonomy)
            tables, pictures = tables + made_tables, pictures | drawn
    texts = prompt_texts(taxonomy)

    sign("cprt paper", out / "run.json")
    for table in tables:
        write_table(out / table.name, table)
    for name, picture in pictures.items():
        write_bytes(out / f"{name}.png", picture)
    for name, text in texts.items():
        write_text(out / f"{name}.txt", text)
    write_run("cprt paper", out, args, inputs, taxonomy=taxonomy.digest)
    _say(out, tables, pictures, texts)


def _say(out: Path, tables: Sequence[Table], pictures: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    """What was made, in the paper's order, and what each of the others needs."""
    captions = {table.name: table.caption for table in tables}
    made = {*captions, *pictures, *texts}
    for name in sorted(made, key=lambda name: (name[0] != "t", int("".join(filter(str.isdigit, name))))):
        endings = ["csv", "tex", "md"] if name in captions else []
        endings += (["png"] if name in pictures else []) + (["txt"] if name in texts else [])
        print(f"{out / name}.{', .'.join(endings)}: {captions.get(name, 'as sent')}")
    for needed, names in _MADE_OF.items():
        missing = [re.sub(r"([a-z])(\d)", r"\1 \2", name).capitalize() for name in names if name not in made]
        if missing:
            print(f"not made without --{needed}: {', '.join(missing)}")


# --- Tables ------------------------------------------------------------------------------------------------------


def table1(levels: Sequence[int]) -> Table:
    """Photos a level, from the levels of labels."""
    published, total = paper.table1(), len(levels)
    rows: list[list[Cell]] = []
    for level in LEVELS:
        ours, share = levels.count(level), 100 * published[level] / sum(published.values())
        percent = 100 * ours / total if total else None
        rows.append(
            [f"Level {level}", ours, rounded(percent, 1), published[level], round(share, 1), ours - published[level]]
        )
    everything = sum(published.values())
    rows.append(["Total", total, 100.0 if total else None, everything, 100.0, total - everything])
    columns = ["privacy level", "photos", "%", "paper", "paper %", "difference"]
    return Table("table1", "photos by severity level, beside the paper's Table 1", columns, rows)


def table2(agreement: Mapping[str, Any], file: str) -> Table:
    """Agreement and kappa by comparison, then of people and of models a level (4.1)."""
    rows: list[list[Cell]] = []
    try:
        for row in agreement["table2"]:
            published = row["paper"] or {}
            ours = None if row["agreement"] is None else 100 * row["agreement"]
            rows.append([row["comparison"], *beside(ours, published.get("agreement_percent"), 1)])
            rows[-1] += beside(row["kappa"], published.get("kappa"), 3)
        groups: dict[str, tuple[Mapping[str, Any], Mapping[int, float | str]]] = {
            "Human-Human": (agreement["human_human"], paper.human_agreement_by_level())
        }
        for name, head in (("model_human", "Models-Human"), ("model_model", "Models")):
            groups[head] = agreement[name]["pooled"], paper.model_agreement_by_level()[name]
        for head, (parts, published_levels) in groups.items():
            for level in LEVELS:
                part, percent = parts["levels"][str(level)], published_levels.get(level)
                ours = None if part["agreement"] is None else 100 * part["agreement"]
                cells = [rounded(ours, 1), percent, None] if isinstance(percent, str) else beside(ours, percent, 1)
                rows.append([f"{head}, level {level}", *cells, *beside(part["kappa"], None, 3)])
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError.at(file, f"is not what cprt agreement writes ({error})") from error
    columns = ["comparison", "agreement %", "paper", "difference", "kappa", "paper", "difference"]
    return Table("table2", "agreement of annotators, beside the paper's Table 2", columns, rows)


def table4() -> Table:
    """The laws, as the paper has them."""
    published = Regulations.published()
    rows: list[list[Cell]] = [
        [row.element, *(row.texts[law] for law in published.frameworks)] for row in published.rows
    ]
    return Table("table4", "what four privacy laws say, the paper's Table 4", ["element", *published.frameworks], rows)


def table5(taxonomy: Taxonomy) -> Table:
    """The questions that annotators answer."""
    rows: list[list[Cell]] = [
        [number, attribute.level, attribute.key, attribute.question]
        for number, attribute in enumerate(taxonomy.attributes, start=1)
    ]
    return Table("table5", "the annotation questions, the paper's Table 5", ["", "level", "key", "question"], rows)


def severity_table(
    name: str, rows: Sequence[Mapping[str, Any]], judged: Mapping[tuple[str, str], Judged], others: Sequence[Judged]
) -> Table:
    """Tables 3 and 6: for each figure ours with its interval, the paper's, and the difference.

    Of the figures over pairs no difference is given: the paper's pairs are curated, ours are all. Runs that are no row
    of the paper's stand below, by their prompt and name.
    """
    figures = [figure for figure in HEADS if figure != "coverage"]
    columns = ["prompting", "model", "coverage"]
    for figure in figures:
        head = HEADS[figure]
        columns += [head, f"{head} low", f"{head} high", f"{head} paper"]
        columns += [] if figure in _OTHER_PROTOCOL else [f"{head} difference"]
    entries = [(row["prompting"], row["model"], row, judged.get((row["prompting"], row["model"]))) for row in rows]
    entries += [(f"own: {other.prompt}", other.name, {}, other) for other in others]
    found: list[list[Cell]] = []
    for prompting, model, published, one in entries:
        ours = None if one is None else one.metrics
        cells: list[Cell] = [prompting, model, rounded(ours.coverage if ours else None, 3)]
        for figure in figures:
            low, high = (ours.ci.get(figure) if ours else None) or (None, None)
            value, of_paper, difference = beside(ours.figure(figure) if ours else None, published.get(figure), 3)
            cells += [value, rounded(low, 3), rounded(high, 3), of_paper]
            cells += [] if figure in _OTHER_PROTOCOL else [difference]
        found.append(cells)
    number = name.removeprefix("table")
    return Table(name, f"compositional privacy risk, beside the paper's Table {number}", columns, found)


# --- Reading -----------------------------------------------------------------------------------------------------


def read_judged(
    folders: Sequence[Path], names: Mapping[str, str]
) -> tuple[dict[tuple[str, str], Judged], list[Judged]]:
    """(prompting, model) of Table 6 -> its run, and those in ``folders`` that are no row of it. Raises InputError."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError.at(folder, "is not a folder")
        for file in sorted(folder.glob("*/metrics.json")):
            if file.parent.name in found:
                raise InputError.at(file.parent, f"{found[file.parent.name]} has the same name")
            found[file.parent.name] = file
    rows = {}
    for row in paper.table6():
        prompting, model = row["prompting"], row["model"]
        ours = names.get(f"{prompting} / {model}", f"{_MODELS[model]}-{_PROMPTINGS[prompting]}")
        if ours in found:
            rows[prompting, model] = _judged(found.pop(ours))
    return rows, [_judged(file) for file in found.values()]


def _judged(file: Path) -> Judged:
    record = read_object(file.with_name("run.json")) if file.with_name("run.json").is_file() else {}
    return Judged(file.parent.name, str(inside(record, "prompt").get("name", "")), file, Metrics.read(file))


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
