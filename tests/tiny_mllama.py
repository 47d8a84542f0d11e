"""A tiny random Llama 3.2 Vision: the real architecture, processor and special tokens, 0.3 million weights."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    GenerationConfig,
    MllamaConfig,
    MllamaForConditionalGeneration,
    MllamaImageProcessor,
    MllamaProcessor,
    PreTrainedTokenizerFast,
)

from cprt.prompts import PROMPTS, build

TILE = 32  # pixels; the real one has 560
PAD = "<|finetune_right_pad_id|>"
SPECIAL = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    PAD,
]
IMAGE = "<|image|>"

# The form of Llama 3, with images where the content list has them.
CHAT_TEMPLATE = """\
{{- "<|begin_of_text|>" -}}
{%- set image = namespace(seen=false) -%}
{%- for message in messages -%}
  {%- if message.content is not string -%}
    {%- for part in message.content if part.type == "image" -%}
      {%- set image.seen = true -%}
    {%- endfor -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == "system" and image.seen -%}
    {{- raise_exception("Prompting with images is incompatible with system messages.") -}}
  {%- endif -%}
  {{- "<|start_header_id|>" + message.role + "<|end_header_id|>\n\n" -}}
  {%- if message.content is string -%}
    {{- message.content -}}
  {%- else -%}
    {%- for part in message.content -%}
      {{- "<|image|>" if part.type == "image" else part.text -}}
    {%- endfor -%}
  {%- endif -%}
  {{- "<|eot_id|>" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|start_header_id|>assistant<|end_header_id|>\n\n" -}}
{%- endif -%}
"""


def make(folder: Path, seed: int = 0) -> Path:
    """Write the checkpoint into ``folder``; returns it."""
    processor = make_processor()
    processor.save_pretrained(folder)
    make_model(processor.tokenizer, seed).save_pretrained(folder)
    return folder


def make_processor() -> MllamaProcessor:
    # In the real model the image token is the last one, outside the output head.
    return MllamaProcessor(
        image_processor=MllamaImageProcessor(size={"height": TILE, "width": TILE}, max_image_tiles=4),
        tokenizer=make_tokenizer(),
        chat_template=CHAT_TEMPLATE,
    )


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE on our own prompts. As the real one it puts a start token before every text it is given."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    prompts = [build(name) for name in PROMPTS] + [build("taxonomy", "attributes")]
    tokenizer.train_from_iterator([text for prompt in prompts for text in (prompt.policy, prompt.question)], trainer)
    tokenizer.add_special_tokens([IMAGE])
    start = SPECIAL[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, tokenizer.token_to_id(start))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=start,
        eos_token="<|eot_id|>",
        pad_token=PAD,
        additional_special_tokens=[*SPECIAL[1:], IMAGE],
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> MllamaForConditionalGeneration:
    torch.manual_seed(seed)
    ids = tokenizer.convert_tokens_to_ids
    config = MllamaConfig(
        text_config={
            "vocab_size": len(tokenizer) - 1,  # all but the image token, which has an embedding and no output
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "cross_attention_layers": [1, 3],
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "bos_token_id": ids(SPECIAL[0]),
            "eos_token_id": ids("<|eot_id|>"),
            "pad_token_id": ids(PAD),
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "attention_heads": 2,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "intermediate_layers_indices": [0, 1],
            "vision_output_dim": 96,  # the last hidden state and the two intermediate ones
            "image_size": TILE,
            "patch_size": 8,
            "max_num_tiles": 4,
        },
        image_token_index=ids(IMAGE),
        dtype="float32",
    )
    model = MllamaForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if "gate" in name and weight.numel() == 1:
            torch.nn.init.constant_(weight, 1.0)  # cross-attention starts closed: the image would not matter
        elif "embedding" in name or "embed_tokens" in name or "lm_head" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model.generation_config = GenerationConfig(
        do_sample=False, bos_token_id=ids(SPECIAL[0]), eos_token_id=ids("<|eot_id|>"), pad_token_id=ids(PAD)
    )
    return model
