"""An adapter behind vLLM, served as its card says: the answers are those of the same adapter here."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest

from cprt.prompts import build
from cprt.records import read_predictions, write_json
from cprt.taxonomy import Taxonomy
from eval.run import main
from train.publish.card import local_card

pytestmark = pytest.mark.vllm
VLLM = os.environ.get("VLLM_BIN")  # the folder of its executables; `make test-vllm` sets it
FEW = "--enforce-eager --dtype float32 --max-model-len 2048"  # quick to start, and as precise as what it is held to


@pytest.fixture(scope="module")
def adapter(real, tmp_path_factory) -> Path:
    """A random adapter on the tiny Qwen3-VL with its real vocabulary, as training leaves one behind."""
    import torch
    from peft import LoraConfig, get_peft_model

    from cprt.models.checkpoint import identity, load_model, load_processor
    from train.adapter import LANGUAGE_MODEL_PROJECTIONS

    base, folder = str(real("qwen")), tmp_path_factory.mktemp("served") / "judge"
    config = LoraConfig(r=16, lora_alpha=16, target_modules=LANGUAGE_MODEL_PROJECTIONS, task_type="CAUSAL_LM")
    torch.manual_seed(0)
    model = get_peft_model(load_model(base, dtype="float32"), config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.02)
    model.save_pretrained(folder)
    load_processor(base, max_pixels=65536).save_pretrained(folder)
    prompt = build("taxonomy").identity()
    write_json(folder / "run.json", {"prompt": prompt, "base_digest": identity(base), "base_model": base})
    return folder


@pytest.fixture(scope="module", params=("one engine", "two engines", "two machines"))
def served(request, adapter, tmp_path_factory) -> Iterator[str]:
    """The address of the server that the card's own command starts, with one engine or more (docs/evaluating.md)."""
    assert VLLM, "VLLM_BIN names no folder: run make test-vllm"
    card = local_card(adapter, Taxonomy.default())
    (command,) = re.findall(r"^vllm serve (?:.*\\\n)*.*$", card, re.MULTILINE)
    port, rpc_port = free_port(), free_port()
    words = shlex.split(f"{command.replace(chr(92) + chr(10), ' ')} {FEW}")
    first, others, engines = ["--host", "127.0.0.1", "--port", str(port)], list[str](), 1
    if request.param != "one engine":
        engines, words = 2, [*words, "--data-parallel-size", "2"]
    if request.param == "two machines":
        words += ["--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1"]
        words += ["--data-parallel-rpc-port", str(rpc_port)]
        others = ["--headless", "--data-parallel-start-rank", "1"]
    environment = {"PATH": f"{VLLM}:{os.environ['PATH']}", "HOME": str(tmp_path_factory.mktemp("home"))}
    environment |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    with open(log, "w") as file:
        servers = [
            subprocess.Popen([*words, *more], cwd=adapter.parent, env=environment, stdout=file, stderr=file)
            for more in (first, others)
            if more
        ]
    try:
        url = f"http://127.0.0.1:{port}/v1"
        end = time.monotonic() + 600
        while True:
            gone = any(server.poll() is not None for server in servers)
            assert not gone and time.monotonic() < end, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).close()
                break
            except (URLError, OSError):
                time.sleep(1)
        started = set(re.findall(r"EngineCore_DP\d", log.read_text()))
        assert engines == 1 or len(started) == engines, started
        yield url
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(60)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_it_says_what_the_adapter_says_here(served, adapter, real, demo, tmp_path):
    """Every answer, and expected scores as far as twenty alternatives a token go."""
    data = ["--labels", str(demo.test_labels), "--images", str(demo.images), "--adapter", str(adapter)]
    data += ["--max_new_tokens", "16", "--decoding", "expected"]
    there, here = tmp_path / "there", tmp_path / "here"
    main([*data, "--model", "judge", "--base_url", served, "--check_served", "true", "--out", str(there)])
    main([*data, "--model", str(real("qwen")), "--dtype", "float32", "--out", str(here)])
    answers, ours = (read_predictions(folder / "predictions.jsonl") for folder in (there, here))
    assert [row.text for row in answers] == [row.text for row in ours] and len(ours) == 16
    assert {row.status for row in ours} == {"ok"}
    for row, own in zip(answers, ours, strict=True):
        assert row.expected_score == pytest.approx(own.expected_score, abs=0.02)
        assert row.label_mass <= own.label_mass + 1e-3
