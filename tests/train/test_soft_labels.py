"""The loss of soft labels against the cross-entropy written out, with and without the shared prefix, however summed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from harness import build, difference, train, trainable

from cprt.answers import render
from cprt.errors import InputError
from cprt.models.decoding.soft_scores import SoftScores
from cprt.prompts import build as build_prompt
from cprt.records import Pair, read_pairs
from cprt.taxonomy import Taxonomy
from train.loading.collator import IGNORED

WIDTH = 0.05


@pytest.fixture
def pairs(mixed_demo) -> list[Pair]:
    """Half of them with attributes and half with the score alone, so that answers and prompts differ in length."""
    rows = read_pairs(mixed_demo.short_pairs / "train.jsonl")[:8]
    prompt = build_prompt("zero_shot").messages()
    assert all(pair.prompt == prompt for pair in rows)
    return [
        replace(pair, completion=answer(render("score", score=pair.score, level=pair.level))) if number % 2 else pair
        for number, pair in enumerate(rows)
    ]


def answer(text: str) -> list[dict]:
    return [{"role": "assistant", "content": [{"type": "text", "text": text}]}]


def written_out(trainer, width: float) -> torch.Tensor:
    """The mean over all labelled tokens of -sum over the vocabulary of soft label x log-probability."""
    tokenizer = trainer.processing_class.tokenizer
    soft = SoftScores(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"], width, Taxonomy.default())
    rows = [trainer.train_dataset[index] for index in range(len(trainer.train_dataset))]
    batch = trainer.data_collator(rows)
    labels = batch.pop("labels")
    batch.pop("softened")
    logs = trainer.model(**batch).logits.log_softmax(-1)
    total = torch.zeros(())
    for row, content in enumerate(rows):
        places = (labels[row] != IGNORED).nonzero()[:, 0].tolist()
        chances = soft.labels(content["completion"][0]["content"][0]["text"], *content["truth"])
        assert len(chances) >= 2
        for number, place in enumerate(places):
            target = torch.zeros(logs.shape[-1])
            for token, chance in chances.get(number, {int(labels[row, place]): 1.0}).items():
                target[token] = chance
            total = total - target @ logs[row, place - 1]
    return total / (labels != IGNORED).sum()


def test_loss_and_gradients_are_those_of_the_written_out_cross_entropy(demo_base, mixed_demo, pairs, tmp_path):
    def made(share: bool, batch: int, width: float | None = WIDTH):
        return build(
            demo_base,
            mixed_demo.images,
            pairs,
            tmp_path,
            share=share,
            score_width=width,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=len(pairs) // batch,
        )

    reference = made(False, 8)
    loss = written_out(reference, WIDTH)
    loss.backward()
    expected = {name: weight.grad.clone() for name, weight in trainable(reference.model).items()}
    for share, batch in ((True, 8), (True, 2), (False, 2)):
        trainer = made(share, batch)
        assert (trainer.plain_reason is None) == share
        (gradients,), _, (our_loss,) = train(trainer)
        assert our_loss == pytest.approx(loss.item(), rel=1e-5)
        assert difference(gradients, expected) < 1e-5
    (hard,), _, _ = train(made(True, 8, None))
    assert difference(hard, expected) > 1e-2  # of the plain labels: another loss


def test_a_pair_without_a_score_is_named(demo_base, mixed_demo, pairs, tmp_path):
    trainer = build(demo_base, mixed_demo.images, pairs, tmp_path, score_width=WIDTH)
    trainer.data_collator.check(pairs)
    for odd, complaint in (
        (replace(pairs[3], score=None), "has no score or no level"),
        (replace(pairs[3], completion=answer('{"score": 0.5}')), "does not end with a score of three decimals"),
    ):
        with pytest.raises(InputError, match=f"score_width: pair {pairs[3].id!r}:? .*{complaint}"):
            trainer.data_collator.check([*pairs[:3], odd])
