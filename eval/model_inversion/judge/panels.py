"""Queries as pictures: references drawn from what can be read, in a panel or one by one.

A picture keeps its aspect ratio, on white. Panels are files named by what is in them: an interrupted run makes only
those that are missing, and the same panel is made once. Each is written beside its place and moved there when complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps
from tqdm import tqdm

from cprt.errors import InputError
from cprt.images import load_image
from cprt.provenance import file_digest
from eval.model_inversion.collection.setups import Setup
from eval.model_inversion.judge.degrade import MOST_LOOKED_AT, blurred, matching_radius
from eval.model_inversion.judge.drawing import GAP, TILE, check_drawable, draw
from eval.model_inversion.judge.prompt_files import OURS, Prompt
from eval.model_inversion.judge.queries import Options, Query, arrangement, candidates

_QUALITY = 95
_VERSION = 1  # of the drawing: part of every panel's name
_LEAST = 8  # pixels on either side of a picture
_AT_ONCE = 32  # queries of one class that a thread takes together
_TILES_KEPT, _DIGESTS_KEPT = 1024, 200_000  # a tile has 150 kB

Crop = tuple[int, int, int, int]


@dataclass(frozen=True)
class Shown:
    """A query as it is shown, or the reason (``problem``) why it cannot be.

    Attributes:
        references: paths relative to the root, in the order shown.
        a_first: A is at the left, or comes first.
        images: the files that go to the judge: one panel, or A and the references.
        skipped: references that were drawn and could not be used, with the reason.
        blur: radius in pixels of a tile by which A was blurred.
    """

    query: Query
    references: tuple[str, ...] = ()
    a_first: bool = True
    images: tuple[Path, ...] = ()
    skipped: tuple[str, ...] = ()
    blur: float = 0.0
    problem: str | None = None


class Panels:
    """Makes what is shown, in ``folder``, from images below ``root``. For one run at a time."""

    def __init__(self, root: Path, folder: Path, options: Options, prompt: Prompt = OURS):
        self.root, self.folder, self.options, self.prompt = root, folder, options, prompt
        self._unfinished = folder / "unfinished"
        shutil.rmtree(self._unfinished, ignore_errors=True)  # of a run that was killed
        self._unfinished.mkdir(parents=True)
        self._tile = lru_cache(_TILES_KEPT)(self._make_tile)
        self._digest = lru_cache(_DIGESTS_KEPT)(self._read_digest)
        self._radius: dict[str, float] = {}  # of the degraded controls of a set-up

    def show(self, setup: Setup, queries: Sequence[Query], workers: int | None = None) -> list[Shown]:
        """Every query as it is shown, in the order given. Raises InputError for a question that cannot be drawn."""
        if self.options.layout == "panel":
            for is_control in (False, True):
                check_drawable(self.prompt.question(setup.subject, is_control))
        if any(query.is_degraded for query in queries):
            self._radius[setup.id] = self._matching_radius(setup, queries)
        # Queries with the same references go to the same thread, so that no reference is decoded twice.
        order = sorted(range(len(queries)), key=lambda i: (queries[i].claims, i))
        classes = [[*group] for _, group in groupby(order, key=lambda i: queries[i].claims)]
        batches = [group[start : start + _AT_ONCE] for group in classes for start in range(0, len(group), _AT_ONCE)]

        def work(batch: Sequence[int]) -> list[tuple[int, Shown]]:
            return [(i, self.show_one(setup, queries[i])) for i in batch]

        shown: dict[int, Shown] = {}
        # Decoding, resizing and encoding release the interpreter lock: threads share the tiles and need no start.
        with (
            ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool,
            tqdm(total=len(queries), desc=f"{setup.id}, pictures", unit="query", leave=False) as progress,
        ):
            for done in pool.map(work, batches):
                shown.update(done)
                progress.update(len(done))
        return [shown[i] for i in range(len(queries))]

    def show_one(self, setup: Setup, query: Query) -> Shown:
        """Draw the references of one query and make its pictures, unless they are there."""
        n = self.options.n
        drawn = candidates(query, setup, self.options.seed)
        # Pictures are there only if all in them could be read: then nothing has to be decoded.
        known = self._known(setup, query, self._filled(drawn[:n]))
        if known is not None:
            return known
        try:
            self._digest(query.path)
            self._tile_a(setup, query)
        except InputError as error:
            return Shown(query, problem=str(error))
        references, skipped = self._readable(setup, query, drawn)
        if len(references) < self.options.least:
            few = f"class {query.claims!r} has {len(references)} usable references, {self.options.least} are needed"
            return Shown(query, skipped=tuple(skipped), problem=few)
        shown = self._arranged(setup, query, self._filled(references), skipped)
        pictures = self._pictures(setup, query, shown)
        for path in shown.images:
            if not os.path.isfile(path):
                self._write(path, pictures[path.stem])
        return shown

    def _filled(self, references: list[str]) -> list[str]:
        """Repeated in their order up to n where padding is wished."""
        return list(islice(cycle(references), self.options.n)) if self.options.pad else references

    def _known(self, setup: Setup, query: Query, references: list[str]) -> Shown | None:
        try:
            if len(references) < self.options.n or any(self._is_copy(query, path) for path in references):
                return None
            shown = self._arranged(setup, query, references, [])
        except InputError:
            return None
        return shown if all(path.is_file() for path in shown.images) else None

    def _readable(self, setup: Setup, query: Query, drawn: Sequence[str]) -> tuple[list[str], list[str]]:
        """The first n references that can be used, and why others before them cannot."""
        usable: list[str] = []
        skipped: list[str] = []
        for path in drawn:
            if len(usable) == self.options.n:
                break
            try:
                if self._is_copy(query, path):
                    skipped.append(f"{path}: is a copy of Image A")
                else:
                    self._tile(path, setup.crop)
                    usable.append(path)
            except InputError as error:
                skipped.append(str(error))
        return usable, skipped

    def _is_copy(self, query: Query, path: str) -> bool:
        """A positive control must not show A itself again, under another name."""
        return query.is_positive and self._digest(path) == self._digest(query.path)

    def _arranged(self, setup: Setup, query: Query, references: list[str], skipped: list[str]) -> Shown:
        ordered, a_first = arrangement(query, references, self.options.order_seed)
        parts: list[tuple[Any, ...]] = [(self._digest(path), setup.crop) for path in ordered]
        blur = self._radius[setup.id] if query.is_degraded else 0.0
        a = (self._digest(query.path), _crop_of_a(setup, query), *([blur] if blur else []))
        parts.insert(0 if a_first else len(parts), a)
        if self.options.layout == "panel":
            names = [_name("panel", self.prompt.question(setup.subject, query.is_control), a_first, parts)]
        else:
            names = [_name("tile", part) for part in parts]
        files = tuple(self.folder / name[:2] / f"{name}.jpg" for name in names)
        return Shown(query, tuple(ordered), a_first, files, tuple(skipped), blur)

    def _pictures(self, setup: Setup, query: Query, shown: Shown) -> dict[str, Image.Image]:
        """By the name of the file they belong into."""
        a = self._tile_a(setup, query)
        b = [self._tile(path, setup.crop) for path in shown.references]
        if self.options.layout == "panel":
            question = self.prompt.question(setup.subject, query.is_control)
            return {shown.images[0].stem: draw(a, b, question, shown.a_first)}
        tiles = [a, *b] if shown.a_first else [*b, a]
        return {path.stem: tile for path, tile in zip(shown.images, tiles, strict=True)}

    def _tile_a(self, setup: Setup, query: Query) -> Image.Image:
        tile = self._tile(query.path, _crop_of_a(setup, query))
        return blurred(tile, self._radius[setup.id]) if query.is_degraded else tile

    def _matching_radius(self, setup: Setup, queries: Sequence[Query]) -> float:
        """For degraded controls, from tiles of both sides as far as they can be read; 0 where one side has none."""

        def tiles(of_kind: list[Query]) -> list[Image.Image]:
            found = []
            for query in of_kind[:: 1 + len(of_kind) // MOST_LOOKED_AT]:  # from all classes
                with contextlib.suppress(InputError):
                    found.append(self._tile(query.path, _crop_of_a(setup, query)))
            return found

        photos = tiles([query for query in queries if query.is_degraded])
        reconstructions = tiles([query for query in queries if query.kind == "reconstruction"])
        return matching_radius(photos, reconstructions) if photos and reconstructions else 0.0

    def _make_tile(self, path: str, crop: Crop | None) -> Image.Image:
        try:
            image = load_image(self.root / path, None if crop else 4 * TILE * TILE)
        except InputError as error:
            raise InputError(f"{path}: {error.reason}") from error
        if min(image.size) < _LEAST:
            raise InputError(f"{path}: is too small to show anything ({image.width} x {image.height} pixels)")
        if crop is not None:
            if crop[2] > image.width or crop[3] > image.height:
                raise InputError(
                    f"{path}: reference_crop {[*crop]} does not fit its {image.width} x {image.height} pixels"
                )
            image = image.crop(crop)
        return ImageOps.pad(image, (TILE, TILE), Image.Resampling.BICUBIC, color="white")

    def _read_digest(self, path: str) -> str:
        if not os.path.isfile(self.root / path):
            raise InputError(f"{path}: is no file")
        try:
            return file_digest(self.root / path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error

    def _write(self, path: Path, picture: Image.Image) -> None:
        partial = self._unfinished / f"{path.stem}.{threading.get_ident()}"
        picture.save(partial, "JPEG", quality=_QUALITY, subsampling=0)
        try:
            os.replace(partial, path)
        except FileNotFoundError:  # the first picture in its folder
            path.parent.mkdir(exist_ok=True)
            os.replace(partial, path)


def _crop_of_a(setup: Setup, query: Query) -> Crop | None:
    """Real images are cut alike, whether they stand in A or in B; reconstructions are as the attack made them."""
    return None if query.kind == "reconstruction" else setup.crop


def _name(*content: Any) -> str:
    return hashlib.sha256(json.dumps([_VERSION, TILE, GAP, _QUALITY, *content]).encode()).hexdigest()
