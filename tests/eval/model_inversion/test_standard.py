"""``cprt mi-standard`` on real networks and pictures: what it writes, and what it refuses."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file

from cprt.errors import InputError
from cprt.metrics.bootstrap import ClusteredShare
from cprt.provenance import file_digest
from eval.model_inversion.demo.bench import images_folder, private_folder, setups
from eval.model_inversion.demo.networks import stack
from eval.model_inversion.metrics.join import read_naturals
from eval.model_inversion.standard import run as standard
from eval.model_inversion.standard.features import frechet_distance
from eval.model_inversion.standard.outputs import Outputs, accuracies


@pytest.fixture
def run(bench, tmp_path: Path):
    """Runs the command on the last set-up, with changes to classifier and options; gives OUT and standard.json."""
    config = yaml.safe_load((bench.out / "classifiers" / "residual.yaml").read_text())

    def command(classifier: dict[str, Any] | None = None, **options: Any) -> tuple[Path, dict[str, Any]]:
        images = str(images_folder(bench.out, setups(bench.settings)[-1]))
        chosen = {**config, "images": images, "out": str(tmp_path / "out"), **options}
        chosen["classifier"] = {**config["classifier"], **(classifier or {})}
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(chosen))
        standard.main(["--config", str(file)])
        out = Path(chosen["out"])
        return out, json.loads((out / "standard.json").read_text())

    return command


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def network(bench, name: str) -> torch.nn.Module:
    return torch.export.load(bench.out / "weights" / f"{name}.pt2").module()


def test_predictions_and_figures_are_those_of_the_network(bench, run):
    out, report = run()
    folder = images_folder(bench.out, setups(bench.settings)[-1])
    found = rows(out / "prediction.csv")
    assert list(found[0]) == ["filename", "class", "prediction", "top5", "confidence", "predicted_class"]
    model = network(bench, "residual")
    with torch.no_grad():
        pictures = stack([Image.open(folder / row["class"] / row["filename"]) for row in found])
        probabilities = model(pictures).softmax(dim=1).numpy()
        clean = sorted((bench.out / "clean").rglob("*.png"))
        own = model(stack([Image.open(path) for path in clean])).argmax(dim=1).tolist()
    claimed = [int(row["class"]) for row in found]
    first = [int(p.argmax()) == c for p, c in zip(probabilities, claimed, strict=True)]
    five = [c in np.argsort(-p)[:5] for p, c in zip(probabilities, claimed, strict=True)]
    assert [row["prediction"] == "yes" for row in found] == first
    assert [row["top5"] == "yes" for row in found] == five
    assert [int(row["predicted_class"]) for row in found] == probabilities.argmax(axis=1).tolist()
    confidence = probabilities[np.arange(len(claimed)), claimed]
    assert [float(row["confidence"]) for row in found] == pytest.approx(confidence, abs=1e-5)
    assert report["n"] == len(found) == len(list(folder.rglob("*.png")))
    assert report["top1_accuracy"] == pytest.approx(np.mean(first))
    assert report["top5_accuracy"] == pytest.approx(np.mean(five))
    assert report["confidence"] == pytest.approx(confidence.mean(), abs=1e-5)
    assert report["clean"]["top1_accuracy"] == np.mean(
        [int(path.parent.name) == c for path, c in zip(clean, own, strict=True)]
    )
    assert report["clean"]["top1_accuracy"] > 0.6
    assert any(row["class"] == "0" and row["prediction"] == "yes" for row in rows(out / "prediction.csv"))


def test_the_report_says_who_e_is_and_what_is_undefined(bench, run):
    out, report = run()
    classifier = report["classifier"]
    assert classifier["weights_sha256"] == file_digest(bench.out / "weights" / "residual.pt2")
    assert (classifier["crop"], classifier["resize"], classifier["weights"]) == (None, None, "residual.pt2")
    assert classifier["logits"] == [str(number) for number in range(bench.settings.classes)]
    assert report["fid"] is None and "FID over 768 features" in report["undefined"]["fid"]
    assert report["feature_distance"] > 0 and report["feature_dimensions"] == 768
    assert 0 <= report["precision"] <= 1 and report["prdc_classes"] == bench.settings.classes
    assert (out / "run.json").is_file()
    _, bare = run(private=None, clean=None)
    assert {bare[name] for name in ("fid", "feature_distance", "precision", "coverage", "clean")} == {None}
    assert bare["undefined"].keys() == {"fid", "feature_distance", "prdc", "clean", "literature"}
    assert bare["top1_accuracy"] == report["top1_accuracy"]


def test_private_images_are_at_distance_zero_from_themselves(bench, run):
    weights = str(bench.out / "weights" / "plain.pt2")
    plain = {"name": "plain", "weights": weights}  # 64 features: fewer than there are images
    _, report = run(plain, images=str(private_folder(bench.out)))
    assert report["feature_distance"] == pytest.approx(0, abs=1e-9)
    assert report["fid"] == pytest.approx(0, abs=1e-3)
    assert report["precision"] == report["coverage"] == 1
    _, other = run(images=str(private_folder(bench.out)), features={**report_spec(report, weights)})
    literature = other["literature"]
    assert literature["fid"] == pytest.approx(0, abs=1e-3) and literature["network"]["name"] == "plain"
    assert literature["precision"] == 1 and literature["feature_dimensions"] == 64
    assert other["feature_dimensions"] == 768 and other["convention"] == "evaluation model"


def test_the_literatures_figures_rest_on_attacked_classes_and_stand_beside_those_of_e(bench, run, capsys, tmp_path):
    """Features from a file, as for an Inception whose weights are elsewhere; one class of six is attacked."""
    folder = tmp_path / "one"
    source = images_folder(bench.out, setups(bench.settings)[-1]) / "0"
    shutil.copytree(source, folder / "0")
    files = [*sorted(folder.rglob("*.png")), *sorted(private_folder(bench.out).rglob("*.png"))]
    features = np.random.default_rng(0).normal(size=(len(files), 5))
    np.savez(tmp_path / "f.npz", files=[str(path) for path in files], features=features)
    network = {"name": "Inception pool3", "library": "outputs", "weights": str(tmp_path / "f.npz"), "num_classes": 1008}
    network |= {"classes": "numeric"} | dict.fromkeys(("architecture", "crop", "resize", "mean", "std"))
    _, report = run(images=str(folder), features=network, embedding=network)
    found, n = report["literature"], len(list(folder.rglob("*.png")))
    private = [row for row, path in enumerate(files) if row >= n and path.parent.name == "0"]
    assert (found["images"], found["private_images"]) == (n, len(private))
    assert found["fid"] == pytest.approx(frechet_distance(features[:n], features[private]))
    nearest = [min(((features[row] - features[other]) ** 2).sum() for other in private) for row in range(n)]
    assert report["embedding"]["feature_distance"] == pytest.approx(np.mean(nearest))
    printed = capsys.readouterr().out
    assert "features of Residual: distance" in printed and "features of Inception pool3: distance" in printed
    assert f"literature's convention, features of Inception pool3: FID {found['fid']:.2f}, precision" in printed
    run()
    assert "literature's convention (ImageNet Inception, pool3): not computed" in capsys.readouterr().out


def test_the_weights_that_a_student_begins_from_are_recorded_by_content_and_without_their_folder(bench, run, tmp_path):
    weights = tmp_path / "somebody" / "begin.safetensors"
    weights.parent.mkdir()
    save_file(timm.create_model("test_resnet", num_classes=9).state_dict(), weights)
    student = {"library": "timm", "architecture": "test_resnet", "weights": str(weights), "resize": 32}
    student |= {"mean": [0.5] * 3, "std": [0.5] * 3, "epochs": 1}
    out, report = run(student=student)
    recorded, of = report["extraction"]["student"], json.loads((out / "run.json").read_text())["inputs"]["student"]
    assert (recorded["weights"], recorded["weights_sha256"]) == ("begin.safetensors", file_digest(weights))
    assert of["sha256"] == file_digest(weights) and "somebody" not in (out / "standard.json").read_text()


@pytest.mark.slow
def test_a_student_of_true_reconstructions_knows_the_people_and_one_of_noise_does_not(bench, run, tmp_path):
    rng = np.random.default_rng(0)
    for path in private_folder(bench.out).rglob("*.png"):
        noise = Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
        target = tmp_path / "noise" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        noise.save(target)
    student = {"library": "timm", "architecture": "test_resnet", "weights": None, "resize": 64}
    student |= {"mean": [0.5] * 3, "std": [0.5] * 3, "epochs": 8, "batch_size": 16, "learning_rate": 0.05}
    _, true = run(images=str(private_folder(bench.out)), student=student)
    _, false = run(images=str(tmp_path / "noise"), student=student)
    assert true["extraction"]["clean"]["top1_accuracy"] > 0.5 > 0.35 > false["extraction"]["clean"]["top1_accuracy"]
    assert true["extraction"]["private"]["n"] == bench.settings.classes * bench.settings.views
    assert true["extraction"]["student"]["epochs"] == 8
    _, again = run(images=str(private_folder(bench.out)), student=student)
    assert again["extraction"] == true["extraction"]  # the seed decides


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 0}, "student: field 'epochs': must be at least 1"),
        ({"lr": 1}, "student: field 'lr': unknown field"),
        ({"weights": "gone.pth"}, "gone.pth"),
        ({"learning_rate": 0}, "student: field 'learning_rate': must be more than 0"),
    ],
)
def test_a_student_that_cannot_be_made_is_one_line(bench, run, changes: dict[str, Any], said: str):
    student = {"library": "timm", "architecture": "test_resnet", "weights": None, "resize": 64}
    student |= {"mean": [0.5] * 3, "std": [0.5] * 3} | changes
    with pytest.raises(InputError, match=said):
        run(student=student)


def report_spec(report: dict[str, Any], weights: str) -> dict[str, Any]:
    row = {name: value for name, value in report["classifier"].items() if name not in ("weights_sha256", "logits")}
    return {**row, "weights": weights}


def test_the_crop_is_recorded_and_costs_accuracy(run):
    _, whole = run()
    _, cropped = run({"crop": 36, "resize": 64})
    assert (cropped["classifier"]["crop"], cropped["classifier"]["resize"]) == (36, 64)
    assert cropped["clean"]["top1_accuracy"] < whole["clean"]["top1_accuracy"] - 0.1


def test_files_of_another_tool_are_read_by_its_layout(bench, run, tmp_path):
    """KEDMI's class 3 is number 4: read as they are, its files give the same verdicts."""
    source = images_folder(bench.out, setups(bench.settings)[-1])
    for path in source.rglob("*.png"):
        number, seed = int(path.parent.name) + 1, path.name.split("_")[0].removeprefix("ID=")
        shutil.copy(path, tmp_path / f"attack_iden_{number}_{seed}.png")
    _, report = run(images=str(tmp_path), layout="kedmi")
    _, plain = run()
    assert (report["n"], report["top1_accuracy"]) == (plain["n"], plain["top1_accuracy"])
    assert report["confidence"] == pytest.approx(plain["confidence"])


def test_natural_images_are_tried_as_the_class_that_the_target_takes_them_for(bench, run, tmp_path):
    """Photos of other people in one folder: T says whom it takes each for, and E is asked about that."""
    for number, path in enumerate(sorted((bench.out / "sources").rglob("*.png"))):
        (tmp_path / "natural" / "0").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "natural" / "0" / f"{number}.png")
    natural = str(tmp_path / "natural")
    plain = {"weights": str(bench.out / "weights" / "plain.pt2"), "name": "T"}
    by_t, _ = run(plain, images=natural, out=str(tmp_path / "t"))
    by_e, report = run(images=natural, out=str(tmp_path / "e"), claims=str(by_t / "prediction.csv"))
    said_t, said_e = rows(by_t / "prediction.csv"), rows(by_e / "prediction.csv")
    assert [row["class"] for row in said_e] == [row["predicted_class"] for row in said_t]
    assert [row["filename"] for row in said_e] == [f"0/{row['filename']}" for row in said_t]
    accepted = [a["predicted_class"] == b["predicted_class"] for a, b in zip(said_t, said_e, strict=True)]
    assert [row["prediction"] == "yes" for row in said_e] == accepted and any(accepted)
    counts = read_naturals(by_e / "prediction.csv")
    assert sum(count[True] for count in counts.values()) / report["n"] == report["top1_accuracy"]
    (by_t / "prediction.csv").write_text("filename,class,predicted_class\n0.png,0,1\n")
    with pytest.raises(InputError, match=r"prediction.csv: has no row for 0/1.png"):
        run(images=natural, out=str(tmp_path / "e2"), claims=str(by_t / "prediction.csv"))


def test_another_order_of_classes_gives_other_figures(bench, run):
    _, numeric = run()
    _, listed = run({"classes": [str(number) for number in range(bench.settings.classes)]})
    _, by_folder = run({"classes": "sorted"})  # the same order while there are fewer than ten
    _, turned = run({"classes": [str(number) for number in reversed(range(bench.settings.classes))]})
    assert numeric["top1_accuracy"] == listed["top1_accuracy"] == by_folder["top1_accuracy"]
    assert turned["clean"]["top1_accuracy"] < 0.4 < numeric["clean"]["top1_accuracy"]


def test_top_five_of_five_classes_is_undefined_and_ties_are_settled():
    probabilities = np.asarray([[0.2, 0.2, 0.2, 0.2, 0.2]])
    seen = Outputs(probabilities, np.zeros((1, 1)))
    assert accuracies(seen, np.asarray([0]))["top1_accuracy"] == 1
    assert accuracies(seen, np.asarray([1]))["top1_accuracy"] == 0
    assert accuracies(seen, np.asarray([1]))["top5_accuracy"] is None
    six = Outputs(np.asarray([[0.3, 0.1, 0.1, 0.1, 0.1, 0.3]] * 2), np.zeros((2, 1)))
    figures = accuracies(six, np.asarray([0, 4]))
    assert (figures["top1_accuracy"], figures["top5_accuracy"]) == (0.5, 0.5)
    assert figures["confidence"] == pytest.approx(0.2)
    assert figures["ci"]["top1_accuracy"] == ClusteredShare.of([1, 0], [1, 1]).interval


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "has no images"),
        (lambda folder: Image.new("RGB", (64, 64)).save(folder / "flat.png"), "flat.png: lies in no class folder"),
        (lambda folder: picture(folder / "99" / "a.png"), "the classifier has no class '99'"),
        (lambda folder: picture(folder / "ä b" / "a.png"), "the classifier has no class 'ä b'"),
        (
            lambda folder: (picture(folder / "0" / "a.png"), (folder / "0" / "b.png").write_text("no")),
            "is not an image",
        ),
        (lambda folder: (picture(folder / "0" / "a.png"), picture(folder / "0" / "b.png", 32)), "another size"),
    ],
)
def test_bad_images_are_one_line_and_nothing_is_written(bench, tmp_path: Path, make, said: str):
    folder = tmp_path / "in"
    folder.mkdir()
    make(folder)
    config = bench.out / "classifiers" / "residual.yaml"
    words = ["--config", str(config), "--images", str(folder), "--out", str(tmp_path / "out")]
    with pytest.raises(InputError) as caught:
        standard.main(words)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_hostile_file_of_weights_ends_with_status_2_and_one_line(bench, tmp_path: Path):
    marker = tmp_path / "was_here"
    (tmp_path / "w.pth").write_bytes(
        b"cos\nmkdir\n(V" + str(marker).encode() + b"\ntR."
    )  # a pickle that makes a folder
    config = yaml.safe_load((bench.out / "classifiers" / "residual.yaml").read_text())
    config["classifier"] |= {"library": "timm", "architecture": "test_vit", "weights": str(tmp_path / "w.pth")}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    images = images_folder(bench.out, setups(bench.settings)[0])
    words = ["--config", str(tmp_path / "c.yaml"), "--images", str(images), "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-m", "cprt.cli", "mi-standard", *words], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"cprt mi-standard: error: {tmp_path / 'w.pth'}: is not a plain state dict")
    assert len(done.stderr.splitlines()) == 1
    assert not marker.exists() and not (tmp_path / "out").exists()
    pickle.loads((tmp_path / "w.pth").read_bytes())
    assert marker.exists()  # so it would have


def picture(path: Path, side: int = 64) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side)).save(path)
