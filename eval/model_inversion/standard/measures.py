"""What is usually reported of reconstructions: accuracy under a classifier, and nearness to private images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.metrics.bootstrap import ClusteredShare
from eval.model_inversion.standard.classifier import Floats, Outputs
from eval.model_inversion.standard.features import EVALUATION_MODEL, PRDC, nearest_squared, nearness


def accuracies(seen: Outputs, claimed_N: NDArray[np.int64]) -> dict[str, Any]:
    """Top-1 and top-5 accuracy, each with its 95% interval over classes, and the mean probability of the claimed class.

    A class ties with another where their probabilities are equal; then the lower logit counts as the likelier.
    """
    rank = ranks(seen, claimed_N)
    n, classes = seen.probabilities.shape
    wholes = np.bincount(claimed_N)
    tops = {"top1_accuracy": 1} | ({"top5_accuracy": 5} if classes > 5 else {})
    shares = {name: ClusteredShare.of(np.bincount(claimed_N, rank < top), wholes) for name, top in tops.items()}
    figures: dict[str, Any] = {name: share.share for name, share in shares.items()}
    return {
        "n": n,
        "top5_accuracy": None,
        **figures,
        "confidence": float(seen.probabilities[np.arange(n), claimed_N].mean()),
        "ci": {"top5_accuracy": None} | {name: share.interval for name, share in shares.items()},
    }


def ranks(seen: Outputs, claimed_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N,) how many classes the classifier finds likelier than the claimed one."""
    order = np.argsort(-seen.probabilities, axis=1, kind="stable")
    return np.argmax(order == claimed_N[:, None], axis=1)


def distance(
    fake_ND: Floats, claimed_N: NDArray[np.int64], real_MD: Floats, real_classes_M: NDArray[np.int64]
) -> tuple[float | None, str | None]:
    """Mean squared distance to the nearest private image of the class, and over what it is not."""
    nearest = nearest_squared(fake_ND, claimed_N, real_MD, real_classes_M)
    near = nearest[~np.isnan(nearest)]
    without = len(nearest) - len(near)
    reason = f"{without} of {len(nearest)} reconstructions are of classes without private images" if without else None
    return (float(near.mean()) if len(near) else None), reason


def of_evaluation_model(
    seen: Outputs,
    claimed_N: NDArray[np.int64],
    of_private: Outputs | None,
    real_classes_M: NDArray[np.int64] | None,
    k: int,
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Distance, FID and PRDC in E's own features, and why some are None."""
    if of_private is None or real_classes_M is None:
        absent = "no folder of private images was given"
        names = ("feature_distance", "feature_dimensions", "fid", *PRDC, "prdc_classes")
        return dict.fromkeys(names), dict.fromkeys(("feature_distance", "fid", "prdc"), absent)
    apart, reason = distance(seen.features, claimed_N, of_private.features, real_classes_M)
    near = nearness(seen.features, claimed_N, of_private.features, real_classes_M, EVALUATION_MODEL, k)
    notes = {note.split()[0].lower(): note for note in near["notes"]}
    figures = {name: near[name] for name in ("feature_dimensions", "fid", *PRDC, "prdc_classes")}
    return {"feature_distance": apart, **figures}, {"feature_distance": reason, "fid": None, "prdc": None} | notes
