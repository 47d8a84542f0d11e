"""A network from a file that ``torch.export.save`` wrote, as data alone: a list of operators and raw tensors.

``torch.export.load`` falls back on pickle, evaluates text as sympy expressions and generates Python, so that a file
from elsewhere may run whatever it likes. Here its graph is interpreted instead, operator by operator, and only
operators of inference are known. What the file holds beside graph and tensors is never read.
"""

from __future__ import annotations

import json
import operator
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cprt.errors import InputError

_MAJOR = 8  # of the schema that is read here
_DTYPES = {  # by the schema's numbers
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
_NAMES = """
    _adaptive_avg_pool2d _assert_tensor_metadata _native_batch_norm_legit_no_training _softmax _to_copy
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa abs adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d
    add add_ addmm alias amax arange avg_pool2d batch_norm bmm cat chunk clamp clamp_ clone constant_pad_nd
    contiguous conv1d conv2d convolution div dropout dropout_ elu exp expand feature_dropout flatten floor_divide
    full ge gelu getitem group_norm gt hardsigmoid hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_ index_select
    instance_norm layer_norm le leaky_relu leaky_relu_ linalg_vector_norm linear log_softmax logsumexp lt matmul max
    max_pool2d max_pool2d_with_indices mean mm mul mul_ native_batch_norm native_group_norm native_layer_norm neg
    norm ones pad permute pow prelu relu relu6 relu_ repeat reshape rms_norm rsqrt rsub scalar_tensor
    scaled_dot_product_attention select sigmoid sigmoid_ silu silu_ slice softmax softplus split split_with_sizes
    sqrt squeeze stack sub sum sym_size t tanh to transpose type_as unbind unflatten unsqueeze upsample_bicubic2d
    upsample_bilinear2d upsample_nearest2d view where zeros
"""
_OPERATORS = frozenset(_NAMES.split())
_OF_NUMBERS = {f"_operator.{name}": getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "getitem")}
_LINEAR = {"torch.ops.aten.linear.default": 0, "torch.ops.aten.addmm.default": 1}  # which argument is its input
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError, zipfile.BadZipFile)


class Program:
    """The network in ``path``: images (B, 3, H, W) -> features (B, D), logits (B, ``classes``).

    Features are what the last linear layer that gives so many logits takes, or the first of two results where the
    program returns features and logits. Raises InputError for a file that is no program, holds anything but tensors, or
    takes an operator that is not known here.
    """

    def __init__(self, path: Path, classes: int, device: torch.device):
        self.path, self.classes = path, classes
        try:
            with zipfile.ZipFile(path) as archive:
                content, tensors = _read(archive)
            graph, signature = content["graph_module"]["graph"], content["graph_module"]["signature"]
            self._known, self._input = self._inputs(signature["input_specs"], tensors, device)
            self._outputs = [spec["user_output"]["arg"]["as_tensor"]["name"] for spec in signature["output_specs"]]
            self._steps = [(self._function(node["target"]), node) for node in graph["nodes"]]
            self._last = _last_uses(graph["nodes"], self._outputs)
        except _UNREADABLE as error:
            raise InputError.at(
                path, f"is not a program of torch.export with tensors alone ({_short(error)})"
            ) from error
        if len(self._outputs) not in (1, 2):
            raise InputError.at(path, f"returns {len(self._outputs)} results: logits, or features and logits, are read")

    def _inputs(
        self, specs: list[dict[str, Any]], tensors: Mapping[str, Tensor], device: torch.device
    ) -> tuple[dict[str, Tensor], str]:
        """(name in the graph -> its tensor, name of the images)."""
        fields = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
        known, users = {}, []
        for spec in specs:
            ((kind, said),) = spec.items()
            if kind == "user_input":
                users.append(said["arg"]["as_tensor"]["name"])
            else:
                known[said["arg"]["name"]] = tensors[said[fields[kind]]].to(device)
        (user,) = users
        return known, user

    @staticmethod
    def _function(target: str) -> Callable[..., Any]:
        name, _, overload = target.removeprefix("torch.ops.aten.").partition(".")
        if target.startswith("torch.ops.aten.") and name in _OPERATORS:
            return getattr(getattr(torch.ops.aten, name), overload)
        if target in _OF_NUMBERS:
            return _OF_NUMBERS[target]
        raise ValueError(f"takes the operator {target!r}, which is none of those known here")

    @torch.inference_mode()
    def __call__(self, images_B3HW: Tensor) -> tuple[Tensor | None, Tensor]:
        values: dict[str, Any] = {**self._known, self._input: images_B3HW}
        features = None
        try:
            for (function, node), done in zip(self._steps, self._last, strict=True):
                given = [(row["kind"], row["name"], _value(row["arg"], values)) for row in node["inputs"]]
                positional = [value for kind, _, value in given if kind != 2]
                result = function(*positional, **{name: value for kind, name, value in given if kind == 2})
                place = _LINEAR.get(node["target"])
                if place is not None and result.shape[-1] == self.classes:
                    features = positional[place]
                _keep(node["outputs"], result, values)
                for name in done:
                    del values[name]
        except _UNREADABLE as error:
            raise InputError.at(self.path, f"cannot be run on such images ({_short(error)})") from error
        results = [values[name] for name in self._outputs]
        return (results[0] if len(results) == 2 else features), results[-1]


def _read(archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of the one program, and its tensors by the names that it gives them."""
    (model,) = [name for name in archive.namelist() if name.endswith("/models/model.json")]
    root = model.removesuffix("models/model.json")
    content = json.loads(archive.read(model))
    if content["schema_version"]["major"] != _MAJOR:
        raise ValueError(f"schema {content['schema_version']['major']}, not {_MAJOR}")
    tensors: dict[str, Tensor] = {}
    for kind in ("weights", "constants"):
        config = json.loads(archive.read(f"{root}data/{kind}/model_{kind}_config.json"))["config"]
        for name, payload in config.items():
            if payload["use_pickle"]:
                raise ValueError(f"{name} is pickled")
            tensors[name] = _tensor(archive.read(f"{root}data/{kind}/{payload['path_name']}"), payload["tensor_meta"])
    return content, tensors


def _tensor(raw: bytes, meta: dict[str, Any]) -> Tensor:
    def numbers(field: str) -> list[int]:
        return [size["as_int"] for size in meta[field]]

    dtype = _DTYPES[meta["dtype"]]
    flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.as_strided(numbers("sizes"), numbers("strides"), meta["storage_offset"]["as_int"])


def _value(argument: dict[str, Any], values: Mapping[str, Any]) -> Any:
    """An argument of a step: a value of an earlier one, or a constant."""
    ((kind, said),) = argument.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return values[said["name"]]
        case "as_name":
            return values[said]
        case "as_tensors":
            return [values[item["name"]] for item in said]
        case "as_sym_int" | "as_optional_tensor":
            return _value(said, values)
        case "as_sym_ints" | "as_optional_tensors":
            return [_value(item, values) for item in said]
        case "as_int" | "as_ints" | "as_float" | "as_floats" | "as_bool" | "as_bools" | "as_string":
            return said
        case "as_scalar_type":
            return _DTYPES[said]
        case "as_memory_format":
            return {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}[said]
        case "as_device" | "as_layout":
            return None  # that of the tensors
    raise ValueError(f"an argument {kind}")


def _keep(outputs: list[dict[str, Any]], result: Any, values: dict[str, Any]) -> None:
    """Give the results of a step their names."""
    if len(outputs) == 1:
        ((kind, said),) = outputs[0].items()
        if kind == "as_tensors":
            values |= zip([item["name"] for item in said], result, strict=True)
        else:
            values[said["as_name"] if kind == "as_sym_int" else said["name"]] = result
    elif outputs:  # none: a mere check
        for output, part in zip(outputs, result, strict=True):
            _keep([output], part, values)


def _last_uses(nodes: list[dict[str, Any]], outputs: list[str]) -> list[list[str]]:
    """For each step, the names of earlier steps' results that nothing takes after it: they need not be kept."""
    made = {name for node in nodes for name in _names(node["outputs"])}
    seen, last = set(outputs), []
    for node in reversed(nodes):
        ends = (set(_names([row["arg"] for row in node["inputs"]])) | set(_names(node["outputs"]))) & made - seen
        seen |= ends
        last.append(sorted(ends))
    return last[::-1]


def _names(content: Any) -> list[str]:
    """All names of values in arguments."""
    if isinstance(content, list):
        return [name for item in content for name in _names(item)]
    if isinstance(content, dict):
        own = [said for key, said in content.items() if key in ("name", "as_name") and isinstance(said, str)]
        return own + [name for said in content.values() if isinstance(said, (dict, list)) for name in _names(said)]
    return []


def _short(error: BaseException) -> str:
    return " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split())[:200]
