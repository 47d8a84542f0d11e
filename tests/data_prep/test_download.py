"""``cprt download`` against a real server that breaks off, changes its mind and lies."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import yaml
from file_server import FileServer, Served, serving

from cprt.config import parse
from cprt.errors import InputError
from data_prep.download import DownloadArguments, main
from data_prep.transfer import fetch as fetch_module


def tar_gz(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), 0, mtime=0)


NOISE = random.Random(0)
PHOTOS = {f"val2017/2017_{number}.jpg": NOISE.randbytes(150_000) for number in range(4)}
ARCHIVE = tar_gz(PHOTOS)  # 600 kB
OTHER = tar_gz({name: NOISE.randbytes(150_000) for name in PHOTOS})  # just as long
NOTES = tar_gz({f"annotations/val2017/2017_{number}.json": b"{}" for number in range(4)})
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


class Place:
    """A folder to fill and the configuration for it."""

    def __init__(self, folder: Path, server: FileServer):
        self.folder, self.out, self.server = folder, folder / "out", server
        self.config: dict[str, Any] = {
            "out": str(self.out),
            "wait": 0.01,
            "attempts": 4,
            "timeout": 5.0,
            "archives": {},
        }

    def serve(self, served: Served, name: str = "val2017.tar.gz", into: str = "images/val2017", **facts: Any) -> Served:
        self.server.files[f"/{name}"] = served
        self.config["archives"][name] = {
            "url": f"{self.server.url}/{name}",
            "into": into,
            "max_unpacked": 2_000_000,
            **facts,
        }
        return served

    def yaml(self) -> str:
        path = self.folder / "vispr.yaml"
        path.write_text(yaml.safe_dump(self.config))
        return str(path)

    def download(self, *options: str) -> None:
        main(["--config", self.yaml(), *options])

    def refused(self, *options: str) -> str:
        with pytest.raises(InputError) as caught:
            self.download(*options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def photos(self) -> dict[str, bytes]:
        folder = self.out / "images" / "val2017"
        return {f"val2017/{path.name}": path.read_bytes() for path in folder.glob("*")}

    def record(self) -> dict[str, Any]:
        return json.loads((self.out / "archives" / "downloads.json").read_text())

    def partial(self) -> Path:
        return self.out / "archives" / "val2017.tar.gz.partial"

    def gets(self) -> list[Any]:
        return self.server.gets("/val2017.tar.gz")


@pytest.fixture
def place(tmp_path: Path, server: FileServer) -> Place:
    return Place(tmp_path, server)


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


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_file_that_is_not_there_is_asked_for_once(place: Place, status: int):
    place.serve(Served(ARCHIVE, statuses=[status] * 9))
    assert f"val2017.tar.gz: HTTP status {status}" in place.refused()
    assert len(place.gets()) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_asked_again(place: Place, status: int):
    place.serve(Served(ARCHIVE, statuses=[status] * 2))
    place.download()
    assert place.photos() == PHOTOS and len(place.gets()) == 3
    place.server.files["/val2017.tar.gz"].statuses = [status] * 9
    (place.out / "images" / "val2017" / "2017_0.jpg").unlink()
    (place.out / "archives" / "val2017.tar.gz").unlink()
    assert f"HTTP status {status} at byte 0, 4 times in a row" in place.refused()


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(place: Place, form: str):
    at = formatdate(time.time() + 2, usegmt=True)  # whole seconds: at least one from now
    place.serve(Served(ARCHIVE, statuses=[503], retry_after="1" if form == "seconds" else at))
    began = time.monotonic()
    place.download()
    assert time.monotonic() - began >= 0.95
    assert place.photos() == PHOTOS


@pytest.mark.parametrize("retry_after", ["86400", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_server_that_wants_hours_is_not_waited_for(place: Place, retry_after: str):
    place.serve(Served(ARCHIVE, statuses=[503], retry_after=retry_after))
    assert "HTTP status 503, and the server asks to wait" in place.refused()
    place.download()
    assert place.photos() == PHOTOS


@pytest.mark.parametrize("retry_after", ["soon", "", "-5", "nan", "Wed, 21 Oct 2015 07:28:00 GMT", "9" * 400 + "x"])
def test_a_retry_after_that_says_nothing_costs_nothing(place: Place, retry_after: str):
    place.serve(Served(ARCHIVE, statuses=[503], retry_after=retry_after))
    place.download()
    assert place.photos() == PHOTOS


@pytest.mark.parametrize(
    ("location", "complaint"),
    [
        ("ftp://127.0.0.1/x", "leads to an address that cannot be fetched"),
        ("file:///etc/passwd", "leads to an address that cannot be fetched"),
        ("http://a..b/x", "leads to an address that cannot be fetched"),
        ("http://" + "n" * 300 + "/x", "leads to an address that cannot be fetched"),
        ("http://127.0.0.1:99999/x", "leads to an address that cannot be fetched"),
        ("http://someone:s3cret@127.0.0.1/x", "leads to an address that cannot be fetched"),
        ("http://127.0.0.1:s3cret/x", "the connection broke at byte 0, 2 times in a row"),
        ("http://[s3cret/x", "leads to an address that cannot be fetched"),
        ("/val2017.tar.gz", "is redirected without end"),
        ("http://127.0.0.1:9/s3cret?key=s3cret", "no connection (Connection refused)"),
    ],
)
def test_redirects_that_lead_nowhere_are_one_line(place: Place, location: str, complaint: str):
    place.serve(Served(ARCHIVE, location=location))
    place.config["attempts"] = 2
    said = place.refused()
    assert said.startswith(f"{place.server.url}/val2017.tar.gz: ") and complaint in said and "s3cret" not in said


def test_a_redirect_is_followed_and_resumed(place: Place):
    place.serve(Served(b"", location="/elsewhere"))
    place.server.files["/elsewhere"] = Served(ARCHIVE, breaks=[100_000])
    place.download()
    assert place.photos() == PHOTOS
    assert [get.range for get in place.server.gets("/elsewhere")] == [None, "bytes=100000-"]


def test_https_never_leads_to_http(monkeypatch):
    """The request to the less secure address is not even sent: there is no such host."""
    with fetch_module._client("https://127.0.0.1/x?key=s3cret", 1.0) as client:
        (hook,) = client.event_hooks["request"]
        hook(client.build_request("GET", "https://127.0.0.1/y"))
        with pytest.raises(InputError, match=r"^https://127.0.0.1/x: leads to http://127.0.0.1/y, which is less"):
            hook(client.build_request("GET", "http://127.0.0.1/y?key=s3cret"))


@pytest.mark.parametrize(
    "url",
    [
        "http://someone:s3cret@host/a.tar.gz",
        "https://s3cret@host/a.tar.gz",
        "http://:s3cret@host/a.tar.gz",
        "ftp://s3cret/a.tar.gz",
        "file:///s3cret",
        "s3cret",
        "http:///s3cret",
        "http://host:s3cret/a.tar.gz",
        "http://host:0/s3cret",
        "http://host:65536/s3cret",
        "http://host:-1/s3cret",
        "http://[::1/s3cret",
        "http://s3cret..host/",
        "http://1.2.3.999/s3cret",
        "http://" + "s3cret" * 50 + "/",
        "http://host/s3cret\n",
        "http://ho st/s3cret",
        5,
        None,
        ["s3cret"],
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(place: Place, url: Any):
    place.serve(Served(ARCHIVE))
    place.config["archives"]["val2017.tar.gz"]["url"] = url
    said = place.refused()
    assert "archives.val2017.tar.gz: field 'url': " in said
    assert "s3cret" not in said


def test_the_key_in_an_address_is_sent_and_goes_nowhere_else(place: Place, capsys):
    place.serve(Served(ARCHIVE, statuses=[500]))
    place.server.files["/val2017.tar.gz?key=s3cret"] = place.server.files.pop("/val2017.tar.gz")
    place.config["archives"]["val2017.tar.gz"]["url"] += "?key=s3cret"
    place.download("--dry_run")
    place.download()
    assert place.photos() == PHOTOS
    assert not [path for path in place.out.rglob("*.json") if "s3cret" in path.read_text()]
    said = capsys.readouterr()
    assert "s3cret" not in said.out + said.err


@pytest.mark.parametrize("proxy", ["socks5://s3cret@127.0.0.1:9", "s3cret://127.0.0.1:9", "http://[s3cret"])
def test_a_proxy_that_cannot_be_used_is_one_line(place: Place, monkeypatch, proxy: str):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    place.serve(Served(ARCHIVE), size=len(ARCHIVE))
    place.config["attempts"] = 1
    assert "s3cret" not in place.refused()


def test_a_silent_connection_counts_as_broken(place: Place):
    place.serve(Served(ARCHIVE, stall=3, stalls=1))
    place.config["timeout"] = 0.3
    place.download()
    assert place.photos() == PHOTOS
    assert place.gets()[1].range == f"bytes={len(ARCHIVE) // 2}-"


def test_nobody_there(place: Place):
    place.serve(Served(ARCHIVE))
    place.config["archives"]["val2017.tar.gz"]["url"] = "http://127.0.0.1:9/val2017.tar.gz"
    place.config["attempts"] = 2
    assert "no connection (Connection refused)" in place.refused()


def test_a_name_that_nobody_knows_is_looked_up_twice(place: Place, monkeypatch):
    """No network is told at once; a name that is lost in mid-transfer is not."""
    real, lookups = socket.getaddrinfo, 0

    def lookup(*args: Any, **more: Any) -> Any:
        nonlocal lookups
        lookups += 1
        if lookups in broken:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return real(*args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    place.config["attempts"] = 4
    place.serve(Served(ARCHIVE, breaks=[100_000]))
    broken = range(100)  # the first of them asks for the size
    why = "no connection (Temporary failure in name resolution) at byte 0, 2 times in a row"
    assert why in place.refused() and lookups == 3
    lookups, broken = 0, range(3, 5)
    place.download()
    assert place.photos() == PHOTOS


def test_a_killed_run_goes_on_and_two_at_once_are_refused(place: Place):
    place.serve(Served(ARCHIVE, stall=30, stalls=1), sha256=SHA256)
    place.config["timeout"] = 60.0
    command = [sys.executable, "-m", "data_prep.download", "--config", place.yaml()]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
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


def test_the_real_archives_have_room_before_a_server_is_asked(root: Path, tmp_path: Path):
    """27 GB of archives, and 34.4 that they may unpack to (README: 80 GB, with the photos that are shrunk)."""
    (args,) = parse(DownloadArguments, ["--config", str(root / "configs/data/vispr.yaml"), "--out", str(tmp_path)])
    archives, _ = args.wanted()
    assert 26.8e9 < sum(archive.size_about or 0 for archive in archives) < 27e9


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
