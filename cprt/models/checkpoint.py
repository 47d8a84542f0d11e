"""Checkpoints of vision-language models: loaded whole or not at all, and no code of theirs is run. Torch when used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from cprt.errors import InputError, suggestion
from cprt.provenance import model_digest
from cprt.records import inside, read_object
from cprt.services.hub import limit_patience, reason

if TYPE_CHECKING:
    import torch

DTYPES = ("auto", "float32", "bfloat16", "float16")
AS_TENSORS = {"padding": True, "add_special_tokens": False, "return_tensors": "pt"}  # a template writes special tokens

# What transformers reads of a folder beside its weights; each holds one JSON object.
_JSON = (
    "config generation_config processor_config preprocessor_config video_preprocessor_config tokenizer_config "
    "special_tokens_map added_tokens chat_template model.safetensors.index"
).split()
_VOCABULARY = "tokenizer"  # some 10 MB, and read for a processor alone
_PROBE = [  # a question with a photo, to see whether one comes through
    {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image"}, {"type": "text", "text": "So?"}]}
]

# Setting of the image processor -> of the vision encoder, which must be equal.
_PATCHES = {name: name for name in ("patch_size", "temporal_patch_size")}
_PIECES = {"qwen3_vl": _PATCHES | {"merge_size": "spatial_merge_size"}, "mllama": {"max_image_tiles": "max_num_tiles"}}


def load_processor(model: str, revision: str | None = None, max_pixels: int | None = None) -> Any:
    """The processor of a checkpoint, padding on the left, with images capped at ``max_pixels``.

    Families that resize to fixed tiles (Mllama) know no cap and keep their own size. Raises InputError when there is no
    such checkpoint, and when a question with one photo does not come through its template and processor as one.
    """
    from transformers import AutoProcessor

    with _reading(model, [*_JSON, _VOCABULARY]):
        _check_caps(Path(model))
        processor = AutoProcessor.from_pretrained(model, revision=revision, trust_remote_code=False)
    if not hasattr(processor, "image_processor"):
        raise InputError(f"{model}: is not a vision-language model (its processor takes no images)")
    processor.tokenizer.padding_side = "left"  # right padding changes what a decoder generates
    with _reading(model):
        size = processor.image_processor.size
        if max_pixels is not None and "longest_edge" in size and "shortest_edge" in size:
            # In this family's processors the two "edges" are numbers of pixels.
            floor = min(size["shortest_edge"], max_pixels)
            processor.image_processor.size = {"shortest_edge": floor, "longest_edge": max_pixels}
    _check_processor(model, processor)
    return processor


def load_model(model: str, revision: str | None = None, **kwargs: Any) -> Any:
    """The weights of a checkpoint, from safetensors alone; ``kwargs`` go to ``from_pretrained``.

    Raises InputError when there is no such checkpoint, or a weight is missing, too many, of another shape, or not
    finite.
    """
    from transformers import AutoModelForImageTextToText

    if (Path(model) / "adapter_config.json").is_file():  # its base would be loaded from wherever it says
        raise InputError(f"{model}: is the folder of an adapter; give its base as the model, and this as the adapter")
    with _reading(model, _JSON):
        loaded, found = AutoModelForImageTextToText.from_pretrained(
            model,
            revision=revision,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below
            **kwargs,
        )
    for fault, names in (
        ("missing", found["missing_keys"]),
        ("in none of its layers", found["unexpected_keys"]),
        ("of another shape", [name for name, *_ in found["mismatched_keys"]]),
    ):
        if names:
            some = f"{min(names)} is" if len(names) == 1 else f"{len(names)} weights ({min(names)}, ...) are"
            raise InputError(f"{model}: {some} {fault}: the weights are not those of its config.json")
    check_finite(model, {**dict(loaded.named_parameters()), **dict(loaded.named_buffers())})
    if loaded.config.model_type == "qwen3_vl":
        embed = loaded.model.visual.patch_embed
        embed.forward = MethodType(_embed_patches, embed)
    return loaded


def _embed_patches(self: Any, pixels_NP: Any) -> Any:
    """(N patches, P numbers) -> (N, width), as the library's convolution does, whose kernel is one whole patch.

    As a matrix product, which every backend is quick at; the convolution took four times as long on a CPU.
    """
    from torch.nn.functional import linear

    weight = self.proj.weight.flatten(1)
    return linear(pixels_NP.to(weight.dtype), weight, self.proj.bias)


def check_fit(name: str, model: Any, processor: Any) -> None:
    """Raises InputError when a processor cuts photos into other pieces than the model takes.

    Each may be whole for itself; the first photo would then end the run.
    """
    vision = model.config.vision_config
    for ours, models in _PIECES.get(model.config.model_type, {}).items():
        cut, taken = getattr(processor.image_processor, ours), getattr(vision, models)
        if cut != taken:
            raise InputError(f"{name}: its processor has {ours} {cut}, its config.json {models} {taken}")


def find_device() -> torch.device:
    """Where models run: what torch finds (CUDA, ROCm, XPU, Apple's MPS), else the processor.

    Each process of ``accelerate launch`` has a card of its own.
    """
    import torch

    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        return torch.device("cpu")
    place = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
    return torch.device(found.type, place)


def to_device(model: Any, device: torch.device, dtype: str) -> Any:
    """A model on ``device``; where ``dtype`` is auto and the device lacks the model's own precision, in float32."""
    import torch

    known = None if device.type == "cpu" else torch.accelerator.get_device_capability(device)["supported_dtypes"]
    if dtype == "auto" and known is not None and model.dtype not in known:
        model = model.float()
    return model.to(device)


def check_finite(name: str, weights: dict[str, Any]) -> None:
    """Raises InputError when a floating-point tensor among name -> tensor holds NaN or infinity."""
    import torch

    for weight, tensor in weights.items():
        # The extremes carry NaN along, and take no second tensor as isfinite does.
        if tensor.is_floating_point() and tensor.numel() and not torch.isfinite(torch.stack(tensor.aminmax())).all():
            raise InputError(f"{name}: {weight} holds NaN or infinity")


def special_token(processor: Any, texts: Iterable[str]) -> str | None:
    """A special token of the tokenizer that stands in a text, such as ``<|image_pad|>`` or ``<|im_end|>``.

    A model takes it for an image, or for the end of what is said, and not for text.
    """
    tokens = [token.content for token in processor.tokenizer.added_tokens_decoder.values() if token.special]
    return next((token for text in texts for token in tokens if token in text), None)


def identity(model: str, revision: str | None = None) -> str:
    """What tells one checkpoint from another: a folder's content digest, or a hub name with its revision."""
    return model_digest(model) if os.path.isdir(model) else f"{model}@{revision or 'main'}"


def revision_of(model: str, revision: str | None = None) -> str | None:
    """The commit of a Hub model, read from its configuration alone; None for a folder. Raises InputError."""
    return None if os.path.isdir(model) else getattr(load_config(model, revision), "_commit_hash", None)


def load_config(model: str, revision: str | None = None) -> Any:
    """The configuration of a checkpoint. Raises InputError."""
    from transformers import AutoConfig

    with _reading(model, _JSON):
        return AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=False)


def _check_processor(model: str, processor: Any) -> None:
    """Raises InputError unless a question with one small photo comes through as one, in numbers."""
    import torch
    from PIL import Image

    with _reading(model):
        text = processor.apply_chat_template(_PROBE, add_generation_prompt=True)
        if text.count("Look.") != 1 or text.count("So?") != 1:
            raise InputError(f"{model}: its chat template does not render a question once")
        inputs = processor(text=[text], images=[[Image.new("RGB", (64, 64), "grey")]], **AS_TENSORS)
        if not torch.isfinite(inputs["pixel_values"]).all():
            raise InputError(f"{model}: its image processor turns a photo into NaN or infinity")


@contextmanager
def _reading(model: str, files: Iterable[str] = ()) -> Iterator[None]:
    """One line for whatever a broken or hostile checkpoint, of which JSON ``files`` are read, provokes in libraries."""
    if not os.path.exists(model) and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise InputError(f"{model}: no such model folder{_neighbour(model)}")  # and no name that the Hub could have
    limit_patience()
    try:
        _check_json(Path(model), files)
        yield
    except InputError:
        raise
    except Exception as error:  # whatever it is: templates raise what they like, tokenizers bare exceptions
        near = "" if os.path.exists(model) else _neighbour(model)
        there = f"; there is no folder {model} here{near}" if near or Path(model).parent.is_dir() else ""
        raise InputError(f"{model}: cannot be loaded as a model ({reason(error)}){there}") from error


def _neighbour(model: str) -> str:
    """The folder that a mistyped one likely means."""
    above = Path(model).parent
    folders = [path.name for path in above.iterdir() if path.is_dir()] if above.is_dir() else []
    return suggestion(Path(model).name, folders, "" if above == Path() else f"{above}/")


def _check_caps(folder: Path) -> None:
    """Raises InputError where the size of photos stands in a file that is not read, beside the one that is."""
    read, unread = folder / "processor_config.json", folder / "preprocessor_config.json"
    if not (read.is_file() and unread.is_file()):
        return
    settings = inside(read_object(read), "image_processor")
    for name, value in read_object(unread).items():
        if settings and name in ("size", "min_pixels", "max_pixels") and value not in (None, settings.get(name)):
            raise InputError.at(unread, f"is not read: {read.name} says otherwise; write it there", field=name)


def _check_json(folder: Path, names: Iterable[str]) -> None:
    for path in (folder / f"{name}.json" for name in names):
        if path.is_file():
            try:
                content = json.loads(path.read_bytes())
            except (ValueError, RecursionError) as error:
                raise InputError.at(path, f"is not valid JSON ({first_line(error)})") from error
            if not isinstance(content, dict):
                raise InputError.at(path, "is not a JSON object")


def first_line(error: Exception) -> str:
    """The first line of what a library says, for a message of one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
