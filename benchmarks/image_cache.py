"""``cprt images`` against the obvious way: one process that decodes each photo in full size with Pillow and reduces it.

    python benchmarks/image_cache.py [--json FILE] [--photos 48] [--rounds 3] [--workers 2]

Both turn the same generated JPEGs (2,000 to 4,000 pixels wide and high, as VISPR's photos: smooth areas, edges, lines,
grain) into JPEGs of at most 262,144 pixels, the budget of the Qwen3-VL recipes, at one quality. Ours runs in threads
and writes every file whole or not at all. ``cache_speedup`` is the median time of the obvious way over ours, in rounds
that alternate; ``difference`` is the mean absolute difference between their results, in levels of 255, before JPEG
compression. ``cpu_ratio`` compares processor time, which other work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from cprt.images import fit, load_image
from cprt.records import write_json
from data_prep.image_cache import cache_images

BUDGET = 262_144
QUALITY = 95


def generate(folder: Path, count: int) -> None:
    """Seeded photos of different sizes."""
    rng = np.random.default_rng(0)
    grain = rng.normal(0, 5, (4000, 4000, 1)).astype(np.int16)
    for number in range(count):
        width, height = (int(side) for side in rng.integers(2000, 4001, 2))
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        image = coarse.resize((width, height), Image.Resampling.BICUBIC)
        draw = ImageDraw.Draw(image)
        for _ in range(400):
            x, y, length = (int(value) for value in rng.integers(0, (width, height, 400)))
            colour = tuple(int(value) for value in rng.integers(0, 256, 3))
            draw.ellipse([x, y, x + length, y + length // 2], fill=colour)
            draw.line([x, y, x + length, y + 60], fill=colour, width=length % 5 + 1)
        pixels = np.asarray(image, dtype=np.int16) + grain[:height, :width]
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03}.jpg", quality=90)


def reduced(path: Path) -> Image.Image:
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    return upright.resize(fit(upright.size, BUDGET), Image.Resampling.LANCZOS)


def clock() -> tuple[float, float]:
    """Seconds passed, and seconds of processor time used by this process and its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in used)


def obvious(photos: Path, out: Path) -> None:
    """All photos, one after the other."""
    out.mkdir()
    for path in sorted(photos.iterdir()):
        reduced(path).save(out / path.name, quality=QUALITY, subsampling=0)


def ours(photos: Path, out: Path, workers: int) -> None:
    """All photos, from nothing to a complete cache."""
    report = cache_images(photos, out, BUDGET, quality=QUALITY, workers=workers)
    assert report["made"] == len(list(photos.iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        generate(photos, args.photos)
        paths = sorted(photos.iterdir())
        rounds = []
        for number in range(args.rounds):
            times = [clock()]
            obvious(photos, Path(folder) / f"obvious{number}")
            times.append(clock())
            ours(photos, Path(folder) / f"ours{number}", args.workers)
            times.append(clock())
            rounds.append([later - earlier for pair in pairwise(times) for earlier, later in zip(*pair, strict=True)])
        differences = [
            float(np.abs(np.asarray(load_image(path, BUDGET), dtype=float) - np.asarray(reduced(path))).mean())
            for path in paths[:8]
        ]
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
    names = ("obvious_s", "obvious_cpu_s", "ours_s", "ours_cpu_s")
    medians = {name: statistics.median(values) for name, values in zip(names, zip(*rounds, strict=True), strict=True)}
    figures = {
        "photos": args.photos,
        "megabytes": megabytes,
        "workers": args.workers,
        **medians,
        "cache_speedup": medians["obvious_s"] / medians["ours_s"],
        "cpu_ratio": medians["obvious_cpu_s"] / medians["ours_cpu_s"],
        "difference": statistics.mean(differences),
        "rounds": [dict(zip(names, values, strict=True)) for values in rounds],
    }
    print(
        f"obvious {medians['obvious_s']:.1f} s, ours in {args.workers} threads {medians['ours_s']:.1f} s: "
        f"{figures['cache_speedup']:.2f} times as fast, at {figures['cpu_ratio']:.2f} times less processor time; "
        f"mean difference {figures['difference']:.2f} of 255"
    )
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
