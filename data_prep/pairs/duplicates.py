"""Photos that show the same thing twice, so that none is trained on and tested on at once.

Exact duplicates have the same pixels. Near duplicates (another size, another compression) are found by a difference
hash: the photo is reduced to 9 x 8 grey pixels, and each of 64 bits says whether a pixel is brighter than its right
neighbour. Two photos are near duplicates when at most ``threshold`` of their bits differ, and no more than a quarter of
the bits that either has: hashes of faint photos are nearly empty, and so near one another whatever the photos show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Of 64 bits. Recompressed or resized copies differ in 0 to 3, photos of different things in about 32.
DEFAULT_THRESHOLD = 4
_BLOCK = 1024  # rows compared at once: 1,024 x N x 8 bytes


@dataclass(frozen=True)
class PhotoHash:
    """``pixels``: SHA-256 of the decoded photo, None for one of a single colour; ``bits``: its difference hash."""

    pixels: str | None
    bits: int


def photo_hash(image: Image.Image) -> PhotoHash:
    """Both hashes of a decoded RGB photo."""
    blank = image.getcolors(maxcolors=1) is not None
    digest = None if blank else hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()
    grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), dtype=np.int16)
    bits = np.packbits((grey[:, :-1] > grey[:, 1:]).ravel())
    return PhotoHash(digest, int.from_bytes(bits.tobytes(), "big"))


def clusters(hashes: Sequence[PhotoHash], threshold: int | None = DEFAULT_THRESHOLD) -> list[list[int]]:
    """Groups of two or more photos that are duplicates of one another, as indices, each in ascending order.

    At most ``threshold`` bits may differ; None finds exact duplicates only. A chain of near duplicates is one group.
    Photos of a single colour show nothing that could be learnt, and are no duplicates; where only the hash has no
    contrast (all bits 0), photos are compared exactly.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not hashes:
        return []
    first: dict[str, int] = {}
    pairs = [(i, first.setdefault(one.pixels, i)) for i, one in enumerate(hashes) if one.pixels is not None]
    if threshold is not None:
        pairs += _near(np.asarray([one.bits for one in hashes], dtype=np.uint64), threshold)
    here, there = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(pairs)), (here, there)), shape=(len(hashes), len(hashes)))
    groups: dict[int, list[int]] = {}
    for i, group in enumerate(connected_components(links, directed=False)[1].tolist()):
        groups.setdefault(group, []).append(i)
    return sorted(group for group in groups.values() if len(group) > 1)


def _near(bits: NDArray[np.uint64], threshold: int) -> list[tuple[int, int]]:
    """Pairs (i, j), j < i, of near duplicates: of (N,) hashes, as the module says."""
    found = []
    for start in range(0, len(bits), _BLOCK):
        block = bits[start : start + _BLOCK]
        differing = np.bitwise_count(block[:, None] ^ bits[None, :])  # (block, N)
        either = np.bitwise_count(block[:, None] | bits[None, :])
        near = (differing <= threshold) & (4 * differing.astype(np.int16) <= either) & (either > 0)
        for i, j in zip(*np.nonzero(near), strict=True):
            if j < start + i:
                found.append((start + int(i), int(j)))
    return found
