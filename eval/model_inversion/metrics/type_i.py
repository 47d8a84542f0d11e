"""Type-I transfer: of the reconstructions that T accepts and the judge rejects, the share that E accepts as well.

Beside it stands the share of natural images of other classes that E accepts: without an excess over it there is no
transfer to speak of. Where T's verdicts on these images are known, only those that T accepts count, as of the
reconstructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from cprt.metrics.bootstrap import ClusteredShare
from eval.model_inversion.metrics import rates
from eval.model_inversion.metrics.join import Key, Verdict


def type_i(
    judge: Mapping[Key, Verdict],
    standards: Mapping[str, Mapping[Key, Verdict]],
    target: Mapping[Key, Verdict] | None,
    naturals: Mapping[str, Mapping[str, Counter[bool]]],
    rejecting: Collection[str],
) -> dict[str, Any]:
    """Figures of E, and ``type_i_transfer_to`` it and the other ``standards``, which may lack images.

    ``naturals``: what each of them took, by the class it was tried as; ``rejecting``: what the judge says for a no.
    """
    accepted_by_t = {key for key, verdict in (target or {}).items() if verdict.label == "yes"}
    keys = [key for key in judge if key in accepted_by_t and judge[key].label in rejecting]
    transfers = {
        name: ClusteredShare.of_rows(((key[0], of[key].label) for key in keys if key in of), ("yes",), ("yes", "no"))
        for name, of in standards.items()
    }
    taken = {
        name: ClusteredShare.of_counts(naturals.get(name, {}).values(), (True,), (True, False)) for name in standards
    }
    return {
        "type_i": len(keys) if target is not None else None,
        "type_i_transfer": transfers["E"].figure,
        "type_i_transfer_to": {
            name: {
                **{"n": share.whole, "transfer": share.share, "ci": share.interval},
                **{"natural_rate": taken[name].share, "natural_ci": taken[name].interval},
            }
            for name, share in transfers.items()
        },
        "naturals": taken["E"].whole if "E" in naturals else None,
        "natural_rate": taken["E"].figure,
        "type_i_excess": rates.difference(transfers["E"], taken["E"]),
    }
