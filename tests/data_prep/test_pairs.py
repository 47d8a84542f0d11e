"""``cprt pairs``: a balanced, seeded training set and a disjoint hold-out, with answers that read back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cprt.answers import parse
from cprt.errors import InputError
from cprt.prompts import build
from cprt.records import Label, read_labels, read_pairs, write_jsonl
from cprt.scoring import format_score, severities
from cprt.taxonomy import Taxonomy
from data_prep.pairs import main, shares, split

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
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / f"{number}.png")
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
    assert len(train) == 40 and len(holdout) == 60
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


def test_the_draw_is_balanced_seeded_and_disjoint_from_the_holdout(labelled: Path, capsys):
    train, holdout = pairs_of(labelled, "--size", "40", "--seed", "3")
    assert Counter(pair.level for pair in train) == {1: 12, 2: 6, 3: 11, 4: 11}  # level 2 gives all it has
    assert "gave all it has" in capsys.readouterr().out
    assert not {pair.id for pair in train} & {pair.id for pair in holdout}
    again, _ = pairs_of(labelled, "--size", "40", "--seed", "3", name="again")
    other, _ = pairs_of(labelled, "--size", "40", "--seed", "4", name="other")
    assert again == train and {pair.id for pair in other} != {pair.id for pair in train}


def test_the_draw_does_not_depend_on_the_order_of_the_file(labelled: Path):
    labels = read_labels(labelled / "labels.jsonl")
    assert split(labels, 40, 0) == split(labels[::-1], 40, 0)


def test_a_size_beyond_the_collection_takes_all_and_says_so(labelled: Path, capsys):
    train, holdout = pairs_of(labelled, "--size", "500")
    assert (len(train), holdout) == (100, [])
    assert "no hold-out is left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("available", "size", "expected"),
    [([9, 9, 9, 9], 8, [2, 2, 2, 2]), ([9, 1, 9, 9], 10, [3, 1, 3, 3]), ([0, 0, 5, 1], 4, [0, 0, 3, 1]),
     ([2, 2, 2, 2], 99, [2, 2, 2, 2]), ([9, 9, 9, 9], 6, [2, 2, 1, 1])],
)  # fmt: skip
def test_shares_fill_up_from_the_classes_that_have_more(available, size, expected):
    assert shares(available, size) == expected


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
    with pytest.raises(InputError, match=r"field 'labels': is missing in row 1 \('0'\)"):
        pairs_of(labelled)
    assert not (labelled / "pairs").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(["--size", "0"], "size must be at least 1"), (["--seed", "-1"], "seed must not be negative"),
     (["--prompt", "intuition", "--target", "attributes"], "needs prompt taxonomy"),
     (["--images", "nowhere"], "nowhere: is not a folder")],
)  # fmt: skip
def test_bad_options_get_one_line(labelled: Path, options: list[str], complaint: str):
    with pytest.raises(InputError, match=complaint):
        pairs_of(labelled, *options)
