"""The benchmark with known truth, smaller: its files, its claim, and that the same seed gives the same."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cprt.records import read_json
from cprt.tables import read_csv
from eval.model_inversion.collection.setups import read_setups
from eval.model_inversion.demo.attacks import STRENGTH, adversarial, clouds, degrade
from eval.model_inversion.demo.bench import (
    EVALUATION_MODEL,
    KINDS,
    TARGETS,
    Settings,
    images_folder,
    private_folder,
    setups,
)
from eval.model_inversion.demo.network_judge import NetworkJudge
from eval.model_inversion.demo.networks import ARCHITECTURES, stack, train_classifier, unstack
from eval.model_inversion.demo.run import run_demo
from eval.model_inversion.demo.summary import by_kind

pytestmark = pytest.mark.slow

NAME = re.compile(r"ID=(\d+)_T=(\d+)_P=(\d+)_CT=(\d\.\d{4})\.png")


@dataclass(frozen=True)
class Demo:
    """What the demo left in ``out``, and the summary that it returned."""

    out: Path
    settings: Settings
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def demo(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    out = tmp_path_factory.mktemp("demo_mi")
    return Demo(out, settings, run_demo(out, settings))


def rows_of(path: Path) -> list[dict[str, str]]:
    return [row for _, row in read_csv(path).rows]


def test_e_accepts_what_the_judge_rejects_and_the_judge_is_right(demo):
    kinds = demo.summary["kinds"]
    adversarial_n, by_t, by_e, by_judge = (
        sum(kinds[kind][what] for kind in ("someone else", "nobody")) for what in ("n", "T", "E", "judge")
    )
    assert by_t >= 0.8 * adversarial_n  # the attack works
    assert by_e >= 0.35 * adversarial_n  # and transfers: E has no part in it
    assert by_judge <= 0.6 * by_e
    assert kinds["failure"]["T"] == 0  # by construction
    right, n = (sum(kinds[kind][what] for kind in KINDS) for what in ("judge_right", "n"))
    assert right >= 0.75 * n
    assert demo.summary["judge"]["hit_rate"] >= demo.summary["judge"]["false_alarm_rate"] + 0.5


def test_the_collection_lies_as_the_public_one_and_its_truth_is_complete(demo):
    assert len(setups(demo.settings)) == 4
    for setup in setups(demo.settings):
        folder = images_folder(demo.out, setup)
        expected = ("collection", "AttackSamples", "Faces", setup.attack, "OtherFaces", setup.target.capitalize())
        assert folder.parts[-7:-1] == expected
        truth = rows_of(demo.out / "truth" / f"{setup.id}.csv")
        files = sorted((path.parent.name, path.name) for path in folder.rglob("*.png"))
        assert files == sorted((row["class"], row["filename"]) for row in truth)
        per_class = Counter((row["class"], row["kind"]) for row in truth)
        wanted = dict(zip(KINDS, demo.settings.attacks[setup.attack], strict=True))
        classes = map(str, range(demo.settings.classes))
        assert per_class == {(name, kind): count for name in classes for kind, count in wanted.items()}
        for row in truth:
            found = NAME.fullmatch(row["filename"])
            assert found is not None and found[2] == row["class"]
            assert (row["shows"] == f"private {row['class']}") == (row["kind"] == "true")
        public = [row["shows"] for row in truth if row["shows"].startswith("public")]
        assert len(set(public)) == len(public)
    assert len(list(private_folder(demo.out).glob("*/*.png"))) == demo.settings.classes * demo.settings.views
    views = [
        path.read_bytes() for part in (private_folder(demo.out), demo.out / "clean") for path in part.rglob("*.png")
    ]
    assert len(set(views)) == len(views)  # tested on nothing that was trained on


def test_names_say_what_the_target_says(demo):
    for setup in setups(demo.settings):
        for row in rows_of(demo.out / "target" / setup.id / "prediction.csv"):
            found = NAME.fullmatch(row["filename"])
            assert found is not None
            assert found[3] == row["predicted_class"]
            assert float(found[4]) == pytest.approx(float(row["confidence"]), abs=6e-5)
            assert row["prediction"] == ("yes" if found[3] == row["class"] else "no")


def test_adversarial_pictures_stay_near_the_natural_image_of_somebody_else(demo):
    for setup in setups(demo.settings):
        sources = sorted((demo.out / "sources" / setup.id).rglob("*.png"))
        truth = [row for row in rows_of(demo.out / "truth" / f"{setup.id}.csv") if row["kind"] == "someone else"]
        assert len(sources) == len(truth) > 0
        for source in sources:
            made = Image.open(images_folder(demo.out, setup) / source.parent.name / source.name)
            change = np.abs(np.asarray(made).astype(int) - np.asarray(Image.open(source)).astype(int))
            assert 10 < change.max() <= STRENGTH * 255 + 1


def test_judges_write_the_files_of_cprt_mi(demo):
    for setup in setups(demo.settings):
        truth = {
            (row["class"], row["filename"]): row["kind"] for row in rows_of(demo.out / "truth" / f"{setup.id}.csv")
        }
        for judge in ("siamese", "truth"):
            rows = rows_of(demo.out / "judges" / judge / setup.id / "judge.csv")
            assert list(rows[0]) == ["filename", "class", "response", "label"]
            assert {(row["class"], row["filename"]) for row in rows} == truth.keys() and len(rows) == len(truth)
            assert {row["label"] for row in rows} == {"yes", "no"}
        assert all((row["label"] == "yes") == (truth[row["class"], row["filename"]] == "true") for row in rows)
        controls = rows_of(demo.out / "judges" / "siamese" / setup.id / "controls.csv")
        assert list(controls[0]) == ["kind", "filename", "class", "response", "label"]
        pairs = demo.settings.classes * demo.settings.clean
        assert Counter(row["kind"] for row in controls) == {"positive": pairs, "negative": pairs}


def test_the_comparison_holds_the_counts_of_the_files(demo):
    compared = read_json(demo.out / "compare" / "compare.json")["rows"]
    assert len(compared) == 8  # four set-ups, the judge and the truth
    for setup in setups(demo.settings):
        said = {
            row["filename"] + row["class"]: row["prediction"]
            for row in rows_of(demo.out / "standard" / setup.id / "prediction.csv")
        }
        for judge in ("siamese", "truth"):
            judged = rows_of(demo.out / "judges" / judge / setup.id / "judge.csv")
            cells = Counter((said[row["filename"] + row["class"]], row["label"]) for row in judged)
            (row,) = (row for row in compared if (row["setup"], row["judge"]) == (setup.name, judge))
            assert [row["tp"], row["tn"], row["fp"], row["fn"]] == [
                cells[cell] for cell in (("yes", "yes"), ("no", "no"), ("yes", "no"), ("no", "yes"))
            ]
            assert row["n"] == sum(cells.values())
            assert row["type_i"] > 0 and row["naturals"] > 0


def test_cprt_mi_can_ask_a_model_about_the_same_collection(demo):
    _, found = read_setups(demo.out / "setups.yaml")
    assert [setup.id for setup in found] == sorted(setup.id for setup in setups(demo.settings))
    for setup in found:
        assert len(setup.reconstructions) == sum(demo.settings.attacks[setup.facts["attack"]]) * demo.settings.classes
        assert {len(of_class) for of_class in setup.references.values()} == {demo.settings.views}


def test_kinds_by_hand():
    rows = [
        {"T": True, "E": e, "judge": judge, "true": kind == "true", "kind": kind}
        for e, judge, kind in [
            (True, True, "true"),
            (True, False, "nobody"),
            (True, False, "true"),
            (False, True, "someone else"),
            (False, False, "failure"),
        ]
    ]
    assert by_kind(rows)["true"] == {"n": 2, "T": 2, "E": 2, "judge": 1, "judge_right": 1}
    assert by_kind(rows)["someone else"] == {"n": 1, "T": 1, "E": 0, "judge": 1, "judge_right": 0}


def test_the_picture_is_drawn_and_the_record_written(demo):
    with Image.open(demo.out / "reconstructions.png") as picture:
        assert min(picture.size) > 500
        assert len(set(np.asarray(picture.convert("L")).ravel())) > 100
    assert (demo.out / "run.json").is_file() and (demo.out / "judges" / "run.json").is_file()


def test_the_same_seed_gives_the_same_networks_and_pictures():
    pictures, labels = torch.rand(48, 3, 64, 64, generator=torch.Generator().manual_seed(0)), torch.arange(48) % 3
    before = torch.get_rng_state()
    one, again = (train_classifier("plain", pictures, labels, seed=4, epochs=2) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's random numbers change
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), again.state_dict().values(), strict=True))
    start, classes = clouds(4, 64, 1), torch.arange(4) % 3
    first, second = (adversarial(one, start, classes, seed=2, steps=5) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(degrade(pictures[:4], 3), degrade(pictures[:4], 3))
    assert torch.equal(stack(unstack(pictures)), (pictures * 255).round() / 255)


def test_the_architectures_are_three():
    assert {EVALUATION_MODEL, *TARGETS} == set(ARCHITECTURES)
    sizes = {name: sum(weight.numel() for weight in make(12).parameters()) for name, make in ARCHITECTURES.items()}
    assert len(set(sizes.values())) == 3


def test_the_threshold_errs_equally_often_on_both_sides():
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(1.0, 0.5, 400), rng.normal(0.0, 0.5, 3000)
    judge = NetworkJudge()
    judge.choose_threshold(positive.tolist(), negative.tolist())
    assert judge.threshold == pytest.approx(0.5, abs=0.05)  # halfway between equal bells
    assert (positive < judge.threshold).mean() == pytest.approx((negative >= judge.threshold).mean(), abs=0.005)
    assert judge.says(judge.threshold)[1] == "yes" and judge.says(judge.threshold - 1e-6)[1] == "no"


def test_similarity_is_to_the_mean_of_the_references():
    torch.manual_seed(0)
    judge = NetworkJudge()
    judge.network.eval()
    pictures, references = torch.rand(3, 3, 64, 64), torch.rand(2, 4, 3, 64, 64)
    found = judge.similarities(pictures, references)
    with torch.no_grad():
        for n in range(3):
            for m in range(2):
                query = judge.network(pictures[n : n + 1])[0]
                shown = judge.network(references[m])
                mean = (shown / shown.norm(dim=1, keepdim=True)).mean(dim=0)
                expected = float(query @ mean / query.norm() / mean.norm())
                assert float(found[n, m]) == pytest.approx(expected, abs=1e-5)
