"""A training run in Weights & Biases: its recipe and its series, nothing of machine, paths or photos."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from cprt.services.tracking import start_run

_RECORDED = ("recipe", "base_model", "base_revision", "cprt", "git", "python", "packages")


class WandbRun(TrainerCallback):
    """Takes the place of the library's own callback, which stores paths and the machine's name."""

    def __init__(self, record: Mapping[str, Any], output: Path):
        self.run = start_run("cprt", output.name, {name: record[name] for name in _RECORDED}, output)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            series = {
                ("" if name.startswith("eval_") else "train/") + name.replace("eval_", "holdout/", 1): value
                for name, value in (logs or {}).items()
                if isinstance(value, (int, float))
            }
            self.run.log({**series, "step": state.global_step})

    def finish(self, step: int) -> None:
        """Ends the run; its summary says of which step the adapter is."""
        self.run.summary["adapter_step"] = step
        self.run.finish()
