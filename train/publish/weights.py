"""Whether the weights of an adapter are worth publishing: whole, finite, and such that they change the base."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from cprt.errors import InputError

_DTYPES = ("float32", "float16", "bfloat16")


def check_weights(path: Path, config: dict[str, Any], expected: int | None = None) -> None:
    """Refuse an adapter that is cut off, holds NaN or infinity, lacks what belongs together, or changes nothing.

    Args:
        config: PEFT's configuration of the adapter.
        expected: number of tensors, where the run recorded it: then layers that are missing as a whole show too.

    Raises InputError.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path}: is cut off, or is no safetensors file ({error})") from error
    if not tensors:
        raise InputError(f"{path}: holds no weights")
    modules: dict[str, dict[str, Any]] = defaultdict(dict)  # module -> half or magnitude -> tensor
    for name, tensor in tensors.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in _DTYPES:
            raise InputError(f"{path}: {name} is {kind}, not one of {', '.join(_DTYPES)}")
        if not tensor.isfinite().all():
            raise InputError(f"{path}: {name} holds NaN or infinity")
        for part in ("lora_A", "lora_B", "lora_magnitude_vector"):
            module, found, _ = name.rpartition(f".{part}")
            if found:
                modules[module][part] = tensor
    if not modules:
        raise InputError(f"{path}: holds no LoRA weights")
    changes = bool(config.get("modules_to_save"))
    for module, parts in sorted(modules.items()):
        if not {"lora_A", "lora_B"} <= parts.keys():
            raise InputError(f"{path}: {module} has only one of lora_A and lora_B")
        if config.get("use_dora") and "lora_magnitude_vector" not in parts:
            raise InputError(f"{path}: {module} has no DoRA magnitudes, adapter_config.json says use_dora")
        a, b = parts["lora_A"].float(), parts["lora_B"].float()
        if a.shape[0] != b.shape[1]:
            raise InputError(f"{path}: {module} has rank {a.shape[0]} in lora_A and {b.shape[1]} in lora_B")
        if a.shape[0] != config.get("r") and not config.get("rank_pattern"):
            raise InputError(f"{path}: {module} has rank {a.shape[0]}, adapter_config.json says {config.get('r')}")
        changes = changes or bool((b @ a).any())
    if not changes or not config.get("lora_alpha"):
        raise InputError(f"{path}: the product of lora_B and lora_A is zero everywhere, the adapter changes nothing")
    if expected is not None and len(tensors) != expected:
        raise InputError(f"{path}: holds {len(tensors)} tensors, the run saved {expected}: some layers are missing")
