"""``cprt mi-study``: people judge what judges judged: a draw of queries, rating sheets, and what came of them.

First ``--runs OUT``, the folder that ``cprt mi`` wrote, makes the study: a sheet for each rater with an empty answer
(yes, no or unsure) a picture, and ``key.csv``, which raters do not get. Sheets name the panels in OUT/panels; none is
copied. Then the same command with ``--answers STUDY/sheets/*.csv`` reads the filled sheets and writes ``raters/``,
which ``cprt mi-compare --runs OUT STUDY/raters`` takes as judges like any other, and ``study.json``: agreement of
raters, what they say of controls, and the agreement of each of them, and of the majority, with each judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cprt.answers.sheets import assign, check_unfilled
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import write_text
from cprt.pages.words import counted, show
from cprt.provenance import sign, write_run
from cprt.records import read_json, write_json
from cprt.tables import write_csv
from eval.model_inversion.compare.inputs import read_manifest
from eval.model_inversion.compare.table import agreement_line
from eval.model_inversion.metrics.rates import Counting
from eval.model_inversion.metrics.show import percent
from eval.model_inversion.study import answers
from eval.model_inversion.study.sheets import KEY, SHEET, draw, read_key

_INSTRUCTION = """\
Each picture of your sheet shows Image A beside the Set of Images B and a question under them. Open the pictures in the
order of the sheet and write yes, no or unsure into the column answer. Do not look anything up, and do not compare your
answers with anybody's.
"""


@dataclass
class StudyArguments:
    runs: str = option("folder that cprt mi wrote, with its panels", made_by="cprt mi")
    out: str = option("folder of the study", writes=("sheets", "key.csv", "instruction.txt", "raters", "study.json"))
    answers: list[str] = option("filled sheets; without them the study is drawn", factory=list)
    reconstructions: int = option("reconstructions to draw, evenly over set-ups", 200, least=1)
    controls: int = option("control pairs to draw, half of each kind", 40, least=0)
    people: int = option("people who rate", 3, least=1, most=1000)
    each: int | None = option("pictures for each of them; null: all", None, least=1)
    resamples: int = option("bootstrap resamples of the classes", 2000, least=0, most=100_000)
    seed: int = option("seed of the draw, of the order and of the resamples", 0, least=0)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-study``."""
    (args,) = parse(StudyArguments, argv, prog="cprt mi-study", description=__doc__)
    if not (Path(args.runs) / "queries.jsonl").is_file():
        raise InputError.at(args.runs, "has no queries.jsonl in it, as cprt mi writes it")
    if args.answers:
        _evaluate(args)
    else:
        _draw(args)


def _draw(args: StudyArguments) -> None:
    out = Path(args.out)
    check_unfilled(out / "sheets", first=SHEET.index("answer"))
    asked = draw(Path(args.runs), args.reconstructions, args.controls, args.seed)
    rng = np.random.default_rng([args.seed, 1])
    sheets = [rng.permutation(own) for own in assign(len(asked), args.people, args.each or len(asked), rng)]
    sign("cprt mi-study", out / "run.json")
    for number, places in enumerate(sheets, start=1):
        rows = [(asked[place].number, asked[place].picture, "") for place in places]
        write_csv(out / "sheets" / f"rater{number:02}.csv", SHEET, rows)
    write_csv(out / "key.csv", KEY, map(astuple, asked))
    write_text(out / "instruction.txt", _INSTRUCTION)
    write_run("cprt mi-study", out, args, {}, seed=args.seed)
    counts = Counter(one.kind for one in asked)
    pairs = f"{counts['positive']} positive and {counts['negative']} negative"
    drawn = f"{args.people} sheets of {len(sheets[0])} pictures; in all {counts['reconstruction']} reconstructions"
    then = f"cprt mi-study --runs {args.runs} --out {out} --answers {out}/sheets/*.csv"
    print(f"{out / 'sheets'}: {drawn}, {pairs} controls. ", end="")
    print(f"Pictures lie in {args.runs}, the key is not for raters. Filled in: {then}")


def _evaluate(args: StudyArguments) -> None:
    out, judges = Path(args.out), Path(args.runs)
    key = read_key(out / "key.csv")
    names = [Path(path).stem for path in args.answers]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled or answers.MAJORITY in names:
        odd = (doubled or [answers.MAJORITY])[0]
        raise InputError(f"answers: {odd!r} cannot be the name of a rater's sheet, or is there twice")
    said = {name: answers.read_sheet(Path(path), key) for name, path in zip(names, args.answers, strict=True)}
    everybody = answers.majority(list(said.values()))
    setups = read_manifest(judges)
    unknown = {one.setup for one in key.values()} - setups.keys()
    if unknown:
        raise InputError.at(judges / "setups.json", f"lacks {min(unknown)}, which was drawn for this study")
    sign("cprt mi-study", out / "run.json")
    for name, of_rater in {**said, answers.MAJORITY: everybody}.items():
        answers.write_rater(out / "raters" / name, of_rater, key, setups)
    write_json(out / "raters" / "setups.json", read_json(judges / "setups.json"))
    classes = {number: answers.class_of(one, setups) for number, one in key.items() if one.kind == "reconstruction"}
    counting = Counting(resamples=args.resamples, seed=args.seed)
    report = {
        "raters": {
            name: {"answered": len(of), "labels": dict(Counter(of.values())), **answers.control_rates(of, key, setups)}
            for name, of in said.items()
        },
        "majority": {
            "labels": dict(Counter(everybody[number] for number in classes if number in everybody)),
            **answers.control_rates(everybody, key, setups),
        },
        **answers.alpha(list(said.values()), classes, counting),
        "judges": answers.with_judges({answers.MAJORITY: everybody, **said}, key, judges, setups, counting),
    }
    write_json(out / "study.json", report)
    inputs = {f"answers of {name}": path for name, path in zip(names, args.answers, strict=True)}
    write_run("cprt mi-study", out, args, inputs | {"key": str(out / "key.csv")}, seed=args.seed)
    _print(report, out, judges)


def _print(report: Mapping[str, Any], out: Path, judges: Path) -> None:
    raters = counted(len(report["raters"]), "rater")
    print(f"{out / 'study.json'}: {raters}, Krippendorff's alpha {show(report['alpha'], report['ci']['alpha'])}")
    for name, row in report["raters"].items():
        rates = [percent(row[rate]["rate"], row[rate]["ci"]) for rate in ("hit_rate", "false_alarm_rate")]
        print(f"  {name}: {row['answered']} answers; yes to pairs of one class {rates[0]}, of two {rates[1]}")
    for row in report["judges"]:
        print(f"  {agreement_line({**row, 'judges': [row['rater'], row['judge']]})}")
    print(f"  raters as judges beside E: cprt mi-compare --runs {judges} {out / 'raters'} --standard ... --out ...")


if __name__ == "__main__":
    run(main, "cprt mi-study")
