"""What a local model finds probable behind a prompt, in passes over trees of all that it could go on with.

Behind the prompt stand the tokens of a tree, each seeing only its own ancestors. Torch when used.

Shapes: B rows, L tokens of the prompt (padding in front or behind the prefix), T of the largest tree, S columns, which
are L and what was read since, V of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

KEEPING = ("qwen3_vl", "mllama")  # families whose keys and values are kept; others read their prompt in every pass


class TokenTree:
    """Sequences of tokens with their beginnings shared. Node 0 is what stands before; every other carries a token.

    ``nodes`` are tokens from the root -> number of the node, parents before children; ``tokens``, ``parents`` and
    ``depths`` those of each node but the root.
    """

    def __init__(self, paths: Iterable[tuple[int, ...]]):
        inner = {path[:length] for path in paths for length in range(len(path) + 1)} | {()}
        self.nodes = {path: number for number, path in enumerate(sorted(inner, key=lambda path: (len(path), path)))}
        below = [path for path in self.nodes if path]
        self.tokens = [path[-1] for path in below]
        self.parents = [self.nodes[path[:-1]] for path in below]
        self.depths = [len(path) for path in below]

    @property
    def is_chain(self) -> bool:
        return len(set(self.depths)) == len(self.depths)


class Reading:
    """A batch of prompts, and what a model reads behind them in one pass after another; the first reads them too.

    A token sees the prompt, what was taken, and its ancestors in its tree (tree attention). Keys and values are kept.
    What was read and not taken stays among them, where nothing sees it again.

    Args:
        base: the model as ``transformers`` has it, any adapter injected; inputs: what it is given of the prompts.
        cache: of the prefix that all rows begin with.
    """

    def __init__(self, base: Any, inputs: Any, cache: Any = None):
        from cprt.models.prefix_cache import empty_cache

        self._base, family = base, base.config.model_type
        if cache is None and family in KEEPING:
            cache = empty_cache(base.config.get_text_config().num_hidden_layers)
        self._cache = cache
        ids_BL, mask_BL = inputs["input_ids"], inputs["attention_mask"]
        positions, ends_B1 = (mask_BL.cumsum(1) - 1).clamp(min=0), mask_BL.sum(dim=1, keepdim=True)
        if family == "qwen3_vl":
            positions = positions.expand(3, -1, -1)
        spans = {name: inputs[name] for name in ("mm_token_type_ids", "image_grid_thw") if name in inputs}
        # Of Qwen's and its like: an image takes fewer positions than tokens.
        if len(spans) == 2 and hasattr(base.model, "get_rope_index"):
            positions, less_B1 = base.model.get_rope_index(ids_BL, **spans, attention_mask=mask_BL)
            ends_B1 = ends_B1 + less_B1
        self._inputs = {**inputs, "position_ids": positions}
        self._asked_BL, self._ends_B1 = mask_BL.bool().cpu().numpy(), ends_B1.cpu().numpy()
        self._seen_BS, self._next_B1 = self._asked_BL, self._ends_B1  # columns that what comes next sees; its position
        self._knows_prompt, self._last = False, 0  # the last pass's first column

    def read(self, trees: Sequence[TokenTree]) -> tuple[Any, int]:
        """Logits of what comes behind each node of each row's tree, (B, T or one more, V), padded at the end.

        With them the first node that they are of: 0 where the prompts were read as well, else 1.
        """
        import torch

        most = max(len(tree.tokens) for tree in trees)
        tokens_BT, depths_BT = np.zeros((2, len(trees), most), dtype=np.int64)
        for row, tree in enumerate(trees):
            tokens_BT[row, : len(tree.tokens)], depths_BT[row, : len(tree.tokens)] = tree.tokens, tree.depths
        asked, places_BT = self._inputs, self._next_B1 + np.maximum(depths_BT - 1, 0)
        tail = torch.from_numpy(tokens_BT).to(asked["input_ids"])
        inputs: dict[str, Any] = {
            "input_ids": tail,
            "position_ids": torch.from_numpy(places_BT).to(tail).expand(*asked["position_ids"].shape[:-1], -1),
        }
        if "cross_attention_mask" in asked:  # Mllama: what follows sees the photos as the last token does
            inputs["cross_attention_mask"] = asked["cross_attention_mask"][:, -1:].expand(-1, most, -1, -1)
        before, fresh = self._cache.get_seq_length() if self._cache is not None else 0, 0
        if not self._knows_prompt:
            if "mm_token_type_ids" in asked:
                inputs["mm_token_type_ids"] = torch.zeros_like(tail)
            whole = {
                name: torch.cat([asked[name], of_tail], dim=-1 if of_tail.ndim < 4 else 1)
                for name, of_tail in inputs.items()
            }
            inputs = {**asked, **{name: one[..., before:] if one.ndim < 4 else one for name, one in whole.items()}}
            fresh = asked["input_ids"].shape[1] - before
        inputs["attention_mask"] = self._mask(trees, most, fresh).to(tail.device)
        if self._cache is not None:
            inputs["cache"] = self._cache
        logits = self._base(**inputs, logits_to_keep=most + (fresh > 0)).logits
        if self._cache is not None:
            self._knows_prompt = True
            self._last, self._seen_BS = self._seen_BS.shape[1], np.pad(self._seen_BS, ((0, 0), (0, most)))
        return logits, int(fresh == 0)

    def take(self, chosen: Sequence[Sequence[int]]) -> None:
        """Go on behind ``chosen`` nodes of the trees that were read last, for each row a way down from the root."""
        for row, nodes in enumerate(chosen):
            self._seen_BS[row, [self._last + node - 1 for node in nodes]] = True
        self._next_B1 = self._next_B1 + np.array([[len(nodes)] for nodes in chosen])

    def rewind(self) -> None:
        """Go back to the end of the prompts."""
        if self._cache is not None:
            added = self._seen_BS.shape[1] - self._asked_BL.shape[1]
            crossing = getattr(self._base.config.get_text_config(), "cross_attention_layers", ())
            for number, layer in enumerate(self._cache.layers):
                if number not in crossing:  # these hold photos
                    layer.crop(-added)
        self._seen_BS, self._next_B1 = self._asked_BL, self._ends_B1

    def _mask(self, trees: Sequence[TokenTree], most: int, fresh: int) -> Any:
        """What each token of this pass sees: ``fresh`` ones of the prompts, then ``most`` of the trees.

        Where no tree has branches, a token sees the columns before it, and the library's own mask does.
        """
        import torch

        if all(tree.is_chain for tree in trees):
            return torch.from_numpy(np.pad(self._seen_BS, ((0, 0), (0, most)), constant_values=True)).long()
        (rows, width), old = self._asked_BL.shape, self._seen_BS.shape[1]
        sees_BNS = np.zeros((rows, fresh + most, old + most), dtype=bool)
        sees_BNS[:, :fresh, :width] = self._asked_BL[:, None] & np.tri(width, dtype=bool)[width - fresh :]
        sees_BNS[:, fresh:, :old] = self._seen_BS[:, None]
        for row, tree in enumerate(trees):
            for node, parent in enumerate(tree.parents, start=1):
                if parent:
                    sees_BNS[row, fresh + node - 1] = sees_BNS[row, fresh + parent - 1]
                sees_BNS[row, fresh + node - 1, old + node - 1] = True
        return torch.where(torch.from_numpy(sees_BNS), 0.0, torch.finfo(self._base.dtype).min)[:, None].to(
            self._base.dtype
        )


def look_ahead(reading: Reading, leads: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> list[Any]:
    """For each row, (nodes, V) logits of what comes behind every node of its tree, in one pass from the prompts' end.

    ``leads``: for each row, tokens between prompt and tree, at least one.
    """
    reading.rewind()
    whole = [TokenTree([(*lead, *path) for path in tree.nodes]) for lead, tree in zip(leads, trees, strict=True)]
    logits, first = reading.read(whole)
    return [
        of_row[len(lead) - first : len(lead) - first + len(tree.nodes)]
        for of_row, lead, tree in zip(logits, leads, trees, strict=True)
    ]
