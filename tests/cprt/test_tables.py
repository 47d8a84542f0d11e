"""One meaning of CSV for every command: what is kept, what is no row, and what is refused with line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cprt.errors import InputError
from cprt.tables import read_csv, write_csv
from cprt.taxonomy import Taxonomy
from data_prep.id_lists import read_ids
from data_prep.labels.files import read_table
from eval.agreement.rows import read_answers
from eval.model_inversion.collection import places
from eval.model_inversion.metrics.join import read_classifier, read_controls, read_judge, read_naturals

TAXONOMY = Taxonomy.default()
KEYS = ",".join(TAXONOMY.keys)
ZEROS = ",".join("0" for _ in TAXONOMY.keys)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id;age;level\n1;0,5;2\n", "t.csv:1: its columns are parted by semicolons: save it with commas"),
        ("id\tage\n1\t0\n", "t.csv:1: its columns are parted by tabs"),
        ('[\n{"id": 1}\n]\n', "t.csv:1: is JSON, not CSV"),
        ('{"id": 1, "level": 2}\n', "t.csv:1: is JSON, not CSV"),
    ],
)
def test_what_is_no_csv_is_told_as_what_it_is(tmp_path: Path, text: str, said: str):
    with pytest.raises(InputError, match=re.escape(said)):
        read_csv(write(tmp_path / "t.csv", text))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [(2, {"a": "1", "b": "2"})]),
        ("\ufeffa,b\r\n1,2\r\n", [(2, {"a": "1", "b": "2"})]),
        ("a,b\r1,2\r", [(2, {"a": "1", "b": "2"})]),  # as an old Mac ends lines
        ("a,b\n1,2", [(2, {"a": "1", "b": "2"})]),
        ("b,a\n1,2\n", [(2, {"a": "2", "b": "1"})]),
        (" A ,B\t\n1,2\n", [(2, {"a": "1", "b": "2"})]),
        ('"a","b"\n"1","2"\n', [(2, {"a": "1", "b": "2"})]),
        ("a,b\n 1 ,\t2\n", [(2, {"a": "1", "b": "2"})]),
        # Blank lines are no rows, before the header too, nor are lines of empty cells, as spreadsheets leave them.
        ("\n\n  \na,b\n\n1,2\n,\n \t, \n3,4\n\n", [(6, {"a": "1", "b": "2"}), (9, {"a": "3", "b": "4"})]),
        # Cells are kept as they are.
        ('a,b\n"1\n2","3\r\n4"\n5,6\n', [(2, {"a": "1\n2", "b": "3\r\n4"}), (5, {"a": "5", "b": "6"})]),
        ('a,b\n"\n1\n",2\n', [(2, {"a": "\n1\n", "b": "2"})]),
        ("a,b\n1\u20282,3\u20294\n", [(2, {"a": "1\u20282", "b": "3\u20294"})]),
        ("a,b\n1\x0b2,\x0c3\x85\n", [(2, {"a": "1\x0b2", "b": "\x0c3\x85"})]),
        ("a,b\n1\x1c2,3\x1e\n", [(2, {"a": "1\x1c2", "b": "3\x1e"})]),
        ('a,b\n"1,""2""",3\n', [(2, {"a": '1,"2"', "b": "3"})]),
        ("a,b\n写真,😀\n", [(2, {"a": "写真", "b": "😀"})]),
        ("a,b\n\u00a01,２\n", [(2, {"a": "\u00a01", "b": "２"})]),
    ],
)
def test_what_a_table_holds(tmp_path: Path, text: str, rows: list[tuple[int, dict[str, str]]]):
    assert read_csv(write(tmp_path / "t.csv", text)).need(["a", "b"]) == rows


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "t.csv: has no rows"),
        ("\n , \n", "t.csv: has no rows"),
        ("a,b\n", "t.csv: has no rows"),
        ("a,b\n,\n", "t.csv: has no rows"),
        ("a\n1\n", "t.csv:1: field 'b': is missing from the header (a)"),
        ("\n\na,c\n1,2\n", "t.csv:3: field 'b': is missing from the header (a, c)"),
        ("a;b\n1;2\n", "t.csv:1: its columns are parted by semicolons"),
        ("a,b,A\n1,2,3\n", "t.csv:1: field 'a': is there twice"),
        ("a,b,c,C \n1,2,3,4\n", "t.csv:1: field 'c': is there twice"),
        ("a,b\n1\n", "t.csv:2: has 1 cells, the header 2"),
        ('a,b\n"1\n2",3\n4,5,6\n', "t.csv:4: has 3 cells, the header 2"),
        ("1,2\n3,4\n", "t.csv:1: field 'a': is missing"),
        ('a,b\n"1,2\n', "t.csv:2: not valid CSV"),
        ('a,b\n1,2\n"3"4,5\n', "t.csv:3: not valid CSV"),
        ('a,b\n"1\n2",3\n"4" ,5\n', "t.csv:4: not valid CSV"),
        ("a,b\n1,2\n3,\x004\n", "t.csv:3: not valid CSV: holds a NUL character"),
        ("a,b\n1,2\n".encode("utf-16-le").decode(), "holds a NUL character"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        read_csv(write(tmp_path / "t.csv", text)).need(["a", "b"])
    assert complaint in str(caught.value) and str(caught.value).isprintable()


def test_unknown_columns_are_named_where_only_known_ones_may_be_there(tmp_path: Path):
    table = read_csv(write(tmp_path / "t.csv", "a,c,b,\n1,2,3,4\n"))
    assert [row["a"] for _, row in table.need(["a"])] == ["1"]
    with pytest.raises(InputError, match=r"t.csv:1: field 'b': is not ours"):
        table.need(["a"], known=["c"], unknown="is not ours")
    with pytest.raises(InputError, match=r"t.csv:1: field '': is not a known column|t.csv:1: is not a known column"):
        table.need(["a"], known=["b", "c"])
    assert read_csv(tmp_path / "t.csv", aliases={"C": "d"}).columns == ["a", "d", "b", ""]


def test_a_cell_may_be_longer_than_the_librarys_limit(tmp_path: Path):
    long = "yes, " * 60_000
    write_csv(tmp_path / "t.csv", ["filename", "class", "response", "label"], [["a.png", "1", long, "yes"]])
    assert read_judge(tmp_path / "t.csv")["1", "a.png"].response == long.rstrip(" ")


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=4))
def test_what_is_written_reads_back(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]):
    file = tmp_path_factory.getbasetemp() / "written.csv"
    write_csv(file, ["a", "b"], rows)
    read = [list(row.values()) for _, row in read_csv(file).rows]
    kept = [[cell.strip(" \t") for cell in row] for row in rows]
    assert read == [row for row in kept if any(cell.strip() for cell in row)]
    assert file.read_bytes() == _rfc_4180([["a", "b"], *rows])


def _rfc_4180(rows: list[list[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


# --- The same for every command ------------------------------------------------------------------------------------

# Reader, header and a row of each file that commands take as CSV.
USERS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "labels": (lambda path: read_table(path, TAXONOMY), f"id,{KEYS}", f"a,{ZEROS}"),
    "agreement": (
        lambda path: list(read_answers(path, TAXONOMY)),
        f"annotator,kind,image,{KEYS}",
        f"x,human,a,{ZEROS}",
    ),
    "judge": (read_judge, "filename,label", "1/a.png,yes"),
    "classifier": (read_classifier, "filename,prediction", "1/a.png,yes"),
    "controls": (read_controls, "kind,filename,label", "positive,1/a.png,yes"),
    "naturals": (read_naturals, "filename,prediction", "1/a.png,yes"),
    "collection": (lambda path: places.read_table(str(path), path.parent), "file,class,setup", "1.png,1,s"),
    "ids": (read_ids, "id", "a"),
}


_LINE = re.compile(r"(?<=t\.csv:)\d+|(?<=\[\()\d+")


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    "change",
    [
        lambda header, row: f"{header}\n{row}\n",
        lambda header, row: f"\ufeff{header}\r\n{row}\r\n",
        lambda header, row: f"\n\n{header}\n\n{row}\n\n",
        lambda header, row: f"{header.upper()}\n{row}\n",
        lambda header, row: f" {header.replace(',', ' , ').title()} \n{row}\n",
        lambda header, row: "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in (header, row)),
        lambda header, row: f"{header}\n{row}\n{',' * header.count(',')}\n",
    ],
)
def test_every_command_reads_the_same_table(tmp_path: Path, user: str, change: Callable[[str, str], str]):
    read, header, row = USERS[user]
    (tmp_path / "1.png").touch()
    plain = read(write(tmp_path / "t.csv", f"{header}\n{row}\n"))
    found = read(write(tmp_path / "t.csv", change(header, row)))
    assert len(found) == len(plain) and _LINE.sub("2", repr(found)) == repr(plain)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda header, row: "", "has no rows"),
        (lambda header, row: f"{header}\n", "has no rows"),
        (lambda header, row: f"{row}\n{header}\n", "t.csv:1: "),
        (lambda header, row: f"{header},{header}\n{row},{row}\n", "t.csv:1: field '.*': is there twice"),
        (lambda header, row: f"{header}\n{row},1\n", r"t.csv:2: has \d+ cells, the header \d+"),
        (lambda header, row: f'{header}\n"{row}\n', "t.csv:2: not valid CSV"),
        (lambda header, row: f"{header}\n{row}\0\n", "t.csv:2: not valid CSV: holds a NUL"),
        (
            lambda header, row: f"{header.replace(',', ';')};\n{row.replace(',', ';')};\n",
            "t.csv:1: its columns are part",
        ),
        (lambda header, row: f"{header}x\n{row}\n", "t.csv:1: field"),
    ],
)
def test_every_command_refuses_the_same_table(
    tmp_path: Path, user: str, change: Callable[[str, str], str], complaint: str
):
    read, header, row = USERS[user]
    with pytest.raises(InputError, match=complaint):
        read(write(tmp_path / "t.csv", change(header, row)))


@pytest.mark.parametrize(
    "cell", ["0_1", "0_0", "١", "nan", "inf", "1e999", "00", "0x1", "½", "true", "0,5", "0.7", "-0.5"]
)
@pytest.mark.parametrize("user", ["labels", "agreement"])
def test_a_label_is_a_plain_number(tmp_path: Path, user: str, cell: str):
    read, header, row = USERS[user]
    with pytest.raises(InputError, match="t.csv:2: field 'background_people': ") as caught:
        read(write(tmp_path / "t.csv", f'{header}\n{row[:-1]}"{cell}"\n'))
    assert "is not 0, 0.5" in str(caught.value)


@pytest.mark.parametrize(("name", "cell"), [("level", "2_0"), ("level", "٢"), ("level", "nan"), ("score", "0_1.0")])
def test_level_and_score_are_plain_numbers(tmp_path: Path, name: str, cell: str):
    with pytest.raises(InputError, match=f"t.csv:2: field '{name}': '{cell}' is not"):
        read_table(write(tmp_path / "t.csv", f"id,{KEYS},{name}\na,{ZEROS},{cell}\n"), TAXONOMY)


@pytest.mark.parametrize("id", ["a\nb", "a\x0bb", "a\u2028b", "a\r\nb", "\na", "a\x0b"])
def test_an_id_never_becomes_another_one(tmp_path: Path, id: str):
    (row,) = read_table(write(tmp_path / "t.csv", f'id,{KEYS}\n"{id}",{ZEROS}\n'), TAXONOMY)
    assert row.id == id
    assert read_ids(write(tmp_path / "ids.csv", f'id\n"{id}"\n')) == [(2, id)]


@pytest.mark.parametrize("name", ["T=1_T=2.png", "ID=3_T=1_P=0_T=2.png"])
def test_a_file_that_states_two_classes_is_refused(tmp_path: Path, name: str):
    with pytest.raises(InputError, match=r"t.csv:2: field 'filename': '.*' states several classes, T=\w and T=\w"):
        read_judge(write(tmp_path / "t.csv", f"filename,label\n{name},yes\n"))
    assert list(read_judge(write(tmp_path / "t.csv", "filename,label\nT=1_T=01.png,yes\n"))) == [("1", "T=1_T=01.png")]
