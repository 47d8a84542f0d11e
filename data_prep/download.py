"""``cprt download``: the photo collection's archives and the released label files, fetched, checked and unpacked.

Everything lands in the layout of ``cprt demo-data``: ``OUT/images/val2017/``, ``OUT/annotations/val2017/``,
``OUT/cprt_train.json``. The archives stay in ``OUT/archives/`` and may be deleted once unpacked; ``downloads.json``
beside them holds size and SHA-256 of everything fetched, which later downloads must match. A second run does nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.errors import InputError, suggestion
from cprt.files import is_safe_path, locked
from cprt.provenance import file_digest, write_run
from cprt.records import inside, read_object, write_json
from cprt.values import SHA256, fits, read_fields, ruled
from data_prep.transfer.archives import stage_of, unpack
from data_prep.transfer.fetch import Patience, fetch, is_address, remote_size, shown
from data_prep.transfer.hub import HubFiles, fetch_hub_files, missing


@dataclass(frozen=True)
class Archive:
    """A ``.tar.gz`` somewhere: where it comes from, where it goes, and what is known of it beforehand.

    ``size`` and ``sha256`` it must have; ``size_about`` is counted where no server says its size, and nothing more.
    """

    name: str = ruled(matches=(r"[\w-][\w.-]*\.tar\.gz", "a file name that ends in .tar.gz"))
    url: str = ruled()
    into: str = ruled()
    max_unpacked: int = ruled(least=1)
    size: int | None = ruled(None, least=1)
    sha256: str | None = ruled(None, matches=SHA256)
    size_about: int | None = ruled(None, least=1)

    def __post_init__(self) -> None:
        where = f"archives.{self.name}"
        if not is_address(self.url):  # not shown: it may hold a password
            raise InputError.at(where, "must be http(s)://HOST[:PORT]/PATH without a user or password", field="url")
        if not is_safe_path(self.into):
            raise InputError.at(where, f"{self.into!r} is not a folder inside --out", field="into")


@dataclass
class DownloadArguments:
    out: str = option("folder to fill", writes=())
    archives: dict[str, Any] = option(
        "in YAML only: file name -> url, into, max_unpacked; size, size_about, sha256 or null", factory=dict
    )
    labels: dict[str, Any] | None = option(
        "in YAML only: Hub dataset as repo, revision, files (name -> sha256 or null)", None
    )
    only: list[str] | None = option("fetch only these of the archives and label files, by name", None)
    max_files: int = option("refuse an archive of more members", 50_000, least=1)
    attempts: int = option("tries in a row that bring nothing new before giving up", 8, least=1)
    wait: float = option("seconds before the second try; doubled each time", 1.0, least=0)
    timeout: float = option("seconds without a byte that count as a broken connection", 60.0, above=0)
    dry_run: bool = option("print what would be fetched and the room it needs", False)

    def __post_init__(self) -> None:
        archives, labels = self.wanted()
        if not archives and labels is None:
            raise ValueError("neither archives nor labels to fetch; give a --config")

    def wanted(self) -> tuple[list[Archive], HubFiles | None]:
        """The archives and label files to fetch. Raises ValueError that names the field."""
        archives: dict[str, Archive] = {}
        for name, values in self.archives.items():
            named = {"name": name, **values} if isinstance(values, dict) else values
            archives[name] = read_fields(Archive, named, f"archives.{name}", hidden=("url",))
        labels = None if self.labels is None else read_fields(HubFiles, self.labels, "labels")
        if self.only is None:
            return list(archives.values()), labels
        files = labels.files if labels is not None else {}
        for name in self.only:
            if name not in {*archives, *files}:
                near = suggestion(name, [*archives, *files])
                raise ValueError(f"only: {name!r} is none of {', '.join([*archives, *files])}{near}")
        files = {name: files[name] for name in self.only if name in files}
        chosen = [archives[name] for name in self.only if name in archives]
        return chosen, replace(labels, files=files) if labels is not None and files else None


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(DownloadArguments, argv, prog="cprt download", description=__doc__)
    archives, labels = args.wanted()
    out = Path(args.out)
    if args.dry_run:
        _plan(out, DownloadRecord(out), archives, labels, args)
        return
    with locked(out / "archives"):
        record = DownloadRecord(out)
        if not _plan(out, record, archives, labels, args):
            print(f"{out}: everything is there, nothing was fetched")
            return
        report: dict[str, Any] = {"archives": {}, "labels": None}
        for archive in archives:
            report["archives"][archive.name] = _bring(archive, out, record, args)
        if labels is not None:
            names = missing(labels, out, record.labels)
            if names:
                record.keep_labels(fetch_hub_files(labels, names, out, record.labels))
            report["labels"] = {**record.labels, "fetched": names}
        places = {name: {**facts, "url": shown(facts["url"])} for name, facts in args.archives.items()}
        write_run("cprt download", out, {**vars(args), "archives": places}, report=report)
    _print(out, report)


_ODD = "is not as cprt download leaves it; move the file away to start anew"
_KEPT = {"sha256": str, "size": int, "mtime_ns": int, "into": str | None, "files": int | None, "bytes": int | None}


class DownloadRecord:
    """``archives/downloads.json``: what was fetched and unpacked, and ``NAME.files.json`` for what it unpacked to."""

    def __init__(self, out: Path):
        self.path = out / "archives" / "downloads.json"
        content = read_object(self.path) if self.path.is_file() else {}
        self.archives: dict[str, dict[str, Any]] = inside(content, "archives")
        self.labels: dict[str, Any] = inside(content, "labels")
        for name, kept in self.archives.items():
            if not isinstance(kept, dict) or any(not fits(kept.get(key), kind) for key, kind in _KEPT.items()):
                raise InputError.at(self.path, _ODD, field=f"archives.{name}")
        files = inside(self.labels, "files").values()
        if self.labels and not (self.labels.get("commit") and all(inside(kept).get("sha256") for kept in files)):
            raise InputError.at(self.path, _ODD, field="labels")

    def of(self, archive: Archive) -> dict[str, Any]:
        """What is known of an archive. Raises InputError where it contradicts the configuration."""
        kept = self.archives.get(archive.name, {})
        if kept and archive.sha256 not in (None, kept["sha256"]):
            was = f"was fetched as SHA-256 {kept['sha256']}, expected {archive.sha256}"
            raise InputError.at(self.path, f"{was}; delete its entry to start anew", field=f"archives.{archive.name}")
        return kept

    def keep(self, name: str, **facts: Any) -> None:
        self.archives[name] = {**self.archives.get(name, {}), **facts}
        self._write()

    def forget(self, name: str) -> None:
        self.archives.pop(name, None)
        self._write()

    def keep_labels(self, facts: dict[str, Any]) -> None:
        self.labels = facts
        self._write()

    def _write(self) -> None:
        write_json(self.path, {"archives": self.archives, "labels": self.labels})

    def files(self, archive: Archive) -> dict[str, int]:
        """Path -> size of what an archive was unpacked to; empty when it was not, or elsewhere."""
        path = self._list(archive.name)
        unpacked = self.archives.get(archive.name, {}).get("into") == archive.into
        return read_object(path) if unpacked and path.is_file() else {}

    def keep_files(self, archive: Archive, files: dict[str, int], hidden: int) -> None:
        write_json(self._list(archive.name), files)
        self.keep(archive.name, into=archive.into, files=len(files), bytes=sum(files.values()), hidden=hidden)

    def _list(self, name: str) -> Path:
        return self.path.with_name(f"{name}.files.json")


def _bring(archive: Archive, out: Path, record: DownloadRecord, args: DownloadArguments) -> dict[str, Any]:
    """Fetch and unpack one archive, as far as that is still to do; what the run record says of it."""
    if _is_unpacked(archive, out, record):
        return {"fetched": False, "unpacked": False, **record.of(archive)}
    path = out / "archives" / archive.name
    fetched = _verify(archive, path, record)
    received = 0
    if not fetched:
        patience = Patience(args.attempts, args.wait, args.timeout)
        done = fetch(archive.url, path, archive.size, archive.sha256 or record.of(archive).get("sha256"), patience)
        received, about = done.received, {"url": shown(archive.url), "size": done.size, "sha256": done.sha256}
        record.keep(archive.name, **about, validator=done.validator, mtime_ns=path.stat().st_mtime_ns)
    with tqdm(desc=f"unpacking {archive.name}", total=path.stat().st_size, unit="B", unit_scale=True) as bar:
        try:
            unpacked = unpack(path, out / archive.into, archive.max_unpacked, args.max_files, bar.update)
        except InputError as error:
            record.forget(archive.name)  # a digest of what cannot be used is nothing to hold a later download to
            raise InputError(f"{error}; delete the archive to fetch it anew") from error
    record.keep_files(archive, unpacked.files, unpacked.hidden)
    return {"fetched": not fetched, "unpacked": True, "received": received, **record.of(archive)}


def _is_unpacked(archive: Archive, out: Path, record: DownloadRecord) -> bool:
    """Whether every file that the archive unpacked to is there in its size."""
    record.of(archive)
    files = record.files(archive)
    folder = out / archive.into
    return bool(files) and all(_size(folder / path) == size for path, size in files.items())


def _verify(archive: Archive, path: Path, record: DownloadRecord) -> bool:
    """Whether the archive is there and right. One that was put there by hand is taken if it is what is expected."""
    size = _size(path)
    if size is None:
        return False
    kept = record.of(archive)
    if kept and (size, path.stat().st_mtime_ns) == (kept["size"], kept["mtime_ns"]):
        return True
    digest = file_digest(path)
    expected_digest, expected_size = archive.sha256 or kept.get("sha256"), archive.size or kept.get("size")
    if digest != (expected_digest or digest) or size != (expected_size or size):
        raise InputError.at(path, "is not the expected file (size or SHA-256 differ); delete it to fetch it anew")
    record.keep(archive.name, url=shown(archive.url), size=size, sha256=digest, mtime_ns=path.stat().st_mtime_ns)
    return True


def _plan(
    out: Path, record: DownloadRecord, archives: list[Archive], labels: HubFiles | None, args: DownloadArguments
) -> bool:
    """Print what is to be done; whether that is anything. Raises InputError when there is no room for it."""
    room, work = 0, False
    for archive in archives:
        if _is_unpacked(archive, out, record):
            continue
        work = True
        path = out / "archives" / archive.name
        size = archive.size or record.of(archive).get("size") or remote_size(archive.url, args.timeout)
        likely = size or archive.size_about or archive.max_unpacked  # hardly larger than what it unpacks to
        here = _size(path) or _size(path.with_name(path.name + ".partial")) or 0
        folder = out / archive.into
        files = [file for place in (folder, stage_of(folder)) for file in place.rglob("*") if file.is_file()]
        there = sum(file.stat().st_size for file in files)
        room += max(likely - here, 0) + max(archive.max_unpacked - there, 0)
        doing = f"fetch {_gb(size) if size else f'about {_gb(likely)}'} from {shown(archive.url)}"
        doing = "is here" if _size(path) else f"{doing} ({_gb(here)} are here)" if here else doing
        print(f"{archive.name}: {doing}; unpack into {folder}, at most {_gb(archive.max_unpacked)}")
    if labels is not None and (names := missing(labels, out, record.labels)):
        work = True
        print(f"{', '.join(names)}: fetch from the Hub, {labels.repo} at {labels.revision}")
    place = next(folder for folder in (out, *out.resolve().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if room:
        print(f"room needed: at most {_gb(room)}; free: {_gb(free)}")
        if room > free:
            raise InputError.at(out, f"needs {_gb(room)} for archives and their files, {_gb(free)} are free")
    if not work and args.dry_run:
        print(f"{out}: everything is there, nothing to fetch")
    return work


def _print(out: Path, report: dict[str, Any]) -> None:
    for name, facts in report["archives"].items():
        did = "fetched and unpacked" if facts["fetched"] else "unpacked" if facts["unpacked"] else "was there"
        hidden = f", {facts['hidden']} hidden ones left out" if facts["hidden"] else ""
        print(f"{name}: {did}: {facts['files']:,} files in {out / facts['into']}{hidden}, SHA-256 {facts['sha256']}")
    if report["labels"] is not None:
        fetched = report["labels"]["fetched"]
        did = "fetched" if fetched else "were there"
        print(f"{', '.join(fetched) or 'label files'}: {did}, commit {report['labels']['commit']}")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):  # a name out of a damaged list: too long, or with a zero byte
        return None


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


if __name__ == "__main__":
    run(main, "cprt download")
