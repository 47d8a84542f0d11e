"""What reconstructions of a benchmark look like: true ones, and adversarial ones that only a classifier believes.

What each shows is known by construction. A true one is a new picture of the private person, spoiled as attacks spoil
theirs. A Type-I adversarial one is a picture of somebody else, or of nobody, changed within narrow bounds until the
target accepts it; smoothness and random shifts while it is optimised make it transfer to other classifiers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STRENGTH = 0.25  # the most a pixel may change, of 1
_GRID = 8  # the change is a smooth surface through a grid of so many points a side: the image prior
_SHIFT = 4  # pixels


def adversarial(
    target: nn.Module, start_N3HW: Tensor, classes_N: Tensor, *, seed: int, steps: int, strength: float = STRENGTH
) -> Tensor:
    """Pictures within ``strength`` of ``start`` (in every pixel and channel) that ``target`` takes for ``classes``."""
    generator = torch.Generator().manual_seed(seed)
    size = start_N3HW.shape[-1]
    surface = torch.zeros(len(start_N3HW), 3, _GRID, _GRID, requires_grad=True)
    optimizer = torch.optim.Adam([surface], lr=0.06)

    def pictures() -> Tensor:
        change = F.interpolate(surface.tanh(), size=size, mode="bicubic", align_corners=False).clamp(-1, 1)
        return (start_N3HW + strength * change).clamp(0, 1)

    for _ in range(steps):
        down, right = torch.randint(-_SHIFT, _SHIFT + 1, (2,), generator=generator).tolist()
        seen = pictures().roll((down, right), (2, 3))
        seen = seen + 0.03 * torch.randn(seen.shape, generator=generator)
        loss = F.cross_entropy(target(seen), classes_N)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return pictures().detach()


def clouds(count: int, size: int, seed: int) -> Tensor:
    """Pictures of nobody: smooth random colours, (count, 3, size, size)."""
    coarse = torch.rand(count, 3, _GRID, _GRID, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, size=size, mode="bicubic", align_corners=False).clamp(0, 1)


def degrade(pictures_N3HW: Tensor, seed: int) -> Tensor:
    """Each picture blurred, off in colour and noisy, to a degree of its own."""
    generator = torch.Generator().manual_seed(seed)
    count, _, size, _ = pictures_N3HW.shape

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    spoiled = []
    for picture, side in zip(pictures_N3HW, uniform(0.4, 0.8, count).tolist(), strict=True):
        small = F.interpolate(picture[None], size=round(side * size), mode="bilinear", antialias=True)
        spoiled.append(F.interpolate(small, size=size, mode="bilinear", align_corners=False))
    tinted = torch.cat(spoiled) * uniform(0.85, 1.15, count, 3, 1, 1)
    noise = torch.randn(pictures_N3HW.shape, generator=generator) * uniform(0, 0.05, count, 1, 1, 1)
    return (tinted + noise).clamp(0, 1)
