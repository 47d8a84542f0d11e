"""The trainer of ``train/sft.py``: TRL's with the shared prefix, and with checkpoints that are whole or not there."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import TrainOutput, rotate_checkpoints

from cprt.errors import InputError
from train.checkpoints import UNFINISHED, seal
from train.shared_prefix import SharedPrefixTrainer


class JudgeTrainer(SharedPrefixTrainer):
    """Args: ``record``: what made a checkpoint, kept in it as ``run.json``; its ``recipe`` is compared on resuming."""

    def __init__(self, *args: Any, record: Mapping[str, Any], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.record = record

    def train(self, resume_from_checkpoint: str | None = None, **kwargs: Any) -> TrainOutput:
        """As the library's, except that a run killed after its last checkpoint only has its adapter loaded.

        The library would train on for a step beyond the last one.
        """
        if resume_from_checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE_NAME))
            if state.global_step >= state.max_steps:
                best = self.args.load_best_model_at_end and state.best_model_checkpoint
                self._load_from_checkpoint(best or resume_from_checkpoint)
                self.state = state
                return TrainOutput(state.global_step, math.nan, {})
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        args, output = self.args, Path(self.args.output_dir)
        unfinished, limit = output / UNFINISHED, args.save_total_limit
        if args.should_save:
            shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
        self.accelerator.wait_for_everyone()
        try:
            args.output_dir, args.save_total_limit = str(unfinished), None
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # every process has written its part
            if args.should_save:
                written = unfinished / f"checkpoint-{self.state.global_step}"
                self._name_best(output)
                self.state.save_to_json(str(written / TRAINER_STATE_NAME))
                seal(written, {**self.record, "step": self.state.global_step})
        except (OSError, RuntimeError, SafetensorError) as error:  # a full disk shows itself as any of these
            raise InputError(f"{output}: checkpoint {self.state.global_step} cannot be written "
                             f"({str(error).splitlines()[0]}); earlier ones are whole") from error  # fmt: skip
        finally:
            args.output_dir, args.save_total_limit = str(output), limit
        if args.should_save:
            rotate_checkpoints(str(output), limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()

    def _name_best(self, output: Path) -> None:
        """The best checkpoint under the name that it has once it is sealed."""
        if self.state.best_global_step:
            best = output / f"checkpoint-{self.state.best_global_step}"
            if best.is_dir() or self.state.best_global_step == self.state.global_step:
                self.state.best_model_checkpoint = str(best)
