"""A classifier that looks at files: crop, resize and normalisation as stated, then its network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.checkpoint import find_device
from eval.model_inversion.standard.outputs import StoredOutputs
from eval.model_inversion.standard.spec import ClassifierSpec

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor, nn

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outputs:
    """Of N images: ``probabilities`` (N, classes; none where only features were wanted), and ``features`` (N, D), what
    the last linear layer takes."""

    probabilities: Floats
    features: Floats


class Classifier:
    """A network that is shown files as ``spec`` says."""

    def __init__(self, spec: ClassifierSpec, network: Callable[[Tensor], tuple[Tensor | None, Tensor]] | StoredOutputs):
        self.spec, self._network = spec, network

    @staticmethod
    def open(spec: ClassifierSpec, where: str, features_only: bool = False) -> Classifier:
        """The network that ``spec`` describes, or what one said elsewhere.

        ``features_only``: stored outputs need no logits. Raises InputError where description and file do not fit.
        """
        path = Path(spec.weights)
        if not path.is_file():
            raise InputError.at(path, "no such file of weights")
        if spec.library == "outputs":
            return Classifier(spec, StoredOutputs(path, None if features_only else spec.num_classes))
        from eval.model_inversion.standard.program import Program
        from eval.model_inversion.standard.weights import load_network

        if spec.library == "program":
            return Classifier(spec, Program(path, spec.num_classes, find_device()))
        return Classifier(spec, Hooked(load_network(spec, where), spec, where))

    def see(self, paths: Sequence[Path], batch_size: int, what: str) -> Outputs:
        """Raises InputError for an image that cannot be read, is smaller than the crop, or gives no finite logits."""
        if isinstance(self._network, StoredOutputs):
            logits, features = self._network.rows(paths)
            odds = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
            return Outputs(odds / odds.sum(axis=1, keepdims=True), features)
        import torch

        seen = []
        with torch.inference_mode():
            for first in tqdm(range(0, len(paths), batch_size), desc=what, unit="batch", leave=False):
                part = paths[first : first + batch_size]
                taken, logits = self._network(self._batch(part))
                if taken is None or tuple(logits.shape) != (len(part), self.spec.num_classes):
                    raise InputError(
                        f"{self.spec.name}: ends in no linear layer that gives {self.spec.num_classes} logits"
                    )
                logits = logits.double()
                for path, finite in zip(part, logits.isfinite().all(dim=1).tolist(), strict=True):
                    if not finite:
                        raise InputError.at(path, f"{self.spec.name} gives logits that are not finite")
                seen.append((logits.softmax(dim=1).cpu().numpy(), taken.double().flatten(1).cpu().numpy()))
        return Outputs(*(np.concatenate(parts) for parts in zip(*seen, strict=True)))

    def _batch(self, paths: Sequence[Path]) -> Any:
        import torch

        pixels = [self.pixels(path) for path in paths]
        for path, picture in zip(paths, pixels, strict=True):
            if picture.shape != pixels[0].shape:
                raise InputError.at(path, "has another size than the images before it: give crop or resize")
        return self.normalised(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2))

    def normalised(self, pictures_B3HW: Tensor) -> Tensor:
        """On the network's device."""
        import torch

        mean, std = (torch.tensor(values)[:, None, None] for values in (self.spec.mean, self.spec.std))
        return ((pictures_B3HW - mean) / std).contiguous().to(find_device())

    def pixels(self, path: Path) -> NDArray[Any]:
        """(H, W, 3) after crop and resize, values 0 to 1."""
        import torch
        from PIL import Image

        image, resize = self._crop(load_image(path), path), self.spec.resize
        if resize is None or image.size == (resize, resize):
            return np.asarray(image, dtype=np.float32) / 255
        if self.spec.interpolation == "antialiased":
            return np.asarray(image.resize((resize, resize), Image.Resampling.BILINEAR), dtype=np.float32) / 255
        picture = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)[None]
        return torch.nn.functional.interpolate(picture, (resize, resize), mode="bilinear")[0].permute(1, 2, 0).numpy()

    def _crop(self, image: Image.Image, path: Path) -> Image.Image:
        crop = self.spec.crop
        if crop is not None:
            if isinstance(crop, int):
                left, upper = (image.width - crop) // 2, (image.height - crop) // 2
                box = (left, upper, left + crop, upper + crop)
            else:
                box = (crop[0], crop[1], crop[2], crop[3])
            if min(box) < 0 or box[2] > image.width or box[3] > image.height:
                raise InputError.at(path, f"{image.width} x {image.height} pixels are too small for crop {crop}")
            image = image.crop(box)
        return image


class Hooked:
    """A module as (features that its last linear layer takes, logits)."""

    def __init__(self, model: nn.Module, spec: ClassifierSpec, where: str):
        import torch

        heads = [
            module
            for module in model.modules()
            if isinstance(module, torch.nn.Linear) and module.out_features == spec.num_classes
        ]
        if not heads:
            raise InputError.at(where, "has no last linear layer to take features from", field="architecture")
        self.model = model.to(find_device()).eval()
        self._taken: Tensor | None = None
        heads[-1].register_forward_pre_hook(self._take)

    def _take(self, _: Any, inputs: tuple[Tensor, ...]) -> None:
        self._taken = inputs[0]

    def __call__(self, images_B3HW: Tensor) -> tuple[Tensor | None, Tensor]:
        self._taken = None
        logits = self.model(images_B3HW)
        return self._taken, logits
