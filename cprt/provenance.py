"""What made a result: written as ``run.json`` beside every output, with nothing of the machine or the user in it."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cprt import __version__
from cprt.records import write_json

_PACKAGES = (
    "accelerate bitsandbytes datasets httpx2 numpy peft pillow tokenizers torch torchvision transformers trl"
).split()
_MODEL_FILES = ("*.safetensors", "*.json", "*.jinja")


def run_path(output: str | Path) -> Path:
    """Where the record of ``output`` lies: ``DIR/run.json`` for a folder, ``NAME.run.json`` beside a single file."""
    output = Path(output)
    return output / "run.json" if output.is_dir() else output.with_name(f"{output.stem}.run.json")


def write_run(output: str | Path, config: Any, inputs: Mapping[str, str | Path] | None = None, **facts: Any) -> None:
    """Write the record of what made ``output`` beside it; arguments as of ``run_record``."""
    write_json(run_path(output), run_record(config, inputs, **facts))


def run_record(config: Any, inputs: Mapping[str, str | Path] | None = None, **facts: Any) -> dict[str, Any]:
    """What makes a result, ready for JSON.

    Args:
        config: the resolved options, a dataclass or a mapping.
        inputs: name -> file that was read; its SHA-256 is recorded.
        facts: whatever else a reader needs (seed, base model, prompt digest, counts), JSON-ready.
    """
    resolved = dict(config) if isinstance(config, Mapping) else dataclasses.asdict(config)
    return {
        "command": _command(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": resolved,
        "inputs": {name: {"path": str(path), "sha256": file_digest(path)} for name, path in (inputs or {}).items()},
        "cprt": __version__,
        "git": _git_commit(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": {name: _version(name) for name in _PACKAGES},
        **facts,
    }


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(folder: str | Path) -> str:
    """SHA-256 over the weights, configuration and templates in a model or adapter folder.

    ``run.json`` is left out: it says when a model was made, not what it is.
    """
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _MODEL_FILES for path in Path(folder).glob(pattern)}):
        if path.name not in ("run.json", "trainer_state.json"):
            digest.update(f"{path.name} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def _command() -> list[str]:
    """The command line, without where it is installed and without the value of anything called a token, key or url."""
    words = [Path(sys.argv[0]).name]
    hide_next = False
    for word in sys.argv[1:]:
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
