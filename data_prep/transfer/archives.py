"""Unpacks a ``.tar.gz`` from elsewhere: nothing lands outside its folder, nothing but plain files, within a ceiling.

``tarfile.data_filter`` has the last word on every member; what it lets through and would not be a photo or annotation
(links, hidden files, odd names, headers of megabytes) is refused or left out before. Everything goes into a folder
beside the target first and is moved when the whole archive has been read and found good: a refused or cut-off archive
leaves nothing behind in the target, and a killed run goes on where it stopped.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from cprt.errors import InputError
from cprt.files import is_safe_path

_CHUNK = 1 << 20
_LONGEST_READ = 4 << 20  # what one header may take: tarfile reads it in one piece, however long it says it is
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Unpacked:
    """What an archive held: size of every file by its path relative to the target, and hidden files left out."""

    files: dict[str, int]
    hidden: int


class _Refused(Exception):
    """Why an archive is not unpacked."""


# What a bad archive provokes. Other faults are the disk's.
_BROKEN = (gzip.BadGzipFile, tarfile.TarError, EOFError, zlib.error, RecursionError, ValueError, OverflowError)
_CLASHING = (NotADirectoryError, FileExistsError, IsADirectoryError)


def stage_of(target: Path) -> Path:
    """Where what belongs into ``target`` is until all of it is there."""
    return target.with_name(f"{target.name}.unpacking")


def unpack(
    archive: Path,
    target: Path,
    max_bytes: int,
    max_files: int,
    progress: Callable[[int], object] = lambda count: None,
) -> Unpacked:
    """Unpack ``archive`` into ``target``, where files that are there in their full size stay as they are.

    Leading folders of the archive that repeat the end of ``target`` are dropped: ``images/val2017/a.jpg``,
    ``val2017/a.jpg`` and ``a.jpg`` all become ``images/val2017/a.jpg``. Hidden files are left out.

    Args:
        max_bytes, max_files: refuse an archive that unpacks to more, headers and padding counted, or has more members.
        progress: called with numbers of compressed bytes that have been read.

    Raises InputError, after which ``target`` is as it was.
    """
    stage = stage_of(target)
    try:
        unpacked = _read(archive, target, stage, max_bytes, max_files, progress)
    except (_Refused, *_BROKEN, *_CLASHING) as error:
        shutil.rmtree(stage, ignore_errors=True)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError.at(archive, f"is not unpacked: {reason}") from error
    for path in unpacked.files:
        if (stage / path).is_file():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / path, target / path)
    shutil.rmtree(stage, ignore_errors=True)
    return unpacked


def _read(
    archive: Path, target: Path, stage: Path, max_bytes: int, max_files: int, progress: Callable[[int], object]
) -> Unpacked:
    files: dict[str, int] = {}
    hidden = members = total = 0
    with open(archive, "rb") as raw, gzip.GzipFile(fileobj=raw) as unzipped:
        # Each member takes a header of 512 bytes and padding up to 511, some take a longer name besides.
        stream = _Forward(unzipped, max_bytes + 4096 * max_files + (1 << 20))
        tar: Any = tarfile.TarFile(fileobj=cast(IO[bytes], stream), mode="r")
        read = 0
        while (member := tar.next()) is not None:
            tar.members.clear()  # it would keep them all
            progress(raw.tell() - read)
            read = raw.tell()
            members += 1
            if members > max_files:
                raise _Refused(f"it has more than {max_files:,} members")
            path = _check(member, target, stage)
            if path is None:
                hidden += member.isreg()
                continue
            if path in files:
                raise _Refused(f"{member.name!r} is there twice")
            total += member.size
            if total > max_bytes:
                raise _Refused(f"it unpacks to more than {max_bytes:,} bytes")
            files[path] = member.size
            if not any(_has(folder / path, member.size) for folder in (target, stage)):
                _write(tar.extractfile(member), member, stage / path)
        # tarfile takes a broken header for the end: only a block of zeros, or nothing more at all, is one.
        if any(stream.last):
            raise _Refused(f"its header {'after ' + next(reversed(files)) if files else 'at the start'!r} is broken")
        while stream.read(_CHUNK):  # gzip compares its checksum at the very end
            pass
        progress(raw.tell() - read)
    if not files:
        raise _Refused("it holds no files")
    return Unpacked(files, hidden)


def _check(member: tarfile.TarInfo, target: Path, stage: Path) -> str | None:
    """Where a file goes, relative to the target; None for folders and hidden files. Raises _Refused."""
    name = member.name
    if member.isdir() and name == ".":  # `tar -C folder .` begins so
        return None
    long = len(name) > 1000 or any(len(part.encode(errors="replace")) > 255 for part in name.split("/"))
    if long or not is_safe_path(name) or _CONTROL.search(name) or re.match(r"[A-Za-z]:", name):
        raise _Refused(f"{name[:200]!r} is no path inside the target folder")
    if member.issparse() or not (member.isreg() or member.isdir()):
        kind = "link" if member.islnk() or member.issym() else "device or another special file"
        raise _Refused(f"{name[:200]!r} is a {kind}")
    if member.size < 0:
        raise _Refused(f"{name[:200]!r} has a size below zero")
    tarfile.data_filter(member, str(stage))  # a second judge; it raises FilterError, a TarError
    parts = _without_repeat(PurePosixPath(name).parts, target)
    if not member.isreg() or any(part.startswith(".") for part in parts):
        return None
    if not parts:
        raise _Refused(f"{name[:200]!r} is a file where the target folder is to be")
    return "/".join(parts)


def _without_repeat(parts: tuple[str, ...], target: Path) -> tuple[str, ...]:
    ends = target.resolve().parts
    for length in range(min(len(parts), 2), 0, -1):
        if parts[:length] == ends[-length:]:
            return parts[length:]
    return parts


def _has(path: Path, size: int) -> bool:
    """A whole plain file: files come to their names only when complete."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _write(source: IO[bytes], member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(".partial")
    with open(partial, "wb") as out:
        shutil.copyfileobj(source, out, _CHUNK)
    if partial.stat().st_size != member.size:
        raise _Refused(f"{member.name!r} is cut off")
    os.replace(partial, path)


class _Forward:
    """What tarfile needs of a file, for a stream that is never rewound, with bounds on one read and on all of them.

    ``last`` is what was read last.
    """

    def __init__(self, stream: gzip.GzipFile, limit: int):
        self._stream, self._limit = stream, limit
        self._at = 0
        self.last = b""

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def seek(self, position: int) -> int:
        if position < self._at:
            raise _Refused("a header points backwards")
        while self._at < position and self.read(min(_CHUNK, position - self._at)):
            pass
        return self._at

    def read(self, size: int) -> bytes:
        if size > _LONGEST_READ:
            raise _Refused(f"it has a header of {size:,} bytes")
        parts = []
        while size > 0 and (part := self._stream.read(size)):
            parts.append(part)
            size -= len(part)
            self._at += len(part)
            if self._at > self._limit:
                raise _Refused(f"it unpacks to more than {self._limit:,} bytes of files and headers")
        self.last = b"".join(parts)
        return self.last
