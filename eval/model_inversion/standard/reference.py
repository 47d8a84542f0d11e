"""Networks of the model-inversion literature that no library has, with the tensor names of the authors' files.

``VGG16``, ``FaceNet64``, ``IR152`` (targets, 64 pixels) and ``FaceNet`` (evaluation, 112 pixels) are those of KEDMI,
PLG-MI, LOMMA and MIBench: the residual network of face recognition (IR-50 or IR-152, units normalised before their
first convolution) or torchvision's convolutions, with one linear head ``fc_layer``. ``FIDInception`` is ImageNet's
Inception as FID takes it, whose pooling differs from torchvision's: the input of its last layer is pool3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

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


def _named(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def _face(depth: int, size: int, classes: int) -> nn.Module:
    """For pictures of 64 pixels, where the layer after the backbone stands outside of it, or of 112, where within."""
    units, inputs = [], 64
    for width, count in zip(_WIDTHS, _UNITS[depth], strict=True):
        units += [_Unit(width if number else inputs, width, 1 if number else 2) for number in range(count)]
        inputs = width
    backbone = {
        "input_layer": nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)),
        "body": nn.Sequential(*units),
    }
    wide = nn.Linear(512 * (size // 16) ** 2, 512)
    output = nn.Sequential(nn.BatchNorm2d(512), nn.Dropout(), nn.Flatten(), wide, nn.BatchNorm1d(512))
    head = nn.Linear(512, classes)
    if size == 64:
        return _named(feature=_named(**backbone), output_layer=output, fc_layer=head)
    return _named(feature=_named(**backbone, output_layer=output), fc_layer=head)


def _vgg16(classes: int) -> nn.Module:
    """For pictures of 64 pixels."""
    from torchvision.models import vgg16_bn

    features = vgg16_bn(weights=None, init_weights=False).features
    width = 512 * 2 * 2
    return _named(feature=features, flat=nn.Flatten(), bn=nn.BatchNorm1d(width), fc_layer=nn.Linear(width, classes))


def _fid_inception(classes: int) -> nn.Module:
    """For pictures of 299 pixels with values -1 to 1; 1,008 classes."""
    from torchvision.models import inception_v3

    model = inception_v3(weights=None, num_classes=classes, aux_logits=False, init_weights=False)
    for name in ("5b", "5c", "5d", "6b", "6c", "6d", "6e", "7b", "7c"):
        block = getattr(model, f"Mixed_{name}")
        average = partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
        largest = partial(F.max_pool2d, kernel_size=3, stride=1, padding=1)
        block.forward = partial(_pooled_by, block, largest if name == "7c" else average)
    return model


def _pooled_by(block: nn.Module, pool: Callable[[Tensor], Tensor], x_BCHW: Tensor) -> Tensor:
    """A block's output with another pooling in its last branch."""
    return torch.cat([*block._forward(x_BCHW)[:-1], block.branch_pool(pool(x_BCHW))], 1)


ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "VGG16": _vgg16,
    "FaceNet64": partial(_face, 50, 64),
    "IR152": partial(_face, 152, 64),
    "FaceNet": partial(_face, 50, 112),
    "FIDInception": _fid_inception,
}
