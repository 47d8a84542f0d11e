"""Distances, FID and PRDC against other libraries and against their definitions, written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.neighbors import NearestNeighbors

from eval.model_inversion.standard.features import PRDC, frechet_distance, nearest_squared, prdc


def test_the_nearest_private_image_is_sought_within_the_class_and_class_0_is_a_class():
    rng = np.random.default_rng(0)
    fake, real = rng.normal(size=(40, 7)), rng.normal(size=(60, 7))
    of_fake, of_real = rng.integers(0, 4, 40), rng.integers(0, 3, 60)  # nothing real of class 3
    found = nearest_squared(fake, of_fake, real, of_real)
    for name in range(3):
        distances, _ = NearestNeighbors(n_neighbors=1).fit(real[of_real == name]).kneighbors(fake[of_fake == name])
        assert found[of_fake == name] == pytest.approx(distances[:, 0] ** 2)
    assert np.isnan(found[of_fake == 3]).all() and (of_fake == 3).any()


def test_fid_is_its_formula():
    rng = np.random.default_rng(1)
    fake = rng.normal(size=(90, 6)) @ rng.normal(size=(6, 6)) + 0.5
    real = rng.normal(size=(70, 6)) @ rng.normal(size=(6, 6))
    a, b = np.cov(fake, rowvar=False), np.cov(real, rowvar=False)
    by_hand = ((fake.mean(0) - real.mean(0)) ** 2).sum() + np.trace(a + b - 2 * sqrtm(a @ b).real)
    distance, reason = frechet_distance(fake, real)
    assert reason is None
    assert distance == pytest.approx(by_hand, rel=1e-9)
    assert frechet_distance(real, real)[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("n_fake", "n_real"), [(6, 90), (90, 6), (1, 1)])
def test_fid_of_too_few_images_is_null_and_says_why(n_fake: int, n_real: int):
    rng = np.random.default_rng(2)
    distance, reason = frechet_distance(rng.normal(size=(n_fake, 6)), rng.normal(size=(n_real, 6)))
    assert distance is None
    assert reason is not None and f"{n_fake} reconstructions" in reason and "more than 6" in reason


def prdc_by_hand(fake: np.ndarray, real: np.ndarray, k: int) -> dict[str, float]:
    """Naeem et al. 2020, eqs 2 to 5, with loops."""

    def radius(points: np.ndarray, i: int) -> float:
        return sorted(float(np.linalg.norm(points[i] - points[j])) for j in range(len(points)) if j != i)[k - 1]

    distance = np.asarray([[np.linalg.norm(r - f) for f in fake] for r in real])
    of_real = [radius(real, i) for i in range(len(real))]
    of_fake = [radius(fake, j) for j in range(len(fake))]
    inside = [[bool(distance[i, j] < of_real[i]) for j in range(len(fake))] for i in range(len(real))]
    return {
        "precision": np.mean([any(inside[i][j] for i in range(len(real))) for j in range(len(fake))]),
        "recall": np.mean([any(distance[i, j] < of_fake[j] for j in range(len(fake))) for i in range(len(real))]),
        "density": sum(map(sum, inside)) / (k * len(fake)),
        "coverage": np.mean([any(row) for row in inside]),
    }


@pytest.mark.parametrize("k", [1, 3])
def test_prdc_is_the_mean_over_classes_of_its_definition(k: int, capsys: pytest.CaptureFixture[str]):
    rng = np.random.default_rng(3)
    fake, real = rng.normal(size=(45, 4)), rng.normal(size=(55, 4)) + 0.6
    of_fake, of_real = np.arange(45) % 3, np.arange(55) % 3
    figures, classes, reason = prdc(fake, of_fake, real, of_real, k)
    expected = [prdc_by_hand(fake[of_fake == name], real[of_real == name], k) for name in range(3)]
    assert (classes, reason) == (3, None)
    for name in PRDC:
        assert figures[name] == pytest.approx(np.mean([one[name] for one in expected])), name
    assert capsys.readouterr().out == ""  # the library prints


def test_prdc_leaves_out_classes_that_are_too_small_and_says_so():
    rng = np.random.default_rng(4)
    fake, real = rng.normal(size=(9, 4)), rng.normal(size=(20, 4))
    of_fake, of_real = np.asarray([0] * 5 + [1] * 4), np.asarray([0] * 10 + [1] * 10)
    figures, classes, reason = prdc(fake, of_fake, real, of_real, 3)
    alone = prdc_by_hand(fake[:5], real[:10], 3)
    assert classes == 1 and reason is not None and "1 of 2 classes" in reason
    assert {name: figures[name] for name in PRDC} == pytest.approx(alone)
    nothing, classes, reason = prdc(fake[5:], of_fake[5:], real, of_real, 3)
    assert (set(nothing.values()), classes) == ({None}, 0) and reason is not None
