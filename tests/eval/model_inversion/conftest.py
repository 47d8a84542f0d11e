"""A small benchmark, made once by the demo's own code, for all tests of model inversion that need one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eval.model_inversion.demo.bench import Settings

SETTINGS = Settings(
    classes=6,
    views=16,
    clean=5,
    epochs=12,
    steps=25,
    judge_people=48,
    judge_views=6,
    judge_epochs=10,
    attacks={"Faithful": (3, 1, 1, 1), "Adversarial": (1, 3, 1, 1)},
)


@dataclass(frozen=True)
class Bench:
    """What the demo left in ``out``, and the summary that it returned."""

    out: Path
    settings: Settings
    summary: dict[str, Any]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The demo with smaller settings."""
    from eval.model_inversion.demo.run import run_demo

    out = tmp_path_factory.mktemp("demo_mi")
    return Bench(out, SETTINGS, run_demo(out, SETTINGS))
