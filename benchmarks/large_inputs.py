"""``cprt eval`` and ``cprt score`` over many photos: how soon they ask, what memory they take, how soon after a kill.

    python benchmarks/large_inputs.py [--json FILE] [--photos 100000] [--here 2000]

Distinct JPEGs of 32 x 32, asked of a server on this machine that answers after 50 ms (64 in flight), ``--here`` of them
also of the demo's base on the processor (``cprt eval``); 0 leaves either out. Each run is killed after nine tenths of
its answers, started again, and finished. ``first_s`` is from the start of the process to the first answer on disk,
``again_s`` after the kill, ``end_s`` from the last answer to the end; ``peak_mb`` the most resident memory of the run
that ends, and ``bytes_a_photo`` what of it a tenth of the photos does not take either, for each further photo.
``page_s`` is the page of ``cprt score`` beside its JSON Lines, which asks nothing again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common.endpoint import endpoint
from common.measuring import options, save
from common.random_model import BASE
from PIL import Image

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


def finish(command: list[str], log: Path) -> dict[str, float]:
    """Seconds and most memory of a run that has nothing left to ask."""
    began = time.perf_counter()
    with open(log, "ab") as file:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=file, stderr=file)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(log.read_text()[-2000:])
    return {"page_s": time.perf_counter() - began, "page_peak_mb": usage.ru_maxrss / 1024}


def measure(photos: int, asked: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """Figures over all photos, and what memory each takes beyond a tenth of them.

    ``asked``: eval, and score where it is asked too -> the options that name the model.
    """
    found: dict[str, list[dict[str, float]]] = {}
    for count in (photos // 10, photos):
        with tempfile.TemporaryDirectory() as scratch:
            drawn, out = draw(Path(scratch), count), Path(scratch) / "out"
            command = ["eval.run", "--labels", str(drawn / "labels.jsonl"), "--images", str(drawn), "--out", str(out)]
            figures = run([*command, *asked["eval"]], out / "answers.jsonl", count)
            found.setdefault("eval", []).append(figures | sizes(out / "predictions.jsonl", out / "report.html"))
            if "score" in asked:
                command = ["eval.score.run", str(drawn / "images"), *asked["score"], "--out"]
                figures = run([*command, str(out / "run.jsonl")], out / "run.answers.jsonl", count)
                figures |= finish([*command, str(out / "run.html")], drawn / "run.log")  # asks nothing again
                found.setdefault("score", []).append(figures | sizes(out / "run.jsonl", out / "run.html"))
    figures_of = {}
    for name, (least, most) in found.items():
        grown = 2**20 * (most["peak_mb"] - least["peak_mb"]) / (most["photos"] - least["photos"])
        figures_of[name] = {**most, "bytes_a_photo": grown}
        print(name, {figure: round(value, 1) for figure, value in figures_of[name].items()}, flush=True)
    return figures_of


def sizes(*files: Path) -> dict[str, float]:
    return {f"{file.suffix[1:]}_mb": file.stat().st_size / 2**20 for file in files}


def main() -> None:
    args = options(__doc__, photos=100_000, here=2000)
    figures: dict[str, Any] = {}
    if args.photos:
        with endpoint(ANSWER, 0.05) as url, tempfile.NamedTemporaryFile("w", suffix=".yaml") as models:
            models.write(json.dumps({"models": [{"name": "m", "model": "m", "base_url": url, "concurrency": 64}]}))
            models.flush()
            evaluated = ["--config", models.name, "--target", "attributes"]
            scored = ["--base_url", url, "--model", "m", "--concurrency", "64"]
            figures = measure(args.photos, {"eval": evaluated, "score": scored})
    if args.here:
        asked = ["--model", BASE, "--dtype", "float32", "--structured", "true", "--target", "score"]
        figures["eval, here"] = measure(args.here, {"eval": asked})["eval"]
    save(args, figures)


if __name__ == "__main__":
    main()
