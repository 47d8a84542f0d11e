"""How photos are opened: decoded as RGB and upright, whatever they are, or with a reason why not."""

from __future__ import annotations

import math
import os
import re
import stat
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT, TiffImageFile

from cprt.errors import InputError

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
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
# What a photo may unpack to (as Pillow has it), after a JPEG's draft. Phones write JPEGs of 200 megapixels.
_MOST_PIXELS = 2**30 // 4 // 3
_MOST_IN_A_JPEG = 500_000_000
_TOO_MANY = "has too many pixels to be unpacked safely"
MAX_RATIO = 200  # of the longer side to the shorter one: Qwen's processors refuse more


def load_image(path: str | Path, max_pixels: int | None = None) -> Image.Image:
    """An image decoded in full as RGB, upright by its EXIF orientation, transparency laid on white.

    It is reduced to at most ``max_pixels``, the aspect ratio kept. A JPEG is then decoded near the wanted size at once,
    in a half to a quarter of the time: all of its data is still read, and the result differs from a decode in full size
    by less than 1.5 of 255 levels on average.

    A JPEG that would unpack to more than Pillow's bomb limit (89 megapixels) is decoded at the largest of a half, a
    quarter and an eighth of its size that does not. Raises InputError for whatever is no image, is cut off, or is
    larger.
    """
    with opened(path) as image:
        size = image.size if max_pixels is None else fit(image.size, max_pixels)
        least = next(scale for scale in (1, 2, 4, 8) if math.prod(image.size) <= _MOST_PIXELS * scale**2)
        if size == image.size and least == 1:
            return _upright(image, _to_rgb(image))
        width, height = (
            max(1, min(math.ceil(_DRAFT_MARGIN * wanted), whole // least))
            for wanted, whole in zip(size, image.size, strict=True)
        )
        draft = image.draft(None, (width, height))
        size = min(size, image.size)
        # A draft's last column and row may lie half beyond the photo's edge: the box is the photo.
        box = None if draft is None else draft[1]
        return _upright(image, _to_rgb(image).resize(size, Image.Resampling.LANCZOS, box=box))


def image_size(path: str | Path) -> tuple[int, int]:
    """Width and height as stored, from the header alone. Raises InputError."""
    with opened(path) as image:
        return image.size


def read_bare_jpeg(path: str | Path, max_pixels: int | None = None) -> bytes | None:
    """The file of an RGB JPEG of at most ``max_pixels`` that is whole and holds nothing but its pixels, else None.

    Baseline, with the plainest JFIF header as Pillow writes it. Such a file may go as it is, and is not encoded anew.
    """
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(len(_PLAIN_JFIF))
            if content != _PLAIN_JFIF:
                return None
            content += file.read()
    except OSError:
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
            fits = size is not None and size <= (max_pixels or min(size, _MOST_PIXELS))
            return content if whole and fits and size else None
    return None


def fit(size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
    """Width and height reduced to at most ``max_pixels`` in all, at the same aspect ratio; never enlarged.

    Rounding makes no ratio over ``MAX_RATIO``.
    """
    width, height = size
    scale = math.sqrt(max_pixels / (width * height))
    if scale >= 1:
        return size
    short = max(1, int(min(size) * scale))
    long = min(int(max(size) * scale), max_pixels // short)
    if max(size) <= MAX_RATIO * min(size):
        long = min(long, MAX_RATIO * short)
    return (short, long) if width <= height else (long, short)


def is_box(crop: Sequence[int]) -> bool:
    """Whether these are the left, upper, right and lower end of a part of a picture, in pixels."""
    return len(crop) == 4 and 0 <= crop[0] < crop[2] and 0 <= crop[1] < crop[3]


def check_ratio(size: tuple[int, int], path: str | Path) -> None:
    """Raises InputError for a photo that models refuse by its shape."""
    if max(size) > MAX_RATIO * min(size):
        raise InputError.at(path, f"is {size[0]} x {size[1]} pixels: one side is over {MAX_RATIO} times the other")


@contextmanager
def opened(path: str | Path) -> Iterator[Image.Image]:
    """An opened image; whatever goes wrong inside becomes an InputError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for ever
            raise InputError.at(path, "is not a regular file")
        with _identify(path) as image:
            if image.format not in _FORMATS:
                raise InputError.at(path, f"is no photo format ({image.format})")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError.at(path, _TOO_MANY) from error
    except FileNotFoundError as error:
        raise InputError.at(path, "no such image") from error
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError, RuntimeError) as error:  # what Pillow's decoders raise
        if isinstance(error, UnidentifiedImageError):
            raise InputError.at(path, "is not an image") from error
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError.at(path, f"cannot be read as an image ({' '.join(why.split())})") from error


def _identify(path: str | Path) -> Image.Image:
    """Pillow's view of a file: also of phones' HEIC, if the extra is installed, and of JPEGs beyond its limit."""
    try:
        image = Image.open(path)
    except UnidentifiedImageError:
        with open(path, "rb") as file:
            head = file.read(12)
        if head[4:8] != b"ftyp" or head[8:12] not in _HEIF_BRANDS:
            raise
        try:
            from pillow_heif import register_heif_opener
        except ImportError:
            hint = "is a HEIC photo: install pillow-heif to read it (pip install 'cprt[heic]')"
            raise InputError.at(path, hint) from None
        register_heif_opener()
        image = Image.open(path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _identify_large(path)
    if math.prod(image.size) > _MOST_PIXELS:  # somebody has silenced Pillow's warning
        image.close()
        return _identify_large(path)
    return image


def _identify_large(path: str | Path) -> Image.Image:
    """A JPEG beyond Pillow's limit of which a draft takes little memory. Raises InputError for whatever else it is."""
    try:
        image = JpegImageFile(path)
    except SyntaxError:
        raise InputError.at(path, _TOO_MANY) from None
    # Scans have to be put together in full size: progressive ones, and those of a file whose first scan, behind whose
    # header Pillow has stopped, does not hold all components.
    assert image.fp is not None
    length = 6 + 2 * image.layers
    image.fp.seek(-length - 2, os.SEEK_CUR)
    one_scan = image.fp.read(5) == bytes([0xFF, 0xDA, 0, length, image.layers]) and "progressive" not in image.info
    if not one_scan or math.prod(image.size) > _MOST_IN_A_JPEG:
        image.close()
        raise InputError.at(path, _TOO_MANY)
    return image


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
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey levels of 16 bits and more by the full range of their type, where Pillow would clip them.

    A floating-point number has no range: 1 is white, as editors write it, unless a level of over 2 says that it is 255,
    or one of over 510, 65535.
    """
    tags = image.tag_v2 if isinstance(image, TiffImageFile) else {}
    bits, kind = tags.get(BITSPERSAMPLE, (16,))[0], tags.get(SAMPLEFORMAT, (1,))[0]
    values = np.asarray(image)
    if image.mode == "F":
        values = np.nan_to_num(values, posinf=np.inf, neginf=0)
        brightest = values.max(initial=0, where=np.isfinite(values))
        white = next((white for white in (1, 255) if brightest <= 2 * white), 2**16 - 1)
    elif kind == 2:
        white = 2 ** (bits - 1) - 1
    else:
        values = values.astype(np.uint32) if image.mode == "I" else values
        white = 2**bits - 1
    levels = np.clip(values.astype(np.float32) * (255 / white) + 0.5, 0, 255)
    if tags.get(PHOTOMETRIC_INTERPRETATION) == 0:  # white is zero, which Pillow turns round for 8 bits only
        levels = 255.99 - levels
    return Image.fromarray(levels.astype(np.uint8))
