"""What is trained on top of a base model, and what is not computed for it."""

from __future__ import annotations

import pytest
import torch
import trl.trainer.base_trainer
from harness import build

from cprt.records import read_pairs
from train.adapter import prepared


@pytest.mark.parametrize("base, left_alone", [("demo_base", False), ("tiny_mllama", True)])
def test_the_frozen_encoder_is_not_differentiated(base, left_alone, demo, tmp_path, request):
    """The library's hooks for checkpointing put Mllama's on the graph; off it the adapter's gradients are the same."""
    pairs = read_pairs(demo.short_pairs / "train.jsonl")[:2]
    trainer = build(
        request.getfixturevalue(base), demo.images, pairs, tmp_path, share=False, gradient_checkpointing=True
    )
    model, batch = trainer.model, trainer.data_collator([trainer.train_dataset[index] for index in range(2)])

    def step() -> tuple[bool, list[torch.Tensor]]:
        seen = []
        encoder = model.get_base_model().get_encoder("image")
        hook = encoder.register_forward_hook(lambda *of: seen.append(of[-1].last_hidden_state.requires_grad))
        model.train().zero_grad()
        model(**batch).loss.backward()
        hook.remove()
        return seen[0], [weight.grad.clone() for weight in model.parameters() if weight.requires_grad]

    on_graph, gradients = step()
    assert on_graph is left_alone
    prepared(model.get_base_model())
    on_graph, same = step()
    assert not on_graph
    assert any(gradient.any() for gradient in same)
    assert all(torch.equal(one, other) for one, other in zip(gradients, same, strict=True))


def test_no_word_of_a_run_leaves_the_machine(demo_base, demo, tmp_path, monkeypatch):
    """TRL's trainers tell the Hub of every run, unless a variable says otherwise."""
    sent = []
    monkeypatch.setattr(trl.trainer.base_trainer, "send_telemetry", lambda *args, **kwargs: sent.append(args))
    monkeypatch.delenv("CI", raising=False)
    pairs = read_pairs(demo.short_pairs / "train.jsonl")[:1]
    build(demo_base, demo.images, pairs, tmp_path, share=None)
    assert len(sent) == 1  # this is TRL's own trainer
    build(demo_base, demo.images, pairs, tmp_path, share=True)
    assert len(sent) == 1
