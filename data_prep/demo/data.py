"""``cprt demo-data``: seeded drawings in VISPR's layout, with label files in CPRT-Bench's format.

Writes ``OUT/images/{val,test}2017/``, ``OUT/annotations/...``, ``OUT/{val,test}2017.txt``, ``OUT/cprt_train.json``
(from val, as in the paper) and ``OUT/cprt_test.json``. One pictogram stands for one attribute: a stand-in for photos
that nobody has to be shown in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.files import write_text
from cprt.guidance.advice import compose
from cprt.provenance import clear, sign, write_run
from cprt.records import write_json
from cprt.taxonomy import Taxonomy
from data_prep.demo.drawings import SIGNS, draw
from data_prep.labels.export import bench_row

MOST_ATTRIBUTES = 5
_SPLITS = {"val": ("cprt_train.json", 1), "test": ("cprt_test.json", 2)}  # label file, stream of the seed


@dataclass
class DemoDataArguments:
    out: str = option("folder to write", writes=("images", "annotations", "*2017.txt", "cprt_*.json"))
    seed: int = option("seed of all drawings", 0, least=0)
    val: int = option("drawings in the validation split, from which training pairs come", 700, least=1)
    test: int = option("drawings in the test split", 320, least=1)
    size: int = option("width and height of a drawing in pixels", 96, least=48)


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(DemoDataArguments, argv, prog="cprt demo-data", description=__doc__)
    sign("cprt demo-data", Path(args.out) / "run.json")
    for split in _SPLITS:
        _write_split(Path(args.out), split, getattr(args, split), args.seed, args.size)
    write_run("cprt demo-data", args.out, args, seed=args.seed)
    print(f"{args.out}: {args.val} validation and {args.test} test drawings, with annotations and CPRT labels")


def _write_split(out: Path, split: str, count: int, seed: int, size: int) -> None:
    label_file, stream = _SPLITS[split]
    folder = f"{split}2017"
    for kind in ("images", "annotations"):
        (out / kind / folder).mkdir(parents=True, exist_ok=True)
        clear(out / kind / folder, [f"2017_{stream}*"])  # an earlier run may have drawn more
    rows, names = [], []
    for number in tqdm(range(count), desc=f"drawing {folder}", unit="image", leave=False):
        # A stream of its own for every drawing: no drawing depends on how many others there are, and the two splits
        # share none.
        rng = np.random.default_rng([seed, stream, number])
        keys = draw_attributes(rng)
        id = f"2017_{stream}{number:07d}"
        draw(keys, rng, size).save(out / "images" / folder / f"{id}.jpg", quality=92)
        labels = [SIGNS[key].vispr for key in keys] or ["a0_safe"]
        annotation = {"id": id, "image_path": f"images/{folder}/{id}.jpg", "labels": labels}
        (out / "annotations" / folder / f"{id}.json").write_text(json.dumps(annotation) + "\n", encoding="utf-8")
        names.append(f"annotations/{folder}/{id}.json\n")
        truth = compose(keys)
        rows.append(bench_row(f"{id}.jpg", keys, truth.level, round(truth.score, 3), Taxonomy.default()))
    write_text(out / f"{folder}.txt", "".join(names))
    write_json(out / label_file, rows)


def draw_attributes(rng: np.random.Generator) -> list[str]:
    """Keys of one drawing, at most five: a level drawn evenly, at least one of its attributes, and lower ones.

    One level-4 drawing in ten has no attribute at all, as the safe photos of VISPR.
    """
    taxonomy = Taxonomy.default()
    level = int(rng.integers(1, 5))
    if level == 4 and rng.random() < 0.1:
        return []
    of_level = [attribute.key for attribute in taxonomy.attributes if attribute.level == level]
    below = [attribute.key for attribute in taxonomy.attributes if attribute.level > level]
    first = int(rng.integers(1, min(len(of_level), 3) + 1))
    more = int(rng.integers(0, min(len(below), MOST_ATTRIBUTES - first) + 1))
    chosen = {*rng.choice(of_level, first, replace=False).tolist(), *rng.choice(below, more, replace=False).tolist()}
    return [key for key in taxonomy.keys if key in chosen]


if __name__ == "__main__":
    run(main, "cprt demo-data")
