"""What tests share: where things are, a small prepared demo, and one thread without network."""

from __future__ import annotations

import fcntl
import os
import time

# Before torch is imported anywhere, and handed on to every command that a test starts.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the figures that tests compare are those of a CPU

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]

# The same examples every day, however busy the machine; `make soak` draws others each time.
settings.register_profile("everyday", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None)
settings.load_profile("everyday")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no process ends up waiting for them alone."""
    items.sort(key=lambda item: LONGEST_FIRST.get(item.path.name, len(LONGEST_FIRST)))


LONGEST = ("test_demo.py", "test_resume.py", "test_run.py", "test_run_processes.py")
LONGEST_FIRST = {name: place for place, name in enumerate(LONGEST)}


@dataclass(frozen=True)
class Demo:
    """Drawings with labels and pairs, as the commands leave them. ``images`` is the root of all image paths."""

    images: Path
    train_labels: Path
    test_labels: Path
    pairs: Path
    short_pairs: Path  # the same answers to the zero-shot prompt, a seventh as long: for tests that take many steps


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every sleep from here on: patience that a test can count, however slow the machine."""
    seconds: list[float] = []
    sleep = time.sleep

    def record(duration: float) -> None:
        seconds.append(duration)
        sleep(duration)

    monkeypatch.setattr(time, "sleep", record)
    return seconds


@pytest.fixture(scope="session")
def demo_base() -> Path:
    """The tiny Qwen3-VL that ships with the repository."""
    return ROOT / "assets" / "demo_base"


@pytest.fixture(scope="session")
def tiny_mllama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama 3.2 Vision checkpoint."""
    from tiny_mllama import make

    return make(tmp_path_factory.mktemp("tiny_mllama"))


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the tiny checkpoint with the real parts of a family, "qwen" or "llama", made once for all processes."""
    import real_parts

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def checkpoint(family: str) -> Path:
        folder = shared / f"real_{family}"
        with open(shared / f"real_{family}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                real_parts.make(family, shared / f"real_{family}.partial").rename(folder)
        return folder

    return checkpoint


@pytest.fixture(scope="session")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Demo]:
    """Makes a small demo with the commands' own entry points."""
    from cprt.prompts import build
    from cprt.records import Pair, read_pairs, write_jsonl
    from data_prep.demo import data as demo_data
    from data_prep.labels import run as labels
    from data_prep.pairs import run as pairs

    def make(val: int, test: int, size: int, seed: int = 5) -> Demo:
        folder = tmp_path_factory.mktemp("demo")
        data = folder / "data"
        demo_data.main(["--out", str(data), "--val", str(val), "--test", str(test), "--seed", str(seed)])
        for split in ("train", "test"):
            labels.main(
                [
                    "--source",
                    "bench",
                    "--input",
                    str(data / f"cprt_{split}.json"),
                    "--images",
                    str(data),
                    "--out",
                    str(folder / f"{split}.jsonl"),
                ]
            )
        pairs.main(
            [
                "--labels",
                str(folder / "train.jsonl"),
                "--images",
                str(data),
                "--out",
                str(folder / "pairs"),
                "--prompt",
                "taxonomy",
                "--target",
                "attributes",
                "--size",
                str(size),
                "--seed",
                "0",
            ]
        )
        short = build("zero_shot").messages()
        for name in ("train.jsonl", "holdout.jsonl"):
            rows = [
                Pair(pair.id, pair.images, short, pair.completion, pair.level, pair.score)
                for pair in read_pairs(folder / "pairs" / name)
            ]
            write_jsonl(folder / "short_pairs" / name, rows)
        return Demo(data, folder / "train.jsonl", folder / "test.jsonl", folder / "pairs", folder / "short_pairs")

    return make


@pytest.fixture(scope="session")
def demo(prepare: Callable[..., Demo]) -> Demo:
    """48 validation drawings, 32 of them in training pairs, and 16 test drawings."""
    return prepare(val=48, test=16, size=32)


@pytest.fixture(scope="session")
def mixed_demo(prepare: Callable[..., Demo]) -> Demo:
    """As ``demo``, with drawings of five sizes, so that no two neighbours take the same number of image tokens."""
    demo = prepare(val=48, test=16, size=32, seed=6)
    sizes = [(96, 96), (64, 64), (96, 64), (64, 128), (128, 64)]
    for number, path in enumerate(sorted((demo.images / "images").rglob("*.jpg"))):
        with Image.open(path) as image:
            image.resize(sizes[number % len(sizes)]).save(path, quality=92)
    return demo


# --- A browser, for tests of pages -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The driver; what a page saves lands in ``driver.downloads``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", *sandbox):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver: Any = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.downloads = tmp_path_factory.mktemp("downloads")
    saving = {"behavior": "allow", "downloadPath": str(driver.downloads)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", saving)
    yield driver
    driver.quit()


@pytest.fixture
def visit(browser: Any) -> Callable[..., Any]:
    """Open a page as a screen of this width, or a printer, would."""

    def go(page: Path, width: int = 1280, theme: str = "light", media: str = "screen") -> Any:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(page.as_uri())
        return browser

    return go
