"""What the tests of downloads share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from downloading import Place
from file_server import FileServer, serving


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: FileServer) -> Place:
    return Place(tmp_path, server)
