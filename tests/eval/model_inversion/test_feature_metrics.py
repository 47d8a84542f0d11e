"""Distances, FID and PRDC against other libraries and against their definitions, written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.neighbors import NearestNeighbors

from eval.model_inversion.standard.features import (
    EVALUATION_MODEL,
    LITERATURE,
    PRDC,
    Features,
    frechet_distance,
    nearest_squared,
    nearness,
    prdc,
)


def test_the_nearest_private_image_is_sought_within_the_class_and_class_0_is_a_class():
    rng = np.random.default_rng(0)
    fake, real = rng.normal(size=(40, 7)), rng.normal(size=(60, 7))
    of_fake, of_real = rng.integers(0, 4, 40), rng.integers(0, 3, 60)  # nothing real of class 3
    found = nearest_squared(Features(fake, of_fake), Features(real, of_real))
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
    assert frechet_distance(fake, real) == pytest.approx(by_hand, rel=1e-9)
    assert frechet_distance(real, real) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("n_fake", "n_real"), [(6, 90), (90, 6), (4, 5)])
def test_fid_of_fewer_images_than_features_is_that_of_the_limit(n_fake: int, n_real: int):
    """pytorch-fid adds a little to singular covariances; here the trace of the root is exact."""
    rng = np.random.default_rng(2)
    fake, real = rng.normal(size=(n_fake, 8)), rng.normal(size=(n_real, 8)) + 1
    a, b = (np.cov(side, rowvar=False) + 1e-9 * np.eye(8) for side in (fake, real))
    values, vectors = np.linalg.eigh(a)
    root = vectors @ np.diag(values.clip(0) ** 0.5) @ vectors.T
    trace = np.sqrt(np.linalg.eigvalsh(root @ b @ root).clip(0)).sum()
    by_hand = ((fake.mean(0) - real.mean(0)) ** 2).sum() + np.trace(a + b) - 2 * trace
    assert frechet_distance(fake, real) == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize(("n_fake", "n_real"), [(6, 90), (90, 6), (1, 1)])
def test_few_images_make_no_fid_of_e_and_a_noted_one_of_the_literature(n_fake: int, n_real: int):
    rng = np.random.default_rng(2)
    fake, real = rng.normal(size=(n_fake, 6)), rng.normal(size=(n_real, 6))
    sides = Features(fake, np.zeros(n_fake)), Features(real, np.zeros(n_real))
    by_e, by_literature = (nearness(*sides, convention, 3) for convention in (EVALUATION_MODEL, LITERATURE))
    assert by_e["fid"] is None
    assert by_literature["fid"] == (None if n_fake == 1 else pytest.approx(frechet_distance(fake, real)))
    for found in (by_e, by_literature):
        assert any(
            f"{n_fake} reconstructions" in note and "more images than features" in note for note in found["notes"]
        )


@pytest.mark.parametrize("convention", [EVALUATION_MODEL, LITERATURE])
def test_only_attacked_classes_count_and_class_0_is_one_of_them(convention: str):
    rng = np.random.default_rng(5)
    fake, real = rng.normal(size=(40, 3)), rng.normal(size=(90, 3))
    of_fake, of_real = np.arange(40) % 2, np.arange(90) % 3  # class 2 is not attacked
    found = nearness(Features(fake, of_fake), Features(real + 100 * (of_real == 2)[:, None], of_real), convention, 3)
    kept = real[of_real < 2]
    assert found["fid"] == pytest.approx(frechet_distance(fake, kept))
    assert (found["images"], found["private_images"], found["prdc_classes"], found["notes"]) == (40, 60, 2, [])
    zero = nearness(Features(fake[of_fake == 0], np.zeros(20)), Features(real, of_real), convention, 3)
    assert zero["fid"] == pytest.approx(frechet_distance(fake[of_fake == 0], real[of_real == 0]))
    assert zero["convention"] == convention


def ppa_by_hand(fake: np.ndarray, real: np.ndarray, k: int) -> dict[str, float]:
    """As PPA's evaluation, with loops: the nearest image of the other side decides, and a mean over real images."""

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(((a - b) ** 2).sum()))

    def radius(points: np.ndarray, i: int) -> float:
        return sorted(distance(points[i], other) for other in points)[k]  # the first is itself

    def within(one: np.ndarray, others: np.ndarray) -> bool:
        nearest = min(range(len(others)), key=lambda j: distance(one, others[j]))
        return distance(one, others[nearest]) <= radius(others, nearest)

    inside = [[distance(f, r) <= radius(real, i) for f in fake] for i, r in enumerate(real)]
    return {
        "precision": np.mean([within(f, real) for f in fake]),
        "recall": np.mean([within(r, fake) for r in real]),
        "density": np.mean([sum(row) for row in inside]) / k,
        "coverage": np.mean([any(row) for row in inside]),
    }


def test_prdc_of_the_literature_is_ppas():
    rng = np.random.default_rng(6)
    fake, real = rng.normal(size=(45, 4)), 0.7 * rng.normal(size=(70, 4)) + 0.3
    of_fake, of_real = np.arange(45) % 3, np.arange(70) % 3
    figures, classes, _ = prdc(Features(fake, of_fake), Features(real, of_real), 3, LITERATURE)
    expected = [ppa_by_hand(fake[of_fake == name], real[of_real == name], 3) for name in range(3)]
    for name in PRDC:
        assert figures[name] == pytest.approx(np.mean([one[name] for one in expected])), name
    other, _, _ = prdc(Features(fake, of_fake), Features(real, of_real), 3, EVALUATION_MODEL)
    assert classes == 3 and all(figures[name] != other[name] for name in ("precision", "recall", "density"))


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
    figures, classes, reason = prdc(Features(fake, of_fake), Features(real, of_real), k)
    expected = [prdc_by_hand(fake[of_fake == name], real[of_real == name], k) for name in range(3)]
    assert (classes, reason) == (3, None)
    for name in PRDC:
        assert figures[name] == pytest.approx(np.mean([one[name] for one in expected])), name
    assert capsys.readouterr().out == ""  # the library prints


def test_prdc_leaves_out_classes_that_are_too_small_and_says_so():
    rng = np.random.default_rng(4)
    fake, real = rng.normal(size=(9, 4)), rng.normal(size=(20, 4))
    of_fake, of_real = np.asarray([0] * 5 + [1] * 4), np.asarray([0] * 10 + [1] * 10)
    figures, classes, reason = prdc(Features(fake, of_fake), Features(real, of_real), 3)
    alone = prdc_by_hand(fake[:5], real[:10], 3)
    assert classes == 1 and reason is not None and "1 of 2 classes" in reason
    assert {name: figures[name] for name in PRDC} == pytest.approx(alone)
    nothing, classes, reason = prdc(Features(fake[5:], of_fake[5:]), Features(real, of_real), 3)
    assert (set(nothing.values()), classes) == ({None}, 0) and reason is not None
