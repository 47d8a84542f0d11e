"""What a model finds probable behind a prompt: a plain pass over each whole answer, nothing shared, no look ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from cprt.models.local import LocalModel
from cprt.prompts import arrange


def log_probabilities(
    model: LocalModel, messages: Any, photo: Image.Image, answers: Sequence[Sequence[int]]
) -> np.ndarray:
    """(answers, tokens of the longest + 1, V) of what comes before and behind every token of each answer.

    Answers are tokens, since tokens of a text may merge with the prompt's last.
    """
    import torch

    longest = max(map(len, answers))
    prompt = model.processor.apply_chat_template(arrange(messages, model.model_type), add_generation_prompt=True)
    inputs = model.processor(
        text=[prompt] * len(answers), images=[[photo]] * len(answers), add_special_tokens=False, return_tensors="pt"
    )
    tail = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in answers])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
    inputs["attention_mask"] = torch.nn.functional.pad(inputs["attention_mask"], (0, longest), value=1)
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, longest))
    if "cross_attention_mask" in inputs:
        seen = inputs["cross_attention_mask"]
        inputs["cross_attention_mask"] = torch.cat([seen, seen[:, -1:].expand(-1, longest, -1, -1)], dim=1)
    with torch.inference_mode():
        logits = model.model(**inputs, logits_to_keep=longest + 1).logits
    return logits.double().log_softmax(-1).numpy()
