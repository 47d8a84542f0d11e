"""Makes the tiny Qwen3-VL that the demo tunes, from nothing, on one CPU core in about twenty-five minutes.

    python -m data_prep.demo.base --out assets/demo_base

LoRA cannot teach a random model to see, so the demo needs a base that has learnt something before. This one has the
real architecture, processor and chat format of Qwen3-VL at a thousandth of the size. It is taught other tasks on the
demo's kind of drawings (see ``data_prep/demo/lessons.py``), never the severity task. It has seen such drawings, so the
demo proves the pipeline, not the science.

Three lessons: to name the thing in each cell, from its image token alone; to write sorted lists of what an image
holds; and a mixture of all tasks, two in five batches of it behind up to 900 tokens of unrelated text, since the judge
reads its policy before the image. All rows of a batch share that text: it is computed once, and every row attends to
its keys and values.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from cprt.models.prefix_cache import compute_prefix, reading_cache
from cprt.prompts import build
from cprt.taxonomy import Taxonomy
from data_prep.demo.drawings import GRID
from data_prep.demo.lessons import (
    SORTING,
    SPELLING,
    TALKING,
    WORDS,
    Pool,
    Talk,
    draw_talks,
    pieces,
    unrelated_text,
)

SPECIAL = ("<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>").split()
# Qwen's splitting: words with the blank before them, digits one by one, runs of punctuation.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{%- macro parts(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- else -%}
    {%- for part in content -%}
      {%- if part.type in ("image", "image_url") or "image" in part -%}
        {{- "<|vision_start|><|image_pad|><|vision_end|>" -}}
      {%- elif part.type == "video" or "video" in part -%}
        {{- "<|vision_start|><|video_pad|><|vision_end|>" -}}
      {%- elif "text" in part -%}
        {{- part.text -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {{- "<|im_start|>" + message.role + "\\n" + parts(message.content) + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
"""


def reading_matter(taxonomy: Taxonomy, rng: random.Random) -> Iterator[str]:
    """Text for the tokenizer alone: what the judge will read and answer, so that its words are single tokens."""
    for _ in range(20):
        for attribute in taxonomy.attributes:
            yield f'{attribute.key}: {attribute.question}\n- {attribute.key}\n["{attribute.key}", "{attribute.key}"]'
    for prompt in (build("taxonomy", "score"), build("taxonomy", "attributes"), build("intuition")):
        for _ in range(20):
            yield prompt.policy
            yield prompt.question
    for _ in range(3000):
        yield unrelated_text(rng, 1)
    for name in SPELLING:
        yield f'Look at the names: {name}?\n{{"{name.split()[-1]}": 0.1}} ' * 20
    for word in WORDS:
        yield f'["{word}", "{word}"] {word} a {word}, the {word} ' * 40


def make_tokenizer(vocabulary: int, seed: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE with Qwen's splitting and special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(reading_matter(Taxonomy.default(), random.Random(seed)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL[1:],
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )


def make_processor(vocabulary: int, seed: int) -> Qwen3VLProcessor:
    pixels = {"shortest_edge": 64 * 64, "longest_edge": 96 * 96}  # 4 to 9 image tokens
    shape = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    normal = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=pixels, **shape, **normal),
        tokenizer=make_tokenizer(vocabulary, seed),
        video_processor=Qwen3VLVideoProcessor(size=pixels, **shape, **normal),
        chat_template=CHAT_TEMPLATE,
    )


def make_model(processor: Qwen3VLProcessor, seed: int) -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(seed)
    ids = processor.tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(processor.tokenizer),
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "eos_token_id": ids("<|im_end|>"),
            "pad_token_id": ids("<|endoftext|>"),
        },
        vision_config={
            "depth": 4,
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_heads": 4,
            "patch_size": 16,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [1, 2],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
        dtype="float32",
    )
    model = Qwen3VLForConditionalGeneration(config)
    # The usual 0.02 suits wide models. Here it would cap the logits (the rows are also the output classes) ...
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.1)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            # ... and attention's: with normed queries and keys of 32 dimensions no logit exceeds 5.7, too little to
            # pick 9 image tokens out of 800 tokens. LoRA leaves these weights alone, so they have to start higher.
            torch.nn.init.constant_(parameter, 1.8)
        elif "deepstack" in name and "linear_fc2" in name:
            # Added to the image tokens of the first layers: untrained, they would drown what those tokens say.
            torch.nn.init.zeros_(parameter)
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=[ids("<|im_end|>"), ids("<|endoftext|>")],
        pad_token_id=ids("<|endoftext|>"),
        max_new_tokens=128,
    )
    return model


def long_text(tokenizer: PreTrainedTokenizerFast, vocabulary: list[str], rng: random.Random) -> list[int]:
    """Token ids of 50 to 900 tokens that have nothing to do with the image: sentences and random pieces mixed."""
    length = rng.randint(50, 900)
    text = ""
    ids: list[int] = []
    while len(ids) < length:
        text += unrelated_text(rng, rng.randint(2, 8)) if rng.random() < 0.4 else pieces(vocabulary, rng, 60)
        text += "\n"
        ids = tokenizer(text).input_ids
    return ids[:length]


# A batch's mean cross-entropy, and its single values by task.
Loss = tuple[torch.Tensor, dict[str, list[float]]]


def talk_loss(
    model: Qwen3VLForConditionalGeneration,
    processor: Qwen3VLProcessor,
    pool: Pool,
    talks: list[Talk],
    prefix: list[int] | None,
) -> Loss:
    """Cross-entropy of the answer tokens.

    `prefix` is the text that every row's user message starts with.
    """
    tokenizer, config = processor.tokenizer, model.config
    image_part = [config.vision_start_token_id] + [config.image_token_id] * GRID**2 + [config.vision_end_token_id]
    start = tokenizer("<|im_start|>user\n").input_ids
    end = tokenizer("<|im_end|>\n<|im_start|>assistant\n").input_ids
    after = tokenizer("\n").input_ids
    rows, labels = [], []
    for talk in talks:
        ids: list[int] = []
        target: list[int] = []
        for turn, exchange in enumerate(talk.exchanges):
            asked = [] if turn == 0 and prefix is not None else list(start)
            question = tokenizer(exchange.question).input_ids
            if turn == 0 and talk.image is not None:
                asked += image_part + question if talk.image_first else question + image_part
            else:
                asked += question
            asked += end
            answer = [*tokenizer(exchange.answer).input_ids, config.text_config.eos_token_id]
            ids += asked + answer + after
            target += [-100] * len(asked) + answer + [-100] * len(after)
        rows.append(ids)
        labels.append(target)

    width = max(map(len, rows))
    input_ids = torch.tensor([row + [config.text_config.pad_token_id] * (width - len(row)) for row in rows])
    targets = torch.tensor([row + [-100] * (width - len(row)) for row in labels])
    images = [Image.fromarray(pool.images[talk.image]) for talk in talks if talk.image is not None]
    vision = processor.image_processor(images, return_tensors="pt")
    types = (input_ids == config.image_token_id).int()
    # Padding stands on the right, behind everything that is learnt from, so causal attention needs no mask for it.
    positions, _ = model.model.get_rope_index(input_ids, types, image_grid_thw=vision["image_grid_thw"])
    cache = None
    if prefix is not None:
        computed, _ = compute_prefix(model, torch.tensor([start + prefix]))
        cache = reading_cache(computed)
        positions = positions + len(start) + len(prefix)
    hidden = model.model(
        input_ids=input_ids,
        position_ids=positions,
        mm_token_type_ids=types,
        cache=cache,
        use_cache=cache is not None,
        **vision,
    ).last_hidden_state
    learnt = targets[:, 1:] != -100
    logits = model.lm_head(hidden[:, :-1][learnt])  # (answer tokens, vocabulary): the rest is never looked at
    costs = torch.nn.functional.cross_entropy(logits, targets[:, 1:][learnt], reduction="none")
    by_task: dict[str, list[float]] = {}
    for cost, row in zip(costs.tolist(), learnt.nonzero()[:, 0].tolist(), strict=True):
        by_task.setdefault(talks[row].task, []).append(cost)
    return costs.mean(), by_task


def optimise(model: Qwen3VLForConditionalGeneration, losses: Iterator[Loss], steps: int, learning_rate: float) -> None:
    """AdamW on all parameters with a short warm-up and a cosine: one step for each loss that the iterator yields."""
    embeddings = model.get_input_embeddings().weight
    decayed = [p for p in model.parameters() if p.ndim >= 2 and p is not embeddings]
    others = [p for p in model.parameters() if p.ndim < 2 or p is embeddings]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}],
        lr=learning_rate,
        betas=(0.9, 0.98),
    )
    warmup = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 0.51 + 0.49 * math.cos(math.pi * min(1.0, step / steps)))
    )
    began = time.monotonic()
    recent: dict[str, list[float]] = {}
    for step, (loss, by_task) in zip(range(1, steps + 1), losses, strict=False):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        for task, costs in by_task.items():
            recent.setdefault(task, []).extend(costs)
        if step % 50 == 0 or step == steps:
            figures = "  ".join(f"{task} {np.mean(costs):.3f}" for task, costs in sorted(recent.items()))
            print(f"{step}/{steps}  {time.monotonic() - began:.0f} s  {figures}", flush=True)
            recent = {}


def naming_losses(
    model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor, pool: Pool, batch: int, seed: int
) -> Iterator[Loss]:
    """Cross-entropy of naming each cell from its image token alone, by likeness to the embedding of its word.

    The grid and the vision tower's merged patches coincide, so this trains the eyes without the cost of reading.
    """
    rng, names = random.Random(seed), ["-", *WORDS]
    name_ids = torch.tensor(processor.tokenizer.convert_tokens_to_ids(names))
    while True:
        indices = [rng.randrange(len(pool.things)) for _ in range(batch)]
        cells = [[names.index(pool.things[index].get(cell, "-")) for cell in range(GRID**2)] for index in indices]
        images = [Image.fromarray(pool.images[index]) for index in indices]
        vision = processor.image_processor(images, return_tensors="pt")
        seen = model.model.visual(vision["pixel_values"], grid_thw=vision["image_grid_thw"]).pooler_output  # (9 B, W)
        logits = seen @ model.get_input_embeddings().weight[name_ids].T
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(cells).flatten())
        yield loss, {"cells": [loss.item()]}


def talking_losses(
    model: Qwen3VLForConditionalGeneration,
    processor: Qwen3VLProcessor,
    pool: Pool,
    batch: int,
    seed: int,
    tasks: dict[str, int],
    long_texts: float,
) -> Iterator[Loss]:
    """Batches of talks with `tasks` in these proportions; a share `long_texts` of them behind a long text."""
    rng = random.Random(seed)
    tokenizer = processor.tokenizer
    vocabulary = [tokenizer.decode([index]) for index in range(len(SPECIAL), len(tokenizer))]
    while True:
        talks = draw_talks(tasks, batch, pool, vocabulary, rng)
        prefix = long_text(tokenizer, vocabulary, rng) if rng.random() < long_texts else None
        yield talk_loss(model, processor, pool, talks, prefix)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--seed", type=int, default=20260)
    parser.add_argument("--vocabulary", type=int, default=1600)
    parser.add_argument("--drawings", type=int, default=10_000, help="size of the pool of training drawings")
    parser.add_argument("--naming-steps", type=int, default=200, help="64 drawings each")
    parser.add_argument("--sorting-steps", type=int, default=500, help="32 drawings each")
    parser.add_argument("--talking-steps", type=int, default=600, help="32 drawings each")
    args = parser.parse_args()

    torch.set_num_threads(1)
    processor = make_processor(args.vocabulary, args.seed)
    model = make_model(processor, args.seed)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(processor.tokenizer)} tokens", flush=True)
    began = time.monotonic()
    pool = Pool.drawn(args.drawings, args.seed)
    print(f"{args.drawings} drawings in {time.monotonic() - began:.0f} s", flush=True)
    model.train()
    print("naming")
    optimise(model, naming_losses(model, processor, pool, 64, args.seed), args.naming_steps, 3e-3)
    print("sorting")
    sorting = talking_losses(model, processor, pool, 32, args.seed + 1, SORTING, long_texts=0.0)
    optimise(model, sorting, args.sorting_steps, 3e-3)
    print("talking")
    talking = talking_losses(model, processor, pool, 32, args.seed + 2, TALKING, long_texts=0.4)
    optimise(model, talking, args.talking_steps, 2e-3)
    model.eval()
    model.to(torch.bfloat16).save_pretrained(args.out)
    processor.save_pretrained(args.out)
    print(f"saved to {args.out}")


if __name__ == "__main__":
    main()
