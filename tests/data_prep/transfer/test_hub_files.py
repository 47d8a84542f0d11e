"""The label files from a server that speaks the Hub's resolve protocol, through the real client library."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from file_server import FileServer, Served, serving

REPO = "someone/labels"
FIRST, SECOND = "1" * 40, "2" * 40
TRAIN, TEST = b'[{"id": "2017_1.jpg"}]\n', b'[{"id": "2017_2.jpg"}]\n'


class Hub:
    """Serves commits under their own names and those of their branches."""

    def __init__(self, server: FileServer, folder: Path):
        self.server, self.folder, self.out = server, folder, folder / "out"
        self.commit(FIRST, {"cprt_train.json": TRAIN, "cprt_test.json": TEST})
        self.labels: dict[str, Any] = {
            "repo": REPO,
            "revision": "main",
            "files": {"cprt_train.json": None, "cprt_test.json": None},
        }

    def commit(self, commit: str, files: dict[str, bytes]) -> None:
        for revision in (commit, "main"):
            for name, content in files.items():
                etag = f'"{hashlib.sha1(content).hexdigest()}"'
                path = f"/datasets/{REPO}/resolve/{revision}/{name}"
                self.server.files[path] = Served(content, etag=etag, headers={"X-Repo-Commit": commit})

    def download(self, *options: str, status: int = 0, offline: bool = False, endpoint: str | None = None) -> str:
        path = self.folder / "vispr.yaml"
        path.write_text(yaml.safe_dump({"out": str(self.out), "labels": self.labels}, sort_keys=False))
        environment = {
            **os.environ,
            "HF_ENDPOINT": endpoint or self.server.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": str(int(offline)),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_TOKEN": "hf_secret",
            "HF_HOME": str(self.folder / "home"),
        }
        command = [sys.executable, "-m", "data_prep.download", "--config", str(path), *options]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == status, done.stderr
        assert "hf_secret" not in done.stdout + done.stderr
        if status == 0:
            return done.stdout
        (line,) = done.stderr.splitlines()
        return line

    def record(self) -> dict[str, Any]:
        return json.loads((self.out / "archives" / "downloads.json").read_text())["labels"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serving() as server:
        yield Hub(server, tmp_path)


def test_a_branch_is_looked_up_once_and_its_commit_stays(hub: Hub):
    hub.labels["files"] = {"cprt_train.json": None}
    hub.download()
    assert (hub.out / "cprt_train.json").read_bytes() == TRAIN
    assert hub.record() == {
        "repo": REPO,
        "revision": "main",
        "commit": FIRST,
        "files": {"cprt_train.json": {"size": len(TRAIN), "sha256": hashlib.sha256(TRAIN).hexdigest()}},
    }
    assert sorted(path.name for path in hub.out.iterdir()) == ["archives", "cprt_train.json", "run.json"]

    hub.server.requests.clear()
    assert "everything is there, nothing was fetched" in hub.download()
    assert hub.server.requests == []

    hub.commit(SECOND, {"cprt_train.json": b"[]", "cprt_test.json": b"[]"})  # the branch moves on
    hub.labels["files"]["cprt_test.json"] = None
    (hub.out / "cprt_train.json").write_bytes(b"changed by hand")
    said = hub.download()
    assert f"cprt_train.json, cprt_test.json: fetched, commit {FIRST}" in said
    assert [(hub.out / name).read_bytes() for name in ("cprt_train.json", "cprt_test.json")] == [TRAIN, TEST]
    report = json.loads((hub.out / "run.json").read_text())["report"]["labels"]
    assert (report["commit"], report["fetched"]) == (FIRST, ["cprt_train.json", "cprt_test.json"])
    assert not any(re.search("hf_secret", path.read_text()) for path in hub.out.rglob("*.json"))


def test_a_commit_in_the_configuration_is_what_is_fetched(hub: Hub):
    hub.commit(SECOND, {"cprt_train.json": b"[]", "cprt_test.json": b"[]"})
    hub.labels["revision"] = FIRST
    hub.download("--only", "cprt_test.json")
    assert (hub.out / "cprt_test.json").read_bytes() == TEST
    assert not (hub.out / "cprt_train.json").exists()
    assert {request.path.split("/")[5] for request in hub.server.requests} == {FIRST}


def test_what_is_not_as_stated_or_not_there_is_one_line(hub: Hub):
    hub.labels["files"] = {"cprt_test.json": "0" * 64}
    assert f"{REPO}@{FIRST}: cprt_test.json: SHA-256 is {hashlib.sha256(TEST).hexdigest()}" in hub.download(status=2)
    assert sorted(path.name for path in hub.out.iterdir()) == ["archives"]

    hub.labels["files"] = {"cprt_tset.json": None}
    said = hub.download(status=2)
    assert said.startswith(f"cprt download: error: {REPO}@main: cprt_tset.json: ") and "404" in said

    hub.labels["files"] = {"cprt_test.json": None}
    said = hub.download(status=2, offline=True)
    assert f"{REPO}@main: cprt_test.json: " in said and "offline" in said
    assert not (hub.out / "cprt_test.json").exists()


@pytest.mark.parametrize(
    ("endpoint", "status", "complaint"),
    [
        (None, 500, "the Hub answered 500"),
        (None, 401, "the Hub answered 401"),
        ("http://127.0.0.1:9", None, "127.0.0.1 cannot be reached"),
        ("http://127.0.0.1:s3cret", None, "HF_ENDPOINT is no address"),
        ("s3cret", None, "HF_ENDPOINT is no address"),
        ("ftp://someone:s3cret@127.0.0.1", None, "HF_ENDPOINT is no address"),
    ],
)
def test_without_a_hub_one_line_says_so_in_seconds(
    hub: Hub, waited: list[float], endpoint: str | None, status: int | None, complaint: str
):
    for served in hub.server.files.values():
        served.down = status
    said = hub.download(status=2, endpoint=endpoint)
    assert sum(waited) < 10
    assert said.startswith("cprt download: error: ") and complaint in said and "s3cret" not in said
