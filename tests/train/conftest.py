"""What the tests of published adapters share."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, serving
from publishing import BASE, REPO, TOKEN

from cprt.config import run
from train.publish.run import main

Said = tuple[int, str, list[str]]  # exit status, stdout, lines of ours on stderr
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="session")
def trained(demo, root, tmp_path_factory) -> Path:
    """The output folder of two steps of ``train/sft.py`` with a checkpoint of each, and what else may lie there."""
    import train.sft

    output = tmp_path_factory.mktemp("trained") / "adapter"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(
            sys,
            "argv",
            [
                "train/sft.py",
                "--config",
                "configs/sft/demo.yaml",
                "--pairs",
                str(demo.pairs),
                "--images",
                str(demo.images),
                "--output_dir",
                str(output),
                "--max_steps",
                "2",
                "--eval_strategy",
                "no",
                "--learning_rate",
                "5e-3",
                "--warmup_steps",
                "0",
                "--logging_steps",
                "1",
                "--save_strategy",
                "steps",
                "--save_steps",
                "1",
            ],
        )
        train.sft.main()
    (output / "training_args.bin").write_bytes(b"a pickle")
    (output / "events.log").write_text("a log")
    (output / "wandb").mkdir()
    (output / "wandb" / "config.yaml").write_text("a: b")
    (output / "photo.jpg").write_bytes(b"a photo")
    return output


@pytest.fixture
def edit_json() -> Callable[[Path, Edit], None]:
    """Change a JSON file in place."""

    def edit(path: Path, change: Edit) -> None:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content, indent=2))

    return edit


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    """A Hub that the client library in this process may speak to."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    with serving() as server:
        yield server


@pytest.fixture
def publish(hub, capsys) -> Callable[..., Said]:
    """The command as its last line runs it, with the test's Hub."""

    def start(adapter: Path, *options: str, repo: str = REPO, base: str | None = BASE) -> Said:
        capsys.readouterr()
        words = ["--adapter", str(adapter), "--repo", repo, "--endpoint", hub.url, "--data", "drawings", *options]
        words += ["--base_model", base] if base else []
        with pytest.raises(SystemExit) as exit:
            run(lambda: main(words), "cprt publish")
        out, err = capsys.readouterr()
        assert TOKEN not in out + err and "Traceback" not in err
        return exit.value.code, out, [line for line in err.splitlines() if line.startswith("cprt publish: ")]

    return start


@pytest.fixture
def copy(trained, tmp_path) -> Path:
    """A copy of the trained adapter to spoil."""
    return Path(shutil.copytree(trained, tmp_path / "adapter"))
