"""Files of any origin: asked what they are before they are opened, read strictly, and written whole or not at all.

Text from outside is held as text that every file, page and terminal can take: half a surrogate pair (a reply cut off
inside an emoji, ``"\\ud83d"`` in a JSON file) becomes its escape, six plain characters, where it comes in
(``without_halves``), and so does one that slipped through when it is written. File names that are no UTF-8 are refused.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import platform
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import yaml

from cprt.errors import InputError
from cprt.values import number, whole

LOCK = ".lock"  # file in a folder that one run at a time writes to

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    """Whatever a system or a file has against being read becomes an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError.at(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise InputError.at(path, "is not text in UTF-8") from error


def kind_of(path: str | Path) -> str:
    """What a path is: a file, a folder, a pipe, a socket or a device. Raises InputError where there is nothing."""
    with _reading(path):
        try:
            return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "a file")
        except ValueError as error:  # a NUL in its name, or half a surrogate pair
            raise InputError.at(path, "is no file name") from error


def open_file(path: str | Path) -> BinaryIO:
    """A file opened for reading bytes. Raises InputError for whatever else it is: a pipe or device could hang."""
    kind = kind_of(path)
    if kind != "a file":
        raise InputError.at(path, f"is {kind}, not a file")
    with _reading(path):
        return open(path, "rb")


def read_text(path: str | Path) -> str:
    """A text file in UTF-8, with or without a byte order mark. Raises InputError."""
    with _reading(path), open_file(path) as file:
        return file.read().decode("utf-8-sig")


def without_halves(text: str) -> str:
    """A text with every half of a surrogate pair replaced by its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_safe_path(path: str) -> bool:
    """A relative path that stays inside the folder it is joined to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


# --- YAML --------------------------------------------------------------------------------------------------------

_DEEPEST, _MOST_NODES = 50, 100_000  # of a YAML file, aliases followed
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """YAML's own scalars except for numbers and dates, which ``_value`` reads."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the class above
        first: [(tag, pattern) for tag, pattern in known if tag.removeprefix(_TAG) in ("null", "bool", "merge")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_yaml(path: str | Path) -> Any:
    """A YAML file as what JSON can hold: null, true, false, numbers, texts, lists, and mappings of texts.

    A key is the text that stands there. Numbers are plain decimals (``1e-5`` too); a date, ``0_1``, ``010`` and
    ``.nan`` are texts. Raises InputError that names the line, also for a key that is there twice, for other tags, and
    for aliases that unfold to more than a configuration holds.
    """
    return read_yaml_lines(path)[0]


def read_mapping(path: str | Path, of: str = "") -> dict[str, Any]:
    """A YAML file that holds a mapping, ``of`` what an error says. Raises InputError."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError.at(path, f"must be a mapping{of}")
    return content


def read_yaml_lines(path: str | Path) -> tuple[Any, dict[str | int, int]]:
    """As ``read_yaml``, and the line of every top-level entry by its key, or by its place in a list."""
    text = read_text(path)
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = None if node is None else _Unfolding(path).value(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or "a character that YAML does not allow"
        raise InputError.at(path, f"not valid YAML: {reason}", mark.line + 1 if mark else None) from error
    except RecursionError as error:
        raise InputError.at(path, "not valid YAML: nested too deeply") from error
    entries: list[tuple[str | int, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        entries = [(_text(key), key) for key, _ in node.value]
    elif isinstance(node, yaml.SequenceNode):
        entries = list(enumerate(node.value))
    return value, {name: entry.start_mark.line + 1 for name, entry in entries}


class _Unfolding:
    """The values of YAML nodes, with a limit to how many there are: aliases can stand for billions."""

    def __init__(self, path: str | Path):
        self.path, self.nodes = path, 0

    def fail(self, node: yaml.Node, message: str, field: str | None = None) -> InputError:
        return InputError.at(self.path, message, node.start_mark.line + 1, field)

    def value(self, node: yaml.Node, depth: int = 0) -> Any:
        self.nodes += 1
        if depth > _DEEPEST or self.nodes > _MOST_NODES:
            raise self.fail(node, "not valid YAML: nested too deeply, or too many values once aliases are followed")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self.mapping(node, depth)
        raise self.fail(node, f"not valid YAML: the tag {node.tag} is not known")

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, content in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.fail(key, "not valid YAML: a key must be a text")
            value = self.value(content, depth + 1)
            if key.tag == f"{_TAG}merge":
                for other in reversed(value if isinstance(value, list) else [value]):
                    if not isinstance(other, dict):
                        raise self.fail(key, "not valid YAML: << takes mappings")
                    merged |= other
            elif (name := _text(key)) in own:
                raise self.fail(key, "is there twice", name)
            else:
                own[name] = value
        return merged | own

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text, tag = _text(node), node.tag.removeprefix(_TAG)
        if tag == "null":
            return None
        if tag == "bool" and text.lower() in yaml.SafeLoader.bool_values:
            return yaml.SafeLoader.bool_values[text.lower()]
        if tag in ("str", "merge"):
            return _number_or_text(text) if node.style is None and tag == "str" else text
        raise self.fail(node, f"not valid YAML: {text!r} as {node.tag} is not known")


def _text(node: yaml.ScalarNode) -> str:
    """A scalar's text. In double quotes, as JSON has them, one character may be spelled as a surrogate pair."""
    return without_halves(node.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


def _number_or_text(text: str) -> int | float | str:
    """A scalar without quotes."""
    for read in (whole, number):
        try:
            return read(text)
        except ValueError:
            pass
    return text


# --- Writing -----------------------------------------------------------------------------------------------------


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8, or nothing."""
    write_parts(path, [text])


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file, or nothing."""
    write_parts(path, [content])


def write_parts(path: str | Path, parts: Iterable[str | bytes]) -> None:
    """Write to a file beside ``path``, then move it there: complete and on disk, or not there at all.

    What a process that was killed while writing left behind goes, once its file is whole.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Machines may share a folder, and threads a path.
    partial = beside(path, f"{_machine()}-{os.getpid()}-{threading.get_native_id()}.partial")
    try:
        with naming(path), open(partial, "wb") as file:
            for part in parts:
                file.write(part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    for left in path.parent.glob(f"{glob.escape(beside(path, _machine()).name)}-*.partial"):
        process = left.name.removesuffix(".partial").split("-")[-2]
        if process.isdecimal() and not _runs(int(process)):
            left.unlink(missing_ok=True)


def beside(path: Path, ending: str) -> Path:
    """A hidden file next to ``path``, whose name may take all of the 255 bytes that there are."""
    name = os.fsencode(path.name)
    return path.with_name(f".{path.name if len(name) < 200 else hashlib.sha256(name).hexdigest()}.{ending}")


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """A fault of writing names the file: of a full disk the system does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


@cache
def _machine() -> str:
    """What tells the processes of this machine, or of this container, from others with the same numbers."""
    space = "/proc/self/ns/pid"
    among = os.readlink(space) if os.path.lexists(space) else ""
    return hashlib.sha256(f"{platform.node()} {among}".encode()).hexdigest()[:8]


def lock(descriptor: int, place: str | Path, choose: str = "") -> None:
    """Keep other runs out of what this descriptor may write, for as long as it is open, at most until the process ends.

    Raises InputError when another run holds it, which names the ``place`` and the option to ``choose`` another by, and
    where the file system knows no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        wait = f"wait for it or choose another {choose}" if choose else "wait for it to end"
        raise InputError.at(place, f"another run is writing here; {wait}") from error
    except OSError as error:
        raise InputError.at(place, f"cannot be locked on this file system ({error.strerror})") from error


def claim(folder: Path, choose: str = "") -> int:
    """``lock`` on a folder, made if need be; returns the descriptor. Raises InputError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _lock_at(folder, os.O_RDONLY, folder, choose)
    except InputError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EBADF:
            raise
    # NFS locks only what may be written, which a folder never is, but a file in it.
    return _lock_at(folder / LOCK, os.O_RDWR | os.O_CREAT, folder, choose)


def _lock_at(path: Path, how: int, place: Path, choose: str) -> int:
    descriptor = os.open(path, how, 0o666)
    try:
        lock(descriptor, place, choose)
    except InputError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(folder: Path, choose: str = "") -> Iterator[None]:
    """``claim`` for as long as the block runs. Raises InputError."""
    descriptor = claim(folder, choose)
    try:
        yield
    finally:
        os.close(descriptor)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True
