"""What is drawn, and what depends on what."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from collection import ID, describe, make
from hypothesis import given
from hypothesis import strategies as st

from eval.model_inversion.collection.setups import Setup, read_setups
from eval.model_inversion.judge.queries import Options, Query, arrangement, candidates, plan, rank


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("collection")
    return read_setups(describe(folder, make(folder, classes=4, references=8, images=5)))[1][0]


@given(st.sets(st.text(max_size=5)), st.text(max_size=3))
def test_a_rank_keeps_the_order_of_those_that_stay(items: set[str], place: str):
    ranked = rank(items, 1, place)
    assert sorted(ranked) == sorted(items) and rank([*items][::-1], 1, place) == ranked
    for gone in items:
        assert rank(items - {gone}, 1, place) == [item for item in ranked if item != gone]


def test_ranks_are_uniform():
    first = Counter(rank("abcd", 0, "file", number)[0] for number in range(4000))
    assert all(900 < first[item] < 1100 for item in "abcd")  # 1,000 expected, standard deviation 27


def test_a_draw_depends_on_seed_setup_class_and_file_alone(setup: Setup):
    """Fault 9: references were drawn from a running generator."""
    queries = plan(setup, 0, Options())
    fewer = dataclasses.replace(setup, reconstructions=setup.reconstructions[::3], id="moved")
    draws = {query.file: candidates(query, setup, 0)[:4] for query in queries}
    for query in plan(fewer, 7, Options()):
        if query.kind == "reconstruction":
            assert candidates(query, fewer, 0)[:4] == draws[query.file]
    query = queries[0]
    others = [dataclasses.replace(query, source="other"), dataclasses.replace(query, file="other")]
    drawn = {tuple(candidates(query, setup, seed)[:4]) for seed in range(20)}
    assert len(drawn) > 10 and all(candidates(other, setup, 0) != candidates(query, setup, 0) for other in others)
    # One reference more changes at most one of those drawn, and n = 2 shows the first two of n = 4.
    more = dataclasses.replace(setup, references={**setup.references, "0": (*setup.references["0"], "x/new.png")})
    for seed in range(30):
        before, after = set(candidates(query, setup, seed)[:4]), set(candidates(query, more, seed)[:4])
        assert len(before - after) == len(after - before) <= 1


def test_order_and_side_are_permuted_by_their_own_seed(setup: Setup):
    query = plan(setup, 0, Options())[0]
    drawn = candidates(query, setup, 0)[:4]
    assert arrangement(query, drawn, None) == (drawn, True)
    shown = [arrangement(query, drawn, seed) for seed in range(60)]
    assert shown == [arrangement(query, drawn[::-1], seed) for seed in range(60)]
    assert all(sorted(order) == sorted(drawn) for order, _ in shown) and len({tuple(order) for order, _ in shown}) > 15
    assert 15 < sum(a_first for _, a_first in shown) < 45
    assert Options().order_seed is None


# --- Controls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5, 32, 96, 500])
def test_controls_are_what_they_say(setup: Setup, count: int):
    queries = plan(setup, count, Options(seed=3))
    positive, negative = ([query for query in queries if query.kind == kind] for kind in ("positive", "negative"))
    assert len(positive) == min(count, 4 * 8) and len(negative) == min(count, 4 * 3 * 8)
    assert len(set(queries)) == len(queries)
    for query in positive:
        assert query.path in setup.references[query.claims] and query.path not in candidates(query, setup, 3)
        assert query.file == f"{query.claims}/{Path(query.path).name}" and query.setup == ID
    for query in negative:
        shown = query.file.split("/")[0]
        assert shown != query.claims and query.path in setup.references[shown]
        assert set(candidates(query, setup, 3)) == set(setup.references[query.claims])
    for kind in (positive, negative):
        spread = Counter(query.claims for query in kind)
        assert not spread or max(spread.values()) - min(spread.get(c, 0) for c in setup.references) <= 1
    fewer = plan(setup, max(count - 1, 0), Options(seed=3))
    assert [q for q in queries if q in fewer] == fewer


def test_setups_with_the_same_private_data_share_their_controls(setup: Setup):
    other = dataclasses.replace(setup, id="other", name="CelebA/PPA/FFHQ/VGG16", reconstructions=())
    assert [dataclasses.replace(query, setup=ID) for query in plan(other, 9, Options())] == [
        query for query in plan(setup, 9, Options()) if query.kind != "reconstruction"
    ]


def test_small_collections_have_the_controls_they_can_have(setup: Setup):
    one = dataclasses.replace(setup, references={"0": setup.references["0"]})
    assert Counter(query.kind for query in plan(one, 9, Options())) == {"reconstruction": 20, "positive": 8}
    single = dataclasses.replace(setup, references={"0": ("a/0.png",), "1": (), "2": ("c/0.png",)})
    kinds = Counter(query.kind for query in plan(single, 9, Options()))
    assert kinds == {"reconstruction": 20}  # one reference is not four
    kinds = Counter(query.kind for query in plan(single, 9, Options(n=1)))
    assert kinds == {"reconstruction": 20, "negative": 2}
    assert Query(ID, "negative", "CelebA", "0", "2/0.png", "c/0.png") not in plan(one, 9, Options())


@pytest.mark.parametrize(
    ("options", "positive", "negative"),
    [
        # Classes have 1, 2, 4, 5 and 8 images: a positive pair takes one image beside its references.
        (Options(n=4), {"5", "8"}, {"4", "5", "8"}),
        (Options(n=5), {"8"}, {"5", "8"}),
        (Options(n=1), {"2", "4", "5", "8"}, {"1", "2", "4", "5", "8"}),
        (Options(n=4, pad=True), {"2", "4", "5", "8"}, {"1", "2", "4", "5", "8"}),
    ],
)
def test_only_controls_that_can_be_shown_are_planned(
    setup: Setup, options: Options, positive: set[str], negative: set[str]
):
    references = {str(size): tuple(f"{size}/{number}.png" for number in range(size)) for size in (1, 2, 4, 5, 8)}
    queries = plan(dataclasses.replace(setup, references=references), 100, options)
    assert {query.claims for query in queries if query.kind == "positive"} == positive
    assert {query.claims for query in queries if query.kind == "negative"} == negative
    for query in queries:
        if query.kind != "reconstruction":
            beside = set(references[query.claims]) - {query.path}
            assert len(beside) >= options.least


def test_a_limit_is_spread_over_the_classes_and_a_larger_one_adds_to_it(setup: Setup):
    """4 classes of 5: of 6 every class has one or two, in the order of the set-up."""
    drawn = {}
    for limit in (6, 11, 99, None):
        queries = [query for query in plan(setup, 3, Options(), limit) if not query.is_control]
        drawn[limit] = [query.path for query in queries]
        if limit == 6:
            assert sorted(Counter(query.claims for query in queries).values()) == [1, 1, 2, 2]
    everything = [image.path for image in setup.reconstructions]
    assert drawn[99] == drawn[None] == everything and set(drawn[6]) < set(drawn[11]) and len(drawn[11]) == 11
    assert drawn[11] == [path for path in everything if path in drawn[11]]
