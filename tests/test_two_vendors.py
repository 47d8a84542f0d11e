"""An endpoint and its key belong together: whatever is asked, no vendor ever sees the other's key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import yaml
from loopback import Misbehaving
from PIL import Image

from cprt.cli import COMMANDS as COMMANDS_OF_CPRT
from cprt.errors import InputError
from data_prep import annotate
from eval import run as evaluation
from eval.counterfactual import run as counterfactual
from eval.model_inversion.judge import run as judge

KEYS = {"one": "sk-first-vendor-51x", "two": "sk-second-vendor-94q"}
Vendors = dict[str, Misbehaving]


def says(body: dict[str, Any]) -> tuple[str, str]:
    """Something for every command."""
    text = json.dumps(body["messages"])
    return ("Yes." if "yes or no" in text else '{"score": 0.9}'), "stop"


@pytest.fixture
def vendors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendors]:
    for name, key in KEYS.items():
        monkeypatch.setenv(f"KEY_{name.upper()}", key)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody-here")
    with Misbehaving(says) as one, Misbehaving(says) as two:
        yield {"one": one, "two": two}


def models(vendors: Vendors) -> list[dict[str, Any]]:
    return [
        {"name": name, "model": f"model-{name}", "base_url": vendor.url, "api_key_env": f"KEY_{name.upper()}"}
        for name, vendor in vendors.items()
    ]


def configured(folder: Path, **content: Any) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "c.yaml").write_text(yaml.safe_dump({"out": str(folder / "out"), **content}))
    return ["--config", str(folder / "c.yaml")]


def evaluate(vendors: Vendors, demo: Any, folder: Path, **more: Any) -> None:
    data = {"labels": str(demo.test_labels), "images": str(demo.images)}
    evaluation.main(configured(folder, models=models(vendors), **data, **more))


def annotate_photos(vendors: Vendors, demo: Any, folder: Path) -> None:
    annotate.main(configured(folder, annotators=models(vendors), images=str(demo.images), limit=2))


def judge_inversions(vendors: Vendors, demo: Any, folder: Path) -> None:
    base = folder / "root" / "AttackSamples"
    for number in range(2):
        names = [f"CelebA/private-data/{number}/{image}.png" for image in range(3)]
        names += [f"CelebA/KEDMI/FFHQ/FaceNet64/all-images/{number}/ID=0_T={number}_P={number}_CT=0.8.png"]
        for place, name in enumerate(names):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng([number, place]).integers(0, 256, (40, 40, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(base / name)
    (folder / "s.yaml").write_text(
        yaml.safe_dump({"root": str(folder / "root"), "setups": {"CelebA": {"subject": "person"}}})
    )
    judge.main(configured(folder, models=models(vendors), setups=str(folder / "s.yaml"), n=1, controls=2))


def repeat_without_faces(vendors: Vendors, demo: Any, folder: Path) -> None:
    runs = [str(folder / "eval" / "out" / name) for name in vendors]
    evaluate(vendors, demo, folder / "eval", prompt=["zero_shot"])
    endpoints = [
        {"run": row["name"], "base_url": row["base_url"], "api_key_env": row["api_key_env"]} for row in models(vendors)
    ]
    data = {"labels": str(demo.test_labels), "images": str(demo.images), "confidence": 1.0, "size": 2}
    counterfactual.main(configured(folder, runs=runs, endpoints=endpoints, **data))
    with pytest.raises(
        InputError, match=r"different keys \(KEY_ONE, KEY_TWO\); name the address and key of each in end"
    ):
        counterfactual.main(configured(folder / "all", runs=runs, base_url=vendors["one"].url, **data))
    # Chosen by one vendor's run, asked of the other's.
    before = len(vendors["one"].headers), len(vendors["two"].headers)
    apart = {"select_by": runs[:1], "ask": runs[1:], "endpoints": endpoints[1:]}
    counterfactual.main(configured(folder / "apart", **apart, **data))
    assert len(vendors["one"].headers) == before[0] and len(vendors["two"].headers) > before[1]
    # One run, another server, no word of a key: none is sent.
    before = len(vendors["two"].headers)
    counterfactual.main(configured(folder / "moved", runs=runs[:1], base_url=vendors["two"].url, **data))
    moved = vendors["two"].headers[before:]
    assert moved and not any("authorization" in head.lower() for head in moved)


COMMANDS = [evaluate, annotate_photos, judge_inversions, repeat_without_faces]
OF = {
    "eval": evaluate,
    "annotate": annotate_photos,
    "mi": judge_inversions,
    "counterfactual": repeat_without_faces,
}


def test_every_command_that_takes_several_endpoints_is_among_them():
    """Whatever has a list of mappings as an option may name several models, each with an address and a key."""
    found = {
        name
        for name, module, _ in COMMANDS_OF_CPRT
        for kind in vars(import_module(module)).values()
        if is_dataclass(kind) and isinstance(kind, type)
        for field in fields(kind)
        if "help" in field.metadata and get_type_hints(kind)[field.name] == list[dict[str, Any]]
    }
    assert found - {"ablate"} == set(OF)  # it takes variants of a recipe, and asks nobody itself
    assert set(OF.values()) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_vendor_sees_its_own_key_alone(
    command: Callable[..., None], vendors: Vendors, demo: Any, tmp_path: Path
) -> None:
    command(vendors, demo, tmp_path)
    for name, vendor in vendors.items():
        seen = "".join(vendor.headers) + json.dumps(vendor.bodies)
        assert f"bearer {KEYS[name]}" in seen.lower()
        assert not any(key in seen for other, key in KEYS.items() if other != name) and "sk-of-nobody" not in seen
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or not any(key.encode() in path.read_bytes() for key in KEYS.values())


@pytest.mark.parametrize("command", COMMANDS[:3])
def test_a_vendor_that_sends_on_gets_nothing_sent_on(
    command: Callable[..., None], vendors: Vendors, demo: Any, tmp_path: Path
) -> None:
    """Neither the key nor a photo follows a redirect, to another port or to another host."""

    async def redirect(body: Any, writer: Any) -> None:
        place = f"http://localhost:{vendors['two'].port}/v1/chat/completions".encode()
        writer.write(b"HTTP/1.1 308 X\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % place)

    vendors["one"]._respond = redirect  # type: ignore[method-assign]
    with suppress(InputError):  # where nothing else was asked
        command(vendors, demo, tmp_path)
    assert vendors["one"].bodies and KEYS["one"] not in "".join(vendors["two"].headers)
    asked = {body["model"] for body in vendors["two"].bodies}
    assert asked <= {"model-two"}
