"""A classifier is what its description says, or there is one line that says what does not fit."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from cprt.errors import InputError
from eval.model_inversion.standard.classifier import open_classifier
from eval.model_inversion.standard.spec import ClassifierSpec


def stated(weights: Path, /, **changes: Any) -> dict[str, Any]:
    row = {
        "name": "E",
        "library": "timm",
        "architecture": "test_vit",  # a few thousand weights; features of width 64
        "weights": str(weights),
        "num_classes": 12,
        "classes": "numeric",
        "crop": None,
        "resize": None,
        "mean": [0, 0, 0],
        "std": [1, 1, 1],
        "options": {"img_size": 64},
    }
    return row | changes


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "vit.safetensors"
    save_file(timm.create_model("test_vit", num_classes=12, img_size=64).state_dict(), path)
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 96, 3), dtype=np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"crp": 3}, "field 'crp': unknown field"),
        ({"mean": [0, 0]}, "field 'mean': [0, 0] is not three numbers"),
        ({"std": [1, 0, 1]}, "field 'std': [1, 0, 1] is not three numbers above 0"),
        ({"mean": ["a", 0, 0]}, "field 'mean': ['a', 0, 0] is not a list or null"),
        ({"num_classes": 1}, "field 'num_classes': must be at least 2"),
        ({"classes": ["a", "b"]}, "field 'classes': names 2 classes, but num_classes is 12"),
        ({"classes": ["a"] * 12}, "is not names of classes, each once"),
        ({"classes": "alphabetic"}, "field 'classes': 'alphabetic' is not one of numeric, sorted or a list"),
        ({"crop": [10, 0, 5, 5]}, "field 'crop': [10, 0, 5, 5] is not a number of pixels, or"),
        ({"resize": 0}, "field 'resize': must be at least 1"),
        ({"library": "keras"}, "field 'library': 'keras' is not one of timm, torchvision"),
        ({"library": "timm", "architecture": "hf-hub:someone/model"}, "is not the name of an architecture"),
        ({"library": "timm", "architecture": "no_such_net"}, "timm cannot build 'no_such_net'"),
        ({"library": "torchvision", "architecture": "resnet1"}, "torchvision cannot build 'resnet1'"),
        ({"library": "torchvision", "architecture": "resnet18", "options": {"pretrained": True}}, "options.pretrained"),
        (
            {"library": "timm", "architecture": "resnet18", "options": {"checkpoint_path": "x"}},
            "options.checkpoint_path",
        ),
        ({"architecture": "test_vit2"}, "the file lacks"),
        ({"num_classes": 13}, "does not fit test_vit with 13 classes (size mismatch for head."),
        ({"weights": "gone.safetensors"}, "gone.safetensors: no such file of weights"),
        ({"key": "model"}, "field 'key': has no entry 'model'"),
        ({"library": "torchvision", "architecture": "squeezenet1_0", "options": {}}, "the file lacks"),
        ({"library": "program"}, "field 'architecture': must be null or left out where library is program"),
        ({"library": "program", "architecture": None, "options": {}}, "vit.safetensors: is not a program"),
    ],
)
def test_what_does_not_fit_is_one_line(weights: Path, changes: dict[str, Any], said: str):
    with pytest.raises(InputError) as caught:
        open_classifier(ClassifierSpec.read(stated(weights, **changes), "classifier"), "classifier")
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["crop", "resize", "mean", "std", "classes", "num_classes", "weights"])
def test_nothing_that_changes_the_figures_has_a_default(weights: Path, name: str):
    row = stated(weights)
    del row[name]
    with pytest.raises(InputError, match=f"classifier: field '{name}': is missing"):
        ClassifierSpec.read(row, "classifier")


class Hostile:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("how", ["torch", "pickle", "nested", "named .safetensors"])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, how: str):
    marker = tmp_path / "was_here"
    path = tmp_path / ("w.safetensors" if "safetensors" in how else "w.pth")
    if how in ("torch", "nested"):
        torch.save({"a": Hostile(marker)} if how == "nested" else Hostile(marker), path)
    else:
        path.write_bytes(pickle.dumps(Hostile(marker)))
    with pytest.raises(InputError, match="is not a plain state dict") as caught:
        open_classifier(ClassifierSpec.read(stated(path), "classifier"), "classifier")
    assert "\n" not in str(caught.value)
    assert not marker.exists()


def test_a_checkpoint_of_torch_save_gives_the_same_as_safetensors(weights: Path, picture: Path, tmp_path: Path):
    state = {f"model.{name}": tensor for name, tensor in load_file(weights).items()}
    torch.save({"epoch": 3, "model_state_dict": state}, tmp_path / "w.pth")
    ways = [stated(weights, resize=64), stated(tmp_path / "w.pth", resize=64, key="model_state_dict", prefix="model.")]
    one, other = (open_classifier(ClassifierSpec.read(way, "c"), "c").see([picture], 8, "x") for way in ways)
    assert np.array_equal(one.probabilities, other.probabilities)
    with pytest.raises(InputError, match="is not a dictionary of tensors alone.*epoch, model_state_dict"):
        open_classifier(ClassifierSpec.read(stated(tmp_path / "w.pth"), "c"), "c")


@pytest.mark.parametrize(
    ("crop", "box"), [(None, (0, 0, 96, 80)), (40, (28, 20, 68, 60)), ([5, 6, 69, 70], (5, 6, 69, 70))]
)
def test_crop_resize_and_normalisation_are_those_stated(weights: Path, picture: Path, crop: Any, box: tuple[int, ...]):
    spec = ClassifierSpec.read(stated(weights, crop=crop, resize=64, mean=[0.1, 0.2, 0.3], std=[0.5, 0.6, 0.7]), "c")
    classifier = open_classifier(spec, "c")
    seen = classifier.see([picture], 8, "x")
    image = Image.open(picture).crop(box).resize((64, 64), Image.Resampling.BILINEAR)
    pixels = (np.asarray(image) / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.6, 0.7]
    with torch.no_grad():
        model = timm.create_model("test_vit", num_classes=12, img_size=64).eval()
        model.load_state_dict(load_file(weights))
        by_hand = model(torch.tensor(pixels).permute(2, 0, 1)[None].float()).softmax(dim=1)
    assert seen.probabilities == pytest.approx(by_hand.numpy(), abs=1e-6)


def test_a_crop_larger_than_the_image_is_refused(weights: Path, picture: Path):
    spec = ClassifierSpec.read(stated(weights, crop=90), "c")
    with pytest.raises(InputError, match="96 x 80 pixels are too small for crop 90"):
        open_classifier(spec, "c").see([picture], 8, "x")


def test_batches_change_nothing(weights: Path, picture: Path):
    classifier = open_classifier(ClassifierSpec.read(stated(weights, resize=64), "c"), "c")
    paths = [picture] * 5
    whole, parts = classifier.see(paths, 8, "x"), classifier.see(paths, 2, "x")
    assert parts.probabilities == pytest.approx(whole.probabilities, abs=1e-6)
    assert parts.features.shape == (5, 64)
    assert parts.features == pytest.approx(whole.features, abs=1e-5)


def test_weights_that_give_no_number_are_told(weights: Path, picture: Path, tmp_path: Path):
    state = load_file(weights)
    state["head.bias"][0] = float("nan")
    save_file(state, tmp_path / "nan.safetensors")
    spec = ClassifierSpec.read(stated(tmp_path / "nan.safetensors", resize=64), "c")
    with pytest.raises(InputError, match="picture.png: E gives logits that are not finite"):
        open_classifier(spec, "c").see([picture], 8, "x")


@pytest.mark.parametrize(
    ("library", "architecture", "dimensions"),
    [("torchvision", "shufflenet_v2_x0_5", 1024), ("timm", "test_resnet", 96)],
)
def test_features_are_what_the_last_linear_layer_takes(
    library: str, architecture: str, dimensions: int, picture: Path, tmp_path: Path
):
    import timm
    import torchvision

    torch.manual_seed(1)
    builders = {
        "torchvision": lambda: torchvision.models.get_model(architecture, weights=None, num_classes=9),
        "timm": lambda: timm.create_model(architecture, pretrained=False, num_classes=9),
    }
    model = builders[library]().eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    changes = {"library": library, "architecture": architecture, "num_classes": 9, "resize": 64, "options": {}}
    row = stated(tmp_path / "w.safetensors", **changes)
    seen = open_classifier(ClassifierSpec.read(row, "c"), "c").see([picture], 8, "x")
    head = model.fc
    with torch.no_grad():
        pixels = np.asarray(Image.open(picture).resize((64, 64), Image.Resampling.BILINEAR)) / 255
        by_model = model(torch.tensor(pixels).permute(2, 0, 1)[None].float()).softmax(dim=1).numpy()
        by_features = head(torch.tensor(seen.features).float()).softmax(dim=1).numpy()
    assert seen.features.shape == (1, dimensions)
    assert seen.probabilities == pytest.approx(by_model, abs=1e-5)
    assert seen.probabilities == pytest.approx(by_features, abs=1e-5)


def test_the_order_of_classes_is_the_one_stated(weights: Path):
    private = [str(number) for number in range(12)]
    numeric = ClassifierSpec.read(stated(weights), "c").index(None, "c")
    assert [numeric.logit(name, "x") for name in ("0", "000", "2", "011")] == [0, 0, 2, 11]
    by_text = ClassifierSpec.read(stated(weights, classes="sorted"), "c").index(private, "c")
    assert by_text.names[:4] == ["0", "1", "10", "11"] and by_text.logit("2", "x") == 4
    names = [f"person {letter}" for letter in "lkjihgfedcba"]
    listed = ClassifierSpec.read(stated(weights, classes=names), "c").index(None, "c")
    assert listed.logit("person l", "x") == 0 and listed.names == names
    with pytest.raises(InputError, match="x: the classifier has no class '12'"):
        numeric.logit("12", "x")
    with pytest.raises(InputError, match="sorted needs --private"):
        ClassifierSpec.read(stated(weights, classes="sorted"), "c").index(None, "c")
    with pytest.raises(InputError, match="there are 11 folders of private images, but num_classes is 12"):
        ClassifierSpec.read(stated(weights, classes="sorted"), "c").index(private[1:], "c")
