"""``cprt mi-metrics``: a judge's verdicts beside an evaluation model's on the same reconstructions -> mi_metrics.json.

From CSV files alone, ours or the public code's (``join.py`` says which columns). The judge is the
truth: a false positive is a reconstruction that the evaluation model E accepts and the judge rejects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.metrics.bootstrap import CONFIDENCE, wilson_interval
from cprt.provenance import run_path, sign, write_run
from cprt.records import write_json
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.join import (
    LABELS,
    NOT_SHOWN,
    Key,
    Verdict,
    join_report,
    read_classifier,
    read_controls,
    read_judge,
    read_naturals,
)
from eval.model_inversion.metrics.rates import Counts, Interval

# Column heads of tables of several judges and set-ups; all figures come with intervals.
FIGURES = {
    "accuracy_standard": "accuracy under E",
    "accuracy_judge": "under the judge",
    "accuracy_judge_corrected": "corrected by controls",
    "fpr": "FPR",
    "fnr": "FNR",
    "kappa": "kappa",
    "type_i_transfer": "Type-I transfer",
    "natural_rate": "naturals E accepts",
}


@dataclass
class MetricsArguments:
    judge: str = option("CSV of the judge's verdicts: filename, label (and class, response)")
    standard: str = option("CSV of the evaluation model E: filename, prediction (and class)")
    out: str = option("JSON file to write")
    target: str | None = option("CSV of the target model T: filename, prediction", None)
    controls: str | None = option("controls.csv of the judge, to correct its accuracy", None)
    naturals: str | None = option("CSV of E on natural images of other classes: filename, prediction", None)
    refused_as_no: bool = option("count a refusal as a no in the 2x2 table", False)
    resamples: int = option("bootstrap resamples; 0: only Wilson intervals", 2000)
    seed: int = option("seed of the resamples", 0)

    def __post_init__(self) -> None:
        check_resampling(self.resamples, self.seed)

    @property
    def inputs(self) -> dict[str, str]:
        """Name -> file, of those that were given."""
        files = {name: getattr(self, name) for name in ("judge", "standard", "target", "controls", "naturals")}
        return {name: path for name, path in files.items() if path is not None}


@dataclass(frozen=True)
class Evaluation:
    """One judge on one set-up: ``figures`` for JSON, and what they rest on.

    ``judge`` holds the reconstructions that were shown and matched, ``standard`` these and maybe others.
    """

    figures: dict[str, Any]
    judge: dict[Key, Verdict]
    standard: dict[Key, Verdict]

    @property
    def counts(self) -> Counts:
        """(5, 2) as in ``rates``."""
        return count([(self.judge[key].label, self.standard[key].label) for key in self.judge])


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-metrics``."""
    (args,) = parse(MetricsArguments, argv, prog="cprt mi-metrics", description=(__doc__ or "").partition("\n")[0])
    figures = evaluate(args.inputs, args.refused_as_no, args.resamples, args.seed).figures
    sign("cprt mi-metrics", run_path(args.out))
    write_json(args.out, figures)
    write_run("cprt mi-metrics", args.out, args, args.inputs, seed=args.seed)
    print_report(figures, args.out)


def check_resampling(resamples: int, seed: int) -> None:
    """Raises ValueError."""
    for name, value in (("resamples", resamples), ("seed", seed)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, not {value}")


def evaluate(inputs: Mapping[str, str], refused_as_no: bool, resamples: int, seed: int) -> Evaluation:
    """Read, join and measure. ``inputs`` are files: judge, standard, maybe target, controls, naturals.

    Raises InputError naming file, line and field.
    """
    judge, standard = read_judge(inputs["judge"]), read_classifier(inputs["standard"])
    target = read_classifier(inputs["target"]) if "target" in inputs else None
    naturals = read_naturals(inputs["naturals"]) if "naturals" in inputs else None
    controls = read_controls(inputs["controls"]) if "controls" in inputs else None
    not_shown = sum(verdict.label == NOT_SHOWN for verdict in judge.values())
    judge = {key: verdict for key, verdict in judge.items() if verdict.label != NOT_SHOWN}
    if not judge:
        raise InputError.at(inputs["judge"], f"was shown none of its {not_shown} reconstructions")
    join = join_report(judge, standard, (inputs["judge"], inputs["standard"]))
    judge = {key: verdict for key, verdict in judge.items() if key in standard}
    if target is not None:
        of_target = join_report(judge, target, (inputs["judge"], inputs["target"]))
        join["target"] = {
            "matched": of_target["matched"],
            "without_target": of_target["only_judge"],
            "only_target": of_target["only_standard"],
        }

    counts = count([(judge[key].label, standard[key].label) for key in judge])
    figures, intervals = rates.measure(counts, refused_as_no=refused_as_no, resamples=resamples, seed=seed)
    transfer, of_transfer = _type_i(judge, standard, target, naturals, refused_as_no)
    correction, of_correction = _correction(counts, controls)
    by_label = dict(zip(LABELS, counts.sum(axis=1).tolist(), strict=True))
    in_table = ("yes", "no", "refused") if refused_as_no else ("yes", "no")
    found = {
        **figures,
        **correction,
        **transfer,
        "judge_labels": by_label,
        "not_shown": not_shown,
        "left_out_of_table": {label: by_label[label] for label in LABELS if label not in in_table},
        "refused_as_no": refused_as_no,
        "counting": _counting(refused_as_no),
        "controls": controls,
        "ci": intervals | of_correction | of_transfer,
        "ci_method": {
            "confidence": CONFIDENCE,
            "shares": "Wilson",
            "kappa, accuracy_gap": "bootstrap percentiles over reconstructions",
            "accuracy_judge_corrected": "delta method on shares moved towards a half",
            "type_i_excess": "Newcombe",
            "assumes": "independent reconstructions",
            "resamples": resamples,
            "seed": seed,
        },
        "join": join,
    }
    return Evaluation(found, judge, standard)


def count(pairs: Sequence[tuple[str, str]]) -> Counts:
    """(label of the judge, yes or no of E) a reconstruction -> (5, 2) counts."""
    counts = np.zeros((len(LABELS), 2), dtype=np.int64)
    for (label, accepted), times in Counter(pairs).items():
        counts[LABELS.index(label), int(accepted == "yes")] = times
    return counts


def _counting(refused_as_no: bool) -> str:
    left_out = "unparsed and error" if refused_as_no else "refused, unparsed and error"
    as_no = " and refused is a no in it" if refused_as_no else ""
    return (
        f"n is every matched reconstruction that the judge was shown; in accuracy_judge only yes is a yes; {left_out} "
        f"are left out of tp, tn, fp, fn and of what follows from them{as_no}"
    )


def _correction(
    counts: Counts, controls: dict[str, dict[str, int]] | None
) -> tuple[dict[str, float | None], dict[str, Interval]]:
    """The judge's accuracy corrected by its control rates, clipped to [0, 1] and as it came; with intervals."""
    raw, interval, hits, alarms = None, None, (0, 0), (0, 0)
    if controls is not None:
        positive, negative = controls["positive"], controls["negative"]
        raw, interval = rates.corrected(int(counts[rates.YES].sum()), int(counts.sum()), positive, negative)
        hits, alarms = ((kind["yes"], sum(kind.values())) for kind in (positive, negative))

    def clip(value: float) -> float:
        return min(1.0, max(0.0, value))

    figures = {
        "accuracy_judge_corrected": None if raw is None else clip(raw),
        "accuracy_judge_corrected_raw": raw,
        "control_hit_rate": _share(hits),
        "control_false_alarm_rate": _share(alarms),
    }
    intervals = {
        "accuracy_judge_corrected": None if interval is None else [clip(bound) for bound in interval],
        "accuracy_judge_corrected_raw": interval,
        "control_hit_rate": wilson_interval(*hits),
        "control_false_alarm_rate": wilson_interval(*alarms),
    }
    return figures, intervals


def _type_i(
    judge: Mapping[Key, Verdict],
    standard: Mapping[Key, Verdict],
    target: Mapping[Key, Verdict] | None,
    naturals: Sequence[bool] | None,
    refused_as_no: bool,
) -> tuple[dict[str, Any], dict[str, Interval]]:
    """Type-I transfer: of what T accepts and the judge rejects, the share that E accepts; against natural images."""
    rejecting = ("no", "refused") if refused_as_no else ("no",)
    type_i = [
        key
        for key in judge
        if target is not None and key in target and target[key].label == "yes" and judge[key].label in rejecting
    ]
    transferred = sum(standard[key].label == "yes" for key in type_i), len(type_i)
    accepted = sum(naturals or ()), len(naturals or ())
    excess, of_excess = rates.difference(transferred, accepted)
    figures = {
        "type_i": len(type_i) if target is not None else None,
        "type_i_transfer": _share(transferred),
        "naturals": len(naturals) if naturals is not None else None,
        "natural_rate": _share(accepted),
        "type_i_excess": excess,
    }
    intervals = {
        "type_i_transfer": wilson_interval(*transferred),
        "natural_rate": wilson_interval(*accepted),
        "type_i_excess": of_excess,
    }
    return figures, intervals


def _share(share: tuple[int, int]) -> float | None:
    return share[0] / share[1] if share[1] else None


# --- Printing ----------------------------------------------------------------------------------------------------

_NAMES = {
    "accuracy_standard": "attack accuracy under E",
    "accuracy_judge": "attack accuracy under the judge",
    "accuracy_judge_corrected": "  corrected by its controls",
    "accuracy_gap": "  E minus judge",
    "fpr": "FPR of E",
    "fnr": "FNR of E",
    "tpr": "TPR of E",
    "tnr": "TNR of E",
    "kappa": "kappa of E and judge",
    "type_i_transfer": "Type-I transfer to E",
    "natural_rate": "  natural images E accepts",
}


def print_report(figures: Mapping[str, Any], out: str) -> None:
    """Shares in percent, a dash where undefined; then everything that is not in the table or not matched."""
    print(
        f"{out}: n {figures['n']}, " + ", ".join(f"{cell.upper()} {figures[cell]}" for cell in ("tp", "tn", "fp", "fn"))
    )
    for name, head in _NAMES.items():
        shown = (
            figure(figures[name], figures["ci"][name])
            if name == "kappa"
            else percent(figures[name], figures["ci"][name])
        )
        given = {"accuracy_judge_corrected": "controls", "natural_rate": "naturals", "type_i_transfer": "type_i"}
        if name not in given or figures[given[name]] is not None:
            print(f"  {head:<32} {shown}")
    lost = ", ".join(f"{times} {label}" for label, times in figures["left_out_of_table"].items() if times)
    if lost:
        print(f"  not in the 2x2 table: {lost}; they stay in n and are no yes")
    elif figures["refused_as_no"] and figures["judge_labels"]["refused"]:
        print(f"  {figures['judge_labels']['refused']} refusals count as no in the 2x2 table")
    if figures["not_shown"]:
        print(f"  {figures['not_shown']} reconstructions could not be shown to the judge and are in no figure")
    for line in unmatched(figures["join"]):
        print(f"  {line}")


def unmatched(join: Mapping[str, Any]) -> list[str]:
    """A line for everything that the join left over."""
    lines = []
    for side, name in (("judge", "the judge's file"), ("standard", "E's file")):
        if join[f"only_{side}"]:
            examples = ", ".join(join[f"only_{side}_examples"][:2])
            lines.append(f"left out: {join[f'only_{side}']} reconstructions only in {name}, as {examples}")
    missing = join.get("target", {}).get("without_target", 0)
    return lines + ([f"{missing} reconstructions have no verdict of T"] if missing else [])


def heads(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Those of FIGURES that are defined in any row."""
    return {name: head for name, head in FIGURES.items() if any(row[name] is not None for row in rows)}


def percent(value: float | None, interval: Sequence[float] | None = None) -> str:
    """``80.53% [78.45, 82.45]``; a dash for what is undefined."""
    if value is None:
        return "-"
    return f"{100 * value:.2f}%" + (f" [{100 * interval[0]:.2f}, {100 * interval[1]:.2f}]" if interval else "")


def figure(value: float | None, interval: Sequence[float] | None = None) -> str:
    """``0.041 [-0.006, 0.089]``; a dash for what is undefined."""
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


if __name__ == "__main__":
    run(main, "cprt mi-metrics")
