"""``configs/eval/table6.yaml`` is the paper's Table 6: every model and prompt, and each row can be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback import Misbehaving

from cprt.config import parse
from cprt.errors import InputError
from cprt.taxonomy import Taxonomy
from eval.judges import Judge, rows_at_hand
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


HOSTED = {"gpt-5.2", "gemini-3-flash", "qwen3-vl-32b", "llama-4-maverick"}  # paper 4.3


def judges(root: Path, config: str, *options: str) -> tuple[EvalArguments, list[Judge]]:
    (args,) = parse(EvalArguments, ["--config", str(root / "configs/eval" / config), *options])
    return args, find_judges(args, Taxonomy.default())


def test_every_row_of_the_table_is_there_once_and_decoded_as_in_the_paper(root: Path, capsys):
    args, found = judges(root, "table6.yaml")
    prompts = ("zero_shot", "intuition", "taxonomy")
    expected = [f"{name}-{prompt}" for name in PROMPTED.values() for prompt in prompts]
    expected += [f"{name}-taxonomy" for name in TUNED.values()]
    assert sorted(judge.name for judge in found) == sorted(expected) and len(expected) == 29
    assert args.images == "outputs/vispr" and not args.allow_remote  # the originals
    for judge in found:
        by_default = judge.spec.name in HOSTED
        assert judge.spec.temperature == (None if by_default else 0) and judge.prompt.target == "score"
        assert judge.spec.max_new_tokens == (None if by_default else 256)
        assert (judge.spec.api_key_env is not None) is by_default
        assert (judge.spec.adapter is not None) is judge.name.startswith("sft-")
        assert judge.spec.max_pixels is None  # an adapter's own cap is its processor's
    said = capsys.readouterr().out
    for size in ("4b", "2b"):
        assert f"authors-qwen3-vl-{size} is left out: its prompt outputs/prompts/authors.yaml is not there" in said


def test_the_authors_checkpoints_are_asked_with_the_prompt_that_a_user_brings(root: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"outputs/prompts/authors\.yaml: is not there; docs/evaluating\.md says"):
        judges(root, "table6.yaml", "--only", "authors-qwen3-vl-4b")
    with pytest.raises(InputError, match=r"called 'xyz' \(there are .*authors-qwen3-vl-4b"):
        judges(root, "table6.yaml", "--only", "xyz")
    with pytest.raises(InputError, match=r"called 'authors-qwen-4b' \(did you mean authors-qwen3-vl-4b\?\)$"):
        judges(root, "table6.yaml", "--only", "authors-qwen-4b")
    file = tmp_path / "outputs" / "prompts" / "authors.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: authors\npolicy: Weigh it.\nphoto: first\nscore_key: privacy_score\n")
    _, found = judges(root, "table6.yaml")
    own = {judge.name: judge for judge in found if judge.name.startswith("authors")}
    assert len(found) == 31
    assert sorted(own) == ["authors-qwen3-vl-2b-authors", "authors-qwen3-vl-4b-authors"]
    for size in ("2B", "4B"):
        judge = own[f"authors-qwen3-vl-{size.lower()}-authors"]
        assert judge.spec.model == f"tiantiaf/CPRT-Qwen3-VL-{size}-Instruct"
        assert judge.prompt.score_key == "privacy_score"
        assert [part["type"] for part in judge.prompt.messages()[0]["content"]] == ["image", "text"]


def test_an_optional_row_says_so_with_a_word(tmp_path: Path):
    with pytest.raises(InputError, match=r"models\[1\]: field 'optional': 'yes' is not true or false"):
        rows_at_hand([{"name": "a", "optional": "yes"}], [])
    missing = {"name": "a", "optional": True, "prompts": ["nowhere.yaml"]}
    with pytest.raises(InputError, match="models: no row is left to ask"):
        rows_at_hand([missing], [])
    named = [{"name": "a", "optional": True, "prompts": ["taxonomy"]}, {"name": "b", "prompts": ["nowhere.yaml"]}]
    assert rows_at_hand(named, []) == named  # a prompt that is not there is left out only where the row says so


def test_the_small_photos_have_rows_of_their_own(root: Path):
    """The same models and settings on 512 x 512, in another folder, under names that are no row of the paper."""
    _, whole = judges(root, "table6.yaml")
    args, small = judges(root, "table6_small.yaml")
    assert args.images == "outputs/vispr_small" and args.out == "outputs/table6_small"
    originals = {judge.spec.name: judge.spec for judge in whole}
    assert {judge.spec.name for judge in small} == {f"{name}-512px" for name in PROMPTED.values()}
    for judge in small:
        original = originals[judge.spec.name.removesuffix("-512px")]
        assert judge.spec.max_pixels == (None if "llama-3.2" in judge.spec.name else 512 * 512)
        same = replace(judge.spec, name=original.name, max_pixels=original.max_pixels, batch_size=original.batch_size)
        assert same == original


def test_the_recipe_for_more_pixels_is_the_other_one_but_for_what_it_says(root: Path):
    few, many = (
        yaml.safe_load((root / "configs/sft" / f"{name}.yaml").read_text())
        for name in ("qwen3_vl_8b", "qwen3_vl_8b_1024_tokens")
    )
    assert few["max_pixels"] == 256 * 32 * 32 and many["max_pixels"] == 1024 * 32 * 32  # 32 x 32 pixels a token
    differ = {key for key in few.keys() | many.keys() if few.get(key) != many.get(key)}
    batches = {"per_device_train_batch_size", "per_device_eval_batch_size"}
    assert differ == {"images", "max_pixels", "output_dir"} | batches


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
    for body in server.bodies:  # a hosted one gets nothing but the question
        local = body["model"].startswith(("openbmb", "mistralai"))
        sent = {key: body[key] for key in body if key not in ("model", "messages")}
        assert sent == ({"max_tokens": 256, "temperature": 0} if local else {})
    results = sorted((tmp_path / "out").glob("*/metrics.json"))
    assert len(results) == 18 and all(json.loads(path.read_text())["coverage"] == 1 for path in results)
