"""One file over HTTP: resumed where a connection broke, never glued from two different files, checked when complete.

What has arrived waits as ``NAME.partial``; ``NAME.partial.json`` says which file at which address it is the start of.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt import __version__
from cprt.errors import InputError
from cprt.provenance import file_digest
from cprt.records import write_json

_CHUNK = 1 << 20
_LONGEST_WAIT = 60.0  # seconds, between two attempts and when a server says Retry-After
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True)
class Patience:
    """How long a server is borne with.

    Args:
        attempts: tries in a row that bring nothing new before giving up.
        wait: seconds before the second try; doubled each time up to a minute.
        timeout: seconds without a byte after which a connection counts as broken.
    """

    attempts: int = 8
    wait: float = 1.0
    timeout: float = 60.0


@dataclass(frozen=True)
class Fetched:
    """A complete, checked file. ``validator`` is the server's ETag or date, ``received`` what came over the wire."""

    size: int
    sha256: str
    validator: str | None
    received: int


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

    def same_file(self, headers: Message) -> bool:
        """Whether an answer of these headers speaks of this file; what one side does not state is no difference."""
        pairs = ((self.etag, headers["ETag"]), (self.date, headers["Last-Modified"]))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


class _Broken(Exception):
    """An attempt that failed in a way the next one need not."""

    def __init__(self, reason: str, retry_after: str | None = None):
        super().__init__(reason)
        self.retry_after = retry_after


def remote_size(url: str, timeout: float) -> int | None:
    """The size that a server states, None where it states none or cannot be asked."""
    try:
        with _open(url, {}, timeout, "HEAD") as response:
            return _length(response.headers)
    except (OSError, http.client.HTTPException, InputError):
        return None


def fetch(
    url: str,
    path: Path,
    size: int | None = None,
    sha256: str | None = None,
    patience: Patience = Patience(),
    name: str | None = None,
) -> Fetched:
    """Download ``url`` to ``path``; what an earlier run left of it is used where it is the same file.

    Args:
        size: bytes that it must have, None where unknown.
        sha256: hex digest that it must have, None where unknown.

    Raises InputError in one line: no such file, a wrong size or digest, no room, or a server that keeps failing.
    """
    download = _Download(url, path, size, sha256, patience, name or path.name)
    return download.run()


class _Download:
    def __init__(self, url: str, path: Path, size: int | None, sha256: str | None, patience: Patience, name: str):
        self.url, self.path, self.size, self.sha256 = url, path, size, sha256
        self.patience, self.name = patience, name
        self.partial = path.with_name(path.name + ".partial")
        self.note = path.with_name(path.name + ".partial.json")
        self.received = 0
        self.bar: Any = None

    def run(self) -> Fetched:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        start = self._start()
        if start.refused is not None:
            if start.refused == self.sha256:  # the file was right, what it was compared with is now too
                return self._finish(start, start.refused)
            start = self._anew()
        if not self._complete(start):
            with tqdm(desc=self.name, total=self.size, unit="B", unit_scale=True, unit_divisor=1024) as self.bar:
                start = self._persist(start)
        digest = file_digest(self.partial)
        if self.sha256 is not None and digest != self.sha256:
            start.refused = digest
            write_json(self.note, asdict(start))
            raise InputError(
                f"{self.url}: SHA-256 is {digest}, expected {self.sha256}; run again to fetch it anew, or correct the "
                "expected digest if the publisher has changed the file"
            )
        return self._finish(start, digest)

    def _finish(self, start: _Start, digest: str) -> Fetched:
        with open(self.partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.partial, self.path)
        self.note.unlink(missing_ok=True)
        return Fetched(self.path.stat().st_size, digest, start.validator or start.etag, self.received)

    def _start(self) -> _Start:
        """What the partial file is the start of; an empty one where there is none to go on with."""
        try:
            start = _Start(**json.loads(self.note.read_text(encoding="utf-8")))
            if start.url == self.url and self.partial.is_file():
                return start
        except (OSError, ValueError, TypeError):
            pass
        return self._anew()

    def _anew(self) -> _Start:
        self.partial.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        return _Start(self.url)

    def _have(self) -> int:
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def _complete(self, start: _Start) -> bool:
        return start.size is not None and self._have() == start.size and self._acceptable(start.size)

    def _acceptable(self, size: int) -> bool:
        return self.size is None or size == self.size

    def _persist(self, start: _Start) -> _Start:
        """Attempt after attempt until the file is complete. An attempt counts as useless unless it got further."""
        useless, furthest, wait = 0, self._have(), self.patience.wait
        while True:
            try:
                return self._attempt(start)
            except _Broken as broken:
                start = self._start()  # as far as it got
                have = self._have()
                if have > furthest:
                    useless, furthest, wait = 0, have, self.patience.wait
                useless += 1
                if useless >= self.patience.attempts:
                    raise InputError(
                        f"{self.url}: {broken} at byte {have:,}"
                        + (f" of {start.size:,}" if start.size is not None else "")
                        + f", {useless} times in a row; run the same command again to go on"
                    ) from broken
                self.bar.set_postfix_str(f"{broken}; trying again")
                time.sleep(min(_seconds(broken.retry_after) or wait, _LONGEST_WAIT))
                wait = min(2 * wait, _LONGEST_WAIT)

    def _attempt(self, start: _Start) -> _Start:
        """One request, and all that comes of it written. Raises _Broken when that was not everything."""
        have = self._have()
        headers = {}
        # Without a validator two different files could be glued, unless a digest would tell.
        if have and (start.validator or (self.sha256 and start.size)):
            headers["Range"] = f"bytes={have}-"
            if start.validator:
                headers["If-Range"] = start.validator
        try:
            with _open(self.url, headers, self.patience.timeout) as response:
                start, offset = self._match(start, have, response)
                self._receive(response, start, offset)
        except urllib.error.HTTPError as error:
            if error.code == 416 and headers:  # nothing after what we have: another file, or a length that was not true
                self._anew()
                stated = "more" if start.size is None else f"{start.size:,}"
                raise InputError(
                    f"{self.url}: the server stated {stated} bytes, then had only {have:,}; run again to fetch it anew"
                ) from error
            if error.code in _AGAIN:
                raise _Broken(f"HTTP status {error.code}", error.headers["Retry-After"]) from error
            raise InputError(f"{self.url}: HTTP status {error.code} ({error.reason})") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise InputError(f"{self.url}: {_reason(error.reason)}") from error
            raise _Broken(f"no connection ({_reason(error.reason)})") from error
        except http.client.HTTPException as error:
            raise _Broken(f"the answer broke off ({type(error).__name__})") from error
        except (ConnectionError, TimeoutError, ssl.SSLError) as error:
            raise _Broken(f"the connection broke ({_reason(error)})") from error
        return start

    def _match(self, start: _Start, have: int, response: Any) -> tuple[_Start, int]:
        """Which file the answer brings, and from which byte on. Raises InputError when it is not the wanted one."""
        headers = response.headers
        offset = 0
        if response.status == 206:
            found = _CONTENT_RANGE.fullmatch(headers["Content-Range"] or "")
            total = int(found[3]) if found and found[3] != "*" else start.size
            goes_on = found is not None and found[1] is not None and int(found[1]) == have
            if not goes_on or start.size not in (None, total) or not start.same_file(headers):
                self._anew()
                raise _Broken("the file has changed")
            start.size, offset = total, have
        else:
            start = _Start(self.url, _length(headers), headers["ETag"], headers["Last-Modified"])
            if start.size is None and self.size is None and self.sha256 is None and not response.chunked:
                raise InputError(f"{self.url}: the server states no length; give its size or sha256")
        if start.size is not None and not self._acceptable(start.size):
            self._anew()
            raise InputError(f"{self.url}: the server offers {start.size:,} bytes, expected {self.size:,}")
        return start, offset

    def _receive(self, response: Any, start: _Start, offset: int) -> None:
        total = start.size if start.size is not None else self.size
        if total is not None:
            _check_room(self.path.parent, total - offset, self.name)
        write_json(self.note, asdict(start))  # first: bytes without a note are never used
        self.bar.reset(total)
        self.bar.update(offset)
        with open(self.partial, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.truncate()
            # read1 hands over what has arrived: a broken connection or a kill loses none of it.
            while (have := file.tell()) != total:
                data = response.read1(_CHUNK if total is None else min(_CHUNK, total - have))
                if not data:
                    break
                file.write(data)
                file.flush()
                self.received += len(data)
                self.bar.update(len(data))
            more = start.size is None and total is not None and response.read1(1)
        if total is not None and have < total:
            raise _Broken("the connection broke")
        if more:
            self._anew()
            raise InputError(f"{self.url}: the server sends more than the expected {total:,} bytes")


def _open(url: str, headers: dict[str, str], timeout: float, method: str = "GET") -> Any:
    # Compressed on the way, ranges would count other bytes than the file's.
    headers = {"User-Agent": f"cprt/{__version__}", "Accept-Encoding": "identity", **headers}
    response = urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=timeout)
    if not response.url.startswith(("https:", "http:") if url.startswith("http:") else "https:"):
        response.close()
        raise InputError(f"{url}: leads to {response.url}, which is less secure")
    return response


def _length(headers: Message) -> int | None:
    stated = headers["Content-Length"]
    return int(stated) if stated is not None and stated.isdecimal() else None


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.strip().isdecimal() else None


def _reason(error: Any) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__


def _check_room(folder: Path, wanted: int, name: str) -> None:
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise InputError(f"{folder}: {name} needs {wanted:,} more bytes, {free:,} are free")
