"""A Hugging Face Hub on this machine for tests: it speaks the protocol of making repositories, branches and commits.

Small files travel inside a commit, those with the suffix .safetensors as LFS objects that are put before it. It keeps
every request, and can be told to fail at a step.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


def git_digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repo:
    def __init__(self, visibility: str | None):
        self.private = visibility == "private"
        self.branches: dict[str, dict[str, bytes]] = {"main": {".gitattributes": b"*.safetensors filter=lfs\n"}}
        self.commits: list[tuple[str, str]] = []  # branch, message

    def head(self, branch: str) -> str:
        return hashlib.sha1(
            f"{branch} {[commit for commit in self.commits if commit[0] == branch]}".encode()
        ).hexdigest()


class Hub:
    """``fail`` is asked at every request (method, path): None, or a status to answer with, or status and body."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.puts = 0
        self.fail: Callable[[str, str], int | tuple[int, Any] | None] = lambda method, path: None
        self.url = ""

    def tree(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        """A branch's files, without the one that the Hub itself adds."""
        return {
            path: content for path, content in self.repos[repo].branches[branch].items() if path != ".gitattributes"
        }

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            status = 409 if name in self.repos else 200
            self.repos.setdefault(name, Repo(asked.get("visibility")))
            return status, {"url": f"{self.url}/{name}", "id": name}
        if path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            return 200, {"errors": [], "warnings": []}
        if path.startswith("/objects/"):
            digest = path.rpartition("/")[2]
            assert hashlib.sha256(body).hexdigest() == digest
            self.objects[digest], self.puts = body, self.puts + 1
            return 200, {}
        found = re.fullmatch(
            r"/(?:api/models/)?([^/]+/[^/.]+)(?:\.git/info/lfs/objects/(batch)|/(\w+)/([^/]+))?/?", path
        )
        if not found or found[1] not in self.repos:
            return 404, {"error": "Repository not found"}
        repo, verb, branch = self.repos[found[1]], found[2] or found[3] or "info", unquote(found[4] or "main")
        if verb == "branch":
            status = 409 if branch in repo.branches else 200
            repo.branches.setdefault(branch, dict(repo.branches["main"]))
            return status, {"error": "there is such a branch"} if status == 409 else {}
        if branch not in repo.branches:
            return 404, {"error": "Invalid rev id"}
        return getattr(self, f"_{verb}")(repo, found[1], branch, body)

    def _info(self, repo: Repo, name: str, branch: str, body: bytes) -> tuple[int, Any]:
        return 200, {"id": name, "private": repo.private, "sha": repo.head(branch), "siblings": []}

    _revision = _info

    def _tree(self, repo: Repo, name: str, branch: str, body: bytes) -> tuple[int, Any]:
        rows = []
        for path, content in repo.branches[branch].items():
            row = {"type": "file", "path": path, "size": len(content), "oid": git_digest(content)}
            if path.endswith(".safetensors"):
                row["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            rows.append(row)
        return 200, rows

    def _preupload(self, repo: Repo, name: str, branch: str, body: bytes) -> tuple[int, Any]:
        rows = []
        for file in json.loads(body)["files"]:
            path, there = file["path"], repo.branches[branch].get(file["path"])
            large = path.endswith(".safetensors")
            digest = None if there is None else hashlib.sha256(there).hexdigest() if large else git_digest(there)
            rows.append(
                {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": digest}
            )
        return 200, {"files": rows}

    def _batch(self, repo: Repo, name: str, branch: str, body: bytes) -> tuple[int, Any]:
        rows = []
        for row in json.loads(body)["objects"]:
            put = {"upload": {"href": f"{self.url}/objects/{row['oid']}"}}
            rows.append(row if row["oid"] in self.objects else {**row, "actions": put})
        return 200, {"transfer": "basic", "objects": rows}

    def _commit(self, repo: Repo, name: str, branch: str, body: bytes) -> tuple[int, Any]:
        files = dict(repo.branches[branch])
        for line in body.splitlines():
            item = json.loads(line)
            key, value = item["key"], item["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
            else:
                assert key == "deletedFile", key
                del files[value["path"]]
        repo.branches[branch] = files
        repo.commits.append((branch, message))
        return 200, {"commitUrl": f"{self.url}/{name}/commit/{repo.head(branch)}", "commitOid": repo.head(branch)}


@contextmanager
def serving() -> Iterator[Hub]:
    """A Hub on a free port."""
    hub = Hub()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            path = urlsplit(self.path).path
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                hub.requests.append((self.command, path))
                if not path.startswith("/objects/"):
                    hub.tokens.add(self.headers.get("Authorization"))
                failed = hub.fail(self.command, path)
                if isinstance(failed, int):
                    failed = failed, {"error": "told to fail"}
                status, content = failed or hub.answer(self.command, path, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            if status >= 400 and "code" in content:
                self.send_header("X-Error-Code", content["code"])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = respond

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
