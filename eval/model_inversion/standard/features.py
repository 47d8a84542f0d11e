"""How near reconstructions come to private images in a network's features: distance, FID, PRDC.

Two conventions, since figures of one say nothing beside those of the other:

* ``literature``: features of ImageNet's Inception (pool3, 2,048 of them), as PPA and MIBench take them. FID is computed
  for any number of images; PRDC by their formulas.
* ``evaluation model``: features of E. FID is None where there are no more images than features, since it then says
  little but the number of images; PRDC by the library ``prdc`` (Naeem et al., 2020).

Both are over the attacked classes alone. PRDC is the mean over classes.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LITERATURE, EVALUATION_MODEL = "literature", "evaluation model"
PRDC = ("precision", "recall", "density", "coverage")


@dataclass(frozen=True)
class Features:
    """Of N images: ``values`` (N, D), and the ``classes`` (N,) that they are of, or tried as."""

    values: Floats
    classes: NDArray[Any]

    def of(self, name: Any) -> Floats:
        """(n, D) of the images of one class."""
        return self.values[self.classes == name]


def nearest_squared(fake: Features, real: Features) -> Floats:
    """Squared Euclidean distance of each reconstruction to the nearest private image of its class, (N,).

    NaN where its class has no private image.
    """
    from scipy.spatial.distance import cdist

    nearest = np.full(len(fake.values), np.nan)
    for name in np.intersect1d(fake.classes, real.classes):
        nearest[fake.classes == name] = cdist(fake.of(name), real.of(name), "sqeuclidean").min(axis=1)
    return nearest


def distance(fake: Features, real: Features) -> tuple[float | None, str | None]:
    """Mean squared distance to the nearest private image of the class, and over what it is not."""
    nearest = nearest_squared(fake, real)
    near = nearest[~np.isnan(nearest)]
    few = f"{len(nearest) - len(near)} of {len(nearest)} reconstructions are of classes without private images"
    return (float(near.mean()) if len(near) else None), few if len(near) < len(nearest) else None


def nearness(fake: Features, real: Features, convention: str, k: int) -> dict[str, Any]:
    """FID and PRDC by a convention, with what they rest on, ready for JSON.

    ``notes`` say why a figure is None, or rests on less than it should.
    """
    attacked = np.isin(real.classes, fake.classes)
    real = Features(real.values[attacked], real.classes[attacked])
    (n, dimensions), m = fake.values.shape, len(real.values)
    notes = []
    if min(n, m) <= dimensions:
        notes.append(
            f"FID over {dimensions} features of {n} reconstructions and {m} private images: more images than features "
            "on both sides would be needed"
            + (" for a figure that does not depend on their number" if convention == LITERATURE else "")
        )
    defined = min(n, m) >= 2 and (convention == LITERATURE or not notes)
    figures, classes, reason = prdc(fake, real, k, convention)
    return {
        "convention": convention,
        "fid": frechet_distance(fake.values, real.values) if defined else None,
        **figures,
        "k": k,
        "prdc_classes": classes,
        "images": n,
        "private_images": m,
        "feature_dimensions": dimensions,
        "notes": notes + ([reason] if reason else []),
    }


def frechet_distance(first_ND: Floats, second_MD: Floats) -> float:
    """FID over given features: |m1 - m2|^2 + tr(S1) + tr(S2) - 2 tr((S1 S2)^(1/2)) (Heusel et al., 2017).

    With factors S = F F^T, the last trace is the sum of the singular values of F1^T F2: exact also where
    the covariances have no full rank, where a matrix root is not.
    """
    means, factors, traces = [], [], 0.0
    for features in (first_ND, second_MD):
        centred = (features - features.mean(axis=0)) / np.sqrt(len(features) - 1)
        means.append(features.mean(axis=0))
        traces += float((centred**2).sum())
        if len(centred) > centred.shape[1]:  # D x D serves as well as N x D
            centred = np.linalg.qr(centred, mode="r")
        factors.append(centred)
    root = float(np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False).sum())
    return max(0.0, float(((means[0] - means[1]) ** 2).sum()) + traces - 2 * root)


def prdc(
    fake: Features, real: Features, k: int, convention: str = EVALUATION_MODEL
) -> tuple[dict[str, float | None], int, str | None]:
    """Precision, recall, density and coverage within each class, averaged over the classes where they are defined.

    A class needs k + 2 images on both sides, as many as give each k neighbours and one to spare. Beside the figures
    stand the number of classes they come from, and why they are None or rest on fewer classes.
    """
    compute = _of_literature if convention == LITERATURE else _of_library
    sides = [(fake.of(name), real.of(name)) for name in np.unique(fake.classes)]
    found = [compute(*both, k) for both in sides if min(map(len, both)) >= k + 2]
    figures = {name: float(np.mean([one[name] for one in found])) if found else None for name in PRDC}
    few = f"{len(sides) - len(found)} of {len(sides)} classes have fewer"
    reason = f"PRDC with k = {k} needs {k + 2} images of a class on both sides; {few}"
    return figures, len(found), reason if len(found) < len(sides) else None


def _of_library(fake_ND: Floats, real_MD: Floats, k: int) -> dict[str, float]:
    from prdc import compute_prdc

    with contextlib.redirect_stdout(io.StringIO()):  # it prints how many there are
        return compute_prdc(real_MD, fake_ND, nearest_k=k)


def _of_literature(fake_ND: Floats, real_MD: Floats, k: int) -> dict[str, float]:
    """As PPA computes them: only the nearest image of the other side decides on precision and recall, and density is
    a mean over private images, not over reconstructions."""
    from scipy.spatial.distance import cdist

    radius_real, radius_fake = (np.sort(cdist(side, side), axis=1)[:, k] for side in (real_MD, fake_ND))
    distance = cdist(fake_ND, real_MD)
    nearest_real, nearest_fake = distance.argmin(axis=1), distance.argmin(axis=0)
    inside = distance <= radius_real
    return {
        "precision": float((distance.min(axis=1) <= radius_real[nearest_real]).mean()),
        "recall": float((distance.min(axis=0) <= radius_fake[nearest_fake]).mean()),
        "density": float(inside.sum(axis=0).mean() / k),
        "coverage": float(inside.any(axis=0).mean()),
    }
