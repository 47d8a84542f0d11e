"""When to ask an endpoint again, how many requests at once, and when to give up. Knows nothing of HTTP libraries."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

from cprt.errors import InputError
from cprt.values import number

RATE_LIMIT_RETRIES = 10  # a window of a minute must pass, with the delays below and without a Retry-After too
LONGEST_WAIT = 600.0  # seconds; an endpoint that wants more is out of quota, and waiting hides it
FAILED_IN_A_ROW = 20  # requests
UNREACHED_TRIES = 2  # where nobody ever answered: no server, or a wrong address
KEPT = "what was answered is kept, run the same command again to go on"


class Stopped(InputError):
    """The run cannot go on (a key that is refused, an endpoint that keeps failing). What was answered is kept."""


def is_retried(status: int) -> bool:
    """Whether an HTTP status may change by asking again: 408, 409, 429 and 5xx."""
    return status in (408, 409, 429) or status >= 500


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds from ``now`` (since the epoch) that a Retry-After header asks to wait: a number or an HTTP date."""
    if header is None:
        return None
    try:
        seconds = number(header.strip())
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return max(0.0, seconds)


def delay(failures: int, first: float = 0.5, longest: float = 30.0) -> float:
    """Seconds before the next try: doubling with every failure, and random, so that many do not come at once."""
    return min(longest, first * 2 ** min(failures - 1, 60)) * random.uniform(0.5, 1.0)


def root_cause(error: BaseException) -> BaseException:
    """What really went wrong: HTTP libraries wrap it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error


def system_words(fault: BaseException) -> str | None:
    """What the system says of a fault, without the address that asyncio adds; None where it says nothing."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    if isinstance(fault, socket.gaierror | ssl.SSLError):  # their numbers are no errno
        return fault.strerror
    return os.strerror(fault.errno) if isinstance(fault, OSError) and fault.errno else None


class RateLimiter:
    """How many calls of one endpoint may fly, and when the run is to stop.

    A rate limit (429) closes the gate for all until it is over and halves how many may fly; each answer then adds a
    little, so that it grows by one in a round of answers. A fault (500, a reset) slows only the request that met it.
    The circuit breaker: ``FAILED_IN_A_ROW`` requests that failed for good with no answer between them stop the run.
    """

    def __init__(self, most: int):
        self.most, self.limit = most, float(most)
        self._flying = 0
        self._open_at = 0.0
        self._failed_in_a_row = 0

    async def enter(self) -> None:
        """Wait until one more call may fly."""
        while True:
            wait = self._open_at - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait * random.uniform(1.0, 1.1))
            elif self._flying >= int(self.limit):
                await asyncio.sleep(0.02)  # only after a rate limit: there are no more askers than ``most``
            else:
                self._flying += 1
                return

    def leave(self) -> None:
        """The call has come back, with whatever result."""
        self._flying -= 1

    def rate_limited(self, wait: float) -> None:
        """Nobody asks for ``wait`` seconds, and fewer at once afterwards."""
        now = time.monotonic()
        if now >= self._open_at:
            self.limit = max(1.0, self.limit / 2)
        self._open_at = max(self._open_at, now + wait)

    def answered(self) -> None:
        self._failed_in_a_row = 0
        self.limit = min(float(self.most), self.limit + 1 / self.limit)

    def failed(self, reason: str) -> None:
        """A request failed for good. Raises Stopped when the endpoint keeps failing."""
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= FAILED_IN_A_ROW:
            failing = f"{FAILED_IN_A_ROW} requests in a row got no answer (the last: {reason})"
            raise Stopped(f"the endpoint keeps failing: {failing}; {KEPT}")
