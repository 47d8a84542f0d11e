"""Greedy is greedy, whatever generation_config.json asks for; what was used is recorded, cut answers are counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from cprt.errors import InputError
from cprt.models.ask import Model
from cprt.models.local import LocalModel
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request

LONGEST = 64
# The answer repeats itself, so that every penalty would change it.
CONTENT = [{"type": "text", "text": "Look."}, {"type": "image"}, {"type": "text", "text": "What is in each cell?"}]
MESSAGES = [{"role": "user", "content": CONTENT}]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    for number, size in enumerate([(96, 96), (64, 128)]):
        image = Image.effect_mandelbrot(size, (-3, -2.5, 2 - number / 2, 2.5), 100).convert("RGB")
        image.save(folder / f"{number}.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def rows(photos):
    """A question about two photos; the tiny model answers both at length."""
    return [(MESSAGES, [Image.open(photo)]) for photo in photos]


@pytest.fixture(scope="module")
def greedy(demo_base: Path, rows) -> list[str]:
    return [answer.text for answer in LocalModel(str(demo_base), dtype="float32").generate(rows, LONGEST)]


def configured(base: Path, folder: Path, **values) -> Path:
    """The base with other values in its generation_config.json."""
    copy = Path(shutil.copytree(base, folder / "base"))
    path = copy / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return copy


@pytest.mark.parametrize(
    "values",
    [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": "x"},
        {"encoder_repetition_penalty": 2.0},
        {"no_repeat_ngram_size": 2},
        {"num_beams": 4},
        {"num_beams": 2, "num_beam_groups": 2},
        {"min_new_tokens": LONGEST},
        {"min_length": 2000},
        {"max_length": 20},
        {"max_time": 0.0001},
        {"do_sample": True, "temperature": 2.0},
        {"penalty_alpha": 0.6, "top_k": 4},
        {"prompt_lookup_num_tokens": 3},
        {"assistant_early_exit": 2},
        {"forced_eos_token_id": 3},
        {"forced_bos_token_id": 3},
        {"suppress_tokens": [61, 62, 63]},
        {"bad_words_ids": [[61]]},
        {"sequence_bias": [[[61], 50.0]]},
        {"exponential_decay_length_penalty": [1, 9.5]},
        {"watermarking_config": {"bias": 9.0}},
        {"guidance_scale": 3.0},
        {"dola_layers": "low"},
        {"stop_strings": ["e"]},
        {"token_healing": True},
        {"constraints": 1},
        {"cache_implementation": "static"},
        {"use_cache": False},
        {"bos_token_id": "x"},
        {"pad_token_id": None},
        {"custom_generate": "x"},
    ],
    ids=str,
)
def test_what_a_checkpoint_wishes_changes_no_answer(demo_base, rows, greedy, tmp_path, values):
    """Penalties, beams, least lengths and the like: some changed texts without a word, some crashed at the first."""
    model = LocalModel(str(configured(demo_base, tmp_path, **values)), dtype="float32")
    assert [answer.text for answer in model.generate(rows, LONGEST)] == greedy
    assert all(text.startswith('["') and text.endswith('"]') for text in greedy)


@pytest.mark.parametrize("stated", [[], None, -1, "x", 10**6, [5, None], True])
def test_the_tokenizers_own_end_stops_too(demo_base, rows, greedy, tmp_path, stated):
    """A file that names no end, or one that never comes, would have cut off every answer."""
    model = LocalModel(str(configured(demo_base, tmp_path, eos_token_id=stated)), dtype="float32")
    assert model.processor.tokenizer.eos_token_id in model.decoding["eos_token_id"]
    answers = model.generate(rows, LONGEST)
    assert [answer.text for answer in answers] == greedy
    assert [answer.complete for answer in answers] == [True, True]


def test_a_model_whose_answers_never_end_is_refused(demo_base, tmp_path):
    base = configured(demo_base, tmp_path, eos_token_id=10**6)
    for file, text in (("config.json", '"eos_token_id": 2'), ("tokenizer_config.json", '"eos_token": "<|im_end|>"')):
        content = (base / file).read_text()
        assert text in content
        (base / file).write_text(content.replace(text, text.partition(":")[0] + ": null"))
    with pytest.raises(InputError, match="says how answers end"):
        LocalModel(str(base), dtype="float32")


def test_cut_answers_are_counted_and_what_was_used_is_recorded(demo_base, photos, tmp_path, capsys):
    requests = [Request(MESSAGES, (photo,)) for photo in photos]
    for length, said in ((3, "2 of 2 answers ran into max_new_tokens 3 and are cut off"), (LONGEST, "")):
        spec = ModelSpec("m", str(demo_base), max_new_tokens=length, dtype="float32")
        with ResponseCache(tmp_path / f"{length}.jsonl") as cache:
            Model(spec).ask(requests, cache, "asking")
            made = cache.rows(spec.key(requests[0]))[0]["made"]["decoding"]
        assert made == {"do_sample": False, "eos_token_id": [0, 2], "pad_token_id": 0}
        told = [line for line in capsys.readouterr().err.splitlines() if "note" in line]
        assert told == ([f"note: asking: {said}"] if said else [])
