"""Servers in trouble and addresses that lead nowhere: how long they are borne with, and what is shown of them."""

from __future__ import annotations

import socket
import time
from email.utils import formatdate
from typing import Any

import pytest
from downloading import ARCHIVE, PHOTOS, Place
from file_server import Served

from cprt.errors import InputError
from data_prep.transfer import fetch as fetch_module


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
