"""Networks of the model-inversion literature that no library has, with the tensor names of the authors' files.

``VGG16``, ``FaceNet64``, ``IR152`` (targets, 64 pixels) and ``FaceNet`` (evaluation, 112 pixels) are those of KEDMI,
PLG-MI, LOMMA and MIBench: the residual network of face recognition (IR-50 or IR-152, units normalised before their
first convolution) or torchvision's convolutions, with one linear head ``fc_layer``. ``FIDInception`` is ImageNet's
Inception as FID takes it, whose pooling differs from torchvision's: the input of its last layer is pool3.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_UNITS = {50: (3, 4, 14, 3), 152: (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512)


class _Unit(nn.Module):
    """A residual unit; the first of a stage halves the resolution."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.shortcut_layer: nn.Module = nn.MaxPool2d(1, stride)
        if inputs != width:
            self.shortcut_layer = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.res_layer = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, width, 3, 1, 1, bias=False),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.res_layer(x_BCHW) + self.shortcut_layer(x_BCHW)


def _output(side: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(512), nn.Dropout(), nn.Flatten(), nn.Linear(512 * side * side, 512), nn.BatchNorm1d(512)
    )


class _Backbone(nn.Module):
    def __init__(self, depth: int):
        super().__init__()
        self.input_layer = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64))
        units, inputs = [], 64
        for width, count in zip(_WIDTHS, _UNITS[depth], strict=True):
            for number in range(count):
                units.append(_Unit(inputs, width, 1 if number else 2))
                inputs = width
        self.body = nn.Sequential(*units)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.body(self.input_layer(x_BCHW))


class _Face64(nn.Module):
    """Pictures of 64 pixels; the layer after the backbone stands outside of it."""

    def __init__(self, depth: int, classes: int):
        super().__init__()
        self.feature = _Backbone(depth)
        self.output_layer = _output(4)
        self.fc_layer = nn.Linear(512, classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.fc_layer(self.output_layer(self.feature(x_BCHW)))


class _Backbone112(_Backbone):
    """Pictures of 112 pixels; the layer after the backbone stands within it."""

    def __init__(self, depth: int):
        super().__init__(depth)
        self.output_layer = _output(7)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.output_layer(super().forward(x_BCHW))


class _Face112(nn.Module):
    def __init__(self, depth: int, classes: int):
        super().__init__()
        self.feature = _Backbone112(depth)
        self.fc_layer = nn.Linear(512, classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.fc_layer(self.feature(x_BCHW))


class _VGG16(nn.Module):
    """Pictures of 64 pixels."""

    def __init__(self, classes: int):
        from torchvision.models import vgg16_bn

        super().__init__()
        self.feature = vgg16_bn(weights=None, init_weights=False).features
        self.bn = nn.BatchNorm1d(512 * 2 * 2)
        self.fc_layer = nn.Linear(512 * 2 * 2, classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.fc_layer(self.bn(self.feature(x_BCHW).flatten(1)))


def _fid_inception(classes: int) -> nn.Module:
    """Pictures of 299 pixels with values -1 to 1; 1,008 classes."""
    from torchvision.models import inception_v3

    def average(x_BCHW: Tensor) -> Tensor:
        return F.avg_pool2d(x_BCHW, 3, 1, 1, count_include_pad=False)

    def largest(x_BCHW: Tensor) -> Tensor:
        return F.max_pool2d(x_BCHW, 3, 1, 1)

    model = inception_v3(weights=None, num_classes=classes, aux_logits=False, init_weights=False)
    for name in ("5b", "5c", "5d", "6b", "6c", "6d", "6e", "7b", "7c"):
        _pool_by(getattr(model, f"Mixed_{name}"), largest if name == "7c" else average)
    return model


def _pool_by(block: nn.Module, pool: Callable[[Tensor], Tensor]) -> None:
    """Another pooling in a block's last branch."""
    branches = block._forward

    def forward(x_BCHW: Tensor) -> Tensor:
        return torch.cat([*branches(x_BCHW)[:-1], block.branch_pool(pool(x_BCHW))], 1)

    block.forward = forward


ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "VGG16": _VGG16,
    "FaceNet64": lambda classes: _Face64(50, classes),
    "IR152": lambda classes: _Face64(152, classes),
    "FaceNet": lambda classes: _Face112(50, classes),
    "FIDInception": _fid_inception,
}
