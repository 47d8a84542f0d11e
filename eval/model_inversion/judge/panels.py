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
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from cprt.errors import InputError
from cprt.images import in_parallel, load_image
from cprt.provenance import file_digest
from eval.model_inversion.collection.setups import Setup
from eval.model_inversion.judge.degrade import MOST_LOOKED_AT, blurred, matching_radius
from eval.model_inversion.judge.drawing import GAP, TILE, check_drawable, draw
from eval.model_inversion.judge.prompts import OURS, Prompt
from eval.model_inversion.judge.queries import Options, Query, arrangement, candidates

_QUALITY = 95
_VERSION = 2  # of the drawing: part of every panel's name
_LEAST = 8  # pixels on either side of a picture
_AT_ONCE = 32  # queries of one class that a thread takes together
_PARTS_KEPT, _DIGESTS_KEPT = 1024, 200_000  # a part has up to 150 kB

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
        self._part = lru_cache(_PARTS_KEPT)(self._make_part)
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
        classes = groupby(sorted(queries, key=lambda query: query.claims), lambda query: query.claims)
        groups = [[*group] for _, group in classes]
        batches = [group[start : start + _AT_ONCE] for group in groups for start in range(0, len(group), _AT_ONCE)]

        def work(batch: Sequence[Query]) -> list[Shown]:
            return [self.show_one(setup, query) for query in batch]

        made = in_parallel(work, batches, f"{setup.id}, pictures", workers)
        shown = {one.query: one for batch in made for one in batch}
        return [shown[query] for query in queries]

    def show_one(self, setup: Setup, query: Query) -> Shown:
        """Draw the references of one query and make its pictures, unless they are there."""
        drawn = candidates(query, setup, self.options.seed)
        # Pictures are there only if all in them could be read: then nothing has to be decoded.
        with contextlib.suppress(InputError):
            known = self._arranged(setup, query, drawn[: self.options.n], [])
            whole = len(known.references) == self.options.n and all(path.is_file() for path in known.images)
            if whole and not any(self._is_copy(query, path) for path in known.references):
                return known
        try:
            self._digest(query.path)
            a = self._tile_a(setup, query)
        except InputError as error:
            return Shown(query, problem=str(error))
        references, skipped = self._readable(setup, query, drawn)
        if len(references) < self.options.least:
            few = f"class {query.claims!r} has {len(references)} usable references, {self.options.least} are needed"
            return Shown(query, skipped=tuple(skipped), problem=few)
        shown = self._arranged(setup, query, references, skipped)
        pictures = [_tile(self._part(path, setup.crop)) for path in shown.references]
        if self.options.layout == "panel":
            question = self.prompt.question(setup.subject, query.is_control)
            pictures = [draw(a, pictures, question, shown.a_first)]
        else:
            pictures.insert(0 if shown.a_first else len(pictures), a)
        for path, picture in zip(shown.images, pictures, strict=True):
            if not os.path.isfile(path):
                self._write(path, picture)
        return shown

    def _readable(self, setup: Setup, query: Query, drawn: Sequence[str]) -> tuple[list[str], list[str]]:
        """The first n references that can be used, and why others before them cannot."""
        usable: list[str] = []
        skipped: list[str] = []
        for path in drawn:
            if len(usable) == self.options.n:
                break
            try:
                if self._is_copy(query, path):
                    raise InputError(f"{path}: is a copy of Image A")
                self._part(path, setup.crop)
                usable.append(path)
            except InputError as error:
                skipped.append(str(error))
        return usable, skipped

    def _is_copy(self, query: Query, path: str) -> bool:
        """A positive control must not show A itself again, under another name."""
        return query.is_positive and self._digest(path) == self._digest(query.path)

    def _arranged(self, setup: Setup, query: Query, references: list[str], skipped: list[str]) -> Shown:
        """In the order shown; references are repeated in theirs up to n where padding is wished."""
        if self.options.pad:
            references = list(islice(cycle(references), self.options.n))
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

    def _tile_a(self, setup: Setup, query: Query) -> Image.Image:
        part = self._part(query.path, _crop_of_a(setup, query))
        return _tile(blurred(part, self._radius[setup.id]) if query.is_degraded else part)

    def _matching_radius(self, setup: Setup, queries: Sequence[Query]) -> float:
        """For degraded controls, from both sides as far as they can be read; 0 where one side has none.

        White beside a picture is no part of it: it is lighter than most photos, and would pass for contrast.
        """
        sides: dict[bool, list[Image.Image]] = {}
        for degraded in (True, False):
            side = [one for one in queries if (one.is_degraded if degraded else not one.is_control)]
            sides[degraded] = []
            for query in side[:: 1 + len(side) // MOST_LOOKED_AT]:  # from all classes
                with contextlib.suppress(InputError):
                    sides[degraded].append(self._part(query.path, _crop_of_a(setup, query)))
        return matching_radius(sides[True], sides[False]) if all(sides.values()) else 0.0

    def _make_part(self, path: str, crop: Crop | None) -> Image.Image:
        """What fills a tile in one direction, and not always in the other."""
        try:
            image = load_image(self.root / path, None if crop else 4 * TILE * TILE)
        except InputError as error:
            raise InputError(f"{path}: {error.reason}") from error
        if min(image.size) < _LEAST:
            raise InputError(f"{path}: is too small to show anything ({image.width} x {image.height} pixels)")
        if crop is not None:
            if crop[2] > image.width or crop[3] > image.height:
                size = f"{image.width} x {image.height} pixels"
                raise InputError(f"{path}: reference_crop {[*crop]} does not fit its {size}")
            image = image.crop(crop)
        return ImageOps.contain(image, (TILE, TILE), Image.Resampling.BICUBIC)

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
        path.parent.mkdir(exist_ok=True)
        os.replace(partial, path)


def _tile(part: Image.Image) -> Image.Image:
    return ImageOps.pad(part, (TILE, TILE), color="white")


def _crop_of_a(setup: Setup, query: Query) -> Crop | None:
    """Real images are cut alike, whether they stand in A or in B; reconstructions are as the attack made them."""
    return None if query.kind == "reconstruction" else setup.crop


def _name(*content: Any) -> str:
    return hashlib.sha256(json.dumps([_VERSION, TILE, GAP, _QUALITY, *content]).encode()).hexdigest()
