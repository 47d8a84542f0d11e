"""Tune a vision-language model as a privacy judge: TRL's SFT with LoRA on the language model.

    accelerate launch train/sft.py --config configs/sft/demo.yaml [--learning_rate 1e-3 ...]

Options are those below and all of TRL's ModelConfig and SFTConfig.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from peft import LoraConfig
from peft.utils.error import NoMatchingPeftModuleError
from trl import ModelConfig, SFTConfig, get_peft_config

from cprt.config import parse, run
from cprt.errors import InputError
from cprt.images import image_root
from cprt.local import identity, load_model, load_processor
from cprt.prompts import digest
from cprt.provenance import write_run
from cprt.records import read_pairs
from train.checks import NoPickles, StopOnBadLoss, check_saved, preview_labels, trainable_table
from train.options import LANGUAGE_MODEL_PROJECTIONS, DataArguments, settle
from train.pair_dataset import pair_collator, pair_dataset
from train.shared_prefix import SharedPrefixTrainer


def main() -> None:
    data, model_args, args = parse((DataArguments, ModelConfig, SFTConfig), prog="train/sft.py", description=__doc__)
    settle(data, model_args, args)
    train_file = Path(data.pairs) / "train.jsonl"
    pairs, root = read_pairs(train_file), image_root(data.images)

    processor = load_processor(model_args.model_name_or_path, model_args.model_revision, data.max_pixels)
    model = load_model(
        model_args.model_name_or_path,
        model_args.model_revision,
        dtype=model_args.dtype,
        attn_implementation=model_args.attn_implementation,
    )
    # Qwen3-VL says it takes no loss arguments. Left so, the loss is a mean of micro-batch means, and four batches of
    # one train another model than one batch of four.
    model.accepts_loss_kwargs = True
    model_type = model.config.model_type
    try:
        trainer = SharedPrefixTrainer(
            model,
            args,
            train_dataset=pair_dataset(pairs, root, model_type),
            processing_class=processor,
            data_collator=pair_collator(processor, model_type),
            peft_config=lora_config(model_args),
            callbacks=[StopOnBadLoss(), NoPickles()],
            share=data.shared_prefix,
        )
    except NoMatchingPeftModuleError as error:
        raise InputError(
            f"lora_target_modules: {model_args.lora_target_modules!r} fits no module (one entry is a regular "
            "expression for whole names, several are endings of names)"
        ) from error
    if trainer.is_world_process_zero():
        print("trained:", trainable_table(trainer.model), sep="\n")
        print("the loss is taken on:", *(f"  {text!r}" for text in preview_labels(trainer)), sep="\n")
        print(f"{len(pairs)} pairs, {data.global_batch_size} a step ({args.gradient_accumulation_steps} x "
              f"{args.per_device_train_batch_size} on each of {args.world_size} processes)")  # fmt: skip
        print("shared prefix:", f"no, {trainer.plain_reason}" if trainer.plain_reason else "yes")
        if data.overwrite and args.resume_from_checkpoint is None:
            for old in Path(args.output_dir).glob("checkpoint-*"):
                shutil.rmtree(old)

    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()
    if trainer.is_world_process_zero():
        (Path(args.output_dir) / "training_args.bin").unlink(missing_ok=True)  # a pickle; run.json says it all
        tensors = check_saved(trainer.model, args.output_dir)
        write_run(
            args.output_dir,
            {"data": vars(data), "model": vars(model_args), "trainer": args.to_dict()},
            {"pairs": train_file},
            seed=args.seed,
            base_model=model_args.model_name_or_path,
            base_digest=identity(model_args.model_name_or_path, getattr(model.config, "_commit_hash", None)),
            prompt_sha256=digest(pairs[0].prompt),
            result={"steps": trainer.state.global_step, **result.metrics},
        )
        print(f"{args.output_dir}: {tensors} adapter tensors saved and read back")


def lora_config(model_args: ModelConfig) -> LoraConfig:
    """TRL's LoRA configuration, on the language model's projections unless the options say otherwise."""
    config = get_peft_config(model_args)
    assert config is not None
    config.target_modules = config.target_modules or LANGUAGE_MODEL_PROJECTIONS
    return config


if __name__ == "__main__":
    run(main, "train/sft.py")
