"""The trainer of ``train/sft.py``: TRL's with the shared prefix, whole checkpoints, and figures from the hold-out."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch.utils.data import RandomSampler
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import TrainOutput, rotate_checkpoints

from cprt.errors import InputError
from cprt.images.patches import complete
from cprt.models.adapter import CONFIG
from cprt.models.checkpoint import first_line
from cprt.records import read_jsonl, write_jsonl
from train.checkpoints import UNFINISHED, checkpoint_faults, seal
from train.checks import adapter_tensors, compare_saved
from train.holdout import HoldOut
from train.learning import last_loss
from train.saving import readable_like
from train.shared_prefix import SharedPrefixTrainer


class JudgeTrainer(SharedPrefixTrainer):
    """TRL's trainer as ``train/sft.py`` needs it.

    Args:
        record: what made a checkpoint, kept in it as ``run.json``; its ``recipe`` is compared on resuming.
        holdout: what evaluation asks the model about; its figures go to the log as ``eval_*`` and, a row for each
            evaluation, to ``learning.jsonl``.
    """

    def __init__(self, *args: Any, record: Mapping[str, Any], holdout: HoldOut | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.record, self.holdout = record, holdout
        self.learning: list[dict[str, Any]] = []

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Random, and of whole steps: what is left over in an epoch is not drawn, other pairs each time.

        A step of fewer pairs would count each of them more, and several processes would fill it up with pairs that
        they have had already, so that two would train another adapter than one.
        """
        dataset = self.train_dataset if train_dataset is None else train_dataset
        return RandomSampler(dataset, num_samples=len(dataset) - len(dataset) % self._pairs_a_step())

    def get_train_dataloader(self) -> Any:
        """The library's, but the seeds of the processes that read ahead are drawn apart.

        Taken from torch's own generator, as many as there are epochs or none, they would change what dropout draws.
        """
        loader = super().get_train_dataloader()
        loader.base_dataloader.generator = torch.Generator()
        return loader

    def _prepare_inputs(self, inputs: Any) -> Any:
        """The library's, and photos that came as bytes in the numbers that the model takes."""
        inputs = super()._prepare_inputs(inputs)
        complete(inputs, self.processing_class.image_processor)
        return inputs

    def describe_steps(self) -> str:
        """One line: how many pairs there are, how many a step takes, and what is left over in an epoch."""
        args, pairs, taken = self.args, len(self.train_dataset), self._pairs_a_step()
        line = (
            f"{pairs} pairs, {taken} a step ({args.gradient_accumulation_steps} x {args.per_device_train_batch_size} "
            f"on each of {args.world_size} processes)"
        )
        return line + (f"; {pairs % taken} are left out in each epoch, others each time" if pairs % taken else "")

    def _pairs_a_step(self) -> int:
        args = self.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Figures of the hold-out; what is undefined is left out, and is null in ``learning.jsonl``."""
        assert self.holdout is not None
        processes = self.args.process_index, self.args.world_size
        figures = self.holdout.measure(self.model, self.processing_class, *processes)
        self.learning.append({"step": self.state.global_step, "loss": last_loss(self.state.log_history), **figures})
        if self.is_world_process_zero():
            write_jsonl(Path(self.args.output_dir) / "learning.jsonl", self.learning)
        defined = {f"eval_{name}": value for name, value in figures.items() if isinstance(value, (int, float))}
        self.log(defined)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, defined)
        return defined

    @property
    def shipped_step(self) -> int:
        """The step whose adapter is in memory after training: the best one where it was to be chosen, else the last."""
        best = self.args.load_best_model_at_end and self.state.best_global_step
        return best or self.state.global_step

    def learnt(self) -> dict[str, Any]:
        """The hold-out's figures of the model as it is after training."""
        step = self.shipped_step
        if not any(row["step"] == step for row in self.learning):
            self.evaluate()
            step = self.state.global_step
        return next(row for row in reversed(self.learning) if row["step"] == step)

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        name = self.args.metric_for_best_model
        # A figure that is undefined is no reason to prefer a checkpoint.
        return name is not None and f"eval_{name}" in metrics and super()._determine_best_metric(metrics, trial)

    def train(self, resume_from_checkpoint: str | None = None, **kwargs: Any) -> TrainOutput:
        """As the library's, except that a run killed after its last checkpoint only has its adapter loaded.

        The library would train on for a step beyond the last one.
        """
        if resume_from_checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE_NAME))
            learning = Path(self.args.output_dir) / "learning.jsonl"
            if learning.is_file():
                self.learning = [row for _, row in read_jsonl(learning) if row["step"] <= state.global_step]
            if state.global_step >= state.max_steps:
                if self.is_world_process_zero():
                    print(f"{resume_from_checkpoint}: all {state.max_steps} steps are done; only its adapter is loaded")
                best = self.args.load_best_model_at_end and state.best_model_checkpoint
                self._load_from_checkpoint(best or resume_from_checkpoint)
                self.state = state
                return TrainOutput(state.global_step, math.nan, {})
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """None of the library's at every checkpoint: ``train/sft.py`` leaves ours at the end."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """As the library's, but what does not fit is refused: the adapter in memory is that of the file."""
        with checkpoint_faults(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            if not self.is_deepspeed_enabled and not self.is_fsdp_enabled:  # which keep parts of it elsewhere
                compare_saved(adapter_tensors(self.model), resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with checkpoint_faults(str(checkpoint)):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with checkpoint_faults(str(checkpoint)):
            super()._load_rng_state(checkpoint)

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
                readable_like(written / CONFIG)
                self._name_best(output)
                self.state.save_to_json(str(written / TRAINER_STATE_NAME))
                seal(written, {**self.record, "step": self.state.global_step})
        except (OSError, RuntimeError, SafetensorError) as error:  # a full disk shows itself as any of these
            raise InputError(
                f"{output}: checkpoint {self.state.global_step} cannot be written "
                f"({first_line(error)}); earlier ones are whole"
            ) from error
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
