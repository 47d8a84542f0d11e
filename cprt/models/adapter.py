"""LoRA adapters that are what they say: their files, the base they fit, the prompt they were trained with.

Torch is imported where weights are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.models.checkpoint import check_finite, first_line
from cprt.prompts import Prompt, recall
from cprt.records import inside, read_object
from cprt.taxonomy import Taxonomy
from cprt.values import is_number

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_LARGEST_ALPHA = 1_000_000  # far beyond any in use; with much more, what it scales is infinite
_DTYPES = ("float32", "float16", "bfloat16")


def read_config(folder: str | Path) -> dict[str, Any]:
    """The configuration of a LoRA folder, its weights not looked at. Raises InputError that names file and field."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder}: is not an adapter folder (no {CONFIG})")
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{folder}: has no {WEIGHTS} (other formats are not loaded)")
    config = read_object(folder / CONFIG)
    if config.get("peft_type") != "LORA":
        raise InputError.at(folder / CONFIG, f"{config.get('peft_type')!r} is not LORA", field="peft_type")
    if type(config.get("r")) is not int or config["r"] < 1:
        raise InputError.at(folder / CONFIG, "is not a whole number of at least 1", field="r")
    pattern = config.get("alpha_pattern") or {}
    alphas = {f"alpha_pattern.{name}": alpha for name, alpha in pattern.items()} if isinstance(pattern, dict) else {}
    for field, alpha in {"lora_alpha": config.get("lora_alpha", 8), **alphas}.items():  # 8 is PEFT's own default
        if not is_number(alpha) or not 0 < alpha <= _LARGEST_ALPHA:
            raise InputError.at(folder / CONFIG, f"is not a number above 0 and up to {_LARGEST_ALPHA:,}", field=field)
    return config


def check_adapter(folder: str | Path, expected: int | None = None) -> dict[str, Any]:
    """The configuration of a LoRA folder whose weights are whole and finite, fit together, and change something.

    ``expected``: tensors, where the run recorded how many: then layers that are missing as a whole show too. Raises
    InputError that names the file and what is wrong with it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config, path = read_config(folder), Path(folder) / WEIGHTS
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: is cut off or damaged ({first_line(error)})") from error
    if not tensors:
        raise InputError(f"{path}: holds no weights")
    modules: dict[str, dict[str, Any]] = {}  # module -> "lora_A", "lora_B" or "lora_magnitude_vector" -> tensor
    for name, tensor in tensors.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in _DTYPES:
            raise InputError(f"{path}: {name} is {kind}, not one of {', '.join(_DTYPES)}")
        if found := re.fullmatch(r"(.+)\.(lora_A|lora_B|lora_magnitude_vector).*", name):
            modules.setdefault(found[1], {})[found[2]] = tensor
    check_finite(str(path), tensors)
    if not modules:
        raise InputError(f"{path}: holds no LoRA weights")
    if config.get("bias", "none") != "none" and not any(name.endswith(".bias") for name in tensors):
        raise InputError(f"{path}: holds no biases, {CONFIG} says bias: {config['bias']}")
    changes = bool(config.get("modules_to_save"))
    for module, parts in sorted(modules.items()):
        if not {"lora_A", "lora_B"} <= parts.keys():
            raise InputError(f"{path}: {module} has only one of lora_A and lora_B")
        if ("lora_magnitude_vector" in parts) != bool(config.get("use_dora")):
            lacks = "no DoRA magnitudes" if config.get("use_dora") else "DoRA magnitudes"
            raise InputError(f"{path}: {module} has {lacks}, {CONFIG} says use_dora: {config.get('use_dora')}")
        a, b = parts["lora_A"].float(), parts["lora_B"].float()
        rank, width = a.shape[0], b.shape[1]
        if rank != width:
            raise InputError(f"{path}: {module} has rank {rank} in lora_A and {width} in lora_B")
        if rank != config["r"] and not config.get("rank_pattern"):
            raise InputError(f"{path}: {module} has rank {rank}, {CONFIG} says {config['r']}")
        changes = changes or bool((b.flatten(1) @ a.flatten(1)).any())
    if not changes:
        raise InputError(f"{path}: the product of lora_B and lora_A is zero everywhere, the adapter changes nothing")
    if expected is not None and len(tensors) != expected:
        raise InputError(f"{path}: holds {len(tensors)} tensors, the run saved {expected}: some layers are missing")
    return config


def add_adapter(model: Any, folder: str | Path) -> Any:
    """The model with the adapter on it, frozen. Raises InputError when its names do not fit the model's, one by one."""
    from peft import PeftConfig, get_peft_model

    check_adapter(folder, saved_tensors(read_record(folder)))
    try:
        config = PeftConfig.from_pretrained(str(folder))
        config.inference_mode = True
        config.base_model_name_or_path = model.name_or_path
        adapted = get_peft_model(model, config)
    except Exception as error:  # whatever an odd adapter_config.json provokes; none of its weights is read yet
        raise InputError(f"{folder}: does not fit the model ({first_line(error)})") from error
    load_weights(adapted, folder, "default")
    return adapted


def load_weights(adapted: Any, folder: str | Path, name: str) -> None:
    """Load a saved adapter into a PEFT model as ``name``, which is made when it is not there.

    Raises InputError unless the file has every tensor of that adapter, in its shape, and no other.
    """
    try:
        loaded = adapted.load_adapter(str(folder), name)
    except (ValueError, RuntimeError, KeyError) as error:  # KeyError: a module saved in full is not in the file
        lines = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        raise InputError(f"{folder}: does not fit the model ({lines[0] if lines else first_line(error)})") from error
    for fault, names in (("lacks", loaded.missing_keys), ("has no place for", loaded.unexpected_keys)):
        if names:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            side = Path(folder) / WEIGHTS if fault == "lacks" else "the model"
            raise InputError(f"{folder}: does not fit the model: {side} {fault} {min(names)}{others}")


def pixel_cap(folder: str | Path) -> int | None:
    """How many pixels of a photo the processor in an adapter's folder leaves, None where it does not say.

    Raises InputError for a folder that is none of an adapter's.
    """
    read_config(folder)
    file = Path(folder) / "processor_config.json"
    size = inside(inside(read_object(file), "image_processor"), "size") if file.is_file() else {}
    cap = size.get("longest_edge") if "shortest_edge" in size else None  # beside it, "edges" are numbers of pixels
    return cap if type(cap) is int and cap > 0 else None


def read_record(folder: str | Path) -> dict[str, Any]:
    """The run record beside an adapter, empty where there is none. Raises InputError for one that is no object."""
    path = Path(folder) / "run.json"
    return read_object(path) if path.is_file() else {}


def saved_tensors(record: Mapping[str, Any]) -> int | None:
    """How many tensors the run counted when it saved the adapter; None where it is not recorded."""
    count = inside(record, "result").get("tensors")
    return count if type(count) is int else None


def other_base(folder: str | Path, base: str) -> str | None:
    """What to say where an adapter was trained on another base than ``base`` (as ``identity`` names it)."""
    record = read_record(folder)
    if not isinstance(trained := record.get("base_digest"), str) or trained == base:
        return None
    return f"{folder} was trained on another base ({record.get('base_model')}, {trained[:64]}) than it is put on here"


def base_of(folder: str | Path, base: str | None = None, revision: str | None = None) -> tuple[str, str | None]:
    """What an adapter was trained on, unless told, and its commit where one is known. Raises InputError."""
    config = Path(folder) / CONFIG
    base = base or (read_object(config) if config.is_file() else {}).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise InputError.at(config, "names no base; give it as --base_model", field="base_model_name_or_path")
    return base, base_commit(read_record(folder), base, revision)


def base_commit(record: Mapping[str, Any], base: str, revision: str | None) -> str | None:
    """The commit of a Hub model that an adapter's run recorded, else ``revision``; None where neither says one.

    Raises InputError where they differ: the adapter was trained on other weights.
    """
    digest = record.get("base_digest")
    name, _, commit = digest.partition("@") if isinstance(digest, str) else ("", "", "")
    if name != base or not re.fullmatch(r"[0-9a-f]{40}", commit):
        return revision
    if revision not in (None, commit):
        raise InputError(f"base_revision {revision} is not the commit that the run recorded ({commit})")
    return commit


def recorded_digests(record: Mapping[str, Any]) -> list[str]:
    """What names the prompts that an adapter was trained with: one, or two where its pairs were mixed."""
    named = (inside(record, "prompt").get("sha256"), inside(record, "prompt", "also").get("sha256"))
    return [digest for digest in named if isinstance(digest, str)]


def recorded_prompt(record: Mapping[str, Any], taxonomy: Taxonomy) -> Prompt | None:
    """The prompt that an adapter's run record holds; None where it holds none, or one that has changed since.

    Of two, the one that is asked where nobody says otherwise.
    """
    try:
        return recall(inside(record, "prompt"), taxonomy, "run.json")
    except InputError:
        return None
