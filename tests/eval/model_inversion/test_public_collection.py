"""A tree in the public collection's own names, from the download to the page: judged, classified, measured, compared.

Its verdicts are tabulated without a model, and are the anchor of a new judge.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from collection import picture
from file_server import Served, serving
from loopback import Misbehaving

from cprt.errors import InputError
from eval.model_inversion.compare import released as released_files
from eval.model_inversion.compare import run as compare
from eval.model_inversion.judge import run as judge
from eval.model_inversion.metrics import run as metrics
from eval.model_inversion.standard import run as standard

ROOT = Path(__file__).parents[3]
SETUPS = (
    "CelebA/KEDMI/CelebA/FaceNet64",
    "CelebA/PLGMI/CelebA/VGG16",
    "Facescrub/PPA/FFHQ/Resnet18",
    "Facescrub/IFGMI/MetFaces/Resnet152",
    "Cifa100/PPA/Cifar10/Resnet18",
    "Stanford_Dogs/PPA/AFHQ/Resnet152",
)
CLASSES, IMAGES = 4, 3


def write(path: Path, header: list[str], rows: list[tuple[str, ...]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def names(number: int) -> list[str]:
    return [f"ID={i}_T={number}_P={number}_CT=0.{i}688.png" for i in range(IMAGES)]


def released(setup: str, name: str) -> str:
    """What the released judge says: yes to two of three, and to none of the last class."""
    return "no" if "T=3" in name or name.startswith("ID=0") else "yes"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `hf download` leaves it: references inside each set-up, both forms of a judge's file."""
    root = tmp_path_factory.mktemp("data") / "MI-Reconstruction-Collection"
    for place, setup in enumerate(SETUPS):
        folder = root / setup
        for number in range(CLASSES):
            for i, name in enumerate(names(number)):
                picture(folder / "all-images" / str(number) / name, number, 2, i, size=(32, 32))
            for i in range(6):
                picture(folder / "private-data" / str(number) / f"{i}.png", number, 1, i, size=(32, 32))
        every = [name for number in range(CLASSES) for name in names(number)]
        if place % 2:
            rows = [(name, f"{released(setup, name).title()}.", released(setup, name)) for name in every]
            write(folder / "gemini_results_gemini_2.0_flash.csv", ["filename", "response", "label"], rows)
        else:
            rows = [(name, released(setup, name).title()) for name in every]
            write(folder / "gemini_results_gemini_2.0_flash.csv", ["filename", "label"], rows)
        # The public code joins by ID and T: in one set-up of these the rest of the names differs.
        of_e = [name.replace("_CT=", "_CT=1") if place == 0 else name for name in every]
        write(folder / "prediction.csv", ["filename", "prediction"], [(name, "yes") for name in of_e])
        write(
            folder / "user_study_gemini_results_gemini_2.0_flash.csv", ["filename", "class", "response", "category"], []
        )
    (root / "README.md").write_text("license: apache-2.0")
    return root


def table(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads((out / "compare.json").read_text())["rows"]
    return {(row["setup"], row["judge"]): row for row in rows}


def test_all_released_set_ups_are_tabulated_with_no_model_asked(root: Path, tmp_path: Path, capsys):
    words = ["--collection", str(root), "--out", str(tmp_path / "out"), "--resamples", "50"]
    compare.main([*words, "--thumbnails", "true"])
    printed = capsys.readouterr().out
    assert "private pictures" in printed and "not found" not in printed
    rows = table(tmp_path / "out")
    assert {setup for setup, _ in rows} == set(SETUPS) and {who for _, who in rows} == {"released/gemini_2.0_flash"}
    for (setup, _), row in rows.items():
        assert (row["n"], row["tp"], row["fp"], row["classes"]) == (12, 6, 6, 4)
        assert (row["fpr"], row["accuracy_judge"], row["accuracy_standard"]) == (1.0, 0.5, 1.0)
        assert row["join"]["by"] == ("class, ID and T" if setup == SETUPS[0] else "class and file")
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "Facescrub/IFGMI/MetFaces/Resnet152" in page
    with open(tmp_path / "out" / "false_positives.csv", newline="") as file:
        wrong = list(csv.DictReader(file))
    assert len(wrong) == 36 and {row["filename"] for row in wrong} <= {
        name for n in range(CLASSES) for name in names(n)
    }


def test_from_the_download_to_the_page(root: Path, tmp_path: Path):
    """The documented description of the collection, one new judge that agrees but on class 2, and an E of our own."""
    described = yaml.safe_load((ROOT / "configs" / "mi" / "collection.yaml").read_text())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(described | {"root": str(root)}))

    def answer(body: dict[str, Any]) -> tuple[str, str]:
        return "No." if "no" in str(body["model"]) else "Yes.", "stop"

    with Misbehaving(answer) as server:
        models = [
            {"name": name, "model": name, "base_url": server.url, "max_new_tokens": 8} for name in ("all-yes", "all-no")
        ]
        (tmp_path / "mi.yaml").write_text(yaml.safe_dump({"models": models, "setups": str(tmp_path / "c.yaml")}))
        words = ["--config", str(tmp_path / "mi.yaml"), "--out", str(tmp_path / "n4"), "--controls", "4"]
        judge.main([*words, "--only", "celeba", "Facescrub", "CIFA100"])
    manifest = json.loads((tmp_path / "n4" / "setups.json").read_text())
    assert [row["name"] for row in manifest] == sorted(SETUPS[:5])
    assert {row["same"] for row in manifest} == {"the same person", "an object of the same class"}

    ids = {row["name"]: row["id"] for row in manifest}
    files = sorted(path for setup in SETUPS[:5] for path in (root / setup / "all-images").rglob("*.png"))
    claimed = [int(path.parent.name) for path in files]
    logits = np.eye(4)[[(number + (number == 1)) % 4 for number in claimed]]  # E takes class 1 for class 2
    np.savez(tmp_path / "e.npz", files=[str(path) for path in files], logits=logits, features=logits)
    for setup in SETUPS[:5]:
        network = {"name": "E", "library": "outputs", "weights": str(tmp_path / "e.npz"), "num_classes": 4}
        network |= {"classes": "numeric"} | dict.fromkeys(("architecture", "crop", "resize", "mean", "std"))
        (tmp_path / "s.yaml").write_text(yaml.safe_dump({"classifier": network}))
        out = tmp_path / "standard" / ids[setup]
        standard.main(
            ["--config", str(tmp_path / "s.yaml"), "--images", str(root / setup / "all-images"), "--out", str(out)]
        )
    folder = tmp_path / "n4" / "all-yes" / ids[SETUPS[2]]
    words = ["--judge", str(folder / "judge.csv"), "--controls", str(folder / "controls.csv"), "--resamples", "50"]
    words += ["--standard", str(tmp_path / "standard" / ids[SETUPS[2]] / "prediction.csv")]
    metrics.main([*words, "--out", str(tmp_path / "m.json")])
    one = json.loads((tmp_path / "m.json").read_text())
    assert (one["tp"], one["fn"], one["control_hit_rate"], one["control_false_alarm_rate"]) == (9, 3, 1.0, 1.0)

    words = ["--runs", str(tmp_path / "n4"), "--standard", str(tmp_path / "standard"), "--resamples", "50"]
    compare.main([*words, "--out", str(tmp_path / "compare"), "--thumbnails", "true", "--images", str(root)])
    rows = table(tmp_path / "compare")
    assert len(rows) == 10 and rows[SETUPS[0], "all-no"]["fp"] == 9
    assert "Facescrub/PPA/FFHQ/Resnet18" in (tmp_path / "compare" / "compare.html").read_text()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_new_judge_is_held_against_the_released_verdicts_by_one_command(
    renamed: bool, root: Path, tmp_path: Path, capsys
):
    """A judge that agrees on 10 of 12 in one set-up, and was not asked about the others.

    Released files may call images otherwise behind ID and T.
    """
    setup, id = SETUPS[3], "facescrub_ifgmi_metfaces_resnet152"
    if renamed:
        (tmp_path / setup).mkdir(parents=True)
        for file in (root / setup).glob("*.csv"):
            text = file.read_text()
            (tmp_path / setup / file.name).write_text(text.replace("_CT=", "_CT=1") if "gemini" in file.name else text)
        root = tmp_path
    folder = tmp_path / "n4" / "mine" / id
    folder.mkdir(parents=True)
    every = [(str(number), name) for number in range(CLASSES) for name in names(number)]
    said = [released(setup, name) for _, name in every]
    said[1], said[2] = "no", "no"
    rows = [(name, claims, "", label) for (claims, name), label in zip(every, said, strict=True)]
    write(folder / "judge.csv", ["filename", "class", "response", "label"], rows)
    (tmp_path / "n4" / "setups.json").write_text(json.dumps([{"id": id, "name": setup}]))
    words = ["--collection", str(root), "--runs", str(tmp_path / "n4"), "--resamples", "50"]
    compare.main([*words, "--out", str(tmp_path / "out")])
    result = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (result["setups"], result["judges"]) == ([setup], ["mine", "released/gemini_2.0_flash"])
    (row,) = result["agreement"]
    assert (row["n"], row["agreement"]) == (12, pytest.approx(10 / 12))
    # Both no: 6, both yes: 4, one against the other: 2.
    chance = (8 / 12) * (6 / 12) + (4 / 12) * (6 / 12)
    assert row["kappa"] == pytest.approx((10 / 12 - chance) / (1 - chance))
    assert "mine and released/gemini_2.0_flash: kappa 0.667 [" in capsys.readouterr().out


def test_one_command_fetches_the_tables_says_their_licence_and_tabulates(
    root: Path, tmp_path: Path, monkeypatch, capsys
):
    """From a Hub on this machine that has the whole collection: images stay where they are."""
    from huggingface_hub import constants

    api, commit = f"/api/datasets/{released_files.REPO}", "1" * 40
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    rows = [{"type": "file", "path": name, "size": len(data), "oid": "2" * 40} for name, data in files.items()]
    info = {"id": released_files.REPO, "sha": commit, "cardData": {"license": "apache-2.0"}}
    info |= {"siblings": [{"rfilename": name} for name in files]}
    with serving() as server:
        for path, content in (
            (api, info),
            (f"{api}/revision/{commit}", info),
            (f"{api}/tree/{commit}?recursive=true&expand=false", rows),
        ):
            server.files[path] = Served(json.dumps(content).encode())
        for name, data in files.items():
            path = f"/datasets/{released_files.REPO}/resolve/{commit}/{name}"
            server.files[path] = Served(data, headers={"X-Repo-Commit": commit})
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        words = ["--collection", str(tmp_path / "data"), "--download", "true", "--resamples", "20"]
        compare.main([*words, "--out", str(tmp_path / "out")])
        asked = {request.path for request in server.requests}
    assert "licence by its card: apache-2.0" in capsys.readouterr().out
    assert {setup for setup, _ in table(tmp_path / "out")} == set(SETUPS)
    assert not [path for path in asked if path.endswith(".png")] and not list((tmp_path / "data").rglob("*.png"))
    with pytest.raises(InputError, match="Collection: 127.0.0.1 cannot be reached .Connection refused.; or put"):
        compare.main([*words, "--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="--download goes with --collection"):
        compare.main(["--runs", str(tmp_path), "--standard", "x", "--download", "true", "--out", str(tmp_path / "out")])


def test_set_ups_with_verdicts_of_one_kind_alone_are_noted(tmp_path: Path, capsys):
    for setup in SETUPS[:3]:
        (tmp_path / "data" / setup).mkdir(parents=True)
    rows = [(name, "yes") for name in names(1)]
    for setup in (SETUPS[0], SETUPS[1]):
        write(tmp_path / "data" / setup / "prediction.csv", ["filename", "prediction"], rows)
    for setup in (SETUPS[0], SETUPS[2]):
        write(tmp_path / "data" / setup / "gpt_results_gpt-5.csv", ["filename", "label"], rows)
    compare.main(["--collection", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--resamples", "0"])
    printed = capsys.readouterr().out
    assert set(table(tmp_path / "out")) == {(SETUPS[0], "released/gpt-5")}
    assert f"{SETUPS[1]} has no verdicts of a judge and is left out" in printed
    assert f"{SETUPS[2]} has no verdicts of E and is left out" in printed


def test_what_is_no_collection_is_told(tmp_path: Path, root: Path):
    for folder, said in ((tmp_path / "gone", "is not a folder"), (tmp_path, "has no prediction.csv in it")):
        with pytest.raises(InputError, match=said):
            compare.main(["--collection", str(folder), "--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="needs either --setups or --runs"):
        compare.main(["--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="--standard goes with --runs"):
        compare.main(["--collection", str(root), "--standard", str(tmp_path), "--out", str(tmp_path / "out")])
