"""Small networks on drawn faces: classifiers of three architectures, to be attacked and to evaluate attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """3 x 3, normalised over the batch, rectified."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class _Residual(nn.Module):
    """Halves the resolution."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.first = convolution(inputs, outputs, stride=2)
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return F.relu(self.second(self.first(x_BCHW)) + self.shortcut(x_BCHW))


def stages(*widths: int) -> list[nn.Module]:
    """Convolutions from each width to the next, each of which halves the resolution."""
    return [layer for pair in pairwise(widths) for layer in (convolution(*pair), nn.MaxPool2d(2))]


def _plain(classes: int) -> nn.Module:
    body = stages(3, 16, 32, 48)
    return nn.Sequential(
        nn.AvgPool2d(2), *body, nn.Flatten(), nn.Linear(48 * 16, 64), nn.ReLU(), nn.Linear(64, classes)
    )


def _wide(classes: int) -> nn.Module:
    body = (nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 48, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(nn.AvgPool2d(2), *body, nn.Flatten(), nn.Dropout(0.2), nn.Linear(48 * 16, classes))


def _residual(classes: int) -> nn.Module:
    body = (convolution(3, 16), _Residual(16, 24), _Residual(24, 48), nn.MaxPool2d(2))
    return nn.Sequential(nn.AvgPool2d(2), *body, nn.Flatten(), nn.Linear(48 * 16, classes))


# Name -> from the number of classes to a network (B, 3, 64, 64) -> (B, classes) of pictures with values 0 to 1.
ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {"plain": _plain, "wide": _wide, "residual": _residual}


def save(model: nn.Module, path: Path) -> None:
    """As a program of torch.export for pictures (B, 3, 64, 64) in batches of any size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(model, (torch.zeros(2, 3, 64, 64),), dynamic_shapes=(batch,)), path)


def stack(images: Sequence[Image.Image]) -> Tensor:
    """RGB pictures of one size as (N, 3, H, W), values 0 to 1."""
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float() / 255


def unstack(pictures_N3HW: Tensor) -> list[Image.Image]:
    """The inverse of ``stack``, in eight bits."""
    values = (pictures_N3HW.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    return [Image.fromarray(picture) for picture in values.numpy()]


def fit(
    parameters: Sequence[nn.Parameter],
    loss_of: Callable[[Tensor], Tensor],
    count: int,
    *,
    epochs: int,
    batch: int,
    generator: torch.Generator,
    what: str | None = None,
) -> None:
    """AdamW with one cycle of the learning rate over ``count`` rows, of which ``loss_of`` takes the indices."""
    steps = max(1, count // batch)
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * steps)
    with tqdm(total=epochs * steps, desc=what, unit="step", leave=False, disable=what is None) as bar:
        for _ in range(epochs):
            order = torch.randperm(count, generator=generator)
            for step in range(steps):
                loss = loss_of(order[step * batch : (step + 1) * batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.update()


def train_classifier(architecture: str, pictures: Tensor, labels: Tensor, *, seed: int, epochs: int) -> nn.Module:
    """A network of ``ARCHITECTURES`` trained on (N, 3, 64, 64) pictures with (N,) class indices; in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ARCHITECTURES[architecture](int(labels.max()) + 1)
        generator = torch.Generator().manual_seed(seed)

        def loss_of(rows: Tensor) -> Tensor:
            return F.cross_entropy(model(pictures[rows]), labels[rows])

        fit([*model.parameters()], loss_of, len(labels), epochs=epochs, batch=24, generator=generator)
    return model.eval()
