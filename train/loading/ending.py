"""Imported by the server alone that the processes which read ahead are forked from: none of them outlives the trainer.

Each of them holds the pipe open by whose end the server would see that the trainer is gone. After a kill, which tells
nobody, they would wait for one another for ever. On Linux the kernel ends them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from train.loading.workers import TRAINER

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(parent: int) -> None:
    """Have this process killed when its ``parent`` ends, which may have happened already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if sys.platform == "linux" and TRAINER in os.environ:
    end_with(int(os.environ[TRAINER]))
    server = os.getpid()
    os.register_at_fork(after_in_child=lambda: end_with(server))
