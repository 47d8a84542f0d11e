"""Answers kept on disk as they come, one durable row each: a killed run asks again only what it had not kept."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from cprt.errors import InputError


def answer_key(**parts: Any) -> str:
    """SHA-256 over everything that an answer depends on: image bytes, prompt, model, adapter, decoding."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class AnswerStore:
    """An append-only JSON Lines file of ``{"key": ..., "answer": {...}}``, for one writer at a time.

    A row is on disk when ``put`` returns. A row cut off by a kill is dropped when the file is opened again. Raises
    InputError when another run writes to the same file or when the file holds something else.
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
        self._answers: dict[str, dict[str, Any]] = {}
        self._load()

    def _load(self) -> None:
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                self._answers[row["key"]] = row["answer"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError.at(
                    self.path, "is not a kept answer; move the file away to start anew", number
                ) from error
            end += len(line)
        self._file.truncate(end)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._answers[key]

    def put(self, answers: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Append (key, answer) rows and wait until they are on disk."""
        for key, answer in answers:
            row = json.dumps({"key": key, "answer": answer}, ensure_ascii=False, allow_nan=False)
            self._file.write(row.encode("utf-8", "backslashreplace") + b"\n")
            self._answers[key] = answer
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> AnswerStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
