"""``configs/eval/table6.yaml`` is the paper's Table 6: every model and prompt, and each row can be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback import Misbehaving

from cprt.config import parse
from cprt.taxonomy import Taxonomy
from eval.run import EvalArguments, find_judges, main

# Table 6: the models under each of three prompts, then the tuned ones, in its order.
PROMPTED = {
    "Gemini 3 Flash": "gemini-3-flash",
    "GPT-5.2": "gpt-5.2",
    "Llama 4 Maverick": "llama-4-maverick",
    "Llama 3.2-VL (11B)": "llama-3.2-vl-11b",
    "Qwen3-VL (32B)": "qwen3-vl-32b",
    "Qwen3-VL (8B)": "qwen3-vl-8b",
    "MiniCPM-V (8B)": "minicpm-v-8b",
    "Pixtral (12B)": "pixtral-12b",
}
TUNED = {
    "Qwen3-VL (8B) (80 steps)": "sft-qwen3-vl-8b-80-steps",
    "Qwen3-VL (4B) (80 steps)": "sft-qwen3-vl-4b-80-steps",
    "Qwen3-VL (2B) (80 steps)": "sft-qwen3-vl-2b-80-steps",
    "Llama 3.2 (160 steps)": "sft-llama-3.2-160-steps",
    "Llama 3.2 (80 steps)": "sft-llama-3.2-80-steps",
}


def test_every_row_of_the_table_is_there_once_and_decoded_as_in_the_paper(root: Path):
    (args,) = parse(EvalArguments, ["--config", str(root / "configs/eval/table6.yaml")])
    found = find_judges(args, Taxonomy.default())
    prompts = ("zero_shot", "intuition", "taxonomy")
    expected = [f"{name}-{prompt}" for name in PROMPTED.values() for prompt in prompts]
    expected += [f"{name}-taxonomy" for name in TUNED.values()]
    assert sorted(judge.name for judge in found) == sorted(expected) and len(expected) == 29
    hosted = {"gpt-5.2", "gemini-3-flash", "qwen3-vl-32b", "llama-4-maverick"}  # paper 4.3
    for judge in found:
        by_default = judge.spec.name in hosted
        assert judge.spec.temperature == (None if by_default else 0) and judge.prompt.target == "score"
        assert judge.spec.max_new_tokens == (None if by_default else 256)
        assert (judge.spec.api_key_env is not None) is by_default
        assert (judge.spec.adapter is not None) is judge.name.startswith("sft-")
        assert judge.spec.max_pixels is None if judge.spec.adapter else True
        assert not args.allow_remote


@pytest.mark.slow
def test_what_is_asked_through_endpoints_runs_with_one_command(root: Path, demo: Any, tmp_path: Path, monkeypatch):
    content = yaml.safe_load((root / "configs/eval/table6.yaml").read_text())
    content |= {"labels": str(demo.test_labels), "images": str(demo.images), "out": str(tmp_path / "out"), "limit": 2}
    remote = [row for row in content["models"] if "base_url" in row]
    with Misbehaving(lambda body: ('{"score": 0.712}', "stop")) as server:
        for row in remote:
            row["base_url"] = server.url
            if "api_key_env" in row:
                monkeypatch.setenv(row["api_key_env"], "sk-none")
        (tmp_path / "table6.yaml").write_text(yaml.safe_dump(content))
        main(["--config", str(tmp_path / "table6.yaml"), "--only", *(row["name"] for row in remote)])
    assert len(server.bodies) == 6 * 3 * 2
    assert all(("temperature" in body) is ("max_tokens" in body) for body in server.bodies)
    results = sorted((tmp_path / "out").glob("*/metrics.json"))
    assert len(results) == 18 and all(json.loads(path.read_text())["coverage"] == 1 for path in results)
