"""Whether an endpoint serves the adapter that it is said to serve: one photo is asked about here too."""

from __future__ import annotations

from pathlib import Path

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models.adapter import base_of
from cprt.models.ask import Model, ask
from cprt.models.local import LocalModel
from cprt.models.outcome import find_outcomes
from cprt.models.response_cache import ResponseCache
from eval.judges import Judge


def check_served(judge: Judge, model: Model, photo: Path, cache: ResponseCache) -> None:
    """Ask the endpoint and, on its own base, the adapter in the folder about one photo; the endpoint's answer is kept.

    Raises InputError where their answers differ, or there is none: another model is served, or another template or
    photo size than the adapter was trained with.
    """
    spec, request = judge.spec, judge.request(photo)
    assert spec.adapter is not None
    base, commit = base_of(spec.adapter)
    key = spec.key(request)
    ask(model, [request], cache)
    there = find_outcomes([key], cache, lambda text: ("ok", text), spec)[key]
    if there.text is None:
        raise InputError(f"check_served: {spec.name}: no answer about {photo} ({there.error})")
    local = LocalModel(base, spec.adapter, revision=commit)
    here = local.generate([(request.messages, [load_image(photo)])], spec.max_new_tokens or 256)[0].text or ""
    if here != there.text:
        raise InputError(
            f"check_served: about {photo} the endpoint says {there.text[:80]!r}, {spec.adapter} on {base} here "
            f"{here[:80]!r}: is it this adapter, with the pixel cap and template of its folder (see its card)?"
        )
    print(f"about {photo.name} the endpoint says what {spec.adapter} says here: {here[:80]}")
