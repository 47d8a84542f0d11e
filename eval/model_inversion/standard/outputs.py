"""What a classifier says of images, how often that is the class they claim, and the file that may hold it.

Logits and features that were computed elsewhere, by whatever network, come in an .npz file of plain arrays: ``files``
(N texts, each image's path or an end of it, such as CLASS/FILE), ``logits`` (N, classes) and ``features`` (N, D), which
suffice where no logits are wanted. Arrays of Python objects, which are pickles, are not read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.errors import InputError
from cprt.metrics.bootstrap import ClusteredShare, Figure
from eval.model_inversion.metrics.rates import with_intervals


@dataclass(frozen=True)
class Outputs:
    """Of N images: ``probabilities`` (N, classes; none where only features were wanted), and ``features`` (N, D), what
    the last linear layer takes."""

    probabilities: NDArray[np.float64]
    features: NDArray[np.float64]


def accuracies(seen: Outputs, claimed_N: NDArray[np.int64]) -> dict[str, Any]:
    """Top-1 and top-5 accuracy, each with its 95% interval over classes, and the mean probability of the claimed class.

    A class ties with another where their probabilities are equal; then the lower logit counts as the likelier.
    """
    rank = ranks(seen, claimed_N)
    n, classes = seen.probabilities.shape
    wholes = np.bincount(claimed_N)
    tops = {"top1_accuracy": 1} | ({"top5_accuracy": 5} if classes > 5 else {})
    shares = {name: ClusteredShare.of(np.bincount(claimed_N, rank < top), wholes) for name, top in tops.items()}
    confidence = float(seen.probabilities[np.arange(n), claimed_N].mean())
    figures = {"top5_accuracy": Figure(None, None)} | {name: share.figure for name, share in shares.items()}
    return with_intervals({"n": n, **figures, "confidence": confidence})


def ranks(seen: Outputs, claimed_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N,) how many classes the classifier finds likelier than the claimed one."""
    order = np.argsort(-seen.probabilities, axis=1, kind="stable")
    return np.argmax(order == claimed_N[:, None], axis=1)


class StoredOutputs:
    """What the file ``path`` holds. Raises InputError for anything else than such arrays.

    ``classes``: how many logits there must be, None where logits are not needed.
    """

    def __init__(self, path: Path, classes: int | None):
        self.path = path
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in ("files", "logits", "features") if name in archive}
        except OSError as error:
            raise InputError.at(path, error.strerror or "is not an .npz file of plain arrays") from error
        except (ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise InputError.at(path, "is not an .npz file of plain arrays (files, logits, features)") from error
        needed = ("files", "features") if classes is None else ("files", "logits", "features")
        for name in needed:
            if name not in arrays:
                raise InputError.at(path, "is missing", field=name)
        files = [str(name).replace("\\", "/").strip("/") for name in arrays["files"].ravel()]
        if arrays["files"].dtype.kind != "U" or len(set(files)) < len(files):
            raise InputError.at(path, "must be texts, each there once", field="files")
        for name in needed[1:]:
            array = arrays[name]
            if array.ndim != 2 or len(array) != len(files) or array.dtype.kind not in "fiu":
                raise InputError.at(path, f"must be numbers in {len(files)} rows", field=name)
            if not np.isfinite(array).all():
                raise InputError.at(path, "has values that are not finite", field=name)
        if classes is not None and arrays["logits"].shape[1] != classes:
            raise InputError.at(path, f"has {arrays['logits'].shape[1]} columns, not {classes}", field="logits")
        self._rows = {name: row for row, name in enumerate(files)}
        self._stands_for: dict[int, Path] = {}
        self._features = arrays["features"].astype(np.float64)
        self._logits = arrays["logits"].astype(np.float64) if classes is not None else np.zeros((len(files), 0))

    def see(self, paths: Sequence[Path], batch_size: int, what: str) -> Outputs:
        """As of a ``Classifier``. Raises InputError for an image that the file does not have."""
        found = [self._row(path) for path in paths]
        exponentials = np.exp(self._logits[found] - self._logits[found].max(axis=1, keepdims=True, initial=-np.inf))
        return Outputs(exponentials / exponentials.sum(axis=1, keepdims=True), self._features[found])

    def _row(self, path: Path) -> int:
        parts = path.parts
        for first in range(len(parts)):
            row = self._rows.get("/".join(parts[first:]).strip("/"))
            if row is not None:
                other = self._stands_for.setdefault(row, path)
                if other != path:
                    raise InputError.at(self.path, f"has one row for {other} and {path}: give longer paths in files")
                return row
        raise InputError.at(self.path, f"has no row for {path}")
