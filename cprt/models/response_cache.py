"""Answers kept on disk as they come, one durable row each: a killed run asks again only what it had not kept."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from cprt.errors import InputError


def cache_key(**parts: Any) -> str:
    """SHA-256 over everything that an answer depends on: image bytes, prompt, model, adapter, decoding."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_cache(path: str | Path) -> dict[str, dict[str, Any]]:
    """What a cache's file holds, the last row of a key winning; nothing where there is no file. Changes nothing.

    Raises InputError when the file is something else.
    """
    if not Path(path).is_file():
        return {}
    with open(path, "rb") as file:
        return _read(file, path)[0]


class ResponseCache:
    """An append-only JSON Lines file of ``{"key": ..., "answer": {...}}``, for one writer at a time.

    A row is on disk when ``put`` returns. A row cut off by a kill is dropped when the file is opened again. An answer
    that is ``{"error": ...}`` is kept to be seen, yet does not count as an answer: its key is not ``in`` the cache, so
    that the next run asks again. Where a key has several rows the last one is its answer.

    Raises InputError when another run writes to the same file or when the file holds something else.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a+b")  # noqa: SIM115 - closed by __exit__
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InputError.at(
                self.path, "another run is writing here; wait for it or choose another --out"
            ) from error
        self._file.seek(0)
        try:
            self._answers, end = _read(self._file, self.path)
        except InputError:
            self._file.close()
            raise
        self._file.truncate(end)

    def __contains__(self, key: str) -> bool:
        return "error" not in self._answers.get(key, {"error": "never asked"})

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._answers[key]

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer or error kept under ``key``, None when there is neither."""
        return self._answers.get(key)

    def put(self, answers: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Append (key, answer) rows and wait until they are on disk."""
        fresh = dict(answers)
        for key, answer in fresh.items():
            row = json.dumps({"key": key, "answer": answer}, ensure_ascii=False, allow_nan=False)
            self._file.write(row.encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._answers.update(fresh)  # only what is on disk counts as kept

    def __enter__(self) -> ResponseCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class CacheWriter:
    """Puts answers into a cache from a thread of its own, so that whoever asks need not wait for the disk.

    One ``put`` takes all that has arrived meanwhile (group commit): with many answers a second they share an fsync,
    with few each is on disk at once. Leaving the ``with`` block waits for the rest. A fault of the disk is raised by
    the next ``keep`` and on leaving.

    Args:
        kept: called with the number of answers that have just become durable, from the writing thread.
    """

    def __init__(self, cache: ResponseCache, kept: Callable[[int], object] = lambda count: None):
        self._cache, self._kept = cache, kept
        self._arrived: queue.SimpleQueue[tuple[str, dict[str, Any]] | None] = queue.SimpleQueue()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="answers", daemon=True)

    def keep(self, key: str, answer: dict[str, Any]) -> None:
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


def _read(file: Any, path: str | Path) -> tuple[dict[str, dict[str, Any]], int]:
    """All whole rows, and where they end: what follows was cut off by a kill."""
    answers: dict[str, dict[str, Any]] = {}
    end = 0
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            row = json.loads(line)
            answers[row["key"]] = row["answer"]
            if not isinstance(row["answer"], dict):
                raise ValueError("not an object")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError.at(path, "is not a kept answer; move the file away to start anew", number) from error
        end += len(line)
    return answers, end
