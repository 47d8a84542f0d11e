"""Labels and judges made up from seeded noise, and their folders as ``cprt eval`` leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cprt.metrics.severity import paired_differences
from cprt.provenance import write_run
from cprt.records import Label, Prediction, write_json, write_jsonl
from cprt.scoring import severity
from cprt.taxonomy import Taxonomy
from eval.measures import measure

TAXONOMY = Taxonomy.default()


def make_labels(count: int, seed: int = 0) -> list[Label]:
    rng = np.random.default_rng(seed)
    labels = []
    for number in range(count):
        counts = [
            int(rng.binomial(size, share)) for size, share in zip(TAXONOMY.sizes, (0.1, 0.1, 0.3, 0.4), strict=True)
        ]
        found = severity(counts)
        labels.append(
            Label(f"photo_{number:04d}", f"images/photo_{number:04d}.jpg", None, found.level, found.score, None)
        )
    return labels


def judge(
    labels: list[Label], noise: float, seed: int = 1, lost: float = 0.0, prompt: str = "taxonomy"
) -> list[Prediction]:
    """Scores are the truth with noise; a share of ``lost`` is refused."""
    rng = np.random.default_rng(seed)
    rows = []
    for label in labels:
        score = round(float(np.clip(label.score + rng.normal(0, noise), 0, 1)), 3)
        if rng.random() < lost:
            rows.append(Prediction(label.id, "model", prompt, "refused", text="I cannot assess this."))
        else:
            rows.append(Prediction(label.id, "model", prompt, "ok", text=f'{{"score": {score}}}', score=score))
    return rows


def paired_difference(truth: Any, first: Any, second: Any, *more: Any, **drawn: Any) -> dict[str, dict[str, Any]]:
    """``paired_differences`` of one pair of scores; ``more``: levels, and perhaps a taxonomy."""
    pair, levels, *taxonomy = ("first", "second"), *more
    judges = {"first": first, "second": second}
    return paired_differences(truth, judges, levels, [pair], *taxonomy, **drawn)[pair]


def write_folder(
    folder: Path, labels: list[Label], predictions: list[Prediction], adapter: str | None = None, **facts: Any
) -> Path:
    """``folder`` with predictions, metrics and run record; labels.jsonl lies beside it."""
    file = folder.parent / "labels.jsonl"
    if not file.exists():
        write_jsonl(file, labels)
    write_jsonl(folder / "predictions.jsonl", predictions)
    write_json(folder / "metrics.json", measure(labels, predictions, TAXONOMY, str(folder), resamples=100))
    config = {"judge": {"adapter": adapter} if adapter else {}}
    made = {
        "taxonomy": TAXONOMY.digest,
        "prompt": {"name": "taxonomy", "target": "score"},
        "model": "of the base",
        "adapter": "of the adapter" if adapter else None,
    }
    write_run("cprt eval", folder, config, {"labels": file}, **{**made, **facts})
    return folder
