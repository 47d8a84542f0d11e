"""How near reconstructions come to private images in a network's features: distance, FID, PRDC.

Each comes from the library that is used for it, or is None with a reason: a figure of too few images is none.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PRDC = ("precision", "recall", "density", "coverage")


def nearest_squared(
    fake_ND: Floats, fake_classes_N: NDArray[Any], real_MD: Floats, real_classes_M: NDArray[Any]
) -> Floats:
    """Squared Euclidean distance of each reconstruction to the nearest private image of its class, (N,).

    NaN where its class has no private image.
    """
    from scipy.spatial.distance import cdist

    nearest = np.full(len(fake_ND), np.nan)
    for name in np.unique(fake_classes_N):
        of_fake, of_real = fake_classes_N == name, real_classes_M == name
        if of_real.any():
            nearest[of_fake] = cdist(fake_ND[of_fake], real_MD[of_real], "sqeuclidean").min(axis=1)
    return nearest


def frechet_distance(fake_ND: Floats, real_MD: Floats) -> tuple[float | None, str | None]:
    """FID over given features: (distance, None), or (None, why not). All classes together.

    Both covariances must have full rank, which takes more images than features; below that FID says little but the
    number of images.
    """
    dimensions = fake_ND.shape[1]
    if min(len(fake_ND), len(real_MD)) <= dimensions:
        return None, (
            f"FID over {dimensions} features needs more than {dimensions} images on both sides; there are "
            f"{len(fake_ND)} reconstructions and {len(real_MD)} private images"
        )
    import torch
    from torchmetrics.image.fid import FrechetInceptionDistance  # seconds: only where there is something to compute

    given = torch.nn.Identity()
    given.num_features = dimensions  # torchmetrics asks for it where it did not build the network
    metric = FrechetInceptionDistance(feature=given)
    metric.update(torch.from_numpy(real_MD), real=True)  # float64 throughout, and so is the result
    metric.update(torch.from_numpy(fake_ND), real=False)
    distance = float(metric.compute())
    return (distance, None) if np.isfinite(distance) else (None, "FID is not finite")


def prdc(
    fake_ND: Floats, fake_classes_N: NDArray[Any], real_MD: Floats, real_classes_M: NDArray[Any], k: int
) -> tuple[dict[str, float | None], int, str | None]:
    """Precision, recall, density and coverage within each class, averaged over the classes where they are defined.

    A class needs k + 2 images on both sides, as many as give each k neighbours and one to spare.

    Returns:
        the four figures, the number of classes they come from, and why they are None or rest on fewer classes.
    """
    from prdc import compute_prdc

    names = np.unique(fake_classes_N)
    found = []
    for name in names:
        fake, real = fake_ND[fake_classes_N == name], real_MD[real_classes_M == name]
        if min(len(fake), len(real)) >= k + 2:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints how many there are
                found.append(compute_prdc(real, fake, nearest_k=k))
    left = len(names) - len(found)
    reason = (
        f"PRDC with k = {k} needs {k + 2} images of a class on both sides; {left} of {len(names)} classes have fewer"
    )
    figures = {name: float(np.mean([one[name] for one in found])) if found else None for name in PRDC}
    return figures, len(found), reason if left else None
