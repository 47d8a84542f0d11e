"""Checkpoints that can be trusted: whole or not there, and resumed only by the run that wrote them.

A checkpoint is written under another name and renamed when every byte is on disk, so a folder ``checkpoint-N`` is whole
whenever the run was killed. Its ``run.json`` holds the digest of every file and the recipe, which resuming compares.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.provenance import file_digest
from cprt.records import read_json, write_json

UNFINISHED = ".unfinished"  # folder in output_dir where a checkpoint is written
PICKLE = "training_args.bin"  # can hold a token, and resuming ignores it


def claim(output: Path) -> int:
    """Keep other runs out of the output folder for as long as this process lives; returns the lock's descriptor.

    Raises InputError when another run writes there.
    """
    output.mkdir(parents=True, exist_ok=True)
    folder = os.open(output, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(folder)
        raise InputError.at(output, "another run is writing here; wait for it or choose another output_dir") from error
    return folder


def seal(written: Path, record: Mapping[str, Any]) -> None:
    """Make a written checkpoint final: record what made it, wait for the disk, give it its name beside ``UNFINISHED``.

    Raises OSError when the disk is full; the checkpoints that are there stay as they are.
    """
    (written / PICKLE).unlink(missing_ok=True)
    files = sorted(path for path in written.rglob("*") if path.is_file() and path.name != "run.json")
    digests = {path.relative_to(written).as_posix(): file_digest(path) for path in files}
    write_json(written / "run.json", {**record, "files": digests})
    for path in written.rglob("*"):
        _sync(path)
    _sync(written)
    final = written.parent.parent / written.name
    if final.exists():  # a resumed run passes the steps of the killed one again
        final.rename(written.parent / f"replaced-{written.name}")
    written.rename(final)
    _sync(final.parent)
    shutil.rmtree(written.parent)


def newest(output: Path) -> Path:
    """The last checkpoint in a run's folder. Raises InputError when there is none."""
    found = [path for path in output.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    if not found:
        raise InputError(f"resume_from_checkpoint: {output} holds no checkpoint; leave it out to start from nothing")
    return max(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def check_resume(checkpoint: Path, recipe: Mapping[str, Any]) -> None:
    """Refuse to resume from what is not whole, or belongs to another recipe. Raises InputError that says what differs.

    Args:
        recipe: all that decides what is learnt, name -> JSON value.
    """
    if not (checkpoint / "run.json").is_file():
        raise InputError(f"resume_from_checkpoint {checkpoint}: is not a checkpoint of this script (no run.json)")
    record = read_json(checkpoint / "run.json")
    for name, digest in record.get("files", {}).items():
        if not (checkpoint / name).is_file() or file_digest(checkpoint / name) != digest:
            raise InputError(f"resume_from_checkpoint {checkpoint}: {name} is missing or damaged; take an earlier one")
    if not any("optim" in name for name in record.get("files", {})):
        raise InputError(
            f"resume_from_checkpoint {checkpoint}: holds no optimiser (save_only_model), so the "
            "run cannot go on as it was"
        )
    was = record.get("recipe", {})
    changes = [
        f"{name} was {_short(was.get(name))} and is {_short(recipe.get(name))}"
        for name in {**was, **recipe}
        if was.get(name) != recipe.get(name)
    ]
    if changes:
        raise InputError(
            f"resume_from_checkpoint {checkpoint}: belongs to another run ({'; '.join(changes)}); "
            "undo the change, or start anew with another output_dir"
        )


def _short(value: Any) -> str:
    """A value in a message; of a digest its first digits."""
    text = str(value)
    return text[:12] if re.fullmatch(r"[0-9a-f]{64}", text) else text


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
