"""The pictures that a judge sees, and what happens to references that cannot be read."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from collection import SETUP, colour, describe, make, picture
from PIL import Image, ImageFilter

from cprt.errors import InputError
from eval.model_inversion.collection.setups import Setup, read_setups
from eval.model_inversion.judge.drawing import CAPTION, GAP, LINE, TILE, draw
from eval.model_inversion.judge.panels import Panels, _tile
from eval.model_inversion.judge.prompts import OURS, SUBJECTS, Subject
from eval.model_inversion.judge.queries import Options, plan


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return read_setups(describe(tmp_path, make(tmp_path)))[1][0]


def panels(folder: Path, **options) -> Panels:
    return Panels(folder / "root", folder / "panels", Options(**options))


def show(folder: Path, setup: Setup, controls: int = 0, **options):
    return panels(folder, **options).show(setup, plan(setup, controls, Options(**options)))


def near(pixel: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    return bool(np.abs(np.subtract(pixel, wanted)).max() < 25)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_panel_is_laid_out_as_the_papers(tmp_path: Path, setup: Setup, n: int):
    for order_seed in (None, 1, 2):
        for shown in show(tmp_path, setup, controls=4, n=n, order_seed=order_seed):
            (path,) = shown.images
            with Image.open(path) as image:
                lines = (image.height - TILE - CAPTION - 6) // LINE
                assert image.size == (TILE * (n + 1) + GAP, TILE + CAPTION + 6 + LINE * lines) and lines <= 2
                lefts = [number * TILE for number in range(n + 1)]
                first = 1 if shown.a_first else n
                lefts = [left + (GAP if number >= first else 0) for number, left in enumerate(lefts)]
                a = lefts[0 if shown.a_first else -1]
                b = lefts[1:] if shown.a_first else lefts[:-1]
                # The corner says of which class a picture is; a negative control is of another.
                claims = int(shown.query.claims)
                of = int(shown.query.path.split("/")[-2])
                assert near(image.getpixel((a + 20, 20)), colour(of))
                assert all(near(image.getpixel((left + 20, 20)), colour(claims)) for left in b)
                assert (of == claims) == (shown.query.kind != "negative")
                pixels = np.asarray(image.convert("RGB"), dtype=int)
                gap = pixels[:TILE, first * TILE + 8 : first * TILE + GAP - 8]
                assert gap.min() > 240
                bottom = pixels[TILE + CAPTION :]
                red = (bottom[..., 0] > 200) & (bottom[..., 1:] < 80).all(axis=-1)
                assert red.sum() > 500 and not (bottom < 80).all(axis=-1).any()
                caption = (pixels[TILE : TILE + CAPTION] < 80).all(axis=-1).any(axis=0)
                assert caption[a : a + TILE].any() and caption[b[0] : b[-1] + TILE].any()
            assert shown.a_first or order_seed is not None
            assert shown.query.path not in shown.references and len(set(shown.references)) == n


def test_pictures_keep_their_aspect_ratio_and_references_are_cut_as_stated(tmp_path: Path, setup: Setup):
    wide = picture(tmp_path / "root" / "wide.png", 3, size=(200, 100))
    making = panels(tmp_path)
    tile = np.asarray(_tile(making._part("wide.png", None)), dtype=int)
    assert tile.shape == (TILE, TILE, 3)
    assert (tile[:50] == 255).all() and (tile[-50:] == 255).all() and near(tuple(tile[70, 20]), colour(3))
    cut = np.asarray(_tile(making._part("wide.png", (0, 0, 50, 25))), dtype=int)
    assert near(tuple(cut[112, 112]), colour(3)) and near(tuple(cut[112, 5]), colour(3))
    assert wide.is_file()
    crop = dataclasses.replace(setup, crop=(0, 0, 41, 40))
    shown = making.show(crop, plan(crop, 0, Options()))
    assert {row.problem for row in shown} == {f"class '{c}' has 0 usable references, 4 are needed" for c in "012"}
    assert "reference_crop [0, 0, 41, 40] does not fit its 40 x 40 pixels" in shown[0].skipped[0]


def test_pictures_are_made_once_and_only_what_is_missing_is_made_again(tmp_path: Path, setup: Setup, monkeypatch):
    first = show(tmp_path, setup, controls=6)
    files = {path: path.stat().st_mtime_ns for shown in first for path in shown.images}
    gone = first[3].images[0]
    content = gone.read_bytes()
    gone.unlink()
    (tmp_path / "panels" / "unfinished" / "half.1").write_bytes(b"x")
    drawn = []
    monkeypatch.setattr("eval.model_inversion.judge.panels.draw", lambda *args: drawn.append(args) or draw(*args))
    assert show(tmp_path, setup, controls=6) == first
    assert len(drawn) == 1 and gone.read_bytes() == content
    assert all(path.stat().st_mtime_ns == time for path, time in files.items() if path != gone)
    assert not list((tmp_path / "panels" / "unfinished").iterdir())
    assert panels(tmp_path).show(setup, plan(setup, 6, Options()), workers=1) == first


def test_what_shows_nothing_is_no_reference_and_nothing_is_opened_that_could_hang(tmp_path: Path, setup: Setup):
    folder = tmp_path / "root" / "AttackSamples"
    references = sorted((folder / "CelebA" / "private-data" / "0").iterdir())
    Image.new("RGB", (1, 1)).save(references[0])
    Image.new("RGB", (7, 300)).save(references[1])
    references[2].unlink()
    os.mkfifo(references[2])
    reconstructions = sorted((folder / SETUP / "all-images" / "1").iterdir())
    reconstructions[0].unlink()
    os.mkfifo(reconstructions[0])
    setup = read_setups(tmp_path / "collection.yaml")[1][0]
    shown = show(tmp_path, setup, controls=6)
    used = {path for row in shown for path in row.references}
    assert not used & {path.relative_to(tmp_path / "root").as_posix() for path in references[:3]}
    skipped = " ".join(line for row in shown for line in row.skipped)
    assert "is too small to show anything (1 x 1 pixels)" in skipped and "(7 x 300 pixels)" in skipped
    assert "is not a regular file" in skipped
    unshown = {row.query.path.split("/")[-1] for row in shown if row.problem}
    assert reconstructions[0].name in unshown <= {path.name for path in [*references[:3], reconstructions[0]]}


def test_references_are_decoded_once(tmp_path: Path, setup: Setup, monkeypatch):
    import eval.model_inversion.judge.panels as module

    opened: list[str] = []
    real = module.load_image
    monkeypatch.setattr(module, "load_image", lambda path, *more: opened.append(str(path)) or real(path, *more))
    show(tmp_path, setup)
    assert len(opened) == len(set(opened)) <= 12 + 21


@pytest.mark.parametrize("order_seed", [None, 5])
def test_separate_images_come_in_the_order_that_the_message_says(tmp_path: Path, setup: Setup, order_seed: int | None):
    for shown in show(tmp_path, setup, controls=3, layout="separate", order_seed=order_seed):
        of = int(shown.query.path.split("/")[-2])
        colours = [colour(int(shown.query.claims))] * 4
        colours.insert(0 if shown.a_first else 4, colour(of))
        for path, wanted in zip(shown.images, colours, strict=True):
            with Image.open(path) as image:
                assert image.size == (TILE, TILE) and near(image.getpixel((20, 20)), wanted)
        (message,) = OURS.messages(SUBJECTS["person"], False, "separate", 4, shown.a_first)
        kinds = [part.get("text", "image")[:11] for part in message["content"]][1:-1]
        a, b = ["Image A:", "image"], ["Set of Imag", *["image"] * 4]
        assert kinds == (a + b if shown.a_first else b + a)


# --- What cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["panel", "separate"])
def test_a_truncated_reference_is_replaced_and_reported(tmp_path: Path, setup: Setup, layout: str):
    before = show(tmp_path, setup, layout=layout)
    victim = next(path for path in before[0].references if path.endswith(".JPG"))
    whole = (tmp_path / "root" / victim).read_bytes()
    (tmp_path / "root" / victim).write_bytes(whole[: len(whole) // 2])
    after = show(tmp_path, setup, layout=layout)
    assert any(victim in shown.references for shown in before[1:])
    for old, new in zip(before, after, strict=True):
        assert new.problem is None and len(new.references) == 4 and victim not in new.references
        if victim in old.references:  # the others stay, one more comes
            assert len(set(old.references) & set(new.references)) == 3
            assert len(new.skipped) == 1 and new.skipped[0].startswith(f"{victim}: cannot be read as an image")
        else:
            assert new == old
    assert show(tmp_path, setup, layout=layout) == after


def test_too_few_references_an_empty_class_and_a_bad_reconstruction_are_reported_rows(tmp_path: Path, setup: Setup):
    """Fault 9: an empty class raised IndexError."""
    root = tmp_path / "root"
    for path in setup.references["0"][3:]:
        (root / path).unlink()
    for path in setup.references["1"]:
        (root / path).unlink()
    (root / setup.reconstructions[-1].path).write_bytes(b"no image")
    (_, (setup,)) = read_setups(describe(tmp_path, root))
    shown = show(tmp_path, setup, controls=50)
    problems = {row.query.claims: row.problem for row in shown if row.query.kind == "reconstruction"}
    assert problems["0"] == "class '0' has 3 usable references, 4 are needed"
    assert problems["1"] == "class '1' has 0 usable references, 4 are needed"
    assert problems["2"] == f"{setup.reconstructions[-1].path}: is not an image"
    assert sum(row.problem is None for row in shown if row.query.kind == "reconstruction") == 3
    assert setup.references["1"] == () and setup.record()["classes_without_references"] == ["1"]


def test_a_copy_of_image_a_is_no_reference_of_a_positive_control(tmp_path: Path, setup: Setup):
    root = tmp_path / "root"
    folder = root / Path(setup.references["0"][0]).parent
    shutil.copy(root / setup.references["0"][0], folder / "copy.png")
    (_, (setup,)) = read_setups(describe(tmp_path, root))
    copies = {setup.references["0"][0], f"{Path(setup.references['0'][0]).parent.as_posix()}/copy.png"}
    found = 0
    for seed in range(4):
        for shown in show(tmp_path, setup, controls=30, seed=seed):
            if shown.query.kind == "positive" and shown.query.path in copies:
                assert not copies & set(shown.references) and len(shown.references) == 4
                found += bool(shown.skipped) and "is a copy of Image A" in shown.skipped[0]
    assert found


def test_a_question_in_other_letters_needs_separate_images(tmp_path: Path, setup: Setup):
    japanese = dataclasses.replace(setup, subject=Subject("同じ人", "年齢"))
    with pytest.raises(InputError, match="set --layout separate"):
        show(tmp_path, japanese)
    assert all(row.problem is None for row in show(tmp_path, japanese, layout="separate"))


def test_white_bars_beside_photos_do_not_count_as_sharpness(tmp_path: Path, setup: Setup):
    """Photos, and the same ones beside their mirror images, which leaves no bars: the same blur."""
    root, found = tmp_path / "root", []

    def photo(seed: int, is_whole: bool) -> Image.Image:
        rng = np.random.default_rng(seed)
        coarse = Image.fromarray(rng.integers(40, 160, (12, 6, 3)).astype(np.uint8)).resize((60, 120))
        half = (np.asarray(coarse) + rng.normal(0, 9, (120, 60, 3))).clip(0, 255).astype(np.uint8)
        return Image.fromarray(np.hstack([half, half[:, ::-1]]) if is_whole else half)

    for seed, image in enumerate(setup.reconstructions):
        photo(seed, is_whole=True).filter(ImageFilter.GaussianBlur(1.0)).save(root / image.path)
    files = [path for paths in setup.references.values() for path in paths]
    for is_whole in (True, False):
        for seed, path in enumerate(files):
            photo(seed, is_whole).save(root / path, quality=95)
        degraded = [one for one in show(tmp_path, setup, controls=9, degraded=True) if one.query.is_degraded]
        (blur,) = {one.blur for one in degraded}
        found.append(blur)
        shutil.rmtree(tmp_path / "panels")
    assert found[0] == pytest.approx(TILE / 120, rel=0.2) and found[1] == pytest.approx(found[0], rel=0.05)
    tile = np.asarray(_tile(panels(tmp_path)._part(files[0], None)))
    assert (tile[:, : TILE // 4 - 1] == 255).all() and tile.shape == (TILE, TILE, 3)
