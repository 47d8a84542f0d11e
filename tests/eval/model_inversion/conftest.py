"""A small benchmark, made once by the demo's own code, for all tests of model inversion that need one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from collection import configure, describe, make
from judging import judge
from loopback import Misbehaving

from eval.model_inversion.demo.bench import Settings


@dataclass(frozen=True)
class Bench:
    """What the demo left in ``out``."""

    out: Path
    settings: Settings


@pytest.fixture(scope="session")
def settings() -> Settings:
    """How much of everything: enough for the demo's claims to hold."""
    return Settings(
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


@pytest.fixture(scope="session")
def bench(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The demo's collection, networks and their configurations, with smaller settings; nobody has looked at it yet."""
    from eval.model_inversion.demo.bench import make
    from eval.model_inversion.demo.run import write_classifiers

    out = tmp_path_factory.mktemp("demo_mi")
    make(out, settings)
    write_classifiers(out, settings)
    return Bench(out, settings)


@pytest.fixture(scope="session")
def setups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small collection, described; nothing is written to it."""
    folder = tmp_path_factory.mktemp("collection")
    return describe(folder, make(folder))


@pytest.fixture(scope="session")
def undisturbed(setups: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two judges say when nothing goes wrong: 12 reconstructions and 12 controls."""
    from eval.model_inversion.judge.run import main

    folder = tmp_path_factory.mktemp("undisturbed")
    with Misbehaving(judge) as server:
        main([*configure(folder, setups, server.url, "one", "two"), "--controls", "6"])
        assert max(server.answered.values()) == 2  # once for each judge
    return folder / "out"
