"""Checkpoints that can be trusted: whole or not there, and resumed only by the run that wrote them.

A checkpoint is written under another name and renamed when every byte is on disk, so a folder ``checkpoint-N`` is whole
whenever the run was killed. Its ``run.json`` holds the digest of every file and the recipe, which resuming compares.
"""

from __future__ import annotations

import os
import re
import shutil
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import PickleError
from typing import Any

from cprt.errors import InputError
from cprt.models.checkpoint import first_line
from cprt.provenance import file_digest
from cprt.records import inside, read_object, write_json
from cprt.values import fits

CHECKPOINT = re.compile(r"checkpoint-(\d+)")  # its folder, by the step
UNFINISHED = ".unfinished"  # folder in output_dir where a checkpoint is written
# Of the libraries: a pickle that can hold a token and that resuming ignores, and a card that says nothing.
LEFT_OUT = ("training_args.bin", "README.md")


def seal(written: Path, record: Mapping[str, Any]) -> None:
    """Make a written checkpoint final: record what made it, wait for the disk, give it its name beside ``UNFINISHED``.

    Raises OSError when the disk is full; the checkpoints that are there stay as they are.
    """
    for name in LEFT_OUT:
        (written / name).unlink(missing_ok=True)
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


def checkpoints(output: Path) -> list[Path]:
    """The checkpoints in a run's folder, first step first."""
    found = [(int(named[1]), path) for path in output.glob("*") if (named := CHECKPOINT.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def newest(output: Path) -> Path:
    """The last checkpoint in a run's folder. Raises InputError when there is none."""
    if not (found := checkpoints(output)):
        raise InputError(f"resume_from_checkpoint: {output} holds no checkpoint; leave it out to start from nothing")
    return found[-1]


def check_resume(checkpoint: Path, recipe: Mapping[str, Any]) -> None:
    """Refuse to resume from what is not whole, or belongs to another recipe. Raises InputError that says what differs.

    Args:
        recipe: all that decides what is learnt, name -> JSON value.
    """
    if not (checkpoint / "run.json").is_file():
        raise InputError(f"resume_from_checkpoint {checkpoint}: is not a checkpoint of this script (no run.json)")
    where = f"resume_from_checkpoint {checkpoint}"
    record = read_object(checkpoint / "run.json")
    files, was = inside(record, "files"), inside(record, "recipe")
    for name, digest in files.items():
        path = checkpoint / name
        if not path.resolve().is_relative_to(checkpoint.resolve()) or not path.is_file() or file_digest(path) != digest:
            raise InputError(f"{where}: {name} is missing or damaged; take an earlier one")
    if not any("optim" in name for name in files):
        raise InputError(f"{where}: holds no optimiser (save_only_model), so the run cannot go on as it was")
    if not any("rng_state" in name for name in files) or "trainer_state.json" not in files:
        raise InputError(f"{where}: holds no state of the run, so it cannot go on as it was")
    _check_state(checkpoint / "trainer_state.json")
    changes = [
        f"{name} was {_short(was.get(name))} and is {_short(recipe.get(name))}"
        for name in {**was, **recipe}
        if was.get(name) != recipe.get(name)
    ]
    if changes:
        raise InputError(
            f"{where}: belongs to another run ({'; '.join(changes)}); undo the change, or start anew with another "
            "output_dir"
        )


@contextmanager
def checkpoint_faults(checkpoint: str) -> Iterator[None]:
    """One line for whatever a checkpoint provokes in the libraries that load it. None of them runs a pickle's code."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, EOFError, LookupError, OSError, PickleError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"resume_from_checkpoint {checkpoint}: cannot be loaded ({first_line(error)}); take an earlier one"
        ) from error


def _check_state(path: Path) -> None:
    """Raises InputError unless every field has its type and the run is somewhere on its way."""
    from transformers import TrainerState

    state, kinds = read_object(path), typing.get_type_hints(TrainerState)
    kinds |= dict.fromkeys(("logging_steps", "eval_steps", "save_steps"), float | None)  # whatever the class says
    kinds["stateful_callbacks"] = dict
    for name, value in state.items():
        if name not in kinds or not fits(value, kinds[name]):
            raise InputError.at(path, "is not as a run writes it", field=name)
    step, steps = state.get("global_step"), state.get("max_steps")
    if step is None or steps is None or not 0 < step <= steps:
        raise InputError.at(path, f"{step} is no step of a run of {steps}", field="global_step")


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
