"""``cprt images``: checks every photo once and resizes it once, into a cache that every later command reads.

``OUT`` then stands for the photo folder: the same relative paths, JPEG throughout, at most ``max_pixels`` each, in RGB,
upright and without metadata (no place, no device, no thumbnail). What cannot be decoded is left out and named with its
reason in ``OUT/quarantine.jsonl``. ``OUT/manifest.jsonl`` remembers what was done: a later run does only what is new or
has changed, and a killed one goes on where it stopped.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm import tqdm

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import read_text
from cprt.images import ImageIndex, load_image
from cprt.models.response_cache import ResponseCache
from cprt.provenance import write_run
from cprt.records import write_jsonl

_AT_ONCE = 8  # photos a worker takes at a time; also how many share one write to the manifest


@dataclass
class ImagesArguments:
    images: str = option("folder that holds images/, images/ itself, or any folder of photos")
    out: str = option("cache folder to write; then give it to --images of every later command")
    max_pixels: int = option("width times height that a photo is reduced to; smaller ones stay")
    ids: str | None = option("only these photos: a text file of ids, or a split list as VISPR's val2017.txt", None)
    quality: int = option("JPEG quality, 1 to 95; colours are kept in full resolution", 95)
    workers: int | None = option("processes; by default one for each core", None)

    def __post_init__(self) -> None:
        for name in ("max_pixels", "quality", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.quality > 95:
            raise ValueError(f"quality must be at most 95, not {self.quality}: more only makes files larger")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt images``."""
    (args,) = parse(ImagesArguments, argv, prog="cprt images", description=__doc__)
    report = cache_images(args.images, args.out, args.max_pixels, args.ids, args.quality, args.workers)
    inputs = {"ids": args.ids} if args.ids else None
    write_run(args.out, args, inputs, report=report)
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

    Returns counts that add up: ``files`` = ``cached`` + ``quarantined``, ``cached`` = ``made`` + ``unchanged``; with
    ``ids``, ``asked`` = ``files`` + ``missing``, and the missing ones by name. ``without_source`` names what lies in
    the cache of photos that are gone. Raises InputError for folders that cannot be used.
    """
    index = ImageIndex(images)
    out = Path(out)
    _check_apart(index, out)
    wanted, missing = _asked(index, ids) if ids else (index.paths, [])
    others = [] if ids else index.others
    if not wanted:
        raise InputError.at(ids or images, f"names no image in {index.start}" if ids else "holds no images")
    reasons = {path: "is no image by its suffix" for path in others}
    reasons |= {path: "is no file" for path in wanted if not (index.root / path).is_file()}  # a dangling link, a pipe
    targets = _targets([path for path in wanted if path not in reasons], reasons)
    recipe = [max_pixels, quality]
    with ResponseCache(out / "manifest.jsonl") as manifest:
        jobs = []
        for path, target in targets.items():
            stat = (index.root / path).stat()
            source = [stat.st_size, stat.st_mtime_ns]
            if not _is_done(manifest.get(path), source, recipe, out / target):
                jobs.append((str(index.root / path), str(out / target), max_pixels, quality, path, source))
        made = 0
        with _pool(min(workers or len(os.sched_getaffinity(0)), -(-len(jobs) // _AT_ONCE))) as results:
            bar = tqdm(desc="resizing", total=len(jobs), unit="image", leave=False)
            for rows in results(jobs):
                manifest.put((path, {"source": source, "recipe": recipe, **row}) for path, source, row in rows)
                made += sum("reason" not in row for *_, row in rows)
                bar.update(len(rows))
            bar.close()
        rows = {path: manifest[path] for path in targets}
        reasons |= {path: row["reason"] for path, row in rows.items() if "reason" in row}
    write_jsonl(out / "quarantine.jsonl", [{"path": path, "reason": reasons[path]} for path in sorted(reasons)])
    cached = sum("reason" not in row for row in rows.values())
    gone = [] if ids else sorted(set(ImageIndex(out).paths) - set(targets.values()))
    return {
        "asked": len(wanted) + len(others) + len(missing),
        "files": len(wanted) + len(others),
        "cached": cached,
        "made": made,
        "unchanged": cached - made,
        "quarantined": len(reasons),
        "bytes": sum(row.get("bytes", 0) for row in rows.values()),
        "missing": missing,
        "without_source": gone,
    }


def _check_apart(index: ImageIndex, out: Path) -> None:
    """The cache must not be searched as a part of the photos, still less replace them."""
    photos, cache = index.start.resolve(), out.resolve()
    if photos.is_relative_to(cache) or cache.is_relative_to(photos):
        raise InputError.at(out, f"the cache must lie apart from the photos in {index.start}")


def _asked(index: ImageIndex, ids: str | Path) -> tuple[list[str], list[str]]:
    """Paths of the photos that a list names, and the names that fit none. Raises InputError with the line."""
    found: dict[str, int] = {}
    missing: dict[str, int] = {}
    for number, line in enumerate(read_text(ids).split("\n"), start=1):
        name = line.strip()
        if not name:
            continue
        id = name.removeprefix("annotations/").removesuffix(".json")  # a line of a split list
        try:
            path = index.find(id)
        except ValueError as error:
            raise InputError.at(ids, str(error), line=number) from error
        seen, key = (missing, id) if path is None else (found, path)
        if key in seen:
            raise InputError.at(ids, f"{name!r} is there already in line {seen[key]}", line=number)
        seen[key] = number
    return list(found), list(missing)


def _targets(paths: Sequence[str], reasons: dict[str, str]) -> dict[str, str]:
    """Path -> path in the cache, ending in .jpg where the photo was no JPEG; ``reasons`` takes why there is none."""
    targets: dict[str, str] = {}
    taken: dict[str, str] = {}
    jpeg = (".jpg", ".jpeg")
    for path in sorted(paths, key=lambda path: (not path.lower().endswith(jpeg), path)):
        target = path if path.lower().endswith(jpeg) else PurePosixPath(path).with_suffix(".jpg").as_posix()
        if target in taken:
            reasons[path] = f"would have the same name in the cache as {taken[target]}"
        else:
            taken[target] = path
            targets[path] = target
    return targets


def _is_done(row: dict[str, Any] | None, source: list[int], recipe: list[int], target: Path) -> bool:
    if row is None or (row["source"], row["recipe"]) != (source, recipe):
        return False
    return "reason" in row or (target.is_file() and target.stat().st_size == row["bytes"])


Job = tuple[str, str, int, int, str, list[int]]  # source, target, max_pixels, quality; path and state for the manifest
Result = tuple[str, list[int], dict[str, Any]]


def _work(jobs: list[Job]) -> list[Result]:
    return [
        (path, state, _make(Path(source), Path(target), max_pixels, quality, path))
        for source, target, max_pixels, quality, path, state in jobs
    ]


def _make(source: Path, target: Path, max_pixels: int, quality: int, path: str) -> dict[str, Any]:
    """Write one photo into the cache, whole or not at all; what the manifest says of it."""
    try:
        image = load_image(source, max_pixels)
    except InputError as error:
        target.unlink(missing_ok=True)  # of an earlier state of this photo
        return {"reason": str(error).removeprefix(f"{source}: ").replace(str(source), path)}
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    image.save(partial, "JPEG", quality=quality, subsampling=0)
    os.replace(partial, target)
    return {"width": image.width, "height": image.height, "bytes": target.stat().st_size}


@contextmanager
def _pool(workers: int) -> Iterator[Any]:
    """A function from jobs to results, as they come, worked by so many processes."""
    if workers <= 1:  # none to start: a second run, or a few new photos
        yield lambda jobs: map(_work, ([job] for job in jobs))
        return
    # Spawned, so that no worker holds the manifest's lock or a half-copied thread.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)

    def results(jobs: list[Job]) -> Iterator[list[Result]]:
        batches = [jobs[start : start + _AT_ONCE] for start in range(0, len(jobs), _AT_ONCE)]
        try:
            for done in as_completed([pool.submit(_work, batch) for batch in batches]):
                yield done.result()
        except BrokenProcessPool as error:
            raise InputError(
                "a worker process ended early (out of memory?); run again to go on, with fewer --workers"
            ) from error

    try:
        yield results
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leaves an interrupt to the parent, and ends when the parent is gone: a killed one cannot say goodbye."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _print(report: dict[str, Any], out: str) -> None:
    made, unchanged = report["made"], report["unchanged"]
    did = f"{made:,} made, {unchanged:,} unchanged" if made else "nothing to do"
    print(f"{out}: {report['cached']:,} of {report['asked']:,} photos ({did}; {report['bytes'] / 1e6:,.1f} MB)")
    if report["quarantined"]:
        print(f"  {report['quarantined']:,} cannot be used: {out}/quarantine.jsonl says why")
    for key, what in (
        ("missing", "asked for and not there"),
        ("without_source", "in the cache, yet no longer among the photos"),
    ):
        if names := report[key]:
            print(f"  {len(names):,} {what}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")


if __name__ == "__main__":
    run(main, "cprt images")
