"""VISPR's annotations in both layouts, its lists, and what is missing, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cprt.errors import InputError
from data_prep.demo import data as demo_data
from data_prep.demo.drawings import SIGNS
from data_prep.image_cache import main as images_main
from data_prep.vispr import VisprRow, read_vispr


class Collection:
    def __init__(self, folder: Path):
        self.folder = folder
        for kind in ("images", "annotations"):
            (folder / kind / "val2017").mkdir(parents=True)

    def add(self, number: int, content: Any = None, image: bool = True, **fields: Any) -> str:
        id = f"2017_{number}"
        if content is None:
            content = {"id": id, "image_path": f"images/val2017/{id}.jpg", "labels": ["a4_gender"], **fields}
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / "annotations" / "val2017" / f"{id}.json").write_text(text)
        if image:
            Image.new("RGB", (8, 8)).save(self.folder / "images" / "val2017" / f"{id}.jpg")
        return id

    def list(self, *lines: str) -> None:
        (self.folder / "val2017.txt").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return Collection(tmp_path)


def test_both_layouts_and_both_ways_of_saying_safe(collection: Collection):
    collection.add(1, labels=["a9_face_complete", "a4_gender", "a9_face_complete"])
    collection.add(
        2,
        {
            "id": "2017_2",
            "image_path": "images/val2017/2017_2.jpg",
            "safe": False,
            "attributes": {
                "appearance": ["a17_color", "a4_gender"],
                "documents": [],
                "identity": ["a4_gender", "a20_name_first"],
            },
        },
    )
    collection.add(3, labels=["a0_safe"])
    collection.add(4, labels=[], safe=True)
    collection.add(5, {"id": "2017_5", "image_path": "images/val2017/2017_5.jpg", "safe": True, "attributes": {}})
    collection.add(6, labels=["a0_safe", "a31_passport"])  # whoever says both is believed in the worse
    collection.add(7, labels=["a31_passport"], safe=True)
    split = read_vispr(collection.folder, "val")
    image = "images/val2017/2017_{}.jpg".format
    assert split.rows == [
        VisprRow("2017_1", image(1), ("a9_face_complete", "a4_gender"), False),
        VisprRow("2017_2", image(2), ("a17_color", "a4_gender", "a20_name_first"), False),
        VisprRow("2017_3", image(3), (), True),
        VisprRow("2017_4", image(4), (), True),
        VisprRow("2017_5", image(5), (), True),
        VisprRow("2017_6", image(6), ("a31_passport",), False),
        VisprRow("2017_7", image(7), ("a31_passport",), False),
    ]
    assert split.contradictory == ["2017_6", "2017_7"]
    assert split.report()["safe"] == 3 and not split.has_list


def test_whatever_is_missing_is_named(collection: Collection):
    for number in (1, 2, 3):
        collection.add(number, image=number != 2)
    collection.list(
        "annotations/val2017/2017_3.json", "annotations/val2017/2017_2.json", "annotations/val2017/2017_9.json", ""
    )
    split = read_vispr(collection.folder, "val")
    assert [row.id for row in split.rows] == ["2017_3"]
    assert split.report() == {
        "split": "val",
        "has_list": True,
        "listed": 3,
        "rows": 1,
        "safe": 0,
        "missing_images": ["2017_2"],
        "missing_annotations": ["2017_9"],
        "unlisted": ["2017_1"],
        "contradictory": [],
    }


def test_the_order_is_that_of_the_list_also_beside_the_annotations(collection: Collection):
    for number in (1, 2, 3):
        collection.add(number)
    collection.list(*(f"annotations/val2017/2017_{number}.json" for number in (3, 1, 2)))
    path = collection.folder / "val2017.txt"
    path.rename(collection.folder / "annotations" / "val2017" / "val2017.txt")  # as an archive may bring it
    assert [row.id for row in read_vispr(collection.folder, "val").rows] == ["2017_3", "2017_1", "2017_2"]


def test_photos_may_be_elsewhere_and_of_the_same_name_in_another_split(collection: Collection, tmp_path: Path):
    id = collection.add(1)
    other = tmp_path / "images" / "test2017"
    other.mkdir()
    Image.new("RGB", (9, 9)).save(other / f"{id}.jpg")
    assert read_vispr(tmp_path, "val").rows[0].image == "images/val2017/2017_1.jpg"
    flat = tmp_path / "photos" / "val2017"
    flat.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(flat / f"{id}.png")
    assert read_vispr(tmp_path, "val", flat.parent).rows[0].image == "val2017/2017_1.png"


def test_the_demo_collection_reads_back_through_the_cache(tmp_path: Path):
    demo_data.main(["--out", str(tmp_path / "data"), "--val", "12", "--test", "5", "--seed", "3"])
    cut = sorted((tmp_path / "data" / "images" / "val2017").iterdir())[4]
    cut.write_bytes(cut.read_bytes()[:500])
    images_main(["--images", str(tmp_path / "data"), "--out", str(tmp_path / "cache"), "--max_pixels", "4096"])
    for split, name, count in (("val", "train", 12), ("test", "test", 5)):
        read = read_vispr(tmp_path / "data", split, tmp_path / "cache")
        assert read.missing_images == ([cut.stem] if split == "val" else [])
        assert len(read.rows) + len(read.missing_images) == count and read.has_list
        bench = {
            row["id"]: row["binary_labels"] for row in json.loads((tmp_path / "data" / f"cprt_{name}.json").read_text())
        }
        for row in read.rows:
            present = [key for group in bench[f"{row.id}.jpg"].values() for key, value in group.items() if value]
            assert list(row.labels) == [SIGNS[key].vispr for key in present]
            assert row.safe == (not present)


GOOD = {"id": "2017_1", "image_path": "images/val2017/2017_1.jpg", "labels": ["a4_gender"]}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "2017_1.json:1: not valid JSON"),
        ("[]", "2017_1.json: must be a mapping of image_path"),
        ({**GOOD, "id": "2017_2"}, "2017_1.json: field 'id': '2017_2' is not the file's name"),
        ({**GOOD, "image_path": None}, "2017_1.json: field 'image_path': is null"),
        ({**GOOD, "image_path": "../../x.jpg"}, "field 'image_path': '../../x.jpg' is not a path inside"),
        ({**GOOD, "labels": None}, "2017_1.json: field 'labels': is missing, and so is `attributes`"),
        ({**GOOD, "labels": "a4_gender"}, "field 'labels': 'a4_gender' is not a list"),
        ({**GOOD, "labels": ["gender"]}, "field 'labels': 'gender' is not a label such as a9_face_complete"),
        ({**GOOD, "labels": [4]}, "field 'labels': 4 is not a label"),
        ({**GOOD, "labels": []}, "field 'labels': is empty, and `safe` is not true"),
        ({**GOOD, "safe": "yes"}, "2017_1.json: field 'safe': 'yes' is not true or false"),
        ({"image_path": "a.jpg"}, "field 'labels': is missing, and so is `attributes`"),
        (
            {"image_path": "a.jpg", "attributes": ["a4_gender"]},
            "field 'attributes': ['a4_gender'] is not a map",
        ),
        ({"image_path": "a.jpg", "attributes": {"looks": "a4_gender"}}, "field 'attributes.looks': 'a4_gender' is not"),
        ({"image_path": "a.jpg", "attributes": {"looks": [None]}}, "field 'attributes.looks': None is not a label"),
    ],
)
def test_a_broken_annotation_is_named_with_its_field(collection: Collection, content: Any, complaint: str):
    collection.add(1, content)
    with pytest.raises(InputError) as caught:
        read_vispr(collection.folder, "val")
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["annotations/val2017/2017_1.json"] * 2, "val2017.txt:2: '2017_1' is there already in line 1"),
        (["annotations/test2017/2017_1.json"], "val2017.txt:1: 'annotations/test2017/2017_1.json' is not annotations/"),
        (["annotations/val2017/../../x.json"], "val2017.txt:1: "),
        (["annotations/val2017/2017_1.jpg"], "val2017.txt:1: "),
        ([], "val2017.txt: has no lines"),
    ],
)
def test_a_broken_list_is_named_with_its_line(collection: Collection, lines: list[str], complaint: str):
    collection.add(1)
    collection.list(*lines)
    with pytest.raises(InputError, match=complaint):
        read_vispr(collection.folder, "val")


def test_folders_that_are_not_there(collection: Collection):
    with pytest.raises(InputError, match="annotations/test2017: is not a folder of annotations"):
        read_vispr(collection.folder, "test")
    with pytest.raises(InputError, match="annotations/val2017: holds no annotations"):
        read_vispr(collection.folder, "val")
    with pytest.raises(InputError, match="'dev' is no split"):
        read_vispr(collection.folder, "dev")
