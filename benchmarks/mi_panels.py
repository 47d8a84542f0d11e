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

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from common.measuring import in_turn, medians, options, save
from common.pictures import soft, with_grain
from PIL import Image, ImageDraw, ImageFont, ImageOps

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
                picture = soft(rng, 8, size, size)
                x, y = (int(value) for value in rng.integers(0, size // 2, 2))
                ImageDraw.Draw(picture).ellipse([x, y, x + size // 2, y + size // 3], fill=(int(x) % 256, 99, 40))
                with_grain(picture, grain).save(folder / f"ID={image}_T={number}.{suffix}")


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


def ours(root: Path, out: Path, setup: Setup) -> list[Shown]:
    return Panels(root, out, Options()).show(setup, plan(setup, 0, Options()))


def main() -> None:
    args = options(__doc__, classes=4, images=50, references=30, size=299, rounds=3)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        generate(root, args.classes, args.images, args.references, args.size)
        description = Path(folder) / "setups.yaml"
        description.write_text(yaml.safe_dump({"root": str(root), "setups": {"P": {"subject": "person"}}}))
        _, (setup,) = read_setups(description)
        shown = ours(root, Path(folder) / "warm", setup)
        question, jpeg = setup.subject.question, {"format": "JPEG", "quality": 95, "subsampling": 0}
        ways = {
            "obvious": lambda number: obvious(root, Path(folder) / f"png{number}", shown, question, format="PNG"),
            "same_format": lambda number: obvious(root, Path(folder) / f"jpeg{number}", shown, question, **jpeg),
            "ours": lambda number: ours(root, Path(folder) / f"ours{number}", setup),
            "again": lambda number: ours(root, Path(folder) / f"ours{number}", setup),
        }
        times = in_turn(ways, args.rounds)
        difference = 0.0
        for number, query in enumerate(shown):
            with Image.open(query.images[0]) as one, Image.open(Path(folder) / "png0" / str(number)) as other:
                gap = np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean()
                difference = max(difference, float(gap))
    taken = medians(times)
    figures = {
        "panels": len(shown),
        "classes": args.classes,
        "references_a_class": args.references,
        "size": args.size,
        **taken,
        "obvious_panels_a_second": len(shown) / taken["obvious_s"],
        "ours_panels_a_second": len(shown) / taken["ours_s"],
        "panels_speedup": taken["obvious_s"] / taken["ours_s"],
        "same_format_speedup": taken["same_format_s"] / taken["ours_s"],
        "again_speedup": taken["obvious_s"] / taken["again_s"],
        "cpu_ratio": taken["obvious_cpu_s"] / taken["ours_cpu_s"],
        "same_format_cpu_ratio": taken["same_format_cpu_s"] / taken["ours_cpu_s"],
        "difference": difference,
        "rounds": times,
    }
    print(
        f"{len(shown)} panels in {taken['ours_s']:.2f} s, again {taken['again_s']:.2f} s; the obvious way "
        f"{taken['obvious_s']:.2f} s ({figures['panels_speedup']:.1f} times, {figures['cpu_ratio']:.1f} in processor "
        f"time), with JPEG {taken['same_format_s']:.2f} s ({figures['same_format_speedup']:.1f}, "
        f"{figures['same_format_cpu_ratio']:.1f})"
    )
    save(args, figures)


if __name__ == "__main__":
    main()
