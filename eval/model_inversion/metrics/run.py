"""``cprt mi-metrics``: a judge's verdicts beside an evaluation model's on the same reconstructions -> mi_metrics.json.

From CSV files alone, ours or the public code's (``join.py`` says which columns). The judge is the
truth: a false positive is a reconstruction that the evaluation model E accepts and the judge rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cprt.config import option, parse, run
from cprt.provenance import run_path, sign, write_run
from cprt.records import write_json
from eval.model_inversion.metrics.evaluation import Inputs, evaluate
from eval.model_inversion.metrics.rates import Counting
from eval.model_inversion.metrics.show import print_report


@dataclass
class MetricsArguments:
    judge: str = option("CSV of the judge's verdicts: filename, label (and class, response)")
    standard: str = option("CSV of the evaluation model E: filename, prediction (and class)")
    out: str = option("JSON file to write")
    target: str | None = option("CSV of the target model T: filename, prediction", None)
    controls: str | None = option("controls.csv of the judge, to correct its figures", None)
    naturals: str | None = option("CSV of E on natural images of other classes: filename, prediction", None)
    naturals_target: str | None = option("the same of T: only what it accepts counts, as of reconstructions", None)
    others: list[str] = option("further evaluation models, NAME=FILE, for Type-I transfer to each", factory=list)
    naturals_others: list[str] = option("the same of naturals, NAME=FILE by those names", factory=list)

    def __post_init__(self) -> None:
        if self.naturals_target is not None and self.naturals is None:
            raise ValueError("--naturals_target goes with --naturals")
        check_others(self.others, self.naturals_others)

    @property
    def inputs(self) -> Inputs:
        mapped = {name: named(getattr(self, name), name) for name in ("others", "naturals_others")}
        return Inputs(**{name: value for name, value in vars(self).items() if name != "out"} | mapped)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-metrics``."""
    about = (__doc__ or "").partition("\n")[0]
    args, counting = parse((MetricsArguments, Counting), argv, prog="cprt mi-metrics", description=about)
    figures = evaluate(args.inputs, counting).figures
    sign("cprt mi-metrics", run_path(args.out))
    write_json(args.out, figures)
    write_run("cprt mi-metrics", args.out, vars(args) | vars(counting), args.inputs.files(), seed=counting.seed)
    print_report(figures, args.out)


def check_others(others: Sequence[str], naturals_others: Sequence[str]) -> None:
    """Raises ValueError for options that do not go together."""
    for name in named(naturals_others, "naturals_others").keys() - named(others, "others").keys():
        raise ValueError(f"naturals_others: {name!r} is none of --others")


def named(rows: Sequence[str], option_name: str) -> dict[str, str]:
    """``NAME=PATH`` words -> name -> path. Raises ValueError."""
    found: dict[str, str] = {}
    for row in rows:
        name, equals, path = row.partition("=")
        if not equals or not name.strip() or not path or name in found or name == "E":
            raise ValueError(f"{option_name}: {row!r} must be NAME=PATH, with a name of its own that is not E")
        found[name] = path
    return found


if __name__ == "__main__":
    run(main, "cprt mi-metrics")
