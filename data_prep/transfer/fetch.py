"""One file over HTTP: resumed where a connection broke, never glued from two different files, checked when complete.

What has arrived waits as ``NAME.partial``; ``NAME.partial.json`` says which file at which address it is the start of.
Our own, because ``huggingface_hub`` goes on with a partial file without asking whether the server's is still the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tqdm import tqdm

from cprt import __version__
from cprt.errors import InputError
from cprt.models.rate_limiter import (
    LONGEST_WAIT,
    UNREACHED_TRIES,
    delay,
    is_retried,
    retry_after,
    root_cause,
    system_words,
)
from cprt.provenance import file_digest
from cprt.records import read_json, write_json
from cprt.values import read_fields

if TYPE_CHECKING:
    import httpx2

_LONGEST_DELAY = 60.0  # seconds, between two attempts where the server asks for no longer one
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True)
class Patience:
    """How long a server is borne with."""

    attempts: int = 8  # tries in a row that bring nothing new before giving up
    wait: float = 1.0  # seconds before the second try; doubled each time up to a minute
    timeout: float = 60.0  # seconds without a byte after which a connection counts as broken


@dataclass(frozen=True)
class Fetched:
    """A complete, checked file."""

    size: int
    sha256: str
    validator: str | None  # the server's ETag or date
    received: int  # bytes that came over the wire


@dataclass
class _Start:
    """What a partial file is the start of."""

    url: str
    size: int | None = None
    etag: str | None = None
    date: str | None = None
    refused: str | None = None  # SHA-256 of a complete file that was not the expected one

    @property
    def validator(self) -> str | None:
        """For If-Range, which knows no weak ETags."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.date

    def same_file(self, headers: httpx2.Headers) -> bool:
        """Whether an answer of these headers speaks of this file; what one side does not state is no difference."""
        pairs = ((self.etag, headers.get("ETag")), (self.date, headers.get("Last-Modified")))
        return all(None in pair or pair[0] == pair[1] for pair in pairs)


class _Broken(Exception):
    """An attempt that failed in a way the next one need not. ``wait``: seconds that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None):
        super().__init__(reason)
        self.wait = wait


def is_address(url: Any) -> bool:
    """Whether this can be fetched: an http or https address with a host, and no user or password, which get about."""
    import httpx2

    try:
        host, parts = httpx2.URL(url).host, urlsplit(url)
        usable = re.fullmatch(rb"[\w.:-]+", host.encode("idna")) and parts.port != 0
    except (httpx2.InvalidURL, ValueError, TypeError, AttributeError):  # no text; a host or port that is none
        return False
    return bool(usable) and parts.scheme in ("http", "https") and parts.username is None


def shown(url: str) -> str:
    """An address for messages and records: without what may be a key to it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def remote_size(url: str, timeout: float) -> int | None:
    """The size that a server states, None where it states none or cannot be asked."""
    import httpx2

    try:
        with _client(url, timeout) as client:
            response = client.head(url)
        return _length(response.headers) if response.is_success else None
    except (httpx2.HTTPError, InputError):
        return None


def fetch(
    url: str, path: Path, size: int | None = None, sha256: str | None = None, patience: Patience = Patience()
) -> Fetched:
    """Download ``url`` to ``path``; what an earlier run left of it is used where it is the same file.

    ``size`` in bytes and ``sha256`` it must have; None where unknown. Raises InputError in one line: no such file, a
    wrong size or digest, no room, or a server that keeps failing.
    """
    return _Download(url, path, size, sha256, patience).run()


class _Download:
    def __init__(self, url: str, path: Path, size: int | None, sha256: str | None, patience: Patience):
        self.url, self.path, self.size, self.sha256, self.patience = url, path, size, sha256, patience
        self.partial = path.with_name(path.name + ".partial")
        self.note = path.with_name(path.name + ".partial.json")
        self.received = 0
        self.answered = self.unknown_host = False  # a name that was never found is no break in mid-transfer

    def fail(self, message: str) -> InputError:
        return InputError(f"{shown(self.url)}: {message}")

    def run(self) -> Fetched:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        start = self._start()
        if start.refused is not None and start.refused != self.sha256:
            start = self._anew()
        complete = start.size is not None and self._have() == start.size == (self.size or start.size)
        if start.refused is None and not complete:
            with (
                tqdm(desc=self.path.name, total=self.size, unit="B", unit_scale=True, unit_divisor=1024) as bar,
                _client(self.url, self.patience.timeout) as client,
            ):
                start = self._persist(client, start, bar)
        digest = file_digest(self.partial)
        if digest != (self.sha256 or digest):
            start.refused = digest  # should this be what is expected later, the file is used as it is
            write_json(self.note, asdict(start))
            mend = "run again to fetch it anew, or correct the expected digest if the publisher has changed the file"
            raise self.fail(f"SHA-256 is {digest}, expected {self.sha256}; {mend}")
        with open(self.partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.partial, self.path)
        self.note.unlink(missing_ok=True)
        return Fetched(self.path.stat().st_size, digest, start.validator or start.etag, self.received)

    def _start(self) -> _Start:
        """What the partial file is the start of; an empty one where there is none to go on with."""
        with contextlib.suppress(InputError):
            start = read_fields(_Start, read_json(self.note), self.note)
            if start.url == self.url and self.partial.is_file():
                return start
        return self._anew()

    def _anew(self) -> _Start:
        self.partial.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        return _Start(self.url)

    def _have(self) -> int:
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def _persist(self, client: httpx2.Client, start: _Start, bar: Any) -> _Start:
        """Attempt after attempt until the file is complete. An attempt counts as useless unless it got further."""
        useless, furthest = 0, self._have()
        while True:
            try:
                return self._attempt(client, start, bar)
            except _Broken as broken:
                start = self._start()  # as far as it got
                have = self._have()
                if have > furthest:
                    useless, furthest = 0, have
                useless += 1
                wait, again = broken.wait or 0.0, "run the same command again"
                if wait > LONGEST_WAIT:
                    asks = f"the server asks to wait {wait:,.0f} seconds"
                    raise self.fail(f"{broken}, and {asks}; {again} then to go on") from broken
                attempts = min(self.patience.attempts, UNREACHED_TRIES) if self.unknown_host else self.patience.attempts
                if useless >= attempts:
                    place = f"{have:,}" if start.size is None else f"{have:,} of {start.size:,}"
                    raise self.fail(f"{broken} at byte {place}, {useless} times in a row; {again} to go on") from broken
                pause = max(wait, delay(useless, self.patience.wait, _LONGEST_DELAY))
                bar.set_postfix_str(f"{broken}; try {useless + 1} of {attempts} in {pause:.0f} s")
                time.sleep(pause)

    def _attempt(self, client: httpx2.Client, start: _Start, bar: Any) -> _Start:
        """One request, and all that comes of it written. Raises _Broken when that was not everything."""
        import httpx2

        have = self._have()
        headers = {}
        # Without a validator two different files could be glued, unless a digest would tell.
        if have and (start.validator or (self.sha256 and start.size)):
            headers["Range"] = f"bytes={have}-"
            if start.validator:
                headers["If-Range"] = start.validator
        try:
            with client.stream("GET", self.url, headers=headers) as response:
                self.answered = True
                self._check_status(response, start, have)
                start, offset = self._match(start, have, response)
                self._receive(response, start, offset, bar)
        except httpx2.TransportError as error:
            fault = root_cause(error)
            reason = f" ({words})" if (words := system_words(fault)) else ""
            if isinstance(fault, ssl.SSLCertVerificationError):
                raise self.fail(f"no connection{reason}") from error
            self.unknown_host = isinstance(fault, socket.gaierror) and not self.answered
            what = "no connection" if isinstance(error, httpx2.ConnectError) else "the connection broke"
            raise _Broken(what + reason) from error
        except httpx2.TooManyRedirects as error:
            raise self.fail("is redirected without end") from error
        return start

    def _check_status(self, response: httpx2.Response, start: _Start, have: int) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        if status == 416 and have:  # nothing after what we have: another file, or a length that was not true
            self._anew()
            stated = "more" if start.size is None else f"{start.size:,}"
            raise self.fail(f"the server stated {stated} bytes, then had only {have:,}; run again to fetch it anew")
        if is_retried(status):
            raise _Broken(f"HTTP status {status}", retry_after(response.headers.get("Retry-After"), time.time()))
        raise self.fail(f"HTTP status {status} ({response.reason_phrase})")

    def _match(self, start: _Start, have: int, response: httpx2.Response) -> tuple[_Start, int]:
        """Which file the answer brings, and from which byte on. Raises InputError when it is not the wanted one."""
        headers = response.headers
        offset = 0
        if response.status_code == 206:
            found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
            total = int(found[3]) if found and found[3] != "*" else start.size
            goes_on = found is not None and found[1] is not None and int(found[1]) == have
            if not goes_on or start.size not in (None, total) or not start.same_file(headers):
                self._anew()
                raise _Broken("the file has changed")
            start.size, offset = total, have
        else:
            start = _Start(self.url, _length(headers), headers.get("ETag"), headers.get("Last-Modified"))
            is_chunked = "chunked" in headers.get("Transfer-Encoding", "")
            if start.size is None and self.size is None and self.sha256 is None and not is_chunked:
                raise self.fail("the server states no length; give its size or sha256")
        if start.size is not None and start.size != (self.size or start.size):
            self._anew()
            raise self.fail(f"the server offers {start.size:,} bytes, expected {self.size:,}")
        return start, offset

    def _receive(self, response: httpx2.Response, start: _Start, offset: int, bar: Any) -> None:
        total = start.size if start.size is not None else self.size
        free = shutil.disk_usage(self.path.parent).free
        if total is not None and total - offset > free:
            needs = f"{self.path.name} needs {total - offset:,} more bytes, {free:,} are free"
            raise InputError.at(self.path.parent, needs)
        write_json(self.note, asdict(start))  # first: bytes without a note are never used
        bar.reset(total)
        bar.update(offset)
        have = offset
        with open(self.partial, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.truncate()
            for data in response.iter_raw():  # as it arrives: a broken connection or a kill loses none of it
                have += len(data)
                if total is not None and have > total:
                    self._anew()
                    raise self.fail(f"the server sends more than the expected {total:,} bytes")
                file.write(data)
                file.flush()
                self.received += len(data)
                bar.update(len(data))
        if total is not None and have < total:
            raise _Broken("the connection broke")


def _client(url: str, timeout: float) -> httpx2.Client:
    """Follows redirects, never to an address that is none or, from https, to one that is less secure."""
    import httpx2

    def check(request: httpx2.Request) -> None:
        target = str(request.url)
        if not is_address(target):
            raise InputError(f"{shown(url)}: leads to an address that cannot be fetched")
        if url.startswith("https:") and not target.startswith("https:"):
            raise InputError(f"{shown(url)}: leads to {shown(target)}, which is less secure")

    # Compressed on the way, ranges would count other bytes than the file's.
    headers = {"User-Agent": f"cprt/{__version__}", "Accept-Encoding": "identity"}
    try:
        return httpx2.Client(headers=headers, timeout=timeout, follow_redirects=True, event_hooks={"request": [check]})
    except (ImportError, ValueError) as error:  # its message could show a password
        raise InputError("the proxy that the environment names (HTTPS_PROXY, ALL_PROXY) cannot be used") from error


def _length(headers: httpx2.Headers) -> int | None:
    stated = headers.get("Content-Length", "")
    return int(stated) if stated.isdecimal() and stated.isascii() else None
