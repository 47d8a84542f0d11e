"""Our client with durable rows against a bare loop over AsyncOpenAI, on a server in another process on this machine.

    python benchmarks/client_speed.py [--json FILE] [--calls 2000] [--in_flight 64] [--rounds 3]

The server answers after 50 ms, so that 64 in flight could make 1,280 calls a second: both ways are bound by what a call
costs the client's processor. ``client_ratio`` is the median time of ours over that of the bare loop, in rounds that
alternate: what back-off, checks and durable rows add, less what reading the response strictly and by ourselves saves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cprt.models.ask import Model
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import Messages
from cprt.records import write_json

DELAY = 0.05  # seconds


def serve(pipe: Connection, text: str = '{"score": 0.712}') -> None:
    """A minimal endpoint: every request is answered with ``text`` after DELAY."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 900, "completion_tokens": 8, "total_tokens": 908}
    content = json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    ).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(content),
        content,
    )

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]))  # type: ignore[index]
                await asyncio.sleep(DELAY)
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def messages(number: int) -> Messages:
    return [{"role": "user", "content": [{"type": "text", "text": f"{'How severe is this photo? ' * 40}{number}"}]}]


def bare(url: str, calls: int, in_flight: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time, for the calls through AsyncOpenAI alone; the answers stay in memory."""
    import openai

    async def main() -> None:
        numbers = iter(range(calls))
        texts: list[str | None] = []
        async with openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

            async def work() -> None:
                for number in numbers:
                    content: Any = messages(number)
                    done = await client.chat.completions.create(
                        model="m", messages=content, max_tokens=16, temperature=0.0
                    )
                    texts.append(done.choices[0].message.content)

            await asyncio.gather(*(work() for _ in range(in_flight)))
        assert len(texts) == calls

    start = time.perf_counter(), time.process_time()
    asyncio.run(main())
    return time.perf_counter() - start[0], time.process_time() - start[1]


def ours(url: str, calls: int, in_flight: int) -> tuple[float, float]:
    """The same for the same calls through our engine, until the last row is on disk."""
    row = {"name": "m", "model": "m", "base_url": url, "max_new_tokens": 16, "concurrency": in_flight}
    model = Model(ModelSpec.read(row, "benchmark"))
    with tempfile.TemporaryDirectory() as folder, ResponseCache(Path(folder) / "answers.jsonl") as cache:
        start = time.perf_counter(), time.process_time()
        requests = [Request(messages(n)) for n in range(calls)]
        model.ask(requests, cache, "ours")
        seconds = time.perf_counter() - start[0], time.process_time() - start[1]
        assert all(model.spec.key(request) in cache for request in requests)
    return seconds


def measure(calls: int, in_flight: int, rounds: int) -> dict[str, Any]:
    """Both ways in turn against one server, and the ratio of their medians."""
    receive, send = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(send,), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{receive.recv()}/v1"
        for run in (bare, ours):
            run(url, 2 * in_flight, in_flight)  # imports and first connections
        times = [[run(url, calls, in_flight) for run in (bare, ours)] for _ in range(rounds)]
    finally:
        server.terminate()
        server.join()
    (bare_s, bare_cpu), (ours_s, ours_cpu) = (
        [statistics.median(figure) for figure in zip(*way, strict=True)] for way in zip(*times, strict=True)
    )
    print(f"bare {bare_s:.2f} s, ours with durable rows {ours_s:.2f} s, ratio {ours_s / bare_s:.2f}")
    return {
        "calls": calls,
        "in_flight": in_flight,
        "server_ms": 1000 * DELAY,
        "bare_s": bare_s,
        "ours_s": ours_s,
        "client_ratio": ours_s / bare_s,
        "bare_cpu_ms_a_call": 1000 * bare_cpu / calls,
        "ours_cpu_ms_a_call": 1000 * ours_cpu / calls,
        "rounds": [dict(zip(("bare_s", "ours_s"), (way[0] for way in both), strict=True)) for both in times],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    figures = measure(args.calls, args.in_flight, args.rounds)
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
