"""``cprt images`` against the obvious way: one process that decodes each photo in full size with Pillow and reduces it.

    python benchmarks/image_cache.py [--json FILE] [--photos 48] [--rounds 3] [--workers 2]

Both turn the same generated JPEGs (2,000 to 4,000 pixels wide and high, as VISPR's photos: smooth areas, edges, lines,
grain) into JPEGs of at most 262,144 pixels, the budget of the Qwen3-VL recipes, at one quality. Ours runs in threads
and writes every file whole or not at all. ``cache_speedup`` is the median time of the obvious way over ours, in rounds
that alternate; ``difference`` is the mean absolute difference between their results, in levels of 255, before JPEG
compression. ``cpu_ratio`` compares processor time, which other work on the machine hardly changes.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
from common.measuring import in_turn, medians, options, save
from common.pictures import write_photos
from PIL import Image, ImageOps

from cprt.images import fit, load_image
from data_prep.image_cache import cache_images

BUDGET = 262_144
QUALITY = 95


def reduced(path: Path) -> Image.Image:
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    return upright.resize(fit(upright.size, BUDGET), Image.Resampling.LANCZOS)


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
    args = options(__doc__, photos=48, rounds=3, workers=2)
    with tempfile.TemporaryDirectory() as name:
        folder, photos = Path(name), Path(name) / "photos"
        write_photos(photos, args.photos)
        ways = {
            "obvious": lambda number: obvious(photos, folder / f"obvious{number}"),
            "ours": lambda number: ours(photos, folder / f"ours{number}", args.workers),
        }
        times = in_turn(ways, args.rounds)
        paths = sorted(photos.iterdir())
        differences = [
            float(np.abs(np.asarray(load_image(path, BUDGET), dtype=float) - np.asarray(reduced(path))).mean())
            for path in paths[:8]
        ]
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
    taken = medians(times)
    figures = {
        "photos": args.photos,
        "megabytes": megabytes,
        "workers": args.workers,
        **taken,
        "cache_speedup": taken["obvious_s"] / taken["ours_s"],
        "cpu_ratio": taken["obvious_cpu_s"] / taken["ours_cpu_s"],
        "difference": statistics.mean(differences),
        "rounds": times,
    }
    print(
        f"obvious {taken['obvious_s']:.1f} s, ours in {args.workers} threads {taken['ours_s']:.1f} s: "
        f"{figures['cache_speedup']:.2f} times as fast, at {figures['cpu_ratio']:.2f} times less processor time; "
        f"mean difference {figures['difference']:.2f} of 255"
    )
    save(args, figures)


if __name__ == "__main__":
    main()
