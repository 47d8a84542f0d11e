"""The files of a trained adapter that may be published, copied one by one. No other file is ever read.

An output folder of ``train/sft.py`` also holds optimiser states, pickles and logs: none of them is on the list, and a
symbolic link is not followed, whatever its name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import LOCK
from cprt.models.adapter import CONFIG, WEIGHTS, base_commit, check_adapter, read_config, saved_tensors
from cprt.records import read_object, write_json
from train.checkpoints import CHECKPOINT, checkpoints

REQUIRED = (CONFIG, WEIGHTS, "processor_config.json", "tokenizer.json", "chat_template.jinja")
OPTIONAL = tuple(
    "tokenizer_config.json preprocessor_config.json video_preprocessor_config.json special_tokens_map.json "
    "added_tokens.json vocab.json merges.txt".split()
)
PROCESSOR = (*REQUIRED[2:], *OPTIONAL)
WRITTEN = ("README.md", "run.json")  # ours, made for the published copy
PUBLISHED = {*REQUIRED, *OPTIONAL, *WRITTEN}

HUB_NAME = (r"(?!.*(?:\.\.|--))[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", "ORG/NAME")  # a rule of an option
_ABSOLUTE = re.compile(r"(?:~|[A-Za-z]:)?[\\/][\w. -]+[\\/]|\\\\|file:")
# What notes where a tokenizer was loaded from, and what would have a reader run a checkpoint's own code.
_LEFT_OUT = {"is_local", "local_files_only", "name_or_path", "_name_or_path"}
_LEFT_OUT |= {"auto_map", "custom_pipelines", "trust_remote_code", "code_revision"}


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
    record_path: Path
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
        found = CHECKPOINT.fullmatch(folder.resolve().name)
        record = folder.resolve().parent / "run.json" if found else folder / "run.json"
        _refuse_absent(record)
        processor, step = read_object(folder / "processor_config.json"), int(found[1]) if found else None
        return Source(folder, record, read_config(folder), processor, read_object(record), step)

    def checkpoints(self) -> list[Path]:
        """The run's checkpoint folders, first step first."""
        return [path for path in checkpoints(self.folder) if path.is_dir() and not path.is_symlink()]

    def base(self, name: str | None, revision: str | None) -> Base:
        """The base model, as ``name`` has it or else the adapter's configuration. Raises InputError for a folder."""
        file = self.folder / "adapter_config.json"
        trained_as = self.config.get("base_model_name_or_path")
        if not isinstance(trained_as, str) or not trained_as:
            raise InputError.at(file, "is missing", field="base_model_name_or_path")
        digest = self.record.get("base_digest")
        was_folder = isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest) is not None
        if name is None and (was_folder or not re.fullmatch(HUB_NAME[0], trained_as) or Path(trained_as).exists()):
            said = f"{trained_as!r} is a folder on the machine that trained; give its name on the Hub as --base_model"
            raise InputError.at(file, f"{said} ORG/NAME", field="base_model_name_or_path")
        base = name or trained_as
        commit = base_commit(self.record, base, revision)
        family = f"{base} {trained_as} {self.processor.get('processor_class')}".lower()
        return Base(base, commit, trained_as, digest, "llama" in family)

    @property
    def family(self) -> str:
        """The base's family as its configuration's ``model_type`` names it, from the name of its processor's class."""
        return {"Qwen3VL": "qwen3_vl", "Mllama": "mllama"}.get(
            str(self.processor.get("processor_class")).removesuffix("Processor"), ""
        )

    def stage(self, folder: Path, base: Base) -> list[str]:
        """Copy what may be published into ``folder``, naming ``base`` in the configuration, and check the weights.

        Returns the names of what is not published in any form. Raises InputError, which names the file that was copied.
        """
        folder.mkdir(parents=True)
        for name in (*REQUIRED, *OPTIONAL):
            source = self.folder / name
            if source.is_file() and not source.is_symlink():
                shutil.copyfile(source, folder / name)
        for path in sorted(folder.glob("*_config.json")):
            content = read_object(self.folder / path.name)
            kept = _without_loading(content)
            if path.name == "adapter_config.json":
                # PEFT's auto_mapping names a module to import.
                kept |= {"base_model_name_or_path": base.name, "revision": base.revision, "auto_mapping": None}
            if kept != content:
                write_json(path, kept)
            for field, value in _texts(kept):
                if _ABSOLUTE.match(value):
                    raise InputError.at(self.folder / path.name, "is a path on the machine that trained", field=field)
        check_adapter(self.folder, saved_tensors(self.record))
        published = {*WRITTEN, LOCK, *(path.name for path in folder.iterdir())}
        return sorted(path.name + "/" * path.is_dir() for path in self.folder.iterdir() if path.name not in published)


def _without_loading(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_loading(value) for key, value in content.items() if key not in _LEFT_OUT}
    return [_without_loading(value) for value in content] if isinstance(content, list) else content


def _texts(content: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """(dotted field, text) for every text and key in JSON."""
    if isinstance(content, str):
        yield field, content
    for key, value in content.items() if isinstance(content, dict) else ():
        below = f"{field}.{key}".lstrip(".")
        yield below, key
        yield from _texts(value, below)
    for value in content if isinstance(content, list) else ():
        yield from _texts(value, field)


def _refuse_absent(path: Path) -> None:
    if path.is_symlink():
        raise InputError(f"{path}: is a symbolic link, which is not followed")
    if not path.is_file():
        raise InputError(f"{path}: no such file; train/sft.py leaves it behind when it is done")
