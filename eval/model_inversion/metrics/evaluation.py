"""One judge on one set-up: its verdicts beside an evaluation model's on the same reconstructions, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cprt.errors import InputError
from cprt.metrics.bootstrap import CONFIDENCE
from eval.model_inversion.metrics import join, rates
from eval.model_inversion.metrics.correction import correct
from eval.model_inversion.metrics.join import LABELS, NOT_SHOWN, Key, Verdict
from eval.model_inversion.metrics.rates import Counting, Counts
from eval.model_inversion.metrics.type_i import type_i


@dataclass(frozen=True)
class Inputs:
    """Files of one judge on one set-up. ``others``: further evaluation models, name -> file, and on the naturals."""

    judge: str
    standard: str
    target: str | None = None
    controls: str | None = None
    naturals: str | None = None
    naturals_target: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    naturals_others: Mapping[str, str] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """What -> file, of those that were given."""
        given = {name: path for name, path in vars(self).items() if isinstance(path, str)}
        given |= {f"other {name}": path for name, path in self.others.items()}
        return given | {f"naturals of {name}": path for name, path in self.naturals_others.items()}


@dataclass(frozen=True)
class Evaluation:
    """``figures`` for JSON, and what they rest on.

    ``judge`` holds the reconstructions that were shown and matched, ``standard`` these and maybe others; ``counts``
    are (5, 2) of each class, as in ``rates``.
    """

    figures: dict[str, Any]
    judge: dict[Key, Verdict]
    standard: dict[Key, Verdict]
    counts: dict[str, Counts]


def evaluate(inputs: Inputs, counting: Counting) -> Evaluation:
    """Read, join and measure. Raises InputError naming file, line and field."""
    judge, standard = join.read_judge(inputs.judge), join.read_classifier(inputs.standard)
    target = None if inputs.target is None else join.read_classifier(inputs.target)
    others = {name: join.read_classifier(path) for name, path in inputs.others.items()}
    files = ({} if inputs.naturals is None else {"E": inputs.naturals}) | dict(inputs.naturals_others)
    naturals = {name: join.read_naturals(path, inputs.naturals_target) for name, path in files.items()}
    controls = None if inputs.controls is None else join.read_controls(inputs.controls)
    not_shown = sum(verdict.label == NOT_SHOWN for verdict in judge.values())
    judge = {key: verdict for key, verdict in judge.items() if verdict.label != NOT_SHOWN}
    if not judge:
        raise InputError.at(inputs.judge, f"was shown none of its {not_shown} reconstructions")
    standard, by = join.named_like(standard, judge)
    joined = join.join_report(judge, standard, (inputs.judge, inputs.standard)) | {"by": by}
    judge = {key: verdict for key, verdict in judge.items() if key in standard}
    others = {name: join.named_like(verdicts, judge)[0] for name, verdicts in others.items()}
    if target is not None:
        target = join.named_like(target, judge)[0]
        of_target = join.join_report(judge, target, (inputs.judge, str(inputs.target)))
        joined["target"] = {
            "matched": of_target["matched"],
            "without_target": of_target["only_judge"],
            "only_target": of_target["only_standard"],
        }

    of_class = count(judge, standard)
    counts = rates.by_class(of_class)
    weights = counting.weights(len(counts))
    measured, shares = rates.measure(counts, counting, weights)
    corrected = correct(counts, shares, controls, counting, weights)
    transfer = type_i(judge, {"E": standard, **others}, target, naturals, counting.rejecting)
    values, intervals = rates.split({**measured, **corrected, **transfer})
    by_label = dict(zip(LABELS, counts.sum(axis=(0, 2)).tolist(), strict=True))
    figures = {
        **values,
        "judge_labels": by_label,
        "not_shown": not_shown,
        "left_out_of_table": {label: by_label[label] for label in LABELS if label not in counting.in_table},
        "refused_as_no": counting.refused_as_no,
        "counting": _counting(counting.refused_as_no),
        "controls": None if controls is None else {kind: _labels(of_kind) for kind, of_kind in controls.items()},
        "naturals_that_t_accepts": inputs.naturals_target is not None if naturals else None,
        "design_effect": {name: share.design_effect for name, share in shares.items()},
        "ci": intervals,
        "ci_method": {
            "confidence": CONFIDENCE,
            "assumes": "independent classes; reconstructions of one class may resemble one another",
            "shares": "Wilson, of n over the design effect, Student's quantile (jackknife over classes)",
            "kappa, accuracy_gap": "bootstrap percentiles over classes, moved outwards to Student's quantile; none "
            "where all resamples say the same",
            "accuracy_judge_corrected": "delta method on shares moved towards a half, n over the design effect",
            "fpr_corrected, fnr_corrected": "as kappa, the judge's rates drawn from their posterior",
            "type_i_excess": "Newcombe",
            "resamples": counting.resamples,
            "seed": counting.seed,
        },
        "join": joined,
    }
    return Evaluation(figures, judge, standard, of_class)


def count(judge: Mapping[Key, Verdict], standard: Mapping[Key, Verdict]) -> dict[str, Counts]:
    """Class -> (5, 2): how many got each label of the judge and E's no or yes. E has all that the judge has."""
    counts: dict[str, Counts] = {}
    for key, verdict in judge.items():
        of_class = counts.setdefault(key[0], np.zeros((len(LABELS), 2), dtype=np.int64))
        of_class[LABELS.index(verdict.label), int(standard[key].label == "yes")] += 1
    return counts


def _labels(classes: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {label: sum(count[label] for count in classes.values()) for label in LABELS}


def _counting(refused_as_no: bool) -> str:
    left_out: Sequence[str] = ("unparsed", "error") if refused_as_no else ("refused, unparsed", "error")
    as_no = " and refused is a no in it" if refused_as_no else ""
    return (
        f"n is every matched reconstruction that the judge was shown; in accuracy_judge only yes is a yes; "
        f"{' and '.join(left_out)} are left out of tp, tn, fp, fn and of what follows from them{as_no}"
    )
