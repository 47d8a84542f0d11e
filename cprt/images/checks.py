"""Many photos looked at before anything slow starts, on all cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from cprt.errors import InputError
from cprt.images.opening import check_ratio, image_size, load_image

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 128  # photos that are looked at before they are wanted, at most


def check_images(root: Path, paths: Sequence[str], decode: bool = True) -> None:
    """Open every image before anything slow starts: one bad photo would otherwise stop a run hours later.

    With ``decode`` in full, shape included, as training needs; otherwise only its header is read. Raises InputError
    that names the first unusable image and counts the others.
    """
    raise_first([*find_faults([root / path for path in paths], decode).values()])


def raise_first(faults: Sequence[InputError]) -> None:
    """Raises the first of several faults, if there is one, and counts the others."""
    if faults:
        raise InputError(str(faults[0]) + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""))


def find_faults(paths: Sequence[Path], decode: bool = True) -> dict[Path, InputError]:
    """Those of ``paths`` that cannot be used as images, with the reason; ``decode`` as in ``check_images``."""

    def fault(path: Path) -> InputError | None:
        try:
            if decode:
                check_ratio(load_image(path).size, path)
            else:
                image_size(path)
        except InputError as error:
            return error
        return None

    found = zip(paths, in_parallel(fault, paths, "checking images"), strict=True)
    return {path: error for path, error in found if error is not None}


def cores() -> int:
    """How many cores this process may use; not every system limits a process to some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(work: Callable[[T], R], items: Sequence[T], desc: str, workers: int | None = None) -> Iterator[R]:
    """``in_order`` with a bar."""
    yield from tqdm(
        in_order(work, items, workers), total=len(items), desc=desc, unit="photo", leave=False, disable=not items
    )


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int | None = None) -> Iterator[R]:
    """The results in order, from as many threads as there are cores (Pillow decodes and files are read beside Python).

    At most ``AHEAD`` are worked out before they are wanted.
    """
    pool = ThreadPoolExecutor(workers or cores())
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
