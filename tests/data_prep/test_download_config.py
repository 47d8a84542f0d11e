"""The configuration of ``cprt download``: what is refused of it, and what the one that ships names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from downloading import ARCHIVE, Place
from file_server import Served

from cprt.config import parse
from data_prep.download import DownloadArguments


def test_the_real_archives_have_room_before_a_server_is_asked(root: Path, tmp_path: Path):
    """27 GB of archives, and 34.4 that they may unpack to (README: 80 GB, with the photos that are shrunk)."""
    (args,) = parse(DownloadArguments, ["--config", str(root / "configs/data/vispr.yaml"), "--out", str(tmp_path)])
    archives, _ = args.wanted()
    assert 26.8e9 < sum(archive.size_about or 0 for archive in archives) < 27e9


BAD = {
    "archives.val2017.tar.gz.url": "ftp://host/val2017.tar.gz",
    "archives.val2017.tar.gz.into": "../elsewhere",
    "archives.val2017.tar.gz.size": -5,
    "archives.val2017.tar.gz.sha256": "123",
    "archives.val2017.tar.gz.max_unpacked": "10 GB",
}


@pytest.mark.parametrize("field", BAD)
def test_bad_configuration_names_the_field(place: Place, field: str):
    place.serve(Served(ARCHIVE))
    place.config["archives"]["val2017.tar.gz"][field.rpartition(".")[2]] = BAD[field]
    archive, _, name = field.rpartition(".")
    assert f"vispr.yaml: {archive}: field '{name}': " in place.refused()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda config: config["archives"]["val2017.tar.gz"].pop("into"),
            "archives.val2017.tar.gz: field 'into': is missing",
        ),
        (
            lambda config: config["archives"]["val2017.tar.gz"].update(sha1="x"),
            "archives.val2017.tar.gz: field 'sha1': unknown",
        ),
        (
            lambda config: config["archives"].update({"../x.tar.gz": config["archives"].pop("val2017.tar.gz")}),
            "archives.../x.tar.gz: field 'name'",
        ),
        (
            lambda config: config["archives"].update({"a.zip": config["archives"].pop("val2017.tar.gz")}),
            "archives.a.zip: field 'name': 'a.zip' is not a file name that ends in .tar.gz",
        ),
        (lambda config: config["archives"].update({"val2017.tar.gz": "http://x"}), "must be a mapping"),
        (lambda config: config["archives"].clear(), "neither archives nor labels to fetch"),
        (lambda config: config.update(only=["val2018.tar.gz"]), "only: 'val2018.tar.gz' is none of val2017.tar.gz"),
        (lambda config: config.update(labels={"repo": "a/b", "revision": "main"}), "labels: field 'files': is missing"),
        (
            lambda config: config.update(labels={"repo": "a/b", "revision": "main", "files": {"../x": None}}),
            "labels: field 'files': '../x' is not a file name",
        ),
        (lambda config: config.update(attempts=0), "attempts must be at least 1"),
    ],
)
def test_a_configuration_that_makes_no_sense(place: Place, change: Callable[[dict[str, Any]], Any], complaint: str):
    place.serve(Served(ARCHIVE))
    change(place.config)
    assert complaint in place.refused()
    assert not place.out.exists()


def test_the_shipped_configuration_names_the_published_files(root: Path):
    (args,) = parse(DownloadArguments, ["--config", str(root / "configs" / "data" / "vispr.yaml")])
    archives, labels = args.wanted()
    assert [archive.name for archive in archives] == [
        "val2017_anno.tar.gz",
        "test2017_anno.tar.gz",
        "val2017.tar.gz",
        "test2017.tar.gz",
    ]
    assert all(archive.url.endswith(f"/orekondy17iccv/{archive.name}") for archive in archives)
    assert (labels.repo, list(labels.files)) == ("timtsapras23/CPRT-Bench", ["cprt_train.json", "cprt_test.json"])
