"""The calls of ``cprt mi`` against the usual sequential loop, on a server in another process on this machine.

    python benchmarks/mi_calls.py [--json FILE] [--calls 640] [--sequential 40] [--in_flight 64] [--delay 0.2]

Every call carries one panel of five tiles as a JPEG in base64 and is answered "No" after ``delay`` seconds. The loop is
a synchronous OpenAI client that opens the panel, encodes it, asks and writes a row; it makes fewer calls
(``--sequential``), since each takes as long as every other. Ours checks that nothing but pixels goes along, keeps every
answer on disk before it counts, and has ``in_flight`` calls in the air. ``calls_speedup`` is the median time a call of
the loop over ours, in rounds that alternate; ``*_cpu_ms_a_call`` is processor time, which other work on the machine
hardly changes.
"""

from __future__ import annotations

import base64
import csv
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common.endpoint import endpoint
from common.measuring import in_turn, medians, options, save
from common.pictures import soft

from cprt.models.ask import Model
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from eval.model_inversion.judge.drawing import TILE, draw
from eval.model_inversion.judge.prompts import OURS, SUBJECTS

SUBJECT = SUBJECTS["person"]
MESSAGES = OURS.messages(SUBJECT, False, "panel", 4, True)


def generate(folder: Path, count: int) -> list[Path]:
    """Seeded panels, all different."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        a, *b = [soft(rng, 8, TILE, TILE) for _ in range(5)]
        paths.append(folder / f"{number}.jpg")
        draw(a, b, SUBJECT.question).save(paths[-1], quality=95, subsampling=0)
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


def main() -> None:
    args = options(__doc__, calls=640, sequential=40, in_flight=64, delay=0.2, rounds=3)
    with endpoint("No", args.delay) as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        panels = generate(folder, args.calls)
        loop(url, panels[:2], folder / "warm.csv")  # imports and first connections
        ours(url, panels[:2], folder / "warm.jsonl", 2)
        ways = {
            "loop": lambda number: loop(url, panels[: args.sequential], folder / f"{number}.csv"),
            "ours": lambda number: ours(url, panels, folder / f"{number}.jsonl", args.in_flight),
        }
        times = in_turn(ways, args.rounds)
        kilobytes = statistics.mean(path.stat().st_size for path in panels) / 1000
    calls = {"loop": args.sequential, "ours": args.calls}
    taken = {name: 1000 * seconds / calls[name.partition("_")[0]] for name, seconds in medians(times).items()}
    figures = {
        "calls": args.calls,
        "in_flight": args.in_flight,
        "server_ms": 1000 * args.delay,
        "panel_kilobytes": kilobytes,
        **{f"{name.removesuffix('s')}ms_a_call": milliseconds for name, milliseconds in taken.items()},
        "calls_speedup": taken["loop_s"] / taken["ours_s"],
        "rounds": times,
    }
    print(
        f"loop {taken['loop_s']:.1f} ms a call, ours {taken['ours_s']:.1f} ms: {figures['calls_speedup']:.1f} times as "
        "fast"
    )
    save(args, figures)


if __name__ == "__main__":
    main()
