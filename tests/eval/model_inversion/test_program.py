"""A program of torch.export is run as data: the logits of the network, and nothing that a file brings along."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

from cprt.errors import InputError
from eval.model_inversion.standard.program import Program


def export(model: nn.Module, path: Path, size: int = 32) -> Path:
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(
        torch.export.export(model.eval(), (torch.zeros(2, 3, size, size),), dynamic_shapes=(batch,)), path
    )
    return path


class Plain(nn.Module):
    """Convolution, normalisation, a shape that depends on the batch, and a constant."""

    def __init__(self, pair: bool = False):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 7)
        self.pair = pair
        self.register_buffer("scale", torch.tensor(1.7), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.relu(self.norm(self.conv(x))) * self.scale
        features = x.reshape(x.shape[0], 4, -1).mean(dim=2)
        logits = self.head(features)
        return (features + 1, logits) if self.pair else logits


@pytest.fixture
def model() -> Plain:
    torch.manual_seed(0)
    model = Plain()
    model.norm.running_mean.uniform_(-1, 1)
    return model.eval()


@pytest.mark.parametrize(
    "build",
    [
        Plain,
        lambda: timm.create_model("test_vit", num_classes=7, img_size=32),
        lambda: timm.create_model("test_resnet", num_classes=7),
        lambda: timm.create_model("test_convnext", num_classes=7),
    ],
)
def test_logits_and_features_are_those_of_the_network(build: Callable[[], nn.Module], tmp_path: Path):
    torch.manual_seed(0)
    model = build().eval()
    program = Program(export(model, tmp_path / "p.pt2"), 7, "cpu")
    taken: list[torch.Tensor] = []
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    head.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    images = torch.rand(5, 3, 32, 32)  # another batch than it was exported with
    features, logits = program(images)
    with torch.inference_mode():
        assert torch.equal(logits, model(images))
    assert features is not None and torch.equal(features, taken[0])


class Maker(nn.Module):
    """Makes tensors as it goes, and moves one."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.mean((2, 3)) * torch.arange(3) + torch.ones(3) + torch.zeros(3) * torch.full((3,), 2.0)
        return self.head(x.to("cpu"))


def test_what_a_step_makes_lies_where_the_images_do(tmp_path: Path):
    path, images = export(Maker(), tmp_path / "p.pt2"), torch.rand(5, 3, 32, 32)
    features, logits = Program(path, 7, torch.device("meta"))(images.to("meta"))
    assert features is not None and features.is_meta and logits.is_meta and logits.shape == (5, 7)
    assert Program(path, 7, torch.device("cpu"))(images)[1].isfinite().all()


def test_a_pair_is_features_and_logits(model: Plain, tmp_path: Path):
    model.pair = True
    images = torch.rand(3, 3, 32, 32)
    features, logits = Program(export(model, tmp_path / "p.pt2"), 7, "cpu")(images)
    with torch.inference_mode():
        expected = model(images)
    assert torch.equal(features, expected[0]) and torch.equal(logits, expected[1])


def test_other_images_than_it_takes_are_told(model: Plain, tmp_path: Path):
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 7))
    with pytest.raises(InputError, match=r"p\.pt2: cannot be run on such images"):
        Program(export(fixed, tmp_path / "p.pt2"), 7, "cpu")(torch.zeros(2, 3, 40, 40))


# --- What a file may bring along ---------------------------------------------------------------------------------


class Hostile:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def pickled(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"a": Hostile(marker)}, buffer)
    return buffer.getvalue()


def rewrite(path: Path, changes: Callable[[str, bytes], bytes]) -> None:
    """Every entry of the archive, changed; stored, in place."""
    with zipfile.ZipFile(path) as archive:
        entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries:
            archive.writestr(name, changes(name, content))


def first_node(**fields: Any) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        model = json.loads(content)
        model["graph_module"]["graph"]["nodes"][0] |= fields
        return json.dumps(model).encode()

    return change


def text(value: str) -> list[dict[str, Any]]:
    return [{"name": "x", "kind": 1, "arg": {"as_string": value}}]


@pytest.mark.parametrize("target", ["torch.os.mkdir", "torch.ops.aten.from_file.default", "builtins.eval", "aten"])
def test_a_call_of_anything_but_inference_is_refused(target: str, model: Plain, tmp_path: Path):
    path, marker = export(model, tmp_path / "p.pt2"), tmp_path / "was_here"
    rewrite(path, first_node(target=target, inputs=text(str(marker))))
    with pytest.raises(InputError, match=f"p.pt2: is not a program .*operator '{target}'") as caught:
        Program(path, 7, "cpu")(torch.zeros(1, 3, 32, 32))
    assert "\n" not in str(caught.value) and not marker.exists()


def test_a_pickle_beside_the_graph_is_never_read(model: Plain, tmp_path: Path):
    path, marker = export(model, tmp_path / "p.pt2"), tmp_path / "was_here"
    images = torch.rand(2, 3, 32, 32)
    _, before = Program(path, 7, "cpu")(images)
    rewrite(path, lambda name, content: pickled(marker) if "sample_inputs" in name else content)
    _, after = Program(path, 7, "cpu")(images)
    assert torch.equal(before, after) and not marker.exists()
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if "sample_inputs" in name]
        torch.load(io.BytesIO(archive.read(name)), weights_only=False)
    assert marker.exists()  # so it would have


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_pickled_tensors_are_refused(kind: str, model: Plain, tmp_path: Path):
    path, marker = export(model, tmp_path / "p.pt2"), tmp_path / "was_here"

    def change(name: str, content: bytes) -> bytes:
        if name.endswith(f"model_{kind}_config.json"):
            config = json.loads(content)
            for payload in config["config"].values():
                payload["use_pickle"] = True
            return json.dumps(config).encode()
        return pickled(marker) if f"data/{kind}/" in name else content

    rewrite(path, change)
    with pytest.raises(InputError, match="is pickled"):
        Program(path, 7, "cpu")
    assert not marker.exists()


def cut(name: str, content: bytes) -> bytes:
    return content[: len(content) // 2] if "weight_0" in name else content


def larger(name: str, content: bytes) -> bytes:
    """A tensor that reaches beyond its bytes."""
    return content.replace(b'"sizes": [{"as_int": 4}', b'"sizes": [{"as_int": 4000}') if "config" in name else content


@pytest.mark.parametrize(
    "change",
    [
        cut,
        larger,
        first_node(inputs=[{"name": "x", "kind": 1, "arg": {"as_tensor": {"name": "nobody"}}}]),
        first_node(inputs=[{"name": "x", "kind": 1, "arg": {"as_graph": {"name": "g", "graph": {}}}}]),
        lambda name, content: b"[]" if name.endswith("model.json") else content,
        lambda name, content: content.replace(b'"major": 8', b'"major": 7'),
    ],
)
def test_what_is_damaged_is_one_line(change: Callable[[str, bytes], bytes], model: Plain, tmp_path: Path):
    path = export(model, tmp_path / "p.pt2")
    rewrite(path, change)
    with pytest.raises(InputError, match=r"p\.pt2: ") as caught:
        Program(path, 7, "cpu")(torch.zeros(1, 3, 32, 32))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no zip", pickle.dumps({"a": 1})])
def test_what_is_no_archive_is_one_line(content: bytes, tmp_path: Path):
    (tmp_path / "p.pt2").write_bytes(content)
    with pytest.raises(InputError, match=r"p\.pt2: is not a program of torch.export with tensors alone"):
        Program(tmp_path / "p.pt2", 7, "cpu")
