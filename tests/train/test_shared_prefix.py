"""Shared-prefix training is stock TRL's training, to rounding: losses, gradients and weights are compared."""

from __future__ import annotations

import copy
import json
import math
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from datasets import Dataset
from harness import build, difference, train, trainable
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import get_peft_model
from transformers import BitsAndBytesConfig
from transformers.trainer_utils import set_seed
from trl import SFTTrainer

from cprt.models.checkpoint import load_model
from cprt.models.prefix_cache import common_prefix
from cprt.prompts import build as build_prompt
from cprt.records import Pair, read_pairs
from cprt.taxonomy import Taxonomy
from train.holdout import HoldOut
from train.loading.pair_dataset import pair_dataset
from train.shared_prefix import SharedPrefixTrainer, plain_reason

# In float32, relative: what another order of summation gives.
GRADIENT_TOLERANCE = 1e-5
WEIGHT_TOLERANCE = 1e-4


@pytest.fixture
def pairs(mixed_demo) -> list[Pair]:
    """Pairs with a short prompt, images of five sizes, and answers of different lengths."""
    return read_pairs(mixed_demo.short_pairs / "train.jsonl")


@pytest.fixture
def long_pairs(mixed_demo) -> list[Pair]:
    """The same with the whole taxonomy as the prompt."""
    return read_pairs(mixed_demo.pairs / "train.jsonl")


def compare(ours: Any, stock: Any, steps: int) -> tuple[float, float]:
    """Train both, compare the losses: the worst gradient of the first step, the worst weight at the end, relative."""
    our_gradients, our_adapter, our_losses = train(ours)
    gradients, adapter, losses = train(stock)
    assert len(our_gradients) == len(gradients) == len(our_losses) == steps
    for our_loss, loss in zip(our_losses, losses, strict=True):
        assert our_loss == pytest.approx(loss, rel=1e-5)
    return difference(our_gradients[0], gradients[0]), difference(our_adapter, adapter)


def test_one_window_of_four_by_four(demo_base, mixed_demo, long_pairs, tmp_path):
    """Loss and every LoRA gradient, with the real prompt, with and without checkpointing, against stock TRL."""
    lengths = {len(pair.completion[0]["content"][0]["text"]) for pair in long_pairs[:16]}
    assert len(lengths) > 3
    options = dict(per_device_train_batch_size=4, gradient_accumulation_steps=4)
    stock = build(demo_base, mixed_demo.images, long_pairs, tmp_path, share=None, **options)
    (expected,), _, (loss,) = train(stock)
    for checkpointing in (False, True):
        ours = build(
            demo_base, mixed_demo.images, long_pairs, tmp_path, gradient_checkpointing=checkpointing, **options
        )
        prefixes = record_prefixes(ours)
        (gradients,), _, (our_loss,) = train(ours)
        assert ours.plain_reason is None and prefixes[0] > 500
        assert our_loss == pytest.approx(loss, rel=1e-5)
        assert difference(gradients, expected) < GRADIENT_TOLERANCE


@pytest.mark.slow
def test_twenty_steps(demo_base, mixed_demo, pairs, tmp_path):
    """The adapters of 20 AdamW steps agree, although each step starts from the last one's rounding."""
    options = dict(per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=20)
    ours, stock = (
        build(demo_base, mixed_demo.images, pairs, tmp_path, share=share, **options) for share in (True, None)
    )
    before = {name: weight.detach().clone() for name, weight in trainable(ours.model).items()}
    _, worst = compare(ours, stock, steps=20)
    assert worst < WEIGHT_TOLERANCE
    moved = {name: weight.detach() for name, weight in trainable(ours.model).items()}
    assert difference(moved, before) > 100 * WEIGHT_TOLERANCE  # they have gone somewhere together


@pytest.mark.parametrize(
    "rows, batch, accumulation",
    [(4, 4, 1), (11, 2, 3)],
    ids=["window of one micro-batch", "incomplete last window and batch"],
)
def test_windows_of_other_shapes(demo_base, mixed_demo, pairs, tmp_path, rows, batch, accumulation):
    """11 rows are windows of 3 and 3 micro-batches, the last one of a single row; two epochs of them."""
    options = dict(
        per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=-1, num_train_epochs=2
    )
    ours, stock = (
        build(demo_base, mixed_demo.images, pairs[:rows], tmp_path, share=share, **options) for share in (True, None)
    )
    steps = 2 * math.ceil(math.ceil(rows / batch) / accumulation)
    gradient, weight = compare(ours, stock, steps)
    assert gradient < GRADIENT_TOLERANCE and weight < 5 * WEIGHT_TOLERANCE


def test_prompts_that_differ(demo_base, mixed_demo, pairs, tmp_path):
    """Two prompts in turn: what is shared is what both begin with."""
    other = build_prompt("zero_shot").messages()
    other[0]["content"][0]["text"] = other[0]["content"][0]["text"].replace("from 0 to 1", "from zero to one")
    mixed = [
        Pair(pair.id, pair.images, other if number % 2 else pair.prompt, pair.completion)
        for number, pair in enumerate(pairs[:8])
    ]
    whole = record_prefixes(build(demo_base, mixed_demo.images, pairs[:8], tmp_path), run=True)
    options = dict(per_device_train_batch_size=4, gradient_accumulation_steps=2)
    ours, stock = (
        build(demo_base, mixed_demo.images, mixed, tmp_path, share=share, **options) for share in (True, None)
    )
    lengths = record_prefixes(ours)
    gradient, _ = compare(ours, stock, steps=1)
    assert 0 < lengths[0] < whole[0]
    assert gradient < GRADIENT_TOLERANCE


def test_windows_that_mix_both_questions(demo_base, mixed_demo, long_pairs, tmp_path):
    """Pairs that ask for the score among those that ask for attributes: what is shared is the taxonomy alone."""
    alone = build_prompt("taxonomy", "score").messages()
    assert long_pairs[0].prompt == build_prompt("taxonomy", "attributes").messages()
    mixed = [
        replace(
            pair,
            prompt=alone,
            completion=[{"role": "assistant", "content": [{"type": "text", "text": f'{{"score": {pair.score:.3f}}}'}]}],
        )
        if number % 4 in (0, 1) or number < 8
        else pair
        for number, pair in enumerate(long_pairs[:16])
    ]
    options = dict(
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=2,
        train_sampling_strategy="sequential",
    )
    ours, stock = (
        build(demo_base, mixed_demo.images, mixed, tmp_path, share=share, **options) for share in (True, None)
    )
    lengths = record_prefixes(ours)
    (our_gradients, adapter, losses), (gradients, expected, stock_losses) = train(ours), train(stock)
    assert lengths[0] > lengths[1] > 500  # the first window asks for the score alone, the second for both
    assert losses == pytest.approx(stock_losses, rel=1e-5)
    assert all(difference(one, other) < GRADIENT_TOLERANCE for one, other in zip(our_gradients, gradients, strict=True))
    assert difference(adapter, expected) < WEIGHT_TOLERANCE


@pytest.mark.parametrize("with_image", [(0, 1, 0, 1), (1, 0, 0, 1), (1, 1, 0, 0), (0, 0, 0, 0)])
def test_rows_without_an_image(demo_base, mixed_demo, pairs, tmp_path, with_image):
    """Rows without an image, first, last, in a micro-batch of their own, or everywhere."""
    rows = text_rows(pairs[:4], mixed_demo.images, with_image)
    options = dict(
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        dataset=dataset(rows),
        train_sampling_strategy="sequential",
    )
    ours, stock = (build(demo_base, mixed_demo.images, (), tmp_path, share=share, **options) for share in (True, None))
    gradient, _ = compare(ours, stock, steps=1)
    assert gradient < GRADIENT_TOLERANCE


def test_an_answer_inside_the_common_text(demo_base, mixed_demo, pairs, tmp_path):
    """One row's answer is another row's context: its labels must not vanish into the prefix."""
    question = {
        "role": "user",
        "content": [{"type": "text", "text": "Is a photo of a street private? Answer briefly."}],
    }
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Hardly."}]}
    (photo,) = text_rows(pairs[:1], mixed_demo.images, (1,))
    rows = [{**photo, "prompt": [question, answer, *photo["prompt"]]}]
    rows.append({**photo, "prompt": [question], "completion": [answer], "images": []})
    options = dict(per_device_train_batch_size=2, dataset=dataset(rows), train_sampling_strategy="sequential")
    ours, stock = (build(demo_base, mixed_demo.images, (), tmp_path, share=share, **options) for share in (True, None))
    gradient, _ = compare(ours, stock, steps=1)
    assert gradient < GRADIENT_TOLERANCE


def test_windows_without_common_text(trainer):
    """Nothing in common, or nothing at all, is the plain path; one token in common is shared."""
    for rows, prefix in (([[7, 1, 3, 9], [8, 1, 3, 9]], None), ([[7, 1, 3, 9], [7, 2, 3, 9]], [[7]]), ([], None)):
        vision_start = trainer.model.config.vision_start_token_id
        batches = [token_batch([vision_start if token == 3 else token for token in row]) for row in rows]
        got, _ = trainer.get_batch_samples(iter(batches), 2, torch.device("cpu"))
        assert got == batches
        window = trainer._window
        assert (window and window.prefix.tolist()) == prefix


@pytest.mark.slow
def test_evaluation_between_the_steps_changes_nothing(demo_base, mixed_demo, pairs, tmp_path):
    """Evaluation runs on whole rows, gives stock's loss, and leaves the training as it was."""
    held_out = pair_dataset(pairs[16:22], mixed_demo.images, "qwen3_vl")
    options = dict(per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=3)
    evaluation = dict(eval_strategy="steps", eval_steps=1, eval_on_start=True)
    losses, adapters = [], []
    for share, evaluate in ((True, True), (None, True), (True, False)):
        trainer = build(
            demo_base,
            mixed_demo.images,
            pairs[:16],
            tmp_path,
            share=share,
            held_out=held_out,
            **options,
            **(evaluation if evaluate else {}),
        )
        adapters.append(train(trainer)[1])
        losses.append([entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry])
    assert len(losses[0]) == 4 and losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert difference(adapters[0], adapters[2]) == 0
    assert difference(adapters[0], adapters[1]) < WEIGHT_TOLERANCE


@pytest.mark.slow
def test_two_processes(demo_base, mixed_demo, pairs, root, tmp_path):
    """Two processes over gloo, with and without checkpointing, end where one process ends at an equal global batch."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "accelerate.commands.accelerate_cli",
            "launch",
            "--multi_gpu",
            "--num_processes",
            "2",
            "--num_machines",
            "1",
            "--mixed_precision",
            "no",
            "--dynamo_backend",
            "no",
            "--main_process_port",
            str(port),
            str(root / "tests" / "train" / "ddp_worker.py"),
            json.dumps(
                {
                    "base": str(demo_base),
                    "images": str(mixed_demo.images),
                    "pairs": str(mixed_demo.short_pairs / "train.jsonl"),
                    "output": str(tmp_path),
                }
            ),
        ],
        check=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    stock = build(
        demo_base,
        mixed_demo.images,
        pairs[:16],
        tmp_path,
        share=None,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=2,
    )
    (expected, *_), adapter, _ = train(stock)
    holdout = HoldOut(pairs[:3], mixed_demo.images, 2, 16, Taxonomy.default())
    figures = holdout.measure(stock.model, stock.processing_class)
    for name in ("stock", "shared", "checkpointed"):
        result = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert result["processes"] == 2
        assert result["holdout"].keys() == figures.keys()
        for figure, value in figures.items():  # None where a figure is undefined
            assert result["holdout"][figure] == (value if value is None else pytest.approx(value, rel=1e-6)), figure
        assert difference(result["gradients"], expected) < GRADIENT_TOLERANCE, name
        assert difference(result["adapter"], adapter) < WEIGHT_TOLERANCE, name


@pytest.fixture(scope="module")
def trainer(demo_base, mixed_demo, tmp_path_factory) -> SharedPrefixTrainer:
    """A trainer that shares, whose settings a test may change."""
    pairs = read_pairs(mixed_demo.short_pairs / "train.jsonl")
    return build(demo_base, mixed_demo.images, pairs[:4], tmp_path_factory.mktemp("trainer"))


@pytest.mark.parametrize(
    "setting, value, reason",
    [
        ("args.fp16", True, "fp16"),
        ("args.torch_compile", True, "torch.compile"),
        ("args.use_liger_kernel", True, "Liger"),
        ("model.config.text_config._attn_implementation", "flash_attention_2", "attention by flash_attention_2"),
        ("args.neftune_noise_alpha", 5.0, "NEFTune"),
        ("args._n_gpu", 2, "several GPUs"),
        ("model_accepts_loss_kwargs", False, "accepts_loss_kwargs"),
        ("model.active_peft_config.lora_dropout", 0.1, "dropout"),
        ("model.config.text_config.attention_dropout", 0.1, "dropout"),
        ("accelerator.state.distributed_type", DistributedType.DEEPSPEED, "DEEPSPEED"),
    ],
)
def test_plain_path_for_a_setting(trainer, monkeypatch, setting, value, reason):
    """Each setting under which sharing is not proved exact is named; without it, the same trainer shares."""
    assert plain_reason(trainer) is None
    *path, name = setting.split(".")
    target = trainer
    for part in path:
        target = getattr(target, part)
    if setting.startswith("accelerator.state"):
        monkeypatch.setitem(target._shared_state, name, value)
    else:
        monkeypatch.setattr(target, name, value)
    assert reason in plain_reason(trainer)


def test_only_the_second_fsdp_shares(trainer, monkeypatch):
    """As test_scale.py proves it exact there; four bits on top are not proved."""
    state = trainer.accelerator.state._shared_state
    monkeypatch.setitem(state, "distributed_type", DistributedType.FSDP)
    monkeypatch.setitem(state, "fsdp_plugin", FullyShardedDataParallelPlugin(fsdp_version=1))
    assert plain_reason(trainer) == "FSDP shards the weights"
    monkeypatch.setitem(state, "fsdp_plugin", FullyShardedDataParallelPlugin(fsdp_version=2))
    assert plain_reason(trainer) is None
    monkeypatch.setattr(trainer.model.base_model.model, "is_quantized", True, raising=False)
    assert plain_reason(trainer) == "the weights are both in four bits and sharded"


def test_reentrant_checkpointing_is_plain(trainer, monkeypatch):
    """Reentrant checkpointing is refused, the default (not reentrant) is not."""
    monkeypatch.setattr(trainer.args, "gradient_checkpointing", True)
    assert plain_reason(trainer) is None
    monkeypatch.setattr(trainer.args, "gradient_checkpointing_kwargs", {"use_reentrant": True})
    assert "reentrant" in plain_reason(trainer)


def test_models_that_take_the_plain_path(demo_base, tiny_mllama, mixed_demo, pairs, tmp_path, trainer, monkeypatch):
    """Another architecture, a model without adapter, one in eight bits, and the switch."""
    mllama = build(tiny_mllama, mixed_demo.images, pairs[:2], tmp_path)
    assert "mllama" in mllama.plain_reason
    assert build(demo_base, mixed_demo.images, pairs[:2], tmp_path, share=False).plain_reason == "switched off"
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "model", load_model(str(demo_base), dtype="float32"))
        assert "no adapter" in plain_reason(trainer)
    eight_bits = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["model.visual", "lm_head"])
    quantised = load_model(str(demo_base), dtype="float32", quantization_config=eight_bits)
    monkeypatch.setattr(trainer, "model", get_peft_model(quantised, trainer.model.active_peft_config))
    assert "not in four bits" in plain_reason(trainer)


def test_dropout_trains_as_stock_does(demo_base, mixed_demo, pairs, tmp_path):
    """Where sharing is not exact it is really off: with dropout and one seed, stock's adapter bit for bit."""
    options = dict(per_device_train_batch_size=2, gradient_accumulation_steps=2, dropout=0.2)
    adapters = []
    for share in (True, None):
        trainer = build(demo_base, mixed_demo.images, pairs[:8], tmp_path, share=share, **options)
        set_seed(0)
        adapters.append(train(trainer)[1])
    assert difference(*adapters) == 0


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_common_prefix_against_a_loop(data):
    """Any rows over a small alphabet, 0 for padding and 3 for the start of an image."""
    token = st.integers(0, 3)
    stem = data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=6))
    batches = []
    for _ in range(data.draw(st.integers(1, 3))):
        rows = [
            stem[: data.draw(st.integers(0, 6))] + data.draw(st.lists(token, min_size=1, max_size=4))
            for _ in range(data.draw(st.integers(1, 3)))
        ]
        width = max(map(len, rows))
        batches.append(torch.tensor([row + [0] * (width - len(row)) for row in rows]))
    rows = [row for batch in batches for row in batch.tolist()]
    expected = 0
    if 3 in rows[0]:
        while rows[0][expected] != 3 and all(
            len(row) > expected and row[expected] == rows[0][expected] for row in rows
        ):
            expected += 1
    assert common_prefix(batches, vision_start=3) == expected


@pytest.mark.parametrize(
    "batches, length",
    [
        ([[[1, 2, 1, 3, 9]], [[1, 2, 1, 3, 8]]], 3),  # up to the image, which starts with 3
        ([[[1, 2, 3, 9, 9]], [[2, 2, 3, 9, 9]]], 0),  # nothing in common
        ([[[1, 2, 1, 3, 9], [1, 2, 0, 0, 0]]], 2),  # a short row, padded
        ([[[1, 2, 1, 3, 9]], [[1, 2]]], 2),  # a batch that is shorter than the prefix
        ([[[1, 2, 1, 1, 1]], [[1, 2, 1, 1, 1]]], 0),  # no image: nothing to stop before, nothing is shared
        ([[[3, 1, 1, 9, 9]], [[3, 1, 1, 9, 9]]], 0),  # the image comes first
        ([[[1, 2, 1, 3, 9], [1, 3, 1, 3, 9]]], 1),  # another row's image starts earlier
    ],
)
def test_common_prefix_cases(batches, length):
    """The cases that matter, by hand."""
    assert common_prefix([torch.tensor(batch) for batch in batches], vision_start=3) == length


def record_prefixes(trainer: SharedPrefixTrainer, run: bool = False) -> list[int]:
    """Lengths of the prefixes that the language model computes alone: rows of one, before the first micro-batch."""
    lengths: list[int] = []

    def seen(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        if "logits_to_keep" in inputs:
            lengths.append(inputs["input_ids"].shape[1])

    trainer.model.get_base_model().register_forward_pre_hook(seen, with_kwargs=True)
    if run:
        trainer.train()
    return lengths


def text_rows(pairs: list[Pair], images: Path, with_image: tuple[int, ...]) -> list[dict[str, Any]]:
    """Rows of which some have lost their image."""
    rows = pair_dataset(pairs, images, "qwen3_vl")
    out = []
    for row, keep in zip(rows, with_image, strict=True):
        if not keep:
            content = [part for part in row["prompt"][0]["content"] if part["type"] == "text"]
            row = {**row, "prompt": [{"role": "user", "content": content}], "images": []}
        out.append(row)
    return out


def dataset(rows: list[dict[str, Any]]) -> Dataset:
    """The rows as the trainer wants them, unchanged."""

    def take(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        # The collator changes the rows it is given.
        return {name: copy.deepcopy([rows[index][name] for index in batch["index"]]) for name in rows[0]}

    return Dataset.from_dict({"index": list(range(len(rows)))}).with_transform(take)


def token_batch(ids: list[int]) -> dict[str, torch.Tensor]:
    """A batch of one row, labelled on its last token."""
    row = torch.tensor([ids])
    labels = torch.full_like(row, -100)
    labels[0, -1] = ids[-1]
    return {"input_ids": row, "labels": labels, "attention_mask": torch.ones_like(row)}


def test_logits_are_computed_where_there_are_labels(trainer):
    """From the first label of the batch on, and no earlier; the loss is TRL's, which computes them all on a CPU."""
    batch = trainer._prepare_inputs(trainer.data_collator([trainer.train_dataset[index] for index in range(4)]))
    scored: list[int] = []
    base = trainer.model.get_base_model()
    hook = base.register_forward_hook(lambda module, args, output: scored.append(output.label_mask.shape[1]))
    loss = trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=50)
    whole = SFTTrainer.compute_loss(trainer, trainer.model, dict(batch), num_items_in_batch=50)
    hook.remove()
    length = batch["labels"].shape[1]
    first = int((batch["labels"] != -100).any(dim=0).nonzero()[0, 0])
    assert scored == [length - first, length - 1] and first > 10
    assert float(loss) == pytest.approx(float(whole), rel=1e-6)
