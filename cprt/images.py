"""Photos on disk: where they are, and how they are opened. They never leave the machine from here."""

from __future__ import annotations

import math
import os
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from tqdm import tqdm

from cprt.errors import InputError
from cprt.files import is_safe_path

# Pillow only warns between one and two times its limit. Set once for the process: threads share the filters.
warnings.simplefilter("error", Image.DecompressionBombWarning)
# Of EXIF data only the orientation is read: what else is odd in it concerns nobody.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")

# The turn that makes a photo upright, by its EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# A JPEG is decoded at a half, a quarter or an eighth of its size where at least this times the wanted width and height
# is left for the last, careful step.
_DRAFT_MARGIN = 1.5
# Pillow goes by content, not by name, and would hand a file that says it is PostScript to Ghostscript.
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "JPEG2000", "PPM", "AVIF", "HEIF")
# The start of a JPEG without a thumbnail, without a density, and any marker in a scan but stuffing and restarts.
_PLAIN_JFIF = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def image_root(folder: str | Path) -> Path:
    """The folder that image paths in our files are relative to: the one that holds ``images/``.

    Accepts that folder, or ``images/`` itself, or any folder of photos. Raises InputError when it does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError.at(folder, "is not a folder of images")
    if not (folder / "images").is_dir() and folder.resolve().name == "images":
        return folder.resolve().parent if folder.name != "images" else folder.parent
    return folder


class ImageIndex:
    """Finds images by the ids that label files use: a file name, with or without extension and folder.

    Attributes:
        root: what all paths are relative to.
        start: the folder that was searched, ``root`` or ``root/images``.
        paths: every image, hidden files and folders left out.
        others: every other file, told by its suffix.
    """

    def __init__(self, folder: str | Path):
        self.root = image_root(folder)
        self.start = self.root / "images" if (self.root / "images").is_dir() else self.root
        self.paths: list[str] = []
        self.others: list[str] = []
        self._by_stem: dict[str, list[str]] = {}
        for directory, folders, files in os.walk(self.start):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for file in sorted(name for name in files if not name.startswith(".")):
                path = (Path(directory) / file).relative_to(self.root).as_posix()
                if file.lower().endswith(SUFFIXES):
                    self.paths.append(path)
                    self._by_stem.setdefault(Path(file).stem, []).append(path)
                else:
                    self.others.append(path)

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, id: str) -> str | None:
        """Path relative to the root, or None when there is no such image.

        Raises ValueError for an id that could point outside the folder or that fits several images.
        """
        if not is_safe_path(id):
            raise ValueError(f"{id!r} is not a file name inside the image folder")
        wanted = id[: -len(Path(id).suffix)] if id.lower().endswith(SUFFIXES) else id
        found = self._by_stem.get(Path(wanted).name, [])
        if len(found) > 1:  # the folder in the id decides
            exact = [path for path in found if f"/{path}".removesuffix(Path(path).suffix).endswith(f"/{wanted}")]
            if len(exact) != 1:
                raise ValueError(f"{id!r} fits several images: {', '.join(found[:3])}")
            found = exact
        return found[0] if found else None


def load_image(path: str | Path, max_pixels: int | None = None) -> Image.Image:
    """An image decoded in full as RGB, upright by its EXIF orientation, transparency laid on white.

    Args:
        max_pixels: reduce to at most so many, the aspect ratio kept; nothing is enlarged. A JPEG is then decoded near
            the wanted size at once, in a half to a quarter of the time. All of its data is still read, and the result
            differs from a decode in full size by less than 1.5 of 255 levels on average.

    Raises InputError for whatever is no image, is cut off, or would unpack to more than Pillow's bomb limit.
    """
    with _open(path) as image:
        if max_pixels is not None:
            size = fit(image.size, max_pixels)
            width, height = (math.ceil(_DRAFT_MARGIN * side) for side in size)
            draft = image.draft(None, (width, height))
            # A draft's last column and row may lie half beyond the photo's edge: the box is the photo.
            box = None if draft is None else draft[1]
            return _upright(image, _to_rgb(image).resize(size, Image.Resampling.LANCZOS, box=box))
        return _upright(image, _to_rgb(image))


def read_bare_jpeg(path: str | Path, max_pixels: int | None = None) -> bytes | None:
    """The file of an RGB JPEG of at most ``max_pixels`` that is whole and holds nothing but its pixels, else None.

    Baseline, with the plainest JFIF header as Pillow writes it: no EXIF data, thumbnail, comment or profile, nothing
    between its scan's data or after its end. Such a file may go as it is where another would be encoded anew.
    """
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    if not content.startswith(_PLAIN_JFIF):
        return None
    place, size = len(_PLAIN_JFIF), None
    while content[place : place + 2] in (b"\xff\xdb", b"\xff\xc0", b"\xff\xc4", b"\xff\xdd", b"\xff\xda"):
        marker, length = content[place + 1], int.from_bytes(content[place + 2 : place + 4])
        if marker == 0xC0:  # SOF0: bits, height, width, components
            bits, height, width, components = struct.unpack_from(">BHHB", content.ljust(place + 10, b"\0"), place + 4)
            size = width * height if (bits, components) == (8, 3) else None
        place += 2 + length
        if marker == 0xDA:
            end = _MARKER.search(content, place)
            whole = end is not None and end[0] == b"\xff\xd9" and end.end() == len(content)
            fits = size is not None and size <= (max_pixels or min(size, Image.MAX_IMAGE_PIXELS or size))
            return content if whole and fits and size else None
    return None


def fit(size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
    """Width and height reduced to at most ``max_pixels`` in all, at the same aspect ratio; never enlarged."""
    width, height = size
    scale = math.sqrt(max_pixels / (width * height))
    if scale >= 1:
        return size
    short = max(1, int(min(size) * scale))
    long = min(int(max(size) * scale), max_pixels // short)
    return (short, long) if width <= height else (long, short)


def check_images(root: Path, paths: Sequence[str], decode: bool = True) -> None:
    """Open every image before anything slow starts: one bad photo would otherwise stop a run hours later.

    Args:
        decode: decode in full, as training needs; otherwise only the header is read, which finds what is no image.

    Raises InputError that names the first unreadable image and counts the others.
    """
    faults = [*find_faults([root / path for path in paths], decode).values()]
    if faults:
        raise InputError(str(faults[0]) + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""))


def find_faults(paths: Sequence[Path], decode: bool = True) -> dict[Path, InputError]:
    """Those of ``paths`` that cannot be opened as images, with the reason; ``decode`` as in ``check_images``."""

    def fault(path: Path) -> InputError | None:
        try:
            if decode:
                load_image(path)
            else:
                with _open(path):
                    pass
        except InputError as error:
            return error
        return None

    with ThreadPoolExecutor() as pool:  # decoding releases the interpreter lock
        faults = tqdm(pool.map(fault, paths), total=len(paths), desc="checking images", leave=False)
        return {path: error for path, error in zip(paths, faults, strict=True) if error is not None}


@contextmanager
def _open(path: str | Path) -> Iterator[Image.Image]:
    """An opened image; whatever goes wrong inside becomes an InputError."""
    try:
        with Image.open(path) as image:
            if image.format not in _FORMATS:
                raise InputError.at(path, f"is no photo format ({image.format})")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError.at(path, "has too many pixels to be unpacked safely") from error
    except FileNotFoundError as error:
        raise InputError.at(path, "no such image") from error
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # what Pillow's decoders raise
        if isinstance(error, UnidentifiedImageError):
            raise InputError.at(path, "is not an image") from error
        raise InputError.at(path, f"cannot be read as an image ({' '.join(str(error).split())})") from error


def _upright(image: Image.Image, pixels: Image.Image) -> Image.Image:
    """``pixels``, which came from ``image``, turned as its EXIF data says, and without any metadata.

    ImageOps.exif_transpose would also write the EXIF data anew, and fails where a camera's own is broken.
    """
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # whatever a broken block provokes: the photo itself has been decoded
        turn = None
    upright = pixels if turn is None else pixels.transpose(turn)
    upright.info.clear()
    return upright


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):  # 16 bits and more: Pillow would clip instead of scaling
        values = np.asarray(image, dtype=np.float64)
        return Image.fromarray((values / max(values.max() / 255, 1.0)).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
