"""Agreement against scikit-learn, brute force, published examples and cases worked by hand."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from cprt.metrics.agreement import (
    MISSING,
    alpha_of_terms,
    alpha_terms,
    checked,
    consensus_terms,
    kappa_of_tables,
    majority,
    measure,
    pair_terms,
)
from cprt.metrics.bootstrap import defined, divide
from cprt.taxonomy import Taxonomy

TAXONOMY = Taxonomy.default()
KEYS = list(TAXONOMY.keys)
answer = st.sampled_from([0, 1, MISSING])


def of(*texts: str) -> np.ndarray:
    """One annotator a text, one item a character: 0, 1, or a dot for a missing answer."""
    return np.array([[MISSING if char == "." else int(char) for char in text.replace(" ", "")] for text in texts])


def drawn(raters: int, images: int, seed: int = 0, missing: float = 0.3) -> np.ndarray:
    """(R, N, 22) noisy answers about one truth, some annotators absent from some images."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, 22)) < rng.uniform(0.05, 0.6, 22)
    values = (truth ^ (rng.random((raters, images, 22)) < rng.uniform(0.02, 0.3, (raters, 1, 1)))).astype(int)
    values[rng.random((raters, images)) < missing] = MISSING
    values[rng.random(values.shape) < missing / 10] = MISSING
    return values


def cohen_kappa(first, second) -> float | None:
    return defined(kappa_of_tables(pair_terms(checked(first), checked(second)).reshape(-1, 4).sum(axis=0)))


def krippendorff_alpha(answers) -> float | None:
    return defined(alpha_of_terms(alpha_terms(checked(answers)).reshape(-1, 3).sum(axis=0)))


def strict_consensus(answers) -> float | None:
    return defined(divide(*consensus_terms(checked(answers)).reshape(-1, 2).sum(axis=0)))


# --- Cohen's kappa -----------------------------------------------------------------------------------------------


def test_kappa_by_hand():
    # 20 times both 1, 5 times 1 and 0, 10 times 0 and 1, 15 times both 0: observed 0.7, expected 0.5.
    first, second = [1] * 25 + [0] * 25, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    assert cohen_kappa([0, 1], [1, 0]) == -1
    assert cohen_kappa([0, 1], [0, 1]) == 1
    assert cohen_kappa([1, 1], [0, 0]) == 0  # nothing observed, nothing expected


@given(st.lists(st.tuples(answer, answer), max_size=25))
def test_kappa_equals_scikit_learn(rows: list[tuple[int, int]]):
    first, second = np.array(rows, dtype=int).reshape(-1, 2).T
    both = (first != MISSING) & (second != MISSING)
    used = set(first[both]), set(second[both])
    if not both.any() or (used[0] == used[1] and len(used[0]) == 1):
        assert cohen_kappa(first, second) is None
    else:
        assert cohen_kappa(first, second) == pytest.approx(cohen_kappa_score(first[both], second[both]), abs=1e-12)


# --- Krippendorff's alpha ----------------------------------------------------------------------------------------


def alpha_by_coincidences(answers: np.ndarray) -> float | None:
    """Krippendorff (2011), step by step: the matrix of coincidences within units, then observed over expected."""
    coincidences: Counter[tuple[int, int]] = Counter()
    for unit in answers.reshape(len(answers), -1).T:
        values = [int(value) for value in unit if value != MISSING]
        for i, j in itertools.permutations(range(len(values)), 2):
            coincidences[values[i], values[j]] += 1 / (len(values) - 1)
    totals = [sum(count for (a, _), count in coincidences.items() if a == value) for value in (0, 1)]
    n = sum(totals)
    if 0 in totals:
        return None
    observed = (coincidences[0, 1] + coincidences[1, 0]) / n
    expected = 2 * totals[0] * totals[1] / (n * (n - 1))
    return 1 - observed / expected


def test_alpha_of_the_published_example():
    """Two observers, ten units, binary (Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011, B): 0.095.

    By hand: 4 units disagree; 14 zeros and 6 ones among 20 answers; 1 - 19 * 4 / (14 * 6) = 0.0952.
    """
    answers = of("0100000010", "1110010000")
    assert krippendorff_alpha(answers) == pytest.approx(1 - 19 * 4 / (14 * 6))
    assert round(krippendorff_alpha(answers), 3) == 0.095


def test_alpha_by_hand_with_missing_answers():
    # Units: 1 1 1; 1 1 0; 0 0; 0 1; a lone 1 that pairs with nothing. Zeros 4, ones 6.
    # Disagreement: 1 * 2 / 2 + 1 * 1 / 1 = 2. alpha = 1 - 9 * 2 / (4 * 6).
    assert krippendorff_alpha(of("1100.", "110.1", "10.1.")) == pytest.approx(1 - 9 * 2 / 24)


@given(st.lists(st.tuples(answer, answer, answer, answer), max_size=12))
def test_alpha_equals_brute_force(units: list[tuple[int, ...]]):
    answers = np.array(units, dtype=int).reshape(-1, 4).T
    expected = alpha_by_coincidences(answers)
    assert krippendorff_alpha(answers) == (None if expected is None else pytest.approx(expected, abs=1e-12))


# --- Consensus and majority --------------------------------------------------------------------------------------


def test_consensus_is_strict():
    # Agreed: 1 1 1 and 0 0 (one absent). Not: 1 1 0, 0 1. A lone answer and no answer do not count.
    assert strict_consensus(of("1100..", "11..1.", "1001..")) == 2 / 4
    assert strict_consensus(of("10", "..")) is None
    assert strict_consensus(of("10")) is None


def test_majority_takes_ties_for_0():
    assert majority(of("11100.", "110.1.", "10.1..")).tolist() == [1, 1, 0, 0, 0, MISSING]
    assert majority(of("1", "0", "1")).tolist() == [1]
    assert majority(np.zeros((0, 3), dtype=int)).tolist() == [MISSING] * 3


# --- The report --------------------------------------------------------------------------------------------------


def test_a_small_report_by_hand():
    """Two images, age (level 3) and metadata (level 4) answered, all else empty."""
    values = np.full((4, 2, 22), MISSING)
    age, metadata = KEYS.index("age"), KEYS.index("metadata")
    #                       image 1      image 2: age, metadata
    for row, answers in enumerate(
        [
            ((1, 0), (1, 1)),  # ann
            ((1, 0), (0, 1)),  # bob: the age of image 2 is a tie, so 0
            ((1, 1), (1, 1)),  # vlm
            ((0, 1), (1, 0)),
        ]
    ):  # other
        values[row][:, [age, metadata]] = answers
    found = measure(values, ["ann", "bob", "vlm", "other"], ["human", "human", "model", "model"], TAXONOMY)
    humans = found["human_human"]
    assert (humans["overall"]["n"], humans["overall"]["agreement"]) == (4, 0.75)
    assert humans["overall"]["kappa"] == pytest.approx(cohen_kappa_score([1, 0, 1, 1], [1, 0, 0, 1]))
    assert humans["levels"]["3"]["agreement"] == 0.5 and humans["levels"]["4"]["agreement"] == 1
    assert humans["levels"]["1"] == {
        "n": 0,
        "agreement": None,
        "pairwise_agreement": None,
        "kappa": None,
        "alpha": None,
        "ci": dict.fromkeys(("agreement", "pairwise_agreement", "kappa", "alpha")),
    }
    # Majority: 1 0 / 0 1. vlm says 1 1 / 1 1, other 0 1 / 1 0.
    vlm, other = (found["model_human"]["models"][name] for name in ("vlm", "other"))
    assert (vlm["overall"]["agreement"], vlm["overall"]["kappa"]) == (0.5, 0.0)
    assert (vlm["overall"]["over_rate"], vlm["overall"]["under_rate"]) == (1.0, 0.0)
    assert vlm["overall"]["signed_difference"] == 0.5
    assert (other["overall"]["agreement"], other["overall"]["kappa"]) == (0.0, -1.0)
    assert (other["overall"]["over_rate"], other["overall"]["under_rate"]) == (1.0, 1.0)
    assert other["overall"]["signed_difference"] == 0
    assert other["levels"]["3"]["signed_difference"] == 0
    assert other["attributes"]["age"]["over_rate"] == 1.0
    pooled = found["model_human"]["pooled"]["overall"]
    assert (pooled["n"], pooled["agreement"], pooled["signed_difference"]) == (8, 0.25, 0.25)
    assert (pooled["over_rate"], pooled["under_rate"]) == (1.0, 0.5)
    models = found["model_model"]
    assert models["pairs"][0]["annotators"] == ["vlm", "other"]
    assert models["pooled"]["overall"]["agreement"] == models["pairs"][0]["overall"]["agreement"] == 0.5
    assert [pair["annotators"] for pair in found["pairs"]] == [
        list(pair) for pair in itertools.combinations(["ann", "bob", "vlm", "other"], 2)
    ]
    json.dumps(found, allow_nan=False)


@pytest.fixture(scope="module")
def survey() -> tuple[np.ndarray, list[str], list[str]]:
    """Five people and three models on 40 images, with gaps."""
    kinds = ["human"] * 5 + ["model"] * 3
    return drawn(8, 40), [f"{kind}{i}" for i, kind in enumerate(kinds)], kinds


def parts(values: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """The items of every part of the report: (..., N, its attributes)."""
    found = {("overall", ""): values}
    for level in (1, 2, 3, 4):
        found["levels", str(level)] = values[..., [a.level == level for a in TAXONOMY.attributes]]
    return found | {("attributes", key): values[..., [i]] for i, key in enumerate(KEYS)}


def entry(report: dict, part: tuple[str, str]) -> dict:
    return report[part[0]][part[1]] if part[1] else report[part[0]]


def same(value: float | None):
    return None if value is None else pytest.approx(value, abs=1e-12)


def test_every_part_is_the_figure_of_its_items(survey):
    values, names, kinds = survey
    found = measure(values, names, kinds, TAXONOMY, resamples=0)
    vote = majority(values[:5])
    for part, items in parts(values).items():
        humans = items[:5]
        row = entry(found["human_human"], part)
        assert row["agreement"] == same(strict_consensus(humans))
        assert row["alpha"] == same(krippendorff_alpha(humans))
        assert row["n"] == ((humans != MISSING).sum(axis=0) >= 2).sum()
        for name, chosen in (("humans", items[:5]), ("models", items[5:]), ("all", items)):
            assert entry(found["alpha"][name], part)["alpha"] == same(krippendorff_alpha(chosen))
        for i, name in enumerate(names[5:], start=5):
            row, truth = entry(found["model_human"]["models"][name], part), parts(vote)[part]
            both = (items[i] != MISSING) & (truth != MISSING)
            model, human = items[i][both], truth[both]
            assert row["n"] == both.sum()
            assert row["kappa"] == same(cohen_kappa(model, human))
            assert row["agreement"] == same((model == human).mean())
            assert row["over_rate"] == (same((model[human == 0] == 1).mean()) if (human == 0).any() else None)
            assert row["under_rate"] == (same((model[human == 1] == 0).mean()) if (human == 1).any() else None)
            assert row["signed_difference"] == same((model - human).mean())
        for (i, j), row in zip(itertools.combinations(range(8), 2), found["pairs"], strict=True):
            assert row["annotators"] == [names[i], names[j]] and row["kinds"] == [kinds[i], kinds[j]]
            assert entry(row, part)["kappa"] == same(cohen_kappa(items[i], items[j]))
    assert all(row["overall"]["ci"] == {"agreement": None, "kappa": None} for row in found["pairs"])


def test_kappa_of_several_pairs_is_congers_where_everybody_answered_everything():
    values = drawn(4, 30, missing=0)
    flat = values.reshape(4, -1)
    pairs = list(itertools.combinations(range(4), 2))
    observed = np.mean([(flat[i] == flat[j]).mean() for i, j in pairs])
    expected = np.mean([sum((flat[i] == c).mean() * (flat[j] == c).mean() for c in (0, 1)) for i, j in pairs])
    found = measure(values, list("abcd"), ["human"] * 4, TAXONOMY, resamples=0)["human_human"]["overall"]
    assert found["kappa"] == pytest.approx((observed - expected) / (1 - expected))
    assert found["pairwise_agreement"] == pytest.approx(observed)
    assert found["agreement"] < observed  # strict consensus of four asks for more


def test_kappa_survives_pairs_that_share_one_image():
    """Many people, two to an image, as in the paper's study: the mean of all pairs' kappas would say nothing."""
    rng = np.random.default_rng(0)
    values = np.full((17, 65, 22), MISSING)
    truth = rng.random((65, 22)) < 0.4
    for image in range(65):
        for person in rng.choice(17, 2, replace=False):
            values[person, image] = truth[image] ^ (rng.random(22) < 0.05)
    found = measure(values, [f"p{i}" for i in range(17)], ["human"] * 17, TAXONOMY, resamples=0)["human_human"]
    assert found["overall"]["kappa"] == pytest.approx(found["overall"]["alpha"], abs=0.01)
    for row in found["attributes"].values():
        assert row["kappa"] == pytest.approx(row["alpha"], abs=0.15)
    alone = [cohen_kappa(values[i, :, 0], values[j, :, 0]) for i, j in itertools.combinations(range(17), 2)]
    assert np.mean([kappa for kappa in alone if kappa is not None]) < 0.5 < 0.7 < found["attributes"][KEYS[0]]["kappa"]


def test_the_order_of_annotators_and_images_does_not_matter(survey):
    values, names, kinds = survey
    order, shuffle = np.random.default_rng(1).permutation(8), np.random.default_rng(2).permutation(40)
    first = measure(values, names, kinds, TAXONOMY, resamples=0)
    second = measure(
        values[order][:, shuffle], [names[i] for i in order], [kinds[i] for i in order], TAXONOMY, resamples=0
    )
    for a, b in ((first[group], second[group]) for group in ("human_human", "model_human", "model_model")):
        a, b = a.get("pooled", a), b.get("pooled", b)
        for part in parts(values):
            for figure, value in entry(a, part).items():
                assert figure == "ci" or entry(b, part)[figure] == same(value)


def test_intervals_are_percentiles_over_resampled_images(survey):
    """Drawn again by hand: images that a comparison has, as often as the seed says, with all their annotators."""
    values, names, kinds = survey
    values = values.copy()
    values[:5, ::4] = MISSING  # images without people, which a comparison with people does not draw
    found = measure(values, names, kinds, TAXONOMY, resamples=150, seed=9)
    humans = values[:5][:, ((values[:5] != MISSING).sum(axis=0) >= 2).any(axis=1)]
    samples = [
        humans[:, rows] for rows in np.random.default_rng(9).integers(humans.shape[1], size=(150, humans.shape[1]))
    ]
    for name, figure in (("agreement", strict_consensus), ("alpha", krippendorff_alpha)):
        wanted = np.percentile([figure(sample) for sample in samples], [2.5, 97.5])
        assert found["human_human"]["overall"]["ci"][name] == pytest.approx(wanted.tolist())
    low, high = found["human_human"]["overall"]["ci"]["kappa"]
    assert low < found["human_human"]["overall"]["kappa"] < high

    both = np.stack([values[5], majority(values[:5])])
    both = both[:, ((both != MISSING).all(axis=0)).any(axis=1)]
    drawn = np.random.default_rng(9).integers(both.shape[1], size=(150, both.shape[1]))
    kappas = [cohen_kappa(*both[:, rows, :3]) for rows in drawn]
    wanted = np.percentile(kappas, [2.5, 97.5]).tolist()
    assert found["model_human"]["models"]["model5"]["levels"]["1"]["ci"]["kappa"] == pytest.approx(wanted)


def test_intervals_repeat_with_the_seed(survey):
    reports = [measure(*survey, TAXONOMY, resamples=50, seed=seed) for seed in (0, 0, 1)]
    assert reports[0] == reports[1]
    assert reports[0]["human_human"]["overall"]["ci"] != reports[2]["human_human"]["overall"]["ci"]
    assert reports[0]["ci_method"] == {
        "confidence": 0.95,
        "bootstrap": "percentile, over images",
        "resamples": 50,
        "seed": 0,
    }


def test_a_figure_that_is_often_undefined_has_no_interval():
    """One of ten images has the attribute: it is not drawn in a third of the resamples."""
    values = np.zeros((2, 10, 22), dtype=int)
    values[:, 0, 0] = 1
    found = measure(values, ["a", "b"], ["human"] * 2, TAXONOMY)["human_human"]["attributes"][KEYS[0]]
    assert (found["kappa"], found["ci"]["kappa"]) == (1.0, None)
    assert (found["agreement"], found["ci"]["agreement"]) == (1.0, None)  # whatever is drawn: that is not certain


@pytest.mark.parametrize(
    ("kinds", "undefined"),
    [
        (["human"], ["human_human", "model_human", "model_model"]),
        (["model"], ["human_human", "model_human", "model_model"]),
        (["human", "model"], ["human_human", "model_model"]),
        (["human", "human"], ["model_human", "model_model"]),
        (["model", "model"], ["human_human", "model_human"]),
    ],
)
def test_what_has_nobody_to_compare_is_undefined(kinds: list[str], undefined: list[str]):
    found = measure(drawn(len(kinds), 6, missing=0), ["a", "b"][: len(kinds)], kinds, TAXONOMY, resamples=20)
    for name in ("human_human", "model_human", "model_model"):
        overall = found[name].get("pooled", found[name])["overall"]
        assert (overall["n"] == 0) == (name in undefined)
        for figure in ("agreement", "kappa"):
            assert (overall[figure] is None) == (overall["ci"][figure] is None) == (name in undefined)


def test_no_common_image_and_constants_are_undefined():
    values = drawn(2, 6, missing=0)
    values[0, :3], values[1, 3:] = MISSING, MISSING
    apart = measure(values, ["a", "b"], ["human", "model"], TAXONOMY, resamples=20)
    assert apart["pairs"][0]["overall"] == {
        "n": 0,
        "agreement": None,
        "kappa": None,
        "ci": {"agreement": None, "kappa": None},
    }
    constant = measure(np.zeros((2, 6, 22), dtype=int), ["a", "b"], ["human"] * 2, TAXONOMY, resamples=20)
    overall = constant["human_human"]["overall"]
    assert (overall["agreement"], overall["kappa"], overall["alpha"]) == (1.0, None, None)


def test_arguments_that_do_not_fit_are_refused():
    values = drawn(2, 4)
    with pytest.raises(ValueError, match="answers of 3 annotators"):
        measure(values, list("abc"), ["human"] * 3, TAXONOMY)
    with pytest.raises(ValueError, match="kinds are human or model"):
        measure(values, list("ab"), ["human", "robot"], TAXONOMY)
    for wrong in (0.5, 2):
        with pytest.raises(ValueError, match="answers must be 0, 1 or -1"):
            cohen_kappa([0, wrong], [0, 1])
    with pytest.raises(ValueError, match="one shape"):
        cohen_kappa([0, 1, 1], [0, 1])
