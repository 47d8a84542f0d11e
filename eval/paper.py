"""``cprt paper``: the paper's tables from your own results, each beside what the paper has and the difference.

Every table for which there is an input is written to ``OUT`` as CSV, LaTeX (booktabs) and Markdown:

* ``table1`` from ``--labels``: photos a level. ``table5`` and ``table4``, the questions and the laws, need no input.
* ``table2`` from ``--agreement``, the file of ``cprt agreement``: rows overall, and people a level (4.1).
* ``table3`` and ``table6`` from ``--runs``: folders of ``cprt eval`` as ``configs/eval/table6.yaml`` names them; where
  yours have other names, ``--rows`` is a YAML of row -> run.

docs/paper.md says which command makes what each of these reads, and the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt import paper
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_yaml, write_text
from cprt.guidance.regulations import Regulations
from cprt.metrics.results import Metrics
from cprt.provenance import sign, write_run
from cprt.records import read_labels, read_object
from cprt.tables import write_csv
from cprt.taxonomy import LEVELS, Taxonomy
from eval.metrics import HEADS
from eval.tables import Cell, Table, latex, markdown

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


@dataclass
class PaperArguments:
    out: str = option("folder to write", writes=("table*.csv", "table*.tex", "table*.md"))
    labels: str | None = option("labels.jsonl of the test photos, for Table 1", None)
    agreement: str | None = option("agreement.json, for Table 2", None)
    runs: str | None = option("folder with a folder for each run of cprt eval, for Tables 3 and 6", None)
    rows: str | None = option("YAML of `PROMPTING / MODEL: RUN` where runs have other names than ours", None)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt paper``."""
    (args,) = parse(PaperArguments, argv, prog="cprt paper", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    tables, inputs = [table4(), table5(taxonomy)], {}
    if args.labels is not None:
        inputs["labels"] = args.labels
        tables.append(table1([label.level for label in read_labels(args.labels, taxonomy)]))
    if args.agreement is not None:
        inputs["agreement"] = args.agreement
        tables.append(table2(read_object(args.agreement), args.agreement))
    if args.runs is not None:
        found = read_metrics(Path(args.runs), {} if args.rows is None else read_rows(args.rows))
        inputs |= {f"metrics_{number}": path for number, (path, _) in enumerate(found.values())}
        metrics = {row: content for row, (_, content) in found.items()}
        for name, rows in (("table3", paper.table3()), ("table6", paper.table6())):
            tables.append(severity_table(name, rows, metrics))
        if not found:
            print(f"note: {args.runs} holds no run that is a row of Table 6; docs/paper.md says how they are named")
    out = Path(args.out)
    sign("cprt paper", out / "run.json")
    for table in sorted(tables, key=lambda table: table.name):
        write_csv(out / f"{table.name}.csv", table.columns, table.rows)
        write_text(out / f"{table.name}.tex", latex(table))
        write_text(out / f"{table.name}.md", markdown(table))
        print(f"{out / table.name}.csv, .tex, .md: {table.caption}")
    write_run("cprt paper", out, args, inputs, taxonomy=taxonomy.digest)


# --- Tables ------------------------------------------------------------------------------------------------------


def table1(levels: Sequence[int]) -> Table:
    """Photos a level, from the levels of labels."""
    published, total = paper.table1(), len(levels)
    rows: list[list[Cell]] = []
    for level in LEVELS:
        ours, share = levels.count(level), 100 * published[level] / sum(published.values())
        percent = 100 * ours / total if total else None
        rows.append(
            [f"Level {level}", ours, _rounded(percent, 1), published[level], round(share, 1), ours - published[level]]
        )
    everything = sum(published.values())
    rows.append(["Total", total, 100.0 if total else None, everything, 100.0, total - everything])
    columns = ["privacy level", "photos", "%", "paper", "paper %", "difference"]
    return Table("table1", "photos by severity level, beside the paper's Table 1", columns, rows)


def table2(agreement: Mapping[str, Any], file: str) -> Table:
    """Agreement and kappa by comparison, then agreement of people a level."""
    rows: list[list[Cell]] = []
    try:
        for row in agreement["table2"]:
            published = row["paper"] or {}
            ours = None if row["agreement"] is None else 100 * row["agreement"]
            rows.append([row["comparison"], *_beside(ours, published.get("agreement_percent"), 1)])
            rows[-1] += _beside(row["kappa"], published.get("kappa"), 3)
        published_levels = paper.human_agreement_by_level()
        for level in LEVELS:
            part = agreement["human_human"]["levels"][str(level)]
            ours = None if part["agreement"] is None else 100 * part["agreement"]
            rows.append([f"Human-Human, level {level}", *_beside(ours, published_levels.get(level), 1)])
            rows[-1] += _beside(part["kappa"], None, 3)
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


def severity_table(name: str, rows: Sequence[Mapping[str, Any]], metrics: Mapping[tuple[str, str], Metrics]) -> Table:
    """Tables 3 and 6: for each figure ours with its interval, the paper's, and the difference.

    Of the figures over pairs no difference is given: the paper's pairs are curated, ours are all.
    """
    figures = [figure for figure in HEADS if figure != "coverage"]
    columns = ["prompting", "model", "coverage"]
    for figure in figures:
        head = HEADS[figure]
        columns += [head, f"{head} low", f"{head} high", f"{head} paper"]
        columns += [] if figure in _OTHER_PROTOCOL else [f"{head} difference"]
    found: list[list[Cell]] = []
    for row in rows:
        ours = metrics.get((row["prompting"], row["model"]))
        cells: list[Cell] = [row["prompting"], row["model"], _rounded(ours.coverage if ours else None, 3)]
        for figure in figures:
            low, high = (ours.ci.get(figure) if ours else None) or (None, None)
            value, published, difference = _beside(ours.figure(figure) if ours else None, row[figure], 3)
            cells += [value, _rounded(low, 3), _rounded(high, 3), published]
            cells += [] if figure in _OTHER_PROTOCOL else [difference]
        found.append(cells)
    number = name.removeprefix("table")
    return Table(name, f"compositional privacy risk, beside the paper's Table {number}", columns, found)


# --- Reading -----------------------------------------------------------------------------------------------------


def read_metrics(folder: Path, names: Mapping[str, str]) -> dict[tuple[str, str], tuple[Path, Metrics]]:
    """(prompting, model) of Table 6 -> metrics.json and its metrics, of the runs in ``folder`` that are its rows."""
    if not folder.is_dir():
        raise InputError.at(folder, "is not a folder")
    found = {}
    for row in paper.table6():
        prompting, model = row["prompting"], row["model"]
        ours = names.get(f"{prompting} / {model}", f"{_MODELS[model]}-{_PROMPTINGS[prompting]}")
        file = folder / ours / "metrics.json"
        if file.is_file():
            found[prompting, model] = file, Metrics.read(file)
    return found


def read_rows(path: str) -> dict[str, str]:
    content = read_yaml(path)
    known = [f"{row['prompting']} / {row['model']}" for row in paper.table6()]
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InputError.at(path, "must be a mapping of `PROMPTING / MODEL: RUN`")
    for key in content:
        if key not in known:
            raise InputError.at(path, f"is no row of Table 6 (such as {known[0]!r})", field=str(key))
    return content


def _beside(ours: float | None, published: float | None, digits: int) -> list[Cell]:
    difference = None if ours is None or published is None else ours - published
    return [_rounded(ours, digits), published, _rounded(difference, digits)]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


if __name__ == "__main__":
    run(main, "cprt paper")
