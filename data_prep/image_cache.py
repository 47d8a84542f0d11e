"""``cprt images``: checks every photo once and resizes it once, into a cache that every later command reads.

``OUT`` then stands for the photo folder: the same relative paths, JPEG throughout, at most ``max_pixels`` each, in RGB,
upright and without metadata (no place, no device, no thumbnail). What cannot be used is left out and named with its
reason in ``OUT/quarantine.jsonl``. A cached photo bears its source's time of change: a later run does only what is new
or has changed, and a killed one goes on where it stopped. ``OUT/cache.json`` says how photos are made; another size or
quality makes all of them anew.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from cprt.config import option, parse, run
from cprt.errors import InputError, one_line
from cprt.files import beside, locked
from cprt.images import ImageIndex, check_ratio, image_size, in_parallel, list_photos, load_image
from cprt.pages.words import first_few
from cprt.provenance import write_run
from cprt.records import read_json, write_json, write_jsonl
from data_prep.id_lists import read_ids

_OF_ONE_PHOTO = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOENT)
_STALE = 1  # time of change, in ns, of a cached photo that is to be made anew


@dataclass
class ImagesArguments:
    images: str = option("folder that holds images/, images/ itself, or any folder of photos")
    out: str = option("cache folder to write; then give it to --images of every later command", writes=())
    max_pixels: int = option("width times height that a photo is reduced to; smaller ones stay", least=1)
    ids: str | None = option("only these photos: a text file of ids, or a split list as VISPR's val2017.txt", None)
    quality: int = option("JPEG quality; colours are kept in full resolution", 95, least=1, most=95)
    workers: int | None = option("threads; by default one for each core", None, least=1)


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(ImagesArguments, argv, prog="cprt images", description=__doc__)
    report = cache_images(args.images, args.out, args.max_pixels, args.ids, args.quality, args.workers)
    inputs = {"ids": args.ids} if args.ids else None
    write_run("cprt images", args.out, args, inputs, report=report)
    _print(report, args.out)
    if not report["cached"]:
        raise InputError.at(args.images, f"none of its photos could be used (see {args.out}/quarantine.jsonl)")


def cache_images(
    images: str | Path,
    out: str | Path,
    max_pixels: int,
    ids: str | Path | None = None,
    quality: int = 95,
    workers: int | None = None,
) -> dict[str, Any]:
    """Fill the cache ``out`` from the folder ``images`` and say what became of every file.

    Returns counts that add up: ``files`` = ``cached`` + ``quarantined``, ``cached`` = ``made`` + ``unchanged``,
    ``asked`` = ``files`` and the ``missing`` of ``ids``. ``without_source`` names what lies in the cache of photos that
    are gone. Raises InputError for folders that cannot be used.
    """
    index = ImageIndex(images, unlisted=True)
    out = Path(out)
    photos, cache = index.start.resolve(), out.resolve()
    if photos.is_relative_to(cache) or cache.is_relative_to(photos):  # it would be searched for photos, or replace them
        raise InputError.at(out, f"the cache must lie apart from the photos in {index.start}")
    wanted, missing = _asked(index, ids) if ids else (index.paths, [])
    reasons = {} if ids else {**index.others, **index.unlisted}
    files = len(wanted) + len(reasons)
    if not wanted:
        raise InputError.at(ids or images, f"names no image in {index.start}" if ids else "holds no images")
    reasons |= {path: "is no file" for path in wanted if not os.path.isfile(index.root / path)}  # a pipe, a lost link
    targets = _targets([path for path in wanted if path not in reasons], reasons)

    def make(path: str) -> tuple[bool, str | None]:
        """Whether a photo was made, and why there is none in the cache."""
        source, target = index.root / path, out / targets[path]
        try:
            state = source.stat()
            if _is_done(target, state):
                return False, None
            try:
                check_ratio(image_size(source), source)
                image = load_image(source, max_pixels)
            except InputError as error:
                target.unlink(missing_ok=True)  # of an earlier state of this photo
                return False, error.reason
            _write(image, target, quality, state)
        except OSError as error:
            if error.errno not in _OF_ONE_PHOTO:  # a full disk is the run's fault
                raise
            return False, f"cannot have its name in the cache ({error.strerror})"
        return True, None

    with locked(out, "--out"):
        _settle(out, {"max_pixels": max_pixels, "quality": quality})
        done = dict(zip(targets, in_parallel(make, list(targets), "resizing", workers), strict=True))
        reasons |= {path: why for path, (_, why) in done.items() if why is not None}
        write_jsonl(out / "quarantine.jsonl", [{"path": path, "reason": reasons[path]} for path in sorted(reasons)])
    cached = [out / targets[path] for path, (_, why) in done.items() if why is None]
    made = sum(was_made for was_made, _ in done.values())
    gone = [] if ids else sorted(set(ImageIndex(out).paths) - set(targets.values()))
    return {
        "asked": files + len(missing),
        "files": files,
        "cached": len(cached),
        "made": made,
        "unchanged": len(cached) - made,
        "quarantined": len(reasons),
        "bytes": sum(target.stat().st_size for target in cached),
        "missing": missing,
        "without_source": gone,
    }


def _asked(index: ImageIndex, ids: str | Path) -> tuple[list[str], list[str]]:
    """Paths of the photos that a list names, and the names that fit none. Raises InputError with the line."""
    found: dict[str, int] = {}
    missing: dict[str, int] = {}
    for number, id in read_ids(ids):
        path = index.find(id, ids, number)
        seen, key = (missing, id) if path is None else (found, path)
        if key in seen:
            raise InputError.at(ids, f"{id!r} is there already in line {seen[key]}", line=number)
        seen[key] = number
    return list(found), list(missing)


def _targets(paths: Sequence[str], reasons: dict[str, str]) -> dict[str, str]:
    """Path -> path in the cache, ending in .jpg where the photo was no JPEG; ``reasons`` takes why there is none."""
    targets: dict[str, str] = {}
    taken: dict[str, str] = {}
    folders = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    jpeg = (".jpg", ".jpeg")
    for path in sorted(paths, key=lambda path: (not path.lower().endswith(jpeg), path)):
        target = path if path.lower().endswith(jpeg) else PurePosixPath(path).with_suffix(".jpg").as_posix()
        if target in taken:
            reasons[path] = f"would have the same name in the cache as {taken[target]}"
        elif target in folders:
            reasons[path] = "would have the same name in the cache as a folder"
        else:
            taken[target] = path
            targets[path] = target
    return targets


def _settle(out: Path, how: dict[str, int]) -> None:
    """See to it that only photos made in this way count as done. Raises InputError for a folder of other photos."""
    note = out / "cache.json"
    there = [out / path for path in list_photos(out).photos]
    try:
        noted = read_json(note) if note.is_file() else {}
    except InputError:  # ours, and damaged
        noted = None
    if there and isinstance(noted, dict) and noted.keys() != how.keys():  # none, or another program's
        raise InputError.at(out, "holds photos that cprt images did not make; choose another --out")
    if noted != how:
        for path in there:
            os.utime(path, ns=(_STALE, _STALE), follow_symlinks=False)
        write_json(note, how)


def _is_done(target: Path, source: os.stat_result) -> bool:
    """Whether a whole photo made from this state of its source is there."""
    if not target.is_file():  # a pipe that took its place would wait for ever
        return False
    with open(target, "rb") as file:
        state = os.fstat(file.fileno())
        # A file put in the place of another can bear the same time of change; its inode's is its own.
        if state.st_mtime_ns != source.st_mtime_ns or state.st_ctime_ns < source.st_ctime_ns:
            return False
        end = os.pread(file.fileno(), 2, max(state.st_size - 2, 0))
        return end == b"\xff\xd9"  # a power cut leaves zeros, or nothing


def _write(image: Image.Image, target: Path, quality: int, source: os.stat_result) -> None:
    """One photo, whole or not at all, that says which state of its source it was made from."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(target, "partial")
    image.save(partial, "JPEG", quality=quality, subsampling=0)
    os.utime(partial, ns=(source.st_atime_ns, source.st_mtime_ns))
    os.replace(partial, target)


def _print(report: dict[str, Any], out: str) -> None:
    made, unchanged = report["made"], report["unchanged"]
    did = f"{made:,} made, {unchanged:,} unchanged" if made else "nothing to do"
    print(f"{out}: {report['cached']:,} of {report['asked']:,} photos ({did}; {report['bytes'] / 1e6:,.1f} MB)")
    if report["quarantined"]:
        print(f"  {report['quarantined']:,} cannot be used: {out}/quarantine.jsonl says why")
    gone = "in the cache, yet no longer among the photos"
    for key, what in (("missing", "asked for and not there"), ("without_source", gone)):
        if names := report[key]:
            print(one_line(f"  {len(names):,} {what}: {first_few(names)}"))


if __name__ == "__main__":
    run(main, "cprt images")
