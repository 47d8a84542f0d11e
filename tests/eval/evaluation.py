"""How the tests run ``cprt eval``: on the tiny model, on served judges whose answers follow from the photo."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml
from loopback import REFUSAL, identity

from cprt.records import read_predictions

REPORT = ("run.json", "report.html", "scores.png", "confusion.png", "calibration.png")  # one for all judges of a run


def options(demo: Any, base: Path, out: Path, *more: str) -> list[str]:
    return [
        "--model",
        str(base),
        "--labels",
        str(demo.test_labels),
        "--images",
        str(demo.images),
        "--out",
        str(out),
        "--dtype",
        "float32",
        "--max_new_tokens",
        "24",
        "--prompt",
        "zero_shot",
        *more,
    ]


def texts(out: Path) -> dict[str, str | None]:
    return {prediction.id: prediction.text for prediction in read_predictions(out / "predictions.jsonl")}


def judge_like(body: dict[str, Any]) -> tuple[str, str]:
    """A served judge: its score follows from model, prompt and photo; every fifth photo is refused."""
    digest = hashlib.sha256(f"{identity(body)} {body['model']}".encode()).digest()
    if digest[0] % 5 == 0:
        return REFUSAL, "stop"
    return json.dumps({"score": round(digest[1] / 255, 3)}), "stop"


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def with_models(demo: Any, folder: Path, models: list[dict[str, Any]], *more: str, **options: Any) -> list[str]:
    """Arguments for a YAML with ``models``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "models": models,
        "labels": str(demo.test_labels),
        "images": str(demo.images),
        "out": str(folder / "out"),
        **options,
    }
    (folder / "eval.yaml").write_text(yaml.safe_dump(content))
    return ["--config", str(folder / "eval.yaml"), *more]


def served(url: str, name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": f"model-{name}", "base_url": url, **more}
