"""When an endpoint is asked again, and how many requests are in flight."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

import pytest
from endpoints import ask, ask_text, echo
from loopback import Misbehaving

from cprt.models.rate_limiter import (
    RATE_LIMIT_RETRIES,
    RateLimiter,
    delay,
    is_retried,
    retry_after,
)
from cprt.models.spec import Response


def test_retry_after_is_read_as_seconds_or_date():
    now = 1_800_000_000.0
    assert retry_after(None, now) is None and retry_after("soon", now) is None and retry_after("nan", now) is None
    assert retry_after("7", now) == 7 and retry_after("0.25", now) == 0.25 and retry_after("-3", now) == 0
    assert retry_after(formatdate(now + 90, usegmt=True), now) == pytest.approx(90)
    assert retry_after(formatdate(now - 90, usegmt=True), now) == 0


def test_delays_double_with_jitter_up_to_a_limit():
    for failures, full in ((1, 0.5), (2, 1.0), (5, 8.0), (9, 30.0), (10_000, 30.0)):
        delays = [delay(failures) for _ in range(200)]
        assert full / 2 <= min(delays) < max(delays) <= full and len(set(delays)) > 100


def test_which_statuses_are_asked_again():
    assert [status for status in range(300, 600) if is_retried(status)] == [408, 409, 429, *range(500, 600)]


def test_an_endpoint_that_wants_a_day_is_not_waited_for():
    with Misbehaving(echo, lambda who, earlier: "429") as server:
        server_respond = server._respond

        async def tomorrow(body: Any, writer: Any) -> None:
            content = b'{"error": {"message": "daily quota"}}'
            writer.write(
                b"HTTP/1.1 429 X\r\nretry-after: 86400\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
            )

        server._respond = tomorrow  # type: ignore[method-assign]
        assert ask(server, [ask_text("a")]) == [Response(error="HTTP 429: daily quota")]
        server._respond = server_respond  # type: ignore[method-assign]


def test_a_rate_limit_closes_the_gate_for_all_and_halves_the_flight():
    async def main() -> list[float]:
        limiter, limits = RateLimiter(64), []
        for _ in range(5):
            limiter.rate_limited(0.05)  # many at once: one closing
        limits.append(limiter.limit)
        start = time.monotonic()
        await limiter.enter()
        assert time.monotonic() - start >= 0.05
        limiter.leave()
        for _ in range(8):
            limiter.rate_limited(0.0)
            limiter._open_at = 0.0
        limits.append(limiter.limit)
        for _ in range(32):
            limiter.answered()
        limits.append(limiter.limit)
        return limits

    halved, least, grown = asyncio.run(main())
    assert (halved, least) == (32.0, 1.0) and 7 < grown < 9  # 1 -> n takes about n (n + 1) / 2 answers


def test_an_endpoint_that_takes_three_at_once_answers_all_forty():
    """Sixteen ask it: without fewer in flight the retries of some would run out."""

    def crowded(body: dict[str, Any]) -> Any:
        if server.in_flight > 3:
            return 429, {"error": {"message": "too many"}}
        return echo(body)

    with Misbehaving(crowded, delay=0.02) as server:
        responses = ask(server, [ask_text(f"q{n}") for n in range(40)])
    assert [response.text for response in responses] == [f"Q{n}" for n in range(40)]


def test_rate_limits_without_end_become_an_error():
    with Misbehaving(lambda body: (429, {"error": {"message": "never"}})) as server:
        (response,) = ask(server, [ask_text("a")])
    assert str(response.error).startswith("HTTP 429: never") and len(server.bodies) == RATE_LIMIT_RETRIES + 1
