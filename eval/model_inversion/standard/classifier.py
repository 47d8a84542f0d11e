"""A classifier that looks at files: crop, resize and normalisation as stated, then its network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.checkpoint import find_device
from eval.model_inversion.standard.outputs import Outputs, StoredOutputs
from eval.model_inversion.standard.spec import ClassifierSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    Network = Callable[[Tensor], tuple[Tensor | None, Tensor]]  # images (B, 3, H, W) -> features (B, ...), logits


def open_classifier(spec: ClassifierSpec, where: str, features_only: bool = False) -> Classifier | StoredOutputs:
    """The network that ``spec`` describes, or what one said elsewhere, of which features need no logits.

    Raises InputError where description and file do not fit.
    """
    path = Path(spec.weights)
    if not path.is_file():
        raise InputError.at(path, "no such file of weights")
    if spec.library == "outputs":
        return StoredOutputs(path, None if features_only else spec.num_classes)
    if spec.library == "program":
        from eval.model_inversion.standard.program import Program

        return Classifier(spec, Program(path, spec.num_classes, find_device()))
    from eval.model_inversion.standard.weights import load_network

    return Classifier(spec, with_features(load_network(spec, where), spec, where))


def with_features(model: nn.Module, spec: ClassifierSpec, where: str) -> Network:
    """A module, on its device, as one that also gives what its last linear layer takes."""
    from torch import nn

    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    heads = [module for module in linear if module.out_features == spec.num_classes]
    if not heads:
        raise InputError.at(where, "has no last linear layer to take features from", field="architecture")
    model.to(find_device()).eval()
    taken: dict[str, Tensor] = {}
    heads[-1].register_forward_pre_hook(lambda _, inputs: taken.update(features=inputs[0]))

    def network(images_B3HW: Tensor) -> tuple[Tensor | None, Tensor]:
        logits = model(images_B3HW)
        return taken.pop("features", None), logits

    return network


class Classifier:
    """A network that is shown files as ``spec`` says."""

    def __init__(self, spec: ClassifierSpec, network: Network):
        self.spec, self._network = spec, network

    def see(self, paths: Sequence[Path], batch_size: int, what: str) -> Outputs:
        """Raises InputError for an image that cannot be read, is smaller than the crop, or gives no finite logits."""
        import torch

        seen = []
        with torch.inference_mode():
            for first in tqdm(range(0, len(paths), batch_size), desc=what, unit="batch", leave=False):
                part = paths[first : first + batch_size]
                taken, logits = self._network(self._batch(part))
                if taken is None or tuple(logits.shape) != (len(part), self.spec.num_classes):
                    raise InputError(f"{self.spec.name}: ends in no linear layer of {self.spec.num_classes} logits")
                logits = logits.double()
                for path, finite in zip(part, logits.isfinite().all(dim=1).tolist(), strict=True):
                    if not finite:
                        raise InputError.at(path, f"{self.spec.name} gives logits that are not finite")
                seen.append((logits.softmax(dim=1).cpu().numpy(), taken.double().flatten(1).cpu().numpy()))
        return Outputs(*(np.concatenate(parts) for parts in zip(*seen, strict=True)))

    def _batch(self, paths: Sequence[Path]) -> Tensor:
        import torch

        pictures = [self.pixels(path) for path in paths]
        for path, picture in zip(paths, pictures, strict=True):
            if picture.shape != pictures[0].shape:
                raise InputError.at(path, "has another size than the images before it: give crop or resize")
        return self.normalised(torch.stack(pictures))

    def normalised(self, pictures_B3HW: Tensor) -> Tensor:
        """On the network's device."""
        import torch

        mean, std = (torch.tensor(values)[:, None, None] for values in (self.spec.mean, self.spec.std))
        return ((pictures_B3HW - mean) / std).contiguous().to(find_device())

    def pixels(self, path: Path) -> Tensor:
        """(3, H, W) after crop and resize, values 0 to 1."""
        import torch
        from PIL import Image
        from torch.nn.functional import interpolate

        image, plain = load_image(path), self.spec.interpolation == "plain"
        box: Any = self.spec.crop
        if isinstance(box, int):
            left, upper = (image.width - box) // 2, (image.height - box) // 2
            box = (left, upper, left + box, upper + box)
        if box is not None:
            if min(box) < 0 or box[2] > image.width or box[3] > image.height:
                size = f"{image.width} x {image.height} pixels"
                raise InputError.at(path, f"{size} are too small for crop {self.spec.crop}")
            image = image.crop(box)
        side = image.size if self.spec.resize is None else (self.spec.resize, self.spec.resize)
        if image.size != side and not plain:
            image = image.resize(side, Image.Resampling.BILINEAR)
        picture = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)
        return picture if image.size == side else interpolate(picture[None], side, mode="bilinear")[0]
