"""``cprt demo-data``: VISPR's layout, CPRT-Bench's format, seeded, and every attribute drawable and drawn."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cprt.errors import InputError
from cprt.scoring import severity
from cprt.taxonomy import Taxonomy
from data_prep.demo.data import draw_attributes, main
from data_prep.demo.drawings import draw
from data_prep.labels.files import read_bench

TAXONOMY = Taxonomy.default()


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    main(["--out", str(folder), "--seed", "5", "--val", "30", "--test", "20"])
    return folder


def test_the_layout_is_visprs(collection: Path):
    for split, count in (("val", 30), ("test", 20)):
        names = (collection / f"{split}2017.txt").read_text().split()
        assert len(names) == count
        for name in names:
            annotation = json.loads((collection / name).read_text())
            assert name == f"annotations/{split}2017/{annotation['id']}.json"
            assert annotation["image_path"] == f"images/{split}2017/{annotation['id']}.jpg"
            assert annotation["labels"] and all(label.startswith("a") for label in annotation["labels"])
            with Image.open(collection / annotation["image_path"]) as image:
                assert (image.format, image.size, image.mode) == ("JPEG", (96, 96), "RGB")
        assert len(list((collection / "images" / f"{split}2017").iterdir())) == count


def test_the_label_files_are_cprt_benchs(collection: Path):
    for split, file, count in (("val", "cprt_train.json", 30), ("test", "cprt_test.json", 20)):
        rows = read_bench(collection / file, TAXONOMY)
        assert len(rows) == count
        for row in rows:
            counts = [sum(row.labels[a.key] for a in TAXONOMY.attributes if a.level == level) for level in (1, 2, 3, 4)]
            truth = severity(counts)
            assert (row.level, row.score) == (truth.level, round(truth.score, 3))
            annotation = json.loads((collection / f"annotations/{split}2017/{Path(row.id).stem}.json").read_text())
            assert len(annotation["labels"]) == (sum(counts) or 1)  # a0_safe where there is nothing


def test_the_same_seed_draws_the_same_collection_whatever_its_size(collection: Path, tmp_path: Path):
    main(["--out", str(tmp_path / "again"), "--seed", "5", "--val", "30", "--test", "20"])
    assert files_of(tmp_path / "again") == files_of(collection)
    for val in ("5", "3"):  # what an earlier run drew beyond that is gone
        main(["--out", str(tmp_path / "fewer"), "--seed", "5", "--val", val, "--test", "3"])
    photos = files_of(tmp_path / "fewer" / "images")
    assert len(photos) == 6 and len(list((tmp_path / "fewer" / "annotations" / "val2017").iterdir())) == 3
    assert photos.items() <= files_of(collection / "images").items()
    main(["--out", str(tmp_path / "other"), "--seed", "6", "--val", "3", "--test", "3"])
    assert not set(files_of(tmp_path / "other" / "images").values()) & set(photos.values())


def test_validation_and_test_share_no_drawing(collection: Path):
    photos = files_of(collection / "images")
    assert len(set(photos.values())) == len(photos) == 50


def test_levels_are_drawn_evenly_with_one_to_five_attributes_or_none():
    drawn = [draw_attributes(np.random.default_rng([9, number])) for number in range(4000)]
    level_of = {attribute.key: attribute.level for attribute in TAXONOMY.attributes}
    levels = Counter(min((level_of[key] for key in keys), default=4) for keys in drawn)
    assert all(900 < levels[level] < 1100 for level in (1, 2, 3, 4))
    assert {len(keys) for keys in drawn} == {0, 1, 2, 3, 4, 5}
    assert {key for keys in drawn for key in keys} == set(TAXONOMY.keys)


def test_every_attribute_has_a_pictogram_of_its_own():
    """With the same seed, drawings of different attributes differ by more than their noise does."""
    pictures = [np.asarray(draw([key], np.random.default_rng(0)), dtype=float) for key in TAXONOMY.keys]
    assert len(pictures) == 22
    for i, one in enumerate(pictures):
        for other in pictures[:i]:
            assert (np.abs(one - other).max(axis=2) > 60).sum() > 40


@pytest.mark.parametrize("options", [["--val", "0"], ["--seed", "-1"], ["--size", "8"]])
def test_bad_options_get_one_line(tmp_path: Path, options: list[str]):
    with pytest.raises(InputError, match=f"{options[0].strip('-')} must (be at least|not be negative)"):
        main(["--out", str(tmp_path), *options])
