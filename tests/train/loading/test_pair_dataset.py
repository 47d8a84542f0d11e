"""The loss is taken on the answer, the whole answer and nothing else, and the answer sees the photo."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from cprt.errors import InputError
from cprt.models.checkpoint import load_model, load_processor
from cprt.prompts import arrange, build, digest
from cprt.records import Pair, read_pairs
from train.checks import preview_labels
from train.loading.collator import IGNORED, PairCollator
from train.loading.pair_dataset import check_pairs, digests, pair_dataset, prompt_of

MAX_PIXELS = 9216
FAMILIES = {"qwen3_vl": ("demo_base", "<|im_end|>"), "mllama": ("tiny_mllama", "<|eot_id|>")}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, mixed_demo) -> SimpleNamespace:
    """A model family with its collator and eight rows: images of five sizes, answers of different lengths."""
    fixture, end = FAMILIES[request.param]
    base = str(request.getfixturevalue(fixture))
    processor = load_processor(base, max_pixels=MAX_PIXELS)
    pairs = read_pairs(mixed_demo.short_pairs / "train.jsonl")[:8]
    answers = [pair.completion[0]["content"][0]["text"] for pair in pairs]
    assert len(set(map(len, answers))) > 3
    dataset = pair_dataset(pairs, mixed_demo.images, request.param)
    collate = PairCollator(processor)
    return SimpleNamespace(
        name=request.param,
        end=end,
        processor=processor,
        pairs=pairs,
        answers=answers,
        images=mixed_demo.images,
        dataset=dataset,
        collate=lambda indices: collate([dataset[index] for index in indices]),
        collator=collate,
        model=load_model(base, dtype="float32").eval(),
    )


def answer_log_probs(model, batch) -> list[torch.Tensor]:
    """Log-probabilities of the labelled tokens of each row, each given all that stands before it."""
    labels = batch["labels"]
    with torch.inference_mode():
        logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    logs = logits[:, :-1].log_softmax(-1)
    return [
        logs[row][labelled][torch.arange(int(labelled.sum())), labels[row, 1:][labelled]]
        for row, labelled in enumerate(labels[:, 1:] != IGNORED)
    ]


def test_labels_are_the_answer_and_its_end(family):
    """The labelled tokens of a real batch, decoded with special tokens, are the answer and the end of the turn."""
    batch = family.collate(range(8))
    labels = batch["labels"]
    texts = [family.processor.tokenizer.decode(row[row != IGNORED], skip_special_tokens=False) for row in labels]
    assert texts == [answer + family.end for answer in family.answers]
    assert torch.equal(labels[labels != IGNORED], batch["input_ids"][labels != IGNORED])  # each label is its own token
    assert batch["attention_mask"][labels != IGNORED].all()


def test_no_label_is_the_image_token(family):
    """The image stands in every row once, as often as the model has tokens for it, and never among the labels."""
    batch = family.collate(range(8))
    token = family.model.config.image_token_id
    assert not (batch["labels"] == token).any()
    expected = batch["image_grid_thw"].prod(1) // 4 if family.name == "qwen3_vl" else torch.ones(8, dtype=torch.long)
    assert (batch["input_ids"] == token).sum(1).tolist() == expected.tolist()
    assert family.name == "mllama" or len(set(expected.tolist())) > 1


def test_the_prompt_is_the_one_of_evaluation(family):
    """What stands before the first label is, token for token, what a model is asked at evaluation."""
    for index, pair in enumerate(family.pairs):
        batch = family.collate([index])
        first = int((batch["labels"][0] != IGNORED).nonzero()[0, 0])
        text = family.processor.apply_chat_template(arrange(pair.prompt, family.name), add_generation_prompt=True)
        image = family.dataset[index]["images"]
        asked = family.processor(text=[text], images=[image], add_special_tokens=False, return_tensors="pt")
        assert batch["input_ids"][0, :first].tolist() == asked["input_ids"][0].tolist()


@pytest.mark.parametrize("family", ["qwen3_vl"], indirect=True)
def test_a_batch_is_that_of_stock_trl(family):
    """Photos one by one, the prompt once: the same tensors as of whole texts.

    TRL's collator leaves Mllama's answers without the photo: there is nothing to compare with.
    """
    stock = DataCollatorForVisionLanguageModeling(family.processor, max_length=None, completion_only_loss=True)
    ours, theirs = family.collate(range(8)), stock([family.dataset[index] for index in range(8)])
    assert ours.keys() == theirs.keys()
    ends = (theirs["labels"] == family.processor.tokenizer.eos_token_id).long().cumsum(1)
    theirs["labels"][(ends > 0) & (theirs["labels"] != family.processor.tokenizer.eos_token_id)] = IGNORED
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name


def test_a_batch_is_its_rows(family):
    """Rows of different lengths in one batch get the same tokens, labels and answer probabilities as alone."""
    together = family.collate(range(8))
    batched = answer_log_probs(family.model, together)
    lengths = together["attention_mask"].sum(1)
    assert len(set(lengths.tolist())) > 3
    for index in range(8):
        alone = family.collate([index])
        for name in ("input_ids", "labels", "attention_mask"):
            assert torch.equal(together[name][index, : lengths[index]], alone[name][0])
            padding = together[name][index, lengths[index] :]
            fill = (
                family.processor.tokenizer.pad_token_id if name == "input_ids" else IGNORED if name == "labels" else 0
            )
            assert (padding == fill).all()
        (log_probs,) = answer_log_probs(family.model, alone)
        assert torch.allclose(batched[index], log_probs, atol=1e-4)


def test_the_answer_sees_the_image(family, tmp_path):
    """Another image of the same size changes the probability of every kind of answer token."""
    pair = family.pairs[0]
    other = tmp_path / pair.images[0]
    other.parent.mkdir(parents=True)
    with Image.open(family.images / pair.images[0]) as image:
        noise = np.random.default_rng(0).integers(0, 256, (image.height, image.width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(other, quality=95)
    (changed,) = pair_dataset([pair], tmp_path, family.name)
    batches = [family.collate([0]), family.collator([changed])]
    assert torch.equal(batches[0]["input_ids"], batches[1]["input_ids"])
    (before,), (after,) = (answer_log_probs(family.model, batch) for batch in batches)
    assert (before - after).abs().min() > 0
    assert float((before - after).abs().mean()) > 1e-3


def test_cross_attention_reaches_the_answer(tiny_mllama, mixed_demo):
    """Mllama: every token from the image on, the answer's last one included, sees all tiles that the photo has."""
    processor = load_processor(str(tiny_mllama))
    pairs = read_pairs(mixed_demo.short_pairs / "train.jsonl")[:8]
    dataset = pair_dataset(pairs, mixed_demo.images, "mllama")
    batch = PairCollator(processor)([dataset[index] for index in range(8)])
    seen = batch["cross_attention_mask"]
    assert seen.shape[:2] == batch["input_ids"].shape
    tiles = batch["aspect_ratio_mask"][:, 0].sum(1)
    assert len(set(tiles.tolist())) > 1
    for row in range(8):
        image = int((batch["input_ids"][row] == processor.image_token_id).nonzero()[0, 0])
        end = int(batch["attention_mask"][row].sum())
        assert not seen[row, :image].any()
        assert (seen[row, image:end, 0, : tiles[row]] == 1).all()
        assert not seen[row, :, 0, tiles[row] :].any()


def test_a_template_that_changes_the_answer_is_refused(family, monkeypatch):
    """The preview at the start of a run compares labels and answers, and says what would be learnt instead."""

    def trainer() -> SimpleNamespace:
        collator = PairCollator(family.processor)
        return SimpleNamespace(train_dataset=family.dataset, data_collator=collator, processing_class=family.processor)

    assert preview_labels(trainer()) == [answer + family.end for answer in family.answers[:2]]
    template = family.processor.chat_template
    assert "part.text" in template
    monkeypatch.setattr(family.processor, "chat_template", template.replace("part.text", "part.text | upper"))
    with pytest.raises(InputError, match="the loss would be taken on .*ATTRIBUTES.* not on the answer .*attributes"):
        preview_labels(trainer())


def test_a_missing_image_is_named(family):
    """A pair whose image is gone is refused before training, with file and pair."""
    gone = Pair("some-id", ["images/val2017/gone.jpg"], family.pairs[0].prompt, family.pairs[0].completion)
    with pytest.raises(InputError, match=r"images/val2017/gone\.jpg: no such image \(pair 'some-id'\)"):
        pair_dataset([family.pairs[0], gone], family.images, family.name)


def test_two_prompts_are_trained_where_the_record_beside_the_pairs_names_both(demo, demo_base, tmp_path, capsys):
    pairs = read_pairs(demo.short_pairs / "train.jsonl")[:8]
    other = replace(pairs[1], prompt=build("intuition").messages())
    mixed, file, processor = [pairs[0], other, *pairs[2:]], tmp_path / "train.jsonl", load_processor(str(demo_base))
    with pytest.raises(InputError, match=f"pair {other.id!r} is asked otherwise than {pairs[0].id!r}"):
        check_pairs(mixed, file, processor, 8)
    named = {"sha256": digest(pairs[0].prompt), "also": {"sha256": digest(other.prompt)}}
    (tmp_path / "run.json").write_text(json.dumps({"prompt": named}))
    check_pairs(mixed, file, processor, 8)
    assert prompt_of(mixed, file) == named and digests(mixed) == sorted([named["sha256"], named["also"]["sha256"]])
    third = [*mixed[:-1], replace(mixed[-1], prompt=build("zero_shot_hints").messages())]
    with pytest.raises(InputError, match="is asked otherwise than"):
        check_pairs(third, file, processor, 8)
    assert capsys.readouterr().out == ""
    assert prompt_of(pairs, file)["name"] is None and "does not name the prompt" in capsys.readouterr().out
