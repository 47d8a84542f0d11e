"""All that decides what a run learns, by name: recorded with every checkpoint, compared when one is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cprt.provenance import file_digest
from cprt.records import Pair
from train.loading.pair_dataset import digests

# What is left out changes speed or what is kept, not what is learnt: the batch is the same for any number of processes.
_MODEL = (
    "lora_r lora_alpha lora_dropout lora_target_modules use_rslora use_dora dtype load_in_4bit bnb_4bit_quant_type "
    "use_bnb_nested_quant attn_implementation"
).split()
_TRAINER = (
    "seed data_seed max_steps num_train_epochs learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps optim "
    "optim_args weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm label_smoothing_factor "
    "neftune_noise_alpha tf32 loss_type ignore_data_skip"
).split()


def recipe(
    data: Any, model: Any, args: Any, *, base: str, train_file: Path, pairs: Sequence[Pair], root: Path
) -> dict[str, Any]:
    """Name -> JSON value.

    Args:
        data, model, args: DataArguments, TRL's ModelConfig and SFTConfig.
        base: what names the weights that are tuned (``cprt.models.checkpoint.identity``).
        train_file, pairs, root: the pairs, and where their photos lie. Photos count by name and size.
    """
    photos = hashlib.sha256()
    for pair in pairs:
        for image in pair.images:
            photos.update(f"{image} {(root / image).stat().st_size}\n".encode())
    trainer = args.to_dict()
    return {
        "base": base,
        "pairs": file_digest(train_file),
        "photos": photos.hexdigest(),
        "prompt": " ".join(digests(pairs)),
        "max_pixels": data.max_pixels,
        "score_width": data.score_width,
        "global_batch_size": data.global_batch_size,
        "mixed_precision": args.mixed_precision,
        **{name: getattr(model, name) for name in _MODEL},
        **{name: trainer[name] for name in _TRAINER},
    }
