"""Each loader gives the reference's logits: weights in the layout of the authors' files, run here by the names alone.

The functions below are written from the papers' networks and from the names of the tensors, with no module of ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from cprt.errors import InputError
from eval.model_inversion.standard.classifier import open_classifier
from eval.model_inversion.standard.reference import ARCHITECTURES
from eval.model_inversion.standard.spec import ClassifierSpec

State = dict[str, Tensor]


def norm(state: State, name: str, x: Tensor) -> Tensor:
    mean, var, weight, bias = (state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    shape = (1, -1, 1, 1) if x.dim() == 4 else (1, -1)
    scale = weight / (var + 1e-5).sqrt()
    return x * scale.view(shape) + (bias - mean * scale).view(shape)


def face_backbone(state: State, x: Tensor, units: tuple[int, ...]) -> Tensor:
    x = F.conv2d(x, state["feature.input_layer.0.weight"], padding=1)
    x = F.prelu(norm(state, "feature.input_layer.1", x), state["feature.input_layer.2.weight"])
    number = 0
    for count in units:
        for place in range(count):
            name, stride = f"feature.body.{number}", 1 if place else 2
            if f"{name}.shortcut_layer.0.weight" in state:
                short = F.conv2d(x, state[f"{name}.shortcut_layer.0.weight"], stride=stride)
                short = norm(state, f"{name}.shortcut_layer.1", short)
            else:
                short = x[:, :, ::stride, ::stride]
            x = F.conv2d(norm(state, f"{name}.res_layer.0", x), state[f"{name}.res_layer.1.weight"], padding=1)
            x = F.prelu(x, state[f"{name}.res_layer.2.weight"])
            x = F.conv2d(x, state[f"{name}.res_layer.3.weight"], padding=1, stride=stride)
            x = norm(state, f"{name}.res_layer.4", x) + short
            number += 1
    assert f"feature.body.{number}.res_layer.0.weight" not in state
    return x


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def face(state: State, x: Tensor, units: tuple[int, ...], output: str) -> tuple[Tensor, Tensor]:
    x = norm(state, f"{output}.0", face_backbone(state, x, units)).flatten(1)
    features = norm(state, f"{output}.4", linear(state, f"{output}.3", x))
    return features, linear(state, "fc_layer", features)


def vgg16(state: State, x: Tensor) -> tuple[Tensor, Tensor]:
    place = 0
    for width in (
        64,
        64,
        "pool",
        128,
        128,
        "pool",
        256,
        256,
        256,
        "pool",
        512,
        512,
        512,
        "pool",
        512,
        512,
        512,
        "pool",
    ):
        if width == "pool":
            x, place = F.max_pool2d(x, 2), place + 1
        else:
            x = F.conv2d(x, state[f"feature.{place}.weight"], state[f"feature.{place}.bias"], padding=1)
            x, place = norm(state, f"feature.{place + 1}", x).relu(), place + 3
    features = norm(state, "bn", x.flatten(1))
    return features, linear(state, "fc_layer", features)


REFERENCES = {
    "VGG16": (vgg16, 64),
    "FaceNet64": (lambda state, x: face(state, x, (3, 4, 14, 3), "output_layer"), 64),
    "IR152": (lambda state, x: face(state, x, (3, 8, 36, 3), "output_layer"), 64),
    "FaceNet": (lambda state, x: face(state, x, (3, 4, 14, 3), "feature.output_layer"), 112),
}


def randomised(model: nn.Module, size: int) -> State:
    """Random weights whose statistics are those of pictures, so that activations keep their range and differ."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.momentum = 1.0
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
        elif isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0, 0.5)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    with torch.no_grad():
        model.train()(F.interpolate(torch.randn(8, 3, 9, 9), (size, size)))
    # Files older than the counter lack it.
    return {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("num_batches_tracked")}


def stated(weights: Path, architecture: str, size: int, **changes: Any) -> ClassifierSpec:
    row = {
        "name": "E",
        "library": "reference",
        "architecture": architecture,
        "weights": str(weights),
        "num_classes": 9,
        "classes": "numeric",
        "crop": None,
        "resize": size,
        "mean": [0.4, 0.5, 0.6],
        "std": [0.2, 0.3, 0.4],
    }
    return ClassifierSpec.read(row | changes, "classifier")


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"{number}.png")
        coarse = Image.fromarray(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8))
        coarse.resize((70, 70), Image.Resampling.NEAREST).save(paths[-1])
    return paths


def as_shown(paths: list[Path], size: int) -> Tensor:
    images = [Image.open(path).resize((size, size), Image.Resampling.BILINEAR) for path in paths]
    pixels = (np.stack(images) / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]
    return torch.tensor(pixels).permute(0, 3, 1, 2).float()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ("FaceNet", "IR152") else []) for name in REFERENCES],
)
def test_logits_are_the_references(name: str, tmp_path: Path, pictures: list[Path]):
    reference, size = REFERENCES[name]
    state = randomised(ARCHITECTURES[name](9), size)
    # As KEDMI's files hold it: a dictionary with more in it, names led by DataParallel's.
    path = tmp_path / f"{name}.tar"
    torch.save({"epoch": 3, "state_dict": {f"module.{key}": tensor for key, tensor in state.items()}}, path)
    spec = stated(path, name, size, key="state_dict", prefix="module.")
    seen = open_classifier(spec, "classifier").see(pictures, 8, "x")
    features, logits = reference(state, as_shown(pictures, size))
    assert seen.probabilities == pytest.approx(logits.softmax(dim=1).numpy(), abs=1e-5)
    assert seen.features == pytest.approx(features.numpy(), abs=1e-3)
    assert (logits[0] - logits[1]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "tensors", "one"),
    [
        ("VGG16", 13 * 6 + 4 + 2, ("bn.running_mean", (2048,))),  # weight and bias, and four of the normalisation
        ("FaceNet64", None, ("output_layer.3.weight", (512, 8192))),
        ("FaceNet", None, ("feature.output_layer.3.weight", (512, 25088))),
        ("IR152", None, ("feature.body.49.res_layer.4.running_var", (512,))),
    ],
)
def test_tensors_have_the_names_of_the_authors_files(name: str, tensors: int | None, one: tuple[str, tuple[int, ...]]):
    state = ARCHITECTURES[name](9).state_dict()
    assert state[one[0]].shape == one[1] and state["fc_layer.weight"].shape[0] == 9
    if tensors is not None:
        assert len([key for key in state if not key.endswith("num_batches_tracked")]) == tensors


@pytest.mark.parametrize("auxiliary", [None, 1000, 9])
def test_an_inception_of_ppa_loads_with_its_auxiliary_head_or_without(
    auxiliary: int | None, tmp_path: Path, pictures: list[Path]
):
    """PPA exchanges ``fc`` alone: the auxiliary head in its files keeps ImageNet's 1,000 classes."""
    torch.manual_seed(0)
    model = torchvision.models.inception_v3(weights=None, init_weights=False, aux_logits=auxiliary is not None)
    model.fc = nn.Linear(2048, 9)
    if auxiliary is not None:
        model.AuxLogits.fc = nn.Linear(768, auxiliary)
    model.eval()
    path = tmp_path / "Inception.pth"
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"epoch": 100, "model_state_dict": state, "optimizer_state_dict": {"state": {}}}, path)
    changes = {"library": "torchvision", "key": "model_state_dict", "prefix": "model."}
    seen = open_classifier(stated(path, "inception_v3", 299, **changes), "c").see(pictures, 8, "x")
    with torch.inference_mode():
        logits = model(as_shown(pictures, 299))
    assert seen.probabilities == pytest.approx(logits.softmax(dim=1).numpy(), abs=1e-5)
    if auxiliary == 1000:
        with pytest.raises(InputError, match="size mismatch for AuxLogits.fc.weight"):
            open_classifier(stated(path, "inception_v3", 299, **changes, options={"aux_logits": True}), "c")


@pytest.mark.slow
def test_the_inception_of_fid_pools_as_tensorflow_does(tmp_path: Path, pictures: list[Path]):
    """Averages leave the padding out, the last block takes the largest; the rest is torchvision's."""
    torch.manual_seed(0)
    plain = torchvision.models.inception_v3(weights=None, init_weights=False, aux_logits=False, num_classes=11)
    randomised(plain, 299)
    save_file(plain.eval().state_dict(), tmp_path / "w.safetensors")
    spec = stated(tmp_path / "w.safetensors", "FIDInception", 299, num_classes=11)
    features = open_classifier(spec, "c").see(pictures, 8, "x").features
    assert features.shape == (2, 2048)

    def averaged(x: Tensor) -> Tensor:  # by counting what lies inside
        ones = torch.ones_like(x[:1, :1])
        weights = torch.ones(1, 1, 3, 3)
        summed = F.conv2d(x.flatten(0, 1)[:, None], weights, padding=1).view_as(x)
        return summed / F.conv2d(ones, weights, padding=1)

    x = as_shown(pictures, 299)
    with torch.inference_mode():
        for name, block in plain.named_children():
            if name == "avgpool":
                break
            if name.startswith("Mixed") and hasattr(block, "branch_pool"):
                pooled = F.max_pool2d(x, 3, 1, 1) if name == "Mixed_7c" else averaged(x)
                x = torch.cat([*block._forward(x)[:-1], block.branch_pool(pooled)], 1)
            else:
                x = block(x)
        by_hand = x.mean(dim=(2, 3))
        plain.fc = nn.Identity()
        stock = plain(as_shown(pictures, 299))
    assert features == pytest.approx(by_hand.numpy(), abs=1e-3)
    assert np.abs(features - stock.numpy()).max() > 0.05


def test_an_architecture_that_is_not_there_is_told(tmp_path: Path):
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(InputError, match="'VGG19' is not one of VGG16, FaceNet64, IR152, FaceNet, FIDInception"):
        torch.save({"a": torch.zeros(1)}, tmp_path / "w.pth")
        open_classifier(stated(tmp_path / "w.pth", "VGG19", 64), "c")
