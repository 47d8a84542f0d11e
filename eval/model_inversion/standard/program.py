"""A network from a file that ``torch.export.save`` wrote, as data alone: a list of operators and raw tensors.

``torch.export.load`` falls back on pickle, evaluates text as sympy expressions and generates Python, so that a file
from elsewhere may run whatever it likes. Here its graph is built anew of operators of inference alone, and interpreted.
What the file holds beside graph and tensors is never read.
"""

from __future__ import annotations

import json
import operator
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from cprt.errors import InputError
from cprt.models.checkpoint import first_line

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
_TENSORS = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError, zipfile.BadZipFile)


class Program:
    """The network in ``path``: images (B, 3, H, W) -> features (B, D), logits (B, ``classes``).

    Features are what the last linear layer that gives so many logits takes, or the first of two results where the
    program returns features and logits. Raises InputError for a file that is no program, holds anything but tensors, or
    takes an operator that is not known here.
    """

    def __init__(self, path: Path, classes: int, device: torch.device):
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                content, tensors = _read(archive)
            signature, values = content["signature"], dict[str, Any]()
            graph, self._known = fx.Graph(), dict[fx.Node, Tensor]()
            for spec in signature["input_specs"]:
                ((kind, said),) = spec.items()
                node = graph.placeholder("x")
                if kind == "user_input":
                    values[said["arg"]["as_tensor"]["name"]] = self._images = node
                else:
                    values[said["arg"]["name"]] = node
                    self._known[node] = tensors[said[_TENSORS[kind]]].to(device)
            features = _add_steps(graph, content["graph"], values, classes, device)
            results = [values[spec["user_output"]["arg"]["as_tensor"]["name"]] for spec in signature["output_specs"]]
            if len(results) not in (1, 2):
                raise ValueError(f"returns {len(results)} results: logits, or features and logits, are read")
            graph.output((results[0] if len(results) == 2 else features, results[-1]))
            graph.eliminate_dead_code()
            self._interpreter = fx.Interpreter(nn.Module(), graph=graph)  # frees what nothing takes any more
        except _UNREADABLE as error:
            what = f"is not a program of torch.export with tensors alone ({_short(error)})"
            raise InputError.at(path, what) from error

    @torch.inference_mode()
    def __call__(self, images_B3HW: Tensor) -> tuple[Tensor | None, Tensor]:
        try:
            return self._interpreter.run(initial_env={**self._known, self._images: images_B3HW})
        except _UNREADABLE as error:
            raise InputError.at(self.path, f"cannot be run on such images ({_short(error)})") from error


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
    return content["graph_module"], tensors


def _tensor(raw: bytes, meta: dict[str, Any]) -> Tensor:
    dtype = _DTYPES[meta["dtype"]]
    flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    sizes, strides = ([size["as_int"] for size in meta[name]] for name in ("sizes", "strides"))
    return flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])


def _add_steps(
    graph: fx.Graph, described: dict[str, Any], values: dict[str, Any], classes: int, device: torch.device
) -> Any:
    """Add the described steps, and their results to ``values`` by name; returns the features, None where none are.

    What a step makes or moves lies on ``device``, wherever it lay when it was exported.
    """
    features, tensors = None, described["tensor_values"]
    for step in described["nodes"]:
        given = [(row["kind"] == 2, row["name"], _value(row["arg"], values)) for row in step["inputs"]]
        positional = tuple(value for by_name, _, value in given if not by_name)
        named = {name: value for by_name, name, value in given if by_name}
        if "device" in named and "_assert" not in step["target"]:
            named["device"] = device
        result = graph.call_function(_function(step["target"]), positional, named)
        outputs = [said for output in step["outputs"] for said in output.values()]
        if len(outputs) == 1 and not isinstance(outputs[0], list):
            values[_name(outputs[0])] = result
        else:
            for place, said in enumerate(outputs[0] if len(outputs) == 1 else outputs):
                values[_name(said)] = graph.call_function(operator.getitem, (result, place))
        linear = _LINEAR.get(step["target"])
        if linear is not None and tensors[_name(outputs[0])]["sizes"][-1] == {"as_int": classes}:
            features = positional[linear]
    return features


def _name(said: dict[str, Any]) -> str:
    return said["as_name"] if "as_name" in said else said["name"]


def _function(target: str) -> Callable[..., Any]:
    name, _, overload = target.removeprefix("torch.ops.aten.").partition(".")
    if target.startswith("torch.ops.aten.") and name in _OPERATORS:
        return getattr(getattr(torch.ops.aten, name), overload)
    if target in _OF_NUMBERS:
        return _OF_NUMBERS[target]
    raise ValueError(f"takes the operator {target!r}, which is none of those known here")


def _value(argument: dict[str, Any], values: Mapping[str, Any]) -> Any:
    """An argument of a step: a value of an earlier one, or a constant."""
    ((kind, said),) = argument.items()
    match kind:
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
        case "as_none" | "as_device" | "as_layout":  # those of the tensors
            return None
    raise ValueError(f"an argument {kind}")


def _short(error: Exception) -> str:
    return " ".join(first_line(error).split())[:200]
