"""Photos on disk: which files they are, where they are, how they are opened. They never leave the machine from here."""

from cprt.images.checks import AHEAD, check_images, cores, find_faults, in_order, in_parallel, raise_first
from cprt.images.folders import SUFFIXES, ImageIndex, image_root, is_photo, list_photos
from cprt.images.opening import MAX_RATIO, check_ratio, fit, image_size, is_box, load_image, read_bare_jpeg

__all__ = [
    "AHEAD",
    "MAX_RATIO",
    "SUFFIXES",
    "ImageIndex",
    "check_images",
    "check_ratio",
    "cores",
    "find_faults",
    "fit",
    "image_root",
    "image_size",
    "in_order",
    "in_parallel",
    "is_box",
    "is_photo",
    "list_photos",
    "load_image",
    "raise_first",
    "read_bare_jpeg",
]
