"""What ``cprt publish`` refuses: one line with the reason, exit status 2, and the Hub was never asked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from publishing import BASE, FILES, REPO, TOKEN
from safetensors.torch import load_file, save_file


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--repo", "judge"], "repo: 'judge' is not ORG/NAME"),
        (["--repo", "a/../b"], "repo: 'a/../b' is not ORG/NAME"),
        (["--base_model", "/models/qwen"], "base_model: '/models/qwen' is not ORG/NAME"),
        (["--revision", "refs/pr/1"], "revision: 'refs/pr/1' is not a name"),
        (["--revision", "a..b"], "revision: 'a..b' is not a name"),
        (
            ["--revision", "checkpoint-1", "--checkpoints", "true"],
            "revision: checkpoint-1 is the branch of a checkpoint",
        ),
        (["--paper_row", "gpt"], "paper_row: 'gpt' is not one of auto, none, qwen3_vl_8b"),
        (["--data", "mine"], "argument --data: invalid choice: 'mine'"),
        (["--endpoint", "http://hub.example.org"], "endpoint: must be https://HOST, or http:// on this machine"),
        (["--endpoint", "https://me:pass@hub.example.org"], "endpoint: must be https://HOST"),
        (["--adapter", "nowhere"], "nowhere: no such adapter folder"),
        (["--adapter", "configs"], "configs/adapter_config.json: no such file"),
        (["--metrics", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["--private", "perhaps"], "argument --private: "),
    ],
)
def test_options_that_are_refused(publish, hub, trained, options, reason, monkeypatch, root):
    monkeypatch.chdir(root)
    status, _, errors = publish(trained, *options, base=None if "--base_model" in options else BASE)
    assert status == 2 and len(errors) == 1 and f"cprt publish: error: {reason}" in errors[0], errors
    assert hub.requests == []


def test_a_base_on_this_machine_is_refused_unless_named(publish, hub, copy, edit_json, tmp_path):
    """By its form, by being a folder here, and by what the run recorded of it."""
    config = copy / "adapter_config.json"
    for value in ("assets/demo_base", "/models/qwen", "./qwen", "qwen", str(tmp_path)):
        edit_json(config, lambda content, value=value: content.update(base_model_name_or_path=value))
        status, _, errors = publish(copy, base=None)
        assert status == 2 and errors == [
            f"cprt publish: error: {config}: field 'base_model_name_or_path': {value!r} is a folder on the machine "
            "that trained; give its name on the Hub as --base_model ORG/NAME"
        ]
    edit_json(config, lambda content: content.update(base_model_name_or_path=None))
    assert publish(copy)[2] == [f"cprt publish: error: {config}: field 'base_model_name_or_path': is missing"]
    assert hub.requests == []


def test_a_base_from_the_hub_needs_no_name_and_keeps_its_commit(publish, hub, copy, edit_json):
    commit = "0123456789" * 4
    edit_json(
        copy / "adapter_config.json",
        lambda content: content.update(base_model_name_or_path="Qwen/Qwen3-VL-8B-Instruct"),
    )
    edit_json(copy / "run.json", lambda record: record.update(base_digest=f"Qwen/Qwen3-VL-8B-Instruct@{commit}"))
    assert publish(copy, base=None)[0] == 0
    tree = hub.tree(REPO)
    config = json.loads(tree["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == ("Qwen/Qwen3-VL-8B-Instruct", commit)
    assert json.loads(tree["run.json"])["base_digest"] == f"Qwen/Qwen3-VL-8B-Instruct@{commit}"
    card = tree["README.md"].decode()
    assert f"revision `{commit}`" in card and f'from_pretrained(BASE, revision="{commit}", ' in card
    assert f"vllm serve Qwen/Qwen3-VL-8B-Instruct --revision {commit} --enable-lora --max-lora-rank 64 " in card
    status, _, errors = publish(copy, "--base_revision", "f" * 40, base=None)
    assert status == 2 and errors[0].endswith(f"is not the commit that the run recorded ({commit})")


@pytest.mark.parametrize("how", ["base's name", "processor"])
def test_a_model_derived_from_llama_is_named_so(publish, hub, copy, edit_json, how):
    """Llama first in the name, its notice in the card, its licence whatever the data; the image first in the prompt."""
    base = "meta-llama/Llama-3.2-11B-Vision-Instruct" if how == "base's name" else "some-lab/renamed"
    edit_json(copy / "processor_config.json", lambda content: content.update(processor_class="MllamaProcessor"))
    for repo in ("some-lab/judge", "some-lab/privacy-Llama", "Llama-lab/judge", "some-lab/llama-judge"):
        status, _, errors = publish(copy, base=base, repo=repo)
        assert status == 2 and errors == [
            f"cprt publish: error: repo: {repo}: Llama's licence asks that the name of a "
            f'model derived from {base} begin with "Llama"'
        ]
    assert hub.requests == []
    assert publish(copy, base=base, repo="some-lab/Llama-judge")[0] == 0
    card = hub.tree("some-lab/Llama-judge")["README.md"].decode()
    assert "**Built with Llama.**" in card
    assert card.index('{"type": "image"},') < card.index('{"type": "text", "text": POLICY}')
    known = how == "base's name"
    assert ModelCard(card).data.license == ("llama3.2" if known else "other")
    assert ("Llama 3.2 Community License, Copyright © Meta Platforms" in card) == known


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def tensors(
    change: Callable[[dict[str, torch.Tensor]], Any], dtype: torch.dtype = torch.float32
) -> Callable[[Path], None]:
    """An edit of the weights, saved as ``dtype``."""

    def edit(path: Path) -> None:
        content = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
        change(content)
        save_file(content, path, metadata={"format": "pt"})

    return edit


def zero_b(content: dict[str, torch.Tensor]) -> None:
    for name in content:
        if "lora_B" in name:
            content[name] = torch.zeros_like(content[name]).neg()  # -0.0 changes as little as 0.0


def halve_rank(content: dict[str, torch.Tensor]) -> None:
    for name, tensor in content.items():
        content[name] = (tensor[:, :32] if "lora_B" in name else tensor[:32]).clone()


def product_zero(content: dict[str, torch.Tensor]) -> None:
    """Neither half is zero, and where one is not, the other is."""
    for name, tensor in content.items():
        half = tensor.shape[1 if "lora_B" in name else 0] // 2
        if "lora_B" in name:
            tensor[:, :half] = 0
            tensor[:, half:] = 1
        else:
            tensor[half:] = 0


def drop(pattern: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def edit(content: dict[str, torch.Tensor]) -> None:
        for name in [name for name in content if re.search(pattern, name)]:
            del content[name]

    return edit


def poison(value: float) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda content: content[sorted(content)[5]].view(-1)[3:4].fill_(value)


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (truncate, "is cut off or damaged"),
        (lambda path: path.write_bytes(b""), "is cut off or damaged"),
        (lambda path: path.write_bytes(b"\x80\x02}q\x00." * 100), "is cut off or damaged"),
        (tensors(zero_b), "the product of lora_B and lora_A is zero everywhere"),
        (tensors(zero_b, torch.bfloat16), "the product of lora_B and lora_A is zero everywhere"),
        (tensors(zero_b, torch.float16), "the product of lora_B and lora_A is zero everywhere"),
        (tensors(product_zero), "the product of lora_B and lora_A is zero everywhere"),
        (
            tensors(lambda content: [tensor.zero_() for name, tensor in content.items() if "lora_A" in name]),
            "is zero everywhere",
        ),
        (tensors(drop(r"layers\.[23]\.")), "holds 28 tensors, the run saved 56: some layers are missing"),
        (tensors(drop("q_proj")), "holds 48 tensors, the run saved 56: some layers are missing"),
        (tensors(poison(float("nan")), torch.bfloat16), "holds NaN or infinity"),
        (tensors(poison(float("-inf"))), "holds NaN or infinity"),
        (tensors(lambda content: None, torch.float64), "is float64, not one of float32, float16, bfloat16"),
        (tensors(lambda content: content.pop(sorted(content)[0])), "has only one of lora_A and lora_B"),
        (tensors(dict.clear), "holds no weights"),
        (tensors(halve_rank), "has rank 32, adapter_config.json says 64"),
    ],
)
def test_a_spoiled_adapter_is_refused(publish, hub, copy, spoil, reason):
    """In the run's checkpoint as in the adapter itself: nothing is sent of either."""
    for folder in (copy / "checkpoint-1", copy):
        path = folder / "adapter_model.safetensors"
        whole = path.read_bytes()
        spoil(path)
        status, _, errors = publish(copy, "--checkpoints", "true")
        assert status == 2 and len(errors) == 1
        assert errors[0].startswith(f"cprt publish: error: {path}: ") and reason in errors[0]
        path.write_bytes(whole)
    assert hub.requests == []


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"lora_alpha": 0}, "field 'lora_alpha': is not a number above 0"),
        ({"use_dora": True}, "has no DoRA magnitudes, adapter_config.json says use_dora"),
        ({"r": 32}, "has rank 64, adapter_config.json says 32"),
    ],
)
def test_weights_that_the_configuration_contradicts(publish, hub, copy, edit_json, change, reason):
    edit_json(copy / "adapter_config.json", lambda content: content.update(change))
    status, _, errors = publish(copy)
    assert status == 2 and reason in errors[0] and hub.requests == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_adapters_in_half_precision_are_published(publish, hub, copy, dtype):
    tensors(lambda content: None, dtype)(copy / "adapter_model.safetensors")
    assert publish(copy)[0] == 0
    assert hub.tree(REPO)["adapter_model.safetensors"] == (copy / "adapter_model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "adapter_config.json",
        "adapter_model.safetensors",
        "processor_config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "run.json",
    ],
)
def test_what_is_needed_and_links(publish, hub, copy, name, tmp_path):
    """A file that is missing is named, and one that is a link is not followed."""
    os.replace(copy / name, tmp_path / name)
    assert publish(copy)[2] == [
        f"cprt publish: error: {copy / name}: no such file; train/sft.py leaves it behind when it is done"
    ]
    (copy / name).symlink_to(tmp_path / name)
    assert publish(copy)[2] == [f"cprt publish: error: {copy / name}: is a symbolic link, which is not followed"]
    assert hub.requests == []


def test_links_that_are_not_needed_are_left_out(publish, hub, copy, tmp_path):
    (tmp_path / "elsewhere.json").write_text('{"private": true}')
    (copy / "vocab.json").symlink_to(tmp_path / "elsewhere.json")
    (copy / "checkpoint-7").symlink_to(copy / "checkpoint-1")
    assert publish(copy, "--checkpoints", "true")[0] == 0
    assert set(hub.tree(REPO)) == FILES and "checkpoint-7" not in hub.repos[REPO].branches


SECRETS = {
    "a Hugging Face token": "hf_" + "Zz9" * 11,
    "an API key (sk-...)": "sk-proj-" + "a1B2" * 6,
    "an AWS key": "AKIA" + "ABCD1234" * 2,
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a Google key": "AIza" + "x1Y2z" * 7,
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "a bearer header": "Authorization: Bearer abcdefghij0123456789",
    "a password in an address": "https://me:hunter22@example.org/x",
    "a key of hex digits": "wandb: " + "0123456789abcdef" * 2 + "01234567",
    "a value under a secret's name": "password: correct-horse",
    "the value of HF_TOKEN": TOKEN.removeprefix("hf_"),  # a token of no known form
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_in_any_file_is_refused_and_not_shown(publish, hub, copy, kind, monkeypatch, edit_json):
    """The line names file, and line or field; the secret itself is nowhere in what is said."""
    secret = SECRETS[kind]
    monkeypatch.setenv("HF_TOKEN", TOKEN.removeprefix("hf_"))

    def hide(content: dict[str, Any]) -> None:
        content["added"] = {"list": ["before", secret]}

    for file in (
        "run.json",
        "adapter_config.json",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "checkpoint-1/tokenizer_config.json",
    ):
        before = (copy / file).read_text()
        edit_json(copy / file, hide)
        status, _, errors = publish(copy, "--checkpoints", "true")
        assert status == 2 and errors == [
            f"cprt publish: error: {copy / file}: field 'added.list[1]': holds what looks like {kind}; nothing was sent"
        ]
        (copy / file).write_text(before)
    template = copy / "chat_template.jinja"
    lines = template.read_text().count("\n")
    template.write_text(template.read_text() + f"\n{{# {secret} #}}\n")
    status, _, errors = publish(copy)
    assert status == 2 and errors == [
        f"cprt publish: error: {template}:{lines + 2}: holds what looks like {kind}; nothing was sent"
    ]
    assert hub.requests == []


def test_secrets_in_odd_places(publish, hub, copy, edit_json):
    """A key beside its name in a list, one that JSON escapes, one that is itself a name, one in the weights."""
    record = copy / "run.json"
    before = record.read_text()
    hexed = "0123456789abcdef" * 2 + "01234567"
    token = SECRETS["a Hugging Face token"]
    for change, field in (
        (lambda content: content["command"].extend(["--wandb_api_key", hexed]), "command["),
        (lambda content: content["config"]["trainer"].update(hub_token="whatever-it-is"), "config.trainer.hub_token"),
        (lambda content: content.update({token: 1}), None),
    ):
        edit_json(record, change)
        status, _, errors = publish(copy)
        assert status == 2 and str(record) in errors[0] and (field is None or f"field '{field}" in errors[0])
        assert hexed not in errors[0] and "whatever-it-is" not in errors[0] and token not in errors[0]
        record.write_text(before)
    record.write_text(before.replace('"created"', '"note": "\\u0068\\u0066' + token[2:] + '", "created"'))
    assert "field 'note': holds what looks like a Hugging Face token" in publish(copy)[2][0]
    record.write_text(before)
    weights = load_file(copy / "adapter_model.safetensors")
    save_file(weights, copy / "adapter_model.safetensors", metadata={"format": "pt", "note": token})
    assert "field '__metadata__.note': holds what looks like a Hugging Face token" in publish(copy)[2][0]
    assert hub.requests == []


def test_a_path_of_the_machine_in_a_configuration_is_refused(publish, hub, copy, edit_json):
    edit_json(copy / "processor_config.json", lambda content: content.update(note={"from": "/home/someone/base"}))
    file = copy / "processor_config.json"
    line = f"cprt publish: error: {file}: field 'note.from': is a path on the machine that trained"
    assert publish(copy)[2] == [line]
    assert hub.requests == []


def test_a_path_in_a_file_that_is_no_configuration_is_refused(publish, hub, copy):
    template = copy / "chat_template.jinja"
    template.write_text(template.read_text() + "\n{# from /home/someone/base #}\n")
    assert "holds what looks like a path of a machine; nothing was sent" in publish(copy)[2][0]
    assert hub.requests == []


def test_what_would_run_a_checkpoints_code_is_left_out(publish, hub, copy, edit_json):
    """At any depth; what else stands there stays, and a file without it is sent byte for byte."""
    code = {
        "auto_map": {"AutoProcessor": "thief--x.Processor"},
        "trust_remote_code": True,
        "custom_pipelines": {"a": 1},
    }
    processor, tokenizer = (
        json.loads((copy / f"{name}_config.json").read_text()) for name in ("processor", "tokenizer")
    )
    edit_json(
        copy / "processor_config.json", lambda content: (content.update(code), content["image_processor"].update(code))
    )
    edit_json(copy / "tokenizer_config.json", lambda content: content.update(code))
    edit_json(copy / "adapter_config.json", lambda content: content.update(auto_mapping={"parent_library": "thief"}))
    assert publish(copy)[0] == 0
    tree = hub.tree(REPO)
    assert not [name for name, content in tree.items() if b"thief" in content]
    assert json.loads(tree["processor_config.json"]) == processor
    loading = ("is_local", "local_files_only")
    assert json.loads(tree["tokenizer_config.json"]) == {k: v for k, v in tokenizer.items() if k not in loading}
    assert json.loads(tree["adapter_config.json"])["auto_mapping"] is None
