"""A classifier that looks at files: crop, resize and normalisation as stated, then its network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from eval.model_inversion.standard.spec import ClassifierSpec

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outputs:
    """Of N images: ``probabilities`` (N, classes), and ``features`` (N, D), what the last linear layer takes."""

    probabilities: Floats
    features: Floats


class Classifier:
    """A network with its weights, ready to look at files. Raises InputError where the two do not fit."""

    def __init__(self, spec: ClassifierSpec, where: str):
        import torch

        from eval.model_inversion.standard.program import Program
        from eval.model_inversion.standard.weights import load_network

        self.spec = spec
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if spec.library == "program":
            if not Path(spec.weights).is_file():
                raise InputError.at(spec.weights, "no such file of weights")
            self._network: Any = Program(Path(spec.weights), spec.num_classes, self.device)
        else:
            self._network = _Hooked(load_network(spec, where), spec, where, self.device)

    def see(self, paths: Sequence[Path], batch_size: int, what: str) -> Outputs:
        """Raises InputError for an image that cannot be read, is smaller than the crop, or gives no finite logits."""
        import torch

        probabilities, features = [], []
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
                probabilities.append(logits.softmax(dim=1).cpu().numpy())
                features.append(taken.double().flatten(1).cpu().numpy())
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


class _Hooked:
    """A module as (features that its last linear layer takes, logits)."""

    def __init__(self, model: Any, spec: ClassifierSpec, where: str, device: str):
        import torch

        heads = [
            module
            for module in model.modules()
            if isinstance(module, torch.nn.Linear) and module.out_features == spec.num_classes
        ]
        if not heads:
            raise InputError.at(where, "has no last linear layer to take features from", field="architecture")
        self.model = model.to(device).eval()
        self._taken: Tensor | None = None
        heads[-1].register_forward_pre_hook(self._take)

    def _take(self, _: Any, inputs: tuple[Tensor, ...]) -> None:
        self._taken = inputs[0]

    def __call__(self, images_B3HW: Tensor) -> tuple[Tensor | None, Tensor]:
        self._taken = None
        logits = self.model(images_B3HW)
        return self._taken, logits
