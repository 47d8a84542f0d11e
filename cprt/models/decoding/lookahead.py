"""What a local model finds probable behind a prompt, in one pass over a tree of all that it could go on with.

Behind prompt and lead-in stand the tokens of a tree, each seeing only its own ancestors. Torch when used.

Shapes: B rows, L tokens of the prompt (padding in front or behind the prefix), T of the tail, which is the lead-in
(padded in front) and then the nodes of the tree, S = L + T, V of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class TokenTree:
    """Sequences of tokens with their beginnings shared. Node 0 is what stands before; every other carries a token.

    Attributes:
        nodes: tokens from the root -> number of the node; parents before children.
        tokens, parents, depths: of each node but the root.
    """

    def __init__(self, paths: Iterable[tuple[int, ...]]):
        inner = {path[:length] for path in paths for length in range(len(path) + 1)} | {()}
        self.nodes = {path: number for number, path in enumerate(sorted(inner, key=lambda path: (len(path), path)))}
        below = [path for path in self.nodes if path]
        self.tokens = [path[-1] for path in below]
        self.parents = [self.nodes[path[:-1]] for path in below]
        self.depths = [len(path) for path in below]


def look_ahead(
    model: Any, base: Any, inputs: Any, cache: Any, leads: Sequence[Sequence[int]], trees: Sequence[TokenTree]
) -> Any:
    """(B, nodes of the largest tree, V) logits of what comes behind every node, padded at the end.

    Args:
        model: as ``transformers`` has it, with an adapter or without; ``base`` the same without.
        inputs: what ``generate`` was given.
        cache: what it computed of the prompts, for Qwen3-VL; it is left with more in it, and may be given again.
        leads: for each row, tokens between prompt and tree, at least one.
    """
    import torch

    device, dtype = model.device, model.dtype
    ids_BL, mask_BL = inputs["input_ids"], inputs["attention_mask"]
    rows, width = ids_BL.shape
    longest, nodes = max(map(len, leads)), max(len(tree.tokens) for tree in trees)
    tail_BT = np.zeros((rows, longest + nodes), dtype=np.int64)
    positions_BT = np.zeros_like(tail_BT)  # counted from the end of the prompt
    sees_BTS = np.zeros((rows, longest + nodes, width + longest + nodes), dtype=bool)
    sees_BTS[:, :, :width] = mask_BL.bool().cpu().numpy()[:, None]
    for row, (lead, tree) in enumerate(zip(leads, trees, strict=True)):
        start, root = longest - len(lead), longest - 1
        last = longest + len(tree.tokens)
        tail_BT[row, start:longest], tail_BT[row, longest:last] = lead, tree.tokens
        positions_BT[row, start:longest] = np.arange(len(lead))
        positions_BT[row, longest:last] = len(lead) - 1 + np.asarray(tree.depths, dtype=np.int64)
        sees_BTS[row, start:longest, width + start : width + longest] = np.tri(len(lead), dtype=bool)
        for node, parent in enumerate(tree.parents, start=1):
            sees_BTS[row, root + node] = sees_BTS[row, root + parent]
            sees_BTS[row, root + node, width + root + node] = True
    sees = torch.from_numpy(sees_BTS)
    tail, positions = torch.from_numpy(tail_BT).to(ids_BL), torch.from_numpy(positions_BT).to(device)
    counted_B1 = mask_BL.sum(dim=1, keepdim=True)
    if model.config.model_type == "qwen3_vl":
        delta_B1 = torch.zeros_like(counted_B1)  # an image takes fewer positions than tokens
        if "image_grid_thw" in inputs:
            spans = {name: inputs[name] for name in ("mm_token_type_ids", "image_grid_thw")}
            _, delta_B1 = base.model.get_rope_index(ids_BL, **spans, attention_mask=mask_BL)
        after = (positions + counted_B1 + delta_B1).expand(3, -1, -1)
        cache.crop(width - cache.get_seq_length())  # only the answer is taken back
        model_inputs = {"input_ids": tail, "position_ids": after, "cache": cache}
    else:
        before = (mask_BL.cumsum(1) - 1).clamp(min=0)
        model_inputs = {
            **inputs,
            "input_ids": torch.cat([ids_BL, tail], dim=1),
            "position_ids": torch.cat([before, positions + counted_B1], dim=-1),
        }
        if "cross_attention_mask" in inputs:  # Mllama: what follows sees the photos as the last token does
            crossing = inputs["cross_attention_mask"]
            last_seen = crossing[:, -1:].expand(-1, tail.shape[1], -1, -1)
            model_inputs["cross_attention_mask"] = torch.cat([crossing, last_seen], dim=1)
        of_prompt = mask_BL.bool().cpu()[:, None] & torch.ones((width, width), dtype=torch.bool).tril()
        sees = torch.cat([torch.nn.functional.pad(of_prompt, (0, longest + nodes)), sees], dim=1)
    bias = torch.where(sees, 0.0, torch.finfo(dtype).min)[:, None]
    model_inputs["attention_mask"] = bias.to(device, dtype)
    return model(**model_inputs, logits_to_keep=nodes + 1).logits  # from the lead-in's last token on
