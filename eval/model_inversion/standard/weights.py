"""Networks with random weights, and weights read as plain tensors: nothing in a file is run, nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cprt.errors import InputError
from cprt.models.checkpoint import first_line
from eval.model_inversion.standard.spec import ClassifierSpec

if TYPE_CHECKING:
    from torch import nn

# Auxiliary heads: arguments of the architectures that have one, and how their tensors are called.
_WITHOUT_HEAD = {"inception_v3": ("aux_logits", "init_weights"), "googlenet": ("aux_logits", "init_weights")}
_HEADS = ("AuxLogits.", "aux1.", "aux2.")


def load_network(spec: ClassifierSpec, where: str) -> nn.Module:
    """The architecture that ``spec`` names with the weights that it names. Raises InputError where they do not fit."""
    state, model = _read_state(spec), build(spec, where)
    _load(model, state, spec)
    return model


def build(spec: ClassifierSpec, where: str) -> nn.Module:
    """The architecture with random weights. An auxiliary head, which only training has a use for, is left out."""
    if spec.library == "reference":
        from eval.model_inversion.standard.reference import ARCHITECTURES

        if spec.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise InputError.at(where, f"{spec.architecture!r} is not one of {known}", field="architecture")
        return ARCHITECTURES[spec.architecture](spec.num_classes)
    try:
        if spec.library == "timm":
            import timm

            name, classes = str(spec.architecture), spec.num_classes
            return timm.create_model(name, pretrained=False, num_classes=classes, **spec.options)
        from torchvision.models import get_model

        options = dict.fromkeys(_WITHOUT_HEAD.get(str(spec.architecture), ()), False) | spec.options
        return get_model(spec.architecture, weights=None, num_classes=spec.num_classes, **options)
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError) as error:
        what = f"{spec.library} cannot build {spec.architecture!r} ({first_line(error)})"
        raise InputError.at(where, what, field="architecture") from error


def load_body(model: nn.Module, spec: ClassifierSpec) -> None:
    """All weights but those of the last layer, which may be of other classes. Raises InputError."""
    wanted, state = model.state_dict(), _read_state(spec)
    fresh = {name for name, tensor in wanted.items() if spec.num_classes in tensor.shape and name in state}
    fresh = {name for name in fresh if state[name].shape != wanted[name].shape}
    _load(model, state | {name: wanted[name] for name in fresh}, spec)


def _read_state(spec: ClassifierSpec) -> dict[str, Any]:
    """Name -> tensor. A pickle is read by torch's own restricted reader, which runs no code that the file brings."""
    import torch

    path = Path(spec.weights)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # whatever a broken or hostile file provokes: none of it is loaded
        how = "files that hold other objects are not loaded; save model.state_dict() as safetensors"
        raise InputError.at(path, f"is not a plain state dict ({how})") from error
    if spec.key is not None:
        if not isinstance(state, dict) or spec.key not in state:
            raise InputError.at(path, f"has no entry {spec.key!r}", field="key")
        state = state[spec.key]
    if not isinstance(state, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        entries = ", ".join(map(str, list(state)[:5])) if isinstance(state, dict) else type(state).__name__
        raise InputError.at(path, f"is not a dictionary of tensors alone; key says which entry is (it has {entries})")
    return {str(name).removeprefix(spec.prefix): tensor for name, tensor in state.items()}


def _load(model: nn.Module, state: dict[str, Any], spec: ClassifierSpec) -> None:
    if not any(name.startswith(_HEADS) for name in model.state_dict()):
        state = {name: tensor for name, tensor in state.items() if not name.startswith(_HEADS)}
    try:
        found = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # shapes
        fault = str(error).splitlines()[1].strip()
        what = f"does not fit {spec.architecture} with {spec.num_classes} classes ({fault})"
        raise InputError.at(spec.weights, what) from error
    into = f"{spec.architecture} of {spec.library} has no place for"
    for problem, names in (("the file lacks", found.missing_keys), (into, found.unexpected_keys)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError.at(spec.weights, f"{problem} {min(names)}{more} (see options, key and prefix)")
