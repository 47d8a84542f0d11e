"""How many images a classifier takes for the class that they claim."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.metrics.bootstrap import ClusteredShare
from eval.model_inversion.standard.outputs import Outputs


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
