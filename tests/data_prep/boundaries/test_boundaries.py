"""``cprt boundaries``: loss and IDW against loops, bands by hand, the whole run at the paper's size, both pictures."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cprt.errors import InputError
from cprt.pages.colors import LEVEL_COLORS
from cprt.records import Label, write_jsonl
from cprt.scoring import severities
from cprt.taxonomy import Taxonomy
from data_prep.boundaries.bands import bands, idw
from data_prep.boundaries.embedding import embed, sample_triplets, train, triplet_loss
from data_prep.boundaries.options import BoundariesArguments
from data_prep.boundaries.plot import draw_embeddings, principal_axes, scores_of
from data_prep.boundaries.run import main
from data_prep.boundaries.vectors import Vectors, read_vectors

TAXONOMY = Taxonomy.default()
LEVEL_OF = np.array([attribute.level for attribute in TAXONOMY.attributes])
TABLE_1 = (2860, 1025, 1363, 1488)


def drawn(counts: tuple[int, ...] = TABLE_1, seed: int = 0) -> np.ndarray:
    """Attribute vectors of so many images a level: at least one attribute of it, some of the lower ones."""
    rng = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    for level, count in enumerate(counts, start=1):
        while count:
            x = (rng.random(len(LEVEL_OF)) < rng.choice([0.15, 0.35])) & (level <= LEVEL_OF)
            if (x & (level == LEVEL_OF)).any():
                rows.append(x)
                count -= 1
    return np.array(rows, dtype=float)[rng.permutation(len(rows))]


def vectors_of(x: np.ndarray) -> Vectors:
    distinct, counts = np.unique(x, axis=0, return_counts=True)
    return Vectors(distinct, severities(distinct)[0], counts)


def write_labels(path: Path, x: np.ndarray) -> Path:
    levels, scores = severities(x)
    write_jsonl(
        path,
        [
            Label(
                f"photo{i}",
                None,
                dict(zip(TAXONOMY.keys, map(float, row), strict=True)),
                int(level),
                float(score),
                None,
            )
            for i, (row, level, score) in enumerate(zip(x, levels, scores, strict=True))
        ],
    )
    return path


def with_attributes(*rows: str) -> np.ndarray:
    return np.array([[float(key in row.split()) for key in TAXONOMY.keys] for row in rows])


def run(folder: Path, x: np.ndarray, *options: str) -> dict[str, Any]:
    labels = write_labels(folder / "labels.jsonl", x)
    main(["--labels", str(labels), "--out", str(folder / "out"), "--seeds", "2", "--settings", "false", *options])
    return json.loads((folder / "out" / "boundaries.json").read_text())


# --- The loss ----------------------------------------------------------------------------------------------------


def test_the_loss_is_that_of_a_loop_over_triplets():
    import torch

    rng = np.random.default_rng(1)
    a, p, n = rng.normal(size=(3, 40, 5))
    a, p, n = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, p, n))
    gaps = rng.integers(1, 4, 40)

    def distance(u, v):
        return 1 - sum(x * y for x, y in zip(u, v, strict=True)) / (math.hypot(*u) * math.hypot(*v))

    terms = [max(0.0, distance(a[i], p[i]) - distance(a[i], n[i]) + 0.10 + 0.12 * abs(gaps[i])) for i in range(40)]
    assert 0 in terms  # the hinge is met on both sides
    loss = triplet_loss(*map(torch.tensor, (a, p, n, gaps)), base=0.10, beta=0.12)
    assert loss.item() == pytest.approx(sum(terms) / 40, abs=1e-12)


def test_the_loss_by_hand():
    import torch

    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    # Positive at distance 0, negative at 1, three levels apart: 0 - 1 + 0.10 + 0.36 < 0. Swapped: 1 + 0.46.
    assert triplet_loss(x, x, y, torch.tensor([3]), 0.10, 0.12).item() == 0
    assert triplet_loss(x, y, x, torch.tensor([3]), 0.10, 0.12).item() == pytest.approx(1.46)


def test_every_row_is_an_anchor_once_with_another_of_its_level_and_one_of_another():
    levels = np.array([4, 1, 1, 2, 4, 4, 1, 3])
    seen: dict[int, tuple[set[int], set[int]]] = {}
    for seed in range(200):
        anchors, positives, negatives = sample_triplets(levels, np.random.default_rng(seed))
        assert sorted(anchors) == [0, 1, 2, 4, 5, 6]  # rows 3 and 7 are alone in their level
        for a, p, n in zip(anchors, positives, negatives, strict=True):
            found = seen.setdefault(a, (set(), set()))
            found[0].add(p)
            found[1].add(n)
    for a, (positives, negatives) in seen.items():  # and every such row comes up
        assert positives == {i for i in range(8) if levels[i] == levels[a] and i != a}
        assert negatives == {i for i in range(8) if levels[i] != levels[a]}


def test_training_separates_the_levels_and_repeats_itself():
    vectors = vectors_of(drawn((60, 60, 60, 60)))
    args = BoundariesArguments(labels="", out="", epochs=12, batch_size=32, learning_rate=0.01, seed=3)
    matrix, losses = train(vectors, args)
    assert matrix.shape == (22, 16) and len(losses) == 12
    assert losses[-1] < losses[0] / 4
    again, losses_again = train(vectors, args)
    assert np.array_equal(matrix, again) and losses == losses_again
    args.seed = 4
    assert not np.array_equal(matrix, train(vectors, args)[0])


# --- IDW and bands -----------------------------------------------------------------------------------------------


def idw_by_loop(x: np.ndarray, z: np.ndarray, epsilon: float, power: float, neighbours: str) -> np.ndarray:
    """Row by row, straight from Eq. 5."""
    severity = (4 - severities(x)[0]) / 3
    scores = []
    for i in range(len(x)):
        above = below = 0.0
        for j in range(len(x)):
            if (neighbours == "others" and i == j) or (neighbours == "distinct" and (x[i] == x[j]).all()):
                continue
            weight = 1 / (math.dist(z[i], z[j]) ** power + epsilon)
            above, below = above + weight * severity[j], below + weight
        scores.append(above / below)
    return np.array(scores)


@pytest.mark.parametrize("neighbours", ["distinct", "others", "all"])
@pytest.mark.parametrize(("epsilon", "power"), [(1e-6, 2.0), (0.1, 2.0), (1e-3, 3.0)])
def test_idw_over_distinct_vectors_is_that_of_a_loop_over_rows(neighbours: str, epsilon: float, power: float):
    x = drawn((30, 20, 20, 30))
    vectors = vectors_of(x)
    assert len(vectors.x) < len(x)  # copies there are
    matrix = np.random.default_rng(2).normal(size=(22, 4))
    scores = idw(embed(vectors.x, matrix), vectors, epsilon, power, neighbours)
    by_loop = idw_by_loop(x, embed(x, matrix), epsilon, power, neighbours)
    position = {tuple(v): i for i, v in enumerate(vectors.x)}
    assert scores[[position[tuple(row)] for row in x]] == pytest.approx(by_loop, abs=1e-9)


def test_what_copies_at_distance_0_do():
    """Two rows of level 1 that are alike, a third that is not, one of level 4; corners of a square, by hand."""
    x = with_attributes("biometrics", "biometrics", "gov_ids", "metadata")
    vectors = vectors_of(x)
    corner = {"biometrics": (0.0, 0.0), "gov_ids": (0.0, 1.0), "metadata": (1.0, 0.0)}
    names = [TAXONOMY.keys[int(v.argmax())] for v in vectors.x]
    z = np.array([corner[name] for name in names])
    twice = names.index("biometrics")
    scores = {name: idw(z, vectors, 1e-9, 2.0, name)[twice] for name in ("distinct", "others", "all")}
    assert scores["distinct"] == pytest.approx(1 / 2)  # one neighbour of each level, both at distance 1
    assert scores["others"] == pytest.approx(1, abs=1e-8)  # its copy alone decides
    assert scores["all"] == pytest.approx(1, abs=1e-8)


def test_the_percentile_counts_rows_not_vectors():
    x = np.concatenate([np.repeat(with_attributes("biometrics"), 99, axis=0), with_attributes("gov_ids", "metadata")])
    vectors = vectors_of(x)
    names = [TAXONOMY.keys[int(v.argmax())] for v in vectors.x]
    scores = np.array([{"biometrics": 0.9, "gov_ids": 0.1, "metadata": 0.2}[name] for name in names])
    found = bands(scores, vectors, 5, TAXONOMY)
    assert found["1"]["lower"] == pytest.approx(0.9)  # 1 row in 100 lies below the 5th percentile
    assert bands(scores, vectors, 0, TAXONOMY)["1"]["lower"] == 0.1
    half_way = bands(scores, vectors, 100 / 99 / 2, TAXONOMY)["1"]["lower"]
    assert half_way == pytest.approx(0.5)  # between the first and the second row
    assert found["1"]["rows"] == 100 and found["1"]["distinct"] == 2 and found["1"]["median"] == 0.9
    assert found["1"]["difference"] == pytest.approx(0.9 - 0.711)
    assert set(found) == {"1", "4"}
    assert (found["4"]["lower"], found["4"]["percentile"]) == (0.0, 0.2)
    assert (found["1"]["upper"], found["4"]["upper"]) == (1.0, found["1"]["lower"])


def test_memory_stays_far_below_all_pairs():
    rng = np.random.default_rng(0)
    x = np.unique(rng.random((7200, 22)) < 0.4, axis=0)[:6736].astype(float)
    assert len(x) == 6736  # no two alike: the most that can be
    vectors = Vectors(x, severities(x)[0], np.ones(len(x), dtype=np.int64))
    z = embed(x, rng.normal(size=(22, 16)))
    tracemalloc.start()
    scores = idw(z, vectors, 1e-6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(scores).all()
    assert peak < 120e6 < 6736**2 * 8  # one matrix of all pairs takes 363 MB, with 16 coordinates 5.8 GB


# --- The command -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_papers_size_gives_ordered_bands_and_two_pictures(tmp_path: Path, capsys):
    result = run(tmp_path, drawn())
    found = result["bands"]
    assert [found[level]["rows"] for level in "1234"] == list(TABLE_1)
    assert result["ordered"] is True
    assert 1 > found["1"]["lower"] > found["2"]["lower"] > found["3"]["lower"] > found["4"]["lower"] == 0
    assert [found[level]["published_lower"] for level in "1234"] == [0.711, 0.514, 0.292, 0.0]
    assert [found[level]["upper"] for level in "1234"] == [1.0, *(found[level]["lower"] for level in "123")]
    assert len(result["loss"]) == 30 and result["loss"][-1] < 0.3 * result["loss"][0]
    assert result["rows"]["rows"] == result["rows"]["used"] == 6736 > result["rows"]["distinct"]
    assert list(result["attribute_embeddings"]) == list(TAXONOMY.keys)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    for name, value in {
        "neighbours": "distinct",
        "epsilon": 1e-6,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "batch_size": 256,
        "empty": "drop",
        "seed": 0,
        "dim": 16,
        "base_margin": 0.1,
        "beta": 0.12,
        "power": 2.0,
        "percentile": 5.0,
        "epochs": 30,
    }.items():
        assert record["config"][name] == value
    assert record["inputs"]["labels"]["sha256"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "boundaries.json",
        "embeddings.png",
        "run.json",
        "scores.png",
        "taxonomy.yaml",
    ]
    learnt = Taxonomy.load(tmp_path / "out" / "taxonomy.yaml")
    assert learnt.lower_bounds == pytest.approx([found[level]["lower"] for level in "1234"], abs=5e-4)
    for level, spread in result["spread"]["seeds"].items():
        assert len(spread["lower"]) == 2 and spread["lower"][0] == found[level]["lower"]
        assert spread["lowest"] == min(spread["lower"]) and spread["highest"] == max(spread["lower"])
    assert result["spread"]["neighbours"]["distinct"] == {level: band["lower"] for level, band in found.items()}
    assert set(result["spread"]["neighbours"]) == {"distinct", "others", "all"}
    for name in ("embeddings.png", "scores.png"):
        assert colors_in(tmp_path / "out" / name) >= set(range(4))
    said = capsys.readouterr()
    left = [line.rstrip("\r").rpartition("\r")[2] for line in said.err.split("\n")]  # what stays on a terminal
    assert "+0." in said.out and not any("interpolate" in line for line in left)  # a bar for each of many times


def test_each_choice_of_ours_is_changed_alone(tmp_path: Path, capsys):
    x = drawn((30, 30, 30, 30))
    result = run(tmp_path, x, "--epochs", "3", "--settings", "true", "--seeds", "1")
    each = result["spread"]["settings"]["1"]["lower"]
    changed = ["learning_rate 0.000333333", "learning_rate 0.003", "weight_decay 0", "weight_decay 0.1"]
    changed += ["batch_size 128", "batch_size 512", "epsilon 1e-08", "epsilon 0.0001"]
    assert list(each) == ["as chosen", *changed]
    for name in ("learning_rate 0.003", "epsilon 0.0001"):
        option, value = name.split()
        again = run(tmp_path, x, "--epochs", "3", f"--{option}", value)
        for level, band in again["bands"].items():
            assert result["spread"]["settings"][level]["lower"][name] == pytest.approx(band["lower"], abs=1e-12)
    spread = result["spread"]["settings"]["1"]
    assert (spread["lowest"], spread["highest"]) == (min(each.values()), max(each.values()))
    run(tmp_path, x, "--epochs", "3", "--settings", "true", "--seeds", "1")
    assert f"{spread['lowest']:.3f} to {spread['highest']:.3f}" in capsys.readouterr().out


def test_a_setting_that_cannot_be_changed_is_left_out(tmp_path: Path):
    """Half of a batch of one is no batch, ten times no decay is none."""
    options = ["--epochs", "1", "--settings", "true", "--seeds", "1", "--batch_size", "1", "--weight_decay", "0"]
    changed = run(tmp_path, drawn((6, 6, 6, 6)), *options)["spread"]["settings"]["1"]["lower"]
    assert [name for name in changed if "batch" in name or "decay" in name] == ["batch_size 2"]


def colors_in(path: Path) -> set[int]:
    """Which levels' colours a picture holds (points may be see-through, over white)."""
    with Image.open(path) as image:
        pixels = np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0).astype(float)
    found = set()
    for index, color in enumerate(LEVEL_COLORS):
        rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])
        found |= {index} if np.abs(pixels - rgb).max(axis=1).min() < 3 else set()
    return found


def test_with_itself_among_its_neighbours_every_row_has_its_own_severity(tmp_path: Path):
    found = run(tmp_path, drawn((40, 40, 40, 40)), "--neighbours", "all", "--epsilon", "1e-9", "--epochs", "5")["bands"]
    assert [found[level]["lower"] for level in "123"] == pytest.approx([1, 2 / 3, 1 / 3], abs=1e-4)


def test_the_same_seed_gives_the_same_file(tmp_path: Path):
    x = drawn((30, 30, 30, 30))
    first, second, other = (run(tmp_path, x, "--epochs", "3", "--seed", seed) for seed in "770")
    assert first == second != other


def test_rows_without_any_attribute_are_left_out_or_kept_as_level_4(tmp_path: Path, capsys):
    x = np.concatenate([drawn((20, 20, 20, 20)), np.zeros((7, 22))])
    dropped = run(tmp_path, x, "--epochs", "2")
    assert dropped["rows"]["without_attribute"] == 7 and dropped["rows"]["used"] == 80
    assert dropped["bands"]["4"]["rows"] == 20
    assert "7 rows without any attribute left out" in capsys.readouterr().out
    kept = run(tmp_path, x, "--epochs", "2", "--empty", "zero")
    assert kept["rows"]["used"] == 87 and kept["bands"]["4"]["rows"] == 27
    assert "7 rows without any attribute kept" in capsys.readouterr().out


def test_half_labels_count_as_absent(tmp_path: Path):
    x = with_attributes("age", "age", "metadata")
    x[:, 0] = 0.5  # biometrics
    vectors, report = read_vectors(write_labels(tmp_path / "labels.jsonl", x), TAXONOMY)
    assert sorted(vectors.levels) == [3, 4] and report["distinct"] == 2


def test_a_missing_level_has_no_band(tmp_path: Path, capsys):
    found = run(tmp_path, drawn((20, 0, 20, 20)), "--epochs", "2")["bands"]
    assert list(found) == ["1", "3", "4"]
    assert found["3"]["upper"] == found["1"]["lower"]
    assert "  2          0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (["age", "gender", "age lifestyle"], "all 3 rows used are of level 3: triplets need a second level"),
        (["age metadata"] * 5, "all 5 rows used have the same attributes"),
        (["", ""], "none of its 2 rows has an attribute"),
        (["age", "metadata"], "no level has two rows"),
    ],
)
def test_labels_that_cannot_be_told_apart_get_one_line(tmp_path: Path, rows: list[str], complaint: str):
    with pytest.raises(InputError, match="labels.jsonl: ") as caught:
        run(tmp_path, with_attributes(*rows))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_rows_without_labels_are_named(tmp_path: Path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "a", "level": 3, "score": 0.3}\n')
    with pytest.raises(InputError, match=r"labels.jsonl:1: field 'labels': is missing"):
        main(["--labels", str(path), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--epsilon", "0"], "epsilon must be at least 1e-100"),
        (["--learning_rate", "nan"], "'nan' is not a number"),
        (["--percentile", "101"], "percentile must be 0 to 100"),
        (["--neighbours", "none"], "none"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: list[str], complaint: str):
    with pytest.raises(InputError, match=complaint):
        run(tmp_path, drawn((5, 5, 5, 5)), *options)
    assert not (tmp_path / "out").exists()


# --- Pictures ----------------------------------------------------------------------------------------------------


def test_principal_axes_are_those_of_all_rows():
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(5)
    z, counts = rng.normal(size=(40, 6)) * [5, 3, 1, 1, 1, 1], rng.integers(1, 9, 40)
    coordinates, explained = principal_axes(z, counts)
    pca = PCA(2).fit(np.repeat(z, counts, axis=0))
    assert explained == pytest.approx(pca.explained_variance_ratio_.tolist())
    assert np.abs(coordinates) == pytest.approx(np.abs(pca.transform(z)), abs=1e-9)


def test_an_embedding_of_one_dimension_can_be_drawn(tmp_path: Path):
    shares = draw_embeddings(tmp_path / "a.png", np.array([[1.0], [-1.0]]), np.array([1, 4]), np.array([3, 2]))
    assert shares == pytest.approx([1.0])
    assert colors_in(tmp_path / "a.png") == {0, 3}


def test_all_combinations_stand_on_one_rising_curve():
    counts = np.array([(a, b, c, d) for a in range(4) for b in range(11) for c in range(6) for d in range(5)])
    lexicographic, levels, scores = scores_of(counts, TAXONOMY)
    assert len(counts) == 1320 and sorted(lexicographic) == list(range(1320))  # every sum once
    assert np.bincount(levels).tolist() == [0, 990, 300, 25, 5]
    assert (np.diff(scores[np.argsort(lexicographic)])[1:] > 0).all()
    row = {tuple(c): (x, round(float(s), 3)) for c, x, s in zip(counts.tolist(), lexicographic, scores, strict=True)}
    assert row[2, 10, 5, 4] == (989, 0.947) and row[1, 10, 0, 0] == (630, 0.870)  # A.6
