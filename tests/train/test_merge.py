"""``cprt merge``: one model in place of base and adapter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from cprt.config import run
from cprt.images import load_image
from cprt.models.local import LocalModel, load_model, load_processor
from cprt.prompts import build
from cprt.provenance import model_digest
from train.adapter import LANGUAGE_MODEL_PROJECTIONS
from train.merge import main


@pytest.fixture
def merge(capsys):
    def start(adapter: Path, out: Path, *options: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit:
            run(lambda: main(["--adapter", str(adapter), "--out", str(out), *options]), "cprt merge")
        said, err = capsys.readouterr()
        return exit.value.code, said, err.strip().splitlines()[-1] if exit.value.code else ""

    return start


def test_weights_and_answers_are_those_of_base_and_adapter(
    merge, trained, demo_base, demo, tmp_path, monkeypatch, root
):
    monkeypatch.chdir(root)
    out = tmp_path / "merged"
    assert merge(trained, out)[0] == 0
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode  # others may read it
    weights, base = load_file(out / "model.safetensors"), load_file(demo_base / "model.safetensors")
    adapter = load_file(trained / "adapter_model.safetensors")
    changed = 0
    for name, tensor in base.items():
        a = adapter.get(f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight")
        assert weights[name].dtype == torch.bfloat16
        if a is None:
            assert torch.equal(weights[name], tensor.bfloat16())
            continue
        b = adapter[f"base_model.model.{name.removesuffix('.weight')}.lora_B.weight"]
        expected = tensor.float() + 3 * (b @ a)  # alpha 192 over rank 64
        torch.testing.assert_close(weights[name].float(), expected, rtol=2**-6, atol=2**-8)
        changed += 1
    assert changed == len(adapter) / 2
    for name in ("chat_template.jinja", "processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (trained / name).read_bytes()
    rows = [
        (build("taxonomy", "attributes").messages(), [load_image(path)])
        for path in sorted((demo.images / "images").rglob("*.jpg"))[:4]
    ]
    said = [
        [answer.text for answer in LocalModel(str(model), adapter, dtype="float32").generate(rows, 12)]
        for model, adapter in ((out, None), (demo_base, str(trained)), (demo_base, None))
    ]
    assert said[0] == said[1] != said[2]
    record = json.loads((out / "run.json").read_text())
    assert (record["base_model"], record["adapter"]) == ("assets/demo_base", model_digest(trained))
    assert 0 < record["check"]["difference"] < record["check"]["tolerance"] == 0.05


def test_llama_3_2_vision(merge, tiny_mllama, tmp_path):
    """The family that needs it. Its gates are 0 in a random model; the language model is enough to tell."""
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=LANGUAGE_MODEL_PROJECTIONS, task_type="CAUSAL_LM")
    model = get_peft_model(load_model(str(tiny_mllama), dtype="float32"), config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(tmp_path / "adapter")
    load_processor(str(tiny_mllama)).save_pretrained(tmp_path / "adapter")
    status, said, _ = merge(tmp_path / "adapter", tmp_path / "merged")
    assert status == 0 and "read back" in said
    assert (tmp_path / "merged" / "model.safetensors").is_file()


def test_a_folder_that_is_there_is_not_touched(merge, trained, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("out", "link"):
        status, _, error = merge(trained, tmp_path / name)
        assert (
            status == 2
            and error == f"cprt merge: error: out: {tmp_path / name} is there already; choose another folder"
        )
    assert not list((tmp_path / "out").iterdir())


def test_a_base_in_another_folder_is_noted(merge, copy, demo_base, edit_json, tmp_path):
    """Files beside its weights may differ; whether they are the same weights nobody can tell from here."""
    for digest, noted in (("0" * 64, True), (model_digest(demo_base), False)):
        edit_json(copy / "run.json", lambda record, digest=digest: record.update(base_digest=digest))
        status, said, _ = merge(copy, tmp_path / f"out{noted}", "--base_model", str(demo_base))
        assert status == 0 and ("was trained on another base" in said) == noted


def test_what_is_no_adapter_or_not_of_this_base(merge, trained, demo_base, copy, edit_json, tmp_path):
    assert "is not an adapter folder" in merge(demo_base, tmp_path / "out")[2]
    edit_json(copy / "run.json", lambda record: record.update(base_digest="org/base@" + "a" * 40))
    status, _, error = merge(copy, tmp_path / "out", "--base_model", "org/base", "--base_revision", "b" * 40)
    assert status == 2 and error.endswith(f"is not the commit that the run recorded ({'a' * 40})")
    assert not list(tmp_path.glob("*out*")) + list(tmp_path.glob(".*"))


def test_an_adapter_too_faint_for_bfloat16_is_refused(merge, copy, demo_base, edit_json, tmp_path):
    """Its change is less than what rounding does: what is left would be another model. Nothing stays behind."""
    edit_json(copy / "adapter_config.json", lambda config: config.update(lora_alpha=0.2))
    status, _, error = merge(copy, tmp_path / "out", "--base_model", str(demo_base))
    assert status == 2 and "it gives other logits: they differ by" in error
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))
