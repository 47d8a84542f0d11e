"""The text that all rows begin with, computed once: its keys and values, and caches that hand them to every row.

Training, generation and the making of the demo's base stand on this. It holds for Qwen3-VL, where text before the image
does not see it. Only modules that use torch anyway import this one.

Shapes: B rows, P tokens of the prefix, N new ones, H key heads, D numbers a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

KeysValues = list[tuple[torch.Tensor, torch.Tensor]]  # one (keys_1HPD, values_1HPD) a layer
_ROOM = 128  # tokens that a growing cache leaves room for, each time that it has to be copied


def common_prefix(batches: Sequence[torch.Tensor], vision_start: int) -> int:
    """Number of leading tokens that all rows of all ``batches`` (each (rows, length)) share, image not included."""
    first = batches[0][0]
    images = (first == vision_start).nonzero()
    length = int(images[0, 0]) if len(images) else 0
    for batch in batches:
        length = min(length, batch.shape[1])
        differs = (batch[:, :length] != first[:length]).any(dim=0).nonzero()
        if len(differs):
            length = int(differs[0, 0])
    return length


def compute_prefix(model: Any, ids_1P: torch.Tensor) -> tuple[KeysValues, torch.Tensor]:
    """Keys and values of one row of text, and a Qwen3-VL's logits behind it, on the graph where gradients are on."""
    cache = Cache(layers=[_Recorder() for _ in range(model.config.text_config.num_hidden_layers)])
    outputs = model(
        input_ids=ids_1P,
        attention_mask=torch.ones_like(ids_1P),
        position_ids=torch.arange(ids_1P.shape[1], device=ids_1P.device).expand(3, 1, -1),
        cache=cache,
        use_cache=False,  # keeps transformers from making a cache of its own; ours is used all the same
        logits_to_keep=1,
    )
    return [(layer.keys, layer.values) for layer in cache.layers], outputs.logits


def reading_cache(prefix: KeysValues) -> Cache:
    """A cache for one forward pass over rows that go on from ``prefix``. It keeps nothing, so a replay is exact."""
    return Cache(layers=[_Reader(keys, values) for keys, values in prefix])


def growing_cache(prefix: KeysValues, rows: int) -> Cache:
    """A cache that holds ``prefix`` in each of ``rows`` rows and grows, as generation needs it."""
    return Cache(layers=[_filled(_Growing(), keys, values, rows) for keys, values in prefix])


def empty_cache(layers: int) -> Cache:
    """A cache that grows from nothing."""
    return Cache(layers=[_Growing() for _ in range(layers)])


class _Recorder(DynamicLayer):
    """Keeps what it is given and hands it back. Checkpointing may replay it."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.keys, self.values = keys, values
        return keys, values

    def get_seq_length(self) -> int:
        return 0  # what it holds is what is being computed, nothing came before

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0


class _Growing(DynamicLayer):
    """Writes behind what it holds, in room made beforehand: the library's copies all of it for every token."""

    keys: torch.Tensor
    values: torch.Tensor
    _room: tuple[torch.Tensor, ...] = ()

    def update(self, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        length = self.get_seq_length()
        end = length + keys.shape[-2]
        if not self._room or end > self._room[0].shape[-2]:
            self._room = tuple(new.new_empty((*new.shape[:-2], end + _ROOM, new.shape[-1])) for new in (keys, values))
            if length:
                for room, held in zip(self._room, (self.keys, self.values), strict=True):
                    room[..., :length, :] = held
        for room, new in zip(self._room, (keys, values), strict=True):
            room[..., length:end, :] = new
        self.keys, self.values = (room[..., :end, :] for room in self._room)
        return self.keys, self.values


class _Reader(DynamicLayer):
    """Hands back [prefix in every row, new] and stores nothing."""

    def __init__(self, keys_1HPD: torch.Tensor, values_1HPD: torch.Tensor):
        super().__init__()
        _filled(self, keys_1HPD, values_1HPD, rows=1)

    def update(self, keys_BHND: torch.Tensor, values_BHND: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        rows = keys_BHND.shape[0]
        return (
            torch.cat([self.keys.expand(rows, -1, -1, -1), keys_BHND], dim=-2),
            torch.cat([self.values.expand(rows, -1, -1, -1), values_BHND], dim=-2),
        )


def _filled(layer: DynamicLayer, keys_1HPD: torch.Tensor, values_1HPD: torch.Tensor, rows: int) -> DynamicLayer:
    layer.keys, layer.values = (tensor.expand(rows, -1, -1, -1) for tensor in (keys_1HPD, values_1HPD))
    layer.is_initialized, layer.device = True, keys_1HPD.device
    return layer
