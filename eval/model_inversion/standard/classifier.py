"""A classifier of the private classes: which network, whose weights, what it is shown, and which logit is which class.

Nothing of this is guessed: another crop alone can cost an evaluation model several points of accuracy, and logits in
another order mean nothing. Weights are read as plain tensors; nothing in their file is run. Imports torch when used.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cprt.config import fits
from cprt.errors import InputError
from cprt.images import load_image
from cprt.provenance import file_digest

if TYPE_CHECKING:
    from PIL import Image
    from torch import nn

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassifierSpec:
    """How a classifier is built and fed. Fields without a default must be stated.

    Attributes:
        name: what reports call it.
        library: where the architecture comes from; ``demo`` is ``eval/model_inversion/demo/networks.py``.
        architecture: its name there, such as inception_v3.
        weights: a state dict, as safetensors or as what ``torch.save`` makes of a dictionary of tensors.
        num_classes: logits.
        classes: which class a logit is. ``numeric``: class 7 (or 007) is logit 7. ``sorted``: the folders of private
            images, sorted as text, as torchvision's ImageFolder does (10 comes before 2). Or the names in order.
        crop: what of an image is shown: null for all, a number for a square of so many pixels in the middle, or
            [left, upper, right, lower] in pixels.
        resize: the crop is resized to a square of so many pixels (bilinear, antialiased); null leaves it.
        mean, std: of each channel, in values 0 to 1; subtracted and divided by.
        options: further arguments of the constructor.
        key: where in the file the state dict stands, such as model_state_dict; null: it is the file.
        prefix: what to cut from the beginning of every tensor's name, such as "model.".
    """

    name: str
    library: Literal["timm", "torchvision", "demo"]
    architecture: str
    weights: str
    num_classes: int
    classes: Literal["numeric", "sorted"] | list[str]
    crop: int | list[int] | None
    resize: int | None
    mean: list[float]
    std: list[float]
    options: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    prefix: str = ""

    @staticmethod
    def read(row: Mapping[str, Any], where: str) -> ClassifierSpec:
        """From a mapping, as YAML gives it. Raises InputError that begins with ``where`` and names the field."""
        hints = typing.get_type_hints(ClassifierSpec)
        for name in row:
            if name not in hints:
                raise InputError.at(where, f"unknown field (there are {', '.join(hints)})", field=str(name))
        for spec_field in dataclasses.fields(ClassifierSpec):
            needed = spec_field.default is dataclasses.MISSING and spec_field.default_factory is dataclasses.MISSING
            if spec_field.name not in row:
                if needed:
                    raise InputError.at(where, "is missing: it must be stated", field=spec_field.name)
            elif not fits(row[spec_field.name], hints[spec_field.name]):
                raise InputError.at(where, f"{row[spec_field.name]!r} does not fit", field=spec_field.name)
        numbers = {name: [float(value) for value in row[name]] for name in ("mean", "std")}
        spec = ClassifierSpec(**{**row, **numbers})
        spec._check(where)
        return spec

    def _check(self, where: str) -> None:
        def fail(name: str, message: str) -> InputError:
            return InputError.at(where, message, field=name)

        if not self.architecture.replace("_", "").replace(".", "").isalnum():  # timm also takes addresses of a hub
            raise fail("architecture", f"{self.architecture!r} is not the name of an architecture")
        if self.num_classes < 2:
            raise fail("num_classes", f"must be at least 2, not {self.num_classes}")
        if isinstance(self.classes, list):
            if len(set(self.classes)) < len(self.classes):
                raise fail("classes", "names a class twice")
            if len(self.classes) != self.num_classes:
                raise fail("classes", f"names {len(self.classes)} classes, but num_classes is {self.num_classes}")
        if isinstance(self.crop, list):
            if len(self.crop) != 4 or not (0 <= self.crop[0] < self.crop[2] and 0 <= self.crop[1] < self.crop[3]):
                raise fail("crop", "must be null, a number of pixels, or [left, upper, right, lower]")
        elif self.crop is not None and self.crop < 1:
            raise fail("crop", f"must be at least 1, not {self.crop}")
        if self.resize is not None and self.resize < 1:
            raise fail("resize", f"must be at least 1, not {self.resize}")
        for name in ("mean", "std"):
            if len(getattr(self, name)) != 3 or not np.isfinite(getattr(self, name)).all():
                raise fail(name, "must be three numbers")
        if min(self.std) <= 0:
            raise fail("std", "must be more than 0")
        for name, value in self.options.items():
            if str(name).startswith("pretrained") or not isinstance(value, (bool, int, float)):
                raise fail(f"options.{name}", "only sizes and switches, and nothing that fetches other weights")

    def index(self, private: Sequence[str] | None, where: str) -> ClassIndex:
        """Class name -> logit. ``private`` are the names of the folders of private images, for ``sorted``."""
        if self.classes == "numeric":
            return ClassIndex({str(logit): logit for logit in range(self.num_classes)}, numeric=True)
        names = self.classes
        if names == "sorted":
            if private is None:
                raise InputError.at(where, "sorted needs --private, whose folders are the classes", field="classes")
            names = sorted(private)
            if len(names) != self.num_classes:
                raise InputError.at(
                    where,
                    f"sorted: there are {len(names)} folders of private images, but num_classes is {self.num_classes}",
                    field="classes",
                )
        return ClassIndex({name: logit for logit, name in enumerate(names)}, numeric=False)

    def record(self) -> dict[str, Any]:
        """For reports: the weights count by their content."""
        return {
            **dataclasses.asdict(self),
            "weights": Path(self.weights).name,
            "weights_sha256": self.digest,
            "interpolation": "bilinear, antialiased",
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the weights' file."""
        return file_digest(self.weights)


@dataclass(frozen=True)
class ClassIndex:
    """Which logit is which class, both ways."""

    logits: Mapping[str, int]
    numeric: bool

    def logit(self, name: str, where: str) -> int:
        """Raises InputError for a class that the classifier does not know."""
        wanted = (name.lstrip("0") or "0") if self.numeric and name.isascii() and name.isdigit() else name
        if wanted not in self.logits:
            known = ", ".join(list(self.logits)[:5])
            raise InputError(f"{where}: the classifier has no class {name!r} (it has {known}, ...)")
        return self.logits[wanted]

    @property
    def names(self) -> list[str]:
        """In the order of logits."""
        return sorted(self.logits, key=lambda name: self.logits[name])


@dataclass(frozen=True)
class Outputs:
    """Of N images: ``probabilities`` (N, classes), and ``features`` (N, D), what the last linear layer takes."""

    probabilities: Floats
    features: Floats


class Classifier:
    """A network with its weights, ready to look at files. Raises InputError where the two do not fit."""

    def __init__(self, spec: ClassifierSpec, where: str):
        import torch

        self.spec = spec
        state = _load_state(spec)
        self.model = _build(spec, where)
        _load(self.model, state, spec)
        heads = [
            module
            for module in self.model.modules()
            if isinstance(module, torch.nn.Linear) and module.out_features == spec.num_classes
        ]
        if not heads:
            raise InputError.at(where, "has no last linear layer to take features from", field="architecture")
        self._head = heads[-1]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.to(self.device).eval()

    def see(self, paths: Sequence[Path], batch_size: int, what: str) -> Outputs:
        """Raises InputError for an image that cannot be read, is smaller than the crop, or gives no finite logits."""
        import torch

        taken: list[Any] = []
        hook = self._head.register_forward_pre_hook(lambda module, inputs: taken.append(inputs[0]))
        probabilities, features = [], []
        try:
            with torch.inference_mode():
                for first in tqdm(range(0, len(paths), batch_size), desc=what, unit="batch", leave=False):
                    part = paths[first : first + batch_size]
                    logits = self.model(self._batch(part)).double()
                    for path, finite in zip(part, logits.isfinite().all(dim=1).tolist(), strict=True):
                        if not finite:
                            raise InputError.at(path, f"{self.spec.name} gives logits that are not finite")
                    if not taken:
                        raise InputError(f"{self.spec.name}: {self.spec.architecture} ends in no linear layer")
                    probabilities.append(logits.softmax(dim=1).cpu().numpy())
                    features.append(taken.pop().double().flatten(1).cpu().numpy())
        finally:
            hook.remove()
        return Outputs(np.concatenate(probabilities), np.concatenate(features))

    def _batch(self, paths: Sequence[Path]) -> Any:
        import torch

        pixels = [np.asarray(self._crop(load_image(path), path), dtype=np.float32) / 255 for path in paths]
        for path, picture in zip(paths, pixels, strict=True):
            if picture.shape != pixels[0].shape:
                raise InputError.at(path, "has another size than the images before it: give crop or resize")
        normal = (np.stack(pixels) - np.asarray(self.spec.mean, np.float32)) / np.asarray(self.spec.std, np.float32)
        return torch.from_numpy(normal).permute(0, 3, 1, 2).contiguous().to(self.device)

    def _crop(self, image: Image.Image, path: Path) -> Image.Image:
        from PIL import Image

        crop, resize = self.spec.crop, self.spec.resize
        if crop is not None:
            if isinstance(crop, int):
                left, upper = (image.width - crop) // 2, (image.height - crop) // 2
                box = (left, upper, left + crop, upper + crop)
            else:
                box = (crop[0], crop[1], crop[2], crop[3])
            if min(box) < 0 or box[2] > image.width or box[3] > image.height:
                raise InputError.at(path, f"{image.width} x {image.height} pixels are too small for crop {crop}")
            image = image.crop(box)
        if resize is not None and image.size != (resize, resize):
            image = image.resize((resize, resize), Image.Resampling.BILINEAR)
        return image


def _build(spec: ClassifierSpec, where: str) -> nn.Module:
    """The architecture with random weights. Nothing is downloaded."""
    try:
        if spec.library == "timm":
            import timm

            return timm.create_model(spec.architecture, pretrained=False, num_classes=spec.num_classes, **spec.options)
        if spec.library == "torchvision":
            from torchvision.models import get_model

            return get_model(spec.architecture, weights=None, num_classes=spec.num_classes, **spec.options)
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError.at(
            where, f"{spec.library} cannot build {spec.architecture!r} ({reason})", field="architecture"
        ) from error
    from eval.model_inversion.demo.networks import ARCHITECTURES

    if spec.architecture not in ARCHITECTURES:
        raise InputError.at(
            where, f"{spec.architecture!r} is not one of {', '.join(ARCHITECTURES)}", field="architecture"
        )
    return ARCHITECTURES[spec.architecture](spec.num_classes)


def _load_state(spec: ClassifierSpec) -> dict[str, Any]:
    """Name -> tensor. A pickle is read by torch's own restricted reader, which runs no code that the file brings."""
    import torch

    path = Path(spec.weights)
    if not path.is_file():
        raise InputError.at(path, "no such file of weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # whatever a broken or hostile file provokes: none of it is loaded
        raise InputError.at(
            path,
            "is not a plain state dict (files that hold other objects are not loaded; save "
            "model.state_dict() as safetensors)",
        ) from error
    if spec.key is not None:
        if not isinstance(state, dict) or spec.key not in state:
            raise InputError.at(path, f"has no entry {spec.key!r}", field="key")
        state = state[spec.key]
    if not isinstance(state, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        entries = ", ".join(map(str, list(state)[:5])) if isinstance(state, dict) else type(state).__name__
        raise InputError.at(path, f"is not a dictionary of tensors alone; key says which entry is (it has {entries})")
    return {str(name).removeprefix(spec.prefix): tensor for name, tensor in state.items()}


def _load(model: nn.Module, state: dict[str, Any], spec: ClassifierSpec) -> None:
    wanted = model.state_dict()
    for problem, names in (("lacks", wanted.keys() - state.keys()), ("has no place for", state.keys() - wanted.keys())):
        if names:
            first, more = min(names), f" and {len(names) - 1} more" if len(names) > 1 else ""
            subject = "file" if problem == "lacks" else f"{spec.architecture} of {spec.library}"
            raise InputError.at(spec.weights, f"the {subject} {problem} {first}{more} (see options, key and prefix)")
    for name, tensor in wanted.items():
        if tensor.shape != state[name].shape:
            raise InputError.at(
                spec.weights,
                f"{name} has shape {tuple(state[name].shape)}, but {spec.architecture} "
                f"with {spec.num_classes} classes takes {tuple(tensor.shape)}",
            )
    model.load_state_dict(state)
