"""Recipes rehearsed: the real training step on an imagined card, and what ``cprt fit`` says of it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from transformers import AutoModelForImageTextToText

from cprt.errors import InputError
from train.adapter import lora_config
from train.fit import rehearsal
from train.fit import run as fit_run
from train.fit.architectures import config_of, qwen3_vl
from train.fit.card import imagined_card
from train.fit.rehearsal import Figures, rehearse
from train.fit.run import largest, main, read_recipe

RECIPES = Path(__file__).resolve().parents[3] / "configs" / "sft"
WEIGHTS = {  # in the published checkpoints
    "Qwen/Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
    "meta-llama/Llama-3.2-11B-Vision-Instruct": 10_670_220_835,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_models_of_the_recipes_have_their_published_sizes(name):
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config_of(name), dtype=torch.bfloat16)
    assert sum(weight.numel() for weight in model.parameters()) == WEIGHTS[name]


SMALL = "--global_batch_size 8 --per_device_train_batch_size 1 --per_device_eval_batch_size 2".split()


def small(name: str, *options: str):
    """A recipe with two layers of the language model, one of the encoder and a step of eight pairs."""
    pixels = ["--max_pixels", "65536"] if name.startswith("qwen") else []
    _, (config, *rest) = read_recipe(["--config", str(RECIPES / f"{name}.yaml"), *SMALL, *pixels, *options])
    if name.startswith("qwen"):
        config = qwen3_vl("tiny")
    else:
        config.text_config.update({"num_hidden_layers": 2, "cross_attention_layers": [1], "hidden_size": 128})
        config.text_config.update({"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256})
        config.vision_config.update({"num_hidden_layers": 1, "num_global_layers": 1, "hidden_size": 64})
        config.vision_config.update({"attention_heads": 4, "intermediate_size": 128, "vision_output_dim": 128})
        config.vision_config.intermediate_layers_indices = [0]
    return config, *rest


def figures(rows: int, *options: str) -> Figures:
    return rehearse(*small("qwen3_vl_2b", "--eval_strategy", "no", *options), rows)


EXPECTED = ("--metric_for_best_model", "expected_mae")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, options",
    [("qwen3_vl_2b", EXPECTED), ("llama_3_2_11b", ()), ("llama_3_2_11b", EXPECTED)],
)
def test_a_recipe_is_rehearsed_without_a_fault(name, options):
    """Training step, optimiser and hold-out; a prefix is shared where it can be."""
    seen = rehearse(*small(name, *options), 2)
    assert seen.peak > seen.fixed > 0 and seen.flops > 0
    assert (seen.plain_reason is None) is (name == "qwen3_vl_2b")


@pytest.mark.slow
def test_each_option_shows_in_the_figures():
    """The prefix once saves FLOPs; checkpointing saves memory and costs FLOPs; four bits save weights."""
    as_it_is = figures(4)
    plain = figures(4, "--shared_prefix", "false")
    whole = figures(4, "--gradient_checkpointing", "false")
    four_bits = figures(4, "--load_in_4bit", "true")
    assert plain.flops > 1.5 * as_it_is.flops
    assert whole.flops < 0.9 * as_it_is.flops and whole.peak > as_it_is.peak
    assert four_bits.fixed < as_it_is.fixed and four_bits.plain_reason is None
    assert four_bits.flops == pytest.approx(as_it_is.flops, rel=0.01)


@pytest.mark.slow
def test_the_micro_batch_changes_nothing_but_memory():
    """A step of eight pairs needs the same FLOPs however it is cut, rehearsed whole or counted up from three parts."""
    assert figures(4).flops == pytest.approx(figures(1).flops, rel=0.01)


@pytest.mark.slow
def test_the_largest_micro_batch_is_the_last_that_fits():
    recipe = small("qwen3_vl_2b", "--eval_strategy", "no")
    peaks = [rehearse(*recipe, rows, limit=1e12).peak for rows in (2, 4)]
    assert largest(recipe, room=(peaks[0] + peaks[1]) / 2) == 2
    assert largest(recipe, room=1e6) is None


def test_a_micro_batch_leaves_nothing_behind(monkeypatch):
    """From the second one on, when all gradients are there, as much memory is in use before each."""
    from train.shared_prefix import SharedPrefixTrainer

    live, cards, real = [], [], SharedPrefixTrainer.compute_loss

    def compute_loss(self, *args, **kwargs):
        live.append(cards[0].live)
        return real(self, *args, **kwargs)

    @contextmanager
    def kept(*args):
        with imagined_card(*args) as card:
            cards.append(card)
            yield card

    monkeypatch.setattr(SharedPrefixTrainer, "compute_loss", compute_loss)
    monkeypatch.setattr(rehearsal, "imagined_card", kept)
    monkeypatch.setattr(rehearsal, "_WINDOW", 5)
    figures(1)
    assert len(live) == 5 and live[0] < live[1] == live[2] == live[3] == live[4]


def test_a_fault_of_the_code_is_found(monkeypatch):
    """Positions left on the processor, as they would be met on a card."""
    from train.shared_prefix import SharedPrefixTrainer

    real = SharedPrefixTrainer._without_prefix

    def faulty(self, inputs, cache):
        inputs = real(self, inputs, cache)
        return {**inputs, "input_ids": inputs["input_ids"].cpu()}

    monkeypatch.setattr(SharedPrefixTrainer, "_without_prefix", faulty)
    with pytest.raises(RuntimeError, match="same device"):
        figures(2)


@pytest.mark.slow
def test_the_command_says_what_a_recipe_needs(demo_base, capsys):
    recipe = str(RECIPES / "qwen3_vl_2b.yaml")
    options = ["--model_name_or_path", str(demo_base), "--search", "false", "--tflops", "1", "--utilisation", "0.5"]
    main(["--config", recipe, *SMALL, "--max_pixels", "65536", "--gpu", "2", *options])
    first, waiting, needs, shared, step = capsys.readouterr().out.splitlines()
    assert first == f"{demo_base}, imagined card of 2 GB, 1.5 of them for libraries"
    assert waiting == "one step at full size, which takes a minute or two ..."
    assert re.fullmatch(r"as it is, micro-batch 1: \d\d MB, \d MB of them weights and adapter; fits", needs)
    assert shared == "shared prefix: yes"
    found = re.fullmatch(r"([\d.,]+) GFLOP a step: ([\d.]+) s at 50% of 1 TFLOP/s; 80 steps take ([\d.]+) s", step)
    assert float(found[2]) == pytest.approx(2 * float(found[1]) / 1000, rel=0.5) and float(found[2]) > 0


@pytest.mark.parametrize(
    "peak, fixed, flops, most, says",
    [
        (
            30e9,
            20e9,
            2e15,
            8,
            "30.0 GB, 20.0 GB of them weights and adapter; does not fit: the recipe's first lines say what to change"
            "|2,000 TFLOP a step: 16.0 s at 40% of 312 TFLOP/s; 80 steps take 21 minutes|  8\n",
        ),
        (
            4e7,
            1e6,
            5e9,
            128,
            "40 MB, 1 MB of them weights and adapter; fits"
            "|5.0 GFLOP a step: 4e-05 s at 40% of 312 TFLOP/s; 80 steps take 0.003 s|128 (the whole batch)",
        ),
    ],
)
def test_small_numbers_are_numbers_and_what_does_not_fit_says_how_to_go_on(
    monkeypatch, capsys, peak, fixed, flops, most, says
):
    monkeypatch.setattr(fit_run, "rehearse_quietly", lambda *_: Figures(int(fixed), int(peak), int(flops), None))
    monkeypatch.setattr(fit_run, "largest", lambda *_: most)
    main(["--config", str(RECIPES / "qwen3_vl_2b.yaml")])
    out = capsys.readouterr().out
    assert all(part in out for part in says.split("|")), out


def test_our_own_options_are_checked_before_the_recipe(monkeypatch):
    monkeypatch.setattr(fit_run, "read_recipe", lambda argv: pytest.fail("it takes seconds"))
    with pytest.raises(InputError, match="gpu must be more than 0, not 0.0"):
        main(["--config", "none.yaml", "--gpu", "0"])


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--gpu", "0"], "gpu must be more than 0, not 0.0"),
        (["--utilisation", "1.5"], "utilisation must be more than 0 and at most 1, not 1.5"),
        (["--max_pixels", "null"], "max_pixels is missing: without it a photo takes up to 16k tokens"),
        (["--per_device_train_batch_size", "3"], "global_batch_size 128 is not a multiple of"),
    ],
)
def test_what_cannot_be_rehearsed_is_said_in_one_line(options, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        main(["--config", str(RECIPES / "qwen3_vl_2b.yaml"), *options])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_vl_2b", "qwen3_vl_4b", "qwen3_vl_8b", "llama_3_2_11b"])
def test_a_recipes_note_says_what_the_rehearsal_finds(name):
    """At full size: gigabytes as it is, and of weights and adapter."""
    note = (RECIPES / f"{name}.yaml").read_text()
    said = re.search(r"as it is ([\d.]+) GB at most,\s+([\d.]+) of them weights and adapter", note.replace("\n#", ""))
    _, recipe = read_recipe(["--config", str(RECIPES / f"{name}.yaml")])
    seen = rehearse(*recipe, recipe[3].per_device_train_batch_size, limit=1e12)
    # When Python lets go of a tensor differs a little from run to run, and with it the peak.
    assert float(said[1]) == pytest.approx(seen.peak / 1e9, rel=0.03)
    assert float(said[2]) == pytest.approx(seen.fixed / 1e9, abs=0.06)


@pytest.mark.parametrize("name", ["qwen3_vl_2b", "qwen3_vl_4b", "qwen3_vl_8b", "llama_3_2_11b"])
def test_a_recipes_note_says_what_weights_and_adapter_take(name):
    """The same for the part that needs no rehearsal: weights in two bytes, an adapter of rank 64 in four."""
    note = (RECIPES / f"{name}.yaml").read_text()
    said = re.search(r"([\d.]+) of them weights and adapter", note.replace("\n#", ""))
    _, (config, _, model_args, *_) = read_recipe(["--config", str(RECIPES / f"{name}.yaml")])
    with torch.device("meta"):
        model = get_peft_model(
            AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16), lora_config(model_args)
        )
    adapter = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    weights = sum(weight.numel() for weight in model.parameters()) - adapter
    assert float(said[1]) == pytest.approx((2 * weights + 4 * adapter) / 1e9, abs=0.06)
