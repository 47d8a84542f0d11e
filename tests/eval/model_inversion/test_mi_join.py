"""Reading and joining verdicts: every layout, and what the public code got wrong there."""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cprt.errors import InputError
from eval.model_inversion.metrics.evaluation import Inputs, evaluate
from eval.model_inversion.metrics.join import (
    LABELS,
    join_report,
    named_like,
    read_classifier,
    read_controls,
    read_judge,
    read_naturals,
)
from eval.model_inversion.metrics.rates import Counting


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def labels(path: Path) -> dict[tuple[str, str], str]:
    return {key: verdict.label for key, verdict in read_judge(path).items()}


@pytest.mark.parametrize(
    "text",
    [
        "filename,label\n3/a.png,yes\n4/a.png,no\n",
        "label,filename\nyes,3/a.png\nno,4/a.png\n",
        "filename,response,label\n3/a.png,Yes.,yes\n4/a.png,No.,no\n",
        "label,response,filename\nyes,Yes.,3/a.png\nno,No.,4/a.png\n",
        "filename,class,response,label\na.png,3,Yes.,yes\na.png,4,No.,no\n",
        "\ufefffilename,label\r\n3/a.png,YES\r\n4/a.png, No \r\n",
        ',filename,label\n0,3/a.png,"Yes "\n1,4/a.png,"NO"\n',  # pandas wrote its index too
        "filename,label\nC:\\all-images\\3\\a.png,yes\nAttackSamples/x/all-images/4/a.png,no\n\n",
        "Filename, Label\n./3/a.png,yes\n007/../4/a.png,no\n",
    ],
)
def test_columns_go_by_name_and_words_are_normalised(tmp_path: Path, text: str):
    """Faults 1 and 3 of the public code: three columns crashed it, swapped ones gave zeros, "Yes" counted as no."""
    assert labels(write(tmp_path / "j.csv", text)) == {("3", "a.png"): "yes", ("4", "a.png"): "no"}


def test_a_response_over_several_lines_with_quotes_is_one_cell(tmp_path: Path):
    file = write(
        tmp_path / "j.csv", 'filename,response,label\n1/a.png,"No, ""they"" differ.\nReally.",no\n1/b.png,,maybe\n'
    )
    with pytest.raises(InputError, match=r"j.csv:4: field 'label': 'maybe' is not one of yes, no, refused"):
        read_judge(file)
    file.write_text(file.read_text().replace("maybe", "refuse"))
    found = read_judge(file)
    assert found["1", "a.png"].response == 'No, "they" differ.\nReally.'
    assert found["1", "b.png"].label == "refused"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ID=5_T=12_P=0_CT=0.8688.png", ("12", "ID=5_T=12_P=0_CT=0.8688.png")),
        ("T=003.png", ("3", "T=003.png")),
        ("Ann/ID=5_T=4.png", ("Ann", "ID=5_T=4.png")),  # an index says nothing of a name
        ("n02085620-Chihuahua/1.png", ("n02085620-Chihuahua", "1.png")),
        ("0007/1.png", ("7", "1.png")),
        ("000/1.png", ("0", "1.png")),
        ("٣/1.png", ("٣", "1.png")),
    ],
)
def test_the_class_is_the_folder_else_in_the_name(tmp_path: Path, name: str, key: tuple[str, str]):
    assert list(read_judge(write(tmp_path / "j.csv", f"filename,label\n{name},yes\n"))) == [key]


@pytest.mark.parametrize("name", ["image_001.png", "CT=0.5.png", "RESULT=4.png", "T=x.png", "./a.png", "/a.png"])
def test_a_name_without_a_class_is_refused(tmp_path: Path, name: str):
    """Fault 2: such names all became NaN and joined each with each."""
    with pytest.raises(InputError, match=r"j.csv:2: field 'filename': .* claims no class"):
        read_judge(write(tmp_path / "j.csv", f"filename,label\n{name},yes\n"))


@pytest.mark.parametrize("row", ["3/ID=0_T=7_P=7.png,", "ID=0_T=7.png,3", "7/ID=0_T=7.png,3"])
def test_a_name_of_another_class_is_refused(tmp_path: Path, row: str):
    header = "filename,class,label" if row[-1] == "3" else "filename,label"
    with pytest.raises(InputError, match=r"j.csv:2: field 'filename': .* claims two classes: '3' and T=7 in its name"):
        read_judge(write(tmp_path / "j.csv", f"{header}\n{row.rstrip(',')},yes\n"))


def test_a_hundred_rows_join_to_a_hundred(tmp_path: Path):
    """Fault 2 again: names without ID= and T= gave 10,000 rows from 100 and 100."""
    names = [f"{number % 7}/image_{number}.png" for number in range(100)]
    write(tmp_path / "j.csv", "filename,label\n" + "".join(f"{name},yes\n" for name in names))
    write(tmp_path / "e.csv", "prediction,filename\n" + "".join(f"no,{name}\n" for name in reversed(names)))
    figures = evaluate(Inputs(str(tmp_path / "j.csv"), str(tmp_path / "e.csv")), Counting(resamples=0)).figures
    assert (figures["n"], figures["fn"], figures["join"]["matched"]) == (100, 100, 100)


def test_equal_names_in_other_classes_are_kept_apart(tmp_path: Path):
    """Fault 7: the class belongs to the name."""
    judge = read_judge(write(tmp_path / "j.csv", "filename,label\n1/a.png,yes\n2/a.png,no\n"))
    other = read_classifier(write(tmp_path / "e.csv", "filename,prediction\n2/a.png,yes\n3/a.png,no\n"))
    assert join_report(judge, other, ("j", "e")) == {
        "matched": 1,
        "only_judge": 1,
        "only_standard": 1,
        "only_judge_examples": ["1/a.png"],
        "only_standard_examples": ["3/a.png"],
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("filename,label\n1/a.png,yes\n2/a.png,no\n1/a.png,yes\n", 4),
        ("filename,label\n1/a.png,yes\n\n01/a.png,no\n", 4),
        ('filename,response,label\n1/a.png,"x\ny",yes\nx/1/a.png,,no\n', 4),
    ],
)
def test_a_row_that_is_there_twice_is_an_error(tmp_path: Path, text: str, line: int):
    with pytest.raises(InputError, match=rf"j.csv:{line}: field 'filename': '1/a.png' is there already in line 2"):
        read_judge(write(tmp_path / "j.csv", text))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("filename,prediction\n1/a.png,yes\n", r"j.csv:1: field 'label': is missing .*a classifier's file where"),
        ("file,label\n1/a.png,yes\n", r"j.csv:1: field 'filename': is missing from the header \(file, label\)"),
        ("1/a.png,yes\n2/a.png,yes\n", r"j.csv:1: field 'filename': is missing"),
        ("filename;label\n1/a.png;yes\n", r"j.csv:1: its columns are parted by semicolons: save it with commas"),
        ("kind,filename,class,response,label\n", r"j.csv:1: field 'kind': is a column of controls"),
        ("filename,label,label\n1/a.png,yes,no\n", r"j.csv:1: field 'label': is there twice"),
        ("filename,label\n1/a.png,yes,no\n", r"j.csv:2: has 3 cells, the header 2"),
        ("filename,label\n,yes\n", r"j.csv:2: field 'filename': is empty"),
        ("filename,label\n/,yes\n", r"j.csv:2: field 'filename': '/' is no file name"),
        ("filename,class,label\na.png,,yes\n", r"j.csv:2: field 'class': is empty"),
        ("filename,label\n1/a.png,\n", r"j.csv:2: field 'label': is empty$"),
        ("filename,response,label\n1/a.png,Yes.,\n", r"field 'label': is empty beside a response: judge it first"),
        ("filename,label\n1/a.png,Yes.\n", r"j.csv:2: field 'label': 'Yes.' is not one of"),
        ("filename,label\n1/a.png,1\n", r"j.csv:2: field 'label': '1' is not one of"),
        ('filename,label\n1/a.png,"yes\n', r"j.csv:2: not valid CSV"),
        ('filename,label\n1/a.png,yes\n1/b.png,"y"es\n', r"j.csv:3: not valid CSV"),
        ("filename,label\n", r"j.csv: has no rows"),
        ("", r"j.csv: has no rows"),
    ],
)
def test_bad_files_are_refused_with_line_and_field(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError, match=complaint) as caught:
        read_judge(write(tmp_path / "j.csv", text))
    assert "\n" not in str(caught.value)


def test_other_encodings_and_missing_files_are_refused(tmp_path: Path):
    (tmp_path / "j.csv").write_bytes("filename,label\n1/ä.png,yes\n".encode("utf-16"))
    with pytest.raises(InputError, match="j.csv: is not text in UTF-8"):
        read_judge(tmp_path / "j.csv")
    with pytest.raises(InputError, match="none.csv: No such file"):
        read_judge(tmp_path / "none.csv")


def test_a_judges_file_given_as_standard_is_refused(tmp_path: Path):
    file = write(tmp_path / "e.csv", "filename,class,response,label\na.png,1,Yes.,yes\n")
    with pytest.raises(InputError, match=r"e.csv:1: field 'prediction': .*a judge's file where a classifier's belongs"):
        read_classifier(file)
    with pytest.raises(InputError, match=r"e.csv:2: field 'prediction': 'refused' is not one of yes, no$"):
        read_classifier(write(file, "filename,prediction\n1/a.png,refused\n"))


def test_names_that_differ_after_id_and_t_join_as_the_public_code_joins_them(tmp_path: Path):
    judge = read_judge(write(tmp_path / "j.csv", "filename,label\nID=5_T=1_CT=0.86.png,yes\nID=5_T=2_CT=0.9.png,no\n"))
    other = read_classifier(write(tmp_path / "e.csv", "filename,prediction\nID=5_T=1_P=7.jpg,yes\nID=6_T=2.png,no\n"))
    there, by = named_like(other, judge)
    assert by == "class, ID and T" and set(there) == {("1", "ID=5_T=1_CT=0.86.png"), ("2", "ID=6_T=2.png")}
    assert there["2", "ID=6_T=2.png"].label == "no"
    # Where names meet they are left alone, and rows that would coincide are not joined.
    same = read_classifier(write(tmp_path / "s.csv", "filename,prediction\nID=5_T=1_CT=0.86.png,yes\n"))
    assert named_like(same, judge) == (same, "class and file")
    text = "filename,prediction\nID=5_T=1_a.png,yes\nID=5_T=1_b.png,no\n"
    twice = read_classifier(write(tmp_path / "t.csv", text))
    assert named_like(twice, judge) == (twice, "class and file")
    assert named_like(judge, twice) == (judge, "class and file")


def test_files_that_do_not_meet_are_refused_with_examples(tmp_path: Path):
    judge = read_judge(write(tmp_path / "j.csv", "filename,label\nall-images/ID=5_T=1.png,yes\n"))
    other = read_classifier(write(tmp_path / "e.csv", "filename,prediction\n1/ID=5_T=1.png,yes\n"))
    with pytest.raises(
        InputError,
        match=r"j.csv: shares no reconstruction with e.csv; 1 file names are in both, under "
        r"other classes: here for example all-images/ID=5_T=1.png, there 1/ID=5_T=1.png",
    ):
        join_report(judge, other, ("j.csv", "e.csv"))


def test_controls_are_counted_by_kind_and_class_and_what_was_not_shown_is_none(tmp_path: Path):
    text = (
        "kind,filename,class,response,label\npositive,1/a.jpg,1,Yes,yes\nPositive,1/b.jpg,1,,error\n"
        "negative,2/a.jpg,1,No,no\nnegative,2/a.jpg,3,I cannot.,refused\n"
    )
    unseen = "positive,1/c.jpg,1,,not_shown\npositive_degraded,1/a.jpg,1,No,no\n"
    counts = read_controls(write(tmp_path / "c.csv", text + unseen))
    assert counts["positive"] == {"1": {"yes": 1, "error": 1}}
    assert counts["negative"] == {"1": {"no": 1}, "3": {"refused": 1}}
    assert (counts["positive_degraded"], counts["negative_degraded"]) == ({"1": {"no": 1}}, {})
    for row, complaint in (
        ("neutral,2/a.jpg,1,No,no", r"c.csv:6: field 'kind': 'neutral' is not one of positive, negative, positive_"),
        ("negative,2/a.jpg,3,No,no", r"c.csv:6: field 'filename': 'negative/3/2/a.jpg' is there already in line 5"),
        ("negative,2/c.jpg,3,No,", r"c.csv:6: field 'label': is empty beside a response"),
    ):
        with pytest.raises(InputError, match=complaint):
            read_controls(write(tmp_path / "c.csv", text + row + "\n"))


def test_natural_images_need_no_class(tmp_path: Path):
    without = read_naturals(write(tmp_path / "n.csv", "prediction,filename\nYes,a.jpg\nno,b.jpg\n"))
    assert without == {"/a.jpg": {True: 1}, "/b.jpg": {False: 1}}  # each a class of its own
    with_class = "filename,prediction,class\nx/a.jpg,no,1\nx/a.jpg,no,2\n"
    assert read_naturals(write(tmp_path / "n.csv", with_class)) == {"1": {False: 1}, "2": {False: 1}}
    with pytest.raises(InputError, match=r"n.csv:4: field 'filename': '2/x/a.jpg' is there already in line 3"):
        read_naturals(write(tmp_path / "n.csv", with_class + "x/a.jpg,yes,2\n"))


def test_natural_images_are_counted_in_the_order_of_the_file(tmp_path: Path):
    """Sums of classes in the order of a set would differ in their last digit from run to run."""
    names = [f"{number}.jpg" for number in range(40)]
    file = write(tmp_path / "n.csv", "filename,prediction\n" + "".join(f"{name},yes\n" for name in names))
    for target in (None, file):
        assert list(read_naturals(file, target)) == [f"/{name}" for name in names]


def test_natural_images_count_where_the_target_accepts_them(tmp_path: Path):
    of_e = "filename,class,prediction\na.jpg,1,yes\nb.jpg,1,no\nc.jpg,1,yes\na.jpg,2,yes\n"
    of_t = "class,filename,prediction\n1,a.jpg,yes\n1,b.jpg,yes\n1,c.jpg,no\n2,a.jpg,no\n2,z.jpg,yes\n"
    found = read_naturals(write(tmp_path / "e.csv", of_e), write(tmp_path / "t.csv", of_t))
    assert found == {"1": {True: 1, False: 1}}
    with pytest.raises(InputError, match=r"t.csv: has no row for 2/a.jpg of .*e.csv"):
        read_naturals(tmp_path / "e.csv", write(tmp_path / "t.csv", of_t.replace("2,a.jpg,no\n", "")))


# --- Against a join by brute force -------------------------------------------------------------------------------

KEYS = st.tuples(
    st.sampled_from(["1", "2", "a b", 'q"x', "ü,"]), st.sampled_from(["a.png", "b.png", "c,d.png", "é.png"])
)
SPELL = {"yes": ["yes", "Yes", " YES "], "no": ["no", "No "], "refused": ["refused", "Refuse"]}


@given(
    judge=st.dictionaries(KEYS, st.sampled_from(LABELS), min_size=1),
    standard=st.dictionaries(KEYS, st.sampled_from(LABELS[:2]), min_size=1),
    seed=st.integers(0, 2**32),
    as_folder=st.booleans(),
)
def test_the_table_equals_that_of_a_join_by_brute_force(tmp_path_factory, judge, standard, seed, as_folder):
    rng = random.Random(seed)
    folder = tmp_path_factory.getbasetemp() / "brute"
    folder.mkdir(exist_ok=True)

    def save(name: str, column: str, rows: dict) -> str:
        columns = [column, "filename", "response"] + ([] if as_folder else ["class"])
        rng.shuffle(columns)
        cells = [
            {
                "filename": f"x/{claims}/{file}" if as_folder else file,
                "class": claims,
                "response": "any, thing",
                column: rng.choice(SPELL.get(label, [label])),
            }
            for (claims, file), label in rows.items()
        ]
        rng.shuffle(cells)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writeheader()
        writer.writerows(cells)
        (folder / name).write_text(rng.choice(["", "\ufeff"]) + text.getvalue(), newline="")
        return str(folder / name)

    inputs = Inputs(save("j.csv", "label", judge), save("e.csv", "prediction", standard))
    pairs = [(a, b) for key, a in judge.items() for other, b in standard.items() if key == other]
    if not pairs:
        with pytest.raises(InputError, match="shares no reconstruction"):
            evaluate(inputs, Counting(resamples=0))
        return
    for refused_as_no in (False, True):
        found = evaluate(inputs, Counting(refused_as_no, resamples=0))
        rejects = ("no", "refused") if refused_as_no else ("no",)
        assert found.figures["tp"] == sum(a == "yes" and b == "yes" for a, b in pairs)
        assert found.figures["fn"] == sum(a == "yes" and b == "no" for a, b in pairs)
        assert found.figures["fp"] == sum(a in rejects and b == "yes" for a, b in pairs)
        assert found.figures["tn"] == sum(a in rejects and b == "no" for a, b in pairs)
        assert found.figures["n"] == len(pairs)
        assert found.figures["join"]["only_judge"] == len(judge) - len(pairs)
        assert found.figures["join"]["only_standard"] == len(standard) - len(pairs)
        cells = Counter((key[0], a, b) for key, a in judge.items() for other, b in standard.items() if key == other)
        assert found.figures["classes"] == len(found.counts) == len({claims for claims, _, _ in cells})
        for (claims, a, b), times in cells.items():
            assert found.counts[claims][LABELS.index(a), int(b == "yes")] == times
