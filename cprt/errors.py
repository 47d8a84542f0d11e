"""The one exception that means "the user gave us something we cannot use"."""

from __future__ import annotations

from pathlib import Path


class InputError(ValueError):
    """Bad input or configuration. Its message is one line for the user; commands print it and exit with status 2."""

    @classmethod
    def at(cls, file: str | Path, message: str, line: int | None = None, field: str | None = None) -> InputError:
        """An error that says where: ``FILE:LINE: field 'FIELD': MESSAGE``."""
        place = str(file) if line is None else f"{file}:{line}"
        return cls(f"{place}: field '{field}': {message}" if field else f"{place}: {message}")
