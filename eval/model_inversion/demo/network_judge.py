"""A judge that sees faces: a network that learnt on other people what makes two pictures show the same person.

It takes the part of a vision-language model where none is at hand that can tell the demo's faces apart, and writes the
files that ``cprt mi`` writes for one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eval.model_inversion.demo.networks import fit, stages

_SCALE, _MARGIN = 16.0, 0.2  # of the cosine softmax


class NetworkJudge:
    """Says yes where a picture is closer than ``threshold`` (a cosine) to the mean of its references.

    The network learns to tell many people apart, in pictures blurred, clouded and noisy at random, with a softmax over
    cosines; only its embedding is kept. People it is asked about later are new to it.
    """

    def __init__(self) -> None:
        body = stages(3, 24, 64, 96)
        self.network = nn.Sequential(nn.AvgPool2d(2), *body, nn.Flatten(), nn.Dropout(0.1), nn.Linear(96 * 16, 64))
        self.threshold = 0.0

    @classmethod
    def train(cls, pictures: Tensor, people: Tensor, *, seed: int, epochs: int) -> NetworkJudge:
        """Learn from (N, 3, 64, 64) pictures of (N,) people; the threshold is still to be chosen."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            judge = cls()
            centres = nn.Parameter(torch.randn(int(people.max()) + 1, 64))
            generator = torch.Generator().manual_seed(seed)

            def loss_of(rows: Tensor) -> Tensor:
                embedded = F.normalize(judge.network(_disturb(pictures[rows], generator)), dim=1)
                cosines = embedded @ F.normalize(centres, dim=1).T
                wanted = F.one_hot(people[rows], len(centres))
                return F.cross_entropy(_SCALE * (cosines - _MARGIN * wanted), people[rows])

            learnt = [*judge.network.parameters(), centres]
            fit(learnt, loss_of, len(people), epochs=epochs, batch=64, generator=generator, what="training the judge")
        judge.network.eval()
        return judge

    def choose_threshold(self, positive: Sequence[float], negative: Sequence[float]) -> None:
        """From similarities of pairs of one person and of two: where errors of both kinds are equally frequent.

        This equal error rate is how face verification sets a threshold that favours neither.
        """
        yes, no = np.sort(positive), np.sort(negative)
        cuts = np.unique(np.concatenate([yes, no]))
        missed = np.searchsorted(yes, cuts) / len(yes)  # below the cut
        passed = 1 - np.searchsorted(no, cuts) / len(no)
        self.threshold = float(cuts[np.abs(missed - passed).argmin()])

    @torch.no_grad()
    def similarities(self, pictures_N3HW: Tensor, references_MR3HW: Tensor) -> Tensor:
        """(N, M) cosines of each picture with the mean of each person's R references."""
        people, each = references_MR3HW.shape[:2]
        of_references = self._embed(references_MR3HW.flatten(0, 1)).view(people, each, -1).mean(dim=1)
        return self._embed(pictures_N3HW) @ F.normalize(of_references, dim=1).T

    def says(self, similarity: float) -> tuple[str, str]:
        """(response, label) as ``cprt mi`` has them."""
        label = "yes" if similarity >= self.threshold else "no"
        return f"{label} (similarity {similarity:.3f}, threshold {self.threshold:.3f})", label

    def _embed(self, pictures_N3HW: Tensor) -> Tensor:
        return torch.cat([F.normalize(self.network(part), dim=1) for part in pictures_N3HW.split(256)])


def _disturb(pictures_B3HW: Tensor, generator: torch.Generator) -> Tensor:
    """Shifted, under smooth clouds of colour, noisy, blurred, each at random: what makes no other person of anybody."""

    def uniform() -> Tensor:
        return torch.rand(len(pictures_B3HW), 1, 1, 1, generator=generator)

    size = pictures_B3HW.shape[-1]
    down, right = torch.randint(-3, 4, (2,), generator=generator).tolist()
    grid = int(torch.randint(4, 13, (1,), generator=generator))
    coarse = torch.randn(len(pictures_B3HW), 3, grid, grid, generator=generator).tanh()
    cloud = (2 * F.interpolate(coarse, size=size, mode="bicubic", align_corners=False)).clamp(-1, 1)
    seen = pictures_B3HW.roll((down, right), (2, 3)) + 0.3 * uniform() * (uniform() < 0.8) * cloud
    seen = seen + 0.06 * uniform() * torch.randn(seen.shape, generator=generator)
    if torch.rand(1, generator=generator) < 0.5:
        side = int(torch.randint(size // 4, size, (1,), generator=generator))
        small = F.interpolate(seen, size=side, mode="bilinear", antialias=True)
        seen = F.interpolate(small, size=size, mode="bilinear", align_corners=False)
    return seen.clamp(0, 1)
