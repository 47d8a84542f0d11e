"""How a classifier of private classes is described: its network, its weights, what it is shown, the order of logits.

Nothing of this is guessed: another crop alone can cost an evaluation model several points of accuracy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cprt.errors import InputError
from cprt.images import is_box
from cprt.provenance import file_digest
from cprt.values import read_fields, ruled
from eval.model_inversion.collection.places import plain_class

_ONCE = lambda names: isinstance(names, str) or len(set(names)) == len(names), "names of classes, each once"
_CROP = (
    lambda crop: crop >= 1 if isinstance(crop, int) else is_box(crop),
    "a number of pixels, or [left, upper, right, lower]",
)
_THREE = lambda values: len(values) == 3, "three numbers"
_THREE_ABOVE_0 = lambda values: len(values) == 3 and min(values) > 0, "three numbers above 0"


@dataclass(frozen=True)
class ClassifierSpec:
    """How a classifier is built and fed. Fields without a default must be stated.

    Attributes:
        name: what reports call it.
        library: where the architecture comes from: timm, torchvision, ``reference`` (networks of the literature,
            ``reference.py``), or none: a ``program`` is a file that ``torch.export.save`` wrote and that holds the
            network as well, ``outputs`` an .npz of logits and features that were computed elsewhere (``outputs.py``).
        architecture: its name there, such as inception_v3; null for a program and for outputs.
        weights: the program, the .npz, or a state dict: safetensors, or a dictionary of tensors by ``torch.save``.
        num_classes: logits.
        classes: which class a logit is. ``numeric``: class 7 (or 007) is logit 7. ``sorted``: the folders of private
            images, sorted as text, as torchvision's ImageFolder does (10 comes before 2). Or the names in order.
        crop: what of an image is shown: null for all, a number for a square of so many pixels in the middle, or
            [left, upper, right, lower] in pixels.
        resize: the crop is resized to a square of so many pixels; null leaves it.
        mean, std: of each channel, in values 0 to 1; subtracted and divided by.
        interpolation: of the resize, bilinear: ``antialiased``, as Pillow and torchvision do it, or ``plain``, as
            ``torch.nn.functional.interpolate`` does it by default (FID, kornia).
        options: further arguments of the constructor.
        key: where in the file the state dict stands, such as model_state_dict; null: it is the file.
        prefix: what to cut from the beginning of every tensor's name, such as "model.".
    """

    name: str
    library: Literal["timm", "torchvision", "reference", "program", "outputs"]
    architecture: str | None
    weights: str
    num_classes: int = ruled(least=2)
    classes: Literal["numeric", "sorted"] | list[str] = ruled(holds=_ONCE)
    crop: int | list[int] | None = ruled(holds=_CROP)
    resize: int | None = ruled(least=1)
    mean: list[float] | None = ruled(holds=_THREE)
    std: list[float] | None = ruled(holds=_THREE_ABOVE_0)
    interpolation: Literal["antialiased", "plain"] = "antialiased"
    options: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    prefix: str = ""

    @staticmethod
    def read(row: Mapping[str, Any], where: str) -> ClassifierSpec:
        """From a mapping, as YAML gives it. Raises InputError that begins with ``where`` and names the field."""
        spec = read_fields(ClassifierSpec, row, where)

        def fail(name: str, message: str) -> InputError:
            return InputError.at(where, message, field=name)

        inside, looks = ("architecture", "key", "prefix", "options"), ("crop", "resize", "mean", "std")
        foreign = {"program": inside, "outputs": inside + looks}.get(spec.library, ())
        for name in foreign:
            if getattr(spec, name):
                raise fail(name, f"must be null or left out where library is {spec.library}")
        # timm would also take addresses of the Hub.
        if not foreign and not (spec.architecture or "").replace("_", "").replace(".", "").isalnum():
            raise fail("architecture", f"{spec.architecture!r} is not the name of an architecture")
        if isinstance(spec.classes, list) and len(spec.classes) != spec.num_classes:
            raise fail("classes", f"names {len(spec.classes)} classes, but num_classes is {spec.num_classes}")
        for name in ("mean", "std"):
            if spec.library != "outputs" and getattr(spec, name) is None:
                raise fail(name, "must be three numbers")
        for name, value in spec.options.items():
            if str(name).startswith("pretrained") or not isinstance(value, (bool, int, float)):
                raise fail(f"options.{name}", "only sizes and switches, and nothing that fetches other weights")
        return spec

    def index(self, private: Collection[str] | None, where: str) -> ClassIndex:
        """Class name -> logit. ``private`` are the names of the folders of private images, for ``sorted``."""
        if self.classes == "numeric":
            return ClassIndex({str(logit): logit for logit in range(self.num_classes)}, numeric=True)
        names = self.classes
        if names == "sorted":
            if private is None:
                raise InputError.at(where, "sorted needs --private, whose folders are the classes", field="classes")
            names = sorted(private)
            if len(names) != self.num_classes:
                few = f"there are {len(names)} folders of private images, but num_classes is {self.num_classes}"
                raise InputError.at(where, f"sorted: {few}", field="classes")
        return ClassIndex({name: logit for logit, name in enumerate(names)}, numeric=False)

    def record(self) -> dict[str, Any]:
        """For reports: the weights count by their content."""
        return dataclasses.asdict(self) | by_content(self.weights)


def by_content(weights: str | None) -> dict[str, str | None]:
    """Weights as reports name them, null where there are none; folders of the machine are nobody's business."""
    if weights is None:
        return {"weights": None, "weights_sha256": None}
    return {"weights": Path(weights).name, "weights_sha256": file_digest(weights)}


@dataclass(frozen=True)
class ClassIndex:
    """Which logit is which class; ``logits`` in their order."""

    logits: Mapping[str, int]
    numeric: bool

    def logit(self, name: str, where: str) -> int:
        """Raises InputError for a class that the classifier does not know."""
        wanted = plain_class(name) if self.numeric else name
        if wanted not in self.logits:
            known = ", ".join(list(self.logits)[:5])
            raise InputError(f"{where}: the classifier has no class {name!r} (it has {known}, ...)")
        return self.logits[wanted]

    @property
    def names(self) -> list[str]:
        return list(self.logits)
