"""Weights & Biases runs that say nothing of the machine or the user. wandb is imported when a run is started.

Without configuration a run is offline: a file in the given folder, which ``wandb sync`` can send later. It goes to a
server only where ``WANDB_MODE`` or ``WANDB_API_KEY`` says so. ``WANDB_PROJECT``, ``WANDB_NAME`` and ``WANDB_DIR`` are
honoured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cprt.errors import InputError

if TYPE_CHECKING:
    import wandb

MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")  # the last two are older names of the first two
PROJECT = "cprt"


def start_run(
    project: str | None, name: str, config: Mapping[str, Any], directory: str | Path, resume: str | None = None
) -> wandb.Run:
    """A started run, which is also ``wandb.run``: a Trainer that reports to wandb takes it over. ``finish()`` ends it.

    Left out of what it stores: host name, user name, program and its path, working directory, git remote and commit,
    code, installed packages, console output, hardware and system metrics. Reports of wandb's own faults are off.

    Args:
        project, name, directory: where ``WANDB_PROJECT``, ``WANDB_NAME`` and ``WANDB_DIR`` name no other.
        config: what made the run, JSON-ready. Whoever calls keeps tokens out of it.
        resume: id of the run that goes on. Offline it has a file for each start, all under this id.

    Raises InputError when ``WANDB_MODE`` is none of ``MODES`` or the server takes no run.
    """
    mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
    if mode not in MODES:
        raise InputError(f"WANDB_MODE={mode!r} is not one of {', '.join(MODES)}")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb starts its process

    import wandb

    root = Path(os.environ.get("WANDB_DIR") or directory)
    root.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        mode=mode,  # type: ignore[arg-type]
        root_dir=str(root),
        host="",  # left at None, it is filled in with the machine's name
        program="",
        username="",
        email="",
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=0.1,  # seconds: what a run that is killed may lose; 15 by default
    )
    try:
        return wandb.init(
            project=project or os.environ.get("WANDB_PROJECT") or PROJECT,
            name=os.environ.get("WANDB_NAME") or name,
            config=dict(config),
            settings=settings,
            id=resume,
            resume="allow" if resume else None,
        )
    except (wandb.Error, RuntimeError) as error:  # no server, no permission, no home folder
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"Weights & Biases: {reason} (WANDB_MODE=offline keeps the run on this machine)") from error


def log_table(run: wandb.Run, key: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Log a table as a file of the run, at the run's current step.

    ``run.log`` would also make an artifact, whose record holds the path of a copy in the user's home folder.
    """
    import wandb

    table = wandb.Table(columns=list(columns), data=[list(row) for row in rows], allow_mixed_types=True)
    table.bind_to_run(run, key, run.step)
    run.log({key: table})


def finish(run: wandb.Run) -> str:
    """End a run; returns a line that says where it is."""
    place = f"offline: {Path(run.dir).parent} (wandb sync sends it)" if run.offline else run.url or "disabled"
    run.finish()
    return f"W&B: {place}"
