"""Type-I transfer: of the reconstructions that T accepts and the judge rejects, the share that E accepts as well.

Beside it stands the share of natural images of other classes that E accepts: without an excess over it there is no
transfer to speak of. Where T's verdicts on these images are known, only those that T accepts count, as of the
reconstructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cprt.metrics.bootstrap import ClusteredShare
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.join import Key, Verdict
from eval.model_inversion.metrics.rates import Counting, Interval


def type_i(
    judge: Mapping[Key, Verdict],
    standards: Mapping[str, Mapping[Key, Verdict]],
    target: Mapping[Key, Verdict] | None,
    naturals: Mapping[str, Mapping[str, Counter[bool]]],
    counting: Counting,
) -> tuple[dict[str, Any], dict[str, Interval]]:
    """Figures of E, and ``type_i_transfer_to`` it and the other ``standards``, which may lack images.

    ``naturals`` are those that each of them took, by the class they were tried as; a model may have none.
    """
    accepted_by_t = {key for key, verdict in (target or {}).items() if verdict.label == "yes"}
    keys = [key for key in judge if key in accepted_by_t and judge[key].label in counting.rejecting]
    transfers = {name: _transfer(keys, verdicts) for name, verdicts in standards.items()}
    taken = {name: _share(naturals.get(name, {}).values()) for name in standards}
    transferred, accepted = transfers["E"], taken["E"]
    excess, of_excess = rates.difference(transferred, accepted)
    figures = {
        "type_i": len(keys) if target is not None else None,
        "type_i_transfer": transferred.share,
        "type_i_transfer_to": {
            name: {
                **{"n": share.whole, "transfer": share.share, "ci": share.interval},
                **{"natural_rate": taken[name].share, "natural_ci": taken[name].interval},
            }
            for name, share in transfers.items()
        },
        "naturals": accepted.whole if "E" in naturals else None,
        "natural_rate": accepted.share,
        "type_i_excess": excess,
    }
    return figures, {
        "type_i_transfer": transferred.interval,
        "natural_rate": accepted.interval,
        "type_i_excess": of_excess,
    }


def _transfer(keys: list[Key], standard: Mapping[Key, Verdict]) -> ClusteredShare:
    counts: dict[str, Counter[bool]] = {}
    for key in keys:
        if key in standard:
            counts.setdefault(key[0], Counter())[standard[key].label == "yes"] += 1
    return _share(counts.values())


def _share(classes: Iterable[Counter[bool]]) -> ClusteredShare:
    return ClusteredShare.of_counts(classes, (True,), (True, False))
