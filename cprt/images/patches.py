"""Qwen's photos as patches of bytes, an eighth of what its model takes: the rest is made where the model computes.

The library's processor turns each byte of a photo into a float, and writes it twice, for the two frames of a film that
a patch holds. Whoever reads photos ahead hands on the bytes; ``complete`` does the rest by the library's own functions,
so that the numbers are the same to the last bit.
"""

from __future__ import annotations

import copy
from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from transformers import BatchFeature, Qwen2VLImageProcessor


class BytePatches(Qwen2VLImageProcessor):
    """The library's processor of images, stopped at ``patches``: (N, channels, P, P) bytes, one below the other."""

    model_input_names = ("patches", "image_grid_thw")

    def _preprocess(
        self,
        images: Sequence[torch.Tensor],
        do_resize: bool,
        size: Any,
        resample: Any,
        patch_size: int,
        merge_size: int,
        return_tensors: str | None,
        **kwargs: Any,
    ) -> BatchFeature:
        patches, grids = [], []
        for image_CHW in images:
            batch_1CHW = image_CHW[None]
            if do_resize:
                batch_1CHW = self.resize(batch_1CHW, size=size, resample=resample, factor=patch_size * merge_size)
            flat_1NX, rows, columns = self.patchify(batch_1CHW, patch_size, merge_size, temporal_patch_size=1)
            patches.append(flat_1NX.view(rows * columns, -1, patch_size, patch_size))
            grids.append([1, rows, columns])
        made = {"patches": torch.cat(patches), "image_grid_thw": torch.tensor(grids, dtype=torch.long)}
        return BatchFeature(data=made, tensor_type=return_tensors)


def in_bytes(processor: Any) -> Any:
    """A processor that shares all with ``processor`` but makes ``patches`` of photos, if it is one of Qwen's."""
    images = processor.image_processor
    if type(images) is not Qwen2VLImageProcessor:
        return processor
    lean = copy.copy(processor)
    lean.image_processor = BytePatches.from_dict(images.to_dict())
    return lean


def complete(inputs: MutableMapping[str, Any], images: Any, dtype: torch.dtype = torch.float32) -> None:
    """Put in the place of ``patches``, if there are any, the ``pixel_values`` that the processor ``images`` makes.

    (N, channels x frames x P x P) numbers, on the patches' device.
    """
    if "patches" not in inputs:
        return
    pixels_NCPP = images.rescale_and_normalize(
        inputs.pop("patches"),
        images.do_rescale,
        images.rescale_factor,
        images.do_normalize,
        tuple(images.image_mean),
        tuple(images.image_std),
    )
    frames_NCTPP = pixels_NCPP.to(dtype).unsqueeze(2).expand(-1, -1, images.temporal_patch_size, -1, -1)
    inputs["pixel_values"] = frames_NCTPP.flatten(1)
