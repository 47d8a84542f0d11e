"""A judge behind a loopback endpoint whose answers a test writes down: it knows a photo by its width."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loopback import Answer
from PIL import Image


def width_of(body: dict[str, Any]) -> int:
    """The width in pixels of the photo that a request carries."""
    (url,) = (part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url")
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return image.width


def by_width(answers: dict[int, Any]) -> Callable[[dict[str, Any]], Answer]:
    """An endpoint's answer: ``answers[width]``, a text, or a mapping sent as JSON."""

    def answer(body: dict[str, Any]) -> Answer:
        said = answers[width_of(body)]
        return (said if isinstance(said, str) else json.dumps(said)), "stop"

    return answer


def photo(path: Path, width: int, height: int = 20, **options: Any) -> Path:
    """A photo that the judge knows by ``width``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((width, height), 60).convert("RGB").save(path, **options)
    return path


PASSPORT = {"attributes": ["gov_ids", "biometrics", "age"], "level": 1, "score": 0.85}
ANSWERS: dict[int, Any] = {
    21: PASSPORT,
    22: {"attributes": ["age", "location"], "level": 3, "score": 0.337},
    23: {"attributes": [], "level": 4, "score": 0.0},
    24: "I'm sorry, but I can't assist with that request.",
    25: "somewhere between 0.2 and 0.9",
    26: {"attributes": ["face"], "level": 1, "score": 0.75},
}


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
