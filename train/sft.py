"""Tune a vision-language model as a privacy judge: TRL's SFT with LoRA on the language model.

    accelerate launch train/sft.py --config configs/sft/demo.yaml [--learning_rate 1e-3 ...]

Options are those below and all of TRL's ModelConfig and SFTConfig. After a kill, --resume_from_checkpoint last goes on
from the newest checkpoint in output_dir, with the same result as if nothing had happened.
"""

from __future__ import annotations

from pathlib import Path

from accelerate.utils import DistributedType
from peft.utils.error import NoMatchingPeftModuleError
from trl import ModelConfig, SFTConfig

from cprt.config import parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root
from cprt.models.checkpoint import identity, load_model, load_processor, revision_of
from cprt.provenance import run_record
from cprt.records import read_pairs, write_json
from train.adapter import lora_config, quantization, quantized_layers
from train.checkpoints import check_resume, claim
from train.checks import StopOnBadLoss, adapter_tensors, check_effect, check_saved, preview_labels, trainable_table
from train.holdout import HoldOut, check_learnt
from train.options import DataArguments, check_launch, clear_output, settle
from train.pair_dataset import pair_collator, pair_dataset
from train.recipe import recipe
from train.trainer import JudgeTrainer
from train.wandb_run import WandbRun


def main() -> None:
    data, model_args, args = parse((DataArguments, ModelConfig, SFTConfig), prog="train/sft.py", description=__doc__)
    settle(data, model_args, args)
    base, revision = model_args.model_name_or_path, model_args.model_revision
    train_file, root, output = Path(data.pairs) / "train.jsonl", image_root(data.images), Path(args.output_dir)
    if args.process_index == 0:
        claim(output)
    pairs = read_pairs(train_file)
    holdout = HoldOut.read(data, args, root) if args.eval_strategy != "no" else None
    processor = load_processor(base, revision, data.max_pixels)
    commit = revision_of(base, revision)
    made_by = recipe(data, model_args, args, base=identity(base, commit), train_file=train_file, pairs=pairs, root=root)
    if args.resume_from_checkpoint:
        check_resume(Path(args.resume_from_checkpoint), made_by)
    record = run_record(
        {"data": vars(data), "model": vars(model_args), "trainer": args.to_dict()},
        {"pairs": train_file},
        seed=args.seed,
        base_model=base,
        base_revision=commit,
        base_digest=made_by["base"],
        prompt_sha256=made_by["prompt"],
        recipe=made_by,
    )

    model = load_model(
        base,
        revision,
        dtype=model_args.dtype,
        attn_implementation=model_args.attn_implementation,
        quantization_config=quantization(model_args),
    )
    in_four_bits = quantized_layers(model) if model_args.load_in_4bit else 0
    # Qwen3-VL says it takes no loss arguments. Left so, the loss is a mean of micro-batch means, and four batches of
    # one train another model than one batch of four.
    model.accepts_loss_kwargs = True
    model_type = model.config.model_type
    try:
        trainer = JudgeTrainer(
            model,
            args,
            train_dataset=pair_dataset(pairs, root, model_type),
            eval_dataset=pair_dataset(holdout.pairs, root, model_type) if holdout else None,
            processing_class=processor,
            data_collator=pair_collator(processor, model_type),
            peft_config=lora_config(model_args),
            callbacks=[StopOnBadLoss()],
            share=data.shared_prefix,
            record=record,
            holdout=holdout,
        )
    except NoMatchingPeftModuleError as error:
        raise InputError(
            f"lora_target_modules: {model_args.lora_target_modules!r} fits no module (one entry is a regular "
            "expression for whole names, several are endings of names)"
        ) from error
    check_launch(trainer.accelerator, args)
    tracking = None
    if trainer.is_world_process_zero():
        print("trained:", trainable_table(trainer.model), sep="\n")
        if in_four_bits:
            print(f"in four bits: {in_four_bits} layers of the language model")
        print("the loss is taken on:", *(f"  {text!r}" for text in preview_labels(trainer)), sep="\n")
        print(
            f"{len(pairs)} pairs, {data.global_batch_size} a step ({args.gradient_accumulation_steps} x "
            f"{args.per_device_train_batch_size} on each of {args.world_size} processes)"
        )
        print("shared prefix:", f"no, {trainer.plain_reason}" if trainer.plain_reason else "yes")
        check_images(root, [image for pair in pairs for image in pair.images], decode=True)
        if args.resume_from_checkpoint is None:
            clear_output(output)
        if data.wandb:
            tracking = WandbRun(record, output)
            trainer.add_callback(tracking)

    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    learnt = trainer.learnt() if holdout else None
    trainer.save_model()
    tensors = adapter_tensors(trainer.model)
    if trainer.is_world_process_zero():
        (output / "training_args.bin").unlink(missing_ok=True)  # a pickle that can hold a token; run.json says it all
        write_json(
            output / "run.json",
            {**record, "result": {"steps": trainer.state.global_step, **result.metrics, "holdout": learnt}},
        )
        print(f"{output}: {check_saved(tensors, output)} adapter tensors saved and read back")
        if trainer.accelerator.distributed_type not in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            row = trainer._prepare_inputs(trainer.data_collator([trainer.train_dataset[0]]))
            print(f"reopened, it changes logits by up to {check_effect(trainer.model, output, row):.2g}")
        if tracking:
            tracking.run.finish()
    if learnt:
        check_learnt(learnt)


if __name__ == "__main__":
    run(main, "train/sft.py")
