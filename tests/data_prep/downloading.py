"""An archive, another just as long, and a folder to fill with them from a server of one's own."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from file_server import FileServer, Served

from cprt.errors import InputError
from data_prep.download import main


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
