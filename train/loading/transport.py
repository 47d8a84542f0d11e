"""A batch on its way from a process that reads ahead to the trainer: all of its tensors in one block of shared memory.

torch sends tensors one by one. For each the trainer, which should be computing, connects to the process that made it to
be handed a file, and waits for a thread there to have its turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch


class Packed:
    """Name -> tensor, or -> name -> tensor. What arrives elsewhere is that mapping as a plain dict."""

    def __init__(self, batch: Mapping[str, Any]):
        # Those of the largest numbers first: each then starts where one of its numbers may.
        leaves = sorted(_leaves(batch), key=lambda leaf: leaf[1].itemsize, reverse=True)
        self._layout = [(names, tensor.dtype, tuple(tensor.shape)) for names, tensor in leaves]
        size = sum(tensor.nbytes for _, tensor in leaves)
        self._block = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
        for (_, tensor), (_, part) in zip(leaves, _parts(self._block, self._layout), strict=True):
            part.copy_(tensor)

    def __reduce__(self) -> Any:
        return _unpack, (self._block, self._layout)


def _leaves(batch: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    for name, value in batch.items():
        if isinstance(value, Mapping):
            yield from (((name, inner), tensor) for inner, tensor in value.items())
        else:
            yield (name,), value


def _parts(block: torch.Tensor, layout: Any) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Names -> what ``block`` holds under them."""
    start = 0
    for names, dtype, shape in layout:
        end = start + math.prod(shape) * dtype.itemsize
        yield names, block[start:end].view(dtype).view(shape)
        start = end


def _unpack(block: torch.Tensor, layout: Any) -> dict[str, Any]:
    batch: dict[str, Any] = {}
    for (name, *inner), tensor in _parts(block, layout):
        if inner:
            batch.setdefault(name, {})[inner[0]] = tensor
        else:
            batch[name] = tensor
    return batch
