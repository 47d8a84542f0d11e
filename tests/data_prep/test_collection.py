"""From archives on a server to pairs, in the README's order, on a thousand photos with every fault that was met."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from downloading import tar_gz
from file_server import Served, serving
from PIL import Image

from cprt.records import read_labels, read_pairs
from data_prep import download, image_cache, selection
from data_prep.demo import data as demo_data
from data_prep.labels import run as labels
from data_prep.pairs import run as pairs

MAX_PIXELS = 64 * 64


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rotated(image: Image.Image) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(image, "JPEG", exif=exif)


def heavy(image: Image.Image) -> bytes:
    """Over 5 MB, as some of VISPR's photos are."""
    noise = np.random.default_rng(0).integers(0, 256, (1600, 2000, 3), dtype=np.uint8)
    content = saved(Image.fromarray(noise), "JPEG", quality=98, subsampling=0)
    assert len(content) > 5_000_000
    return content


# What happens to a photo, and whether it can still be used.
FAULTS: list[tuple[Callable[[Image.Image], bytes | None], bool]] = [
    (lambda image: saved(image.convert("L"), "JPEG"), True),
    (lambda image: saved(image.convert("CMYK"), "JPEG"), True),
    (rotated, True),
    (lambda image: saved(Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257), "PNG"), True),
    (lambda image: saved(image.convert("RGBA"), "PNG"), True),
    (lambda image: saved(image.convert("P"), "PNG"), True),
    (heavy, True),
    (lambda image: saved(image, "JPEG")[:700], False),
    (lambda image: b"not an image", False),
    (lambda image: b"", False),
    (lambda image: None, False),  # annotated, but the photo is missing
]


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """A drawn collection of a thousand photos, some of them spoilt; the ids that cannot be used, by reason."""
    folder = tmp_path_factory.mktemp("drawn")
    demo_data.main(["--out", str(folder), "--val", "600", "--test", "400", "--seed", "3"])
    gone: dict[str, list[str]] = {"missing": [], "quarantined": []}
    for split in ("val", "test"):
        photos = sorted((folder / "images" / f"{split}2017").iterdir())
        for photo, (fault, usable) in zip(photos[5::13], FAULTS, strict=False):
            with Image.open(photo) as image:
                content = fault(image.convert("RGB"))
            if content is None:
                photo.unlink()
                gone["missing"].append(photo.stem)
            else:
                photo.write_bytes(content)
                if not usable:
                    gone["quarantined"].append(photo.stem)
    return folder, gone


def test_from_archives_to_pairs_every_photo_is_accounted_for(spoilt, tmp_path: Path, capsys):
    drawn, gone = spoilt
    lost = set(gone["missing"] + gone["quarantined"])
    assert len(gone["missing"]) == 2 and len(gone["quarantined"]) == 6
    out, small = tmp_path / "vispr", tmp_path / "small"

    with serving() as server:
        archives = {}
        for split in ("val", "test"):
            for kind, name in (("images", f"{split}2017"), ("annotations", f"{split}2017_anno")):
                files = {
                    f"{split}2017/{path.name}": path.read_bytes()
                    for path in sorted((drawn / kind / f"{split}2017").iterdir())
                }
                breaks = [200_000] if kind == "images" else []  # the first connection breaks
                server.files[f"/{name}.tar.gz"] = Served(tar_gz(files), breaks=breaks)
                archives[f"{name}.tar.gz"] = {
                    "url": f"{server.url}/{name}.tar.gz",
                    "into": f"{kind}/{split}2017",
                    "max_unpacked": 50_000_000,
                }
        config = tmp_path / "vispr.yaml"
        config.write_text(yaml.safe_dump({"out": str(out), "wait": 0.01, "attempts": 4, "archives": archives}))
        download.main(["--config", str(config)])
        asked = len(server.requests)
        download.main(["--config", str(config)])
        assert len(server.requests) == asked  # a second run fetches nothing
    assert len(list((out / "images").rglob("*.jpg"))) == 998
    for name in ("cprt_train.json", "cprt_test.json"):
        shutil.copy(drawn / name, out / name)

    cache = ["--images", str(out), "--out", str(small), "--max_pixels", str(MAX_PIXELS), "--workers", "2"]
    image_cache.main(cache)
    report = json.loads((small / "run.json").read_text())["report"]
    assert (report["asked"], report["cached"], report["quarantined"]) == (998, 992, 6)
    quarantine = [json.loads(line) for line in (small / "quarantine.jsonl").read_text().splitlines()]
    assert sorted(Path(row["image"] if "image" in row else row["path"]).stem for row in quarantine) == sorted(
        gone["quarantined"]
    )
    assert all(row["reason"] for row in quarantine)
    for photo in (small / "images").rglob("*.jpg"):
        with Image.open(photo) as image:
            assert image.mode == "RGB" and image.width * image.height <= MAX_PIXELS and not image.getexif()
    before = {path: path.stat().st_mtime_ns for path in (small / "images").rglob("*.jpg")}
    image_cache.main(cache)
    again = json.loads((small / "run.json").read_text())["report"]
    assert (again["made"], again["unchanged"]) == (0, 992)
    assert {path: path.stat().st_mtime_ns for path in (small / "images").rglob("*.jpg")} == before

    selection.main(
        [
            "--vispr",
            str(out),
            "--split",
            "test",
            "--out",
            str(tmp_path / "selection"),
            "--released",
            str(out / "cprt_test.json"),
        ]
    )
    chosen = json.loads((tmp_path / "selection" / "report.json").read_text())
    assert chosen["photos"] == 399 and chosen["released"]["released"] == 400
    assert chosen["released"]["both"] + chosen["released"]["only_released"] == 400

    for split in ("train", "test"):
        labels.main(
            [
                "--source",
                "bench",
                "--input",
                str(out / f"cprt_{split}.json"),
                "--images",
                str(small),
                "--out",
                str(tmp_path / f"{split}.jsonl"),
            ]
        )
        made = json.loads((tmp_path / f"{split}.run.json").read_text())["report"]
        assert made["rows"] == made["labels"] + len(made["missing_images"])
        assert {Path(id).stem for id in made["missing_images"]} <= lost
        assert not made["disagreements"]
    known = {label.id for label in read_labels(tmp_path / "train.jsonl")}
    assert len(known) == 596

    ask = [
        "--labels",
        str(tmp_path / "train.jsonl"),
        "--images",
        str(small),
        "--out",
        str(tmp_path / "pairs"),
        "--size",
        "400",
        "--exclude",
        str(tmp_path / "test.jsonl"),
    ]
    pairs.main(ask)
    train = {pair.id for pair in read_pairs(tmp_path / "pairs" / "train.jsonl")}
    holdout = {pair.id for pair in read_pairs(tmp_path / "pairs" / "holdout.jsonl")}
    card = json.loads((tmp_path / "pairs" / "card.json").read_text())
    dropped = {row["id"] for row in card["left_out_duplicates"]}
    assert len(train) == 400 and not train & holdout
    assert train | holdout | dropped < known
    assert len(train) + len(holdout) + len(dropped) + card["unused"] == len(known)
    # The two photos of noise are one photo, once in each split: it must not be trained on.
    assert len(dropped) == 1 and dropped == {
        sorted(path.stem for path in (drawn / "images" / "val2017").iterdir())[5 + 6 * 13]
    }
    assert "1 duplicates left out" in capsys.readouterr().out


def test_every_combination_comes_through_labels_and_pairs(tmp_path: Path):
    """All 1,320: the right level and score, and a printed score that reads back as the same level."""
    from itertools import product

    from cprt.answers import parse
    from cprt.scoring import format_score, severity
    from cprt.taxonomy import Taxonomy

    taxonomy = Taxonomy.default()
    keys = {level: [a.key for a in taxonomy.attributes if a.level == level] for level in (1, 2, 3, 4)}
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    rows, truth = [], {}
    for number, counts in enumerate(product(range(4), range(11), range(6), range(5))):
        noise = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "images" / f"{number}.png")
        chosen = {key for level, count in enumerate(counts, start=1) for key in keys[level][:count]}
        groups = {f"level{level}": {key: int(key in chosen) for key in keys[level]} for level in keys}
        truth[str(number)] = severity(counts)
        rows.append(
            {
                "id": f"{number}.png",
                "binary_labels": groups,
                "level": truth[str(number)].level,
                "score": round(truth[str(number)].score, 3),
            }
        )
    (tmp_path / "bench.json").write_text(json.dumps(rows))
    labels.main(
        ["--input", str(tmp_path / "bench.json"), "--images", str(tmp_path), "--out", str(tmp_path / "l.jsonl")]
    )
    for target in ("score", "attributes"):
        pairs.main(
            [
                "--labels",
                str(tmp_path / "l.jsonl"),
                "--images",
                str(tmp_path),
                "--out",
                str(tmp_path / target),
                "--target",
                target,
                "--size",
                "1320",
                "--duplicates",
                "exact",
            ]
        )
        made = [*read_pairs(tmp_path / target / "train.jsonl"), *read_pairs(tmp_path / target / "holdout.jsonl")]
        assert len(made) == 1320
        for pair in made:
            answer = parse(pair.completion[0]["content"][0]["text"])
            assert (pair.level, pair.score) == (truth[pair.id].level, truth[pair.id].score)
            assert (answer.level, answer.score) == (pair.level, float(format_score(pair.score)))
