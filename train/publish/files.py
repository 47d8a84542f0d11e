"""The files of a trained adapter that may be published, copied one by one and checked. No other file is ever read.

An output folder of ``train/sft.py`` also holds optimiser states, pickles, logs and TRL's own card: none of them is on
the list, and a symbolic link is not followed, whatever its name.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.records import read_json, write_json
from train.publish.disclosure import pieces, refuse_secrets, secret_finder

REQUIRED = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "processor_config.json",
    "tokenizer.json",
    "chat_template.jinja",
)
OPTIONAL = (
    "tokenizer_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
WRITTEN = ("README.md", "run.json")  # ours, made for the published copy
PUBLISHED = {*REQUIRED, *OPTIONAL, *WRITTEN}

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ABSOLUTE = re.compile(r"(?:~|[A-Za-z]:)?[\\/][\w. -]+[\\/]|\\\\|file:")
_LOADING = ("is_local", "local_files_only", "name_or_path")  # what a tokenizer notes about where it was loaded from


@dataclass(frozen=True)
class Base:
    """The base model on the Hub. ``trained_as`` is what the run called it, ``digest`` how the run identified it.

    ``revision`` is a commit where the run recorded one or the user gave one, else None.
    """

    name: str
    revision: str | None
    trained_as: str
    digest: str | None
    is_llama: bool


@dataclass(frozen=True)
class Source:
    """An adapter as it lies on disk. ``step`` is set for a checkpoint, whose ``record`` is that of its run."""

    folder: Path
    config: dict[str, Any]
    processor: dict[str, Any]
    record: dict[str, Any]
    step: int | None

    @staticmethod
    def read(folder: Path) -> Source:
        """Raises InputError for a folder that ``train/sft.py`` has not left behind complete."""
        if not folder.is_dir():
            raise InputError(f"{folder}: no such adapter folder")
        for name in REQUIRED:
            _refuse_absent(folder / name)
        found = re.fullmatch(r"checkpoint-(\d+)", folder.resolve().name)
        record = folder.resolve().parent / "run.json" if found else folder / "run.json"
        _refuse_absent(record)
        config = _read_object(folder / "adapter_config.json")
        if config.get("peft_type") != "LORA":
            raise InputError.at(
                folder / "adapter_config.json", f"{config.get('peft_type')!r} is not LORA", field="peft_type"
            )
        if type(config.get("r")) is not int:
            raise InputError.at(folder / "adapter_config.json", "is not a whole number", field="r")
        refuse_secrets(record, record)  # in the original too: what it holds has been lying about in plain text
        return Source(
            folder,
            config,
            _read_object(folder / "processor_config.json"),
            _read_object(record),
            int(found[1]) if found else None,
        )

    def checkpoints(self) -> list[Path]:
        """The run's checkpoint folders, first step first."""
        found = {}
        for path in self.folder.iterdir():
            match = re.fullmatch(r"checkpoint-(\d+)", path.name)
            if match and path.is_dir() and not path.is_symlink():
                found[int(match[1])] = path
        return [found[step] for step in sorted(found)]

    def base(self, name: str | None, revision: str | None) -> Base:
        """The base model, as ``name`` has it or else the adapter's configuration. Raises InputError for a folder."""
        file = self.folder / "adapter_config.json"
        trained_as = self.config.get("base_model_name_or_path")
        if not isinstance(trained_as, str) or not trained_as:
            raise InputError.at(file, "is missing", field="base_model_name_or_path")
        digest = self.record.get("base_digest")
        was_folder = isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest) is not None
        if name is None and (was_folder or not _HUB_NAME.fullmatch(trained_as) or Path(trained_as).exists()):
            raise InputError.at(
                file,
                f"{trained_as!r} is a folder on the machine that trained; give its name on the "
                "Hub as --base_model ORG/NAME",
                field="base_model_name_or_path",
            )
        base = name or trained_as
        recorded = digest.partition("@")[2] if isinstance(digest, str) and digest.startswith(f"{base}@") else ""
        commit = recorded if re.fullmatch(r"[0-9a-f]{40}", recorded) else None
        if commit and revision and revision != commit:
            raise InputError(f"base_revision {revision} is not the commit that the run recorded ({commit})")
        family = f"{base} {trained_as} {self.processor.get('processor_class')}".lower()
        return Base(base, revision or commit, trained_as, digest, "llama" in family)

    def stage(self, folder: Path, base: Base) -> list[str]:
        """Copy what may be published into ``folder``, naming ``base`` in the configuration, and check the copies.

        Returns the names of what is not published in any form. Raises InputError, which names the file that was copied.
        """
        folder.mkdir(parents=True)
        for name in (*REQUIRED, *OPTIONAL):
            source = self.folder / name
            if source.is_file() and not source.is_symlink():
                shutil.copyfile(source, folder / name)
                if name != "adapter_model.safetensors":
                    refuse_secrets(folder / name, source)
        config = {**self.config, "base_model_name_or_path": base.name, "revision": base.revision}
        write_json(folder / "adapter_config.json", config)
        tokenizer = folder / "tokenizer_config.json"
        if tokenizer.exists():
            kept = {key: value for key, value in _read_object(tokenizer).items() if key not in _LOADING}
            write_json(tokenizer, kept)
        for path in sorted(folder.glob("*_config.json")):
            for field, value in _texts(read_json(path)):
                if _ABSOLUTE.match(value):
                    raise InputError.at(self.folder / path.name, "is a path on the machine that trained", field=field)
        check_weights(folder / "adapter_model.safetensors", config, self.folder / "adapter_model.safetensors")
        published = {*WRITTEN, *(path.name for path in folder.iterdir())}
        return sorted(path.name + "/" * path.is_dir() for path in self.folder.iterdir() if path.name not in published)


def is_hub_name(name: str) -> bool:
    """Whether ``name`` has the form ORG/NAME."""
    return _HUB_NAME.fullmatch(name) is not None and ".." not in name and "--" not in name


def check_weights(path: Path, config: dict[str, Any], name: Path) -> None:
    """Refuse an adapter that is cut off, holds NaN or infinity, lacks half of a pair, or changes nothing.

    Reads the file's bytes: the weights may be bfloat16, which numpy does not know. Raises InputError that calls the
    file ``name``.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):  # compares the header with the size of the file
            pass
    except SafetensorError as error:
        raise InputError(f"{name}: is cut off, or is no safetensors file ({error})") from error
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    find = secret_finder()
    for field, text in pieces(header.pop("__metadata__", None) or {}, "__metadata__"):
        kind = find(text)
        if kind:
            raise InputError.at(name, f"holds what looks like {kind}; nothing was sent", field=field)
    if not header:
        raise InputError(f"{name}: holds no weights")

    halves: dict[str, set[str]] = {"lora_A": set(), "lora_B": set()}
    changes = False
    for tensor, entry in header.items():
        module, half, _ = tensor.rpartition(".lora_A.") if ".lora_A." in tensor else tensor.rpartition(".lora_B.")
        if half:
            halves[half.strip(".")].add(module)
        magnitudes, infinity = _bits(path, 8 + length, tensor, entry, name)
        if magnitudes.size and int(magnitudes.max()) >= infinity:
            raise InputError(f"{name}: {tensor} holds NaN or infinity")
        changes = changes or ("lora_B" in tensor and bool(magnitudes.any()))
        rank = entry["shape"][0 if half == ".lora_A." else -1] if half and entry["shape"] else None
        if rank not in (None, config.get("r")) and not config.get("rank_pattern"):
            raise InputError(f"{name}: {tensor} has rank {rank}, adapter_config.json says {config.get('r')}")
    single = sorted(halves["lora_A"] ^ halves["lora_B"])
    if single:
        raise InputError(f"{name}: {single[0]} has only one of lora_A and lora_B")
    if not halves["lora_B"]:
        raise InputError(f"{name}: holds no LoRA weights")
    if not changes:
        raise InputError(f"{name}: every lora_B is zero, the adapter changes nothing")


def _bits(path: Path, start: int, tensor: str, entry: dict[str, Any], name: Path) -> tuple[Any, int]:
    """A tensor's values as unsigned integers without their signs (so -0.0 is 0), and the integer that is infinity."""
    import numpy as np

    kinds: dict[str, tuple[Any, int]] = {
        "F32": (np.uint32, 0x7F80_0000),
        "F16": (np.uint16, 0x7C00),
        "BF16": (np.uint16, 0x7F80),
    }
    if entry["dtype"] not in kinds:
        raise InputError(f"{name}: {tensor} is {entry['dtype']}, not one of {', '.join(kinds)}")
    kind, infinity = kinds[entry["dtype"]]
    begin, end = entry["data_offsets"]
    words = np.fromfile(path, dtype=kind, count=(end - begin) // np.dtype(kind).itemsize, offset=start + begin)
    return words & (np.iinfo(kind).max >> 1), infinity


def _texts(content: Any, field: str = "") -> list[tuple[str, str]]:
    """(dotted field, value) for every text in JSON."""
    if isinstance(content, dict):
        return [found for key, value in content.items() for found in _texts(value, f"{field}.{key}".lstrip("."))]
    if isinstance(content, list):
        return [found for value in content for found in _texts(value, field)]
    return [(field, content)] if isinstance(content, str) else []


def _refuse_absent(path: Path) -> None:
    if path.is_symlink():
        raise InputError(f"{path}: is a symbolic link, which is not followed")
    if not path.is_file():
        raise InputError(f"{path}: no such file; train/sft.py leaves it behind when it is done")


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a JSON object")
    return content
