"""Models of families that are not known here: probabilities as by brute force, or a line that says why not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from brute_force import log_probabilities
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3_5Config,
)

from cprt.errors import InputError
from cprt.models.decoding import scores
from cprt.models.decoding.score_tree import NUMBERS, ScoreTree
from cprt.models.local import LocalModel
from cprt.prompts import build
from eval import run as eval_command

TEXT = {
    "vocab_size": 1475,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
VISION = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64}
IDS = {"vision_start_token_id": 3, "vision_end_token_id": 4, "image_token_id": 5, "video_token_id": 6}


def save(config, processor, folder: Path) -> Path:
    """A model of random weights, whose vectors are long enough that it looks at what it is given."""
    processor.save_pretrained(folder)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)
    for name, weight in model.named_parameters():
        if weight.ndim >= 2:
            torch.nn.init.normal_(weight, std=0.02 if "lm_head" in name else 0.12)
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=[2], pad_token_id=0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def qwen2_5_vl(demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of positions in three dimensions, as Qwen3-VL's; every pass reads the prompt anew."""
    known = AutoProcessor.from_pretrained(demo_base)
    pieces = Qwen2VLImageProcessor(
        patch_size=14, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 3136, "longest_edge": 9216}
    )
    processor = Qwen2_5_VLProcessor(pieces, known.tokenizer, Qwen2VLVideoProcessor(), chat_template=known.chat_template)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    vision = VISION | {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, "num_hidden_layers": 3, "rope_parameters": rope}, vision_config=vision, **IDS
    )
    return save(config, processor, tmp_path_factory.mktemp("qwen2_5_vl") / "model")


@pytest.fixture(scope="module")
def qwen3_5(demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of linear attention in half of its layers, where a token sees all before it, whatever a mask says."""
    linear = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    text = TEXT | linear | {"num_hidden_layers": 2, "head_dim": 32, "linear_num_value_heads": 4}
    text |= {"layer_types": ["linear_attention", "full_attention"], "rope_parameters": rope}
    text["rope_parameters"]["partial_rotary_factor"] = 0.25
    vision = VISION | {"patch_size": 16, "num_position_embeddings": 36}
    processor = AutoProcessor.from_pretrained(demo_base)
    return save(
        Qwen3_5Config(text_config=text, vision_config=vision, **IDS),
        processor,
        tmp_path_factory.mktemp("qwen3_5") / "model",
    )


def test_scores_of_another_family_are_as_probable_as_by_brute_force(qwen2_5_vl: Path, monkeypatch: pytest.MonkeyPatch):
    """Photos take fewer positions than tokens: those that follow were too high, and probabilities off by a tenth."""
    monkeypatch.setattr(scores, "LEAST", 0.0)
    model, messages = LocalModel(str(qwen2_5_vl), dtype="float32"), build("zero_shot").messages()
    photos = [Image.effect_noise(size, 80).convert("RGB") for size in ((96, 96), (64, 128), (128, 64))]
    rows = [(messages, [photo]) for photo in photos]
    model.check_look_ahead(rows[0])
    tree = ScoreTree.build(model._scores.encode, scores.SCORE_LEAD_IN)
    lead = tree.lead(model._scores.encode, scores.SCORE_LEAD_IN)
    for answer, photo in zip(model.generate(rows, 4, scores.SCORE_LEAD_IN), photos, strict=True):
        for score in ("0.371", "0.000", "0.953"):
            path = tree.paths[NUMBERS.index(score)]
            (found,) = log_probabilities(model, messages, photo, [[*lead, *path]])
            expected = math.exp(sum(found[len(lead) + place, token] for place, token in enumerate(path)))
            if score != "0.000":  # which "0" and its like are as well
                assert answer.distribution[score] == pytest.approx(expected, rel=1e-4)
            assert answer.distribution[score] >= expected * (1 - 1e-4) > 0


def test_a_family_that_cannot_read_branches_is_told_before_it_answers(qwen3_5: Path, demo, tmp_path: Path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(demo.test_labels.read_text().splitlines(keepends=True)[:2]))
    asked = ["--model", str(qwen3_5), "--labels", str(few), "--images", str(demo.images), "--dtype", "float32"]
    asked += ["--max_new_tokens", "4"]
    with pytest.raises(
        InputError, match="is qwen3_5, whose probabilities of all scores and lists cannot be had"
    ) as error:
        eval_command.main([*asked, "--decoding", "expected", "--out", str(tmp_path / "expected")])
    assert "--decoding greedy" in str(error.value) and not (tmp_path / "expected" / "predictions.jsonl").exists()
    eval_command.main([*asked, "--structured", "true", "--out", str(tmp_path / "greedy")])
    assert (tmp_path / "greedy" / "predictions.jsonl").read_text().count('"status": "ok"') == 2
