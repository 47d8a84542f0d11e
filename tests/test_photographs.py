"""The commands on real photographs: those that scikit-image carries, with labels made by looking at them.

Colour and greyscale, 0.07 to 2 megapixels, with and without people. ``data/photographs.json`` is in CPRT-Bench's
format. One value is 0.5: the name tag of the astronaut is half hidden, which counts as absent.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import skimage
from PIL import Image

import eval.metrics
import eval.run
import train.sft
from cprt.images import load_image
from cprt.models.checkpoint import load_processor
from cprt.prompts import build
from cprt.provenance import model_digest
from cprt.records import read_labels, read_pairs, read_predictions
from data_prep.labels import run as labels
from data_prep.pairs import run as pairs

BENCH = Path(__file__).parent / "data" / "photographs.json"


@dataclass(frozen=True)
class Photographs:
    images: Path
    labels: Path


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Photographs:
    """The photographs in VISPR's layout, and what `cprt labels` makes of the label file."""
    folder = tmp_path_factory.mktemp("photographs")
    target = folder / "images" / "val2017"
    target.mkdir(parents=True)
    for row in json.loads(BENCH.read_text()):
        shutil.copy(Path(skimage.__file__).parent / "data" / row["id"], target)
    out = folder / "labels.jsonl"
    labels.main(["--input", str(BENCH), "--images", str(folder), "--out", str(out)])
    return Photographs(folder, out)


def test_labels(photographs):
    """Every photograph is found, and the file's levels and scores follow from its attributes."""
    report = json.loads(photographs.labels.with_name("labels.run.json").read_text())["report"]
    assert report["rows"] == report["labels"] == 10
    assert report["missing_images"] == report["disagreements"] == []
    assert report["ambiguous_values"] == 1 and report["without_attribute"] == 3
    rows = {label.id: label for label in read_labels(photographs.labels)}
    assert (
        rows["astronaut"].image == "images/val2017/astronaut.png" and rows["astronaut"].labels["full_legal_name"] == 0.5
    )
    # One attribute of level 1 and one of level 2, weights 330 and 30 of 1319 in all (Eq. 3).
    assert rows["retina"].level == 1
    assert rows["retina"].score == pytest.approx(0.711 + 0.289 * (30 / 989) ** 0.5, abs=1e-9)
    assert (rows["rocket"].level, rows["rocket"].score) == (3, 0.292)
    assert (rows["coffee"].level, rows["coffee"].score) == (4, 0.0)
    assert rows["camera"].score < rows["astronaut"].score < 1


@pytest.mark.parametrize("target", ["score", "attributes"])
def test_pairs(photographs, tmp_path, target):
    """Each answer is the label, the half-hidden name left out; six photographs train and four are held out."""
    pairs.main(
        [
            "--labels",
            str(photographs.labels),
            "--images",
            str(photographs.images),
            "--out",
            str(tmp_path),
            "--target",
            target,
            "--size",
            "6",
            "--holdout",
            "4",
            "--seed",
            "1",
        ]
    )
    rows = read_pairs(tmp_path / "train.jsonl") + read_pairs(tmp_path / "holdout.jsonl")
    assert len(read_pairs(tmp_path / "train.jsonl")) == 6 and len({row.id for row in rows}) == 10
    answers = {row.id: json.loads(row.completion[0]["content"][0]["text"]) for row in rows}
    expected = {
        "astronaut": ["biometrics", "non_unique_id", "race_ethnicity", "age", "gender", "activities"],
        "retina": ["biometrics", "medical_data"],
        "page": ["documents"],
        "chelsea": [],
    }
    for id, attributes in expected.items():
        label = next(label for label in read_labels(photographs.labels) if label.id == id)
        assert answers[id]["score"] == pytest.approx(label.score, abs=1e-3)
        if target == "attributes":
            assert answers[id]["attributes"] == attributes and answers[id]["level"] == label.level
        else:
            assert answers[id].keys() == {"score"}


@pytest.mark.slow
def test_training_and_evaluation(photographs, demo_base, root, tmp_path, monkeypatch):
    """A few steps on the photographs, then every photograph asked with the adapter on, then metrics from the files."""
    monkeypatch.chdir(root)
    adapter, out = tmp_path / "adapter", tmp_path / "tuned"
    prepared = ["--images", str(photographs.images)]
    pairs.main(
        [
            "--labels",
            str(photographs.labels),
            *prepared,
            "--out",
            str(tmp_path / "pairs"),
            "--size",
            "8",
            "--prompt",
            "zero_shot",
        ]
    )
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "train/sft.py",
            "--config",
            "configs/sft/demo.yaml",
            "--pairs",
            str(tmp_path / "pairs"),
            *prepared,
            "--output_dir",
            str(adapter),
            "--global_batch_size",
            "4",
            "--per_device_train_batch_size",
            "2",
            "--max_steps",
            "3",
            "--eval_strategy",
            "no",
            "--warmup_steps",
            "0",
            "--max_pixels",
            "8192",
        ],
    )
    train.sft.main()
    eval.run.main(
        [
            "--model",
            str(demo_base),
            "--adapter",
            str(adapter),
            "--labels",
            str(photographs.labels),
            *prepared,
            "--out",
            str(out),
            "--prompt",
            "zero_shot",
            "--batch_size",
            "4",
            "--max_new_tokens",
            "24",
            "--dtype",
            "float32",
        ]
    )
    predictions = read_predictions(out / "predictions.jsonl")
    assert {row.id for row in predictions} == {label.id for label in read_labels(photographs.labels)}
    assert all(row.text for row in predictions)
    record = json.loads((out / "run.json").read_text())
    assert record["adapter"] == model_digest(adapter)
    assert record["prompt"]["sha256"] == build("zero_shot").digest
    assert record["answers_made"][0]["image_size"]["longest_edge"] == 8192  # the cap that the adapter was trained with
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["n"] == 10 == sum(metrics["status_counts"].values())
    assert metrics["coverage"] == metrics["status_counts"]["ok"] / 10
    eval.metrics.main(
        [
            "--predictions",
            str(out / "predictions.jsonl"),
            "--labels",
            str(photographs.labels),
            "--out",
            str(tmp_path / "again.json"),
        ]
    )
    assert json.loads((tmp_path / "again.json").read_text()) == metrics


# Height and width in patches of 16 pixels. Sides are rounded to 32; above 512 x 512 pixels the photo shrinks to fit.
GRIDS = {
    "retina.jpg": (32, 32),  # 1411 x 1411, two megapixels
    "hubble_deep_field.jpg": (28, 34),  # 872 x 1000
    "astronaut.png": (32, 32),  # 512 x 512, the budget itself
    "camera.png": (32, 32),
    "motorcycle_left.png": (26, 38),  # 500 x 741
    "rocket.jpg": (26, 38),  # 427 x 640
    "coffee.png": (24, 38),  # 400 x 600
    "chelsea.png": (18, 28),  # 300 x 451
    "page.png": (12, 24),  # 191 x 384
    "text.png": (10, 28),  # 172 x 448
}


def test_the_real_pixel_budget(photographs, demo_base):
    """With the recipes' 262,144 pixels no photograph takes more than 256 image tokens; small ones stay small."""
    processor = load_processor(str(demo_base), max_pixels=262144)
    assert {path.name for path in (photographs.images / "images" / "val2017").iterdir()} == set(GRIDS)
    text = processor.apply_chat_template(build("zero_shot").messages(), add_generation_prompt=True)
    for name, (height, width) in GRIDS.items():
        path = photographs.images / "images" / "val2017" / name
        batch = processor(text=[text], images=[[load_image(path)]], return_tensors="pt")
        tokens = int((batch["input_ids"] == processor.image_token_id).sum())
        assert batch["image_grid_thw"].tolist() == [[1, height, width]], name
        assert tokens == height * width // 4 <= 256
        assert batch["pixel_values"].shape == (height * width, 3 * 2 * 16 * 16)


def test_a_greyscale_photograph_is_read_as_colour(photographs):
    """The camera man is stored in one channel; models take three, all equal here."""
    path = photographs.images / "images" / "val2017" / "camera.png"
    with Image.open(path) as stored:
        assert stored.mode == "L"
        grey = stored.tobytes()
    image = load_image(path)
    assert image.mode == "RGB" and all(band.tobytes() == grey for band in image.split())
