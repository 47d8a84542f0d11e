"""``cprt download``: what lands where, what is recorded and held to later, what a second run does."""

from __future__ import annotations

import hashlib
import json

import pytest
from downloading import ARCHIVE, NOTES, OTHER, PHOTOS, SHA256, Place, tar_gz
from file_server import Served


def test_archives_land_in_the_layout_of_the_collection_and_a_second_run_does_nothing(place: Place, capsys):
    place.serve(Served(ARCHIVE), size=len(ARCHIVE), sha256=SHA256)
    place.serve(Served(NOTES), "val2017_anno.tar.gz", "annotations/val2017")  # it repeats the folder twice
    place.download()
    assert place.photos() == PHOTOS
    notes = sorted((place.out / "annotations").rglob("*.json"))
    assert [note.relative_to(place.out).as_posix() for note in notes] == [
        f"annotations/val2017/2017_{number}.json" for number in range(4)
    ]
    record = place.record()["archives"]["val2017_anno.tar.gz"]
    assert record["sha256"] == hashlib.sha256(NOTES).hexdigest()  # nobody had stated it
    assert (record["size"], record["files"]) == (len(NOTES), 4)
    report = json.loads((place.out / "run.json").read_text())["report"]["archives"]["val2017.tar.gz"]
    assert (report["fetched"], report["received"], report["bytes"]) == (True, len(ARCHIVE), 600_000)
    assert "4 files in" in capsys.readouterr().out

    before = {path: path.stat().st_mtime_ns for path in place.out.rglob("*") if path.is_file()}
    place.server.requests.clear()
    place.download()
    assert "everything is there, nothing was fetched" in capsys.readouterr().out
    assert place.server.requests == []
    after = {path: path.stat().st_mtime_ns for path in place.out.rglob("*") if path.is_file()}
    assert before == after


def test_a_wrong_digest_is_refused_and_nothing_is_unpacked(place: Place):
    place.serve(Served(ARCHIVE), sha256=hashlib.sha256(OTHER).hexdigest())
    assert f"SHA-256 is {SHA256}, expected" in place.refused()
    assert not (place.out / "images").exists()
    place.server.requests.clear()
    assert "SHA-256 is" in place.refused()
    assert [get.range for get in place.gets()] == [None]  # fetched anew, from its beginning
    place.config["archives"]["val2017.tar.gz"]["sha256"] = SHA256
    place.server.requests.clear()
    place.download()  # the digest was wrong, not the file: it is used as it is
    assert place.gets() == [] and place.photos() == PHOTOS


def test_what_was_recorded_first_holds_later(place: Place):
    served = place.serve(Served(ARCHIVE))
    place.download()
    (place.out / "archives" / "val2017.tar.gz").unlink()
    place.download()  # unpacked already: the archive is not missed
    assert len(place.gets()) == 1
    (place.out / "images" / "val2017" / "2017_1.jpg").unlink()
    served.content = OTHER
    assert f"SHA-256 is {hashlib.sha256(OTHER).hexdigest()}, expected {SHA256}" in place.refused()
    served.content = ARCHIVE
    place.download()
    assert place.photos() == PHOTOS


def test_a_stated_digest_that_contradicts_the_record_is_an_error(place: Place):
    place.serve(Served(ARCHIVE))
    place.download()
    place.config["archives"]["val2017.tar.gz"]["sha256"] = "0" * 64
    assert "downloads.json: field 'archives.val2017.tar.gz': was fetched as SHA-256" in place.refused()


def test_an_archive_put_there_by_hand_is_checked_and_used(place: Place):
    place.serve(Served(ARCHIVE), sha256=SHA256)
    (place.out / "archives").mkdir(parents=True)
    archive = place.out / "archives" / "val2017.tar.gz"
    archive.write_bytes(ARCHIVE[:-1] + b"x")
    assert "is not the expected file" in place.refused()
    archive.write_bytes(ARCHIVE)
    place.download()
    assert place.gets() == [] and place.photos() == PHOTOS


def test_without_room_nothing_is_fetched(place: Place, capsys):
    place.serve(Served(ARCHIVE), max_unpacked=10**18)
    assert "needs 1000000000.0 GB for archives and their files" in place.refused()
    assert place.gets() == [] and not place.partial().exists()


def test_a_dry_run_says_what_is_to_do_and_does_nothing(place: Place, capsys):
    place.serve(Served(ARCHIVE))
    place.download("--dry_run")
    said = capsys.readouterr().out
    assert f"val2017.tar.gz: fetch 0.6 MB from {place.server.url}/val2017.tar.gz; unpack into" in said
    assert "room needed: at most 2.6 MB; free: " in said
    assert not place.out.exists() and place.gets() == []
    place.download()
    place.download("--dry_run")
    assert "everything is there, nothing to fetch" in capsys.readouterr().out


@pytest.mark.parametrize(("about", "size", "room"), [(50_000_000, "50.0 MB", "52.0 MB"), (None, "2.0 MB", "4.0 MB")])
def test_an_archive_whose_size_nobody_says_has_room_too(place: Place, capsys, about: int | None, size: str, room: str):
    """By others' account, or as what it may unpack to; and it is fetched whatever its size is."""
    place.serve(Served(ARCHIVE, no_length=True), sha256=SHA256, size_about=about)
    place.download("--dry_run")
    said = capsys.readouterr().out
    assert f"val2017.tar.gz: fetch about {size} from" in said and f"room needed: at most {room}; free: " in said
    place.download()
    assert place.photos() == PHOTOS


def test_a_part_can_be_fetched(place: Place):
    place.serve(Served(ARCHIVE))
    place.serve(Served(NOTES), "val2017_anno.tar.gz", "annotations/val2017")
    place.download("--only", "val2017_anno.tar.gz")
    assert place.gets() == [] and len(list((place.out / "annotations" / "val2017").iterdir())) == 4


def test_files_that_are_there_stay_and_damaged_ones_come_again(place: Place):
    place.serve(Served(ARCHIVE))
    place.download()
    folder = place.out / "images" / "val2017"
    (folder / "2017_1.jpg").write_bytes(b"cut off")
    kept = (folder / "2017_2.jpg").stat()
    place.download()
    assert place.photos() == PHOTOS and len(place.gets()) == 1
    assert (folder / "2017_2.jpg").stat().st_mtime_ns == kept.st_mtime_ns


def test_a_hostile_archive_leaves_nothing_behind(place: Place):
    place.serve(Served(tar_gz({"val2017/a.jpg": b"a", "val2017/../../../escaped.jpg": b"b"})))
    assert "val2017.tar.gz: is not unpacked: 'val2017/../../../escaped.jpg' is no path inside" in place.refused()
    assert sorted(path.name for path in place.folder.rglob("*") if path.is_file()) == [
        "downloads.json",
        "val2017.tar.gz",
        "vispr.yaml",
    ]


def test_a_broken_archive_does_not_bind_the_next_download(place: Place):
    served = place.serve(Served(ARCHIVE[:-8] + bytes(8)))  # nobody has stated a digest
    assert "CRC check failed" in (said := place.refused()) and said.endswith("delete the archive to fetch it anew")
    (place.out / "archives" / "val2017.tar.gz").unlink()
    served.content = ARCHIVE
    place.download()
    assert place.photos() == PHOTOS
