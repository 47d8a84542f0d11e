"""The embedding of the attributes, f(x) = normalize(x^T E), trained with the ordinal triplet loss (paper A.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from cprt.errors import InputError
from data_prep.boundaries.options import BoundariesArguments
from data_prep.boundaries.vectors import Floats, Ints, Vectors

if TYPE_CHECKING:
    from torch import Tensor


def train(vectors: Vectors, args: BoundariesArguments) -> tuple[Floats, list[float]]:
    """(A, dim) attribute embeddings E and the mean loss of every epoch. The same seed gives the same numbers.

    Raises InputError when training diverges.
    """
    import torch
    from torch.nn.functional import normalize

    generator = torch.Generator().manual_seed(args.seed)
    shape = vectors.x.shape[1], args.dim
    matrix = torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) / args.dim**0.5)
    optimizer = torch.optim.AdamW([matrix], lr=args.learning_rate, weight_decay=args.weight_decay)
    x = torch.from_numpy(vectors.x)
    levels = torch.from_numpy(vectors.levels)
    vector_of_row = np.repeat(np.arange(len(vectors.counts)), vectors.counts)
    rng = np.random.default_rng(args.seed)
    losses = []
    for _ in tqdm(range(args.epochs), desc="train embedding", unit="epoch", leave=False):
        triplets = torch.from_numpy(vector_of_row[sample_triplets(vectors.levels[vector_of_row], rng)])  # (3, T)
        total = 0.0
        for batch in triplets.split(args.batch_size, dim=1):
            anchor, positive, negative = (normalize(x[index] @ matrix, dim=1) for index in batch)
            gap = (levels[batch[0]] - levels[batch[2]]).abs()
            loss = triplet_loss(anchor, positive, negative, gap, args.base_margin, args.beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.shape[1]
        losses.append(total / triplets.shape[1])
        if not np.isfinite(losses[-1]):
            raise InputError(f"the loss is {losses[-1]} after {len(losses)} epochs: choose a lower --learning_rate")
    return matrix.detach().numpy(), losses


def sample_triplets(levels: Ints, rng: np.random.Generator) -> Ints:
    """(3, T) rows: every row once as an anchor, in random order, with another of its level and one of another level.

    ``levels`` are (N,). A row that is alone in its level is no anchor.
    """
    by_level = np.argsort(levels, kind="stable")
    _, start, size = np.unique(levels[by_level], return_index=True, return_counts=True)
    anchor = rng.permutation(len(levels))  # positions in by_level, where a level is one stretch
    group = np.searchsorted(start, anchor, side="right") - 1
    anchor, group = anchor[size[group] > 1], group[size[group] > 1]
    start, size = start[group], size[group]
    positive = start + rng.integers(size - 1)
    positive += positive >= anchor  # skips the anchor itself
    negative = rng.integers(len(levels) - size)
    negative += np.where(negative >= start, size, 0)  # skips the anchor's level
    return by_level[np.stack([anchor, positive, negative])]


def triplet_loss(anchor: Tensor, positive: Tensor, negative: Tensor, gap: Tensor, base: float, beta: float) -> Tensor:
    """Eq. 4: the mean over (T, d) unit vectors; ``gap`` (T,) is how many levels lie between anchor and negative."""
    from torch import relu

    nearer = (1 - (anchor * positive).sum(1)) - (1 - (anchor * negative).sum(1))  # difference of cosine distances
    return relu(nearer + base + beta * gap.to(nearer.dtype)).mean()  # whole numbers times 0.12 would be float32


def embed(x: Floats, matrix: Floats) -> Floats:
    """(U, A) vectors -> (U, d) unit vectors; a vector without attributes stays at the origin."""
    z = x @ matrix
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    embeddings: Floats = z / np.where(norm > 0, norm, 1.0)
    return embeddings
