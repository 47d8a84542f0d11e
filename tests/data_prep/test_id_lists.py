"""Lists of photos by id, in every form that people make them; and lists to leave out that leave nothing out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from cprt.errors import InputError
from data_prep.id_lists import read_exclusions, read_ids

IDS = ["2017_1", "val2017/2017_2.jpg", "2017_3.JPG"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "2017_1\nval2017/2017_2.jpg\n2017_3.JPG\n"),
        ("a.txt", "\ufeff2017_1\r\n\r\n  val2017/2017_2.jpg\t\r\n2017_3.JPG"),
        ("a", "2017_1\nannotations/val2017/2017_2.jpg.json\n2017_3.JPG\n"),  # as in VISPR's split lists
        ("a.jsonl", "".join(json.dumps({"id": id, "level": 3}) + "\n" for id in IDS)),
        ("a.json", json.dumps([{"id": id} for id in IDS])),
        ("a.csv", "id\n" + "\n".join(IDS)),
        ("a.CSV", 'level,"ID"\r\n1,"2017_1"\r\n\r\n2,"val2017/2017_2.jpg"\r\n,2017_3.JPG\r\n'),
    ],
)
def test_a_list_of_any_form(tmp_path: Path, name: str, content: str):
    (tmp_path / name).write_text(content, newline="")
    assert [id for _, id in read_ids(tmp_path / name)] == IDS
    (tmp_path / "numbers.jsonl").write_text('{"id": 7}\n')  # as cprt labels reads them
    assert read_ids(tmp_path / "numbers.jsonl") == [(1, "7")]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", '{"id": true}\n', "a.jsonl:1: field 'id': must be a non-empty text"),
        ("a.jsonl", '{"id": "a"}\n{"name": "b"}\n', "a.jsonl:2: field 'id': is missing"),
        ("a.jsonl", "2017_1\n", "a.jsonl:1: "),
        ("a.json", '{"id": "a"}', "a.json: must be a JSON list of rows with an id"),
        ("a.json", '["a"]', "a.json: must be a JSON list of rows with an id"),
        ("a.json", '[{"id": " "}]', "a.json:1: field 'id': must be a non-empty text"),
        ("a.csv", "name\na\n", "a.csv:1: field 'id': is missing from the header (name)"),
        ("a.csv", "id,x\n,1\n", "a.csv:2: field 'id': must be a non-empty text"),
    ],
)
def test_what_is_no_list(tmp_path: Path, name: str, content: str, complaint: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        read_ids(tmp_path / name)
    assert complaint in str(caught.value)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("val2017/2017_1.jpg", "val2017/2017_2.jpg", "test2017/2017_3.jpg"):
        path = tmp_path / "photos" / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", '"2017_1"\n"2017_2"\n'),
        ("x.txt", "2017_1,\n2017_2,\n"),
        ("x.txt", "id,level\n2017_1,3\n"),
        ("x.txt", "2017_1;2017_2\n"),
        ("x.txt", "2017_1 2017_2\n"),
        ("x.txt", "['2017_1', '2017_2']\n"),
        ("x.txt", "- 2017_1\n- 2017_2\n"),
        ("x.txt", "wrongfolder/2017_1.jpg\n"),
        ("x.txt", "test2017/2017_1.jpg\n"),
        ("x.txt", "2017_10\n2017_20\n"),
        ("x.txt", "2017_1.png.jpg\n"),
        ("x.txt", "# nothing but a comment\n"),
        ("x.txt", "\n \n"),
        ("x.jsonl", "\n"),
        ("x.json", "[]"),
        ("x.csv", "id\n2017-1\n"),
    ],
)
def test_a_list_that_excludes_nothing_is_an_error(tmp_path: Path, photos: Path, name: str, content: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=rf"{name}: excludes nothing: none of its \d+ ids is a photo in "):
        read_exclusions([str(tmp_path / name)], photos)


@pytest.mark.parametrize(
    ("name", "content", "excluded", "note"),
    [
        ("x.txt", "2017_1\n2017_3.JPG\n", 2, "keeps 2 photos off the training side, by 2 ids$"),
        (
            "x.txt",
            "annotations/val2017/2017_1.json\nannotations/val2017/2017_2.json\n",
            2,
            "keeps 2 photos off the training side, by 2 ids$",
        ),
        ("x.csv", 'ID,level\n"2017_1",3\n2017_2,\n', 2, "keeps 2 photos off the training side, by 2 ids$"),
        ("x.txt", "2017_1\n2017_1.jpg\n", 1, "keeps 1 photo off the training side, by 2 ids$"),
        ("x.txt", "2017_1\n2017_9\n2017_8\n", 1, "by 3 ids, of which 2 are no photo there, such as '2017_9'$"),
        ("x.txt", "id\n2017_1\n", 1, "by 2 ids, of which 1 are no photo there, such as 'id'$"),
    ],
)
def test_what_is_excluded_is_said(tmp_path: Path, photos: Path, name: str, content: str, excluded: int, note: str):
    (tmp_path / name).write_text(content)
    found = read_exclusions([str(tmp_path / name)], photos)
    assert len(found.images) == excluded and set(found.images.values()) == {str(tmp_path / name)}
    (line,) = found.notes
    assert line.startswith(f"{tmp_path / name}: ")
    assert re.search(note, line), line
