"""``cprt mi`` where references are few or shared: controls of the same data, degraded ones, padding, none at all."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from collection import ID, SETUP, configure, describe, make
from judging import judge, process, queries, rows, summary
from loopback import Misbehaving
from PIL import Image, ImageFilter

from eval.model_inversion.judge.degrade import sharpness
from eval.model_inversion.judge.drawing import GAP, TILE
from eval.model_inversion.judge.run import main


def test_setups_are_judged_together_and_share_their_controls(tmp_path: Path):
    root = make(tmp_path)
    base = root / "AttackSamples" / "CelebA"
    shutil.copytree(base / "KEDMI", base / "PPA")
    with Misbehaving(judge) as server:
        main([*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "6"])
        assert len(server.bodies) == 12 + 12 + 12
    ids = (ID, "celeba_ppa_ffhq_facenet64")
    first, second = (rows(tmp_path / "out", "one", "controls.csv", id) for id in ids)
    assert first == second and len(first) == 12
    assert rows(tmp_path / "out", "one", id=ids[0]) != rows(tmp_path / "out", "one", id=ids[1])
    with Misbehaving(judge) as server:
        main([*configure(tmp_path / "only", describe(tmp_path, root), server.url, "one"), "--only", "CelebA/PPA"])
        assert not (tmp_path / "only" / "out" / "one" / ID).exists()


def test_a_class_without_references_is_a_reported_row_and_none_at_all_is_status_2(tmp_path: Path):
    root = make(tmp_path)
    private = root / "AttackSamples" / "CelebA" / "private-data"
    shutil.rmtree(private / "1")
    with Misbehaving(judge) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "0"]
        main(arguments)
        said = summary(tmp_path / "out", "one")
        assert (said["n"], said["not_shown"], said["counts"]["error"]) == (8, 4, 0) and len(server.bodies) == 8
        assert {row["reason"] for row in said["problems"]} == {"class '1' has 0 usable references, 4 are needed"}
        for number in ("0", "2"):
            for path in [*(private / number).iterdir()][3:]:
                path.unlink()
        run = process(arguments)
        _, err = run.communicate()
        assert run.returncode == 2 and len(server.bodies) == 8
        line = err.splitlines()[-1]
        assert line.startswith(f"cprt mi: error: {SETUP}: none of its 12 reconstructions can be shown (the first: ")
        assert "class '0' has 3 usable references, 4 are needed" in line and "Traceback" not in err


def test_degraded_controls_show_the_same_pairs_with_a_blurred(tmp_path: Path):
    root = make(tmp_path)
    for path in root.glob("AttackSamples/**/all-images/*/*.png"):  # reconstructions are smoother than references
        with Image.open(path) as image:
            image.filter(ImageFilter.GaussianBlur(3)).save(path)
    with Misbehaving(lambda body: ("yes", "stop")) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--controls", "5"]
        main([*arguments, "--degraded", "true"])
        asked = len(server.bodies)
        main([*arguments, "--degraded", "false"])  # the others are kept
        assert asked == 12 + 20 and len(server.bodies) == asked
        assert Counter(row["kind"] for row in rows(tmp_path / "out", "one", "controls.csv")).total() == 10
        main([*arguments, "--degraded", "true"])
        assert len(server.bodies) == asked
    out = tmp_path / "out"
    counts = Counter(row["kind"] for row in rows(out, "one", "controls.csv"))
    assert counts == dict.fromkeys(("positive", "negative", "positive_degraded", "negative_degraded"), 5)
    assert summary(out, "one")["controls"]["positive_degraded"]["hit_rate"] == 1.0
    shown = {(row["kind"], row["class"], row["file"]): row for row in queries(out)}
    for (kind, claims, file), row in shown.items():
        if kind.endswith("_degraded"):
            clean = shown[kind.removesuffix("_degraded"), claims, file]
            assert row["references"] == clean["references"] and row["blur"] > 1 and clean["blur"] == 0
            with Image.open(out / row["images"][0]) as soft, Image.open(out / clean["images"][0]) as hard:
                a, b = (0, 0, TILE, TILE), (TILE + GAP, 0, hard.width, TILE)
                assert sharpness(soft.crop(a)) < 0.7 * sharpness(hard.crop(a))
                assert np.abs(np.asarray(soft.crop(b), int) - np.asarray(hard.crop(b), int)).max() < 40


@pytest.mark.parametrize("pad", [False, True])
def test_classes_with_few_references_cost_no_rate(tmp_path: Path, pad: bool):
    """A judge that always says yes: its hit rate is 1, with n = 1 as with n = 4, and padded or not."""
    root = make(tmp_path)
    for number in ("0", "1"):
        for path in sorted((root / "AttackSamples" / "CelebA" / "private-data" / number).iterdir())[2:]:
            path.unlink()
    with Misbehaving(lambda body: ("yes", "stop")) as server:
        arguments = [*configure(tmp_path, describe(tmp_path, root), server.url, "one"), "--pad", str(pad)]
        for n in ("1", "4"):
            main([*arguments, "--n", n, "--controls", "6"])
            said, shown = summary(tmp_path / "out", "one"), 12 if pad or n == "1" else 4
            controls = said["controls"]
            assert (said["n"], said["not_shown"], said["attack_accuracy"]) == (shown, 12 - shown, 1.0)
            assert (controls["positive"]["n"], controls["positive"]["not_shown"]) == (6, 0)
            assert controls["positive"]["hit_rate"] == controls["negative"]["false_alarm_rate"] == 1.0
            labels = Counter(row["label"] for row in rows(tmp_path / "out", "one"))
            assert labels == Counter(yes=shown) + Counter(not_shown=12 - shown)
    for row in queries(tmp_path / "out"):
        if row["problem"] is None:
            repeated = row["class"] != "2"
            of_class = [path for path in row["references"] if f"/{row['class']}/" in path]
            assert len(of_class) == 4 and len(set(of_class)) == ((2 - (row["kind"] == "positive")) if repeated else 4)
