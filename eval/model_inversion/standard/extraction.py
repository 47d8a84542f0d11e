"""Knowledge-extraction score (PPA, Struppek et al.): what a new classifier learns of the classes from reconstructions.

A student is trained on the reconstructions alone, and its accuracy is taken on real images of the attacked classes: of
those that the target was trained on, and of others. The recipe is PPA's: SGD with momentum 0.9, weight decay 1e-4 and a
cosine from the learning rate to 1e-4, random crops of 80 to 100% and flips. PPA begins from a ResNet-50 with ImageNet
weights; a student that begins from nothing, or is another, gives another score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cprt.errors import InputError
from cprt.values import read_fields, ruled
from eval.model_inversion.standard.classifier import Classifier, with_features
from eval.model_inversion.standard.spec import ClassifierSpec

_LEAST_RATE, _CROP = 1e-4, (0.8, 1.0)


@dataclass(frozen=True)
class StudentSpec:
    """The student and its recipe. ``weights`` is a state dict to begin from (its head may have other classes), or null.

    Other fields are those of ``ClassifierSpec``.
    """

    library: Literal["timm", "torchvision", "reference"]
    architecture: str
    weights: str | None
    resize: int
    mean: list[float]
    std: list[float]
    options: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    prefix: str = ""
    epochs: int = ruled(75, least=1)
    batch_size: int = ruled(32, least=1)
    learning_rate: float = ruled(0.1, above=0)
    seed: int = ruled(0, least=0)

    @staticmethod
    def read(row: Mapping[str, Any], where: str) -> StudentSpec:
        """From a mapping, as YAML gives it. Raises InputError that begins with ``where`` and names the field."""
        spec = read_fields(StudentSpec, row, where)
        if spec.weights is not None and not Path(spec.weights).is_file():
            raise InputError.at(spec.weights, "no such file of weights")
        spec.classifier(2, where)
        return spec

    def classifier(self, classes: int, where: str) -> ClassifierSpec:
        """The student as a classifier of so many classes."""
        names = ("library", "architecture", "resize", "mean", "std", "options", "key", "prefix")
        of_student = {name: getattr(self, name) for name in names}
        rest = {"name": "student", "weights": self.weights or "", "num_classes": classes}
        return ClassifierSpec.read({**of_student, **rest, "classes": "numeric", "crop": None}, where)


def train_student(
    spec: StudentSpec, reconstructions: list[Any], labels_N: NDArray[np.int64], classes: int, where: str
) -> Classifier:
    """A student of ``classes`` classes, trained on reconstructions (paths) with their claimed classes.

    The same seed gives the same student on the same machine; nobody else's random numbers change.
    """
    import torch
    from torch.nn.functional import cross_entropy
    from torchvision.transforms import v2

    from eval.model_inversion.standard.weights import build, load_body

    stated = spec.classifier(classes, where)
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        model = build(stated, where)
        if spec.weights is not None:
            load_body(model, stated)
        student = Classifier(stated, with_features(model, stated, where))
        seen = (student.pixels(path) for path in tqdm(reconstructions, desc="student"))
        pictures = torch.stack([(picture * 255).round().to(torch.uint8) for picture in seen])
        labels = torch.from_numpy(labels_N)
        steps = -(-len(labels) // spec.batch_size)
        optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate, weight_decay=1e-4, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, spec.epochs, eta_min=_LEAST_RATE)
        flip, as_floats = v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)
        augment = v2.Compose([v2.RandomResizedCrop(stated.resize, _CROP, (1, 1), antialias=True), flip, as_floats])
        model.train()
        with tqdm(total=spec.epochs * steps, desc="training the student", unit="step", leave=False) as bar:
            for _ in range(spec.epochs):
                for rows in torch.randperm(len(labels)).split(spec.batch_size):
                    if len(rows) > 1:  # one alone has no batch statistics
                        batch = student.normalised(torch.stack([augment(picture) for picture in pictures[rows]]))
                        loss = cross_entropy(model(batch), labels[rows].to(batch.device))
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                    bar.update()
                schedule.step()
        model.eval()
    return student
