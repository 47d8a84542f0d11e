"""An imagined GPU: the real code runs on it at full size, without a card and without memory.

What a processor holds stays real. What is moved to the card, or made there, is one of torch's fake tensors: it has a
shape, a dtype and a device, so that a tensor left on the processor or of another dtype raises as it would on a card.
Whole numbers and truth values keep what they hold as well, since positions, masks and sizes of photos decide shapes;
what they would take from weights is 0 (the argmax of logits), and a single number that is read from weights is 1.

The memory of everything alive on the card is counted in blocks of 512 bytes, as torch's allocator hands it out. What
that allocator loses between blocks, and what the libraries take for themselves, is not in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from accelerate import PartialState
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.nn.functional import pad
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry
from transformers.utils import is_triton_available

_BLOCK = 512  # bytes
_SMALL = 100_000  # numbers
_KEPT = (torch.int64, torch.int32, torch.bool)  # not uint8: four-bit weights are of that type
_aten = torch.ops.aten


@contextmanager
def imagined_card(limit: float | None = None) -> Iterator[ImaginedCard]:
    """While it is open, torch's device "cuda" is an imagined one, for Accelerate and for automatic casting too.

    What goes beyond the ``limit``, bytes of memory, raises torch.OutOfMemoryError, as on a card.
    """
    # Torch keeps, from its first use, which functions heed a device in context: torch.tensor itself, not its stand-in
    # below, or models loaded later in this process would come with rotary frequencies that nobody has set.
    _device_constructors()
    state = PartialState(cpu=True)
    before, state.device = state.device, torch.device("cuda", 0)
    # Triton's kernels fill what stands there already. Without Triton nothing calls them. (A mock of its own would keep
    # what it was called with, and so all memory of every micro-batch.)
    nothing = mock.patch("triton.runtime.jit.JITFunction.run", lambda *_, **__: None)
    kernels = nothing if is_triton_available() else nullcontext()
    try:
        with (
            kernels,
            mock.patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False),
            mock.patch("torch.cuda.is_bf16_supported", lambda *_: True),
            mock.patch("torch.nn.functional.scaled_dot_product_attention", _attention),
            mock.patch("torch.tensor", _tensor),
            mock.patch("torch.inference_mode", torch.no_grad),  # under which fake tensors can be made
            mock.patch.object(FakeTensor, "tolist", lambda tensor: _value(tensor).tolist()),
            FakeTensorMode() as fake,
            ImaginedCard(fake, limit) as card,
        ):
            yield card
    finally:
        state.device = before


class ImaginedCard(TorchDispatchMode):
    """Attributes: ``live``, ``peak`` and ``limit``, bytes now, at most, and allowed; ``flops``, by torch's formulas."""

    def __init__(self, fake: FakeTensorMode, limit: float | None):
        super().__init__()
        self._fake, self.limit = fake, limit
        self.live = self.peak = self.flops = 0
        self._storages: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            # Asked by C++ alone, where autograd would look for the streams of a card that is not there.
            return torch.device("meta")
        kwargs = kwargs or {}
        if kwargs.get("device") == torch.device("meta"):
            kwargs = {**kwargs, "device": torch.device("cuda", 0)}
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        on_card = any(isinstance(tensor, FakeTensor) for tensor in tensors)
        device = kwargs.get("device")
        if not on_card and (device is None or torch.device(device).type != "cuda"):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if func is _aten._local_scalar_dense.default:
            with unset_fake_temporarily():
                return self._read(args[0]).item()
        if func is _aten.equal.default:
            with unset_fake_temporarily():
                return torch.equal(self._read(args[0]), self._read(args[1]))
        if device is not None and torch.device(device).type == "cpu" and func is _aten._to_copy.default:
            with unset_fake_temporarily():
                return self._read(args[0]).to(kwargs.get("dtype") or args[0].dtype)
        if func is _aten.copy_.default and not isinstance(args[0], FakeTensor):
            with unset_fake_temporarily():
                return args[0].copy_(self._read(args[1]))
        if func in (_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default):
            args = (args[0], self._places(args[1]), *args[2:])
        if func in _OF_ONE_DTYPE and len({tensor.dtype for tensor in tensors}) > 1:
            raise RuntimeError(f"{func}: a card wants the same dtype, not {[tensor.dtype for tensor in tensors]}")
        known = all(tensor.dtype in _KEPT for tensor in tensors)
        if known and (func in _OF_VALUES or self._is_small(func, tensors)):
            there = {id(_value(tensor)): tensor for tensor in tensors}
            return tree_map_only(
                torch.Tensor,
                lambda value: there[id(value)] if id(value) in there else self._hold(value),
                self._on_values(func, args, kwargs),
            )
        imagined = tree_map_only(torch.Tensor, self._imagine, (args, kwargs))
        out = func(*imagined[0], **imagined[1])
        # Of no use here, and torch moves no weight that it refers to.
        self._fake.fake_tensor_converter.meta_converter.tensor_memo.clear()
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, FakeTensor)]
        kept = [leaf for leaf in made if leaf.dtype in _KEPT]
        if kept:
            changed = any(leaf is tensor for leaf in kept for tensor in tensors)
            if known:
                values = [leaf for leaf in tree_leaves(self._on_values(func, args, kwargs)) if torch.is_tensor(leaf)]
            else:
                with unset_fake_temporarily():
                    values = [
                        _value(leaf).zero_() if changed else torch.zeros(leaf.shape, dtype=leaf.dtype) for leaf in made
                    ]
            for leaf, value in zip(made, values, strict=True):
                if leaf.dtype in _KEPT:
                    leaf.held = value
        for leaf in made:
            self._count(leaf)
        if formula := flop_registry.get(func.overloadpacket):
            self.flops += formula(*args, **kwargs, out_val=out)
        return out

    def _on_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, _value, (args, kwargs))
        with unset_fake_temporarily():
            return func(*args, **({**kwargs, "device": "cpu"} if "device" in kwargs else kwargs))

    def _is_small(self, func: Any, tensors: Any) -> bool:
        """Whether working on values alone, which is quicker, is as good: little memory, nothing left off the card."""
        return (
            bool(tensors)
            and all(isinstance(tensor, FakeTensor) for tensor in tensors)
            and sum(tensor.numel() for tensor in tensors) <= _SMALL
            and torch.Tag.inplace_view not in func.tags
        )

    def _hold(self, value: torch.Tensor) -> torch.Tensor:
        """A real tensor -> one on the card that holds it."""
        held = self._imagine(value, torch.device("cuda", 0))
        if value.dtype in _KEPT:
            held.held = value
        self._count(held)
        return held

    def _imagine(self, tensor: torch.Tensor, device: torch.device | None = None) -> FakeTensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        with unset_fake_temporarily():
            shape = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        return FakeTensor(self._fake, shape, device or tensor.device)

    def _read(self, tensor: torch.Tensor) -> torch.Tensor:
        """What a processor is given of a tensor on the card."""
        return _value(tensor) if tensor.dtype in _KEPT else torch.ones(tensor.shape, dtype=tensor.dtype)

    def _places(self, indices: Any) -> list[Any]:
        """Masks among the indices as the places that they hold, whose number is known here."""
        places: list[Any] = []
        for index in indices:
            if index is not None and index.dtype == torch.bool:
                with unset_fake_temporarily():
                    columns = _value(index).nonzero().unbind(1)
                places += [self._hold(column) if isinstance(index, FakeTensor) else column for column in columns]
            else:
                places.append(index)
        return places

    def _count(self, tensor: FakeTensor) -> None:
        storage = tensor.untyped_storage()
        if tensor.device.type != "cuda" or storage in self._storages:
            return
        self._storages.add(storage)
        size = -(-storage.nbytes() // _BLOCK) * _BLOCK
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, size)
        if self.limit is not None and self.live > self.limit:
            raise torch.OutOfMemoryError(f"{self.live:,} bytes on a card of {self.limit:,.0f}")

    def _release(self, size: int) -> None:
        self.live -= size


# What is as long as its input's values say.
_OF_VALUES = {
    _aten.nonzero.default,
    _aten.repeat_interleave.Tensor,
    _aten.masked_select.default,
    _aten._unique2.default,
    _aten.unique_consecutive.default,
}


# What a card multiplies in one dtype only, and torch's stand-ins in any.
_OF_ONE_DTYPE = {
    _aten.mm.default,
    _aten.bmm.default,
    _aten.addmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
}


def _value(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.held if isinstance(tensor, FakeTensor) else tensor


def _tensor(data: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.tensor``, which looks past every mode for what the single numbers in a list hold."""
    return _torch_tensor(tree_map_only(FakeTensor, lambda tensor: tensor.item(), data), **kwargs)


_torch_tensor, _torch_attention = torch.tensor, torch.nn.functional.scaled_dot_product_attention


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention by the kernels that a card takes; without a card torch chooses one that keeps every weight.

    With a mask that is the memory-efficient one, without it FlashAttention.
    """
    if not isinstance(query, FakeTensor):
        return _torch_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    grad = query.requires_grad or key.requires_grad
    if attn_mask is None:
        size = query.shape[-1]
        query, key, value = (pad(tensor, (0, -size % 8)) for tensor in (query, key, value))
        scale = scale or size**-0.5
        return _aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0][
            ..., :size
        ]
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
    length = attn_mask.shape[-1]
    attn_mask = pad(attn_mask, (0, -length % 16))[..., :length]
    attn_mask = attn_mask.expand(*query.shape[:2], query.shape[2], key.shape[2])
    return _aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
    )[0]
