"""Reads the file that an offline run of wandb leaves: wandb 0.31 brings no reader for it.

A header of 7 bytes, then LevelDB's log format: blocks of 32 KiB hold pieces of records, each piece behind a checksum
(4 bytes), its length (2) and its kind (1: 1 whole, 2 first, 3 middle, 4 last). A record is a protobuf ``Record``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK, _WHOLE, _FIRST, _LAST = 32 * 1024, 1, 2, 4


@dataclass
class WandbRun:
    """What a run's file says. ``history`` holds a dict a logged step, nested keys joined by dots."""

    project: str = ""
    name: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)  # relative to the run's folder "files"
    kinds: list[str] = field(default_factory=list)  # of all records, in order
    run: Any = None  # the RunRecord itself


def find_run(directory: Path) -> Path:
    """The one run file under a folder that ``start_run`` was given."""
    (found,) = directory.glob("wandb/offline-run-*/*.wandb")
    return found


def read_run(path: Path) -> WandbRun:
    """Everything that a test asks of a ``.wandb`` file."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = WandbRun()
    for data in _records(path.read_bytes()):
        record = Record.FromString(data)
        kind = record.WhichOneof("record_type")
        found.kinds.append(kind)
        if kind == "run":
            found.run = record.run
            found.project, found.name = record.run.project, record.run.display_name
            found.config |= _items(record.run.config.update)
        elif kind == "config":
            found.config |= _items(record.config.update)
        elif kind == "history":
            found.history.append(_items(record.history.item))
        elif kind == "summary":
            found.summary |= _items(record.summary.update)
        elif kind == "files":
            found.files += [item.path for item in record.files.files]
    return found


def read_table(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    """``columns`` and ``data`` of a table: ``row`` is what a history row or the summary holds under its key."""
    return json.loads((path.parent / "files" / row["path"]).read_text())


def _items(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json) if item.value_json else _typed(item)
        *outer, last = [*item.nested_key] or [item.key]
        where = found
        for key in outer:
            where = where.setdefault(key, {})
        where[last] = value
    return found


def _typed(item: Any) -> Any:
    """The value of an item that is not JSON text."""
    for name in ("boolean", "integer", "number", "text"):
        if name in item.DESCRIPTOR.fields_by_name and item.HasField(name):
            return getattr(item, name)
    if "json" in item.DESCRIPTOR.fields_by_name and item.HasField("json"):
        return json.loads(item.json)
    return None


def _records(data: bytes) -> Iterator[bytes]:
    assert data[:4] == b":W&B", "not a file of wandb"
    position, parts = 7, b""
    while position + 7 <= len(data):
        room = _BLOCK - position % _BLOCK  # the header is part of the first block
        if room < 7:  # what is left of a block is zeros
            position += room
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, position)
        piece = data[position + 7 : position + 7 + length]
        assert len(piece) == length, "cut off"
        # wandb takes zlib's CRC-32 over kind and content, LevelDB's own is CRC-32C.
        assert checksum == zlib.crc32(bytes([kind]) + piece), "damaged"
        parts = piece if kind in (_WHOLE, _FIRST) else parts + piece
        if kind in (_WHOLE, _LAST):
            yield parts
        position += 7 + length
