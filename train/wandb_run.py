"""A training run in Weights & Biases: its recipe and its series, nothing of machine, paths or photos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from cprt.records import read_object
from cprt.services.tracking import start_run

_RECORDED = ("recipe", "base_model", "base_revision", "cprt", "git", "python", "packages")


class WandbRun(TrainerCallback):
    """Takes the place of the library's own callback, which stores paths and the machine's name.

    The run's id goes into ``record``, and so into every checkpoint: training that resumes from one goes on in its run.
    """

    def __init__(self, record: dict[str, Any], output: Path, checkpoint: str | None):
        before = read_object(Path(checkpoint) / "run.json").get("wandb") if checkpoint else None
        self.run = start_run(None, output.name, {name: record[name] for name in _RECORDED}, output, resume=before)
        record["wandb"] = self.run.id

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            series = {
                ("" if name.startswith("eval_") else "train/") + name.replace("eval_", "holdout/", 1): value
                for name, value in (logs or {}).items()
                if isinstance(value, (int, float))
            }
            # A checkpoint keeps its log, so that rows are numbered on where the run resumes.
            self.run.log({**series, "step": state.global_step}, step=len(state.log_history), commit=True)
