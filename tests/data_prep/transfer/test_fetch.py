"""One file over HTTP that breaks off, changes or is not as it was said to be: resumed, and never glued from two."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from downloading import ARCHIVE, OTHER, PHOTOS, SHA256, Place
from file_server import Served


def test_a_broken_connection_is_taken_up_where_it_broke(place: Place):
    place.serve(Served(ARCHIVE, breaks=[100_000, 0, 250_000]), sha256=SHA256)
    place.download()
    assert place.photos() == PHOTOS
    assert [get.range for get in place.gets()] == [None, "bytes=100000-", "bytes=100000-", "bytes=350000-"]
    assert {get.if_range for get in place.gets()[1:]} == {f'"{hashlib.md5(ARCHIVE).hexdigest()}"'}
    assert sum(get.sent for get in place.gets()) == len(ARCHIVE)  # no byte twice


def test_a_later_run_goes_on_too(place: Place):
    served = place.serve(Served(ARCHIVE, breaks=[200_000, 0, 0, 0, 0]))
    said = place.refused()
    assert "the connection broke at byte 200,000 of" in said and "4 times in a row" in said and "go on" in said
    assert place.partial().stat().st_size == 200_000
    served.breaks.clear()
    place.download()
    assert place.photos() == PHOTOS
    assert place.gets()[-1].range == "bytes=200000-"


@pytest.mark.parametrize(
    "kept",
    ["", "[]", "{}", "[" * 100_000, '{"url": 5}', "\x00", '{"size": "200000"}', '{"size": true}', '{"etag": []}'],
)
def test_an_odd_note_beside_a_partial_file_means_starting_over(place: Place, kept: str):
    place.serve(Served(ARCHIVE, breaks=[200_000, 0, 0, 0, 0]))
    place.refused()
    note = place.partial().with_name("val2017.tar.gz.partial.json")
    if kept.startswith('{"'):
        kept = json.dumps(json.loads(note.read_text()) | json.loads(kept))
    note.write_text(kept)
    place.server.files["/val2017.tar.gz"].breaks.clear()
    place.download()
    assert place.photos() == PHOTOS and place.gets()[-1].range is None


def test_a_date_serves_where_there_is_no_strong_etag(place: Place):
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    place.serve(Served(ARCHIVE, etag='W/"weak"', date=date, breaks=[100_000]))
    place.download()
    assert place.photos() == PHOTOS
    assert place.gets()[1].if_range == date


def test_a_server_that_ignores_ranges_starts_over(place: Place):
    place.serve(Served(ARCHIVE, ranges=False, breaks=[100_000, 300_000]), sha256=SHA256)
    place.download()
    assert place.photos() == PHOTOS
    assert place.gets()[-1].sent == len(ARCHIVE)


@pytest.mark.parametrize(
    ("served", "longer"),
    [
        (Served(ARCHIVE, breaks=[100_000]), 0),
        (Served(ARCHIVE, breaks=[100_000], if_range=False), 0),  # it goes on with the new file, yet says its ETag
        (Served(ARCHIVE, breaks=[100_000], if_range=False, tell=False), 1),  # only the length differs
        (Served(ARCHIVE, breaks=[100_000], etag=None), 0),  # nothing to tell two files by: no range is asked for
        (Served(ARCHIVE, breaks=[100_000], etag='W/"same"'), 0),
    ],
)
def test_two_files_are_never_glued(place: Place, served: Served, longer: int):
    """The file changes while the connection is broken."""
    place.serve(served)
    place.config["attempts"] = 1
    place.refused()
    assert place.partial().stat().st_size == 100_000
    served.content = OTHER + bytes(longer)  # gzip takes zeros at the end as padding
    assert len(OTHER) == len(ARCHIVE)
    place.config["attempts"] = 4
    place.download()
    assert (place.out / "archives" / "val2017.tar.gz").read_bytes() == served.content
    assert place.record()["archives"]["val2017.tar.gz"]["sha256"] == hashlib.sha256(served.content).hexdigest()


def test_another_address_is_another_file(place: Place):
    place.serve(Served(ARCHIVE, breaks=[100_000]))
    place.config["attempts"] = 1
    place.refused()
    place.server.files["/mirror.tar.gz"] = Served(OTHER)
    place.config["archives"]["val2017.tar.gz"]["url"] = f"{place.server.url}/mirror.tar.gz"
    place.download()
    assert place.server.gets("/mirror.tar.gz")[0].range is None
    assert (place.out / "archives" / "val2017.tar.gz").read_bytes() == OTHER


def test_a_length_that_is_not_true_is_noticed(place: Place):
    served = place.serve(Served(ARCHIVE, length=len(ARCHIVE) + 1000))
    assert f"stated {len(ARCHIVE) + 1000:,} bytes, then had only {len(ARCHIVE):,}" in place.refused()
    assert not (place.out / "images").exists()
    served.length = None
    place.download()
    assert place.photos() == PHOTOS


def test_a_size_other_than_stated_is_refused_before_anything_is_fetched(place: Place):
    place.serve(Served(ARCHIVE), size=len(ARCHIVE) - 1)
    said = place.refused()
    assert f"the server offers {len(ARCHIVE):,} bytes, expected {len(ARCHIVE) - 1:,}" in said
    assert not place.partial().exists() and not (place.out / "images").exists()


def test_a_stream_without_a_length(place: Place):
    served = place.serve(Served(ARCHIVE, chunked=True, breaks=[100_000]))
    place.download()  # chunks end visibly
    assert place.photos() == PHOTOS
    place.out = place.folder / "again"
    place.config["out"] = str(place.out)
    served.chunked, served.no_length = False, True
    assert "the server states no length; give its size or sha256" in place.refused()
    place.config["archives"]["val2017.tar.gz"]["size"] = len(ARCHIVE) - 1
    assert f"the server sends more than the expected {len(ARCHIVE) - 1:,} bytes" in place.refused()
    place.config["archives"]["val2017.tar.gz"]["size"] = len(ARCHIVE)
    place.download()
    assert place.photos() == PHOTOS


def test_a_silent_connection_counts_as_broken(place: Place):
    place.serve(Served(ARCHIVE, stall=3, stalls=1))
    place.config["timeout"] = 0.3
    place.download()
    assert place.photos() == PHOTOS
    assert place.gets()[1].range == f"bytes={len(ARCHIVE) // 2}-"


def test_a_killed_run_goes_on_and_two_at_once_are_refused(place: Place):
    place.serve(Served(ARCHIVE, stall=30, stalls=1), sha256=SHA256)
    place.config["timeout"] = 60.0
    command = [sys.executable, "-m", "data_prep.download", "--config", place.yaml()]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not (place.partial().exists() and place.partial().stat().st_size > 0):
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.02)
        assert "another run is writing here; wait for it to end" in place.refused()
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    arrived = place.partial().stat().st_size
    assert 0 < arrived < len(ARCHIVE)
    place.download()
    assert place.photos() == PHOTOS
    assert place.gets()[-1].range == f"bytes={arrived}-"
