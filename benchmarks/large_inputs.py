"""``cprt eval`` and ``cprt score`` over many photos: how soon they ask, what memory they take, how soon after a kill.

    python benchmarks/large_inputs.py [--json FILE] [--photos 100000] [--here 2000]

Distinct JPEGs of 32 x 32, asked of a server on this machine that answers after 50 ms (64 in flight), ``--here`` of them
also of the demo's base on the processor (``cprt eval``). Each run is killed after nine tenths of its answers, started
again, and finished. ``first_s`` is from the start of the process to the first answer on disk, ``again_s`` after
the kill, ``end_s`` from the last answer to the end; ``peak_mb`` the most resident memory of the run that ends, and
``bytes_a_photo`` what of it a tenth of the photos does not take either, for each further photo.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import client_speed
import numpy as np
from PIL import Image

from cprt.records import write_json

BASE = Path(__file__).resolve().parents[1] / "assets" / "demo_base"
ANSWER = '{"attributes": ["gov_ids", "location", "metadata"], "level": 1, "score": 0.781}'


def draw(folder: Path, photos: int) -> Path:
    """``photos`` drawings below ``folder/images``, and their labels."""
    rng = np.random.default_rng(0)
    with open(folder / "labels.jsonl", "w") as file:
        for number in range(photos):
            path = Path("images", f"{number // 1000:03}", f"{number:06}.jpg")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            pixels = np.full((32, 32, 3), 128, np.uint8)
            pixels[:4, :8] = rng.integers(0, 255, (4, 8, 3))
            Image.fromarray(pixels).save(folder / path, quality=95)
            level = 1 + number % 4
            row = {"id": path.stem, "image": str(path), "level": level, "score": (0.9, 0.6, 0.4, 0.1)[level - 1]}
            file.write(json.dumps(row) + "\n")
    return folder


class Rows:
    """How many rows a file that grows has, counted on from where the last look ended."""

    def __init__(self, file: Path):
        self._file, self._place, self._count = file, 0, 0

    def count(self) -> int:
        if self._file.exists():
            with open(self._file, "rb") as file:
                file.seek(self._place)
                fresh = file.read()
            self._place, self._count = self._place + len(fresh), self._count + fresh.count(b"\n")
        return self._count


def start(command: list[str], answers: Path, log: Path) -> tuple[subprocess.Popen[bytes], float, float]:
    """The process, when it began, and the seconds until one more answer was on disk."""
    size = answers.stat().st_size if answers.exists() else 0
    began = time.perf_counter()
    with open(log, "ab") as file:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=file, stderr=file)
    while not answers.exists() or answers.stat().st_size <= size:
        if process.poll() is not None:
            raise SystemExit(log.read_text()[-2000:])
        time.sleep(0.01)
    return process, began, time.perf_counter() - began


def run(command: list[str], answers: Path, photos: int) -> dict[str, float]:
    """The figures of one command, killed and started again."""
    log = answers.parent.parent / "run.log"
    process, began, first_s = start(command, answers, log)
    rows = Rows(answers)
    while rows.count() < 0.9 * photos:
        if process.poll() is not None:
            raise SystemExit(f"too few photos to kill it before it ends:\n{log.read_text()[-2000:]}")
        time.sleep(0.02)
    process.kill()
    process.wait()
    killed_s, kept = time.perf_counter() - began, rows.count()
    process, _, again_s = start(command, answers, log)
    asked, rows = time.perf_counter(), Rows(answers)
    while rows.count() < photos:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break  # it is not collected here: its memory is read below
        time.sleep(0.1)
    asked, answered_s = time.perf_counter(), time.perf_counter() - asked
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(log.read_text()[-2000:])
    return {
        "photos": photos,
        "first_s": first_s,
        "ms_a_photo": 1000 * (killed_s - first_s) / kept,
        "kept": kept,
        "again_s": again_s,
        "rest_s": answered_s,
        "end_s": time.perf_counter() - asked,
        "peak_mb": usage.ru_maxrss / 1024,
    }


def measure(photos: int, asked: list[str], kinds: list[str]) -> dict[str, dict[str, float]]:
    """Every kind of run over a tenth of the photos and over all of them. ``asked``: the options that name the model."""
    found = {}
    for kind in kinds:
        sizes = {}
        for count in (photos // 10, photos):
            with tempfile.TemporaryDirectory() as scratch:
                drawn, out = draw(Path(scratch), count), Path(scratch) / "out" / "run"
                if kind == "eval":
                    command = ["eval.run", "--labels", str(drawn / "labels.jsonl"), "--images", str(drawn)]
                    command += ["--out", str(out.parent), *asked]
                    sizes[count] = run(command, out.parent / "answers.jsonl", count)
                    files = [out.parent / "predictions.jsonl", out.parent / "report.html"]
                else:
                    written = out.with_suffix(kind.removeprefix("score"))
                    command = ["eval.score.run", str(drawn / "images"), "--out", str(written), *asked]
                    sizes[count] = run(command, out.with_suffix(".answers.jsonl"), count)
                    files = [written]
                sizes[count] |= {f"{file.suffix[1:]}_mb": file.stat().st_size / 2**20 for file in files}
        least, most = sizes.values()
        grown = 2**20 * (most["peak_mb"] - least["peak_mb"]) / (most["photos"] - least["photos"])
        found[kind] = {**most, "bytes_a_photo": grown}
        print(kind, {name: round(value, 1) for name, value in found[kind].items()}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=100_000)
    parser.add_argument("--here", type=int, default=2000, help="photos that the demo's base is asked about; 0: none")
    parser.add_argument("--kinds", nargs="+", default=["eval", "score.jsonl", "score.html"])
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    receive, send = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=client_speed.serve, args=(send, ANSWER), daemon=True)
    server.start()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            models = Path(folder) / "models.yaml"
            url = f"http://127.0.0.1:{receive.recv()}/v1"
            models.write_text(json.dumps({"models": [{"name": "m", "model": "m", "base_url": url, "concurrency": 64}]}))
            if args.photos and "eval" in args.kinds:
                figures = measure(args.photos, ["--config", str(models), "--target", "attributes"], ["eval"])
            asked = ["--base_url", url, "--model", "m", "--concurrency", "64"]
            if args.photos:
                figures |= measure(args.photos, asked, [kind for kind in args.kinds if kind != "eval"])
        finally:
            server.terminate()
            server.join()
        if args.here:
            asked = ["--model", str(BASE), "--dtype", "float32", "--structured", "true", "--target", "score"]
            figures["eval, here"] = measure(args.here, asked, ["eval"])["eval"]
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
