"""What made a result: written as ``run.json`` beside every output, with nothing of the machine in it.

Paths are in it as the user gave them; ``cprt publish`` makes file names of them. The record also says whose an output
is: a stage replaces what it made itself, and nothing else (``check_output``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cprt import __version__
from cprt.errors import InputError
from cprt.files import kind_of
from cprt.records import read_object, write_json

_PACKAGES = (
    "accelerate bitsandbytes datasets httpx2 numpy peft pillow tokenizers torch torchvision transformers trl"
).split()
_MODEL_FILES = ("*.safetensors", "*.json", "*.jinja")


def run_path(output: str | Path) -> Path:
    """Where the record of ``output`` lies: ``DIR/run.json`` for a folder, ``NAME.run.json`` beside a single file.

    That of a page is ``NAME.html.run.json``: the file that it shows may lie beside it.
    """
    output = Path(output)
    if output.is_dir():
        return output / "run.json"
    return output.with_name(f"{output.name if output.suffix == '.html' else output.stem}.run.json")


def write_run(
    stage: str, output: str | Path, config: Any, inputs: Mapping[str, str | Path | None] | None = None, **facts: Any
) -> None:
    """Write the record of what made ``output`` beside it; arguments as of ``run_record``."""
    write_json(run_path(output), run_record(stage, config, inputs, **facts))


def run_record(
    stage: str, config: Any, inputs: Mapping[str, str | Path | None] | None = None, **facts: Any
) -> dict[str, Any]:
    """What makes a result, ready for JSON.

    Args:
        stage: what makes it, such as ``cprt eval``; the record's ``command`` begins with it.
        config: the resolved options; inputs: name -> file that was read, or None; its SHA-256 is recorded.
        facts: whatever else a reader needs (seed, base model, prompt digest, counts), JSON-ready.
    """
    resolved = _without_addresses(config if isinstance(config, Mapping) else dataclasses.asdict(config))
    read = {name: path for name, path in (inputs or {}).items() if path is not None}
    return {
        "command": [*stage.split(), *_arguments(stage)],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": resolved,
        "inputs": {name: {"path": str(path), "sha256": file_digest(path)} for name, path in read.items()},
        "cprt": __version__,
        "git": _git_commit(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": {name: _version(name) for name in _PACKAGES},
        **facts,
    }


def _without_addresses(options: Any) -> Any:
    """Options without where endpoints are, which may name somebody's machine."""
    if isinstance(options, Mapping):
        said = {name: _without_addresses(value) for name, value in options.items()}
        return said | {"base_url": "endpoint"} if said.get("base_url") else said
    return [_without_addresses(value) for value in options] if isinstance(options, list) else options


def check_output(
    stage: str, out: str | Path, writes: Sequence[str] | None, inputs: Mapping[str, Any] | None = None
) -> None:
    """Raises InputError where ``stage`` would replace a file that it reads, or one that it has not made itself.

    Args:
        out: what the stage writes.
        writes: if that is a folder, what it writes there, as patterns; None: ``out`` is a single file.
        inputs: option -> its value, which may be a file that the stage reads, or several.
    """
    if out == "":
        raise InputError("out: is empty")
    out = Path(out)
    if out.exists() and (kind := kind_of(out)) != ("a file" if writes is None else "a folder"):
        raise InputError(f"out: {out} is {kind}, not {'a file' if writes is None else 'a folder'}")
    record = run_path(out) if writes is None else out / "run.json"
    taken = [out] if writes is None else sorted(path for pattern in writes for path in out.glob(pattern))
    taken = [path for path in taken if path.exists()]
    other = "choose another file" if writes is None else "choose another folder"
    for name, value in (inputs or {}).items():
        for path in value if isinstance(value, list) else [value]:
            for lost in filter(os.path.isfile, [*taken, record]):
                if isinstance(path, str) and os.path.isfile(path) and os.path.samefile(path, lost):
                    raise InputError(f"out: {lost} is what {name} is read from; {other}")
    if os.path.exists(record):
        if (maker := made_by(record)) != stage:
            raise InputError(f"out: {record} says that {maker} made what is there, not {stage}; {other}")
    elif taken:
        raise InputError(f"out: {taken[0]} is there, and no {record.name} says that {stage} made it; {other}")


def made_by(record: str | Path) -> str:
    """The stage that a run record names, such as ``cprt eval``. Raises InputError for what is no run record."""
    command = read_object(record).get("command")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command) or not command:
        raise InputError.at(record, "is not a run record", field="command")
    return " ".join(command[: 2 if command[0] == "cprt" else 1])


def sign(stage: str, record: str | Path, keep: bool = False) -> None:
    """Write an unfinished run record before anything it stands beside.

    A run that was killed finds its own work again, and nobody takes what it left, partly new and partly of an earlier
    run, for a result (``read_record``). ``keep``: nothing of an earlier run is replaced yet, whose record stays.
    """
    if not (keep and Path(record).exists()):
        write_json(record, {**run_record(stage, {}), "unfinished": True})


def read_record(record: str | Path) -> dict[str, Any]:
    """The run record of a finished run. Raises InputError."""
    content = read_object(record)
    if content.get("unfinished"):
        why = f"{made_by(record)} was stopped while it wrote what is here; run it again"
        raise InputError.at(record, why, field="unfinished")
    return content


def clear(folder: str | Path, patterns: Iterable[str]) -> None:
    """Remove files that an earlier run of a stage left, which is to write others: what ``check_output`` lets it."""
    for path in [path for pattern in patterns for path in Path(folder).glob(pattern)]:
        path.unlink()


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_once(path: Path) -> str:
    """``file_digest``, computed once for a file of the same size and time: weights and photos are asked for often."""
    state = path.stat()
    return _digest(path, state.st_size, state.st_mtime_ns)


@cache
def _digest(path: Path, size: int, modified: int) -> str:
    return file_digest(path)


def model_digest(folder: str | Path) -> str:
    """SHA-256 over the weights, configuration and templates in a model or adapter folder.

    ``run.json`` is left out: it says when a model was made, not what it is.
    """
    found = {path for pattern in _MODEL_FILES for path in Path(folder).glob(pattern)}
    files = sorted(path for path in found if path.name not in ("run.json", "trainer_state.json"))
    return hashlib.sha256("".join(f"{path.name} {digest_once(path)}\n" for path in files).encode()).hexdigest()


def _arguments(stage: str) -> list[str]:
    """The command line without the value of anything called a token, key or url."""
    given = sys.argv[2:] if sys.argv[1:2] == stage.split()[1:] else sys.argv[1:]
    words: list[str] = []
    hide_next = False
    for word in given:
        name, _, value = word.partition("=")
        secret = name.startswith("--") and name.endswith(("token", "key", "url"))
        words.append("***" if hide_next else f"{name}=***" if secret and value else word)
        hide_next = secret and not value
    return words


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the code that runs, marked ``-dirty`` when files differ from it; null outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
