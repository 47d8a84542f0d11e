"""The calls of ``cprt mi`` against the usual sequential loop, on a server in another process on this machine.

    python benchmarks/mi_calls.py [--json FILE] [--calls 640] [--sequential 40] [--in_flight 64] [--delay 0.2]

Every call carries one panel of five tiles as a JPEG in base64 and is answered "No" after ``delay`` seconds. The loop is
a synchronous OpenAI client that opens the panel, encodes it, asks and writes a row; it makes fewer calls, since each
takes as long as every other. Ours checks that nothing but pixels goes along, keeps every answer on disk before it
counts, and has ``in_flight`` calls in the air. ``calls_speedup`` is the median time a call of the loop over ours, in
rounds that alternate; ``*_cpu_ms_a_call`` is processor time, which other work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import csv
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cprt.models.ask import Model
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.records import write_json
from eval.model_inversion.judge.drawing import TILE, draw
from eval.model_inversion.judge.prompts import OURS, SUBJECTS

SUBJECT = SUBJECTS["person"]
MESSAGES = OURS.messages(SUBJECT, False, "panel", 4, True)


def serve(pipe: Connection, delay: float) -> None:
    """A minimal endpoint: every request is answered after ``delay`` seconds."""
    message = {"role": "assistant", "content": "No"}
    content = json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", request, re.IGNORECASE)[1]))  # type: ignore[index]
                await asyncio.sleep(delay)
                writer.write(head + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024, limit=2**22)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def generate(folder: Path, count: int) -> list[Path]:
    """Seeded panels, all different."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        coarse = [Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(5)]
        a, *b = (image.resize((TILE, TILE), Image.Resampling.BICUBIC) for image in coarse)
        paths.append(folder / f"{number}.jpg")
        draw(a, b, SUBJECT.request).save(paths[-1], quality=95, subsampling=0)
    return paths


def loop(url: str, panels: list[Path], out: Path) -> None:
    """One call after the other."""
    import openai

    texts = [part.get("text", "") for part in MESSAGES[0]["content"]]
    with open(out, "w", newline="") as file, openai.OpenAI(api_key="none", base_url=url) as client:
        rows = csv.writer(file)
        for panel in panels:
            image = f"data:image/jpeg;base64,{base64.b64encode(panel.read_bytes()).decode()}"
            content: Any = [
                {"type": "text", "text": texts[0]},
                {"type": "image_url", "image_url": {"url": image}},
                {"type": "text", "text": texts[2]},
            ]
            messages: Any = [{"role": "user", "content": content}]
            done = client.chat.completions.create(model="m", messages=messages, max_tokens=16, temperature=0.0)
            rows.writerow([panel.name, done.choices[0].message.content])


def ours(url: str, panels: list[Path], out: Path, in_flight: int) -> None:
    """All calls through the engine, until the last row is on disk."""
    row = {"name": "m", "model": "m", "base_url": url, "max_new_tokens": 16, "concurrency": in_flight}
    model = Model(ModelSpec.read(row, "benchmark"))
    with ResponseCache(out) as cache:
        requests = [Request(MESSAGES, (path,)) for path in panels]
        model.ask(requests, cache, "ours")
        assert all(cache.rows(model.spec.key(request))[0].get("text") == "No" for request in requests)


def clock() -> tuple[float, float]:
    """Seconds passed, and seconds of processor time used by all threads of this process."""
    return time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=640)
    parser.add_argument("--sequential", type=int, default=40, help="calls of the loop")
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.2, help="seconds that an answer takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    receive, send = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(send, args.delay), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{receive.recv()}/v1"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            panels = generate(folder, args.calls)
            loop(url, panels[:2], folder / "warm.csv")  # imports and first connections
            ours(url, panels[:2], folder / "warm.jsonl", 2)
            rounds = []
            for number in range(args.rounds):
                times = [clock()]
                loop(url, panels[: args.sequential], folder / f"{number}.csv")
                times.append(clock())
                ours(url, panels, folder / f"{number}.jsonl", args.in_flight)
                times.append(clock())
                counts = args.sequential, args.sequential, args.calls, args.calls
                spent = [later - earlier for pair in pairwise(times) for earlier, later in zip(*pair, strict=True)]
                rounds.append([seconds / count for seconds, count in zip(spent, counts, strict=True)])
            kilobytes = statistics.mean(path.stat().st_size for path in panels) / 1000
    finally:
        server.terminate()
        server.join()
    loop_s, loop_cpu, ours_s, ours_cpu = (statistics.median(times) for times in zip(*rounds, strict=True))
    figures = {
        "calls": args.calls,
        "in_flight": args.in_flight,
        "server_ms": 1000 * args.delay,
        "panel_kilobytes": kilobytes,
        "loop_ms_a_call": 1000 * loop_s,
        "ours_ms_a_call": 1000 * ours_s,
        "loop_cpu_ms_a_call": 1000 * loop_cpu,
        "ours_cpu_ms_a_call": 1000 * ours_cpu,
        "calls_speedup": loop_s / ours_s,
        "rounds": [{"loop_s_a_call": times[0], "ours_s_a_call": times[2]} for times in rounds],
    }
    print(
        f"loop {1000 * loop_s:.1f} ms a call, ours {1000 * ours_s:.1f} ms: {figures['calls_speedup']:.1f} times as fast"
    )
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
