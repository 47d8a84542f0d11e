"""A real HTTP server on the loopback, with ranges, that can be told to behave badly."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """A file and how it is served. Lists are used up from the front, one entry a GET request."""

    content: bytes
    etag: str | None = "made from the content"
    date: str | None = None
    ranges: bool = True  # False: Range is ignored
    if_range: bool = True  # False: If-Range is ignored, as some proxies do
    tell: bool = True  # False: a 206 does not say which file it is of
    chunked: bool = False
    length: int | None = None  # a Content-Length that is not true
    no_length: bool = False
    breaks: list[int] = field(default_factory=list)  # the connection closes after so many bytes
    statuses: list[int] = field(default_factory=list)  # an error in place of the file
    down: int | None = None  # this error to whatever is asked
    retry_after: str | None = None
    stall: float = 0.0  # seconds of silence after half of the bytes
    stalls: int = 0  # how often
    headers: dict[str, str] = field(default_factory=dict)
    location: str | None = None  # leads there instead

    def validators(self) -> dict[str, str]:
        etag = f'"{hashlib.md5(self.content).hexdigest()}"' if self.etag == "made from the content" else self.etag
        return {name: value for name, value in (("ETag", etag), ("Last-Modified", self.date)) if value}


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    if_range: str | None
    sent: int = 0  # bytes of the body that were sent


class FileServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Served] = {}
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def gets(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.method == "GET" and request.path == path]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve(head=True)

    def do_GET(self) -> None:
        self._serve(head=False)

    def _serve(self, head: bool) -> None:
        seen = Request(self.command, self.path, self.headers["Range"], self.headers["If-Range"])
        self.server.requests.append(seen)
        served = self.server.files.get(self.path)
        if served is None:
            return self._error(404)
        if served.down is not None:
            return self._error(served.down)
        if served.statuses and not head:
            return self._error(served.statuses.pop(0), served.retry_after)
        if served.location is not None:
            return self._error(302, location=served.location)
        content, status, headers = served.content, 200, {**served.validators(), **served.headers}
        asked = re.fullmatch(r"bytes=(\d+)-", seen.range or "")
        current = not served.if_range or seen.if_range is None or seen.if_range in served.validators().values()
        if asked and served.ranges and current:
            start = int(asked[1])
            if start >= len(content):
                return self._error(416, content_range=f"bytes */{len(content)}")
            status = 206
            if not served.tell:
                headers = {}
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if served.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not served.no_length:
            self.send_header("Content-Length", str(len(content) if served.length is None else served.length))
        self.close_connection = True
        self.send_header("Connection", "close")
        self.end_headers()
        if head:
            return
        if served.breaks:
            content = content[: served.breaks.pop(0)]
            self._send(content, served.chunked, seen)  # and the connection closes: no last chunk either
            return
        if served.stalls > 0:
            served.stalls -= 1
            self._send(content[: len(content) // 2], served.chunked, seen)
            time.sleep(served.stall)
            return
        self._send(content, served.chunked, seen)
        if served.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, content: bytes, chunked: bool, seen: Request) -> None:
        if chunked and content:
            self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        else:
            self.wfile.write(content)
        self.wfile.flush()
        seen.sent = len(content)

    def _error(
        self,
        status: int,
        retry_after: str | None = None,
        content_range: str | None = None,
        location: str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (("Retry-After", retry_after), ("Content-Range", content_range), ("Location", location)):
            if value is not None:
                self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serving() -> Iterator[FileServer]:
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
