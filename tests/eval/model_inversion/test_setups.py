"""The public collection read as it is; the claimed class and the kind of subject are never guessed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from collection import ID, SETUP, describe, make, picture

from cprt.errors import InputError
from eval.model_inversion.collection.places import claimed_class, targets_in
from eval.model_inversion.collection.setups import read_setups
from eval.model_inversion.compare.released import read_released


def flatten(root: Path) -> None:
    """Files beside each other, the class only in their names."""
    images = next(root.rglob("all-images"))
    for path in [*images.rglob("*.png")]:
        shutil.move(path, images / path.name.replace("ID=", f"ID={path.parent.name}"))
    for folder in [*images.iterdir()]:
        if folder.is_dir():
            folder.rmdir()


def into_the_setup(root: Path) -> None:
    base = next(root.rglob("private-data"))
    shutil.move(base, next(root.rglob("all-images")).parent / "private-data")


@pytest.mark.parametrize("nest", ["", "AttackSamples", "AttackSamples/AttackSamples"])
@pytest.mark.parametrize("change", [lambda root: None, flatten, into_the_setup])
def test_every_layout_of_the_public_collection_gives_the_same_setup(tmp_path: Path, nest: str, change):
    root = make(tmp_path, nest=nest)
    change(root)
    (next(root.rglob("all-images")) / ".DS_Store").write_bytes(b"x")
    (next(root.rglob("private-data")) / "0" / "Thumbs.db").write_bytes(b"x")
    _, (setup,) = read_setups(describe(tmp_path, root))
    assert (setup.name, setup.id) == (SETUP, ID)
    folders = {"private": "CelebA", "attack": "KEDMI", "public": "FFHQ", "target": "FaceNet64"}
    assert setup.facts == folders | dict.fromkeys(("evaluation_model", "evaluation_crop", "evaluation_accuracy"))
    assert [image.claims for image in setup.reconstructions] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    # Fault 9: .JPG counts as .png does, everywhere.
    assert {claims: len(paths) for claims, paths in setup.references.items()} == {"0": 7, "1": 7, "2": 7}
    assert setup.ignored == 1
    for path in [image.path for image in setup.reconstructions] + [p for r in setup.references.values() for p in r]:
        assert (root / path).is_file()


def test_a_collection_nested_further_down_has_the_names_of_its_released_verdicts(tmp_path: Path):
    root = make(tmp_path, nest="")
    shutil.move(root / "CelebA" / "KEDMI", root / "CelebA" / "AttackSamples" / "KEDMI")
    folder = root / "CelebA" / "AttackSamples" / SETUP.removeprefix("CelebA/")
    (folder / "prediction.csv").touch()
    (folder / "gemini_results_gemini-2.0-flash.csv").touch()
    (run,), _ = read_released(str(root))
    _, (setup,) = read_setups(describe(tmp_path, root))
    assert run.setup == setup.name == SETUP and setup.id == ID and run.images == folder / "all-images"


def test_one_or_all_setups_and_the_longest_name_decides_each_fact(tmp_path: Path):
    root = make(tmp_path)
    base = root / "AttackSamples" / "CelebA"
    shutil.copytree(base / "KEDMI", base / "PPA")
    shutil.copytree(base / "KEDMI" / "FFHQ", base / "KEDMI" / "Meine Bilder ü")
    file = describe(
        tmp_path,
        root,
        {
            "CelebA": {"subject": "person", "evaluation_model": "FaceNet"},
            "CelebA/PPA": {"evaluation_model": "InceptionV3", "evaluation_crop": "centre", "evaluation_accuracy": 0.93},
            "CelebA/PPA/FFHQ/FaceNet64": {"subject": {"same": "the same face", "allow": "age"}},
        },
    )
    _, setups = read_setups(file)
    assert [setup.id for setup in setups] == [ID, "celeba_kedmi_meine-bilder-u_facenet64", "celeba_ppa_ffhq_facenet64"]
    first, _, last = setups
    assert first.subject.same == "the same person" and first.facts["evaluation_model"] == "FaceNet"
    assert last.subject.same == "the same face" and last.facts["evaluation_accuracy"] == 0.93
    assert last.record()["evaluation_model"] == "InceptionV3" and last.record()["evaluation_crop"] == "centre"
    for only in ([SETUP], ["CelebA/KEDMI/FFHQ"], [ID], [ID, SETUP]):
        assert [setup.id for setup in read_setups(file, only)[1]] == [ID]
    assert len(read_setups(file, ["CelebA"])[1]) == 3
    with pytest.raises(InputError, match="only: 'CelebB' fits no set-up"):
        read_setups(file, ["CelebB"])


def test_the_kind_of_subject_comes_from_the_yaml_and_not_from_the_path(tmp_path: Path):
    """Fault 8: paths such as these were taken for objects and for faces."""
    root = make(tmp_path / "specifation" / "celebrity_dogs")
    for subject, same in (("breed", "breed"), ("object", "class"), ("person", "person")):
        _, (setup,) = read_setups(describe(tmp_path, root, {"CelebA": {"subject": subject}}))
        assert same in setup.subject.question
    with pytest.raises(InputError, match="nobody says what its classes are"):
        read_setups(describe(tmp_path, root, {"CelebA": {"target": "VGG16"}}))


def test_ids_are_safe_and_never_equal(tmp_path: Path):
    root = make(tmp_path)
    base = root / "AttackSamples"
    for name in ("celeba/KEDMI/FFHQ/FaceNet64", "日本/<script>/a b/c.."):
        shutil.copytree(base / SETUP, base / name)
        shutil.copytree(base / "CelebA" / "private-data", base / name.split("/")[0] / "private-data")
    _, setups = read_setups(describe(tmp_path, root, {n: {"subject": "person"} for n in ("CelebA", "celeba", "日本")}))
    ids = [setup.id for setup in setups]
    assert len(set(ids)) == 3 and all(id.replace("_", "").replace("-", "").isalnum() and id.isascii() for id in ids)
    assert [id[: len(ID)] == ID for id in ids] == [True, True, False]


# --- The claimed class -------------------------------------------------------------------------------------------


def test_the_class_comes_from_the_folder_or_from_t():
    assert claimed_class("7", "x.png", "") == "7" == claimed_class(None, "ID=5_T=7_P=0_CT=0.8.png", "")
    assert claimed_class("007", "T=7.png", "") == "007"
    assert claimed_class("Ann", "ID=1_T=3.png", "") == "Ann"
    assert claimed_class(None, "T=0.png", "") == "0"  # class 0 is a class
    assert [targets_in(f"{name}.png") for name in ("CT=0.8688", "ID=5_T=12", "T=x")] == [[], ["12"], []]


@pytest.mark.parametrize(
    ("move", "complaint"),
    [
        (("1/ID=0_T=1_P=1_CT=0.80.png", "0/ID=9_T=1_P=1.png"), "claims two classes: '0' and T=1"),
        (("1/ID=0_T=1_P=1_CT=0.80.png", "nameless.png"), "claims no class"),
        (("1/ID=0_T=1_P=1_CT=0.80.png", "T=1_T=2.png"), "states several classes"),
        (("1/ID=0_T=1_P=1_CT=0.80.png", "0/deep/ID=0.png"), "is a folder in a class"),
        (("1/ID=0_T=1_P=1_CT=0.80.png", "ID=1_T=1_P=1_CT=0.81.png"), "is twice in class '1'"),
    ],
)
def test_doubtful_classes_get_one_line(tmp_path: Path, move: tuple[str, str], complaint: str):
    root = make(tmp_path)
    images = next(root.rglob("all-images"))
    (images / move[1]).parent.mkdir(exist_ok=True)
    shutil.move(images / move[0], images / move[1])
    with pytest.raises(InputError) as caught:
        read_setups(describe(tmp_path, root))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_named_folders_and_t_must_go_together(tmp_path: Path):
    root = make(tmp_path)
    images = next(root.rglob("all-images"))
    for old, new in (("0", "Ann"), ("1", "Bob"), ("2", "Cid")):
        shutil.move(images / old, images / new)
    _, (setup,) = read_setups(describe(tmp_path, root))
    assert {image.claims for image in setup.reconstructions} == {"Ann", "Bob", "Cid"}
    assert setup.record()["classes_without_references"] == ["Ann", "Bob", "Cid"]
    picture(images / "Bob" / "ID=7_T=0.png", 1)
    with pytest.raises(InputError, match="T=0 stands in folder 'Bob' and in 'Ann'"):
        read_setups(describe(tmp_path, root))


# --- CSV ---------------------------------------------------------------------------------------------------------


def table(path: Path, *rows: str) -> Path:
    path.write_text("setup,file,class\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_other_layouts_come_in_through_csv(tmp_path: Path):
    root = tmp_path / "data"
    for number in range(6):
        picture(root / "x" / f"{number}.jpg", number)
    recon = table(tmp_path / "a.csv", 'mine/one,x/0.jpg,"Smith, J."', "mine/two,x/0.jpg,b", "mine/one,x/1.jpg,b")
    refs = table(tmp_path / "b.csv", ",x/2.jpg,b", 'mine/one,x/3.jpg,"Smith, J."', "mine/two,x/4.jpg,b")
    facts = {"mine": {"subject": "object", "private": "Photos", "attack": "PPA"}}
    _, (one, two) = read_setups(describe(tmp_path, root, facts, reconstructions=str(recon), references=str(refs)))
    assert [(image.claims, image.file) for image in one.reconstructions] == [("Smith, J.", "x/0.jpg"), ("b", "x/1.jpg")]
    assert one.references == {"Smith, J.": ("x/3.jpg",), "b": ("x/2.jpg",)}
    assert two.references == {"b": ("x/2.jpg", "x/4.jpg")} and two.facts["attack"] == "PPA" and two.source == "Photos"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("s,../../etc/passwd,a", "a.csv:2: field 'file': '../../etc/passwd' is not a path inside"),
        ("s,/etc/passwd,a", "a.csv:2: field 'file'"),
        ("s,x/9.jpg,a", "a.csv:2: field 'file': there is no file x/9.jpg"),
        ("s,x/0.jpg,", "a.csv:2: field 'file': '0.jpg' claims no class"),
        ("../s,x/0.jpg,a", "a.csv:2: field 'setup'"),
        (",x/0.jpg,a", "a.csv:2: field 'setup'"),
        ("s,x/0.jpg", "a.csv:2: has 2 cells, the header 3"),
        ('s,"x/0.jpg,a', "a.csv:2: not valid CSV"),
        ("s,x/0.jpg,a\ns,x/0.jpg,a", "is twice in class 'a'"),
        ("s,x/T=3.jpg,4", "claims two classes: '4' and T=3"),
        ("", "has no rows"),
    ],
)
def test_bad_tables_get_one_line(tmp_path: Path, row: str, complaint: str):
    root = tmp_path / "data"
    picture(root / "x" / "0.jpg", 0)
    picture(root / "x" / "T=3.jpg", 0)
    picture(root / "private-data" / "a" / "0.jpg", 0)
    file = describe(tmp_path, root, {"s": {"subject": "object"}}, reconstructions=str(table(tmp_path / "a.csv", row)))
    with pytest.raises(InputError) as caught:
        read_setups(file)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


# --- The YAML ----------------------------------------------------------------------------------------------------


def test_facts_of_what_is_not_there_are_noted(tmp_path: Path, capsys):
    """A ready description fits a part of the collection; a typing error is seen."""
    facts = {"CelebA": {"subject": "person"}, "CelebA/KEDM": {"evaluation_model": "x"}}
    (_, (setup,)) = read_setups(describe(tmp_path, make(tmp_path), facts))
    assert "setups.CelebA/KEDM fits no set-up (there are CelebA/KEDMI" in capsys.readouterr().out
    assert setup.facts["evaluation_model"] is None


@pytest.mark.parametrize(
    ("setups", "complaint"),
    [
        ({"CelebA": {"subject": "persn"}}, "setups.CelebA.subject': 'persn' is not one of person, object, breed"),
        ({"CelebA": {"subject": {"same": "the same car"}}}, "nor your own wording"),
        ({"CelebA": {"subject": {"same": "a\nb", "allow": "c"}}}, "same must be one line"),
        ({"CelebA": {"subjct": "person"}}, "unknown field"),
        ({"CelebA": "person"}, "must be a mapping"),
        ({"CelebA": {"subject": "person", "evaluation_accuracy": 93}}, "must be 0 to 1, not 93"),
        ({"CelebA": {"subject": "person", "reference_crop": [9, 9, 3, 3]}}, "is not [left, upper, right, lower]"),
        ({"CelebA": {"subject": "person", "target": 3}}, "3 is not a text"),
    ],
)
def test_bad_facts_get_one_line(tmp_path: Path, setups, complaint: str):
    with pytest.raises(InputError) as caught:
        read_setups(describe(tmp_path, make(tmp_path), setups))
    assert complaint in str(caught.value) and "collection.yaml" in str(caught.value)


def test_a_root_without_anything_gets_one_line(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no folder all-images"):
        read_setups(describe(tmp_path, tmp_path / "empty"))
    with pytest.raises(InputError, match="there is no folder"):
        read_setups(describe(tmp_path, tmp_path / "nowhere"))
    root = make(tmp_path)
    shutil.rmtree(next(root.rglob("private-data")))
    with pytest.raises(InputError, match="has no private-data for set-up CelebA/KEDMI"):
        read_setups(describe(tmp_path, root))


def test_names_that_are_no_text_get_one_line(tmp_path: Path):
    root = make(tmp_path)
    images = os.fsencode(next(root.rglob("all-images")) / "0")
    for name in (b"a\xff.png", b"a\nb.png"):
        shutil.copy(next(root.rglob("*.png")), os.path.join(images, name))
        with pytest.raises(InputError, match="is not printable text") as caught:
            read_setups(describe(tmp_path, root))
        assert str(caught.value).isprintable()
        os.remove(os.path.join(images, name))


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path):
    root = make(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    folder = next(root.rglob("all-images"))
    (folder / "99").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link to a folder; links are not followed"):
        read_setups(describe(tmp_path, root))
