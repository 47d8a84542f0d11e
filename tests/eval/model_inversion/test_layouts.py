"""Folders of other tools, each in the layout that its code writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import describe, make, picture

from cprt.errors import InputError
from eval.model_inversion.collection.layouts import find_images
from eval.model_inversion.collection.setups import read_setups


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        if name.endswith(".png"):
            picture(folder / name, 1)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"")
    return folder


def found(folder: Path, layout: str) -> list[tuple[str, str]]:
    return [(claims, path.relative_to(folder).as_posix()) for claims, path in find_images(folder, layout)]


@pytest.mark.parametrize(
    ("layout", "names", "expected"),
    [
        ("classes", ["0/a.png", "x y/b.png", "0/notes.txt"], [("0", "0/a.png"), ("x y", "x y/b.png")]),
        (
            "mibench",
            ["final/0/0_k3Jq.png", "final/10/10_ab.png", "final/cache/latents.npy", "optimized/0/0_zz.png"],
            [("0", "final/0/0_k3Jq.png"), ("10", "final/10/10_ab.png")],
        ),
        (
            "mibench",
            ["final/images/7/7_ab.png", "final/cache/labels.npy", "final/evaluation.csv"],
            [("7", "final/images/7/7_ab.png")],
        ),
        (
            "plg-mi",
            [
                "all_imgs/0/attack_iden_0_3.png",
                "all_imgs/12/attack_iden_12_0.png",
                "success_imgs/0/0_attack_iden_0_0.png",
            ],
            [("0", "all_imgs/0/attack_iden_0_3.png"), ("12", "all_imgs/12/attack_iden_12_0.png")],
        ),
        (
            "kedmi",
            ["attack_iden_1_0.png", "attack_iden_60_4.png"],
            [("0", "attack_iden_1_0.png"), ("59", "attack_iden_60_4.png")],
        ),
    ],
)
def test_classes_are_those_of_the_layout(
    tmp_path: Path, layout: str, names: list[str], expected: list[tuple[str, str]]
):
    assert found(fill(tmp_path, *names), layout) == expected


@pytest.mark.parametrize(
    ("layout", "names", "said"),
    [
        ("kedmi", ["attack_iden_0_0.png"], "attack_iden_0_0.png: has number 0, but layout kedmi counts classes from 1"),
        ("kedmi", ["0/attack_iden_0_0.png"], "is a folder; layout kedmi has none"),
        ("kedmi", ["ID=1_T=2.png"], "does not begin with the class, as in layout kedmi"),
        ("plg-mi", ["all_imgs/0/attack_iden_1_0.png"], "lies in folder '0' and says class 1: is the layout another?"),
        ("plg-mi", ["0/attack_iden_0_0.png"], "has no folder all_imgs in it, as layout plg-mi has"),
        ("mibench", ["final/3/4_ab.png"], "lies in folder '3' and says class 4"),
        ("mibench", ["0/0_a.png"], "has no folder final/images or final in it"),
        ("classes", ["flat.png"], "flat.png: lies in no class folder"),
        ("classes", ["0/notes.txt"], "has no images in it"),
    ],
)
def test_another_layout_than_the_declared_one_is_told(tmp_path: Path, layout: str, names: list[str], said: str):
    with pytest.raises(InputError) as caught:
        found(fill(tmp_path, *names), layout)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_set_ups_of_other_tools_stand_beside_those_of_the_tree(tmp_path: Path):
    root = make(tmp_path)
    fill(root / "ours" / "res_all", *(f"attack_iden_{number}_{seed}.png" for number in (1, 2) for seed in (0, 1)))
    fill(root / "ours" / "private", *(f"{number}/{image}.png" for number in range(3) for image in range(5)))
    folders = {
        "CelebA/KEDMI/own/VGG16": {"layout": "kedmi", "images": "ours/res_all", "references": "ours/private"},
        "CelebA/Tree/own/VGG16": {"layout": "kedmi", "images": "ours/res_all"},
    }
    _, setups = read_setups(describe(tmp_path, root, folders=folders))
    assert [setup.name for setup in setups] == ["CelebA/KEDMI/FFHQ/FaceNet64", *folders]
    own, by_tree = setups[1:]
    assert [(image.claims, image.file) for image in own.reconstructions][:2] == [
        ("0", "attack_iden_1_0.png"),
        ("0", "attack_iden_1_1.png"),
    ]
    assert {len(paths) for paths in own.references.values()} == {5} and own.facts["attack"] == "KEDMI"
    assert all("ours/private" in path for path in own.references["0"])
    assert all("CelebA/private-data" in path for path in by_tree.references["0"])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"layout": "kedmi"}, "D.images': is missing"),
        ({"layout": "kedm", "images": "x"}, "'kedm' is not one of classes, mibench, plg-mi, kedmi"),
        ({"layout": "kedmi", "images": "../x"}, "'../x' is not a path inside"),
        ({"layout": "kedmi", "images": "gone"}, "'gone' is not a folder in"),
    ],
)
def test_a_declaration_that_does_not_fit_names_the_field(tmp_path: Path, row: dict[str, Any], said: str):
    with pytest.raises(InputError, match=r"collection.yaml: field 'folders\.A/B/C/D") as caught:
        read_setups(describe(tmp_path, make(tmp_path), folders={"A/B/C/D": row}))
    assert said in str(caught.value)


@pytest.mark.parametrize("spelt", ["facescrub", "FaceScrub", "Face-Scrub", "FACE_SCRUB/ppa"])
def test_names_fit_whatever_their_capitals_hyphens_and_underscores(tmp_path: Path, spelt: str):
    root = tmp_path / "root"
    fill(root / "AttackSamples" / "Facescrub" / "PPA" / "FFHQ" / "Resnet18" / "all-images", "0/ID=1_T=0.png")
    fill(root / "AttackSamples" / "Facescrub" / "private-data", "0/a.png")
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"root": str(root), "setups": {spelt: {"subject": "person"}}}))
    _, setups = read_setups(path, [spelt])
    assert [setup.name for setup in setups] == ["Facescrub/PPA/FFHQ/Resnet18"]
