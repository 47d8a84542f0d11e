"""Why Llama 3.2 Vision gets its photo first and cannot share a text prefix.

When these fail, transformers has mended its cross-attention (issue 39379): text before the photo no longer depends on
it, and `cprt.prompts` and `train.shared_prefix` may treat this family like the others.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from cprt.models.checkpoint import load_model, load_processor


def hidden_states(base, text: str, seed: int) -> tuple[torch.Tensor, int]:
    """Hidden states (tokens, width) of one text with a random image, and the place of the image token."""
    processor, model = load_processor(str(base)), load_model(str(base), dtype="float32").eval()
    image = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8))
    batch = processor(text=[text], images=[[image]], add_special_tokens=False, return_tensors="pt")
    with torch.inference_mode():
        states = model.model(**batch).last_hidden_state[0]
    return states, int((batch["input_ids"][0] == processor.image_token_id).nonzero()[0, 0])


def test_text_before_the_image_sees_the_image(tiny_mllama):
    """Another image changes the hidden states of the tokens before it, which the mask says do not see it."""
    text = "<|begin_of_text|>Judge the photo by what can be seen.<|image|>How severe is it?"
    (one, place), (two, _) = (hidden_states(tiny_mllama, text, seed) for seed in (0, 1))
    assert place > 5
    assert torch.allclose(one[place:], two[place:], atol=1e-3) is False  # the image matters to what follows it
    assert (one[:place] - two[:place]).abs().amax(dim=1).min() > 1e-3  # and leaks into every token before it


def test_the_same_image_gives_the_same_states(tiny_mllama):
    """The difference above comes from the image, not from chance."""
    text = "<|begin_of_text|>Judge the photo by what can be seen.<|image|>How severe is it?"
    (one, _), (two, _) = (hidden_states(tiny_mllama, text, seed) for seed in (0, 0))
    assert torch.equal(one, two)
