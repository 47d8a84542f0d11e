"""The panels of ``cprt mi`` against the obvious way: one query after the other, all of its pictures opened and resized.

    python benchmarks/mi_panels.py [--json FILE] [--classes 4] [--images 50] [--references 30] [--size 299] [--rounds 3]

Both make the same panels from generated pictures of one size (the public collection's are 64 to 299 pixels wide),
reconstructions as PNG, references as JPEG. The obvious way decodes, resizes, writes the captions and saves for each
query anew, as a PNG under the reconstruction's name, which is what the public code does. Ours draws the references by
hash, names each panel by its content, decodes a reference once, works on all cores and saves JPEG of quality 95.
``panels_speedup`` is the median time of the obvious way over ours in rounds that alternate, each from an empty folder;
``same_format_speedup`` compares with the obvious way saving the same JPEG, ``again_speedup`` with a second run, which
finds everything made. The ``cpu`` ratios compare processor time, which other work on the machine hardly changes.
``difference`` is the largest mean absolute difference of a panel from the obvious PNG, in levels of 255.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image, ImageDraw, ImageFont, ImageOps

from cprt.records import write_json
from eval.model_inversion.collection.setups import Setup, read_setups
from eval.model_inversion.judge.drawing import CAPTION, GAP, LINE, TILE
from eval.model_inversion.judge.panels import Panels, Shown
from eval.model_inversion.judge.queries import Options, plan


def generate(root: Path, classes: int, images: int, references: int, size: int) -> None:
    """Seeded pictures with smooth areas, edges and grain."""
    rng = np.random.default_rng(0)
    grain = rng.normal(0, 3, (size, size, 3)).astype(np.int16)
    for number in range(classes):
        for kind, count, suffix in (("A/B/C/all-images", images, "png"), ("private-data", references, "jpg")):
            folder = root / "P" / kind / str(number)
            folder.mkdir(parents=True)
            for image in range(count):
                coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
                picture = coarse.resize((size, size), Image.Resampling.BICUBIC)
                x, y = (int(value) for value in rng.integers(0, size // 2, 2))
                ImageDraw.Draw(picture).ellipse([x, y, x + size // 2, y + size // 3], fill=(int(x) % 256, 99, 40))
                pixels = (np.asarray(picture, dtype=np.int16) + grain).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"ID={image}_T={number}.{suffix}")


def obvious(root: Path, out: Path, shown: list[Shown], question: str, **save: Any) -> None:
    """The same panels, straightforwardly."""
    out.mkdir()
    font = ImageFont.load_default(30)
    for number, query in enumerate(shown):
        panel = Image.new("RGB", (TILE * (len(query.references) + 1) + GAP, TILE + CAPTION + LINE + 6), "white")
        for place, path in enumerate((query.query.path, *query.references)):
            tile = Image.open(root / path).convert("RGB")
            tile = ImageOps.pad(tile, (TILE, TILE), Image.Resampling.BICUBIC, color="white")
            panel.paste(tile, (place * TILE + (GAP if place else 0), 0))
        pen = ImageDraw.Draw(panel)
        middle = TILE + GAP + len(query.references) * TILE / 2
        pen.text((TILE / 2, TILE + CAPTION / 2), "Image A", "black", font, anchor="mm")
        pen.text((middle, TILE + CAPTION / 2), "Set of Images B", "black", font, anchor="mm")
        pen.text((panel.width / 2, TILE + CAPTION + LINE / 2), question, "red", font, anchor="mm")
        panel.save(out / str(number), **save)


def clock() -> tuple[float, float]:
    """Seconds passed, and seconds of processor time used by all threads of this process."""
    return time.perf_counter(), time.process_time()


def ours(root: Path, out: Path, setup: Setup) -> list[Shown]:
    return Panels(root, out, Options()).show(setup, plan(setup, 0, Options()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--references", type=int, default=30)
    parser.add_argument("--size", type=int, default=299)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        generate(root, args.classes, args.images, args.references, args.size)
        description = Path(folder) / "setups.yaml"
        description.write_text(yaml.safe_dump({"root": str(root), "setups": {"P": {"subject": "person"}}}))
        _, (setup,) = read_setups(description)
        shown = ours(root, Path(folder) / "warm", setup)
        rounds = []
        for number in range(args.rounds):
            places = [Path(folder) / f"{name}{number}" for name in ("png", "jpeg", "ours")]
            times = [clock()]
            obvious(root, places[0], shown, setup.subject.question, format="PNG")
            times.append(clock())
            obvious(root, places[1], shown, setup.subject.question, format="JPEG", quality=95, subsampling=0)
            times.append(clock())
            for _ in range(2):
                ours(root, places[2], setup)
                times.append(clock())
            rounds.append([later - earlier for pair in pairwise(times) for earlier, later in zip(*pair, strict=True)])
        difference = 0.0
        for number, query in enumerate(shown):
            with Image.open(query.images[0]) as one, Image.open(Path(folder) / "png0" / str(number)) as other:
                gap = np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean()
                difference = max(difference, float(gap))
    names = [f"{way}{unit}" for way in ("obvious", "same_format", "ours", "again") for unit in ("_s", "_cpu_s")]
    medians = {name: statistics.median(times) for name, times in zip(names, zip(*rounds, strict=True), strict=True)}
    ratio = {way: medians[f"{way}_s"] / medians["ours_s"] for way in ("obvious", "same_format")}
    figures = {
        "panels": len(shown),
        "classes": args.classes,
        "references_a_class": args.references,
        "size": args.size,
        **medians,
        "obvious_panels_a_second": len(shown) / medians["obvious_s"],
        "ours_panels_a_second": len(shown) / medians["ours_s"],
        "panels_speedup": ratio["obvious"],
        "same_format_speedup": ratio["same_format"],
        "again_speedup": medians["obvious_s"] / medians["again_s"],
        "cpu_ratio": medians["obvious_cpu_s"] / medians["ours_cpu_s"],
        "same_format_cpu_ratio": medians["same_format_cpu_s"] / medians["ours_cpu_s"],
        "difference": difference,
        "rounds": [dict(zip(names, times, strict=True)) for times in rounds],
    }
    print(
        f"{len(shown)} panels in {medians['ours_s']:.2f} s, again {medians['again_s']:.2f} s; the obvious way "
        f"{medians['obvious_s']:.2f} s ({ratio['obvious']:.1f} times, {figures['cpu_ratio']:.1f} in processor time), "
        f"with JPEG {medians['same_format_s']:.2f} s ({ratio['same_format']:.1f}, "
        f"{figures['same_format_cpu_ratio']:.1f})"
    )
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
