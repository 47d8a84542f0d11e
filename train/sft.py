"""Tune a vision-language model as a privacy judge: TRL's SFT with LoRA on the language model.

    accelerate launch --config_file configs/accelerate/one_gpu.yaml train/sft.py --config configs/sft/demo.yaml [...]

Options are those below and all of TRL's ModelConfig and SFTConfig. After a kill, --resume_from_checkpoint last goes on
from the newest checkpoint in output_dir, with the same result as if nothing had happened.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cprt.config import check_config, faults_told, parse, run

if __name__ == "__main__":  # the libraries below take half a minute the first time
    with faults_told("train/sft.py"):
        check_config(sys.argv[1:])
# isort: split
from accelerate.utils import DistributedType
from trl import ModelConfig

from cprt.files import claim, write_text
from cprt.images import check_images, image_root
from cprt.images.patches import in_bytes
from cprt.models.checkpoint import identity, load_processor, revision_of
from cprt.provenance import run_record
from cprt.records import read_pairs, write_json
from cprt.services.tracking import finish
from cprt.taxonomy import Taxonomy
from train.adapter import load_base, lora_config, quantized_layers
from train.checkpoints import check_resume
from train.checks import StopOnBadLoss, adapter_tensors, check_effect, check_saved, preview_labels, trainable_table
from train.holdout import HoldOut, check_learnt
from train.launch import check_devices, check_launch, settle_launch
from train.learning import draw_learning, learning_table
from train.loading.collator import PairCollator
from train.loading.pair_dataset import check_pairs, pair_dataset, prompt_of, taxonomy_of
from train.options import DataArguments, TrainerArguments, clear_output, recipe_faults, settle
from train.publish.card import local_card
from train.recipe import recipe
from train.saving import save_adapter, take_room
from train.trainer import JudgeTrainer
from train.wandb_run import WandbRun


def main() -> None:
    # ---- Options: TRL's and ours; what contradicts another, or the launcher, stops here ----
    check_devices()
    options = DataArguments, ModelConfig, TrainerArguments
    data, model_args, args = parse(options, prog="train/sft.py", description=__doc__)
    settle(data, model_args, args)
    settle_launch(args)
    output = Path(args.output_dir)
    if args.process_index == 0:
        claim(output, "output_dir")

    # ---- Data: pairs to train on, photos that are only asked about, and the processor that encodes both ----
    train_file, root = Path(data.pairs) / "train.jsonl", image_root(data.images)
    pairs = read_pairs(train_file)
    holdout = HoldOut.read(data, args, root) if args.eval_strategy != "no" else None
    base, revision = model_args.model_name_or_path, model_args.model_revision
    processor = load_processor(base, revision, data.max_pixels)
    check_pairs(pairs, train_file, processor, at_least=data.global_batch_size)

    # ---- Record: all that decides what is learnt; a checkpoint of another recipe is not resumed ----
    commit = revision_of(base, revision)
    made_by = recipe(data, model_args, args, base=identity(base, commit), train_file=train_file, pairs=pairs, root=root)
    if args.resume_from_checkpoint:
        check_resume(Path(args.resume_from_checkpoint), made_by)
    record = run_record(
        "train/sft.py",
        {"data": vars(data), "model": vars(model_args), "trainer": args.to_dict()},
        {"pairs": train_file},
        seed=args.seed,
        base_model=base,
        base_revision=commit,
        base_digest=made_by["base"],
        prompt=prompt_of(pairs, train_file),
        taxonomy=taxonomy_of(train_file),
        recipe=made_by,
    )

    # ---- Model and trainer: TRL's, with the shared prefix, whole checkpoints and figures of the hold-out ----
    model = load_base(model_args, processor)
    model_type = model.config.model_type
    with recipe_faults(model_args):
        trainer = JudgeTrainer(
            model,
            args,
            train_dataset=pair_dataset(pairs, root, model_type),
            eval_dataset=pair_dataset(holdout.pairs, root, model_type) if holdout else None,
            processing_class=processor,
            data_collator=PairCollator(in_bytes(processor), data.score_width, Taxonomy.load(data.taxonomy)),
            peft_config=lora_config(model_args),
            callbacks=[StopOnBadLoss()],
            share=data.shared_prefix,
            record=record,
            holdout=holdout,
        )
    check_launch(trainer.accelerator, args)

    # ---- What is about to happen, shown and checked while it costs nothing ----
    tracking = None
    tensors = adapter_tensors(trainer.model)
    if trainer.is_world_process_zero():
        print("trained:", trainable_table(trainer.model), sep="\n")
        if model_args.load_in_4bit:
            print(f"in four bits: {quantized_layers(model)} layers of the language model")
        print("the loss is taken on:", *(f"  {text!r}" for text in preview_labels(trainer)), sep="\n")
        print(trainer.describe_steps())
        print("shared prefix:", f"no, {trainer.plain_reason}" if trainer.plain_reason else "yes")
        trainer.data_collator.check(pairs)
        check_images(root, [image for pair in pairs for image in pair.images], decode=True)
        if args.resume_from_checkpoint is None:
            clear_output(output)
        if args.save_strategy == "no":  # no checkpoint would have it
            take_room(output, tensors, processor)
        if data.wandb:
            trainer.add_callback(tracking := WandbRun(record, output, args.resume_from_checkpoint))

    # ---- Training ----
    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    learnt = trainer.learnt() if holdout else None

    # ---- The adapter: saved, read back, compared with the one in memory ----
    tensors = adapter_tensors(trainer.model)
    save_adapter(trainer, output, tensors)
    if trainer.is_world_process_zero():
        saved = check_saved(tensors, output)
        steps = {"steps": trainer.state.global_step, "step": trainer.shipped_step, "tensors": saved}
        write_json(output / "run.json", {**record, "result": {**steps, **result.metrics, "holdout": learnt}})
        write_text(output / "README.md", local_card(output, Taxonomy.load(data.taxonomy)))
        print(f"{output}: {saved} adapter tensors saved and read back (step {trainer.shipped_step})")
        if trainer.accelerator.distributed_type not in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            row = trainer._prepare_inputs(trainer.data_collator([trainer.train_dataset[0]]))
            print(f"reopened, it changes logits by up to {check_effect(trainer.model, output, row):.2g}")
        if tracking:
            tracking.run.summary["adapter_step"] = trainer.shipped_step
            print(finish(tracking.run))
        if learnt:
            draw_learning(output / "learning.png", trainer.state.log_history, trainer.learning)
            print("on the hold-out:", learning_table(trainer.learning, trainer.shipped_step), sep="\n")
    if holdout and learnt:
        check_learnt(learnt, holdout.samples)


if __name__ == "__main__":
    run(main, "train/sft.py")
