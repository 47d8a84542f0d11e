"""How work grows with its input: what a test may ask of a machine that is slow or busy, where seconds say nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMES = 8  # linear work takes 8 times as long for an input 8 times as long, quadratic work 64 times
LIMIT = 24


def grows_linearly(prepare: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether what ``prepare`` returns for an input of a size takes linear time, between ``size / 8`` and ``size``.

    Both sizes are run in turn and the quickest run of each counts, so that what else the machine does, which only adds
    to a run, cancels out; a busy moment is given four more chances.
    """
    small, large = prepare(size // TIMES), prepare(size)
    shortest = [float("inf"), float("inf")]
    for _ in range(5):
        for at, work in enumerate((small, large)):
            started = time.process_time()
            work()
            shortest[at] = min(shortest[at], time.process_time() - started)
        if shortest[1] < LIMIT * shortest[0]:
            return True
    return False
