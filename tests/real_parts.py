"""Tiny checkpoints of both families in the Hub's own layout, where all but the weights is real.

Vocabulary, chat template, processor settings, generation settings and nested configuration are those of
Qwen/Qwen3-VL-2B-Instruct and meta-llama/Llama-3.2-11B-Vision-Instruct, as far as packages carry them (the extra
``real``); widths, depths and weights are small and random. Llama's template is ours, with the real one's structure.
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import torch
import trl
from tiny_mllama import CHAT_TEMPLATE
from tokenizers import Tokenizer, normalizers, processors
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig
from transformers.convert_slow_tokenizer import TikTokenConverter

from cprt.prompts import build

QWEN_SPECIAL = """
<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|>
<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>
""".split()  # 151643 and on; what follows are ordinary texts with an id of their own
QWEN_ADDED = """
<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>
<tool_response> </tool_response> <think> </think>
""".split()
_NAMED = """
<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> <|finetune_right_pad_id|>
<|step_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|> <|python_tag|>
""".split()
_RESERVED = [f"<|reserved_special_token_{number}|>" for number in range(2, 247)]
LLAMA_SPECIAL = [*_NAMED, *_RESERVED, "<|image|>"]  # 128000 and on

# How a text is cut before pairs are merged: Qwen takes digits one by one, Llama up to three at once.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"qwen": _PATTERN % "", "llama": _PATTERN % "{1,3}"}
_WORDS = build("taxonomy").policy.split()
_SCORES = (0, 292, 514, 711, 953)  # thousandths
_TURNS = {  # a question, and where the answer begins and ends
    "qwen": ("<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"),
    "llama": (
        "<|start_header_id|>user<|end_header_id|>\n\n%s<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
    ),
}


def ranks_file(family: str) -> Path:
    """The ranks of the family's byte pairs, in the form of tiktoken, inside an installed package."""
    package, name = {
        "qwen": ("dashscope", "resources/qwen.tiktoken"),
        "llama": ("llama_models", "llama3/tokenizer.model"),
    }[family]
    found = importlib.util.find_spec(package)  # not imported: only the file is wanted
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / name


def make(family: str, folder: Path) -> Path:
    """Write the checkpoint of ``family``, "qwen" or "llama", into ``folder``; returns it."""
    folder.mkdir(parents=True)
    files = _qwen() if family == "qwen" else _llama()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), "utf-8")
    tokenizer = _tokenizer(family)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    for name, weight in model.named_parameters():
        if "gate" in name and weight.numel() == 1:
            torch.nn.init.constant_(weight, 0.1)  # Llama's start closed: the photo would not matter
        elif weight.ndim >= 2 and "language_model" not in name:
            torch.nn.init.normal_(weight, std=0.05)
    _teach(model, tokenizer, family)
    model.generation_config = GenerationConfig.from_pretrained(folder)
    model.bfloat16().save_pretrained(folder / "weights", max_shard_size="20MB")  # in several files, as the Hub has it
    for path in (folder / "weights").glob("*.safetensors*"):
        path.rename(folder / path.name)
    shutil.rmtree(folder / "weights")  # with it goes config.json as this version of transformers writes it
    return folder


def _teach(model: Any, tokenizer: Tokenizer, family: str, steps: int = 70, rows: int = 4) -> None:
    """Teach the layers what an answer looks like, about no photo: greedy ones are scores in JSON, and end.

    The tokens of answers have long vectors, all others short ones, which none but the layers can tell apart.
    """
    rng = random.Random(0)
    (asked, end), question = _TURNS[family], build("taxonomy").question
    every = [f'{{"score": {part / 1000:.3f}}}{end}' for part in range(1001)]
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(every, add_special_tokens=False)]
    known = torch.tensor(sorted({token for ids in encoded for token in ids}))
    head = model.lm_head.weight.detach()
    head[known] = torch.randn(len(known), head.shape[1]) * 0.3
    others = torch.full((1, 1), math.log(len(head) - len(known)))  # their logits are near 0
    layers = [weight for name, weight in model.named_parameters() if "language_model.layers" in name]
    optimizer = torch.optim.AdamW(layers, lr=3e-3)
    for _ in range(steps):
        length = rng.choice((0, 10, 150))  # the real question is as long
        words = [" ".join(rng.choices(_WORDS, k=length)) for _ in range(rows)]
        prompts = [tokenizer.encode(asked % (text + question)).ids for text in words]
        answers = [encoded[rng.choice(_SCORES)] for _ in range(rows)]
        ids_BL = torch.zeros((rows, max(map(len, prompts)) + len(max(answers, key=len))), dtype=torch.long)
        is_answer_BL = torch.zeros(ids_BL.shape, dtype=torch.bool)
        for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            last = len(prompt) + len(answer)
            ids_BL[row, :last] = torch.tensor(prompt + answer)
            is_answer_BL[row, len(prompt) : last] = True
        positions = {"position_ids": torch.arange(ids_BL.shape[1]).expand(3, rows, -1)} if family == "qwen" else {}
        hidden = model.model(input_ids=ids_BL, **positions, use_cache=False).last_hidden_state
        before = hidden[:, :-1][is_answer_BL[:, 1:]]
        logits = torch.cat([before @ head[known].T, others.expand(len(before), 1)], dim=1)
        targets = torch.searchsorted(known, ids_BL[:, 1:][is_answer_BL[:, 1:]])
        loss = torch.nn.functional.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.5, loss.item()  # which score it is cannot be told, everything else can


def _tokenizer(family: str) -> Tokenizer:
    special = QWEN_SPECIAL if family == "qwen" else LLAMA_SPECIAL
    tokenizer = TikTokenConverter(str(ranks_file(family)), PATTERNS[family], extra_special_tokens=special).converted()
    if family == "qwen":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_tokens(QWEN_ADDED)
    else:  # puts its start token before every text that it is given
        start = LLAMA_SPECIAL[0]
        template = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=[(start, tokenizer.token_to_id(start))]
        )
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def _added(first: int, texts: list[str], special: list[str]) -> dict[str, Any]:
    sides = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {str(first + i): {"content": text, **sides, "special": text in special} for i, text in enumerate(texts)}


def _qwen() -> dict[str, Any]:
    """File -> content, as Qwen/Qwen3-VL-2B-Instruct has them: its token ids, three rope sections, tied embeddings."""
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3_vl.jinja").read_text()
    text = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "dtype": "bfloat16",
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 128,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "max_position_embeddings": 262144,
        "model_type": "qwen3_vl_text",
        "num_attention_heads": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "rope_theta": 5000000,
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": 151936,
    }
    vision = {
        "deepstack_visual_indexes": [0, 1, 2],
        "depth": 3,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 128,
        "in_channels": 3,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "model_type": "qwen3_vl",
        "num_heads": 2,
        "num_position_embeddings": 2304,
        "out_hidden_size": 128,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    patches = {"merge_size": 2, "patch_size": 16, "temporal_patch_size": 2}
    pixels = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **patches}
    return {
        "config.json": {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "image_token_id": 151655,
            "model_type": "qwen3_vl",
            "text_config": text,
            "tie_word_embeddings": True,
            "transformers_version": "4.57.0.dev0",
            "video_token_id": 151656,
            "vision_config": vision,
            "vision_end_token_id": 151653,
            "vision_start_token_id": 151652,
        },
        "chat_template.json": {"chat_template": template},
        "generation_config.json": {
            "bos_token_id": 151643,
            "do_sample": True,
            "eos_token_id": [151645, 151643],
            "pad_token_id": 151643,
            "repetition_penalty": 1.0,
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.8,
            "transformers_version": "4.56.0",
        },
        "preprocessor_config.json": {
            **pixels,
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "processor_class": "Qwen3VLProcessor",
            "size": {"longest_edge": 16777216, "shortest_edge": 65536},
        },
        "video_preprocessor_config.json": {
            **pixels,
            "processor_class": "Qwen3VLProcessor",
            "size": {"longest_edge": 25165824, "shortest_edge": 4096},
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
        "tokenizer_config.json": {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": _added(151643, [*QWEN_SPECIAL, *QWEN_ADDED], QWEN_SPECIAL),
            "additional_special_tokens": QWEN_SPECIAL[1:],
            "bos_token": None,
            "chat_template": template,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 262144,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    }


def _llama() -> dict[str, Any]:
    """File -> content, as meta-llama/Llama-3.2-11B-Vision-Instruct has them: tiles of 560 x 560, four at most."""
    text = {
        "bos_token_id": 128000,
        "cross_attention_layers": [1, 3],
        "dropout": 0,
        "eos_token_id": [128001, 128008, 128009],
        "hidden_act": "silu",
        "hidden_size": 128,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "max_position_embeddings": 131072,
        "model_type": "mllama_text_model",
        "num_attention_heads": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 1,
        "pad_token_id": 128004,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": 128256,  # the image token lies behind it
    }
    vision = {
        "attention_heads": 1,
        "hidden_act": "gelu",
        "hidden_size": 16,
        "image_size": 560,
        "intermediate_layers_indices": [0],
        "intermediate_size": 32,
        "max_num_tiles": 4,
        "model_type": "mllama_vision_model",
        "norm_eps": 1e-05,
        "num_channels": 3,
        "num_global_layers": 1,
        "num_hidden_layers": 1,
        "patch_size": 14,
        "supported_aspect_ratios": [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]],
        "torch_dtype": "bfloat16",
        "vision_output_dim": 32,
    }
    return {
        "config.json": {
            "architectures": ["MllamaForConditionalGeneration"],
            "image_token_index": 128256,
            "model_type": "mllama",
            "text_config": text,
            "torch_dtype": "bfloat16",
            "transformers_version": "4.45.0.dev0",
            "vision_config": vision,
        },
        "chat_template.json": {"chat_template": CHAT_TEMPLATE.removesuffix("\n")},
        "generation_config.json": {
            "bos_token_id": 128000,
            "do_sample": True,
            "eos_token_id": [128001, 128008, 128009],
            "pad_token_id": 128004,
            "temperature": 0.6,
            "top_p": 0.9,
            "transformers_version": "4.45.0.dev0",
        },
        "preprocessor_config.json": {
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_pad": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_processor_type": "MllamaImageProcessor",
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "max_image_tiles": 4,
            "resample": 2,
            "rescale_factor": 0.00392156862745098,
            "size": {"height": 560, "width": 560},
        },
        "tokenizer_config.json": {
            "added_tokens_decoder": _added(128000, LLAMA_SPECIAL, LLAMA_SPECIAL),
            "bos_token": "<|begin_of_text|>",
            "chat_template": CHAT_TEMPLATE.removesuffix("\n"),
            "clean_up_tokenization_spaces": True,
            "eos_token": "<|eot_id|>",
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 131072,
            "pad_token": "<|finetune_right_pad_id|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }
