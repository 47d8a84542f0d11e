"""``cprt pairs``: a balanced, seeded training set and a disjoint hold-out, with answers that read back."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cprt.answers import parse
from cprt.errors import InputError
from cprt.files import locked
from cprt.prompts import build
from cprt.records import Label, read_labels, read_pairs, write_jsonl
from cprt.scoring import format_score, severities, severity
from cprt.taxonomy import LEVELS, Taxonomy
from data_prep.pairs.run import main
from data_prep.pairs.split import draw_balanced, draw_holdout, equal, proportional

TAXONOMY = Taxonomy.default()


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A hundred tiny photos; level 2 has only six."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    labels = []
    for number in range(100):
        level = 2 if number < 6 else (1, 3, 4)[number % 3]
        row = {a.key: float(a.level >= level and rng.random() < 0.4) for a in TAXONOMY.attributes}
        row[next(a.key for a in TAXONOMY.attributes if a.level == level)] = 1.0
        (levels, scores) = severities([list(row.values())])
        photo = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((64, 48))
        photo.save(tmp_path / "images" / f"{number}.png")
        labels.append(Label(str(number), f"images/{number}.png", row, int(levels[0]), float(scores[0]), "test"))
    write_jsonl(tmp_path / "labels.jsonl", labels)
    return tmp_path


def pairs_of(folder: Path, *options: str, name: str = "pairs") -> tuple[list, list]:
    out = folder / name
    main(["--labels", str(folder / "labels.jsonl"), "--images", str(folder), "--out", str(out), *options])
    holdout = out / "holdout.jsonl"
    return read_pairs(out / "train.jsonl"), read_pairs(holdout) if holdout.stat().st_size else []


@pytest.mark.parametrize("target", ["score", "attributes"])
def test_every_pair_asks_the_evaluation_prompt_and_answers_the_truth(labelled: Path, target: str):
    train, holdout = pairs_of(labelled, "--target", target, "--size", "40")
    labels = {label.id: label for label in read_labels(labelled / "labels.jsonl")}
    assert len(train) == 40 and len(holdout) == 20
    of_holdout = read_labels(labelled / "pairs" / "holdout_labels.jsonl")  # for cprt eval, to ask about it
    assert of_holdout == [labels[id] for id in sorted(pair.id for pair in holdout)]  # not by level: --limit takes some
    for pair in train + holdout:
        label = labels[pair.id]
        assert pair.prompt == build("taxonomy", target).messages()
        answer = parse(pair.completion[0]["content"][0]["text"])
        assert answer.status == "ok"
        assert (answer.level, answer.score) == (label.level, float(format_score(label.score)))
        if target == "attributes":
            assert list(answer.attributes) == label.present(TAXONOMY)
            assert answer.stated_level == label.level
        assert (pair.level, pair.score, pair.images) == (label.level, label.score, [label.image])


def test_mixed_pairs_are_asked_each_as_its_own_target(labelled: Path, capsys):
    mixed = ("--target", "mixed", "--size", "40")
    train, holdout = pairs_of(labelled, *mixed, "--shares", "0.25", "0.75")
    both = {
        target: {pair.id: pair for pair in pairs_of(labelled, "--target", target, "--size", "40", name=target)[0]}
        for target in ("score", "attributes")
    }
    asked = {target: [pair for pair in train if pair == both[target][pair.id]] for target in both}
    assert [len(pairs) for pairs in asked.values()] == [10, 30] and len(train) == 40
    assert [pair.id for pair in train] == list(both["score"])  # the same photos in the same order
    levels, of_score = (Counter(pair.level for pair in pairs) for pairs in (train, asked["score"]))
    assert all(abs(of_score[level] - levels[level] / 4) < 1 for level in LEVELS)
    prompts = {target: build("taxonomy", target) for target in both}
    assert holdout and all(pair.prompt == prompts["attributes"].messages() for pair in holdout)
    record = json.loads((labelled / "pairs" / "run.json").read_text())
    assert record["prompt"] == {**prompts["attributes"].identity(), "also": prompts["score"].identity()}
    assert record["config"]["shares"] == [0.25, 0.75]
    assert "10 training pairs ask for the score, 30 for attributes" in capsys.readouterr().out

    halves, again, other = (
        pairs_of(labelled, *mixed, "--seed", seed, name=name)[0] for seed, name in (("0", "a"), ("0", "b"), ("1", "c"))
    )
    assert halves == again
    alone = [{pair.id for pair in pairs if pair.prompt == prompts["score"].messages()} for pairs in (halves, other)]
    assert len(alone[0]) == len(alone[1]) == 20 and alone[0] != alone[1]


def test_the_draw_is_balanced_seeded_and_disjoint_from_the_holdout(labelled: Path, capsys):
    train, holdout = pairs_of(labelled, "--size", "40", "--seed", "3")
    assert Counter(pair.level for pair in train) == {1: 12, 2: 5, 3: 12, 4: 11}  # level 2 gives all it has left
    said = capsys.readouterr().out
    assert "gave all it has" in said and "40 photos are in neither" in said
    assert not {pair.id for pair in train} & {pair.id for pair in holdout}
    again, _ = pairs_of(labelled, "--size", "40", "--seed", "3", name="again")
    other, _ = pairs_of(labelled, "--size", "40", "--seed", "4", name="other")
    assert again == train and {pair.id for pair in other} != {pair.id for pair in train}


def test_the_draws_do_not_depend_on_the_order_of_the_file(labelled: Path):
    labels = read_labels(labelled / "labels.jsonl")
    for draw in (draw_balanced, draw_holdout):
        assert draw(labels, 40, 0) == draw(labels[::-1], 40, 0)


def test_two_draws_are_not_written_into_one_folder(labelled: Path):
    pairs_of(labelled, "--size", "8", "--holdout", "4")
    with locked(labelled / "pairs"), pytest.raises(InputError, match="another run is writing here"):
        pairs_of(labelled, "--size", "8", "--holdout", "4", "--seed", "1")
    assert json.loads((labelled / "pairs" / "run.json").read_text())["seed"] == 0


def test_a_size_beyond_the_collection_takes_all_and_says_so(labelled: Path, capsys):
    train, holdout = pairs_of(labelled, "--size", "500", "--holdout", "0")
    assert (len(train), holdout) == (100, [])
    said = capsys.readouterr().out
    assert "all the other 100 photos train" in said and "no hold-out: nothing to calibrate on" in said
    with pytest.raises(InputError, match="a hold-out of 100 leaves no photo to train on"):
        pairs_of(labelled, "--holdout", "100")


TABLE_1 = {1: 2860, 2: 1025, 3: 1363, 4: 1488}  # paper, Table 1


def like_table_1(total: int, rng: np.random.Generator) -> list[Label]:
    """Labels in the proportions of the paper's Table 1, their attributes at random."""
    levels = np.repeat(list(TABLE_1), [round(count * total / sum(TABLE_1.values())) for count in TABLE_1.values()])
    sizes = (3, 10, 5, 4)
    labels = []
    for number, level in enumerate(rng.permutation(levels)):
        counts = [int(rng.integers(0, size + 1)) if place >= level else 0 for place, size in enumerate(sizes, start=1)]
        counts[level - 1] = int(rng.integers(1, sizes[level - 1] + 1))
        found = severity((counts[0], counts[1], counts[2], counts[3]))
        labels.append(Label(str(number), f"{number}.jpg", None, found.level, found.score, "test"))
    return labels


def test_the_holdout_has_the_proportions_of_the_collection():
    labels = like_table_1(3630, np.random.default_rng(0))
    counts = Counter(label.level for label in labels)
    for seed, size in enumerate((64, 512, 726)):
        holdout, rest = draw_holdout(labels, size, seed)
        assert len(holdout) == size and sorted([*holdout, *rest], key=id) == sorted(labels, key=id)
        for level in LEVELS:
            share = sum(label.level == level for label in holdout)
            assert abs(share - counts[level] * size / 3630) < 1
    train, _ = draw_balanced(rest, 2048, 0)
    assert len(train) == 2048 and not {label.id for label in train} & {label.id for label in holdout}
    of_two = sum(label.level == 2 for label in rest)
    assert of_two < 512 and sum(label.level == 2 for label in train) == of_two  # all that the hold-out left


@pytest.mark.parametrize(
    ("available", "size", "expected"),
    [
        ([9, 9, 9, 9], 8, [2, 2, 2, 2]),
        ([9, 1, 9, 9], 10, [3, 1, 3, 3]),
        ([0, 0, 5, 1], 4, [0, 0, 3, 1]),
        ([2, 2, 2, 2], 99, [2, 2, 2, 2]),
        ([9, 9, 9, 9], 6, [2, 2, 1, 1]),
    ],
)
def test_equal_shares_fill_up_from_the_classes_that_have_more(available, size, expected):
    assert equal(available, size) == expected


@pytest.mark.parametrize(
    ("available", "size", "expected"),
    [
        ([2860, 1025, 1363, 1488], 6736, [2860, 1025, 1363, 1488]),
        ([2860, 1025, 1363, 1488], 100, [43, 15, 20, 22]),
        ([0, 0, 5, 1], 3, [0, 0, 3, 0]),
        ([1, 1, 1, 1], 2, [1, 1, 0, 0]),
        ([0, 0, 0, 0], 7, [0, 0, 0, 0]),
    ],
)
def test_proportional_shares_are_the_largest_remainders(available, size, expected):
    assert proportional(available, size) == expected


def test_what_cannot_be_trained_on_is_refused_before_anything_is_written(labelled: Path):
    (labelled / "images" / "7.png").write_bytes(b"not an image")
    (labelled / "images" / "8.png").write_bytes((labelled / "images" / "9.png").read_bytes()[:40])
    with pytest.raises(InputError, match=r"7.png: is not an image \(and 1 more\)"):
        pairs_of(labelled)
    (labelled / "images" / "7.png").unlink()
    with pytest.raises(InputError, match=r"7.png: no such image"):
        pairs_of(labelled)
    rows = [json.loads(line) for line in (labelled / "labels.jsonl").read_text().splitlines()]
    (labelled / "labels.jsonl").write_text("".join(json.dumps({**row, "labels": None}) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"field 'labels': is missing"):
        pairs_of(labelled)
    assert not (labelled / "pairs").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--size", "0"], "size must be at least 1"),
        (["--seed", "-1"], "seed must not be negative"),
        (["--prompt", "intuition", "--target", "attributes"], "needs prompt taxonomy"),
        (["--prompt", "intuition", "--target", "mixed"], "target mixed needs prompt taxonomy"),
        (["--shares", "0.5", "0.5"], "shares goes with target mixed"),
        (["--target", "mixed", "--shares", "0.5"], "shares must be two numbers above 0 that make 1"),
        (["--target", "mixed", "--shares", "0.7", "0.5"], "shares must be two numbers above 0 that make 1"),
        (["--target", "mixed", "--shares", "0", "1"], "shares must be two numbers above 0 that make 1"),
        (["--target", "mixed", "--shares", "0.001", "0.999"], "of 80 training pairs, 0 would ask for the score"),
        (["--images", "nowhere"], "nowhere: is not a folder"),
    ],
)
def test_bad_options_get_one_line(labelled: Path, options: list[str], complaint: str):
    with pytest.raises(InputError, match=complaint):
        pairs_of(labelled, *options)


def test_no_photo_is_on_two_sides(labelled: Path, capsys):
    """Copies of other photos, exact and saved anew: none in the hold-out repeats one that is trained on."""
    images = labelled / "images"
    for copy, original in ((10, 40), (11, 41), (12, 41)):
        Image.open(images / f"{original}.png").resize((90, 90)).convert("L" if copy == 12 else "RGB").save(
            images / f"{copy}.png"
        )
    shutil.copy(images / "50.png", images / "13.png")
    groups = [{"10", "40"}, {"11", "12", "41"}, {"13", "50"}]
    dropped = 0
    for seed in range(4):
        train, holdout = pairs_of(labelled, "--size", "40", "--seed", str(seed), name=f"p{seed}")
        sides = [{pair.id for pair in side} for side in (train, holdout)]
        for group in groups:
            assert not (group & sides[0] and group & sides[1])
        card = json.loads((labelled / f"p{seed}" / "card.json").read_text())
        assert len(train) == 40 and len(card["left_out_duplicates"]) + card["unused"] == 40
        dropped += len(card["left_out_duplicates"])
    assert dropped and "duplicates left out" in capsys.readouterr().out
    train, holdout = pairs_of(labelled, "--size", "40", "--duplicates", "keep", name="all")
    assert (len(train), len(holdout)) == (40, 20)


def test_duplicates_of_excluded_photos_are_left_out(labelled: Path):
    shutil.copy(labelled / "images" / "50.png", labelled / "images" / "test_photo.png")
    (labelled / "test.txt").write_text("test_photo.png\nelsewhere.jpg\n")
    train, holdout = pairs_of(labelled, "--size", "500", "--holdout", "0", "--exclude", str(labelled / "test.txt"))
    assert len(train) == 99 and not holdout
    card = json.loads((labelled / "pairs" / "card.json").read_text())
    assert card["left_out_duplicates"] == [{"id": "50", "duplicate_of": "images/test_photo.png"}]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.txt", "a\n7\n", r"labels.jsonl:8: field 'id': '7' is excluded by .*x.txt"),
        ("x.json", '[{"id": "val2017/7.jpg"}]', r"labels.jsonl:8: field 'id': '7' is excluded by .*x.json"),
        ("x.jsonl", '{"id": "7"}\n', r"labels.jsonl:8: field 'id': '7' is excluded by .*x.jsonl"),
        ("x.txt", "../../x\n", r"x.txt:1: field 'id': '../../x' is not a file name inside"),
        ("x.txt", "\n", r"x.txt: excludes nothing"),
        ("x.txt", "a\nb\n", r"x.txt: excludes nothing: none of its 2 ids is a photo in .*images"),
        ("x.txt", "id,level\n7.png,1\n", r"x.txt: excludes nothing"),
        ("x.txt", '"7"\n', r"x.txt: excludes nothing"),
        ("x.txt", "7.png,\n", r"x.txt: excludes nothing"),
        ("x.txt", "other/x.png\n", r"x.txt: excludes nothing"),
        ("x.json", '[{"name": "7"}]', r"x.json:1: field 'id': is missing"),
        ("gone.txt", None, r"gone.txt: No such file"),
    ],
)
def test_an_excluded_photo_among_the_labels_is_refused(labelled: Path, name, content, complaint):
    if content is not None:
        (labelled / name).write_text(content)
    with pytest.raises(InputError, match=complaint):
        pairs_of(labelled, "--exclude", str(labelled / name))
    assert not (labelled / "pairs").exists()


def test_an_exclusion_goes_by_the_photo_in_the_folder_that_it_names(labelled: Path, capsys):
    (labelled / "images" / "other").mkdir()
    shutil.copy(labelled / "images" / "8.png", labelled / "images" / "other" / "1.png")
    (labelled / "x.txt").write_text("other/1.jpg\nother/2.jpg\n3.jpg\n")
    with pytest.raises(InputError, match=r"labels.jsonl:\d+: field 'id': '3' is excluded by"):
        pairs_of(labelled, "--exclude", str(labelled / "x.txt"))
    (labelled / "x.txt").write_text("other/1.jpg\nother/one\n")
    train, holdout = pairs_of(labelled, "--size", "500", "--exclude", str(labelled / "x.txt"))
    assert "x.txt: keeps 1 photo off the training side, by 2 ids" in (said := capsys.readouterr().out)
    assert "; none of the " in said
    assert {str(number) for number in range(100)} - {pair.id for pair in [*train, *holdout]} == {"8"}


def test_a_shape_that_models_refuse_is_named(labelled: Path):
    Image.new("RGB", (201, 1)).save(labelled / "images" / "7.png")
    Image.new("RGB", (200, 1)).save(labelled / "images" / "8.png")
    with pytest.raises(InputError, match=r"7.png: is 201 x 1 pixels: one side is over 200 times the other$"):
        pairs_of(labelled)
    shutil.copy(labelled / "images" / "9.png", labelled / "images" / "7.png")
    Image.new("RGB", (201, 1)).save(labelled / "images" / "test_photo.png")
    (labelled / "x.txt").write_text("test_photo")
    pairs_of(labelled, "--exclude", str(labelled / "x.txt"))  # of what is not trained on it is no matter


def test_a_pipe_among_the_photos_hangs_nothing(labelled: Path):
    (labelled / "images" / "7.png").unlink()
    os.mkfifo(labelled / "images" / "7.png")
    with pytest.raises(InputError, match=r"7.png: is not a regular file$"):
        pairs_of(labelled)


def test_the_card_counts_what_is_there(labelled: Path):
    train, holdout = pairs_of(labelled, "--size", "40")
    card = json.loads((labelled / "pairs" / "card.json").read_text())
    labels = {label.id: label for label in read_labels(labelled / "labels.jsonl")}
    for name, pairs in (("train", train), ("holdout", holdout)):
        counts = Counter(key for pair in pairs for key in labels[pair.id].present(TAXONOMY))
        assert card[name]["attributes"] == {key: counts[key] for key in TAXONOMY.keys}
        assert card[name]["pairs"] == len(pairs)
    with Image.open(labelled / "pairs" / "card.png") as picture:
        assert picture.format == "PNG"


def test_pairs_are_measured_in_the_models_own_tokens(labelled: Path, demo_base: Path):
    """Against the processor's own count of a whole pair."""
    from cprt.models.checkpoint import load_processor

    options = ["--models", str(demo_base), "--max_pixels", "9216", "--target", "attributes"]
    train, holdout = pairs_of(labelled, *options)
    card = json.loads((labelled / "pairs" / "card.json").read_text())
    processor = load_processor(str(demo_base), max_pixels=9216)
    lengths = []
    for pair in train + holdout:
        text = processor.apply_chat_template([*pair.prompt, *pair.completion])
        image = Image.open(labelled / pair.images[0])
        lengths.append(processor(text=[text], images=[[image]])["input_ids"][0])
    lengths = [len(ids) for ids in lengths]
    (measured,) = card["token_lengths"]
    assert (measured["shortest"], measured["longest"]) == (min(lengths), max(lengths))
    with pytest.raises(InputError, match=f"is {max(lengths)} tokens long, over --max_tokens {max(lengths) - 1}"):
        pairs_of(labelled, *options, "--max_tokens", str(max(lengths) - 1), name="short")
