"""The first step of a training run on an imagined card, and saving: what it takes of memory, and what it computes."""

from __future__ import annotations

import copy
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from bitsandbytes.functional import quantize_4bit
from bitsandbytes.nn import Linear4bit
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import register_flop_formula
from transformers import (
    AutoModelForImageTextToText,
    MllamaImageProcessor,
    MllamaProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    TrainerCallback,
)
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers import AutoHfQuantizer

from cprt.images.patches import in_bytes
from cprt.records import Pair
from cprt.taxonomy import Taxonomy
from train.adapter import lora_config, prepared, quantization
from train.checks import adapter_tensors
from train.fit.card import ImaginedCard, imagined_card
from train.holdout import HoldOut
from train.loading.collator import PairCollator
from train.loading.pair_dataset import pair_dataset
from train.saving import save_adapter
from train.trainer import JudgeTrainer

_IMAGE = ("<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>", "<|image|>")
_TEMPLATE = (
    "{%- for message in messages -%}{%- for part in message.content -%}{{- IMAGE if part.type == 'image' else part.text"
    " -}}{%- endfor -%}{{- '<end>' if message.role == 'assistant' -}}{%- endfor -%}"
)
_WINDOW = 3  # micro-batches that are rehearsed: the first, one in between, and the last
_ASKED = 4  # tokens of an answer on the hold-out; each further one adds no more than its keys and values


@dataclass(frozen=True)
class Lengths:
    """Tokens of a pair beside the photo's own: before it, and of the answer behind it."""

    prompt: int
    answer: int


@dataclass(frozen=True)
class Figures:
    """``fixed`` and ``peak``: bytes of the model with its adapter, and at most; ``flops`` of an optimiser step."""

    fixed: int
    peak: int
    flops: int
    plain_reason: str | None


def rehearse(
    config: Any, data: Any, model_args: Any, args: Any, lengths: Lengths, rows: int, limit: float | None = None
) -> Figures:
    """One optimiser step of the recipe, a batch of the hold-out where it asks one, and saving, by the code that trains.

    Args:
        config: of the model.
        data, model_args, args: DataArguments, TRL's ModelConfig and SFTConfig, settled.
        rows: pairs of a micro-batch.
        limit: bytes of the card; with it ``flops`` is not that of the whole step, and nothing is saved.

    Raises torch.OutOfMemoryError beyond ``limit``, and whatever a card would raise.
    """
    micro_batches = -(-data.global_batch_size // rows)
    window = min(micro_batches, _WINDOW if limit is None else 2)  # for its memory alone two are enough
    config, args = copy.deepcopy(config), copy.copy(args)
    processor = stand_in_processor(config, data.max_pixels)
    with tempfile.TemporaryDirectory() as folder, imagined_card() as card, _four_bits_on_card():
        args.per_device_train_batch_size, args.gradient_accumulation_steps = rows, window
        args.output_dir, args.max_steps, args.disable_tqdm = folder, 1, True
        args.save_strategy, args.report_to, args.logging_strategy = "no", [], "no"
        asked, expected = args.eval_strategy != "no", args.metric_for_best_model == "expected_mae"
        args.eval_strategy = "no"
        vars(args)["_setup_devices"] = torch.device("cuda", 0)
        root = Path(folder)
        pairs = made_up_pairs(lengths, max(rows * window, args.per_device_eval_batch_size), root, config, data)
        holdout = None
        if asked:
            eval_rows, taxonomy = args.per_device_eval_batch_size, Taxonomy.load(data.taxonomy)
            holdout = HoldOut(pairs[:eval_rows], root, eval_rows, _ASKED, taxonomy, expected)
        model = random_model(config, model_args, "cuda")
        # In four bits a real model comes weight by weight, and never is there in full.
        card.limit, card.peak = limit, card.live
        clock = _Clock(card)
        parts = parts_of_trainer(model, model_args, args, pairs, root, processor)
        trainer = JudgeTrainer(**parts, callbacks=[clock], share=data.shared_prefix, record={}, holdout=holdout)
        fixed = card.live
        trainer.train()
        flops = clock.flops[-1]
        if micro_batches > window:
            flops += (micro_batches - window) * (clock.flops[1] - clock.flops[0])
        if holdout:
            holdout.measure(trainer.model, processor)
        if limit is None:
            save_adapter(trainer, root / "adapter", adapter_tensors(trainer.model))
        return Figures(fixed, card.peak, flops, trainer.plain_reason)


class _Clock(TrainerCallback):
    """FLOPs after each micro-batch of the first step, all before it left out."""

    def __init__(self, card: ImaginedCard):
        self.card = card
        self.flops: list[int] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.before = self.card.flops

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        self.flops.append(self.card.flops - self.before)

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.flops.append(self.card.flops - self.before)


def parts_of_trainer(
    model: Any, model_args: Any, args: Any, pairs: list[Pair], root: Path, processor: Any
) -> dict[str, Any]:
    """What the trainer of a recipe is made of, as ``train/sft.py`` does it."""
    model_type = model.config.model_type
    return {
        "model": model,
        "args": args,
        "train_dataset": pair_dataset(pairs, root, model_type),
        "processing_class": processor,
        "data_collator": PairCollator(in_bytes(processor)),
        "peft_config": lora_config(model_args),
    }


def random_model(config: Any, model_args: Any, device: str) -> Any:
    """The model as ``load_base`` returns it, of random weights; on the imagined card perhaps in four bits."""
    dtype = torch.bfloat16 if model_args.dtype == "auto" else getattr(torch, model_args.dtype)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(
            config, dtype=dtype, attn_implementation=model_args.attn_implementation
        )
    if model_args.load_in_4bit:
        _quantize(model, quantization(model_args))
    return prepared(model)


def _four_bits_on_card() -> Any:
    """bitsandbytes' own mending of weights that were moved, for weights of another class."""

    def mend(layer: Linear4bit) -> None:
        layer.weight.quant_state = layer.quant_state

    return mock.patch("bitsandbytes.nn.modules.fix_4bit_weight_quant_state_from_module", mend)


@register_flop_formula(torch.ops.bitsandbytes.gemm_4bit)
def _(inputs: Any, packed: Any, shape: Any, *_: Any, **__: Any) -> int:
    """bitsandbytes' product with a weight of ``shape`` in four bits, for which torch's counter has no formula."""
    return int(2 * math.prod(inputs[:-1]) * math.prod(shape))


def _quantize(model: Any, settings: Any) -> None:
    """Put the weights that bitsandbytes would quantise into its form.

    Its class of weights cannot stand around a fake tensor: they are plain ones with the same attributes.
    """
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    with _disable_current_modes():  # on torch's own meta device
        replace_with_bnb_linear(model, settings.llm_int8_skip_modules, settings)
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            packed, state = quantize_4bit(
                linear[name].weight.data,
                blocksize=64,
                compress_statistics=settings.bnb_4bit_use_double_quant,
                quant_type=settings.bnb_4bit_quant_type,
            )
            module.weight = torch.nn.Parameter(packed, requires_grad=False)
            vars(module.weight).update(
                quant_state=state,
                bnb_quantized=True,
                compress_statistics=settings.bnb_4bit_use_double_quant,
                quant_type=settings.bnb_4bit_quant_type,
            )
            module.quant_state, module.bias = state, linear[name].bias
    quantizer = AutoHfQuantizer.from_config(settings)
    model.hf_quantizer, model.quantization_method = quantizer, settings.quant_method
    model.is_loaded_in_4bit = model.is_quantized = True


def made_up_pairs(lengths: Lengths, number: int, root: Path, config: Any, data: Any) -> list[Pair]:
    """Pairs of the given lengths about a photo of the largest size, which is put into ``root``.

    Every other answer is a token shorter, so that batches are padded as real ones.
    """
    Image.effect_noise(_photo(config, data.max_pixels), 50).convert("RGB").save(root / "photo.jpg", quality=95)
    prompt = [{"role": "user", "content": [{"type": "text", "text": "w " * lengths.prompt}, {"type": "image"}]}]
    answers = [[{"type": "text", "text": "w " * (lengths.answer - 1 - index % 2)}] for index in range(number)]
    return [
        Pair(str(index), ["photo.jpg"], prompt, [{"role": "assistant", "content": answer}], 1, 1.0)
        for index, answer in enumerate(answers)
    ]


def stand_in_processor(config: Any, max_pixels: Any) -> Any:
    """A processor with the family's own image processor and a word a token; the configuration takes its special ids."""
    words = ["<pad>", "<unk>", "<start>", "<end>", *_IMAGE, "w", *"0123456789."]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation()]
    )
    ids = {word: place for place, word in enumerate(words)}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<start>",
        eos_token="<end>",
        additional_special_tokens=list(_IMAGE),
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    if config.model_type == "mllama":
        config.image_token_index = ids["<|image|>"]
        vision = config.vision_config
        size = {"height": vision.image_size, "width": vision.image_size}
        return MllamaProcessor(
            MllamaImageProcessor(size=size, max_image_tiles=vision.max_num_tiles),
            fast,
            chat_template=_TEMPLATE.replace("IMAGE", "'<start><|image|>'"),  # as Llama's begins
        )
    config.image_token_id, config.video_token_id = ids["<|image_pad|>"], ids["<|video_pad|>"]
    config.vision_start_token_id, config.vision_end_token_id = ids["<|vision_start|>"], ids["<|vision_end|>"]
    vision = config.vision_config
    pieces = {
        "patch_size": vision.patch_size,
        "merge_size": vision.spatial_merge_size,
        "temporal_patch_size": vision.temporal_patch_size,
    }
    size = {"shortest_edge": min(65536, max_pixels), "longest_edge": max_pixels}
    return Qwen3VLProcessor(
        Qwen2VLImageProcessor(size=size, **pieces),
        fast,
        Qwen3VLVideoProcessor(**pieces),
        chat_template=_TEMPLATE.replace("IMAGE", "'<|vision_start|><|image_pad|><|vision_end|>'"),
    )


def _photo(config: Any, max_pixels: Any) -> tuple[int, int]:
    """Width and height of a photo that takes as many tokens as one can."""
    if config.model_type == "mllama":
        return 2 * config.vision_config.image_size, 2 * config.vision_config.image_size
    piece = config.vision_config.patch_size * config.vision_config.spatial_merge_size
    side = int(max_pixels**0.5) // piece
    return side * piece, max_pixels // (side * piece * piece) * piece
