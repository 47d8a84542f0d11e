"""Names and files that the tests of ``cprt publish`` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cprt.prompts import build
from cprt.provenance import model_digest

REPO, BASE = "some-lab/judge", "some-lab/tiny-base"
TOKEN = "hf_" + "aB3" * 11
FILES = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "chat_template.jinja",
    "processor_config.json",
    "run.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


def metrics_of(adapter: Path, folder: Path, **changes: Any) -> Path:
    """metrics.json and run.json as ``cprt eval`` leaves them."""
    names = ("pearson", "spearman", "mae", "bias", "level_accuracy", "inter_level_accuracy", "intra_level_accuracy")
    figures = {name: 0.123456789012345 + number / 10 for number, name in enumerate(names)} | {"coverage": 0.9375}
    metrics = {
        "n": 16,
        **figures,
        "ci": {name: [value - 0.05, value + 0.05] for name, value in figures.items()},
        "status_counts": {"ok": 15, "unparsed": 1, "refused": 0, "error": 0, "missing": 0},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps(metrics | changes))
    prompt = build("taxonomy", "attributes").identity()
    (folder / "run.json").write_text(json.dumps({"adapter": model_digest(adapter), "prompt": prompt}))
    return folder / "metrics.json"
