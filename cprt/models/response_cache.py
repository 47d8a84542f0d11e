"""Answers kept on disk as they come, one durable row each: a killed run asks again only what it had not kept."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cprt.errors import InputError
from cprt.files import lock, naming

Row = dict[str, Any]
_ROW = b'{"key": "'  # how every row begins


def cache_key(**parts: Any) -> str:
    """SHA-256 over everything that an answer depends on: image bytes, prompt, model, adapter, decoding."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Shard:
    """Which part of the requests this process asks: ``rank`` of ``world``, as `accelerate launch` says."""

    rank: int = 0
    world: int = 1

    @staticmethod
    def from_environment() -> Shard:
        """From RANK and WORLD_SIZE. Raises InputError where they are no sensible numbers."""
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
            raise InputError(f"RANK={rank} and WORLD_SIZE={world} in the environment do not fit together")
        return Shard(int(rank), int(world))

    def has(self, key: str) -> bool:
        """Whether the request with this key (a hexadecimal digest) is this process's to ask."""
        return self.world == 1 or int(key[:12], 16) % self.world == self.rank

    def file(self, path: Path) -> Path:
        """Where this process writes: ``NAME.jsonl`` alone, ``NAME.0-of-4.jsonl`` as the first of four."""
        return path if self.world == 1 else path.with_stem(f"{path.stem}.{self.rank}-of-{self.world}")


def read_cache(path: str | Path) -> dict[str, Row]:
    """What a cache's file holds, the last row of a key winning; nothing where there is no file. Changes nothing.

    Raises InputError when the file is something else.
    """
    if not Path(path).is_file():
        return {}
    with open(path, "rb") as file:
        return {key: answer for key, answer, _ in _rows(file, path)}


class ResponseCache:
    """An append-only JSON Lines file of ``{"key": ..., "answer": {...}}``, for one writer at a time.

    A row is on disk when ``put`` returns; one cut off by a kill is dropped when the file is opened again. An answer
    ``{"error": ...}`` is kept to be seen, yet its key is not ``in`` the cache, so that the next run asks again. The
    last row of a key is its answer. In memory is only where in its file each answer begins.

    The processes of a run on several cards have a file each, and read one another's, so that nothing is asked twice.

    ``path`` is the file of a process that is alone. With ``read_only`` nothing is made, locked or mended.

    Raises InputError when another run writes to the same file or when the file holds something else.
    """

    def __init__(self, path: str | Path, shard: Shard = Shard(), read_only: bool = False):
        self._alone, self.shard = Path(path), shard
        self.path = shard.file(self._alone)
        self._mine = _Places(self.path)
        if not read_only:
            self._open()
        elif self.path.is_file():
            self._mine.opened()
        self.refresh()

    def _open(self) -> None:
        if self.path.exists() and not self.path.is_file():  # opening a named pipe would wait for ever
            raise InputError.at(self.path, "is not a regular file")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a+b")  # noqa: SIM115 - closed by __exit__
        try:
            lock(self._file.fileno(), self.path, "--out")
            self._file.seek(0)
            self._file.truncate(self._mine.read(self._file))
        except InputError:
            self._file.close()
            raise

    def refresh(self) -> None:
        """Read anew what other processes have written."""
        name = rf"{re.escape(self._alone.stem)}(\.\d+-of-\d+)?{re.escape(self._alone.suffix)}"
        found = sorted(self.path.parent.iterdir()) if self.path.parent.is_dir() else ()
        others = [path for path in found if path != self.path and re.fullmatch(name, path.name)]
        self._others = [_Places(path).opened() for path in others if path.is_file()]

    def __contains__(self, key: str) -> bool:
        return any(places.of_key.get(key, -1) >= 0 for places in (self._mine, *self._others))

    def is_kept(self, key: str) -> bool:
        """Whether there is an answer or an error under ``key``."""
        return any(key in places.of_key for places in (self._mine, *self._others))

    def rows(self, key: str) -> list[Row]:
        """Every answer or error kept under ``key``: this process's first, then those of others."""
        return [places.row(key) for places in (self._mine, *self._others) if key in places.of_key]

    def put(self, answers: Iterable[tuple[str, Row]]) -> None:
        """Append (key, answer) rows and wait until they are on disk."""
        end, fresh = self._file.seek(0, os.SEEK_END), list[tuple[str, Row, int]]()
        for key, answer in answers:
            row = json.dumps({"key": key, "answer": answer}, ensure_ascii=False, allow_nan=False)
            fresh.append((key, answer, end))
            end += self._file.write(row.encode("utf-8", "backslashreplace") + b"\n")
        with naming(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        for key, answer, place in fresh:  # only what is on disk counts as kept
            self._mine.note(key, answer, place)

    def __enter__(self) -> ResponseCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with naming(self.path):
            self._file.close()


class CacheWriter:
    """Puts answers into a cache from a thread of its own, so that whoever asks need not wait for the disk.

    One ``put`` takes all that has arrived meanwhile (group commit). Leaving the ``with`` block waits for the rest. A
    fault of the disk is raised by the next ``keep`` and on leaving. From the writing thread ``kept`` is called with the
    number of answers that have just become durable.
    """

    def __init__(self, cache: ResponseCache, kept: Callable[[int], object] = lambda count: None):
        self._cache, self._kept = cache, kept
        self._arrived: queue.SimpleQueue[tuple[str, Row] | None] = queue.SimpleQueue()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="answers", daemon=True)

    def keep(self, key: str, answer: Row) -> None:
        """Have an answer written. Returns at once."""
        if self._fault is not None:
            raise self._fault
        self._arrived.put((key, answer))

    def _write(self) -> None:
        done = False
        while not done:
            batch = [self._arrived.get()]
            while not self._arrived.empty():
                batch.append(self._arrived.get())
            rows = [row for row in batch if row is not None]
            done = len(rows) < len(batch)
            if rows and self._fault is None:
                try:
                    self._cache.put(rows)
                    self._kept(len(rows))
                except BaseException as fault:  # handed to whoever keeps the next answer
                    self._fault = fault

    def __enter__(self) -> CacheWriter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arrived.put(None)
        self._thread.join()
        if self._fault is not None and self._fault is not value:
            raise self._fault


class _Places:
    """Where in one file each key's last row begins; ``~place`` (below 0) where that row is an error."""

    def __init__(self, path: Path):
        self.path, self.of_key = path, dict[str, int]()

    def note(self, key: str, answer: Row, place: int) -> None:
        self.of_key[key] = ~place if "error" in answer else place

    def read(self, file: Any) -> int:
        """Take note of all whole rows; returns where they end: what follows was cut off by a kill."""
        end = 0
        for key, answer, after in _rows(file, self.path):
            self.note(key, answer, end)
            end = after
        return end

    def opened(self) -> _Places:
        """These, once the file has been ``read`` as it is."""
        with open(self.path, "rb") as file:
            self.read(file)
        return self

    def row(self, key: str) -> Row:
        """The answer or error under a key that is there, read from the file."""
        place = self.of_key[key]
        with open(self.path, "rb") as file:
            file.seek(max(place, ~place))
            return dict(json.loads(file.readline())["answer"])


def _rows(file: Any, path: str | Path) -> Iterator[tuple[str, Row, int]]:
    """Key and answer of every whole row, and where it ends; a last line may be the beginning of one."""
    end = 0
    for number, line in enumerate(file, start=1):
        try:
            if not line.endswith(b"\n"):
                if not (line.startswith(_ROW) or _ROW.startswith(line)):
                    raise ValueError("not ours")
                break
            row = json.loads(line)
            key, answer = row["key"], row["answer"]
            if not isinstance(key, str) or not isinstance(answer, dict):
                raise ValueError("not a row")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError.at(path, "is not a kept answer; move the file away to start anew", number) from error
        end += len(line)
        yield key, answer, end
