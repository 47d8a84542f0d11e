"""What is trained on top of a checkpoint: LoRA on the language model, whose own weights may be in four bits."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig
from transformers import BitsAndBytesConfig
from trl import ModelConfig, get_peft_config, get_quantization_config

from cprt.errors import InputError
from cprt.models.checkpoint import check_fit, load_model

# Every projection of the language model's blocks, and nothing of the vision encoder: the same regular expression fits
# Qwen3-VL and Llama 3.2 Vision, whose encoders have layers of the same names.
LANGUAGE_MODEL_PROJECTIONS = r".*language_model\..*\.(q|k|v|o|gate|up|down)_proj"
# What stays in full precision in both families. A list of one's own replaces the library's default, lm_head.
_NOT_QUANTIZED = ["model.visual", "model.vision_model", "model.multi_modal_projector", "lm_head"]


def load_base(model_args: ModelConfig, processor: Any) -> Any:
    """The checkpoint that the options name, perhaps in four bits. Raises InputError."""
    model = load_model(
        model_args.model_name_or_path,
        model_args.model_revision,
        dtype=model_args.dtype,
        attn_implementation=model_args.attn_implementation,
        quantization_config=quantization(model_args),
    )
    check_fit(model_args.model_name_or_path, model, processor)
    if model_args.load_in_4bit:
        quantized_layers(model)
    return prepared(model)


def prepared(model: Any) -> Any:
    """A base model as it is trained.

    Its vision encoder is frozen, and runs without a graph: gradient checkpointing makes what is embedded require a
    gradient, Mllama's patches too, and its encoder would be kept in memory and differentiated for nothing.
    """
    encoder = model.get_encoder("image")
    encoder.forward = torch.no_grad()(encoder.forward)
    # Qwen3-VL says it takes no loss arguments. Left so, the loss is a mean of micro-batch means, and four batches of
    # one train another model than one batch of four.
    model.accepts_loss_kwargs = True
    return model


def lora_config(model_args: ModelConfig) -> LoraConfig:
    """TRL's LoRA configuration, on the language model's projections unless the options say otherwise."""
    config = get_peft_config(model_args)
    assert config is not None
    config.target_modules = config.target_modules or LANGUAGE_MODEL_PROJECTIONS
    return config


def quantization(model_args: ModelConfig) -> BitsAndBytesConfig | None:
    """How weights are quantised (QLoRA), the vision encoder and the output head left out; None without load_in_4bit."""
    config = get_quantization_config(model_args)
    if config is not None:
        config.llm_int8_skip_modules = _NOT_QUANTIZED
    return config


def quantized_layers(model: Any) -> int:
    """Number of four-bit layers, each held to one layout from here on.

    On CPUs with AVX512-BF16 bitsandbytes repacks such a layer in place, with coarser scales, as soon as it is used in
    evaluation, and lets no gradient through it from then on. Raises InputError when a layer lies outside the language
    model: it would see worse.
    """
    from bitsandbytes.nn import Linear4bit

    layers = {name: module for name, module in model.named_modules() if isinstance(module, Linear4bit)}
    for name, layer in layers.items():
        if "language_model." not in name:
            raise InputError(f"load_in_4bit: {name} is outside the language model and would be quantised")
        layer.support_avx512bf16_for_cpu = False
    return len(layers)
