"""What is published, in use: plain PEFT, the card's own code, and ``transformers serve``."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest
import torch
from loopback import transformers_serve
from PIL import Image
from publishing import BASE, REPO

from cprt.images import load_image
from cprt.models.ask import Model
from cprt.models.local import LocalModel
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request
from cprt.prompts import build


def unpack(tree: dict[str, bytes], folder: Path) -> Path:
    """A branch as somebody downloads it."""
    folder.mkdir(parents=True)
    for name, content in tree.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def published(publish, hub, trained, tmp_path) -> Path:
    """What somebody who downloads the repository has."""
    assert publish(trained)[0] == 0
    return unpack(hub.tree(REPO), tmp_path / "published")


@pytest.fixture
def photos(demo) -> list[Path]:
    return sorted((demo.images / "images").rglob("*.jpg"))[:3]


def test_plain_peft_loads_it_with_the_same_result(published, trained, demo_base, photos):
    """Bit for bit the logits of the original adapter, and not those of the base."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    images = [Image.open(path).convert("RGB") for path in photos]
    logits = {}
    for name, folder in (("published", published), ("original", trained), ("base", None)):
        model = AutoModelForImageTextToText.from_pretrained(demo_base, dtype=torch.float32)
        model = (model if folder is None else PeftModel.from_pretrained(model, folder)).eval()
        processor = AutoProcessor.from_pretrained(folder or trained, padding_side="left")
        text = processor.apply_chat_template(build("taxonomy", "attributes").messages(), add_generation_prompt=True)
        batch = processor(text=[text] * 3, images=[[image] for image in images], padding=True, return_tensors="pt")
        with torch.inference_mode():
            logits[name] = model(**batch).logits
    assert torch.equal(logits["published"], logits["original"])
    assert not torch.allclose(logits["published"], logits["base"], atol=0.1)


def test_the_cards_own_code_runs(published, demo_base, photos, tmp_path, monkeypatch):
    """The blocks of the card as they stand, with folders in place of the Hub's names, say what ``cprt`` says."""
    card = (published / "README.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", card, re.DOTALL))
    code = code.replace(f'"{BASE}", "{REPO}"', f'"{demo_base}", "{published}"').replace(
        'dtype="auto"', 'dtype="float32"'
    )
    monkeypatch.chdir(tmp_path)
    said, expected = [], []
    model = LocalModel(str(demo_base), str(published), dtype="float32")
    for path in photos:
        Image.open(path).save("photo.jpg", quality=95)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code.replace("max_new_tokens=256", "max_new_tokens=40"), {})
        said.append(out.getvalue().strip())
        (generation,) = model.generate([(build("taxonomy", "attributes").messages(), [load_image("photo.jpg")])], 40)
        expected.append(generation.text.strip())
    assert said == expected and any(said)


@pytest.mark.slow
def test_transformers_serve_answers_the_same(published, trained, demo_base, photos, tmp_path):
    """One folder with the base's and the published files, served for real, says what the adapter says here."""
    served = Path(shutil.copytree(demo_base, tmp_path / "served"))
    shutil.copytree(published, served, dirs_exist_ok=True)
    messages = build("taxonomy", "attributes").messages()
    common = {"max_new_tokens": 40, "max_pixels": None}
    answers = {}
    with transformers_serve([served], tmp_path) as urls:
        specs = {
            "served": ModelSpec("served", str(served), base_url=urls[served], image_format="png", **common),
            "here": ModelSpec("here", str(demo_base), adapter=str(trained), dtype="float32", **common),
            "base": ModelSpec("base", str(demo_base), dtype="float32", **common),
        }
        for name, spec in specs.items():
            requests = [Request(messages, (path,)) for path in photos]
            with ResponseCache(tmp_path / f"{name}.jsonl") as cache:
                Model(spec).ask(requests, cache, name)
                answers[name] = [cache.rows(spec.key(request))[0]["text"] for request in requests]
    assert answers["served"] == answers["here"] != answers["base"]
