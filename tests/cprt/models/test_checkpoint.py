"""A checkpoint is loaded whole, or refused in one line; an adapter fits tensor by tensor, or is refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from cprt.errors import InputError
from cprt.models.adapter import add_adapter, check_adapter, other_base, recorded_prompt
from cprt.models.checkpoint import identity, load_model, load_processor
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.taxonomy import Taxonomy

Tensors = dict[str, torch.Tensor]
EMBEDDING = "model.language_model.embed_tokens.weight"
NORM = "model.language_model.layers.0.post_attention_layernorm.weight"


@pytest.fixture
def base(demo_base: Path, tmp_path: Path) -> Path:
    """A copy of the demo's base to spoil."""
    return Path(shutil.copytree(demo_base, tmp_path / "base"))


def edit(path: Path, **values: Any) -> None:
    """Set fields of a JSON file, which need not be there yet."""
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **values}))


def spoilt(weights: Tensors, name: str, value: float) -> Tensors:
    changed = weights[name].clone()
    changed.view(-1)[0] = value
    return {**weights, name: changed}


WEIGHTS: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "no vision encoder": (
        lambda all: {name: weight for name, weight in all.items() if ".visual." not in name},
        "weights (model.visual.",
    ),
    "one missing": (lambda all: {name: all[name] for name in all if name != NORM}, f"{NORM} is missing"),
    "names of another family": (
        lambda all: {name.replace("model.", "transformer."): weight for name, weight in all.items()},
        "are missing",
    ),
    "one too many": (lambda all: {**all, "model.more.weight": torch.zeros(3)}, "model.more.weight is in none of"),
    "another shape": (lambda all: {**all, NORM: all[NORM][:4].clone()}, f"{NORM} is of another shape"),
    "NaN": (lambda all: spoilt(all, NORM, float("nan")), f"{NORM} holds NaN or infinity"),
    "infinity": (lambda all: spoilt(all, EMBEDDING, float("-inf")), f"{EMBEDDING} holds NaN or infinity"),
}


@pytest.mark.parametrize("change, reason", WEIGHTS.values(), ids=WEIGHTS)
def test_weights_that_are_not_the_models_are_refused(base, change, reason, capfd):
    """Otherwise they would run as random ones; and the library's table of faults does not stand before our line."""
    weights = load_file(base / "model.safetensors")
    save_file(change(weights), base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError) as error:
        load_model(str(base))
    assert reason in str(error.value) and str(error.value).startswith(f"{base}: ") and "\n" not in str(error.value)
    assert "MISSING" not in capfd.readouterr().err


@pytest.mark.parametrize("layers, reason", [(5, "weights (model.language_model.layers.4."), (3, "in none of its")])
def test_a_config_with_more_or_fewer_layers_is_refused(base, layers, reason):
    text = json.loads((base / "config.json").read_text())["text_config"]
    edit(base / "config.json", text_config={**text, "num_hidden_layers": layers})
    with pytest.raises(InputError, match="not those of its config.json") as error:
        load_model(str(base))
    assert reason in str(error.value)


def test_patches_are_embedded_as_by_the_librarys_convolution(base):
    embed = deepcopy(load_model(str(base), dtype="float32").model.visual.patch_embed)
    patches = torch.randn(12, embed.proj.weight[0].numel())
    embed.proj.weight.data *= 2  # of the copy, whose own weights count
    assert torch.allclose(embed(patches), type(embed).forward(embed, patches), atol=1e-5)


def test_the_folder_of_an_adapter_is_no_model(base, adapter):
    """It would bring along whatever base its configuration names."""
    shutil.copy(adapter / "adapter_config.json", base)
    with pytest.raises(InputError, match="is the folder of an adapter; give its base as the model"):
        load_model(str(base))


FILES = "config generation_config processor_config tokenizer_config tokenizer special_tokens_map added_tokens".split()
FILES += ["preprocessor_config", "video_preprocessor_config", "chat_template", "model.safetensors.index"]


@pytest.mark.parametrize("content", ["[]", "null", '"text"', "7", "{", "", "[" * 100_000, "\udcff"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_json_object_is_named(base, name, content):
    path = base / f"{name}.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    for load in (load_processor, load_model)[: 1 if name == "tokenizer" else 2]:
        with pytest.raises(InputError) as error:
            load(str(base))
        assert str(error.value).startswith(f"{path}: is not ") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "file, values",
    [
        ("config.json", {"model_type": "nothing_known"}),
        ("config.json", {"model_type": []}),
        ("config.json", {"vision_config": []}),
        ("config.json", {"dtype": "float7"}),
        ("config.json", {"model_type": "nothing_known", "auto_map": {"AutoConfig": "code.Config"}}),
        ("generation_config.json", {"cache_implementation": "no such"}),
        ("generation_config.json", {"compile_config": 3}),
        ("processor_config.json", {"image_processor": []}),
        ("processor_config.json", {"image_processor": {"image_processor_type": "Qwen2VLImageProcessor", "size": {}}}),
        ("processor_config.json", {"video_processor": []}),
        ("processor_config.json", {"processor_class": "NoSuchProcessor"}),
        ("tokenizer_config.json", {"pad_token": None}),
        ("tokenizer_config.json", {"pad_token": 7}),
        ("tokenizer_config.json", {"tokenizer_class": []}),
        ("tokenizer_config.json", {"model_max_length": "long"}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": 1}}),
        ("tokenizer.json", {"model": {"type": "NoSuchModel"}}),  # the library raises a bare Exception
        ("tokenizer.json", {"model": []}),
        ("tokenizer.json", {"added_tokens": {}}),
        ("tokenizer.json", {"version": "9"}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "NoSuchThing"}}),
    ],
    ids=str,
)
def test_odd_files_are_one_line(base, file, values):
    edit(base / file, **values)
    with pytest.raises(InputError) as error:
        load_processor(str(base))
        load_model(str(base))
    assert str(base) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "field, value, max_pixels",
    [
        ("size", {"shortest_edge": "x", "longest_edge": "y"}, None),
        ("size", {"shortest_edge": "x", "longest_edge": "y"}, 9216),
        ("size", {"shortest_edge": 0, "longest_edge": 0}, None),
        ("patch_size", 0, None),
        ("patch_size", "x", 9216),
        ("merge_size", 0, None),
        ("image_mean", [], None),
        ("image_std", [0, 0, 0], None),
    ],
)
def test_an_image_processor_that_cannot_work_is_one_line(base, field, value, max_pixels):
    path = base / "processor_config.json"
    edit(path, image_processor={**json.loads(path.read_text())["image_processor"], field: value})
    with pytest.raises(InputError) as error:
        load_processor(str(base), max_pixels=max_pixels)
    assert str(base) in str(error.value) and "\n" not in str(error.value)


def test_a_size_of_photos_in_a_file_that_is_not_read_is_refused(base):
    """Where processor_config.json holds the image processor's settings, those of the older file go unread."""
    size = json.loads((base / "processor_config.json").read_text())["image_processor"]["size"]
    edit(base / "preprocessor_config.json", size=size, patch_size=16)
    load_processor(str(base))
    for field, value in (("max_pixels", 4096), ("size", {**size, "longest_edge": 4096})):
        edit(base / "preprocessor_config.json", **{"size": size, field: value})
        with pytest.raises(InputError, match=f"preprocessor_config.json: field '{field}': is not read"):
            load_processor(str(base))


@pytest.mark.parametrize("values", [{}, {"patch_size": 14}, {"merge_size": 4}])
def test_a_processor_of_another_model_is_one_line(base, values):
    """Photos are cut into other patches than the model's: the first question would end the run."""
    path = base / "processor_config.json"
    own = json.loads(path.read_text())["image_processor"]
    edit(path, image_processor={**own, **values} if values else {})
    with pytest.raises(InputError, match=r"its processor has (patch|merge)_size \d+, its config.json ") as error:
        LocalModel(str(base), dtype="float32")
    assert str(base) in str(error.value) and "\n" not in str(error.value)


IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{{ raise_exception('no system message') }}",
        "{% for",
        "{{ 1 / 0 }}",
        "{{ messages[9].content }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ 'a' + 3 }}",
        "no message at all",
        IMAGE + "no message at all",
        "{% for part in messages[0].content %}{{ part.text }}{% endfor %}",
        IMAGE * 2 + "{% for part in messages[0].content %}{{ part.text }}{% endfor %}",
        IMAGE + "{{ messages[0].content[0].text }}",
        IMAGE + "{% for part in messages[0].content * 2 %}{{ part.text }}{% endfor %}",
    ],
)
def test_a_chat_template_that_raises_or_loses_something_is_one_line(base, template):
    """Without an image, with two, without the question or with it twice: refused before anything is asked."""
    (base / "chat_template.jinja").write_text(template)
    with pytest.raises(InputError) as error:
        load_processor(str(base))
    assert str(error.value).startswith(f"{base}: ") and "\n" not in str(error.value)


def test_code_of_a_checkpoint_is_never_run_and_never_asked_about(base, monkeypatch):
    """Its own classes are passed over where transformers has the model; there is no question on the terminal."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on the terminal"))
    code = 'raise SystemExit("the code of the checkpoint ran")\n'
    (base / "code.py").write_text(code)
    own = {"AutoConfig": "code.Config", "AutoModelForImageTextToText": "code.Model", "AutoProcessor": "code.Processor"}
    edit(base / "config.json", auto_map=own)
    edit(base / "processor_config.json", auto_map=own)
    edit(base / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.Tokenizer", None]})
    assert type(load_processor(str(base))).__name__ == "Qwen3VLProcessor"
    assert type(load_model(str(base))).__name__ == "Qwen3VLForConditionalGeneration"


# --- Adapters -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapter(demo_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small adapter that changes something, on two projections of every layer."""
    torch.manual_seed(0)
    config = LoraConfig(
        r=4, target_modules=r".*language_model\..*\.(q|v)_proj", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    folder = tmp_path_factory.mktemp("adapter")
    get_peft_model(load_model(str(demo_base), dtype="float32"), config).save_pretrained(folder)
    return folder


@pytest.fixture
def copy(adapter: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(adapter, tmp_path / "adapter"))


@pytest.fixture
def model(demo_base: Path) -> Any:
    return load_model(str(demo_base), dtype="float32")


def refused(model: Any, folder: Path) -> str:
    """The line with which an adapter is refused."""
    with pytest.raises(InputError) as error:
        add_adapter(model, folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_good_adapter_has_the_values_of_its_file(demo_base, adapter):
    adapted = add_adapter(load_model(str(demo_base), dtype="float32"), adapter)
    state = adapted.state_dict()
    for name, weight in load_file(adapter / "adapter_model.safetensors").items():
        assert torch.equal(state[name.replace(".weight", ".default.weight")], weight)
    assert not any(weight.requires_grad for weight in adapted.parameters())


FIRST = "base_model.model.model.language_model.layers.0.self_attn.q_proj"
ADAPTERS: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "other names": (
        lambda all: {name.replace("q_proj", "Q_proj"): weight for name, weight in all.items()},
        f"lacks {FIRST}.lora_A.default.weight and 7 more",
    ),
    "another prefix": (lambda all: {f"x.{name}": weight for name, weight in all.items()}, "and 15 more"),
    "one layer of four": (
        lambda all: {name: weight for name, weight in all.items() if ".layers.0." in name},
        "adapter_model.safetensors lacks base_model.model.model.language_model.layers.1.",
    ),
    "one tensor too many": (
        lambda all: all | {f"base_model.model.more.lora_{half}.weight": torch.ones(4, 4) for half in "AB"},
        "the model has no place for base_model.model.more.lora_A.weight and 1 more",
    ),
    "another width": (
        lambda all: all | {f"{FIRST}.lora_A.weight": torch.ones(4, 64)},
        f"size mismatch for {FIRST}.lora_A.default.weight",
    ),
    "another rank": (
        lambda all: {n: (w[:2] if "lora_A" in n else w[:, :2]).contiguous() for n, w in all.items()},
        "has rank 2, adapter_config.json says 4",
    ),
    "two ranks": (
        lambda all: {n: w[:2].clone() if "lora_A" in n else w for n, w in all.items()},
        "has rank 2 in lora_A and 4 in lora_B",
    ),
    "half of a pair": (lambda all: {n: w for n, w in all.items() if n != f"{FIRST}.lora_B.weight"}, "has only one of"),
    "NaN": (lambda all: spoilt(all, f"{FIRST}.lora_A.weight", float("nan")), "lora_A.weight holds NaN or infinity"),
    "infinity in bfloat16": (
        lambda all: spoilt({n: w.bfloat16() for n, w in all.items()}, f"{FIRST}.lora_B.weight", float("inf")),
        "lora_B.weight holds NaN or infinity",
    ),
    "no effect": (
        lambda all: {n: w * 0 if "lora_B" in n else w for n, w in all.items()},
        "the product of lora_B and lora_A is zero everywhere",
    ),
    "no effect, lora_B aside": (
        lambda all: {n: w * 0 if "lora_A" in n else w for n, w in all.items()},
        "the product of lora_B and lora_A is zero everywhere",
    ),
    "whole numbers": (
        lambda all: {n: w.int() for n, w in all.items()},
        "is int32, not one of float32, float16, bfloat16",
    ),
    "nothing": (lambda all: {}, "holds no weights"),
    "magnitudes without DoRA": (
        lambda all: all | {f"{FIRST}.lora_magnitude_vector": torch.ones(128)},
        "has DoRA magnitudes, adapter_config.json says use_dora: False",
    ),
}


@pytest.mark.parametrize("change, reason", ADAPTERS.values(), ids=ADAPTERS)
def test_adapters_whose_weights_do_not_fit_are_refused(model, copy, change, reason):
    """Each of them would have answered as the base, or as something in between."""
    path = copy / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)
    assert reason in refused(model, copy)


@pytest.mark.parametrize(
    "values, reason",
    [
        ({"use_dora": True}, "has no DoRA magnitudes"),
        ({"target_modules": ["no_such_proj"]}, "no_such_proj"),
        ({"target_modules": ["q_proj", "v_proj", "k_proj"]}, "lacks"),
        ({"target_modules": r".*language_model\..*\.q_proj"}, "the model has no place for"),
        ({"target_modules": "("}, "does not fit the model"),
        ({"target_modules": 3}, "does not fit the model"),
        ({"target_modules": None}, "does not fit the model"),
        ({"modules_to_save": ["lm_head"]}, "does not fit the model"),
        ({"layers_to_transform": "x"}, "does not fit the model"),
        ({"peft_type": "IA3"}, "'IA3' is not LORA"),
        ({"peft_type": []}, "is not LORA"),
        ({"r": 0}, "field 'r'"),
        ({"r": "4"}, "field 'r'"),
        ({"r": 4.0}, "field 'r'"),
        ({"lora_alpha": 0}, "field 'lora_alpha'"),
        ({"lora_alpha": "x"}, "field 'lora_alpha'"),
        ({"lora_alpha": None}, "field 'lora_alpha'"),
        ({"lora_dropout": "x"}, "does not fit the model"),
        ({"rank_pattern": []}, "does not fit the model"),
        ({"lora_alpha": 1e308}, "field 'lora_alpha': is not a number above 0 and up to 1,000,000"),
        ({"alpha_pattern": 3}, "does not fit the model"),
        ({"alpha_pattern": {"q_proj": "x"}}, "field 'alpha_pattern.q_proj'"),
        ({"alpha_pattern": {"q_proj": -1}}, "field 'alpha_pattern.q_proj'"),
        ({"task_type": "NO_SUCH_TASK"}, "does not fit the model"),
        ({"bias": "some"}, "holds no biases"),
        ({"bias": "all"}, "holds no biases"),
        ({"arrow_config": {}}, "does not fit the model"),
        ({"init_lora_weights": "no_such_init"}, "does not fit the model"),
    ],
    ids=str,
)
def test_odd_adapter_configurations_are_one_line(model, copy, values, reason):
    edit(copy / "adapter_config.json", **values)
    assert reason in refused(model, copy)


@pytest.mark.parametrize("content", ["[]", "{}", "null", '"x"', "{", "", '{"lora_alpha": NaN}', "[" * 100_000])
def test_an_adapter_configuration_that_is_no_object_is_named(copy, content):
    (copy / "adapter_config.json").write_text(content)
    with pytest.raises(InputError, match=r"adapter_config\.json") as error:
        check_adapter(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\x08", b"\x00" * 8, b"\xff" * 64, (999).to_bytes(8, "little") + b"{"])
def test_damaged_adapter_weights_are_named(copy, content):
    (copy / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"adapter_model\.safetensors: is cut off or damaged"):
        check_adapter(copy)


def test_an_adapter_that_lost_tensors_since_its_run_counted_them_is_refused(model, copy):
    """Even where its configuration would be content with what is left: half of the layers, say."""
    edit(copy / "run.json", result={"tensors": 32})
    with pytest.raises(InputError, match="holds 16 tensors, the run saved 32: some layers are missing"):
        add_adapter(model, copy)
    edit(copy / "run.json", result={"tensors": 16})
    add_adapter(model, copy)


def test_another_base_than_the_adapters_is_said(copy, demo_base, base):
    assert other_base(copy, identity(str(demo_base))) is None  # nothing is recorded
    edit(copy / "run.json", base_model="some/base", base_digest=identity(str(demo_base)))
    assert other_base(copy, identity(str(base))) is None  # a copy is the same base
    edit(base / "generation_config.json", eos_token_id=1)
    said = other_base(copy, identity(str(base)))
    assert said is not None and "was trained on another base (some/base, " in said


@pytest.mark.parametrize("named", [None, {}, [], "taxonomy", {"name": "zero_shot"}, {"x": 1}])
def test_a_prompt_that_no_record_names_is_none(named):
    assert recorded_prompt({"prompt": named}, Taxonomy.default()) is None


def test_the_prompt_is_the_one_that_the_record_holds(tmp_path):
    (tmp_path / "own.yaml").write_text("name: own\npolicy: Look.\nphoto: last\n")
    for prompt in (build("taxonomy", "attributes"), build("intuition"), build(str(tmp_path / "own.yaml"))):
        assert recorded_prompt({"prompt": prompt.identity()}, Taxonomy.default()) == prompt
        assert recorded_prompt({"prompt": {**prompt.identity(), "sha256": "0"}}, Taxonomy.default()) is None


def test_a_wrong_adapter_is_refused_by_the_model_that_answers(demo_base, copy):
    path = copy / "adapter_model.safetensors"
    save_file({n: w for n, w in load_file(path).items() if ".layers.0." in n}, path)
    with pytest.raises(InputError, match="does not fit the model"):
        LocalModel(str(demo_base), str(copy), dtype="float32")
